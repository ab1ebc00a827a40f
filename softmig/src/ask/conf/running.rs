//! The configuration of a running Slurm, as its own commands print it.

use crate::ask::conf::{Accounting, Partition, Reservation, Seen, Settings};
use crate::ask::node::Node;
use crate::ask::squeue::{self, DESCRIPTION, Job};
use crate::ask::{sacctmgr, scontrol};
use softmig_node::slurmctld::{AskError, Commands};
use softmig_policy::slurm::release::SlurmVersion;

/// The facts that Slurm's commands print.
pub(crate) struct Running {
    /// slurm.conf as it is in force.
    pub(crate) settings: Settings,
    /// cgroup.conf of the controller, if this release prints it.
    pub(crate) cgroup: Option<Settings>,
    /// The nodes.
    pub(crate) nodes: Vec<Node>,
    /// The partitions.
    pub(crate) partitions: Vec<Partition>,
    /// The reservations.
    pub(crate) reservations: Seen<Vec<Reservation>>,
    /// The jobs, if they were asked for.
    pub(crate) jobs: Seen<Vec<Job>>,
    /// The records of slurmdbd.
    pub(crate) accounting: Seen<Accounting>,
}

/// Asks for all of it.
pub(crate) fn ask(commands: &Commands, with_jobs: bool) -> Result<Running, AskError> {
    let (settings, cgroup) = scontrol::config(commands)?;
    let nodes = scontrol::nodes(commands)?;
    let partitions = scontrol::partitions(commands)?;
    let reservations = scontrol::reservations(commands);
    let jobs = if with_jobs {
        jobs(commands)
    } else {
        Ok(Vec::new())
    };
    let accounting = sacctmgr::accounting(commands, &settings);
    Ok(Running {
        settings,
        cgroup,
        nodes,
        partitions,
        reservations: reservations.map_err(|error| error.to_string()),
        jobs,
        accounting,
    })
}

/// The release that is in force.
pub(crate) fn version(settings: &Settings) -> Option<SlurmVersion> {
    settings.get("SLURM_VERSION").parse().ok()
}

/// Those that wait or run. A job that an administrator holds cannot be released by its user.
fn jobs(commands: &Commands) -> Seen<Vec<Job>> {
    const STATES: &str = "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED";
    let mut jobs = squeue::jobs(commands, DESCRIPTION, &[STATES])
        .map_err(|error| format!("squeue did not say: {error}"))?;
    jobs.retain(|job| job.reason != "JobHeldAdmin");
    Ok(jobs)
}
