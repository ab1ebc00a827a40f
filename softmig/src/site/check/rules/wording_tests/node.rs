//! Faults of a node.

use super::Example;
use crate::machine::loaders::List;
use crate::machine::scheduler::Model;
use crate::site::check::facts::{
    Answer, Cgroups, DeviceGate, DeviceMemory, Difference, Machine, MemoryLimit, NodeFinding,
    Runtime, RuntimeKind, Upkeep,
};
use crate::site::check::finding::{Code, Finding};
use crate::site::check::rules;
use crate::site::check::rules::example::{GPUS, cluster, l40s, machine, memory_of, policy_with};
use softmig_node::proofs::{Failed, Proof};
use softmig_nvml::{Gpu, MigState, Setting};
use softmig_policy::Policy;
use softmig_policy::node::node_conf::{Identity, NodeConf, NodeMode};

/// The findings on the node after one change.
fn found(change: impl FnOnce(&mut Machine)) -> Vec<Finding> {
    let mut machine = machine();
    machine.gate = DeviceGate::Set;
    change(&mut machine);
    let policy = policy_with("[node]\ndevice_gate = true\n");
    rules::machine(&policy, &machine, Some(&cluster()), 60)
}

pub(super) fn examples() -> Vec<Example> {
    [
        policies(),
        library(),
        upkeep(),
        containers(),
        gpus(),
        schedulers(),
        others(),
    ]
    .concat()
}

fn policies() -> Vec<Example> {
    let other = Difference {
        with: "standard input".into(),
        line: Some(12),
    };
    let error = anyhow::anyhow!("/etc/softmig/policy.toml: No such file or directory (os error 2)");
    vec![
        (Code::PolicyMissing, vec![rules::no_policy(&error)]),
        (
            Code::PolicyDiffers,
            rules::difference(Some(&other)).into_iter().collect(),
        ),
    ]
}

fn library() -> Vec<Example> {
    let mode = |mode| {
        let identity = Identity::Cgroup;
        Ok(Some(NodeConf { mode, identity }))
    };
    let gate = |gate| found(|machine| machine.gate = gate);
    let groups = |usable: bool, unknown: &[&str]| {
        found(|machine| {
            machine.cgroups = Ok(Cgroups {
                usable,
                unknown: unknown.iter().map(|place| place.to_string()).collect(),
            });
        })
    };
    vec![
        (Code::NodeConf, found(|node| node.node_conf = Ok(None))),
        (
            Code::NodeMode,
            found(|node| node.node_conf = mode(NodeMode::Observe)),
        ),
        (
            Code::NodeMode,
            found(|node| node.node_conf = mode(NodeMode::Off)),
        ),
        (Code::Preload, found(|node| node.preloaded = Ok(Vec::new()))),
        (
            Code::PreloadBroken,
            found(|node| node.missing = Ok(vec!["/a/libsoftmig.so".into()])),
        ),
        (
            Code::NotLookedAt,
            found(|node| node.preloaded = Err("Permission denied".into())),
        ),
        (Code::Monitor, found(|node| node.monitor = false)),
        (
            Code::NodePrograms,
            found(|node| node.bad_programs = vec!["/usr/libexec/softmig-prolog".into()]),
        ),
        (Code::CgroupLayout, groups(false, &[])),
        (Code::CgroupLayout, groups(true, &["job 7: 0::/batch/7"])),
        (Code::DeviceGate, gate(DeviceGate::NotSet)),
        (
            Code::DeviceGate,
            gate(DeviceGate::Impossible("its kernel has no BTF".into())),
        ),
        (
            Code::NotLookedAt,
            gate(DeviceGate::Unknown("only root can see it".into())),
        ),
        (Code::PackProgram, with_packs(false, None)),
        (Code::PackProved, with_packs(true, Some(Ok(())))),
        (Code::PackNoEffect, with_packs(true, Some(Err(ended())))),
        (Code::NotLookedAt, with_packs(true, None)),
        (Code::RunFolder, found(|node| node.shares_run = true)),
        (
            Code::LoaderOther,
            found(|node| {
                let list = |names_library| List {
                    path: "/etc/ld-nix.so.preload".into(),
                    loader: "/nix/store/x7f4h2-glibc-2.42/lib/ld-linux-x86-64.so.2".into(),
                    names_library,
                };
                node.loaders = Ok(vec![list(false), list(true)]);
            }),
        ),
        (
            Code::JobEnded,
            found(|node| node.ended_jobs = vec![777, 778]),
        ),
    ]
}

fn ended() -> Failed {
    Failed {
        step: "end".into(),
        why: "one of three was killed, and another ended with it".into(),
    }
}

/// A policy with packs, on a node with NVIDIA's program or without, of which this was measured.
fn with_packs(has_mps: bool, pack: Option<Result<(), Failed>>) -> Vec<Finding> {
    let packed = format!("{GPUS}pack = \"user\"\n");
    let known = Ok(Proof {
        driver: "580.159.04".into(),
        pack,
        ..Proof::default()
    });
    let name = "NVIDIA L40S".into();
    let node = Machine {
        gate: DeviceGate::Set,
        has_mps,
        models: vec![Model { name, known }],
        ..machine()
    };
    rules::machine(
        &Policy::parse(&packed).unwrap(),
        &node,
        Some(&cluster()),
        60,
    )
}

fn upkeep() -> Vec<Example> {
    let all = || {
        found(|node| {
            node.upkeep = Upkeep {
                old_library: true,
                open_library: Some("its mode is 0777".into()),
                old_monitor: Some("0.1.0".into()),
                missing_memory: vec![(0, 26_900 << 20)],
                full: Ok(true),
            };
        })
    };
    vec![
        (Code::LibraryOld, all()),
        (Code::LibraryOpen, all()),
        (Code::MonitorOld, all()),
        (Code::GpuMemory, all()),
        (Code::RunFull, all()),
    ]
}

fn containers() -> Vec<Example> {
    let runtimes = [
        (
            Code::ContainerApptainer,
            RuntimeKind::Apptainer,
            "/etc/apptainer/apptainer.conf",
        ),
        (
            Code::ContainerPodman,
            RuntimeKind::Podman,
            "/etc/containers/containers.conf.d",
        ),
        (
            Code::ContainerEnroot,
            RuntimeKind::Enroot,
            "/etc/enroot/mounts.d",
        ),
        (Code::ContainerDocker, RuntimeKind::Docker, "/etc/cdi"),
    ];
    let examples = runtimes.into_iter().map(|(code, kind, place)| {
        let runtime = Runtime {
            kind,
            place: place.into(),
            text: String::new(),
        };
        (code, found(|node| node.runtimes = vec![runtime]))
    });
    examples.collect()
}

fn gpus() -> Vec<Example> {
    let last = |gpu: Gpu| {
        found(|node| {
            if let Ok(devices) = &mut node.nvml {
                devices.gpus[3] = gpu;
            }
        })
    };
    let fewer = found(|node| {
        if let Ok(devices) = &mut node.nvml {
            devices.gpus.truncate(3);
        }
    });
    let standing = |standing| Gpu {
        standing,
        ..l40s(3)
    };
    let set = |setting| {
        last(Gpu {
            settings: vec![setting],
            ..l40s(3)
        })
    };
    let small = Gpu {
        memory: memory_of(46068, 700),
        ..l40s(3)
    };
    let broken = Gpu {
        error: Some("memory: GPU is lost".into()),
        ..l40s(3)
    };
    let memory = |is_by_driver: bool| {
        found(|node| {
            let region = ("nvidia/0000:01:00/vidmem".into(), 46068 << 20);
            let limit = MemoryLimit {
                job: 12,
                slice_mib: 11366,
                by: "dmem.max of nvidia/0000:01:00/vidmem".into(),
                bytes: 11000 << 20,
            };
            node.device_memory = DeviceMemory {
                regions: if is_by_driver {
                    Vec::new()
                } else {
                    vec![region]
                },
                limits: vec![limit],
            };
        })
    };
    let mut unasked = machine();
    unasked.name = "gpu9".into();
    let unasked = rules::machine(&policy_with(""), &unasked, None, 60);
    vec![
        (Code::NvmlGpus, fewer),
        (Code::NvmlMemory, last(small)),
        (Code::ComputeMode, set(Setting::Exclusive)),
        (Code::ComputeMode, set(Setting::Prohibited)),
        (Code::GpuPending, set(Setting::MigPending)),
        (Code::GpuPending, set(Setting::EccPending)),
        (Code::GpuPending, set(Setting::PagesPending)),
        (Code::GpuPersistence, set(Setting::NotPersistent)),
        (Code::MigEmpty, last(standing(MigState::Empty))),
        (Code::MigDivided, last(standing(MigState::Divided))),
        (Code::NotLookedAt, last(broken)),
        (Code::NotLookedAt, unasked),
        (Code::DeviceMemoryLimits, memory(true)),
        (Code::DeviceMemoryLimits, memory(false)),
        (Code::DeviceMemorySmaller, memory(false)),
    ]
}

fn schedulers() -> Vec<Example> {
    let model = |known| {
        let name = "NVIDIA L40S".into();
        found(|node| node.models = vec![Model { name, known }])
    };
    let proof = |failed| {
        Ok(Proof {
            gpu: "NVIDIA L40S".into(),
            driver: "580.159.04".into(),
            time: "2026-11-23T12:00:00Z".into(),
            failed,
            ..Proof::default()
        })
    };
    let failed = Failed {
        step: "hold".into(),
        why: "it ran on".into(),
    };
    vec![
        (Code::SchedulerProved, model(proof(None))),
        (Code::SchedulerNoEffect, model(proof(Some(failed)))),
        (Code::NotLookedAt, model(Err("not measured yet".into()))),
    ]
}

/// The answers of other nodes.
fn others() -> Vec<Example> {
    let answer = |node: &str, told| Answer {
        node: node.into(),
        told,
    };
    let newer = NodeFinding {
        level: "error".into(),
        code: "FROM_THE_FUTURE".into(),
        r#where: "/etc/x".into(),
        what: "its text".into(),
        remedy: String::new(),
    };
    let answers = [
        answer("gpu3", Ok(vec![newer])),
        answer("gpu4", Err("no answer within 60 s".into())),
    ];
    vec![(Code::NotLookedAt, rules::answers(&answers))]
}
