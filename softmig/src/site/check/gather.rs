//! Collects the facts from Slurm's commands and files, from this machine and from other nodes. `rules` turns them into
//! findings.

pub(crate) mod across;
mod containers;
mod device_memory;
mod glibc;
mod in_force;
pub(crate) mod lua;
pub(crate) mod machine;
mod upkeep;

use crate::ask::conf::files;
use crate::ask::conf::running::{self, version};
use crate::ask::here;
use crate::site::check::facts::{Cluster, InForce, Settings};
use anyhow::{Context, anyhow, bail};
use lua::is_controller;
use softmig_node::slurmctld::{AskError, Commands};
use softmig_policy::Policy;
use softmig_policy::slurm::release::SlurmVersion;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Slurm's configuration file by default.
const SLURM_CONF: &str = "/etc/slurm/slurm.conf";

/// Slurm's own commands, with the slurm.conf that the caller uses.
pub(crate) fn commands() -> anyhow::Result<Commands> {
    here::commands().context(
        "scontrol is not in /usr/bin or /usr/local/bin; run this where Slurm's commands are, or name the files with \
         --slurm-conf FILE",
    )
}

/// The configuration that is in force, and the jobs where they matter.
pub(crate) fn running(commands: &Commands, with_jobs: bool) -> anyhow::Result<Cluster> {
    let running = running::ask(commands, with_jobs).map_err(|error| match error {
        AskError::Late => anyhow!("slurmctld did not answer in time; is it running?"),
        error => {
            anyhow!("{error}; is slurmctld running? --slurm-conf FILE looks at files without it")
        }
    })?;
    let settings = running.settings;
    let conf = match settings.get("SLURM_CONF") {
        "" => SLURM_CONF,
        path => path,
    };
    // slurmctld names its own file, which may not be on this machine: slurmctld sends it to machines without one.
    let conf = Some(PathBuf::from(conf))
        .filter(|path| path.exists())
        .or_else(lua::slurm_conf)
        .unwrap_or_else(|| SLURM_CONF.into());
    let folder = conf.parent().unwrap_or(Path::new("/"));
    let cgroup = match running.cgroup {
        Some(cgroup) => Ok(cgroup),
        None => files::cgroup_conf(&folder.join("cgroup.conf")),
    };
    let on_controller = is_controller(&settings);
    Ok(Cluster {
        version: version(&settings),
        cgroup,
        has_cgroup_v1: machine::has_cgroup_v1(),
        nodes: running.nodes,
        gres_conf: files::gres_conf(&folder.join("gres.conf")),
        partitions: running.partitions,
        reservations: running.reservations,
        jobs: running.jobs,
        accounting: running.accounting,
        lua: lua::look(&settings, folder),
        // These come from the file, which slurmctld may not have read yet, and which may not be readable here.
        lines: files::slurm_conf(&conf)
            .map(|conf| conf.lines)
            .unwrap_or_default(),
        slurm_conf: files::read(&conf),
        own_scripts: own_scripts(&settings),
        in_force: on_controller.then(|| in_force(&settings, &conf)),
        settings,
    })
}

/// The policy that slurmctld goes by here.
pub(crate) fn in_force(settings: &Settings, slurm_conf: &Path) -> InForce {
    let text = files::read(slurm_conf).unwrap_or_default();
    in_force::look(Path::new(Policy::PATH), settings.get("SlurmUser"), &text)
}

/// The facts in files, without a Slurm.
pub(crate) fn given(path: &Path, version: Option<SlurmVersion>) -> anyhow::Result<Cluster> {
    let name = path.display();
    if path.is_dir() {
        let file = path.join("slurm.conf");
        bail!(
            "{name}: this is a folder; give the file, as {}",
            file.display()
        );
    }
    let conf = files::slurm_conf(path).context("reading Slurm's configuration")?;
    let has = |key: &str| !conf.settings.get(key).is_empty();
    // An included file, such as softmig.conf, lacks most of what there is to look at.
    if !["ClusterName", "SlurmctldHost", "ControlMachine"]
        .into_iter()
        .any(has)
    {
        bail!(
            "{name}: this is not a slurm.conf: it has neither ClusterName nor SlurmctldHost; give the slurm.conf that \
             includes it"
        );
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let nothing =
        || "files do not have it; without --slurm-conf the running Slurm is asked".to_string();
    Ok(Cluster {
        version,
        cgroup: files::cgroup_conf(&folder.join("cgroup.conf")),
        // The files may be another machine's.
        has_cgroup_v1: false,
        nodes: conf.nodes,
        gres_conf: files::gres_conf(&folder.join("gres.conf")),
        partitions: conf.partitions,
        reservations: Err(nothing()),
        jobs: Err(nothing()),
        accounting: Err(nothing()),
        lua: lua::look(&conf.settings, folder),
        lines: conf.lines,
        slurm_conf: files::read(path),
        own_scripts: own_scripts(&conf.settings),
        in_force: None,
        settings: conf.settings,
    })
}

/// The text of the site's own programs that run at each job's start and end.
fn own_scripts(settings: &Settings) -> BTreeMap<String, String> {
    let paths = ["Prolog", "Epilog"]
        .into_iter()
        .flat_map(|key| settings.words(key));
    let texts = paths.filter_map(|path| Some((path.to_string(), text_of(path)?)));
    texts.collect()
}

/// The text of a script. For a whole folder, such as `/etc/slurm/prolog.d/*`, the text and names of all scripts in it.
fn text_of(path: &str) -> Option<String> {
    let text = |path: &Path| {
        let bytes = std::fs::read(path).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let Some(folder) = path.strip_suffix("/*") else {
        return text(Path::new(path));
    };
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let texts = entries.map(|entry| {
        let own = text(&entry.path()).unwrap_or_default();
        format!("{}\n{own}", entry.path().display())
    });
    Some(texts.collect::<Vec<_>>().join("\n"))
}
