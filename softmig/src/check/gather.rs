//! Looks at everything: Slurm's commands, its files, this machine, the other nodes. What it means is for `rules` to say.

pub(crate) mod across;
mod containers;
mod device_memory;
mod files;
mod lua;
pub(crate) mod machine;
mod running;

use crate::check::facts::{Cluster, Scripts, Seen, Settings};
use crate::node::slurmd::host_name;
use anyhow::{Context, anyhow, bail};
use running::version;
use softmig_node::slurmctld::{AskError, Commands};
use softmig_policy::slurm::release::SlurmVersion;
use std::collections::BTreeMap;
use std::path::Path;

/// Where Slurm's files are when nothing says otherwise.
const SLURM_CONF: &str = "/etc/slurm/slurm.conf";

/// softmig's modules, as the scripts load them.
const MODULES: [&str; 2] = ["softmig_job_submit", "softmig_cli_filter"];

/// Slurm's own commands, with the slurm.conf that the caller uses.
pub(crate) fn commands() -> anyhow::Result<Commands> {
    let conf = std::env::var_os("SLURM_CONF");
    Commands::beside(None, conf).ok_or_else(|| {
        anyhow!(
            "there is no scontrol in /usr/bin or /usr/local/bin; run this where Slurm's commands are, or name the files \
             with --slurm-conf FILE"
        )
    })
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
    let folder = Path::new(conf).parent().unwrap_or(Path::new("/"));
    let cgroup = match running.cgroup {
        Some(cgroup) => Ok(cgroup),
        None => files::cgroup_conf(&folder.join("cgroup.conf")),
    };
    let on_controller = settings
        .words("SlurmctldHost")
        .any(|host| host.split('(').next() == Some(&host_name()));
    let lua = match on_controller {
        true => lua::look(settings.get("PluginDir"), &MODULES),
        false => Err("this is not slurmctld's machine".into()),
    };
    Ok(Cluster {
        version: version(&settings),
        cgroup,
        nodes: running.nodes,
        gres_conf: files::gres_conf(&folder.join("gres.conf")),
        partitions: running.partitions,
        reservations: running.reservations,
        jobs: running.jobs,
        accounting: running.accounting,
        scripts: scripts(folder, on_controller),
        lua,
        // Of a file that slurmctld has not read yet, where it can be read here at all.
        lines: files::slurm_conf(Path::new(conf))
            .map(|conf| conf.lines)
            .unwrap_or_default(),
        slurm_conf: files::read(Path::new(conf)),
        own_scripts: own_scripts(&settings),
        settings,
    })
}

/// What files say, without a Slurm.
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
    // What is included, such as softmig.conf, lacks most of what there is to look at.
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
        nodes: conf.nodes,
        gres_conf: files::gres_conf(&folder.join("gres.conf")),
        partitions: conf.partitions,
        reservations: Err(nothing()),
        jobs: Err(nothing()),
        accounting: Err(nothing()),
        scripts: scripts(folder, false),
        lua: Err(nothing()),
        lines: conf.lines,
        slurm_conf: files::read(path),
        own_scripts: own_scripts(&conf.settings),
        settings: conf.settings,
    })
}

/// The scripts beside slurm.conf. Only slurmctld's machine needs job_submit.lua.
fn scripts(folder: &Path, on_controller: bool) -> Scripts {
    let script = |name: &str, needed: bool| -> Seen<Option<String>> {
        let path = folder.join(name);
        match files::read(&path) {
            Ok(text) => Ok(Some(text)),
            Err(_) if needed && !path.exists() => Ok(None),
            Err(_) if !path.exists() => Err(format!("{} is not here", path.display())),
            Err(why) => Err(why),
        }
    };
    Scripts {
        job_submit: script("job_submit.lua", on_controller),
        cli_filter: script("cli_filter.lua", on_controller),
    }
}

/// The text of what runs at each job's start and end, where that is not softmig's program itself.
fn own_scripts(settings: &Settings) -> BTreeMap<String, String> {
    let paths = ["Prolog", "Epilog"]
        .into_iter()
        .flat_map(|key| settings.words(key));
    let texts = paths.filter_map(|path| Some((path.to_string(), text_of(path)?)));
    texts.collect()
}

/// A script's text; of a whole folder's, as `/etc/slurm/prolog.d/*`, the names as well.
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
