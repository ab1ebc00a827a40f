//! A node's GPUs for people to read, and the entries for them to paste.

use super::findings::Findings;
use crate::output::say::counted;
use softmig_nvml::{Gpu, Memory, MigState};
use std::fmt::Write;

/// All of it. Writing into a text cannot fail, so what `write!` says of that is dropped.
pub(super) fn page(findings: &Findings) -> String {
    let mut text = report(findings);
    if !findings.catalogue.entries.is_empty() {
        add_entries(&mut text, findings);
    }
    text
}

/// The entries, below a report that is made of comments: a policy.toml.
pub(super) fn toml(findings: &Findings) -> String {
    let report = report(findings);
    let lines = report.lines().map(|line| match line {
        "" => "#\n".to_owned(),
        line => format!("# {line}\n"),
    });
    let mut text: String = lines.collect();
    if !findings.catalogue.entries.is_empty() {
        add_entries(&mut text, findings);
    }
    text
}

fn report(findings: &Findings) -> String {
    let devices = &findings.devices;
    let driver = devices.driver.as_deref().unwrap_or("unknown");
    let mut text = format!("{}: NVIDIA driver {driver}\n\n", findings.host);
    for gpu in &devices.gpus {
        add_gpu(&mut text, gpu);
    }
    let _ = writeln!(
        text,
        "{}, {}, {}",
        counted(devices.gpus.len(), "physical GPU"),
        counted(devices.instances(), "MIG instance"),
        counted(devices.usable(), "usable device"),
    );
    for note in &findings.notes {
        let _ = write!(text, "\n{}\n  {}\n", note.what, note.remedy);
    }
    text
}

fn add_gpu(text: &mut String, gpu: &Gpu) {
    let name = gpu.name.as_deref().unwrap_or("not readable");
    let _ = writeln!(text, "GPU {}: {name}", gpu.index);
    if let Some(uuid) = &gpu.uuid {
        let _ = writeln!(text, "  UUID    {uuid}");
    }
    if let Some(minor) = gpu.minor {
        let _ = writeln!(text, "  device  /dev/nvidia{minor}");
    }
    if let Some(memory) = &gpu.memory {
        let memory = match gpu.standing {
            MigState::Whole | MigState::Unreadable => in_words(memory),
            // No job can have it as a whole.
            MigState::Divided | MigState::Empty => total(memory),
        };
        let _ = writeln!(text, "  memory  {memory}");
    }
    if gpu.standing != MigState::Unreadable {
        let _ = writeln!(text, "  MIG     {}", mig(gpu));
    }
    let longest = gpu.instances.iter().map(|part| part.profile.len()).max();
    for part in &gpu.instances {
        let memory = match &part.memory {
            Some(memory) => in_words(memory),
            None => "memory not told".to_owned(),
        };
        let width = longest.unwrap_or_default();
        let _ = writeln!(text, "    {:width$}  {memory}  {}", part.profile, part.uuid);
    }
    if let Some(error) = &gpu.error {
        let _ = writeln!(text, "  error   {error}");
    }
    text.push('\n');
}

fn mig(gpu: &Gpu) -> String {
    match (gpu.standing, gpu.mig) {
        (MigState::Divided, _) => format!("on, {}", counted(gpu.instances.len(), "instance")),
        (MigState::Empty, _) => "on, and no instances: UNUSABLE".to_owned(),
        (_, Some(_)) => "off".to_owned(),
        (_, None) => "not possible".to_owned(),
    }
}

fn in_words(memory: &Memory) -> String {
    format!("{}: {} MiB usable", total(memory), memory.usable_mib())
}

fn total(memory: &Memory) -> String {
    format!(
        "{} MiB, {} of it reserved",
        memory.total_mib(),
        memory.reserved_mib()
    )
}

fn add_entries(text: &mut String, findings: &Findings) {
    *text += "\n# For policy.toml. A type must be called as in gres.conf, letter for letter: change it here where yours differs.\n";
    for entry in &findings.catalogue.entries {
        text.push('\n');
        *text += &entry.toml();
    }
    text.push('\n');
    let mut node = findings.catalogue.node_toml(&findings.host);
    if let Some(words) = &findings.slurm {
        let _ = writeln!(
            node,
            "slurm = \"{words}\"    # as 'slurmd -C' says; add what else your NodeName line has"
        );
    }
    if findings.is_complete() {
        *text += &node;
    } else {
        *text += "# Not complete, see above:\n";
        for line in node.lines() {
            let _ = writeln!(text, "# {line}");
        }
    }
}

/// GPUs for tests.
#[cfg(test)]
pub(super) mod samples {
    use softmig_nvml::{Gpu, Instance, Memory, Mig, MigState};

    const MIB: u64 = 1 << 20;

    /// One of which nothing is known.
    pub(crate) fn gpu(index: u32) -> Gpu {
        Gpu {
            index,
            error: Some("device fell off the bus".into()),
            ..Gpu::default()
        }
    }

    /// One that cannot be divided, with the figures of an L40S.
    pub(crate) fn whole(index: u32, name: &str) -> Gpu {
        Gpu {
            index,
            minor: Some(index),
            uuid: Some(format!("GPU-{index}")),
            name: Some(name.into()),
            memory: Some(memory(46_068, 604)),
            standing: MigState::Whole,
            ..Gpu::default()
        }
    }

    /// One with instances of these profiles.
    pub(crate) fn divided(index: u32, name: &str, profiles: &[&str]) -> Gpu {
        let instance = |(index, profile): (u32, &&str)| Instance {
            index,
            uuid: format!("MIG-{index}"),
            profile: (*profile).into(),
            memory: Some(memory(9856, 0)),
            shares_memory: false,
        };
        Gpu {
            mig: Some(Mig {
                current: true,
                pending: true,
            }),
            instances: (0..).zip(profiles).map(instance).collect(),
            standing: match profiles {
                [] => MigState::Empty,
                _ => MigState::Divided,
            },
            ..whole(index, name)
        }
    }

    fn memory(total_mib: u64, reserved_mib: u64) -> Memory {
        Memory {
            total: total_mib * MIB,
            reserved: reserved_mib * MIB,
            used: 0,
            free: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{divided, gpu, whole};
    use super::*;
    use softmig_node::gpu::Card;
    use softmig_nvml::{Devices, Mig};

    fn said(gpus: Vec<Gpu>, cards: &[Card], container: bool) -> String {
        let devices = Devices {
            driver: Some("580.159.04".into()),
            gpus,
        };
        let mut findings = Findings::new("gpu1".into(), devices, cards);
        findings.notes = crate::site::probe::notes::all(&findings, container);
        page(&findings)
    }

    #[test]
    fn everything_has_its_place() {
        let gpus = vec![
            whole(0, "NVIDIA L40S"),
            divided(1, "NVIDIA A100-SXM4-40GB", &["3g.20gb", "1g.5gb"]),
            divided(2, "NVIDIA A100-SXM4-40GB", &[]),
        ];
        insta::assert_snapshot!(said(gpus, &[], false));
    }

    #[test]
    fn as_toml_it_is_a_policy() {
        let gpus = vec![
            whole(0, "NVIDIA L40S"),
            divided(1, "NVIDIA A100-SXM4-40GB", &["3g.20gb"]),
            divided(2, "NVIDIA A100-SXM4-40GB", &[]),
        ];
        let devices = Devices {
            driver: Some("580.159.04".into()),
            gpus,
        };
        let mut findings = Findings::new("gpu1".into(), devices, &[]);
        findings.notes = crate::site::probe::notes::all(&findings, false);
        findings.slurm = Some("CPUs=64 RealMemory=515000".into());
        assert!(softmig_policy::Policy::parse_whole(&page(&findings)).is_err());
        let text = toml(&findings);
        let policy = softmig_policy::Policy::parse_whole(&text).unwrap();
        assert!(policy.gpu("l40s").is_some(), "{text}");
        assert!(text.contains("# GPU 0: NVIDIA L40S\n"), "{text}");
        assert_eq!(policy.nodes()[0].slurm(), "CPUs=64 RealMemory=515000");
    }

    #[test]
    fn a_node_without_gpus_has_no_entries() {
        assert_eq!(
            said(Vec::new(), &[], false),
            "gpu1: NVIDIA driver 580.159.04\n\n0 physical GPUs, 0 MIG instances, 0 usable devices\n"
        );
    }

    #[test]
    fn what_is_not_all_of_the_node_is_no_inventory() {
        let card = |minor| Card {
            minor,
            uuid: None,
            model: "NVIDIA L40S".into(),
            firmware: String::new(),
        };
        let one = || vec![whole(0, "NVIDIA L40S")];
        assert!(said(one(), &[card(0)], false).contains("\n[[nodes]]\n"));
        let fenced = said(one(), &[card(1), card(0)], false);
        assert!(
            fenced.contains("/dev/nvidia1 (NVIDIA L40S) is in the driver's list"),
            "{fenced}"
        );
        assert!(fenced.contains("\n# [[nodes]]\n"), "{fenced}");
        let lost = said(vec![whole(0, "NVIDIA L40S"), gpu(1)], &[], false);
        assert!(
            lost.contains("2 physical GPUs, 0 MIG instances, 1 usable device\n"),
            "{lost}"
        );
        assert!(
            lost.contains("GPU 1: device fell off the bus; it is not counted"),
            "{lost}"
        );
        assert!(lost.contains("\n# [[nodes]]\n"), "{lost}");
    }

    #[test]
    fn what_will_be_otherwise_and_where_this_runs_is_said() {
        let mut gpu = whole(0, "NVIDIA H200");
        gpu.mig = Some(Mig {
            current: false,
            pending: true,
        });
        let text = said(vec![gpu], &[], true);
        assert!(
            text.contains("GPU 0: MIG is off, and on after the next reset"),
            "{text}"
        );
        assert!(text.contains("This looks like a container"), "{text}");
        assert!(
            text.contains("1 physical GPU, 0 MIG instances, 1 usable device\n"),
            "{text}"
        );
    }
}
