//! `softmig uninstall`: in the order in which nothing breaks. Slurm's configuration goes first, and is the administrator's.

use super::image::Image;
use super::leftovers::Leftovers;
use super::library::live;
use super::place::TakeAway;
use super::record::{self, Record};
use super::role::Role;
use super::script::{self, SCRIPTS, is_softmigs};
use super::step::{Step, Steps};
use super::tree::Tree;
use super::units;
use super::units::Stop;
use crate::ask::conf::files::slurm_conf;
use crate::files::config_lock::Etc;
use crate::machine::hook::unhook;
use crate::machine::preload::{FOLDER, named_libraries};
use crate::output::say::say;
use anyhow::bail;
use softmig_node::node::Node;
use std::path::{Path, PathBuf};

/// How to remove.
#[derive(Debug)]
pub(crate) struct Removal {
    /// Whether what would be left goes too.
    pub(crate) purge: bool,
    /// The image to remove it from.
    pub(crate) root: Option<PathBuf>,
    /// Whether to say only.
    pub(crate) dry_run: bool,
}

/// Removes softmig.
pub(crate) fn run(removal: &Removal) -> anyhow::Result<()> {
    if let Some(root) = &removal.root {
        let mut words = vec!["uninstall".to_string()];
        words.extend(removal.purge.then(|| "--purge".into()));
        words.extend(removal.dry_run.then(|| "--dry-run".into()));
        return Image::at(root)?.run(&Tree::find(None)?, &words);
    }
    let record = Record::read()?;
    let slurm = script::folder();
    let first = in_the_way(&slurm);
    if !first.is_empty() {
        for line in &first {
            say!("first: {line}");
        }
        bail!(
            "nothing was removed, since jobs or Slurm would break; do the above, then this again"
        );
    }
    let is_node =
        record.roles.contains(&Role::GpuNode) || live().exists() || !named_libraries()?.is_empty();
    let _lock = if removal.dry_run {
        None
    } else {
        Some(Etc::lock_for_setup()?)
    };
    if is_node {
        unhook::run(Path::new(FOLDER), removal.dry_run)?;
    }
    let mut steps: Vec<Box<dyn Step>> = Vec::new();
    if is_node {
        steps.push(Box::new(Stop));
    }
    for kind in &SCRIPTS {
        let path = slurm.join(kind.name);
        if std::fs::read(&path).is_ok_and(|text| is_softmigs(&text, kind)) {
            steps.push(Box::new(TakeAway::new(&path)));
        }
    }
    for file in &record.files {
        steps.push(Box::new(TakeAway::new(file)));
    }
    Steps::new(steps).run(removal.dry_run)?;
    if removal.dry_run {
        return Ok(());
    }
    if record.files.is_empty() {
        say!(
            "the programs stay: a package brought them, or a hand; remove softmig's packages, or 'rm' them"
        );
    }
    record::remove()?;
    if is_node && units::runs() {
        units::systemctl(&["daemon-reload"])?;
    }
    tell_of_slurm(&slurm);
    let left = Leftovers::find(Path::new("/"), &slurm, includes_softmig(&slurm));
    if removal.purge {
        left.remove()?;
    } else {
        left.tell();
    }
    Ok(())
}

/// The steps before, in the order in which they are taken.
fn in_the_way(slurm: &Path) -> Vec<String> {
    let mut first = Vec::new();
    let jobs = jobs_with_slices(&Node::this_machine().run);
    if !jobs.is_empty() {
        first.push(format!(
            "jobs have slices here: {}; let them end ('squeue -w $(hostname -s)'), or 'scancel' them",
            jobs.join(", ")
        ));
    }
    let path = slurm.join("slurm.conf");
    let Ok(conf) = slurm_conf(&path) else {
        return first;
    };
    let conf = conf.settings;
    for key in ["Prolog", "Epilog"] {
        if let Some(program) = conf.words(key).find(|word| word.contains("softmig-")) {
            first.push(format!(
                "take {key}={program} out of {}, and restart slurmctld and slurmd: a node whose prolog is missing is drained",
                path.display()
            ));
        }
    }
    for kind in &SCRIPTS {
        let key = match kind.role {
            Some(_) => "JobSubmitPlugins",
            None => "CliFilterPlugins",
        };
        let script = slurm.join(kind.name);
        let text = std::fs::read(&script).unwrap_or_default();
        if !conf.has(key, "lua") || !kind.is_in(&String::from_utf8_lossy(&text)) {
            continue;
        }
        let step = if is_softmigs(&text, kind) {
            format!(
                "take lua out of {key} in {}, and restart slurmctld: without {} nothing could be submitted",
                path.display(),
                script.display()
            )
        } else {
            format!(
                "take softmig's lines out of {}: {}",
                script.display(),
                kind.lines().join(" ")
            )
        };
        first.push(step);
    }
    first
}

/// The jobs that have a conf with limits here.
fn jobs_with_slices(run: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(run.join("jobs")).into_iter().flatten();
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut jobs: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    jobs.sort();
    jobs
}

fn includes_softmig(slurm: &Path) -> bool {
    let text = std::fs::read_to_string(slurm.join("slurm.conf")).unwrap_or_default();
    let includes = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        first.eq_ignore_ascii_case("include")
            && words
                .next()
                .is_some_and(|file| file.ends_with("softmig.conf"))
    };
    text.lines().any(includes)
}

/// Slurm's records that its scripts made are another machine's, or all machines'.
fn tell_of_slurm(slurm: &Path) {
    for (script, what) in [
        ("softmig-qos.sh", "the QOS of classes"),
        (
            "softmig-reservations.sh",
            "the reservations of reserved GPUs",
        ),
    ] {
        let path = slurm.join(script);
        if path.exists() {
            say!(
                "left in Slurm: {what}, if that script was run; 'sh {} --remove' deletes them",
                path.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn told(conf: &str, script: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("slurm.conf"), conf).unwrap();
        fs::write(folder.path().join("cli_filter.lua"), script).unwrap();
        let first = in_the_way(folder.path());
        let place = folder.path().display().to_string();
        first
            .into_iter()
            .map(|line| line.replace(&place, "DIR"))
            .collect()
    }

    #[test]
    fn slurms_lines_go_first() {
        let own = SCRIPTS[1].example;
        assert!(told("ClusterName=c\n", own).is_empty());
        assert!(told("CliFilterPlugins=lua\n", "return slurm.SUCCESS\n").is_empty());
        let first = told(
            "Prolog=/usr/libexec/softmig-prolog\nCliFilterPlugins=lua\n",
            own,
        );
        assert_eq!(first.len(), 2);
        assert!(
            first[0].starts_with("take Prolog=/usr/libexec/softmig-prolog out of DIR/slurm.conf")
        );
        assert!(first[1].starts_with("take lua out of CliFilterPlugins in DIR/slurm.conf"));
        let first = told("CliFilterPlugins=lua\n", &format!("-- ours\n{own}"));
        assert!(first[0].starts_with("take softmig's lines out of DIR/cli_filter.lua: local"));
    }

    #[test]
    fn jobs_with_slices_are_named() {
        let run = tempfile::tempdir().unwrap();
        assert!(jobs_with_slices(run.path()).is_empty());
        fs::create_dir_all(run.path().join("jobs/12")).unwrap();
        fs::create_dir_all(run.path().join("jobs/.new")).unwrap();
        assert_eq!(jobs_with_slices(run.path()), ["12"]);
    }

    #[test]
    fn an_include_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let with = |text: &str| {
            fs::write(folder.path().join("slurm.conf"), text).unwrap();
            includes_softmig(folder.path())
        };
        assert!(with("Include softmig.conf\n") && with("include /etc/slurm/softmig.conf\n"));
        assert!(!with("# include softmig.conf\nClusterName=c\n"));
    }
}
