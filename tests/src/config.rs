//! The configuration files of a test cluster.

use std::fmt::Write;
use std::path::Path;

use crate::gpus::Gpus;
use crate::init::HOST;
use crate::slurm::Slurm;

/// The port of slurmctld; the network is the cluster's own, so it never clashes.
pub const CONTROLLER_PORT: u16 = 6817;

/// The port of the first node's slurmd; each further node takes the next one.
pub const FIRST_NODE_PORT: u16 = 17000;

/// SelectTypeParameters where a test wants no other.
pub const SELECT: &str = "CR_Core_Memory";

/// GresTypes where a test wants no others.
pub const GRES_TYPES: &str = "gpu,shard";

/// The settings from which the files are made.
#[derive(Clone, Debug)]
pub struct Config {
    /// The version they are for.
    pub slurm: Slurm,
    /// Each node's name and GPUs.
    pub nodes: Vec<(String, Vec<Gpus>)>,
    /// Whether jobs live in control groups and see only their own GPUs.
    pub cgroups: bool,
    /// JobSubmitPlugins=lua
    pub job_submit: bool,
    /// CliFilterPlugins=lua
    pub cli_filter: bool,
    /// Prolog=/usr/libexec/softmig-prolog
    pub prolog: bool,
    /// Epilog=/usr/libexec/softmig-epilog
    pub epilog: bool,
    /// SelectTypeParameters
    pub select: String,
    /// GresTypes
    pub gres_types: String,
    /// SlurmctldDebug and SlurmdDebug
    pub debug: String,
    /// Lines added to slurm.conf as they are.
    pub lines: Vec<String>,
    /// The file that slurm.conf includes, as a site takes it over: slurm.conf has none of the settings and nodes in it.
    pub include: Option<Include>,
}

/// A file that slurm.conf includes.
#[derive(Clone, Debug)]
pub struct Include {
    /// Its name, beside slurm.conf.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Include {
    /// Whether it says this itself: has such a setting, or a line of nodes.
    fn says(&self, line: &str) -> bool {
        let key = |line: &str| line.split('=').next().unwrap_or_default().to_lowercase();
        let own = key(line);
        // A site has partitions of its own, too.
        own != "partitionname" && self.text.lines().any(|line| key(line) == own)
    }
}

/// Whether this machine has the control groups (version 1) that Slurm needs to hold jobs and fence devices.
pub fn cgroups_usable() -> bool {
    ["freezer", "devices", "cpuset", "memory"]
        .iter()
        .all(|name| {
            Path::new("/sys/fs/cgroup")
                .join(name)
                .join("tasks")
                .exists()
        })
}

impl Config {
    /// slurm.conf
    pub fn slurm_conf(&self) -> String {
        let (proctrack, task, flags) = match self.cgroups {
            true => ("cgroup", "cgroup", "Contain"),
            // Contain needs proctrack/cgroup.
            false => ("linuxproc", "none", "Alloc"),
        };
        let (debug, select, gres_types) = (&self.debug, &self.select, &self.gres_types);
        let mut text = format!(
            "\
ClusterName=softmig
SlurmctldHost={HOST}(127.0.0.1)
SlurmctldPort={CONTROLLER_PORT}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/cluster/munge/munge.socket
CredType=cred/munge
StateSaveLocation=/cluster/state
SlurmdSpoolDir=/cluster/spool/%n
SlurmctldPidFile=/cluster/run/slurmctld.pid
SlurmdPidFile=/cluster/run/slurmd.%n.pid
SlurmctldLogFile=/cluster/log/slurmctld.log
SlurmdLogFile=/cluster/log/slurmd.%n.log
SlurmctldDebug={debug}
SlurmdDebug={debug}
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/{task}
PrologFlags={flags}
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters={select}
GresTypes={gres_types}
DefMemPerCPU=100
ReturnToService=2
JobRequeue=1
KillWait=1
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
SlurmdParameters=config_overrides
"
        );
        for (wanted, line) in [
            (self.job_submit, "JobSubmitPlugins=lua"),
            (self.cli_filter, "CliFilterPlugins=lua"),
            (self.prolog, "Prolog=/usr/libexec/softmig-prolog"),
            (self.epilog, "Epilog=/usr/libexec/softmig-epilog"),
        ] {
            if wanted {
                text += line;
                text += "\n";
            }
        }
        for line in &self.lines {
            text += line;
            text += "\n";
        }
        for ((name, gpus), port) in self.nodes.iter().zip(FIRST_NODE_PORT..) {
            let gres = gres(gpus);
            let _ = writeln!(
                text,
                "NodeName={name} NodeHostname={HOST} NodeAddr=127.0.0.1 Port={port} \
                 CPUs=16 CoresPerSocket=16 RealMemory=16000{gres} State=UNKNOWN"
            );
        }
        text += "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
        match &self.include {
            Some(include) => self.with(include, &text),
            None => text,
        }
    }

    /// The text as it is below a line that includes another.
    fn with(&self, include: &Include, text: &str) -> String {
        let needs_cgroups = ["ProctrackType=", "TaskPlugin=", "PrologFlags="];
        let stays = |line: &&str| {
            // Of two lines with a key, the later one holds.
            let differs = !self.cgroups && needs_cgroups.iter().any(|key| line.starts_with(key));
            differs || !include.says(line)
        };
        let own: Vec<&str> = text.lines().filter(stays).collect();
        let mut own = own.join("\n");
        // Where the file tells what partitions with GPUs are to have, the site follows.
        let mut words = include.text.split_ascii_whitespace();
        if let Some(weights) = words.find(|word| word.starts_with("TRESBillingWeights=")) {
            own += &format!(" {weights}");
        }
        format!("include {}\n{own}\n", include.name)
    }

    /// gres.conf
    pub fn gres_conf(&self) -> String {
        let mut text = String::from("AutoDetect=off\n");
        for (name, kinds) in &self.nodes {
            let mut first = 0;
            for kind in kinds.iter().filter(|kind| kind.count > 0) {
                let files = (first..first + kind.count).map(|minor| format!("/dev/nvidia{minor}"));
                first += kind.count;
                for file in files {
                    let (gres_type, shards) = (&kind.gres_type, kind.shards);
                    let _ = writeln!(
                        text,
                        "NodeName={name} Name=gpu Type={gres_type} File={file}"
                    );
                    if shards > 0 {
                        let _ = writeln!(
                            text,
                            "NodeName={name} Name=shard Type={gres_type} Count={shards} File={file}"
                        );
                    }
                }
            }
        }
        text
    }

    /// cgroup.conf
    pub fn cgroup_conf(&self) -> String {
        match (self.cgroups, self.slurm) {
            (true, _) => {
                "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainDevices=yes\n"
            }
            // Nothing loads the plugin then, whatever its name.
            (false, Slurm::V22_05) => "CgroupPlugin=cgroup/v1\n",
            (false, Slurm::V24_11 | Slurm::V26_05) => "CgroupPlugin=disabled\n",
        }
        .into()
    }
}

/// ` Gres=...` of a NodeName line, or nothing for a node without GPUs.
fn gres(kinds: &[Gpus]) -> String {
    let whole = kinds.iter().filter(|kind| kind.count > 0);
    let whole = whole.map(|kind| format!("gpu:{}:{}", kind.gres_type, kind.count));
    // With an untyped `shard:16` jobs start, but every step fails with "Invalid generic resource".
    let split = kinds.iter().filter(|kind| kind.count * kind.shards > 0);
    let split = split.map(|kind| format!("shard:{}:{}", kind.gres_type, kind.count * kind.shards));
    let items: Vec<String> = whole.chain(split).collect();
    match items.is_empty() {
        true => String::new(),
        false => format!(" Gres={}", items.join(",")),
    }
}
