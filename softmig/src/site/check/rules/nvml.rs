//! The GPUs of this node as NVML lists them, compared with Slurm and the policy.

use crate::output::say::counted;
use crate::settings::gres::NodeGres;
use crate::site::check::facts::{Cluster, Machine};
use crate::site::check::finding::{Code, Finding};
use softmig_nvml::{Devices, Gpu, Memory, MigState, Setting};
use softmig_policy::Policy;
use softmig_policy::config::gpu_types::GpuType;
use softmig_policy::slurm::hostlist::expand;
use std::collections::BTreeMap;

/// The GPUs that Slurm and the policy say this node has.
struct Said {
    /// How many of each type.
    counts: BTreeMap<String, u64>,
    /// The type of each `/dev/nvidiaN` for which it is known.
    by_minor: BTreeMap<u32, String>,
}

impl Said {
    fn new(policy: &Policy, name: &str, cluster: Option<&Cluster>, now: i64) -> Option<Self> {
        let entry = policy
            .nodes()
            .iter()
            .find(|nodes| expand(nodes.names()).iter().any(|own| own == name));
        let wanted = entry.map(|nodes| NodeGres::for_policy(policy, nodes, now));
        let node = cluster.and_then(|cluster| cluster.node(name));
        let counts = match (node, &wanted) {
            (Some(node), _) => node.counts("gpu"),
            (None, Some(wanted)) => wanted.counts(),
            (None, None) => return None,
        };
        let counts = counts
            .into_iter()
            .map(|(kind, count)| (kind.to_string(), count))
            .collect();
        let mut by_minor = BTreeMap::new();
        for gres in wanted.iter().flat_map(|wanted| &wanted.types) {
            by_minor.extend(gres.minors.iter().map(|minor| (*minor, gres.kind.clone())));
        }
        // A type in Slurm's gres.conf overrides the policy's.
        let lines = cluster.and_then(|cluster| cluster.gres_conf.as_ref().ok());
        for line in lines.into_iter().flatten() {
            if let Some(kind) = &line.kind
                && line.name == "gpu"
                && line.is_for(name)
            {
                by_minor.extend(line.minors().map(|minor| (minor, kind.clone())));
            }
        }
        Some(Self { counts, by_minor })
    }

    /// The type of a GPU. If all GPUs have one type, it is that.
    fn kind(&self, gpu: &Gpu) -> Option<&str> {
        let by_minor = gpu.minor.and_then(|minor| self.by_minor.get(&minor));
        let only = || match self.counts.len() {
            1 => self.counts.keys().next(),
            _ => None,
        };
        by_minor.or_else(only).map(String::as_str)
    }
}

pub(crate) fn check(
    policy: &Policy,
    machine: &Machine,
    cluster: Option<&Cluster>,
    devices: &Devices,
    now: i64,
    found: &mut Vec<Finding>,
) {
    let said = Said::new(policy, &machine.name, cluster, now);
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
        for &setting in &gpu.settings {
            let code = match setting {
                Setting::Exclusive | Setting::Prohibited => Code::ComputeMode,
                Setting::MigPending | Setting::EccPending | Setting::PagesPending => {
                    Code::GpuPending
                }
                Setting::NotPersistent => Code::GpuPersistence,
            };
            let remedy = setting.remedy(gpu.index);
            found.push(Finding::new(code, &place, setting.to_string(), remedy));
        }
        let kind = said.as_ref().and_then(|said| said.kind(gpu));
        match (gpu.standing, kind) {
            (MigState::Empty, _) => found.push(Finding::new(
                Code::MigEmpty,
                place,
                "MIG is on and has no instances, so no job can use this GPU",
                "make instances ('nvidia-smi mig -cgi ... -C'), or turn MIG off ('nvidia-smi -mig 0')",
            )),
            (MigState::Divided, Some(kind)) if policy.gpu(kind).is_some_and(|gpu| !gpu.is_mig()) => {
                found.push(Finding::new(
                    Code::MigDivided,
                    place,
                    format!("MIG divides it, and Slurm counts it as a whole {kind}"),
                    "give each instance a type of its own with mig = true ('softmig probe' prints them), or turn MIG off",
                ));
            }
            (MigState::Whole, Some(kind)) => found.extend(memory(&place, shared(policy, kind), gpu.memory)),
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

/// The policy's entry of a type. For a reserved GPU it is the entry of its usual type.
fn shared<'a>(policy: &'a Policy, kind: &str) -> Option<&'a GpuType> {
    policy.gpu(kind).or_else(|| {
        let mut kept = policy.reservables().iter();
        policy.gpu(kept.find(|own| own.kind() == kind)?.base_type())
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
                "policy.toml divides {policy} MiB of each {}, and NVML has {} (total {}, reserved {}): slices promise memory \
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

/// Checks that there are as many GPUs and MIG instances as Slurm counts.
fn counts(policy: &Policy, machine: &Machine, said: &Said, devices: &Devices) -> Vec<Finding> {
    let is_mig = |kind: &str| policy.gpu(kind).is_some_and(GpuType::is_mig);
    let configured = |mig: bool| {
        let counts = said.counts.iter().filter(|(kind, _)| is_mig(kind) == mig);
        counts.map(|(_, count)| count).sum::<u64>()
    };
    let whole = devices
        .gpus
        .iter()
        .filter(|gpu| gpu.standing == MigState::Whole);
    let pairs = [
        ("whole GPU", configured(false), whole.count() as u64),
        ("MIG instance", configured(true), devices.instances() as u64),
    ];
    let wrong = pairs
        .into_iter()
        .filter(|(_, said, there)| said != there)
        .map(|(what, said, there)| {
            Finding::new(
                Code::NvmlGpus,
                &machine.name,
                format!(
                    "{} by its configuration, and NVML has {there}",
                    counted(said, what)
                ),
                "correct Gres=, gres.conf and [[nodes]]; 'softmig probe' shows what there is",
            )
        });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::facts::GresLine;
    use crate::site::check::rules::example::{
        cluster, codes, l40s, machine, memory_of, node, policy, policy_with,
    };
    use softmig_nvml::Instance;

    fn found(policy: &Policy, machine: &Machine, cluster: Option<&Cluster>) -> Vec<Finding> {
        let mut found = Vec::new();
        if let Ok(devices) = &machine.nvml {
            check(policy, machine, cluster, devices, 0, &mut found);
        }
        found
    }

    fn with_gpus(change: impl Fn(&mut Vec<Gpu>)) -> Vec<&'static str> {
        let mut machine = machine();
        if let Ok(devices) = &mut machine.nvml {
            change(&mut devices.gpus);
        }
        codes(&found(&policy(), &machine, Some(&cluster())))
    }

    #[test]
    fn gpus_as_they_should_be_are_clean() {
        assert!(with_gpus(|_| {}).is_empty());
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
            standing: MigState::Divided,
            instances: (0..2).map(instance).collect(),
            ..l40s(minor)
        }
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
    fn a_gpu_in_mig_mode_without_instances_does_not_count() {
        let empty = with_gpus(|gpus| gpus[3].standing = MigState::Empty);
        assert_eq!(empty, ["MIG_EMPTY", "NVML_GPUS"]);
    }

    #[test]
    fn a_divided_gpu_does_not_count_as_a_whole_one() {
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
        assert!(found(&mig(9856), &machine, Some(&cluster)).is_empty());
        let more = codes(&found(&mig(9857), &machine, Some(&cluster)));
        assert_eq!(more, ["NVML_MEMORY"; 4]);
        cluster.nodes[0] = node("gpu1", "gpu:h100_1g.10gb:7");
        assert_eq!(
            codes(&found(&mig(9856), &machine, Some(&cluster))),
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
        let found = found(&policy(), &machine(), Some(&cluster));
        assert_eq!(codes(&found), ["NVML_MEMORY"]);
        assert_eq!(found[0].place, "/dev/nvidia3");
    }

    #[test]
    fn a_gpu_that_is_kept_for_a_user_is_measured_as_well() {
        let kept = policy_with(
            "[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nreason = \"x\"\nend = 1970-01-01T00:02:00Z\n\
             [[nodes]]\nnames = \"gpu1\"\ngpus = [\"l40s:3\", \"l40s_r:1\"]\n",
        );
        let mut machine = machine();
        assert!(found(&kept, &machine, None).is_empty());
        if let Ok(devices) = &mut machine.nvml {
            devices.gpus[3].memory = memory_of(40000, 604);
        }
        assert_eq!(codes(&found(&kept, &machine, None)), ["NVML_MEMORY"]);
    }

    #[test]
    fn without_slurm_and_inventory_the_types_are_unknown() {
        let found = found(&policy(), &machine(), None);
        assert_eq!(codes(&found), ["NOT_LOOKED_AT"]);
    }
}
