//! Checks that a machine with GPUs holds its jobs to their limits. `nvml` has the rules about the GPUs themselves.

use crate::ask::monitor::START;
use crate::machine::scheduler::{Model, RESTART};
use crate::site::check::facts::{Cluster, DeviceGate, Difference, Machine};
use crate::site::check::finding::{Code, Finding};
use crate::site::check::rules::{containers, device_memory, nvml, upkeep};
use softmig_policy::Policy;
use softmig_policy::node::node_conf::{Identity, NodeMode};
use softmig_policy::node::paths::{NODE_CONF, RUN};

/// A difference between the policy and the one that it is compared with.
pub(crate) fn difference(difference: Option<&Difference>) -> Option<Finding> {
    let difference = difference?;
    let line = difference.line?;
    Some(Finding::new(
        Code::PolicyDiffers,
        "policy.toml",
        format!(
            "it is another one than {} from line {line} on",
            difference.with
        ),
        "copy the controller's to all nodes and login nodes",
    ))
}

pub(crate) fn check(
    policy: &Policy,
    machine: &Machine,
    cluster: Option<&Cluster>,
    now: i64,
) -> Vec<Finding> {
    let mut found = without_policy(machine);
    found.extend(containers::check(machine));
    found.extend(device_memory::of_node(&machine.device_memory));
    if policy.node().device_gate {
        found.extend(gate(&machine.gate));
    }
    match &machine.nvml {
        Err(why) => found.push(Finding::skip("NVML", why)),
        Ok(devices) => nvml::check(policy, machine, cluster, devices, now, &mut found),
    }
    found.extend(machine.models.iter().map(scheduler));
    if !machine.ended_jobs.is_empty() {
        let ids: Vec<String> = machine.ended_jobs.iter().map(u32::to_string).collect();
        found.push(Finding::new(
            Code::JobEnded,
            RUN,
            format!(
                "it has limits of jobs that Slurm does not know ({}): their epilog failed, and they still hold their users' other \
                 processes here",
                ids.join(", ")
            ),
            format!(
                "run for each: SLURM_JOB_ID={} SLURM_JOB_UID=0 /usr/libexec/softmig-epilog",
                ids[0]
            ),
        ));
    }
    if machine.shares_run {
        found.push(Finding::new(
            Code::RunFolder,
            RUN,
            "it is on /run itself, on which users may have files: jobs that start while /run is full get no GPU",
            "it is mounted when the node starts next, if run-softmig.mount is installed",
        ));
    }
    found
}

/// The rules that do not depend on the policy.
pub(crate) fn without_policy(machine: &Machine) -> Vec<Finding> {
    let mut found = Vec::new();
    settings(machine, &mut found);
    library(machine, &mut found);
    found.extend(upkeep::check(&machine.upkeep));
    found
}

fn settings(machine: &Machine, found: &mut Vec<Finding>) {
    let place = NODE_CONF;
    let mut identity = Identity::Cgroup;
    match &machine.node_conf {
        Err(why) => found.push(Finding::new(Code::NodeConf, place, why, "")),
        Ok(None) => found.push(Finding::new(
            Code::NodeConf,
            place,
            "the file does not exist, so softmig does nothing here",
            "run 'softmig install --hook'",
        )),
        Ok(Some(conf)) => {
            identity = conf.identity;
            if conf.mode != NodeMode::Enforce {
                found.push(Finding::new(
                    Code::NodeMode,
                    place,
                    format!("the mode is {}: jobs are held to nothing", conf.mode),
                    "'softmig node enforce' changes that",
                ));
            }
        }
    }
    if identity != Identity::Cgroup {
        return;
    }
    const REMEDY: &str =
        "see docs/how-the-hook-works.md for the layouts that are known, and report this one";
    match &machine.cgroups {
        Err(why) => found.push(Finding::skip("control groups", why)),
        Ok(cgroups) => {
            if !cgroups.usable {
                found.push(Finding::new(
                    Code::CgroupLayout,
                    "/sys/fs/cgroup",
                    "neither control groups of version 2 nor the devices of version 1 are mounted, so Slurm can make none \
                     for jobs",
                    "mount them; or, where that cannot be, SOFTMIG_IDENTITY=env in node.conf, which jobs can change",
                ));
            }
            if let Some(first) = cgroups.unknown.first() {
                found.push(Finding::new(
                    Code::CgroupLayout,
                    "control groups",
                    format!("the library cannot tell a job by where its processes are ({first})"),
                    REMEDY,
                ));
            }
        }
    }
}

fn library(machine: &Machine, found: &mut Vec<Finding>) {
    const INSTALL: &str = "run 'softmig install --hook'";
    match &machine.preloaded {
        Err(why) => found.push(Finding::skip("/etc/ld.so.preload", why)),
        Ok(paths) if paths.is_empty() => found.push(Finding::new(
            Code::Preload,
            "/etc/ld.so.preload",
            "libsoftmig.so is not in it, so no process is held to anything",
            INSTALL,
        )),
        Ok(_) => {}
    }
    for path in machine.missing.iter().flatten() {
        found.push(Finding::new(
            Code::PreloadBroken,
            "/etc/ld.so.preload",
            format!("{path} is in it and not on this machine, and every process complains"),
            "run 'softmig install --hook', or 'softmig uninstall --hook'",
        ));
    }
    if !machine.monitor {
        found.push(Finding::new(
            Code::Monitor,
            "softmig-monitor",
            "it does not run, so jobs take no turns: each has a cap on its own",
            format!("run {START}"),
        ));
    }
    for path in &machine.bad_programs {
        found.push(Finding::new(
            Code::NodePrograms,
            path,
            "it is not there or not executable, and Slurm drains a node whose prolog fails",
            "install the package softmig-node anew",
        ));
    }
}

/// The device gate, if the policy asks for it.
fn gate(gate: &DeviceGate) -> Option<Finding> {
    const PLACE: &str = "the device gate";
    match gate {
        DeviceGate::Set => None,
        DeviceGate::Unknown(why) => Some(Finding::skip(PLACE, why)),
        DeviceGate::NotSet => Some(Finding::new(
            Code::DeviceGate,
            PLACE,
            "it is not set up, so programs without the library can open a slice's GPU",
            format!("run {START}, and look at its log; the node has to enforce"),
        )),
        DeviceGate::Impossible(why) => Some(Finding::new(
            Code::DeviceGate,
            PLACE,
            format!("this machine cannot have it: {why}"),
            "change that, or set device_gate = false in policy.toml; docs/device-gate.md says what it needs",
        )),
    }
}

/// Whether jobs can share the GPUs of a model by their own scheduler.
fn scheduler(model: &Model) -> Finding {
    let proof = match &model.known {
        Err(why) => {
            let place = format!("the scheduler of {}", model.name);
            return Finding::skip(place, why);
        }
        Ok(proof) => proof,
    };
    let (driver, day) = (&proof.driver, proof.day());
    match &proof.failed {
        None => Finding::new(
            Code::SchedulerProved,
            &model.name,
            format!(
                "jobs share it by its own scheduler: steering it has effect with driver {driver} (measured {day})"
            ),
            "",
        ),
        Some(failed) => Finding::new(
            Code::SchedulerNoEffect,
            &model.name,
            format!(
                "jobs take turns on it, since steering its own scheduler has no effect with driver {driver} \
                 (measured {day}): {}",
                failed.why
            ),
            format!(
                "run {RESTART} if it is new to you; 'softmig check --node --prove' measures again"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::facts::Cgroups;
    use crate::site::check::rules::example::{cluster, codes, machine, policy};
    use softmig_node::proofs::{Failed, Proof};
    use softmig_policy::node::node_conf::NodeConf;

    fn found(change: impl Fn(&mut Machine)) -> Vec<&'static str> {
        let mut machine = machine();
        change(&mut machine);
        codes(&check(&policy(), &machine, Some(&cluster()), 0))
    }

    #[test]
    fn a_node_in_order_is_clean() {
        assert!(found(|_| {}).is_empty());
    }

    #[test]
    fn what_a_node_lacks_is_found() {
        let mode = |mode| {
            Ok(Some(NodeConf {
                mode,
                identity: Identity::Cgroup,
            }))
        };
        assert_eq!(found(|machine| machine.node_conf = Ok(None)), ["NODE_CONF"]);
        assert_eq!(
            found(|machine| machine.node_conf = Err("broken".into())),
            ["NODE_CONF"]
        );
        assert_eq!(
            found(|machine| machine.node_conf = mode(NodeMode::Observe)),
            ["NODE_MODE"]
        );
        assert_eq!(
            found(|machine| machine.node_conf = mode(NodeMode::Off)),
            ["NODE_MODE"]
        );
        assert_eq!(
            found(|machine| machine.preloaded = Ok(Vec::new())),
            ["PRELOAD"]
        );
        assert_eq!(
            found(|machine| machine.missing = Ok(vec!["/a.so".into()])),
            ["PRELOAD_BROKEN"]
        );
        assert_eq!(found(|machine| machine.monitor = false), ["MONITOR"]);
        assert_eq!(
            found(|machine| machine.bad_programs = vec!["/p".into()]),
            ["NODE_PROGRAMS"]
        );
        assert_eq!(found(|machine| machine.shares_run = true), ["RUN_FOLDER"]);
        assert_eq!(
            found(|machine| machine.ended_jobs = vec![777]),
            ["JOB_ENDED"]
        );
        assert_eq!(
            found(|machine| machine.nvml = Err("none".into())),
            ["NOT_LOOKED_AT"]
        );
    }

    #[test]
    fn a_device_gate_that_is_wanted_has_to_be_there() {
        let found = |text: &str, gate: DeviceGate| {
            let mut machine = machine();
            machine.gate = gate;
            let policy = Policy::parse(text).unwrap();
            let found = check(&policy, &machine, None, 0)
                .into_iter()
                .filter(|found| found.place == "the device gate");
            found.map(|found| found.to_string()).collect::<Vec<_>>()
        };
        let impossible = || DeviceGate::Impossible("this kernel has no BTF".into());
        assert!(found("", DeviceGate::NotSet).is_empty());
        assert!(found("", impossible()).is_empty());
        let wanted = "[node]\ndevice_gate = true\n";
        assert!(found(wanted, DeviceGate::Set).is_empty());
        let said = found(wanted, impossible()).concat();
        assert!(
            said.contains("DEVICE_GATE") && said.contains("no BTF"),
            "{said}"
        );
        let said = found(wanted, DeviceGate::NotSet).concat();
        assert!(
            said.contains("DEVICE_GATE") && said.contains("not set up"),
            "{said}"
        );
        let said = found(wanted, DeviceGate::Unknown("not root".into())).concat();
        assert!(said.contains("NOT_LOOKED_AT"), "{said}");
    }

    #[test]
    fn jobs_are_known_by_their_control_groups() {
        let none = Cgroups::default();
        assert_eq!(
            found(|machine| machine.cgroups = Ok(none.clone())),
            ["CGROUP_LAYOUT"]
        );
        let other = Cgroups {
            usable: true,
            unknown: vec!["job 7: 0::/batch/7".into()],
            in_job: false,
        };
        assert_eq!(
            found(|machine| machine.cgroups = Ok(other.clone())),
            ["CGROUP_LAYOUT"]
        );
        let by_environment = found(|machine| {
            machine.cgroups = Ok(none.clone());
            machine.node_conf = Ok(Some(NodeConf {
                mode: NodeMode::Enforce,
                identity: Identity::Env,
            }));
        });
        assert!(by_environment.is_empty());
    }

    #[test]
    fn what_was_measured_of_a_scheduler_is_told() {
        let failed = Failed {
            step: "hold".into(),
            why: "it ran on".into(),
        };
        let proof = |failed| {
            Ok(Proof {
                gpu: "NVIDIA L40S".into(),
                driver: "580.159.04".into(),
                time: "2026-11-23T12:00:00Z".into(),
                failed,
            })
        };
        for (known, code, words) in [
            (
                proof(None),
                "SCHEDULER_PROVED",
                "has effect with driver 580.159.04 (measured 2026-11-23)",
            ),
            (
                proof(Some(failed)),
                "SCHEDULER_NO_EFFECT",
                "(measured 2026-11-23): it ran on",
            ),
            (
                Err("no GPU is idle".into()),
                "NOT_LOOKED_AT",
                "no GPU is idle",
            ),
        ] {
            let model = Model {
                name: "NVIDIA L40S".into(),
                known,
            };
            let mut machine = machine();
            machine.models = vec![model];
            let found = check(&policy(), &machine, Some(&cluster()), 0);
            assert_eq!(codes(&found), [code]);
            assert!(found[0].what.ends_with(words), "{}", found[0]);
            assert!(found[0].place.ends_with("NVIDIA L40S"), "{}", found[0]);
        }
    }

    #[test]
    fn another_policy_is_found_with_its_line() {
        let other = |line| Difference {
            with: "standard input".into(),
            line,
        };
        assert!(difference(None).is_none());
        assert!(difference(Some(&other(None))).is_none());
        let found = difference(Some(&other(Some(12)))).unwrap();
        assert_eq!(found.code, Code::PolicyDiffers);
        assert!(found.what.ends_with("from line 12 on"), "{found}");
    }
}
