//! Queries about devices and their memory.

use std::ffi::c_char;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::Device;

use crate::Out;
use crate::Outcome;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;

exports! {
    static SYMBOLS;

    /// How many devices the program has.
    fn cuDeviceGetCount [cuDeviceGetCount 2000] (out: Out<i32>) =>
        locked(|driver| out.set(i32::try_from(driver.device_count()).unwrap_or(i32::MAX)));

    /// A device by its number.
    fn cuDeviceGet [cuDeviceGet 2000] (out: Out<CUdevice>, ordinal: i32) =>
        locked(|driver| driver.device(ordinal).and_then(|_| out.set(ordinal)));

    /// A device's name.
    fn cuDeviceGetName [cuDeviceGetName 2000] (out: Out<c_char>, size: i32, device: CUdevice) =>
        described(device, |_, device| out.set_text(&device.name(), size));

    /// The UUID of a device; a part of a divided GPU has that of its GPU.
    fn cuDeviceGetUuid [cuDeviceGetUuid 9020] (out: Out<CUuuid>, device: CUdevice) =>
        described(device, |_, device| out.set(uuid(&device.gpu.uuid)));

    /// The UUID of a device; a part of a divided GPU has its own.
    fn cuDeviceGetUuid_v2 [cuDeviceGetUuid 11040] (out: Out<CUuuid>, device: CUdevice) =>
        described(device, |_, device| out.set(uuid(device.uuid())));

    /// All memory that programs can have, to programs that count in 32 bits.
    fn cuDeviceTotalMem [cuDeviceTotalMem 2000] (out: Out<u32>, device: CUdevice) =>
        described(device, |_, device| out.set(u32::try_from(device.usable()).unwrap_or(u32::MAX)));

    /// All memory that programs can have.
    fn cuDeviceTotalMem_v2 [cuDeviceTotalMem 3020] (out: Out<usize>, device: CUdevice) =>
        described(device, |_, device| out.set(device.usable() as usize));

    /// A figure of a device.
    fn cuDeviceGetAttribute [cuDeviceGetAttribute 2000] (
        out: Out<i32>, attribute: CUdevice_attribute, device: CUdevice
    ) => described(device, |_, device| out.set(figure(&device, attribute)?));

    /// Where a device sits on the PCI bus.
    fn cuDeviceGetPCIBusId [cuDeviceGetPCIBusId 4010] (out: Out<c_char>, size: i32, device: CUdevice) =>
        described(device, |_, device| out.set_text(&device.gpu.bus, size));

    /// The compute capability.
    fn cuDeviceComputeCapability [cuDeviceComputeCapability 2000] (
        major: Out<i32>, minor: Out<i32>, device: CUdevice
    ) => described(device, |_, device| {
        major.set(device.gpu.capability.0 as i32)?;
        minor.set(device.gpu.capability.1 as i32)
    });

    /// Free and total memory of the current device, to programs that count in 32 bits.
    fn cuMemGetInfo [cuMemGetInfo 2000] (free: Out<u32>, total: Out<u32>) => locked(|driver| {
        driver.contexts.old_current()?;
        let (left, all) = memory_of_current(driver)?;
        free.set(u32::try_from(left).unwrap_or(u32::MAX))?;
        total.set(u32::try_from(all).unwrap_or(u32::MAX))
    });

    /// Free and total memory of the current device.
    fn cuMemGetInfo_v2 [cuMemGetInfo 3020] (free: Out<usize>, total: Out<usize>) => locked(|driver| {
        let (left, all) = memory_of_current(driver)?;
        free.set(left as usize)?;
        total.set(all as usize)
    });
}

fn described(
    ordinal: CUdevice,
    answer: impl FnOnce(&Driver, Device<'static>) -> Outcome,
) -> Outcome {
    locked(|driver| {
        let device = driver.device(ordinal)?;
        answer(driver, driver.described(device)?)
    })
}

fn memory_of_current(driver: &Driver) -> Outcome<(u64, u64)> {
    let (_, context) = driver.contexts.current()?;
    let all = driver.described(context.device)?.usable();
    Ok((driver.node.free(context.device), all))
}

/// The sixteen bytes behind `GPU-` or `MIG-`. A character that is not a hexadecimal digit counts as 0.
fn uuid(text: &str) -> CUuuid {
    let digits: Vec<u8> = text
        .bytes()
        .skip(4)
        .filter(|byte| *byte != b'-')
        .map(|byte| (byte as char).to_digit(16).unwrap_or(0) as u8)
        .collect();
    let mut bytes = [0; 16];
    for (to, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *to = pair.iter().fold(0, |byte: u8, digit| byte << 4 | digit) as c_char;
    }
    CUuuid { bytes }
}

/// A figure of a device. All models have an H200's where they do not differ in anything that matters; attributes that
/// are not listed are 0, as that of something the device has not.
fn figure(device: &Device<'_>, attribute: CUdevice_attribute) -> Outcome<i32> {
    let gpu = device.gpu;
    let bus = |range: std::ops::Range<usize>| {
        let digits = gpu.bus.get(range).unwrap_or_default();
        i32::from_str_radix(digits, 16).unwrap_or(0)
    };
    let modern = i32::from(gpu.capability >= (7, 0));
    Ok(match attribute {
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        | CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X
        | CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => 1024,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => 64,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => i32::MAX,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65_535,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => 49_152,
        CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY
        | CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK
        | CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => 65_536,
        CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        CU_DEVICE_ATTRIBUTE_MAX_PITCH => i32::MAX,
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE => gpu.clock as i32,
        CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT => 512,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => device.multiprocessors() as i32,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => gpu.threads_per_multiprocessor as i32,
        CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 3,
        CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
        | CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY => 1,
        CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID => bus(0..4),
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => bus(5..7),
        CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID => bus(8..10),
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => gpu.capability.0 as i32,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => gpu.capability.1 as i32,
        CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        | CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED => modern,
        CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED => 1,
        CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES => {
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR as i32
        }
        1..=200 => 0,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}
