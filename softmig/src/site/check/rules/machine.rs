//! Checks that a machine with GPUs holds its jobs to their limits. `nvml` has the rules about the GPUs themselves.

use crate::ask::monitor::START;
use crate::machine::scheduler::Model;
use crate::site::check::facts::{Cluster, DeviceGate, Difference, Machine};
use crate::site::check::finding::{Code, Finding};
use crate::site::check::rules::{containers, device_memory, nvml, upkeep};
use softmig_policy::Policy;
use softmig_policy::config::gpu_types::PackKey;
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
    packs(policy, machine, &mut found);
    match &machine.nvml {
        Err(why) => found.push(Finding::skip("NVML", why)),
        Ok(devices) => nvml::check(policy, machine, cluster, devices, now, &mut found),
    }
    found.extend(machine.models.iter().map(scheduler));
    // All of them: the remedy is for each.
    let ended: Vec<_> = machine.ended_jobs.iter().map(u32::to_string).collect();
    if !ended.is_empty() {
        let ids = ended.join(", ");
        found.push(Finding::new(
            Code::JobEnded,
            RUN,
            format!(
                "it has limits of jobs that Slurm does not know ({ids}): their epilog failed, and they still hold their users' \
                 other processes here"
            ),
            "run for each: SLURM_JOB_ID=ID SLURM_JOB_UID=0 /usr/libexec/softmig-epilog",
        ));
    }
    found
}

/// The loaders of other software stacks.
fn loaders(machine: &Machine) -> Vec<Finding> {
    let lists = match &machine.loaders {
        Ok(lists) => lists,
        Err(why) => return vec![Finding::skip("loaders of software stacks", why)],
    };
    let open = lists.iter().filter(|list| !list.names_library);
    open.map(|list| {
        let (loader, path) = (list.loader.display(), list.path.display());
        Finding::new(
            Code::LoaderOther,
            format!("{loader}"),
            format!(
                "it reads {path}, which does not name libsoftmig.so: programs of this stack are held to nothing"
            ),
            format!(
                "if you know the stack, run 'softmig install --hook --list {path}'; where the file cannot be changed, \
                 device_gate = true keeps them from slices' GPUs"
            ),
        )
    })
    .collect()
}

/// The rules that do not depend on the policy.
pub(crate) fn without_policy(machine: &Machine) -> Vec<Finding> {
    const PRELOAD: &str = "/etc/ld.so.preload";
    let mut found = Vec::new();
    let conf = machine.node_conf.as_ref().ok().and_then(Option::as_ref);
    // Jobs that are known by their environment need no control groups.
    let by_cgroup = conf.is_none_or(|conf| conf.identity == Identity::Cgroup);
    let cgroups = machine.cgroups.as_ref().ok().filter(|_| by_cgroup);
    let start = format!("run {START}");
    for (is_wrong, code, place, what, remedy) in rows! {
        machine.node_conf.as_ref().is_ok_and(Option::is_none), NodeConf, NODE_CONF,
            "the file does not exist, so softmig does nothing here", INSTALL;
        cgroups.is_some_and(|groups| !groups.usable), CgroupLayout, "/sys/fs/cgroup",
            "neither control groups of version 2 nor the devices of version 1 are mounted, so Slurm can make none for jobs",
            "mount them; or, where that cannot be, SOFTMIG_IDENTITY=env in node.conf, which jobs can change";
        machine.preloaded.as_ref().is_ok_and(Vec::is_empty), Preload, PRELOAD,
            "libsoftmig.so is not in it, so no process is held to anything", INSTALL;
        !machine.monitor, Monitor, "softmig-monitor",
            "it does not run, so no GPU is steered: each job keeps its own cap", start.as_str();
        machine.shares_run, RunFolder, RUN,
            "it is on /run itself, on which users may have files: jobs that start while /run is full get no GPU",
            "it is mounted when the node starts next, if run-softmig.mount is installed";
    } {
        if is_wrong {
            found.push(Finding::new(code, place, what, remedy));
        }
    }
    if let Err(why) = &machine.node_conf {
        found.push(Finding::new(Code::NodeConf, NODE_CONF, why, ""));
    }
    if let Some(mode) = conf
        .map(|conf| conf.mode)
        .filter(|mode| *mode != NodeMode::Enforce)
    {
        let what = format!("the mode is {mode}: jobs are held to nothing");
        let remedy = "'softmig node enforce' changes that";
        found.push(Finding::new(Code::NodeMode, NODE_CONF, what, remedy));
    }
    if let Err(why) = &machine.cgroups
        && by_cgroup
    {
        found.push(Finding::skip("control groups", why));
    }
    if let Some(first) = cgroups.and_then(|groups| groups.unknown.first()) {
        let what = format!("the library cannot tell a job by where its processes are ({first})");
        let remedy =
            "see docs/how-the-hook-works.md for the layouts that are known, and report this one";
        found.push(Finding::new(
            Code::CgroupLayout,
            "control groups",
            what,
            remedy,
        ));
    }
    if let Err(why) = &machine.preloaded {
        found.push(Finding::skip(PRELOAD, why));
    }
    found.extend(loaders(machine));
    for path in machine.missing.iter().flatten() {
        let what = format!("{path} is in it and not on this machine, and every process complains");
        let remedy = "run 'softmig install --hook', or 'softmig uninstall --hook'";
        found.push(Finding::new(Code::PreloadBroken, PRELOAD, what, remedy));
    }
    for path in &machine.bad_programs {
        let what = "it is not there or not executable, and Slurm drains a node whose prolog fails";
        let remedy = "install the package softmig-node anew";
        found.push(Finding::new(Code::NodePrograms, path, what, remedy));
    }
    found.extend(upkeep::check(&machine.upkeep));
    found
}

const INSTALL: &str = "run 'softmig install --hook'";

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

/// Whether jobs can be packed where the policy says so.
fn packs(policy: &Policy, machine: &Machine, found: &mut Vec<Finding>) {
    let Some(packed) = policy.gpus().find(|gpu| gpu.pack() != PackKey::No) else {
        return;
    };
    if machine.has_mps {
        return found.extend(machine.models.iter().filter_map(pack));
    }
    found.push(Finding::new(
        Code::PackProgram,
        format!("[gpu.{}]", packed.name()),
        "it has pack, and nvidia-cuda-mps-control is not where services look for programs, such as /usr/bin: slices have the GPU in turns",
        "install the package of NVIDIA's driver that has it, or omit pack",
    ));
}

/// The first driver with servers by control group, and shares and limits of their own.
const MPS_V3: u32 = 610;

/// Whether the GPUs of a model that can be steered can have packs.
fn pack(model: &Model) -> Option<Finding> {
    let proof = model.known.as_ref().ok()?;
    let proof = Some(proof).filter(|proof| proof.failed.is_none())?;
    let (name, driver) = (&model.name, &proof.driver);
    Some(match &proof.pack {
        Some(Ok(())) => {
            let major = driver
                .split('.')
                .next()
                .and_then(|major| major.parse().ok());
            let unused = match major {
                Some(MPS_V3..) => "; packs leave the shares and limits of its MPS v3 unused",
                _ => "",
            };
            let what =
                format!("it can have packs: their programs end alone with driver {driver}{unused}");
            Finding::new(Code::PackProved, name, what, "")
        }
        Some(Err(failed)) => {
            let why = &failed.why;
            let what =
                format!("it has no packs, and slices have it in turns: with driver {driver} {why}");
            let remedy = "omit pack from policy.toml for this type, or try another driver";
            Finding::new(Code::PackNoEffect, name, what, remedy)
        }
        None => {
            let why = "not measured yet: softmig-monitor does it when no process is on such a GPU. Until then there are none";
            Finding::skip(format!("packs on {name}"), why)
        }
    })
}

/// Whether jobs can share the GPUs of a model by their own scheduler.
fn scheduler(model: &Model) -> Finding {
    let name = &model.name;
    let proof = match &model.known {
        Err(why) => return Finding::skip(format!("the scheduler of {name}"), why),
        Ok(proof) => proof,
    };
    let seen = format!("with driver {} (measured {})", proof.driver, proof.day());
    match &proof.failed {
        None => {
            let what = format!("jobs share it by its own scheduler: steering it has effect {seen}");
            Finding::new(Code::SchedulerProved, name, what, "")
        }
        Some(failed) => Finding::new(
            Code::SchedulerNoEffect,
            name,
            format!(
                "each job keeps its own cap on it, since steering its own scheduler has no effect {seen}: {}",
                failed.why
            ),
            "to have it measured again, remove /var/lib/softmig/scheduler.json",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::facts::Cgroups;
    use crate::site::check::rules::example::{cluster, codes, machine, policy};
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
    fn a_device_gate_matters_only_where_it_is_wanted() {
        let impossible = || DeviceGate::Impossible("this kernel has no BTF".into());
        assert!(found(|machine| machine.gate = impossible()).is_empty());
        assert!(gate(&DeviceGate::Set).is_none());
    }

    #[test]
    fn each_job_that_ended_is_named() {
        let mut machine = machine();
        machine.ended_jobs = (101..=107).collect();
        let found = check(&policy(), &machine, Some(&cluster()), 0);
        let all = "(101, 102, 103, 104, 105, 106, 107)";
        assert!(found[0].to_string().contains(all), "{}", found[0]);
    }

    #[test]
    fn what_cannot_be_looked_at_is_said() {
        let unseen = || Err("no".to_string());
        for (change, codes) in [
            (
                found(|machine| machine.node_conf = Err("no".into())),
                ["NODE_CONF"],
            ),
            (
                found(|machine| machine.cgroups = unseen().map(|()| Cgroups::default())),
                ["NOT_LOOKED_AT"],
            ),
            (
                found(|machine| machine.nvml = Err("no".into())),
                ["NOT_LOOKED_AT"],
            ),
        ] {
            assert_eq!(change, codes);
        }
    }

    #[test]
    fn jobs_known_by_their_environment_need_no_control_groups() {
        let by_environment = found(|machine| {
            machine.cgroups = Ok(Cgroups::default());
            machine.node_conf = Ok(Some(NodeConf {
                mode: NodeMode::Enforce,
                identity: Identity::Env,
            }));
        });
        assert!(by_environment.is_empty());
    }

    #[test]
    fn the_same_policy_is_no_finding() {
        let with = "standard input".to_string();
        assert!(difference(None).is_none());
        assert!(difference(Some(&Difference { with, line: None })).is_none());
    }
}
