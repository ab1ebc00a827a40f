//! Notes on a node's GPUs for the administrator, in sentences: the fact, and what to do.

use super::findings::{Findings, Note};
use softmig_node::gpu::Card;
use softmig_nvml::{Gpu, MigState};

/// All of them.
pub(super) fn all(findings: &Findings, container: bool) -> Vec<Note> {
    let mut notes = Vec::new();
    if container {
        notes.push(Note {
            what: "This looks like a container, which may have been given some of the node's GPUs only.".into(),
            remedy: "Run it on the node itself.".into(),
        });
    }
    for gpu in &findings.devices.gpus {
        notes.extend(failed(gpu));
        notes.extend(empty(gpu));
        notes.extend(pending(gpu));
    }
    notes.extend(findings.unseen.iter().map(unseen));
    notes
}

fn failed(gpu: &Gpu) -> Option<Note> {
    let (index, error) = (gpu.index, gpu.error.as_ref()?);
    Some(match gpu.standing {
        MigState::Unreadable => Note {
            what: format!("GPU {index}: {error}; it is not counted as usable."),
            remedy: "Drain the node and reset the GPU or reboot; 'dmesg | grep -i xid' may say what happened.".into(),
        },
        _ => Note {
            what: format!("GPU {index}: {error}."),
            remedy: "The rest is as NVML told it; see what nvidia-smi says.".into(),
        },
    })
}

fn empty(gpu: &Gpu) -> Option<Note> {
    let index = gpu.index;
    (gpu.standing == MigState::Empty).then(|| Note {
        what: format!(
            "GPU {index}: MIG is on and there are no instances, so no job can use it. It is not a whole GPU, even where Slurm \
             counts it as one."
        ),
        remedy: format!(
            "Make instances: 'nvidia-smi mig -i {index} -cgi PROFILE,... -C', or turn MIG off: 'nvidia-smi -i {index} -mig 0'. \
             'nvidia-smi mig -i {index} -lgip' lists the profiles."
        ),
    })
}

fn pending(gpu: &Gpu) -> Option<Note> {
    let mig = gpu.mig?;
    let word = |on: bool| if on { "on" } else { "off" };
    mig.is_switched().then(|| Note {
        what: format!(
            "GPU {}: MIG is {}, and {} after the next reset of the GPU.",
            gpu.index,
            word(mig.current),
            word(mig.pending)
        ),
        remedy: "Probe again then.".into(),
    })
}

fn unseen(card: &Card) -> Note {
    let uuid = card.uuid.map(|uuid| format!(", {}", uuid.as_str()));
    Note {
        what: format!(
            "/dev/nvidia{} ({}{}) is in the driver's list and NVML did not show it: it is lost, excluded, or fenced off from \
             this process.",
            card.minor,
            card.model,
            uuid.unwrap_or_default()
        ),
        remedy: "See /proc/driver/nvidia/gpus, and 'dmesg | grep -i nvrm'.".into(),
    }
}
