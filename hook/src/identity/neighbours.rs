//! Whose limits hold for a process that is in no job: those of the smallest job on its GPUs.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use softmig_driver_sys::cuda::{CUDA_ERROR_NOT_FOUND, CUDA_SUCCESS, CUdevice, CUuuid};
use softmig_policy::node::job_conf::{JobConf, Uuid};

use super::gate;
use super::host::ThisNode;
use super::log::{self, Level};
use super::resolve;
use super::share;
use crate::driver::cuda_queries;
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

/// Whether this process sees one GPU only, which never changes once the driver is in use.
pub(crate) fn has_one_gpu() -> bool {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: a number and nothing else.
    let mut count = COUNT.load(Ordering::Relaxed);
    if count == 0 {
        count = u32::try_from(device_count()).unwrap_or(0);
        COUNT.store(count, Ordering::Relaxed);
    }
    count == 1
}

/// How many GPUs CUDA counts in this process; 0 before `cuInit`.
pub(crate) fn device_count() -> c_int {
    let mut count = 0;
    // SAFETY: there is room for the answer.
    match unsafe { cuda_queries::cuDeviceGetCount(&raw mut count) } {
        CUDA_SUCCESS => count,
        _ => 0,
    }
}

/// A GPU by its number; before CUDA 12 the driver numbers devices as it counts them, and so it does since.
pub(crate) fn uuid(device: CUdevice) -> Option<CUuuid> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: there is room for the answer.
    let mut result = unsafe { cuda_queries::cuDeviceGetUuid_v2(&raw mut uuid, device) };
    if result == CUDA_ERROR_NOT_FOUND {
        // SAFETY: see above.
        result = unsafe { cuda_queries::cuDeviceGetUuid(&raw mut uuid, device) };
    }
    (result == CUDA_SUCCESS).then_some(uuid)
}

/// A UUID as the driver's own tools write it.
pub(crate) fn written(kind: &[u8; 4], uuid: &CUuuid) -> Text<48> {
    let mut text = Text::new();
    text.push(kind);
    for (at, byte) in uuid.bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push(b"-");
        }
        for digit in [byte.cast_unsigned() >> 4, byte.cast_unsigned() & 15] {
            text.push(&[if digit < 10 {
                b'0'.wrapping_add(digit)
            } else {
                b'a'.wrapping_add(digit).wrapping_sub(10)
            }]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_the_drivers_tools_write_it() {
        let mut uuid = CUuuid { bytes: [0; 16] };
        for (byte, number) in uuid
            .bytes
            .iter_mut()
            .zip([0x0a_u8, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14])
        {
            *byte = number.cast_signed();
        }
        assert_eq!(
            written(b"GPU-", &uuid).as_bytes(),
            b"GPU-0aff0102-0304-0506-0708-090a0b0c0d0e"
        );
    }
}
