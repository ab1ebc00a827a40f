//! One machine with GPUs: whether jobs on it are held to anything, and whether its GPUs are what the policy says.

use crate::check::facts::{Cluster, Difference, Machine};
use crate::check::finding::{Code, Finding};
use crate::check::hostlist::expand;
use crate::monitor::START;
use crate::slurm::gres::NodeGres;
use softmig_nvml::{Devices, Gpu, Memory, Standing};
use softmig_policy::Policy;
use softmig_policy::catalogue::GpuType;
use softmig_policy::node_conf::{Identity, NodeMode};
use std::collections::BTreeMap;

/// Whether the policy is the one that it is compared with.
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

pub(crate) fn judge(
    policy: &Policy,
    machine: &Machine,
    cluster: Option<&Cluster>,
    now: i64,
) -> Vec<Finding> {
    let mut found = Vec::new();
    settings(machine, &mut found);
    library(machine, &mut found);
    match &machine.nvml {
        Err(why) => found.push(Finding::skip("NVML", why)),
        Ok(devices) => gpus(policy, machine, cluster, devices, now, &mut found),
    }
    found
}

fn settings(machine: &Machine, found: &mut Vec<Finding>) {
    let place = crate::node::PATH;
    let mut identity = Identity::Cgroup;
    match &machine.node_conf {
        Err(why) => found.push(Finding::new(Code::NodeConf, place, why, "")),
        Ok(None) => found.push(Finding::new(
            Code::NodeConf,
            place,
            "there is none, so softmig does nothing here",
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
            "install softmig's package on this node",
        ));
    }
}

/// The GPUs that Slurm and the policy say this node has.
struct Said {
    /// How many of each type.
    counts: BTreeMap<String, u64>,
    /// The type of each `/dev/nvidiaN`, as far as anything says it.
    by_minor: BTreeMap<u32, String>,
}

impl Said {
    fn of(policy: &Policy, name: &str, cluster: Option<&Cluster>, now: i64) -> Option<Self> {
        let entry = policy
            .nodes()
            .iter()
            .find(|nodes| expand(nodes.names()).iter().any(|own| own == name));
        let wanted = entry.map(|nodes| NodeGres::of(policy, nodes, now));
        let node = cluster.and_then(|cluster| cluster.nodes.iter().find(|node| node.name == name));
        let mut counts = BTreeMap::new();
        let mut by_minor = BTreeMap::new();
        match (node, &wanted) {
            (Some(node), _) => {
                for gres in node.of("gpu") {
                    let kind = gres.kind.clone().unwrap_or_default();
                    *counts.entry(kind).or_insert(0) += gres.count;
                }
            }
            (None, Some(wanted)) => {
                for gres in &wanted.types {
                    *counts.entry(gres.kind.clone()).or_insert(0) += u64::from(gres.gpus);
                }
            }
            (None, None) => return None,
        }
        for gres in wanted.iter().flat_map(|wanted| &wanted.types) {
            by_minor.extend(gres.minors.iter().map(|minor| (*minor, gres.kind.clone())));
        }
        // What Slurm itself has counts.
        let lines = cluster.and_then(|cluster| cluster.gres_conf.as_ref().ok());
        for line in lines
            .into_iter()
            .flatten()
            .filter(|line| line.name == "gpu" && line.is_for(name))
        {
            let minors = line
                .files
                .iter()
                .filter_map(|file| file.strip_prefix("/dev/nvidia")?.parse::<u32>().ok());
            if let Some(kind) = &line.kind {
                by_minor.extend(minors.map(|minor| (minor, kind.clone())));
            }
        }
        Some(Self { counts, by_minor })
    }

    /// The type of a GPU; that of all, where they have one.
    fn kind(&self, gpu: &Gpu) -> Option<&str> {
        let by_minor = gpu.minor.and_then(|minor| self.by_minor.get(&minor));
        let only = || match self.counts.len() {
            1 => self.counts.keys().next(),
            _ => None,
        };
        by_minor.or_else(only).map(String::as_str)
    }
}

fn gpus(
    policy: &Policy,
    machine: &Machine,
    cluster: Option<&Cluster>,
    devices: &Devices,
    now: i64,
    found: &mut Vec<Finding>,
) {
    let said = Said::of(policy, &machine.name, cluster, now);
    if said.is_none() {
        found.push(Finding::skip(
            "the GPUs' types",
            format!(
                "neither Slurm nor [[nodes]] of policy.toml was asked what {} has",
                machine.name
            ),
        ));
    }
    for gpu in &devices.gpus {
        let place = called(gpu);
        if let Some(why) = &gpu.error {
            found.push(Finding::skip(&place, why));
        }
        let kind = said.as_ref().and_then(|said| said.kind(gpu));
        match (gpu.standing, kind) {
            (Standing::Empty, _) => found.push(Finding::new(
                Code::MigEmpty,
                place,
                "MIG is on and there are no instances, so nobody can have it, not as a whole either",
                "make instances ('nvidia-smi mig -cgi ... -C'), or turn MIG off ('nvidia-smi -mig 0')",
            )),
            (Standing::Divided, Some(kind)) if policy.gpu(kind).is_some_and(|gpu| !gpu.is_mig()) => {
                found.push(Finding::new(
                    Code::MigDivided,
                    place,
                    format!("MIG divides it, and Slurm counts it as a whole {kind}"),
                    "give each instance a type of its own with mig = true ('softmig probe' prints them), or turn MIG off",
                ));
            }
            (Standing::Whole, Some(kind)) => found.extend(memory(&place, shared(policy, kind), gpu.memory)),
            _ => {}
        }
        for instance in &gpu.instances {
            // `h100_1g.10gb` for a 1g.10gb.
            let ending = format!("_{}", instance.profile);
            let of_profile = |gpu: &&GpuType| gpu.is_mig() && gpu.name().ends_with(&ending);
            let place = format!("{} MIG instance {}", called(gpu), instance.index);
            found.extend(memory(
                &place,
                policy.gpus().find(of_profile),
                instance.memory,
            ));
        }
    }
    if let Some(said) = said {
        found.extend(counts(policy, machine, &said, devices));
    }
}

fn called(gpu: &Gpu) -> String {
    match gpu.minor {
        Some(minor) => format!("/dev/nvidia{minor}"),
        None => format!("GPU {}", gpu.index),
    }
}

/// What the policy says of a type; of one that is kept for somebody, what it is otherwise.
fn shared<'a>(policy: &'a Policy, kind: &str) -> Option<&'a GpuType> {
    policy.gpu(kind).or_else(|| {
        let mut kept = policy.reservables().iter();
        policy.gpu(kept.find(|own| own.kind() == kind)?.of())
    })
}

/// Slices are parts of the policy's figure, so it must not be more than there is.
fn memory(place: &str, gpu: Option<&GpuType>, memory: Option<Memory>) -> Option<Finding> {
    let (gpu, memory) = (gpu?, memory?);
    let policy = u64::from(gpu.memory_mib()) - u64::from(gpu.reserved_mib());
    (policy > memory.usable_mib()).then(|| {
        Finding::new(
            Code::NvmlMemory,
            place,
            format!(
                "policy.toml divides {policy} MiB of a {}, and NVML has {} (total {}, reserved {}): slices promise memory \
                 that does not exist",
                gpu.name(),
                memory.usable_mib(),
                memory.total_mib(),
                memory.reserved_mib()
            ),
            format!(
                "write memory_mib = {} and reserved_mib = {} in [gpu.{}]",
                memory.total_mib(),
                memory.reserved_mib(),
                gpu.name()
            ),
        )
    })
}

/// As many GPUs and MIG instances as Slurm counts.
fn counts(policy: &Policy, machine: &Machine, said: &Said, devices: &Devices) -> Vec<Finding> {
    let is_mig = |kind: &str| policy.gpu(kind).is_some_and(GpuType::is_mig);
    let counted = |mig: bool| {
        let counts = said.counts.iter().filter(|(kind, _)| is_mig(kind) == mig);
        counts.map(|(_, count)| count).sum::<u64>()
    };
    let whole = devices
        .gpus
        .iter()
        .filter(|gpu| gpu.standing == Standing::Whole);
    let pairs = [
        ("whole GPUs", counted(false), whole.count() as u64),
        ("MIG instances", counted(true), devices.instances() as u64),
    ];
    let wrong = pairs.into_iter().filter(|(_, said, there)| said != there);
    let wrong = wrong.map(|(what, said, there)| {
        Finding::new(
            Code::NvmlGpus,
            &machine.name,
            format!("{said} {what} by its configuration, and NVML has {there}"),
            "correct Gres=, gres.conf and [[nodes]]; 'softmig probe' shows what there is",
        )
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::facts::{Cgroups, GresLine};
    use crate::check::judge::example::{cluster, codes, node, policy, policy_with};
    use softmig_nvml::Instance;
    use softmig_policy::node_conf::NodeConf;

    const MIB: u64 = 1 << 20;

    fn memory_of(total: u64, reserved: u64) -> Option<Memory> {
        Some(Memory {
            total: total * MIB,
            reserved: reserved * MIB,
            used: 0,
            free: (total - reserved) * MIB,
        })
    }

    fn l40s(minor: u32) -> Gpu {
        Gpu {
            index: minor,
            minor: Some(minor),
            memory: memory_of(46068, 604),
            standing: Standing::Whole,
            ..Gpu::default()
        }
    }

    fn machine() -> Machine {
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
            cgroups: Ok(Cgroups {
                usable: true,
                ..Cgroups::default()
            }),
            nvml: Ok(Devices {
                driver: None,
                gpus: (0..4).map(l40s).collect(),
            }),
        }
    }

    fn found(change: impl Fn(&mut Machine)) -> Vec<&'static str> {
        let mut machine = machine();
        change(&mut machine);
        codes(&judge(&policy(), &machine, Some(&cluster()), 0))
    }

    fn with_gpus(change: impl Fn(&mut Vec<Gpu>)) -> Vec<&'static str> {
        found(|machine| {
            if let Ok(devices) = &mut machine.nvml {
                change(&mut devices.gpus);
            }
        })
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
        assert_eq!(
            found(|machine| machine.nvml = Err("none".into())),
            ["NOT_LOOKED_AT"]
        );
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
    fn the_policy_promises_no_more_than_nvml_has() {
        let less = with_gpus(|gpus| gpus[2].memory = memory_of(46068, 605));
        assert_eq!(less, ["NVML_MEMORY"]);
        let more = with_gpus(|gpus| gpus[2].memory = memory_of(46068, 600));
        assert!(more.is_empty());
    }

    #[test]
    fn gpus_are_counted() {
        assert_eq!(with_gpus(|gpus| gpus.truncate(3)), ["NVML_GPUS"]);
        let unread = with_gpus(|gpus| gpus[3].error = Some("memory: lost".into()));
        assert_eq!(unread, ["NOT_LOOKED_AT"]);
    }

    #[test]
    fn mig_without_instances_is_no_gpu() {
        let empty = with_gpus(|gpus| gpus[3].standing = Standing::Empty);
        assert_eq!(empty, ["MIG_EMPTY", "NVML_GPUS"]);
    }

    fn instance(index: u32) -> Instance {
        Instance {
            index,
            uuid: format!("MIG-{index}"),
            profile: "1g.10gb".into(),
            memory: memory_of(9856, 4),
            shares_memory: false,
        }
    }

    fn divided(minor: u32) -> Gpu {
        Gpu {
            standing: Standing::Divided,
            instances: (0..2).map(instance).collect(),
            ..l40s(minor)
        }
    }

    #[test]
    fn a_divided_gpu_is_no_whole_one() {
        let found = with_gpus(|gpus| gpus[3] = divided(3));
        assert_eq!(found, ["MIG_DIVIDED", "NVML_GPUS", "NVML_GPUS"]);
    }

    #[test]
    fn instances_are_counted_and_measured() {
        let mig = |memory: u32| {
            policy_with(&format!(
                "[gpu.\"h100_1g.10gb\"]\nmemory_mib = {memory}\nreserved_mib = 4\nshards = 1\nmig = true\n"
            ))
        };
        let mut cluster = cluster();
        cluster.nodes[0] = node("gpu1", "gpu:h100_1g.10gb:4");
        let mut machine = machine();
        machine.nvml = Ok(Devices {
            driver: None,
            gpus: vec![divided(0), divided(1)],
        });
        assert!(judge(&mig(9856), &machine, Some(&cluster), 0).is_empty());
        let found = codes(&judge(&mig(9857), &machine, Some(&cluster), 0));
        assert_eq!(found, ["NVML_MEMORY"; 4]);
        cluster.nodes[0] = node("gpu1", "gpu:h100_1g.10gb:7");
        assert_eq!(
            codes(&judge(&mig(9856), &machine, Some(&cluster), 0)),
            ["NVML_GPUS"]
        );
    }

    #[test]
    fn a_gpus_type_is_its_devices() {
        let mut cluster = cluster();
        cluster.nodes[0] = node("gpu1", "gpu:l40s:3,gpu:h200:1,shard:l40s:12,shard:h200:8");
        let line = |kind: &str, files: &[&str]| GresLine {
            name: "gpu".into(),
            kind: Some(kind.into()),
            files: files.iter().map(|file| file.to_string()).collect(),
            ..GresLine::default()
        };
        let l40s = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"];
        cluster.gres_conf = Ok(vec![line("l40s", &l40s), line("h200", &["/dev/nvidia3"])]);
        // The last one has an L40S's memory.
        let found = judge(&policy(), &machine(), Some(&cluster), 0);
        assert_eq!(codes(&found), ["NVML_MEMORY"]);
        assert_eq!(found[0].place, "/dev/nvidia3");
    }

    #[test]
    fn a_gpu_that_is_kept_for_somebody_is_measured_as_well() {
        let kept = policy_with(
            "[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nreason = \"x\"\nend = 1970-01-01T00:02:00Z\n\
             [[nodes]]\nnames = \"gpu1\"\ngpus = [\"l40s:3\", \"l40s_r:1\"]\n",
        );
        let mut machine = machine();
        assert!(judge(&kept, &machine, None, 0).is_empty());
        if let Ok(devices) = &mut machine.nvml {
            devices.gpus[3].memory = memory_of(40000, 604);
        }
        assert_eq!(codes(&judge(&kept, &machine, None, 0)), ["NVML_MEMORY"]);
    }

    #[test]
    fn without_slurm_and_inventory_the_types_are_unknown() {
        let found = judge(&policy(), &machine(), None, 0);
        assert_eq!(codes(&found), ["NOT_LOOKED_AT"]);
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
