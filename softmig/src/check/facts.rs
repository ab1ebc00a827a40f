//! Facts about a cluster and its machines, as plain data. Nothing here reads files or asks programs, so a test can make
//! up any cluster.

mod lua;
mod seen;
mod upkeep;

use crate::scheduler::Model;
pub(crate) use lua::{Glibc, Lua, LuaModule, LuaPlugin, LuaPlugins, LuaVersion};
pub(crate) use seen::Seen;
use serde::Deserialize;
use softmig_nvml::Devices;
use softmig_policy::node::node_conf::NodeConf;
use softmig_policy::slurm::gres_list::Configured;
use softmig_policy::slurm::release::SlurmVersion;
use std::collections::BTreeMap;
use std::path::PathBuf;
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

/// KEY=VALUE of a configuration file. Keys are the same in upper and lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Adds one. Values of one key follow each other, as `Prolog[0]` and `Prolog[1]` do.
    pub(crate) fn add(&mut self, key: &str, value: &str) {
        let key = key.split('[').next().unwrap_or(key).to_ascii_lowercase();
        let value = match value {
            "(null)" | "N/A" | "" => return,
            value => value.trim_matches('"'),
        };
        self.0
            .entry(key)
            .and_modify(|old| {
                old.push(',');
                old.push_str(value);
            })
            .or_insert_with(|| value.to_string());
    }

    /// Sets a value in the place of the one before.
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.remove(key);
        self.add(key, value);
    }

    /// Removes a key.
    fn remove(&mut self, key: &str) {
        self.0.remove(&key.to_ascii_lowercase());
    }

    /// The value; empty without one.
    pub(crate) fn get(&self, key: &str) -> &str {
        let value = self.0.get(&key.to_ascii_lowercase());
        value.map_or("", String::as_str)
    }

    /// The words of a list, as they are written.
    pub(crate) fn words(&self, key: &str) -> impl Iterator<Item = &str> {
        let words = self.get(key).split(',').map(str::trim);
        words.filter(|word| !word.is_empty())
    }

    /// Whether a list has a word, in whatever case.
    pub(crate) fn has(&self, key: &str, word: &str) -> bool {
        self.words(key).any(|own| own.eq_ignore_ascii_case(word))
    }

    /// Whether the value is a yes.
    pub(crate) fn is_yes(&self, key: &str) -> bool {
        let value = self.get(key).to_ascii_lowercase();
        matches!(value.as_str(), "yes" | "true" | "1" | "on" | "up")
    }
}

/// Reads `KEY=VALUE` pairs, one after the other.
impl<'a> FromIterator<(&'a str, &'a str)> for Settings {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let mut settings = Self::default();
        for (key, value) in pairs {
            settings.add(key, value);
        }
        settings
    }
}

/// A node as Slurm's configuration has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its name.
    pub(crate) name: String,
    /// Its GRES.
    pub(crate) gres: Vec<Configured>,
    /// Its CPUs, where they are known.
    pub(crate) cpus: Option<u64>,
    /// Its state as Slurm writes it; empty where it is not known.
    pub(crate) state: String,
}

impl Node {
    /// How many of a GRES and type it has.
    pub(crate) fn count(&self, name: &str, kind: &str) -> u64 {
        let of_kind = |gres: &&Configured| gres.name == name && gres.kind.as_deref() == Some(kind);
        self.gres
            .iter()
            .filter(of_kind)
            .map(|gres| gres.count)
            .sum()
    }

    /// Whether it has any of a GRES.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.of(name).next().is_some()
    }

    /// Its items of a GRES.
    pub(crate) fn of(&self, name: &str) -> impl Iterator<Item = &Configured> {
        let named = move |gres: &&Configured| gres.name == name && gres.count > 0;
        self.gres.iter().filter(named)
    }
}

/// Definitions in slurm.conf and included files that may each be made only once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    /// Each node of each NodeName line.
    pub(crate) nodes: Vec<Declared>,
    /// Each PartitionName line.
    pub(crate) partitions: Vec<Declared>,
    /// Each node of a partition that no NodeName line defines, and the partition's line.
    pub(crate) undefined: Vec<Declared>,
    /// Each other setting.
    pub(crate) settings: Vec<Setting>,
}

/// A setting, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Its key as it is written.
    pub(crate) key: String,
    /// Its value.
    pub(crate) value: String,
    /// The line.
    pub(crate) at: Line,
}

/// A node or partition, and where it is defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    /// Its name.
    pub(crate) name: String,
    /// The line.
    pub(crate) at: Line,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    /// The file.
    pub(crate) file: PathBuf,
    /// Its number, counted from 1. Of lines that Slurm joins to one, the number of the first.
    pub(crate) number: usize,
}

impl Line {
    /// Whether `softmig config` made it.
    pub(crate) fn is_softmigs(&self) -> bool {
        self.file
            .file_name()
            .is_some_and(|name| name == "softmig.conf")
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} line {}", self.file.display(), self.number)
    }
}

/// A line of gres.conf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GresLine {
    /// The nodes that it is for; empty for all nodes.
    pub(crate) nodes: Vec<String>,
    /// `gpu`, `shard` and so on.
    pub(crate) name: String,
    /// Its type.
    pub(crate) kind: Option<String>,
    /// The count, if the line has one.
    pub(crate) count: Option<u64>,
    /// Its devices.
    pub(crate) files: Vec<String>,
}

impl GresLine {
    /// Whether it is for that node.
    pub(crate) fn is_for(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|name| name == node)
    }
}

/// A partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Its name.
    pub(crate) name: String,
    /// Its nodes.
    pub(crate) nodes: Vec<String>,
    /// All that its line says.
    pub(crate) settings: Settings,
}

/// A reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// Its name.
    pub(crate) name: String,
    /// Its nodes.
    pub(crate) nodes: Vec<String>,
    /// Its TRES: `cpu=4,gres/gpu:l40s=1`.
    pub(crate) tres: String,
}

/// A job that waits or runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its number as scancel takes it: `12`, `12_[0-3]`.
    pub(crate) id: String,
    /// Its user.
    pub(crate) user: String,
    /// Its account.
    pub(crate) account: String,
    /// The GRES that any of its options asks for, each with the count of that option.
    pub(crate) gres: Vec<Configured>,
}

/// The records of slurmdbd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accounting {
    /// The QOS.
    pub(crate) qos: Vec<Qos>,
    /// The associations.
    pub(crate) associations: Vec<Association>,
}

/// A QOS, each of its limits as sacctmgr prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Qos {
    /// Its name.
    pub(crate) name: String,
    /// By sacctmgr's names of columns.
    pub(crate) fields: Settings,
}

/// The association of a user, or of an account alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Association {
    /// The account.
    pub(crate) account: String,
    /// The user; empty for the account's own.
    pub(crate) user: String,
    /// The QOS that are allowed.
    pub(crate) qos: Vec<String>,
    /// All its limits by TRES: `gres/gpu=4`.
    pub(crate) limits: String,
}

impl Association {
    /// "account teaching", "alice in teaching".
    pub(crate) fn called(&self) -> String {
        match self.user.as_str() {
            "" => format!("account {}", self.account),
            user => format!("{user} in {}", self.account),
        }
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
    /// The GPUs.
    pub(crate) nvml: Seen<Devices>,
    /// Jobs with limits here that Slurm does not know.
    pub(crate) ended_jobs: Vec<u32>,
    /// The measurements of steering the GPUs' own schedulers; empty if jobs are to take turns.
    pub(crate) models: Vec<Model>,
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
    /// Whether this process is inside a job. Then its own control group counts.
    pub(crate) in_job: bool,
}

/// A finding of `softmig check` on a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
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
