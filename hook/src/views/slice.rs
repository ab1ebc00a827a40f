//! The slice of one GPU: its limit, and what the job holds.

use core::ffi::{c_char, c_uint};

use softmig_driver_sys::cuda::{CUdevice, CUuuid};
use softmig_driver_sys::nvml::{NVML_DEVICE_UUID_V2_BUFFER_SIZE, NVML_SUCCESS, nvmlDevice_t};
use softmig_policy::node::identity::smallest_on;
use softmig_policy::node::job_conf::Uuid;
use softmig_region::{UNIT, bytes, units_of_mib};

use crate::driver::args::Out;
use crate::driver::device::{device_count, uuid};
use crate::driver::nvml_queries;
use crate::identity::gate;
use crate::identity::host::ThisNode;
use crate::ledger::{self, device, orphans};
use crate::os::{self, Errno};

/// The slice of a GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// The job's limit.
    pub(super) limit: u64,
    /// The memory that it holds.
    pub(super) held: u64,
}

impl Slice {
    /// The slice of the GPU of the calling thread's context; `None` if that GPU has no limit.
    pub(super) fn here() -> Option<Self> {
        if !super::are_limited() {
            return None;
        }
        let gpu = ledger::here()?;
        let _errno = Errno::save();
        orphans::give_back(&gpu, true);
        let held = gpu.held();
        // Other processes may have ended.
        let held = if held > gpu.held_here().into() {
            device::held(gpu.uuid(), |_, _| {})
        } else {
            held
        };
        Some(Self {
            limit: bytes(gpu.limit()),
            held: in_bytes(held),
        })
    }

    /// The slice of a GPU that NVML names; `None` if that GPU has no limit.
    pub(super) fn for_device(device: nvmlDevice_t) -> Option<Self> {
        if !super::are_limited() {
            return None;
        }
        let gpu = NvmlGpu::behind(device)?;
        let limit = bytes(gpu.limit(device)?);
        let held = in_bytes(device::held(&gpu.bytes, |ledger, gpu| {
            orphans::give_back_of(ledger, gpu, device);
        }));
        Some(Self { limit, held })
    }

    /// The memory that is free for the job.
    pub(super) fn free(&self) -> u64 {
        self.limit.saturating_sub(self.held)
    }
}

/// The limit of a GPU by its number in CUDA's order, in bytes; `None` if it has no limit.
pub(super) fn limit_of(device: CUdevice) -> Option<u64> {
    if !super::are_limited() {
        return None;
    }
    device::limit_of(device).flatten().map(bytes)
}

fn in_bytes(units: u64) -> u64 {
    units.saturating_mul(UNIT)
}

/// A GPU, or a part of a divided one.
struct NvmlGpu {
    uuid: Uuid,
    bytes: CUuuid,
}

impl NvmlGpu {
    /// The GPU, or part of one, of a handle of NVML's.
    fn behind(device: nvmlDevice_t) -> Option<Self> {
        const LENGTH: u32 = NVML_DEVICE_UUID_V2_BUFFER_SIZE;
        let mut text: [c_char; LENGTH as usize] = [0; LENGTH as usize];
        let result = nvml_queries::nvmlDeviceGetUUID(device, Out::list(&mut text), LENGTH);
        if result != NVML_SUCCESS {
            return None;
        }
        let text = text.map(c_char::cast_unsigned);
        let text = text.split(|&byte| byte == 0).next()?;
        Self::named(core::str::from_utf8(text).ok()?)
    }

    fn named(text: &str) -> Option<Self> {
        let uuid = Uuid::parse(text)?;
        let mut digits = text.bytes().skip(PREFIX).filter_map(digit);
        let mut bytes = CUuuid { bytes: [0; 16] };
        for place in &mut bytes.bytes {
            *place = (digits.next()? << 4 | digits.next()?).cast_signed();
        }
        Some(Self { uuid, bytes })
    }

    /// The job's limit there, in units.
    fn limit(&self, device: nvmlDevice_t) -> Option<u32> {
        let known = gate::with_finding(|finding| device::limit(finding, || self.number(device)));
        known.unwrap_or_else(|| self.neighbours_limit())
    }

    /// Before `cuInit`, a process outside every job is shown the smallest slice of this GPU. Afterwards it has the
    /// smallest slice of all its GPUs.
    fn neighbours_limit(&self) -> Option<u32> {
        let (_, conf) = smallest_on(&ThisNode, &self.uuid).ok()??;
        conf.limits.map(|limits| units_of_mib(limits.memory_mib()))
    }

    /// Its number in CUDA's order, which limits that a user sets go by; `None` if CUDA does not show it to this
    /// process.
    ///
    /// For a process that makes no call to CUDA, the number is the position in `CUDA_VISIBLE_DEVICES`, whose numbers
    /// are taken in NVML's order. CUDA has the same order if all GPUs are alike, or with
    /// `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    fn number(&self, device: nvmlDevice_t) -> Option<usize> {
        let count = device_count();
        if count > 0 {
            let same = |number: &CUdevice| {
                uuid(*number).is_some_and(|uuid| uuid.bytes == self.bytes.bytes)
            };
            return usize::try_from((0..count).find(same)?).ok();
        }
        let mut index: c_uint = 0;
        let result = nvml_queries::nvmlDeviceGetIndex(device, &mut index);
        let index = (result == NVML_SUCCESS).then_some(index);
        match os::variable(c"CUDA_VISIBLE_DEVICES") {
            Some(list) => place_in(list, index, self.uuid.as_str()),
            None => usize::try_from(index?).ok(),
        }
    }
}

/// The length of `GPU-` and `MIG-`, with one of which a UUID begins.
const PREFIX: usize = 4;

fn digit(byte: u8) -> Option<u8> {
    let value = char::from(byte).to_digit(16)?;
    u8::try_from(value).ok()
}

/// The position of a GPU in `CUDA_VISIBLE_DEVICES`, which names it by its number or by the beginning of its UUID. The list
/// ends at the first entry that names no GPU.
fn place_in(list: &[u8], index: Option<u32>, uuid: &str) -> Option<usize> {
    for (place, name) in list.split(|&byte| byte == b',').enumerate() {
        let name = core::str::from_utf8(name).ok()?.trim_ascii();
        let is_this = match name.parse::<u32>() {
            Ok(number) => Some(number) == index,
            Err(_) if name.starts_with("GPU-") || name.starts_with("MIG-") => {
                uuid.starts_with(name)
            }
            Err(_) => return None,
        };
        if is_this {
            return Some(place);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::device::written;

    const UUID: &str = "GPU-0aff0102-0304-0506-0708-090a0b0c0d0e";

    #[test]
    fn a_gpu_is_the_one_that_cuda_means() {
        for text in [UUID, "MIG-0AFF0102-0304-0506-0708-090A0B0C0D0E"] {
            let gpu = NvmlGpu::named(text).unwrap();
            let written = written(b"GPU-", &gpu.bytes);
            assert_eq!(core::str::from_utf8(written.as_bytes()).unwrap(), UUID);
        }
        for text in [
            "",
            "GPU-",
            "MIG-GPU-0aff0102-0304-0506-0708-090a0b0c0d0e/1/0",
            "0aff0102",
        ] {
            assert!(NvmlGpu::named(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_gpu_has_its_place_in_the_list_of_visible_ones() {
        for (list, index, place) in [
            ("0", Some(0), Some(0)),
            ("2,0,1", Some(1), Some(2)),
            ("2, 0, 1", Some(0), Some(1)),
            ("2,1", Some(0), None),
            ("0", None, None),
            ("", Some(0), None),
            ("-1,0", Some(0), None),
            ("1,,0", Some(0), None),
            ("1,none,0", Some(0), None),
            ("GPU-0aff", Some(3), Some(0)),
            ("1,GPU-0b,GPU-0aff0102-0304", Some(3), Some(2)),
            (UUID, None, Some(0)),
            ("MIG-0aff", Some(3), None),
        ] {
            assert_eq!(place_in(list.as_bytes(), index, UUID), place, "{list}");
        }
    }

    #[test]
    fn a_job_that_holds_more_than_its_limit_has_nothing_free() {
        let free = |held| Slice { limit: 10, held }.free();
        assert_eq!((free(0), free(4), free(10), free(11)), (10, 6, 0, 0));
    }
}
