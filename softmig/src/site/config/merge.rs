//! gres.conf and cgroup.conf beside those that a site has already: what the site says there of its own stays.

use softmig_policy::slurm::conf::{lines, pairs, settings, value};
use softmig_policy::slurm::hostlist::{compress, expand};
use std::collections::BTreeSet;

/// The file that is to be there, made from what softmig needs and from what is there.
pub(super) fn merged(name: &str, made: &str, there: &str) -> String {
    match name {
        "gres.conf" => gres_conf(made, there),
        "cgroup.conf" => cgroup_conf(made, there),
        _ => made.to_string(),
    }
}

/// The site's file with softmig's settings. A setting of the site's with another value gives way to softmig's.
fn cgroup_conf(made: &str, there: &str) -> String {
    let theirs = settings(there);
    let missing: Vec<(String, String)> = settings(made)
        .into_iter()
        .filter(|(key, wanted)| {
            let own = value(&theirs, key);
            own.is_none_or(|own| !own.eq_ignore_ascii_case(wanted))
        })
        .collect();
    if missing.is_empty() {
        return there.to_string();
    }
    let gives_way = |line: &&str| {
        let key = line.split('=').next().unwrap_or_default().trim();
        value(&missing, key).is_none()
    };
    let mut text: String = there
        .lines()
        .filter(gives_way)
        .fold(String::new(), |all, line| all + line + "\n");
    text += "# softmig needs these: softmig's example of this file says why.\n";
    for (key, value) in missing {
        text += &format!("{key}={value}\n");
    }
    text
}

/// softmig's lines of the nodes in `[[nodes]]`, with the cores that the site gives their GPUs; and the site's other lines.
fn gres_conf(made: &str, there: &str) -> String {
    let made_lines = lines(made).into_iter();
    let ours: BTreeSet<String> = made_lines
        .filter_map(|(_, line)| Some(expand(value(&pairs(&line), "NodeName")?)))
        .flatten()
        .collect();
    let theirs: Vec<String> = lines(there).into_iter().map(|(_, line)| line).collect();
    let mut text = String::new();
    for line in made.lines() {
        for line in with_cores(line, &theirs) {
            text += &line;
            text.push('\n');
        }
    }
    let kept: Vec<String> = theirs.iter().filter_map(|line| kept(line, &ours)).collect();
    let kept: Vec<&str> = kept
        .iter()
        .map(String::as_str)
        .filter(|line| !made.lines().any(|own| own == *line))
        .collect();
    if !kept.is_empty() {
        text += "\n# The site's own lines, of other nodes and other GRES.\n";
        text += &kept.join("\n");
        text.push('\n');
    }
    text
}

/// A line of the site's without the nodes that softmig has lines of.
fn kept(line: &str, ours: &BTreeSet<String>) -> Option<String> {
    if line
        .split_ascii_whitespace()
        .next()?
        .eq_ignore_ascii_case("include")
    {
        return Some(line.to_string());
    }
    let words = pairs(line);
    let name = value(&words, "Name");
    let is_softmigs = name.is_none_or(|name| ["gpu", "shard", "mps"].contains(&name));
    if !is_softmigs {
        return Some(line.to_string());
    }
    let Some(nodes) = value(&words, "NodeName") else {
        // For all nodes: that is softmig's to say where it knows them.
        return ours.is_empty().then(|| line.to_string());
    };
    let all = expand(nodes);
    let others: Vec<&str> = all
        .iter()
        .map(String::as_str)
        .filter(|node| !ours.contains(*node))
        .collect();
    match others.len() {
        0 => None,
        left if left == all.len() => Some(line.to_string()),
        _ => Some(line.replacen(nodes, &compress(others), 1)),
    }
}

/// A line of GPUs, split where the site has them near different cores.
fn with_cores(line: &str, theirs: &[String]) -> Vec<String> {
    let words = pairs(line);
    let is_gpus = !line.starts_with('#') && value(&words, "Name") == Some("gpu");
    let (Some(nodes), Some(files), true) =
        (value(&words, "NodeName"), value(&words, "File"), is_gpus)
    else {
        return vec![line.to_string()];
    };
    let node = expand(nodes).into_iter().next().unwrap_or_default();
    let cores = |file: &str| {
        theirs.iter().find_map(|line| {
            let words = pairs(line);
            let is_for =
                value(&words, "NodeName").is_none_or(|nodes| expand(nodes).contains(&node));
            let has = value(&words, "File")
                .is_some_and(|files| expand(files).iter().any(|own| own == file));
            let is_gpu = value(&words, "Name") == Some("gpu");
            value(&words, "Cores")
                .filter(|_| is_for && has && is_gpu)
                .map(str::to_string)
        })
    };
    let mut runs: Vec<(Option<String>, Vec<String>)> = Vec::new();
    for file in expand(files) {
        let own = cores(&file);
        match runs.last_mut() {
            Some((cores, files)) if *cores == own => files.push(file),
            _ => runs.push((own, vec![file])),
        }
    }
    let runs = runs.into_iter().map(|(cores, own)| {
        let own = compress(own.iter().map(String::as_str));
        let line = line.replacen(files, &own, 1);
        match cores {
            Some(cores) => format!("{line} Cores={cores}"),
            None => line,
        }
    });
    runs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRES: &str = "# Why\nAutoDetect=off\n\nNodeName=g[1-2] Name=gpu Type=a File=/dev/nvidia[0-3]\n\
                        NodeName=g[1-2] Name=shard Type=a Count=16 File=/dev/nvidia[0-3]\n";

    #[test]
    fn lines_of_other_nodes_and_cores_stay() {
        let there = "AutoDetect=nvml\n# old\nNodeName=g[1-3] Name=gpu Type=a File=/dev/nvidia[0-1] Cores=0-15\n\
                     NodeName=g[1-3] Name=gpu Type=a File=/dev/nvidia[2-3] Cores=16-31\n\
                     NodeName=h1 Name=gpu Type=b File=/dev/nvidia0\nName=nic Count=2\ninclude more.conf\n";
        let made = merged("gres.conf", GRES, there);
        assert_eq!(
            made,
            "# Why\nAutoDetect=off\n\nNodeName=g[1-2] Name=gpu Type=a File=/dev/nvidia[0-1] Cores=0-15\n\
             NodeName=g[1-2] Name=gpu Type=a File=/dev/nvidia[2-3] Cores=16-31\n\
             NodeName=g[1-2] Name=shard Type=a Count=16 File=/dev/nvidia[0-3]\n\n\
             # The site's own lines, of other nodes and other GRES.\n\
             NodeName=g3 Name=gpu Type=a File=/dev/nvidia[0-1] Cores=0-15\n\
             NodeName=g3 Name=gpu Type=a File=/dev/nvidia[2-3] Cores=16-31\n\
             NodeName=h1 Name=gpu Type=b File=/dev/nvidia0\nName=nic Count=2\ninclude more.conf\n"
        );
        // Once it is taken over, nothing is to be done.
        assert_eq!(merged("gres.conf", GRES, &made), made);
        assert_eq!(
            merged("gres.conf", GRES, "Name=gpu File=/dev/nvidia0\n"),
            GRES
        );
    }

    #[test]
    fn settings_of_cgroup_conf_stay() {
        let wanted = "# Why\nConstrainDevices=yes\nConstrainCores=yes\n";
        let there = "CgroupPlugin=cgroup/v1\n# mine\nconstraincores=Yes\nConstrainDevices=no\nConstrainSwapSpace=yes\n";
        let made = merged("cgroup.conf", wanted, there);
        assert_eq!(
            made,
            "CgroupPlugin=cgroup/v1\n# mine\nconstraincores=Yes\nConstrainSwapSpace=yes\n\
             # softmig needs these: softmig's example of this file says why.\nConstrainDevices=yes\n"
        );
        assert_eq!(merged("cgroup.conf", wanted, &made), made);
    }

    #[test]
    fn other_files_are_softmigs_alone() {
        assert_eq!(merged("softmig.conf", "a\n", "b\n"), "a\n");
    }
}
