//! Facts about a cluster and its machines, as plain data. Nothing here reads files or asks programs, so a test can make
//! up any cluster.

mod lua;
mod upkeep;

pub(crate) use crate::ask::conf::{
    Accounting, Declared, GresLine, Line, Lines, Partition, Qos, Reservation, Seen, Setting,
    Settings,
};
pub(crate) use crate::ask::node::Node;
pub(crate) use crate::ask::squeue::Job;
use crate::machine::loaders::List;
use crate::machine::scheduler::Model;
pub(crate) use lua::{Lua, LuaModule, LuaPlugin, LuaPlugins, Version};
use serde::{Deserialize, Serialize};
use softmig_nvml::Devices;
use softmig_policy::node::node_conf::NodeConf;
use softmig_policy::slurm::release::SlurmVersion;
use std::collections::BTreeMap;
pub(crate) use upkeep::{InForce, Upkeep};

/// Slurm's configuration: of a running slurmctld, or from files.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    /// Its release, where it is known.
    pub(crate) version: Option<SlurmVersion>,
    /// slurm.conf.
    pub(crate) settings: Settings,
    /// cgroup.conf.
    pub(crate) cgroup: Seen<Settings>,
    /// Whether control groups are of version 1 on the machine whose Slurm was asked. If cgroup.conf names no version, its
    /// nodes likely have the same.
    pub(crate) has_cgroup_v1: bool,
    /// The nodes, with and without GPUs.
    pub(crate) nodes: Vec<Node>,
    /// gres.conf.
    pub(crate) gres_conf: Seen<Vec<GresLine>>,
    /// The partitions.
    pub(crate) partitions: Vec<Partition>,
    /// The reservations that there are now.
    pub(crate) reservations: Seen<Vec<Reservation>>,
    /// The jobs that wait or run and are not held by an administrator. The list is empty if the policy has no reserved
    /// GPU.
    pub(crate) jobs: Seen<Vec<Job>>,
    /// The records of slurmdbd.
    pub(crate) accounting: Seen<Accounting>,
    /// Slurm's Lua plugins on this machine.
    pub(crate) lua: LuaPlugins,
    /// The lines of slurm.conf and of included files that define nodes and partitions; empty if the files cannot be
    /// read.
    pub(crate) lines: Lines,
    /// The text of slurm.conf without the files that it includes. The Lua modules look at nothing else.
    pub(crate) slurm_conf: Seen<String>,
    /// The text of a site's own Prolog and Epilog, where they can be read.
    pub(crate) own_scripts: BTreeMap<String, String>,
    /// The policy that slurmctld goes by; `None` on a machine without slurmctld.
    pub(crate) in_force: Option<InForce>,
}

impl Cluster {
    /// The node of this name.
    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The partition of this name.
    pub(crate) fn partition(&self, name: &str) -> Option<&Partition> {
        let mut all = self.partitions.iter();
        all.find(|partition| partition.name == name)
    }

    /// The nodes of a partition.
    pub(crate) fn nodes_of(&self, partition: &Partition) -> impl Iterator<Item = &Node> {
        let nodes = self.nodes.iter();
        nodes.filter(|node| partition.nodes.contains(&node.name))
    }
}

/// A machine with GPUs.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// Its name in Slurm.
    pub(crate) name: String,
    /// node.conf; `None` if it does not exist.
    pub(crate) node_conf: Seen<Option<NodeConf>>,
    /// The library, as /etc/ld.so.preload names it.
    pub(crate) preloaded: Seen<Vec<String>>,
    /// Libraries named there that are not on the machine.
    pub(crate) missing: Seen<Vec<String>>,
    /// Whether the monitor runs.
    pub(crate) monitor: bool,
    /// Programs of softmig's that are not there or cannot be run.
    pub(crate) bad_programs: Vec<String>,
    /// Whether the parts that run are the installed ones, and have room for jobs' files.
    pub(crate) upkeep: Upkeep,
    /// Limits on jobs' GPU memory besides softmig's.
    pub(crate) device_memory: DeviceMemory,
    /// The container runtimes.
    pub(crate) runtimes: Vec<Runtime>,
    /// Whether the folder of jobs' limits exists, and shares its file system with `/run`.
    pub(crate) shares_run: bool,
    /// This machine's control groups.
    pub(crate) cgroups: Seen<Cgroups>,
    /// The device gate.
    pub(crate) gate: DeviceGate,
    /// Whether NVIDIA's control program of MPS is there, which packs need.
    pub(crate) has_mps: bool,
    /// The GPUs.
    pub(crate) nvml: Seen<Devices>,
    /// Jobs with limits here that Slurm does not know.
    pub(crate) ended_jobs: Vec<u32>,
    /// The measurements of steering the GPUs' own schedulers.
    pub(crate) models: Vec<Model>,
    /// The lists of libraries that loaders of other software stacks read.
    pub(crate) loaders: Seen<Vec<List>>,
}

/// The limits of the kernel and the driver on jobs' GPU memory, if they have any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceMemory {
    /// The regions that drivers have registered, and their sizes in bytes.
    pub(crate) regions: Vec<(String, u64)>,
    /// The limits of slice jobs.
    pub(crate) limits: Vec<MemoryLimit>,
}

/// A limit of a job that has a slice, beside softmig's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    /// The job's number.
    pub(crate) job: u32,
    /// The memory of its slice.
    pub(crate) slice_mib: u32,
    /// The place that sets it.
    pub(crate) by: String,
    /// The figure that it allows.
    pub(crate) bytes: u64,
}

/// A container runtime of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Runtime {
    /// The runtime.
    pub(crate) kind: RuntimeKind,
    /// The file to be changed, or the folder for softmig's.
    pub(crate) place: String,
    /// The text that the runtime reads there.
    pub(crate) text: String,
}

/// A container runtime, together with others that read the same files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeKind {
    /// Apptainer, or Singularity.
    Apptainer,
    /// Podman.
    Podman,
    /// Enroot, and with it pyxis.
    Enroot,
    /// Docker, by the specifications of the Container Device Interface.
    Docker,
}

/// The device gate of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceGate {
    /// It is there.
    Set,
    /// It is not there.
    NotSet,
    /// This machine cannot have it.
    Impossible(String),
    /// It could not be found out whether the gate is there.
    Unknown(String),
}

/// The difference between a policy.toml and one that it is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The name of the other one.
    pub(crate) with: String,
    /// The first line that differs; `None` if they are the same.
    pub(crate) line: Option<usize>,
}

/// The control groups of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cgroups {
    /// Whether there is a hierarchy in which Slurm makes groups for jobs: one of version 2 with controllers, or one of
    /// version 1 with devices or freezer.
    pub(crate) usable: bool,
    /// The control groups of steps that run here and from which no job can be read.
    pub(crate) unknown: Vec<String>,
}

/// The public JSON form of `softmig check`.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    /// How many errors there are.
    pub(crate) errors: usize,
    /// How many warnings there are.
    pub(crate) warnings: usize,
    /// How many things could not be looked at.
    pub(crate) not_looked_at: usize,
    /// The findings.
    pub(crate) findings: Vec<NodeFinding>,
}

/// The public JSON form of one finding.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct NodeFinding {
    /// Its level, in lower case.
    pub(crate) level: String,
    /// Its code.
    pub(crate) code: String,
    /// The place on the node.
    pub(crate) r#where: String,
    /// The fact.
    pub(crate) what: String,
    /// The remedy.
    pub(crate) remedy: String,
}

/// Another node's answer about itself, or why it gave none.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The node.
    pub(crate) node: String,
    /// Its findings.
    pub(crate) told: Seen<Vec<NodeFinding>>,
}
