//! The parts of Slurm on this machine, whether or not slurmctld answers: a module that cannot be loaded keeps it from that.

use crate::ask::conf::files::slurm_conf;
use crate::ask::here;
use crate::site::check::facts::{Cluster, Settings};
use crate::site::check::gather::lua::{self, is_controller};
use crate::site::check::gather::{given, in_force, machine};
use std::path::PathBuf;

/// Slurm's files here.
#[derive(Debug)]
pub(crate) struct Local {
    /// slurm.conf, which need not exist.
    slurm_conf: PathBuf,
    settings: Settings,
}

impl Local {
    pub(crate) fn look() -> Self {
        let path = lua::slurm_conf().unwrap_or_else(|| "/etc/slurm/slurm.conf".into());
        let settings = slurm_conf(&path).map(|conf| conf.settings);
        Self {
            settings: settings.unwrap_or_default(),
            slurm_conf: path,
        }
    }

    /// The likely roles of this machine.
    pub(crate) fn roles(&self) -> Vec<&'static str> {
        let is_submit_host = !self.settings.get("CliFilterPlugins").is_empty();
        [
            (is_controller(&self.settings), "controller"),
            (is_submit_host, "submit-host"),
            (machine::is_node(), "gpu-node"),
        ]
        .into_iter()
        .filter_map(|(is, role)| is.then_some(role))
        .collect()
    }

    /// Slurm's configuration by its files here, which are this machine's own.
    pub(crate) fn cluster(&self) -> anyhow::Result<Cluster> {
        let mut cluster = given(&self.slurm_conf, here::version())?;
        if let Some(lua) = lua::here() {
            cluster.lua = lua;
        }
        if is_controller(&cluster.settings) {
            cluster.in_force = Some(in_force(&cluster.settings, &self.slurm_conf));
        }
        Ok(cluster)
    }
}
