//! Whose limits hold for a process that is in no job: those of the smallest job on its GPUs.

use core::sync::atomic::{AtomicU32, Ordering};

use softmig_policy::node::job_conf::{JobConf, Uuid};

use super::host::ThisNode;
use super::log::{self, Level};
use super::{gate, resolve, share};
use crate::driver::device::{device_count, uuid, written};
use crate::os::Errno;
use crate::os::fixed_str::Text;

/// The job whose limits hold for a process that is in none.
static NEIGHBOUR: AtomicU32 = AtomicU32::new(UNKNOWN);
/// Not looked for yet.
const UNKNOWN: u32 = 0;
/// There is none on this process's GPUs. No job has this number: Slurm's end before it.
const NONE: u32 = u32::MAX;

/// What that job may hold of each GPU.
static MEMORY_MIB: AtomicU32 = AtomicU32::new(0);
/// Its share of each GPU's time, 0 for all of it.
static SHARE: AtomicU32 = AtomicU32::new(0);

/// Looks who else is on this process's GPUs, if its limits depend on that and it has not looked yet.
pub(crate) fn look_once() {
    if gate::is_neighbour() && NEIGHBOUR.load(Ordering::Relaxed) == UNKNOWN {
        let _errno = Errno::save();
        look_around();
    }
}

/// Whether a process that is in no job shares a GPU with one that has limits. Before `cuInit` it may.
pub(crate) fn may_have_neighbour() -> bool {
    // Relaxed: a number and nothing else.
    NEIGHBOUR.load(Ordering::Relaxed) != NONE
}

/// The job whose limits hold for such a process, if there is one.
pub(crate) fn neighbour() -> Option<u32> {
    // Relaxed: see above.
    let job = NEIGHBOUR.load(Ordering::Relaxed);
    (job != UNKNOWN && job != NONE).then_some(job)
}

/// What such a process may hold of each GPU in all; the inner `None` without limit, the outer before `cuInit`.
pub(crate) fn neighbours_memory_mib() -> Option<Option<u32>> {
    // Acquire: the figure was stored before.
    match NEIGHBOUR.load(Ordering::Acquire) {
        UNKNOWN => None,
        NONE => Some(None),
        _ => Some(Some(MEMORY_MIB.load(Ordering::Relaxed))),
    }
}

/// What share of each GPU's time such a process may have; the inner `None` for all of it, the outer before `cuInit`.
pub(crate) fn neighbours_share() -> Option<Option<u32>> {
    // Acquire: see above.
    match NEIGHBOUR.load(Ordering::Acquire) {
        UNKNOWN => None,
        NONE => Some(None),
        _ => Some(Some(SHARE.load(Ordering::Relaxed)).filter(|share| *share > 0)),
    }
}

fn look_around() {
    let mut smallest: Option<(u32, JobConf)> = None;
    for uuid in (0..device_count()).filter_map(uuid) {
        let text = written(b"GPU-", &uuid);
        let text = core::str::from_utf8(text.as_bytes());
        let Some(gpu) = text.ok().and_then(Uuid::parse) else {
            return;
        };
        // A GPU whose jobs cannot be read keeps the answer open, which limits.
        let Ok(found) = resolve::smallest_on(&ThisNode, &gpu) else {
            return;
        };
        let Some((id, conf)) = found else { continue };
        if smallest.is_none_or(|(_, other)| resolve::is_smaller(&conf, &other)) {
            smallest = Some((id, conf));
        }
    }
    let limits = smallest.and_then(|(_, conf)| conf.limits);
    let share = limits.as_ref().and_then(share::of_limits).unwrap_or(0);
    let memory = limits.map_or(u32::MAX, |limits| limits.memory_mib());
    MEMORY_MIB.store(memory, Ordering::Relaxed);
    SHARE.store(share, Ordering::Relaxed);
    // Release: who sees the number sees the figures; who finds it unknown asks again.
    NEIGHBOUR.store(smallest.map_or(NONE, |(id, _)| id), Ordering::Release);
    gate::with_finding(|finding| {
        let mut sentence = Text::<64>::new();
        match smallest {
            None => sentence.push(b"no job with limits on its GPUs"),
            Some((id, _)) => {
                sentence.push(b"limited as job ");
                sentence.push_number(id.into(), 1);
                sentence.push(b", the smallest on its GPUs");
            }
        }
        log::say(finding, Level::Info, &[sentence.as_bytes()]);
    });
}
