//! A configuration that is given as files: slurm.conf, and gres.conf and cgroup.conf beside it.

use crate::ask::conf::{Declared, GresLine, Line, Lines, Partition, Seen, Setting, Settings};
use crate::ask::node::Node;
use anyhow::{Context, bail};
use softmig_policy::slurm::conf::{lines, pairs};
use softmig_policy::slurm::gres_list::Configured;
use softmig_policy::slurm::hostlist::expand;
use std::collections::HashSet;
use std::path::Path;

/// The facts in slurm.conf.
#[derive(Debug, Default)]
pub(crate) struct SlurmConf {
    /// Its settings.
    pub(crate) settings: Settings,
    /// The nodes.
    pub(crate) nodes: Vec<Node>,
    /// The partitions.
    pub(crate) partitions: Vec<Partition>,
    /// The lines that define both.
    pub(crate) lines: Lines,
}

/// Settings of which all lines count. Of other settings only the last line counts.
const REPEATED: [&str; 3] = ["Prolog", "Epilog", "SlurmctldHost"];

/// How deep files may include files.
const DEEPEST: u32 = 5;

/// Reads slurm.conf and what it includes.
pub(crate) fn slurm_conf(path: &Path) -> anyhow::Result<SlurmConf> {
    let mut all = Vec::new();
    with_includes(path, 0, &mut all)?;
    Ok(parse(&all))
}

fn with_includes(path: &Path, depth: u32, all: &mut Vec<(Line, String)>) -> anyhow::Result<()> {
    if depth > DEEPEST {
        bail!("{}: files include each other", path.display());
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    for (number, line) in lines(&text) {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        match (first.eq_ignore_ascii_case("include"), words.next()) {
            (true, Some(file)) => {
                let folder = path.parent().unwrap_or(Path::new("/"));
                with_includes(&folder.join(file), depth + 1, all)?;
            }
            _ => {
                let file = path.to_path_buf();
                all.push((Line { file, number }, line));
            }
        }
    }
    Ok(())
}

fn parse(all: &[(Line, String)]) -> SlurmConf {
    let mut conf = SlurmConf::default();
    let mut node_defaults = Vec::new();
    let mut partition_defaults = Vec::new();
    let mut features: Vec<(String, String)> = Vec::new();
    let mut sets: Vec<Vec<(String, String)>> = Vec::new();
    for (at, line) in all {
        let pairs = pairs(line);
        let declared = |name: &str| Declared {
            name: name.to_string(),
            at: at.clone(),
        };
        let Some((key, name)) = pairs.first() else {
            continue;
        };
        match key.to_ascii_lowercase().as_str() {
            "nodename" if is_default(name) => node_defaults.extend(pairs),
            "nodename" => {
                let settings = over(&node_defaults, &pairs);
                for name in expand(name) {
                    conf.lines.nodes.push(declared(&name));
                    features.push((name.clone(), feature_of(&settings)));
                    conf.nodes.push(Node {
                        name,
                        gres: Configured::parse(settings.get("Gres")),
                        cpus: cpus(&settings),
                        ..Node::default()
                    });
                }
            }
            "nodeset" => sets.push(pairs),
            "partitionname" if is_default(name) => partition_defaults.extend(pairs),
            "partitionname" => {
                conf.lines.partitions.push(declared(name));
                let settings = over(&partition_defaults, &pairs);
                conf.partitions.push(Partition {
                    name: name.clone(),
                    nodes: Vec::new(),
                    settings,
                });
            }
            "downnodes" | "frontendname" => {}
            _ => {
                for (key, value) in &pairs {
                    conf.lines.settings.push(Setting {
                        key: key.clone(),
                        value: value.clone(),
                        at: at.clone(),
                    });
                    if REPEATED.iter().any(|own| own.eq_ignore_ascii_case(key)) {
                        conf.settings.add(key, value);
                    } else {
                        conf.settings.set(key, value);
                    }
                }
            }
        }
    }
    let names: Vec<String> = conf.nodes.iter().map(|node| node.name.clone()).collect();
    let defined: HashSet<&String> = names.iter().collect();
    for (partition, line) in conf.partitions.iter_mut().zip(&conf.lines.partitions) {
        let words = expand(partition.settings.get("Nodes"));
        partition.nodes = words
            .iter()
            .flat_map(|word| members(word, &names, &sets, &features))
            .collect();
        let nodes = partition.nodes.iter();
        let undefined = nodes.filter(|name| !name.is_empty() && !defined.contains(name));
        conf.lines.undefined.extend(undefined.map(|name| Declared {
            name: name.clone(),
            at: line.at.clone(),
        }));
    }
    conf
}

/// Whether a line is a default, whose values hold for the lines below.
fn is_default(name: &str) -> bool {
    name.eq_ignore_ascii_case("DEFAULT")
}

/// The defaults with a line's own values over them.
fn over(defaults: &[(String, String)], own: &[(String, String)]) -> Settings {
    let mut settings = Settings::default();
    for (key, value) in defaults.iter().chain(own) {
        settings.set(key, value);
    }
    settings
}

fn feature_of(settings: &Settings) -> String {
    let features = [settings.get("Feature"), settings.get("Features")];
    features.join(",")
}

fn cpus(settings: &Settings) -> Option<u64> {
    let number = |key: &str| settings.get(key).parse::<u64>().ok();
    let sockets = number("Sockets").or(number("SocketsPerBoard")).unwrap_or(1);
    number("CPUs").or_else(|| {
        let cores = number("CoresPerSocket")?;
        Some(cores * sockets * number("ThreadsPerCore").unwrap_or(1))
    })
}

/// The nodes that a word in Nodes= means: all nodes, those of a set, or the node of that name.
fn members(
    word: &str,
    names: &[String],
    sets: &[Vec<(String, String)>],
    features: &[(String, String)],
) -> Vec<String> {
    if word.eq_ignore_ascii_case("all") {
        return names.to_vec();
    }
    let is_it = |set: &&Vec<(String, String)>| set.first().is_some_and(|(_, name)| name == word);
    let Some(set) = sets.iter().find(is_it) else {
        return vec![word.to_string()];
    };
    let mut members = Vec::new();
    for (key, value) in set {
        match key.to_ascii_lowercase().as_str() {
            "nodes" => members.extend(expand(value)),
            "feature" => {
                let with = features
                    .iter()
                    .filter(|(_, own)| own.split(',').any(|feature| feature == value));
                members.extend(with.map(|(name, _)| name.clone()));
            }
            _ => {}
        }
    }
    members
}

/// Reads gres.conf.
pub(crate) fn gres_conf(path: &Path) -> Seen<Vec<GresLine>> {
    Ok(gres_lines(&read(path)?))
}

fn gres_lines(text: &str) -> Vec<GresLine> {
    let lines = lines(text).into_iter();
    lines
        .map(|(_, line)| pairs(&line))
        .filter_map(|pairs| {
            let settings = over(&[], &pairs);
            let name = settings.get("Name").to_string();
            let kind = settings.get("Type").to_string();
            (!name.is_empty()).then(|| GresLine {
                nodes: expand(settings.get("NodeName")),
                name,
                kind: (!kind.is_empty()).then_some(kind),
                count: settings.get("Count").parse().ok(),
                files: expand(settings.get("File")),
            })
        })
        .collect()
}

/// Reads cgroup.conf.
pub(crate) fn cgroup_conf(path: &Path) -> Seen<Settings> {
    let mut settings = Settings::default();
    for (_, line) in lines(&read(path)?) {
        for (key, value) in pairs(&line) {
            settings.add(&key, &value);
        }
    }
    Ok(settings)
}

/// A file's text, or why it cannot be read.
pub(crate) fn read(path: &Path) -> Seen<String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str = "ClusterName=c # it\nSelectType=select/cons_tres SelectTypeParameters=CR_Core,\\\nLL_SHARED_GRES\nPrologFlags=X11\nPrologFlags=Contain\n\
        NodeName=DEFAULT CPUs=16\nNodeName=gpu[1-2] Gres=gpu:l40s:4,shard:l40s:16 Feature=a,b\n\
        NodeName=cpu1 Sockets=2 CPUs=8\nNodeSet=withgpus Feature=b\n\
        PartitionName=DEFAULT MaxTime=60 TRESBillingWeights=\"GRES/shard=1\"\n\
        PartitionName=all Nodes=ALL\nPartitionName=gpus Nodes=withgpus MaxTime=30\nPartitionName=one Nodes=gpu2\n\
        PartitionName=old Nodes=gpu[2-4],withgpus\n";

    #[test]
    fn a_slurm_conf_is_read_with_its_defaults() {
        let at = |number| Line {
            file: "slurm.conf".into(),
            number,
        };
        let lines: Vec<_> = lines(CONF)
            .into_iter()
            .map(|(number, line)| (at(number), line))
            .collect();
        let conf = parse(&lines);
        let declared = |all: &[Declared]| -> Vec<(String, usize)> {
            let all = all.iter();
            all.map(|one| (one.name.clone(), one.at.number)).collect()
        };
        let expected = [("gpu1", 7), ("gpu2", 7), ("cpu1", 8)];
        assert_eq!(
            declared(&conf.lines.nodes),
            expected.map(|(name, line)| (name.to_string(), line))
        );
        let expected = [("all", 11), ("gpus", 12), ("one", 13), ("old", 14)];
        assert_eq!(
            declared(&conf.lines.partitions),
            expected.map(|(name, line)| (name.to_string(), line))
        );
        assert_eq!(conf.settings.get("SelectType"), "select/cons_tres");
        assert!(conf.settings.has("SelectTypeParameters", "LL_SHARED_GRES"));
        assert_eq!(conf.settings.get("PrologFlags"), "Contain");
        assert_eq!(conf.nodes.len(), 3);
        assert_eq!(conf.nodes[1].count("shard", "l40s"), 16);
        assert_eq!(
            (conf.nodes[0].cpus, conf.nodes[2].cpus),
            (Some(16), Some(8))
        );
        let expected = [("gpu3", 14), ("gpu4", 14)];
        assert_eq!(
            declared(&conf.lines.undefined),
            expected.map(|(name, line)| (name.to_string(), line))
        );
        let nodes = |at: usize| conf.partitions[at].nodes.join(",");
        assert_eq!(
            (nodes(0), nodes(1), nodes(2)),
            ("gpu1,gpu2,cpu1".into(), "gpu1,gpu2".into(), "gpu2".into())
        );
        assert_eq!(conf.partitions[0].settings.get("MaxTime"), "60");
        assert_eq!(conf.partitions[1].settings.get("MaxTime"), "30");
        assert_eq!(
            conf.partitions[2].settings.get("TRESBillingWeights"),
            "GRES/shard=1"
        );
    }

    #[test]
    fn files_include_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slurm.conf");
        std::fs::write(&path, "Include nodes.conf\nClusterName=c\n").unwrap();
        let error = slurm_conf(&path).unwrap_err();
        assert!(format!("{error:#}").contains("nodes.conf"), "{error:#}");
        std::fs::write(folder.path().join("nodes.conf"), "NodeName=n1\n").unwrap();
        let conf = slurm_conf(&path).unwrap();
        assert_eq!(conf.nodes[0].name, "n1");
        assert_eq!(
            conf.lines.nodes[0].at.file,
            folder.path().join("nodes.conf")
        );
        std::fs::write(folder.path().join("nodes.conf"), "include slurm.conf\n").unwrap();
        assert!(slurm_conf(&path).is_err());
    }

    #[test]
    fn lines_of_gres_conf_are_read() {
        let lines = gres_lines(
            "AutoDetect=off\nNodeName=n[1-2] Name=gpu Type=l40s File=/dev/nvidia[0-3]\nName=shard Count=16\n",
        );
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].files.len(), 4);
        assert!(lines[0].is_for("n2") && !lines[0].is_for("n3") && lines[1].is_for("n3"));
        assert_eq!((lines[1].kind.as_deref(), lines[1].count), (None, Some(16)));
    }
}
