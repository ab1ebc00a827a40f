//! A cluster without faults, of which tests change one thing.

use crate::ask::conf::Association;
use crate::site::check::facts::{
    Accounting, Cgroups, Cluster, Declared, DeviceGate, DeviceMemory, Job, Line, Lines, Lua,
    LuaModule, LuaPlugin, LuaPlugins, Machine, Node, Partition, Qos, Reservation, Setting, Upkeep,
    Version,
};
use crate::site::check::finding::Finding;
use softmig_nvml::{Devices, Gpu, Memory, MigState};
use softmig_policy::Policy;
use softmig_policy::node::node_conf::{Identity, NodeConf, NodeMode};
use softmig_policy::node::size::MIB;
use softmig_policy::slurm::gres_list::Configured;
use std::collections::BTreeMap;

/// Two types of GPUs, of which one is shared finely.
pub(crate) const GPUS: &str = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n\
    [gpu.h200]\nmemory_mib = 143771\nreserved_mib = 616\nshards = 8\n";

pub(crate) fn policy() -> Policy {
    Policy::parse(GPUS).unwrap()
}

pub(crate) fn policy_with(more: &str) -> Policy {
    Policy::parse(&format!("{more}{GPUS}")).unwrap()
}

pub(crate) fn node(name: &str, gres: &str) -> Node {
    Node {
        name: name.into(),
        gres: Configured::parse(gres),
        cpus: Some(64),
        ..Node::default()
    }
}

pub(crate) fn partition(name: &str, nodes: &[&str]) -> Partition {
    Partition {
        name: name.into(),
        nodes: nodes.iter().map(|name| name.to_string()).collect(),
        settings: [("AllowQos", "ALL"), ("MaxCPUsPerNode", "UNLIMITED")]
            .into_iter()
            .collect(),
    }
}

pub(crate) fn qos(name: &str, fields: &[(&str, &str)]) -> Qos {
    Qos {
        name: name.into(),
        fields: fields.iter().copied().collect(),
    }
}

pub(crate) fn association(account: &str, user: &str, qos: &[&str]) -> Association {
    Association {
        account: account.into(),
        user: user.into(),
        qos: qos.iter().map(|name| name.to_string()).collect(),
        limits: String::new(),
    }
}

pub(crate) fn cluster() -> Cluster {
    let plugin = |module: &str, script: &str| LuaPlugin {
        used: true,
        script: Ok(Some(script.into())),
        lua: Ok(Lua {
            slurm: Version(5, 1),
            first: None,
            module: LuaModule {
                path: format!("/usr/lib/softmig/lua/5.1/{module}.so").into(),
                built_for: Some(Ok(Version(5, 1))),
                newer_glibc: None,
            },
        }),
    };
    Cluster {
        version: "24.11".parse().ok(),
        settings: [
            ("SelectType", "select/cons_tres"),
            ("SelectTypeParameters", "CR_CORE_MEMORY"),
            ("GresTypes", "gpu,shard"),
            ("Prolog", "/usr/libexec/softmig-prolog"),
            ("Epilog", "/usr/libexec/softmig-epilog"),
            ("PrologFlags", "Alloc,Contain"),
            ("JobSubmitPlugins", "lua"),
            ("CliFilterPlugins", "lua"),
            ("ProctrackType", "proctrack/cgroup"),
            ("TaskPlugin", "task/affinity,task/cgroup"),
            ("AccountingStorageType", "accounting_storage/slurmdbd"),
            (
                "AccountingStorageTRES",
                "cpu,mem,billing,gres/gpu,gres/gpu:l40s,gres/gpu:h200,gres/shard",
            ),
            ("AccountingStorageEnforce", "associations,limits,qos"),
            ("PriorityType", "priority/multifactor"),
            ("PriorityWeightQOS", "1000"),
        ]
        .into_iter()
        .collect(),
        cgroup: Ok([("ConstrainDevices", "yes")].into_iter().collect()),
        has_cgroup_v1: false,
        nodes: vec![
            node("gpu1", "gpu:l40s:4,shard:l40s:16"),
            node("gpu2", "gpu:l40s:4,shard:l40s:16"),
            node("gpu3", "gpu:h200:8,shard:h200:64"),
            node("cpu1", ""),
        ],
        gres_conf: Ok(Vec::new()),
        partitions: vec![
            partition("gpu", &["gpu1", "gpu2", "gpu3"]),
            partition("cpu", &["cpu1"]),
        ],
        reservations: Ok(Vec::new()),
        jobs: Ok(Vec::new()),
        accounting: Ok(Accounting {
            qos: vec![qos("normal", &[("Priority", "0")])],
            associations: vec![
                association("root", "", &["normal"]),
                association("teaching", "alice", &["normal"]),
            ],
        }),
        lua: LuaPlugins {
            job_submit: plugin(
                "softmig_job_submit",
                include_str!("../../../../../conf/job_submit.lua"),
            ),
            cli_filter: plugin(
                "softmig_cli_filter",
                include_str!("../../../../../conf/cli_filter.lua"),
            ),
        },
        lines: Lines::default(),
        slurm_conf: Ok(String::new()),
        own_scripts: BTreeMap::new(),
        in_force: None,
    }
}

/// A policy with limits for all users.
pub(crate) const LIMITS: &str =
    "[defaults]\nshards = 2\njobs = 3\nwall_time = \"1-00:00:00\"\npriority = 10\n";
/// The fields of the QOS that holds users to these limits.
const FIELDS: [(&str, &str); 6] = [
    ("Priority", "10"),
    ("Flags", "DenyOnLimit,NoDecay"),
    ("MaxTRESPerUser", "billing=2"),
    ("MaxJobsPU", "3"),
    ("MaxWall", "1-00:00:00"),
    ("MaxTRES", ""),
];
/// The weights that count for these.
pub(crate) const WEIGHTS: &str = "GRES/shard=1.0,GRES/gpu:l40s=4.0,GRES/gpu:h200=8.0";

/// A cluster that holds users to [`LIMITS`].
pub(crate) fn limited() -> Cluster {
    let mut cluster = cluster();
    cluster.partitions[0]
        .settings
        .set("TRESBillingWeights", WEIGHTS);
    cluster.accounting = Ok(Accounting {
        qos: vec![qos("normal", &[]), qos("softmig", &FIELDS)],
        associations: vec![
            association("root", "", &["normal", "softmig"]),
            association("teaching", "alice", &["softmig", "normal"]),
        ],
    });
    cluster
}

pub(crate) fn reservation(name: &str, nodes: &[&str], tres: &str) -> Reservation {
    Reservation {
        name: name.into(),
        nodes: nodes.iter().map(|name| name.to_string()).collect(),
        tres: tres.into(),
    }
}

pub(crate) fn job(name: &str, user: &str, account: &str, gres: &str) -> Job {
    Job {
        name: name.into(),
        user: user.into(),
        account: account.into(),
        asked: Configured::parse(gres),
        ..Job::default()
    }
}

/// A node or partition, and its line.
pub(crate) fn declared(name: &str, file: &str, number: usize) -> Declared {
    Declared {
        name: name.into(),
        at: Line {
            file: file.into(),
            number,
        },
    }
}

/// A setting, and its line.
pub(crate) fn setting(key: &str, value: &str, file: &str, number: usize) -> Setting {
    let Declared { name, at } = declared(key, file, number);
    let value = value.into();
    Setting {
        key: name,
        value,
        at,
    }
}

pub(crate) fn codes(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.code.as_str()).collect()
}

pub(crate) fn memory_of(total: u64, reserved: u64) -> Option<Memory> {
    Some(Memory {
        total: total * MIB,
        reserved: reserved * MIB,
        used: 0,
        free: (total - reserved) * MIB,
    })
}

pub(crate) fn l40s(minor: u32) -> Gpu {
    Gpu {
        index: minor,
        minor: Some(minor),
        memory: memory_of(46068, 604),
        standing: MigState::Whole,
        ..Gpu::default()
    }
}

/// A node of that cluster.
pub(crate) fn machine() -> Machine {
    Machine {
        name: "gpu1".into(),
        node_conf: Ok(Some(NodeConf {
            mode: NodeMode::Enforce,
            identity: Identity::Cgroup,
        })),
        preloaded: Ok(vec!["/usr/lib/softmig/libsoftmig.so".into()]),
        missing: Ok(Vec::new()),
        monitor: true,
        bad_programs: Vec::new(),
        upkeep: Upkeep::default(),
        device_memory: DeviceMemory::default(),
        runtimes: Vec::new(),
        shares_run: false,
        ended_jobs: Vec::new(),
        cgroups: Ok(Cgroups {
            usable: true,
            ..Cgroups::default()
        }),
        gate: DeviceGate::NotSet,
        has_mps: true,
        nvml: Ok(Devices {
            driver: None,
            gpus: (0..4).map(l40s).collect(),
        }),
        models: Vec::new(),
        loaders: Ok(Vec::new()),
    }
}

/// Kept for alice from the 60th to the 120th second.
pub(crate) const KEPT: &str = "[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nreason = \"x\"\n\
    start = 1970-01-01T00:01:00Z\nend = 1970-01-01T00:02:00Z\n";
