//! What programs call in the place of libcuda's functions.

use core::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

use super::table::export;
use crate::driver::cuda::{CUDA, cuda_functions};
use crate::driver::stream::{DEFAULT, Stream};
use crate::driver::table::{Family, c_name};
use crate::launch::copies;

/// What answers a call: the driver's own function, or the one that is named here.
mod handlers {
    pub(super) use crate::driver::cuda::real::*;

    pub(super) use crate::exports::init::init as cuInit;
    pub(super) use crate::exports::proc_address::{
        first as cuGetProcAddress, second as cuGetProcAddress_v2,
    };
    pub(super) use crate::launch::kernels::{
        launch as cuLaunch, launch_cooperative_kernel as cuLaunchCooperativeKernel,
        launch_cooperative_kernel_multi_device as cuLaunchCooperativeKernelMultiDevice,
        launch_cooperative_kernel_ptsz as cuLaunchCooperativeKernel_ptsz,
        launch_grid as cuLaunchGrid, launch_grid_async as cuLaunchGridAsync,
        launch_kernel as cuLaunchKernel, launch_kernel_ex as cuLaunchKernelEx,
        launch_kernel_ex_ptsz as cuLaunchKernelEx_ptsz, launch_kernel_ptsz as cuLaunchKernel_ptsz,
    };
    pub(super) use crate::launch::waits::{
        context as cuCtxSynchronize, context_v2 as cuCtxSynchronize_v2, destroy as cuStreamDestroy,
        destroy_v2 as cuStreamDestroy_v2, event as cuEventSynchronize,
        stream as cuStreamSynchronize, stream_ptsz as cuStreamSynchronize_ptsz,
    };
    pub(super) use crate::memory::alloc::{
        alloc as cuMemAlloc, alloc_pitch as cuMemAllocPitch, alloc_pitch_v2 as cuMemAllocPitch_v2,
        alloc_v2 as cuMemAlloc_v2, free_async as cuMemFreeAsync,
        free_async_ptsz as cuMemFreeAsync_ptsz, free_v1 as cuMemFree, free_v2 as cuMemFree_v2,
    };
    pub(super) use crate::memory::arrays::{
        create_3d_v1 as cuArray3DCreate, create_3d_v2 as cuArray3DCreate_v2,
        create_mipmapped as cuMipmappedArrayCreate, create_v1 as cuArrayCreate,
        create_v2 as cuArrayCreate_v2, destroy as cuArrayDestroy,
        destroy_mipmapped as cuMipmappedArrayDestroy,
    };
    pub(super) use crate::memory::contexts::{
        create_green as cuGreenCtxCreate, create_v1 as cuCtxCreate, create_v2 as cuCtxCreate_v2,
        create_v3 as cuCtxCreate_v3, create_v4 as cuCtxCreate_v4, destroy as cuCtxDestroy,
        destroy_v2 as cuCtxDestroy_v2, release as cuDevicePrimaryCtxRelease,
        release_v2 as cuDevicePrimaryCtxRelease_v2, reset as cuDevicePrimaryCtxReset,
        reset_v2 as cuDevicePrimaryCtxReset_v2, retain as cuDevicePrimaryCtxRetain,
    };
    pub(super) use crate::memory::export::{
        bind as cuMulticastBindMem, bind_at as cuMulticastBindAddr,
        bind_at_v2 as cuMulticastBindAddr_v2, bind_v2 as cuMulticastBindMem_v2,
        descriptor as cuMemGetHandleForAddressRange, export as cuMemExportToShareableHandle,
    };
    pub(super) use crate::memory::graphs::{
        destroy as cuGraphExecDestroy, instantiate as cuGraphInstantiate,
        instantiate_v2 as cuGraphInstantiate_v2,
        instantiate_with_flags as cuGraphInstantiateWithFlags,
        instantiate_with_params as cuGraphInstantiateWithParams,
        instantiate_with_params_ptsz as cuGraphInstantiateWithParams_ptsz, launch as cuGraphLaunch,
        launch_ptsz as cuGraphLaunch_ptsz, set_child as cuGraphExecChildGraphNodeSetParams,
        set_params as cuGraphExecNodeSetParams, trim as cuDeviceGraphMemTrim,
        update as cuGraphExecUpdate, update_v2 as cuGraphExecUpdate_v2, upload as cuGraphUpload,
        upload_ptsz as cuGraphUpload_ptsz,
    };
    pub(super) use crate::memory::ipc::{
        close as cuIpcCloseMemHandle, destroy as cuDestroyExternalMemory,
        import as cuImportExternalMemory, import_pointer as cuMemPoolImportPointer,
        open as cuIpcOpenMemHandle, open_v2 as cuIpcOpenMemHandle_v2,
    };
    pub(super) use crate::memory::managed::alloc as cuMemAllocManaged;
    pub(super) use crate::memory::modules::{
        get_function as cuModuleGetFunction, get_global as cuModuleGetGlobal,
        get_global_v2 as cuModuleGetGlobal_v2, kernel_get_function as cuKernelGetFunction,
        library_get_global as cuLibraryGetGlobal, library_get_managed as cuLibraryGetManaged,
        library_get_module as cuLibraryGetModule, library_load_data as cuLibraryLoadData,
        library_load_from_file as cuLibraryLoadFromFile, library_unload as cuLibraryUnload,
        load as cuModuleLoad, load_data as cuModuleLoadData, load_data_ex as cuModuleLoadDataEx,
        load_fat_binary as cuModuleLoadFatBinary, load_function as cuFuncLoad,
        unload as cuModuleUnload,
    };
    pub(super) use crate::memory::pools::{
        alloc as cuMemAllocAsync, alloc_from as cuMemAllocFromPoolAsync,
        alloc_from_ptsz as cuMemAllocFromPoolAsync_ptsz, alloc_ptsz as cuMemAllocAsync_ptsz,
        create as cuMemPoolCreate, destroy as cuMemPoolDestroy, set as cuDeviceSetMemPool,
        set_for as cuMemSetMemPool, trim as cuMemPoolTrimTo,
    };
    pub(super) use crate::memory::stacks::set_limit as cuCtxSetLimit;
    pub(super) use crate::memory::streams::{
        create as cuStreamCreate, create_green as cuGreenCtxStreamCreate,
        create_with_priority as cuStreamCreateWithPriority,
    };
    pub(super) use crate::memory::vmm::{
        create as cuMemCreate, import as cuMemImportFromShareableHandle, map as cuMemMap,
        map_array as cuMemMapArrayAsync, map_array_ptsz as cuMemMapArrayAsync_ptsz,
        release as cuMemRelease, retain as cuMemRetainAllocationHandle, unmap as cuMemUnmap,
    };
    pub(super) use crate::views::memory::{
        info as cuMemGetInfo, info_v2 as cuMemGetInfo_v2, total as cuDeviceTotalMem,
        total_v2 as cuDeviceTotalMem_v2,
    };
}

cuda_functions!(export);
