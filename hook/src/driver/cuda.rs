//! The functions of libcuda that the hook exports, by family.

use core::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
use core::sync::atomic::AtomicBool;

use super::library::Library;
use super::table::{c_name, declare};

/// Gives the list to a macro: [`declare`] makes the driver's own functions of it, and [`crate::exports`] what programs
/// call. What follows `as` is read there alone.
macro_rules! cuda_functions {
    ($then:path) => { $then! { CUDA, cuda;
    Lookup {
        fn cuGetProcAddress(
            symbol: *const c_char,
            pfn: *mut *mut c_void,
            cuda_version: c_int,
            flags: cuuint64_t,
        ) -> CUresult;
        fn cuGetProcAddress_v2(
            symbol: *const c_char,
            pfn: *mut *mut c_void,
            cuda_version: c_int,
            flags: cuuint64_t,
            symbol_status: *mut CUdriverProcAddressQueryResult,
        ) -> CUresult;
    }
    Entry {
        fn cuInit(flags: c_uint) -> CUresult;
    }
    Context {
        fn cuCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice) -> CUresult;
        fn cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) -> CUresult;
        fn cuCtxCreate_v3(
            context: *mut CUcontext,
            params_array: *mut CUexecAffinityParam,
            num_params: c_int,
            flags: c_uint,
            device: CUdevice,
        ) -> CUresult;
        fn cuCtxCreate_v4(
            context: *mut CUcontext,
            ctx_create_params: *mut CUctxCreateParams,
            flags: c_uint,
            device: CUdevice,
        ) -> CUresult;
        fn cuCtxDestroy(context: CUcontext) -> CUresult;
        fn cuCtxDestroy_v2(context: CUcontext) -> CUresult;
        fn cuCtxAttach(context: *mut CUcontext, flags: c_uint) -> CUresult;
        fn cuCtxDetach(context: CUcontext) -> CUresult;
        fn cuCtxSetLimit(limit: CUlimit, value: usize) -> CUresult;
        fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult;
        fn cuCtxGetDevice_v2(device: *mut CUdevice, context: CUcontext) -> CUresult;
        fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult;
        fn cuDevicePrimaryCtxRelease(device: CUdevice) -> CUresult;
        fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult;
        fn cuDevicePrimaryCtxReset(device: CUdevice) -> CUresult;
        fn cuDevicePrimaryCtxReset_v2(device: CUdevice) -> CUresult;
        fn cuGreenCtxCreate(
            ctx: *mut CUgreenCtx,
            desc: CUdevResourceDesc,
            device: CUdevice,
            flags: c_uint,
        ) -> CUresult;
        fn cuGreenCtxDestroy(ctx: CUgreenCtx) -> CUresult;
        fn cuGreenCtxStreamCreate(
            stream: *mut CUstream,
            context: CUgreenCtx,
            flags: c_uint,
            priority: c_int,
        ) -> CUresult;
        fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult;
        fn cuStreamCreateWithPriority(
            stream: *mut CUstream,
            flags: c_uint,
            priority: c_int,
        ) -> CUresult;
        fn cuCtxFromGreenCtx(context: *mut CUcontext, ctx: CUgreenCtx) -> CUresult;
    }
    Memory {
        fn cuMemAlloc(pointer: *mut CUdeviceptr_v1, bytes: c_uint) -> CUresult;
        fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize) -> CUresult;
        fn cuMemAllocPitch(
            pointer: *mut CUdeviceptr_v1,
            pitch: *mut c_uint,
            width_in_bytes: c_uint,
            height: c_uint,
            element_size_bytes: c_uint,
        ) -> CUresult;
        fn cuMemAllocPitch_v2(
            pointer: *mut CUdeviceptr,
            pitch: *mut usize,
            width_in_bytes: usize,
            height: usize,
            element_size_bytes: c_uint,
        ) -> CUresult;
        fn cuMemAllocManaged(pointer: *mut CUdeviceptr, bytes: usize, flags: c_uint) -> CUresult;
        fn cuMemFree(pointer: CUdeviceptr_v1) -> CUresult;
        fn cuMemFree_v2(pointer: CUdeviceptr) -> CUresult;
        fn cuMemAllocAsync(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
        fn cuMemAllocAsync_ptsz(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
        fn cuMemAllocFromPoolAsync(
            pointer: *mut CUdeviceptr,
            bytes: usize,
            pool: CUmemoryPool,
            stream: CUstream,
        ) -> CUresult;
        fn cuMemAllocFromPoolAsync_ptsz(
            pointer: *mut CUdeviceptr,
            bytes: usize,
            pool: CUmemoryPool,
            stream: CUstream,
        ) -> CUresult;
        fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream) -> CUresult;
        fn cuMemFreeAsync_ptsz(pointer: CUdeviceptr, stream: CUstream) -> CUresult;
        fn cuMemPoolCreate(pool: *mut CUmemoryPool, pool_props: *const CUmemPoolProps) -> CUresult;
        fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult;
        fn cuMemPoolTrimTo(pool: CUmemoryPool, min_bytes_to_keep: usize) -> CUresult;
        fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) -> CUresult;
        fn cuMemGetDefaultMemPool(
            pool: *mut CUmemoryPool,
            location: *mut CUmemLocation,
            kind: CUmemAllocationType,
        ) -> CUresult;
        fn cuMemGetMemPool(
            pool: *mut CUmemoryPool,
            location: *mut CUmemLocation,
            kind: CUmemAllocationType,
        ) -> CUresult;
        fn cuMemSetMemPool(location: *mut CUmemLocation, kind: CUmemAllocationType, pool: CUmemoryPool) -> CUresult;
        fn cuMemPoolExportToShareableHandle(
            handle_out: *mut c_void,
            pool: CUmemoryPool,
            handle_type: CUmemAllocationHandleType,
            flags: c_ulonglong,
        ) -> CUresult;
        fn cuMemPoolImportFromShareableHandle(
            pool_out: *mut CUmemoryPool,
            handle: *mut c_void,
            handle_type: CUmemAllocationHandleType,
            flags: c_ulonglong,
        ) -> CUresult;
        fn cuMemPoolImportPointer(
            ptr_out: *mut CUdeviceptr,
            pool: CUmemoryPool,
            share_data: *mut CUmemPoolPtrExportData,
        ) -> CUresult;
        fn cuMemCreate(
            handle: *mut CUmemGenericAllocationHandle,
            size: usize,
            prop: *const CUmemAllocationProp,
            flags: c_ulonglong,
        ) -> CUresult;
        fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult;
        fn cuMemMap(
            ptr: CUdeviceptr,
            size: usize,
            offset: usize,
            handle: CUmemGenericAllocationHandle,
            flags: c_ulonglong,
        ) -> CUresult;
        fn cuMemUnmap(ptr: CUdeviceptr, size: usize) -> CUresult;
        fn cuMemMapArrayAsync(map_info_list: *mut CUarrayMapInfo, count: c_uint, stream: CUstream) -> CUresult;
        fn cuMemMapArrayAsync_ptsz(map_info_list: *mut CUarrayMapInfo, count: c_uint, stream: CUstream) -> CUresult;
        fn cuMemExportToShareableHandle(
            shareable_handle: *mut c_void,
            handle: CUmemGenericAllocationHandle,
            handle_type: CUmemAllocationHandleType,
            flags: c_ulonglong,
        ) -> CUresult;
        fn cuMemImportFromShareableHandle(
            handle: *mut CUmemGenericAllocationHandle,
            os_handle: *mut c_void,
            sh_handle_type: CUmemAllocationHandleType,
        ) -> CUresult;
        fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void) -> CUresult;
        fn cuMemGetHandleForAddressRange(
            handle: *mut c_void,
            pointer: CUdeviceptr,
            size: usize,
            handle_type: CUmemRangeHandleType,
            flags: c_ulonglong,
        ) -> CUresult;
        fn cuMulticastCreate(
            mc_handle: *mut CUmemGenericAllocationHandle,
            prop: *const CUmulticastObjectProp,
        ) -> CUresult;
        fn cuMulticastBindMem(
            mc_handle: CUmemGenericAllocationHandle,
            mc_offset: usize,
            mem_handle: CUmemGenericAllocationHandle,
            mem_offset: usize,
            size: usize,
            flags: c_ulonglong,
        ) -> CUresult;
        fn cuMulticastBindMem_v2(
            mc_handle: CUmemGenericAllocationHandle,
            device: CUdevice,
            mc_offset: usize,
            mem_handle: CUmemGenericAllocationHandle,
            mem_offset: usize,
            size: usize,
            flags: c_ulonglong,
        ) -> CUresult;
        fn cuMulticastBindAddr(
            mc_handle: CUmemGenericAllocationHandle,
            mc_offset: usize,
            pointer: CUdeviceptr,
            size: usize,
            flags: c_ulonglong,
        ) -> CUresult;
        fn cuMulticastBindAddr_v2(
            mc_handle: CUmemGenericAllocationHandle,
            device: CUdevice,
            mc_offset: usize,
            pointer: CUdeviceptr,
            size: usize,
            flags: c_ulonglong,
        ) -> CUresult;
        fn cuMulticastUnbind(
            mc_handle: CUmemGenericAllocationHandle,
            device: CUdevice,
            mc_offset: usize,
            size: usize,
        ) -> CUresult;
        fn cuMemPrefetchAsync(pointer: CUdeviceptr, count: usize, dst_device: CUdevice, stream: CUstream) -> CUresult;
        fn cuMemPrefetchAsync_ptsz(
            pointer: CUdeviceptr,
            count: usize,
            dst_device: CUdevice,
            stream: CUstream,
        ) -> CUresult;
        fn cuMemPrefetchAsync_v2(
            pointer: CUdeviceptr,
            count: usize,
            location: CUmemLocation,
            flags: c_uint,
            stream: CUstream,
        ) -> CUresult;
        fn cuMemPrefetchAsync_v2_ptsz(
            pointer: CUdeviceptr,
            count: usize,
            location: CUmemLocation,
            flags: c_uint,
            stream: CUstream,
        ) -> CUresult;
        fn cuMemPrefetchBatchAsync(
            pointers: *mut CUdeviceptr,
            sizes: *mut usize,
            count: usize,
            prefetch_locs: *mut CUmemLocation,
            prefetch_loc_idxs: *mut usize,
            num_prefetch_locs: usize,
            flags: c_ulonglong,
            stream: CUstream,
        ) -> CUresult;
        fn cuMemPrefetchBatchAsync_ptsz(
            pointers: *mut CUdeviceptr,
            sizes: *mut usize,
            count: usize,
            prefetch_locs: *mut CUmemLocation,
            prefetch_loc_idxs: *mut usize,
            num_prefetch_locs: usize,
            flags: c_ulonglong,
            stream: CUstream,
        ) -> CUresult;
        fn cuMemDiscardAndPrefetchBatchAsync(
            pointers: *mut CUdeviceptr,
            sizes: *mut usize,
            count: usize,
            prefetch_locs: *mut CUmemLocation,
            prefetch_loc_idxs: *mut usize,
            num_prefetch_locs: usize,
            flags: c_ulonglong,
            stream: CUstream,
        ) -> CUresult;
        fn cuMemDiscardAndPrefetchBatchAsync_ptsz(
            pointers: *mut CUdeviceptr,
            sizes: *mut usize,
            count: usize,
            prefetch_locs: *mut CUmemLocation,
            prefetch_loc_idxs: *mut usize,
            num_prefetch_locs: usize,
            flags: c_ulonglong,
            stream: CUstream,
        ) -> CUresult;
        fn cuArrayCreate(handle: *mut CUarray, allocate_array: *const CUDA_ARRAY_DESCRIPTOR_v1) -> CUresult;
        fn cuArrayCreate_v2(handle: *mut CUarray, allocate_array: *const CUDA_ARRAY_DESCRIPTOR) -> CUresult;
        fn cuArray3DCreate(handle: *mut CUarray, allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR_v1) -> CUresult;
        fn cuArray3DCreate_v2(handle: *mut CUarray, allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR) -> CUresult;
        fn cuArrayDestroy(array: CUarray) -> CUresult;
        fn cuMipmappedArrayCreate(
            handle: *mut CUmipmappedArray,
            mipmapped_array_desc: *const CUDA_ARRAY3D_DESCRIPTOR,
            num_mipmap_levels: c_uint,
        ) -> CUresult;
        fn cuMipmappedArrayDestroy(mipmapped_array: CUmipmappedArray) -> CUresult;
        fn cuGraphAddMemAllocNode(
            graph_node: *mut CUgraphNode,
            graph: CUgraph,
            dependencies: *const CUgraphNode,
            num_dependencies: usize,
            node_params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
        ) -> CUresult;
        fn cuGraphAddNode(
            graph_node: *mut CUgraphNode,
            graph: CUgraph,
            dependencies: *const CUgraphNode,
            num_dependencies: usize,
            node_params: *mut CUgraphNodeParams,
        ) -> CUresult;
        fn cuGraphAddNode_v2(
            graph_node: *mut CUgraphNode,
            graph: CUgraph,
            dependencies: *const CUgraphNode,
            dependency_data: *const CUgraphEdgeData,
            num_dependencies: usize,
            node_params: *mut CUgraphNodeParams,
        ) -> CUresult;
        fn cuGraphAddNode_v3(
            graph_node: *mut CUgraphNode,
            graph: CUgraph,
            dependencies: *const CUgraphNode,
            dependency_data: *const CUgraphEdgeData,
            num_dependencies: usize,
            node_params: *mut CUgraphNodeParams,
        ) -> CUresult;
        fn cuGraphInstantiate(
            graph_exec: *mut CUgraphExec,
            graph: CUgraph,
            error_node: *mut CUgraphNode,
            log_buffer: *mut c_char,
            buffer_size: usize,
        ) -> CUresult;
        fn cuGraphInstantiate_v2(
            graph_exec: *mut CUgraphExec,
            graph: CUgraph,
            error_node: *mut CUgraphNode,
            log_buffer: *mut c_char,
            buffer_size: usize,
        ) -> CUresult;
        fn cuGraphInstantiateWithFlags(graph_exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) -> CUresult;
        fn cuGraphInstantiateWithParams(
            graph_exec: *mut CUgraphExec,
            graph: CUgraph,
            instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
        ) -> CUresult;
        fn cuGraphInstantiateWithParams_ptsz(
            graph_exec: *mut CUgraphExec,
            graph: CUgraph,
            instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
        ) -> CUresult;
        fn cuGraphUpload(graph_exec: CUgraphExec, stream: CUstream) -> CUresult;
        fn cuGraphUpload_ptsz(graph_exec: CUgraphExec, stream: CUstream) -> CUresult;
        fn cuGraphExecUpdate(
            graph_exec: CUgraphExec,
            graph: CUgraph,
            error_node: *mut CUgraphNode,
            update_result_out: *mut CUgraphExecUpdateResult,
        ) -> CUresult;
        fn cuGraphExecUpdate_v2(
            graph_exec: CUgraphExec,
            graph: CUgraph,
            result_info: *mut CUgraphExecUpdateResultInfo,
        ) -> CUresult;
        fn cuGraphExecNodeSetParams(
            graph_exec: CUgraphExec,
            node: CUgraphNode,
            node_params: *mut CUgraphNodeParams,
        ) -> CUresult;
        fn cuGraphExecChildGraphNodeSetParams(
            graph_exec: CUgraphExec,
            node: CUgraphNode,
            child_graph: CUgraph,
        ) -> CUresult;
        fn cuGraphExecDestroy(graph_exec: CUgraphExec) -> CUresult;
        fn cuDeviceGraphMemTrim(device: CUdevice) -> CUresult;
        fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, pointer: CUdeviceptr) -> CUresult;
        fn cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) -> CUresult;
        fn cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) -> CUresult;
        fn cuIpcCloseMemHandle(pointer: CUdeviceptr) -> CUresult;
        fn cuImportExternalMemory(
            ext_mem_out: *mut CUexternalMemory,
            mem_handle_desc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
        ) -> CUresult;
        fn cuDestroyExternalMemory(ext_mem: CUexternalMemory) -> CUresult;
        fn cuModuleLoad(module: *mut CUmodule, fname: *const c_char) -> CUresult;
        fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> CUresult;
        fn cuModuleLoadDataEx(
            module: *mut CUmodule,
            image: *const c_void,
            num_options: c_uint,
            options: *mut CUjit_option,
            option_values: *mut *mut c_void,
        ) -> CUresult;
        fn cuModuleLoadFatBinary(module: *mut CUmodule, fat_cubin: *const c_void) -> CUresult;
        fn cuModuleUnload(hmod: CUmodule) -> CUresult;
        fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> CUresult;
        fn cuModuleGetGlobal(
            pointer: *mut CUdeviceptr_v1,
            bytes: *mut c_uint,
            module: CUmodule,
            name: *const c_char,
        ) -> CUresult;
        fn cuModuleGetGlobal_v2(
            pointer: *mut CUdeviceptr,
            bytes: *mut usize,
            module: CUmodule,
            name: *const c_char,
        ) -> CUresult;
        fn cuLibraryLoadData(
            library: *mut CUlibrary,
            code: *const c_void,
            jit_options: *mut CUjit_option,
            jit_options_values: *mut *mut c_void,
            num_jit_options: c_uint,
            library_options: *mut CUlibraryOption,
            library_option_values: *mut *mut c_void,
            num_library_options: c_uint,
        ) -> CUresult;
        fn cuLibraryLoadFromFile(
            library: *mut CUlibrary,
            file_name: *const c_char,
            jit_options: *mut CUjit_option,
            jit_options_values: *mut *mut c_void,
            num_jit_options: c_uint,
            library_options: *mut CUlibraryOption,
            library_option_values: *mut *mut c_void,
            num_library_options: c_uint,
        ) -> CUresult;
        fn cuLibraryUnload(library: CUlibrary) -> CUresult;
        fn cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) -> CUresult;
        fn cuLibraryGetGlobal(
            pointer: *mut CUdeviceptr,
            bytes: *mut usize,
            library: CUlibrary,
            name: *const c_char,
        ) -> CUresult;
        fn cuLibraryGetManaged(
            pointer: *mut CUdeviceptr,
            bytes: *mut usize,
            library: CUlibrary,
            name: *const c_char,
        ) -> CUresult;
        fn cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel) -> CUresult;
        fn cuFuncLoad(function: CUfunction) -> CUresult;
        fn cuCheckpointProcessCheckpoint(pid: c_int, args: *mut CUcheckpointCheckpointArgs) -> CUresult;
        fn cuCheckpointProcessRestore(pid: c_int, args: *mut CUcheckpointRestoreArgs) -> CUresult;
    }
    Launch {
        fn cuLaunch(function: CUfunction) -> CUresult;
        fn cuLaunchGrid(function: CUfunction, grid_width: c_int, grid_height: c_int) -> CUresult;
        fn cuLaunchGridAsync(
            function: CUfunction,
            grid_width: c_int,
            grid_height: c_int,
            stream: CUstream,
        ) -> CUresult;
        fn cuLaunchKernel(
            function: CUfunction,
            grid_dim_x: c_uint,
            grid_dim_y: c_uint,
            grid_dim_z: c_uint,
            block_dim_x: c_uint,
            block_dim_y: c_uint,
            block_dim_z: c_uint,
            shared_mem_bytes: c_uint,
            stream: CUstream,
            kernel_params: *mut *mut c_void,
            extra: *mut *mut c_void,
        ) -> CUresult;
        fn cuLaunchKernel_ptsz(
            function: CUfunction,
            grid_dim_x: c_uint,
            grid_dim_y: c_uint,
            grid_dim_z: c_uint,
            block_dim_x: c_uint,
            block_dim_y: c_uint,
            block_dim_z: c_uint,
            shared_mem_bytes: c_uint,
            stream: CUstream,
            kernel_params: *mut *mut c_void,
            extra: *mut *mut c_void,
        ) -> CUresult;
        fn cuLaunchKernelEx(
            config: *const CUlaunchConfig,
            function: CUfunction,
            kernel_params: *mut *mut c_void,
            extra: *mut *mut c_void,
        ) -> CUresult;
        fn cuLaunchKernelEx_ptsz(
            config: *const CUlaunchConfig,
            function: CUfunction,
            kernel_params: *mut *mut c_void,
            extra: *mut *mut c_void,
        ) -> CUresult;
        fn cuLaunchCooperativeKernel(
            function: CUfunction,
            grid_dim_x: c_uint,
            grid_dim_y: c_uint,
            grid_dim_z: c_uint,
            block_dim_x: c_uint,
            block_dim_y: c_uint,
            block_dim_z: c_uint,
            shared_mem_bytes: c_uint,
            stream: CUstream,
            kernel_params: *mut *mut c_void,
        ) -> CUresult;
        fn cuLaunchCooperativeKernel_ptsz(
            function: CUfunction,
            grid_dim_x: c_uint,
            grid_dim_y: c_uint,
            grid_dim_z: c_uint,
            block_dim_x: c_uint,
            block_dim_y: c_uint,
            block_dim_z: c_uint,
            shared_mem_bytes: c_uint,
            stream: CUstream,
            kernel_params: *mut *mut c_void,
        ) -> CUresult;
        fn cuLaunchCooperativeKernelMultiDevice(
            launch_params_list: *mut CUDA_LAUNCH_PARAMS,
            num_devices: c_uint,
            flags: c_uint,
        ) -> CUresult;
        fn cuGraphLaunch(graph: CUgraphExec, stream: CUstream) -> CUresult;
        fn cuGraphLaunch_ptsz(graph_exec: CUgraphExec, stream: CUstream) -> CUresult;
    }
    Copy {
        fn cuMemsetD8_v2(
            to: CUdeviceptr,
            value: c_uchar,
            count: usize,
        ) -> CUresult as copies::fill(Stream::plain(DEFAULT), 1, count, 1);
        fn cuMemsetD8_v2_ptds(
            to: CUdeviceptr,
            value: c_uchar,
            count: usize,
        ) -> CUresult as copies::fill(Stream::per_thread(DEFAULT), 1, count, 1);
        fn cuMemsetD8Async(
            to: CUdeviceptr,
            value: c_uchar,
            count: usize,
            stream: CUstream,
        ) -> CUresult as copies::fill(Stream::plain(stream), 1, count, 1);
        fn cuMemsetD8Async_ptsz(
            to: CUdeviceptr,
            value: c_uchar,
            count: usize,
            stream: CUstream,
        ) -> CUresult as copies::fill(Stream::per_thread(stream), 1, count, 1);
        fn cuMemsetD16_v2(
            to: CUdeviceptr,
            value: c_ushort,
            count: usize,
        ) -> CUresult as copies::fill(Stream::plain(DEFAULT), 2, count, 1);
        fn cuMemsetD16_v2_ptds(
            to: CUdeviceptr,
            value: c_ushort,
            count: usize,
        ) -> CUresult as copies::fill(Stream::per_thread(DEFAULT), 2, count, 1);
        fn cuMemsetD16Async(
            to: CUdeviceptr,
            value: c_ushort,
            count: usize,
            stream: CUstream,
        ) -> CUresult as copies::fill(Stream::plain(stream), 2, count, 1);
        fn cuMemsetD16Async_ptsz(
            to: CUdeviceptr,
            value: c_ushort,
            count: usize,
            stream: CUstream,
        ) -> CUresult as copies::fill(Stream::per_thread(stream), 2, count, 1);
        fn cuMemsetD32_v2(
            to: CUdeviceptr,
            value: c_uint,
            count: usize,
        ) -> CUresult as copies::fill(Stream::plain(DEFAULT), 4, count, 1);
        fn cuMemsetD32_v2_ptds(
            to: CUdeviceptr,
            value: c_uint,
            count: usize,
        ) -> CUresult as copies::fill(Stream::per_thread(DEFAULT), 4, count, 1);
        fn cuMemsetD32Async(
            to: CUdeviceptr,
            value: c_uint,
            count: usize,
            stream: CUstream,
        ) -> CUresult as copies::fill(Stream::plain(stream), 4, count, 1);
        fn cuMemsetD32Async_ptsz(
            to: CUdeviceptr,
            value: c_uint,
            count: usize,
            stream: CUstream,
        ) -> CUresult as copies::fill(Stream::per_thread(stream), 4, count, 1);
        fn cuMemsetD2D8_v2(
            to: CUdeviceptr,
            pitch: usize,
            value: c_uchar,
            width: usize,
            height: usize,
        ) -> CUresult as copies::fill(Stream::plain(DEFAULT), 1, width, height);
        fn cuMemsetD2D8_v2_ptds(
            to: CUdeviceptr,
            pitch: usize,
            value: c_uchar,
            width: usize,
            height: usize,
        ) -> CUresult as copies::fill(Stream::per_thread(DEFAULT), 1, width, height);
        fn cuMemsetD2D8Async(
            to: CUdeviceptr,
            pitch: usize,
            value: c_uchar,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> CUresult as copies::fill(Stream::plain(stream), 1, width, height);
        fn cuMemsetD2D8Async_ptsz(
            to: CUdeviceptr,
            pitch: usize,
            value: c_uchar,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> CUresult as copies::fill(Stream::per_thread(stream), 1, width, height);
        fn cuMemsetD2D16_v2(
            to: CUdeviceptr,
            pitch: usize,
            value: c_ushort,
            width: usize,
            height: usize,
        ) -> CUresult as copies::fill(Stream::plain(DEFAULT), 2, width, height);
        fn cuMemsetD2D16_v2_ptds(
            to: CUdeviceptr,
            pitch: usize,
            value: c_ushort,
            width: usize,
            height: usize,
        ) -> CUresult as copies::fill(Stream::per_thread(DEFAULT), 2, width, height);
        fn cuMemsetD2D16Async(
            to: CUdeviceptr,
            pitch: usize,
            value: c_ushort,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> CUresult as copies::fill(Stream::plain(stream), 2, width, height);
        fn cuMemsetD2D16Async_ptsz(
            to: CUdeviceptr,
            pitch: usize,
            value: c_ushort,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> CUresult as copies::fill(Stream::per_thread(stream), 2, width, height);
        fn cuMemsetD2D32_v2(
            to: CUdeviceptr,
            pitch: usize,
            value: c_uint,
            width: usize,
            height: usize,
        ) -> CUresult as copies::fill(Stream::plain(DEFAULT), 4, width, height);
        fn cuMemsetD2D32_v2_ptds(
            to: CUdeviceptr,
            pitch: usize,
            value: c_uint,
            width: usize,
            height: usize,
        ) -> CUresult as copies::fill(Stream::per_thread(DEFAULT), 4, width, height);
        fn cuMemsetD2D32Async(
            to: CUdeviceptr,
            pitch: usize,
            value: c_uint,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> CUresult as copies::fill(Stream::plain(stream), 4, width, height);
        fn cuMemsetD2D32Async_ptsz(
            to: CUdeviceptr,
            pitch: usize,
            value: c_uint,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> CUresult as copies::fill(Stream::per_thread(stream), 4, width, height);
        fn cuMemcpy(
            to: CUdeviceptr,
            from: CUdeviceptr,
            bytes: usize,
        ) -> CUresult as copies::copy(Stream::plain(DEFAULT), to, from, bytes);
        fn cuMemcpy_ptds(
            to: CUdeviceptr,
            from: CUdeviceptr,
            bytes: usize,
        ) -> CUresult as copies::copy(Stream::per_thread(DEFAULT), to, from, bytes);
        fn cuMemcpyPeer(
            to: CUdeviceptr,
            to_context: CUcontext,
            from: CUdeviceptr,
            from_context: CUcontext,
            bytes: usize,
        ) -> CUresult as copies::between(Stream::plain(DEFAULT), to, from, bytes);
        fn cuMemcpyPeer_ptds(
            to: CUdeviceptr,
            to_context: CUcontext,
            from: CUdeviceptr,
            from_context: CUcontext,
            bytes: usize,
        ) -> CUresult as copies::between(Stream::per_thread(DEFAULT), to, from, bytes);
        fn cuMemcpy3DPeer(
            copy: *const CUDA_MEMCPY3D_PEER,
        ) -> CUresult as copies::box_between(Stream::plain(DEFAULT), copy);
        fn cuMemcpy3DPeer_ptds(
            copy: *const CUDA_MEMCPY3D_PEER,
        ) -> CUresult as copies::box_between(Stream::per_thread(DEFAULT), copy);
        fn cuMemcpyAsync(
            to: CUdeviceptr,
            from: CUdeviceptr,
            bytes: usize,
            stream: CUstream,
        ) -> CUresult as copies::copy(Stream::plain(stream), to, from, bytes);
        fn cuMemcpyAsync_ptsz(
            to: CUdeviceptr,
            from: CUdeviceptr,
            bytes: usize,
            stream: CUstream,
        ) -> CUresult as copies::copy(Stream::per_thread(stream), to, from, bytes);
        fn cuMemcpyPeerAsync(
            to: CUdeviceptr,
            to_context: CUcontext,
            from: CUdeviceptr,
            from_context: CUcontext,
            bytes: usize,
            stream: CUstream,
        ) -> CUresult as copies::between(Stream::plain(stream), to, from, bytes);
        fn cuMemcpyPeerAsync_ptsz(
            to: CUdeviceptr,
            to_context: CUcontext,
            from: CUdeviceptr,
            from_context: CUcontext,
            bytes: usize,
            stream: CUstream,
        ) -> CUresult as copies::between(Stream::per_thread(stream), to, from, bytes);
        fn cuMemcpy3DPeerAsync(
            copy: *const CUDA_MEMCPY3D_PEER,
            stream: CUstream,
        ) -> CUresult as copies::box_between(Stream::plain(stream), copy);
        fn cuMemcpy3DPeerAsync_ptsz(
            copy: *const CUDA_MEMCPY3D_PEER,
            stream: CUstream,
        ) -> CUresult as copies::box_between(Stream::per_thread(stream), copy);
        fn cuMemcpyWithAttributesAsync(
            to: CUdeviceptr,
            from: CUdeviceptr,
            size: usize,
            attributes: *mut CUmemcpyAttributes,
            stream: CUstream,
        ) -> CUresult as copies::copy(Stream::plain(stream), to, from, size);
        fn cuMemcpyWithAttributesAsync_ptsz(
            to: CUdeviceptr,
            from: CUdeviceptr,
            size: usize,
            attributes: *mut CUmemcpyAttributes,
            stream: CUstream,
        ) -> CUresult as copies::copy(Stream::per_thread(stream), to, from, size);
        fn cuMemcpy3DWithAttributesAsync(
            copy: *mut CUDA_MEMCPY3D_BATCH_OP,
            flags: c_ulonglong,
            stream: CUstream,
        ) -> CUresult as copies::boxes(Stream::plain(stream), 1);
        fn cuMemcpy3DWithAttributesAsync_ptsz(
            copy: *mut CUDA_MEMCPY3D_BATCH_OP,
            flags: c_ulonglong,
            stream: CUstream,
        ) -> CUresult as copies::boxes(Stream::per_thread(stream), 1);
        fn cuMemcpyDtoD_v2(
            to: CUdeviceptr,
            from: CUdeviceptr,
            bytes: usize,
        ) -> CUresult as copies::within_device(Stream::plain(DEFAULT), bytes);
        fn cuMemcpyDtoD_v2_ptds(
            to: CUdeviceptr,
            from: CUdeviceptr,
            bytes: usize,
        ) -> CUresult as copies::within_device(Stream::per_thread(DEFAULT), bytes);
        fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D) -> CUresult as copies::rectangle(Stream::plain(DEFAULT), copy);
        fn cuMemcpy2D_v2_ptds(
            copy: *const CUDA_MEMCPY2D,
        ) -> CUresult as copies::rectangle(Stream::per_thread(DEFAULT), copy);
        fn cuMemcpy2DUnaligned_v2(
            copy: *const CUDA_MEMCPY2D,
        ) -> CUresult as copies::rectangle(Stream::plain(DEFAULT), copy);
        fn cuMemcpy2DUnaligned_v2_ptds(
            copy: *const CUDA_MEMCPY2D,
        ) -> CUresult as copies::rectangle(Stream::per_thread(DEFAULT), copy);
        fn cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D) -> CUresult as copies::a_box(Stream::plain(DEFAULT), copy);
        fn cuMemcpy3D_v2_ptds(
            copy: *const CUDA_MEMCPY3D,
        ) -> CUresult as copies::a_box(Stream::per_thread(DEFAULT), copy);
        fn cuMemcpyAtoA_v2(
            to: CUarray,
            to_offset: usize,
            from: CUarray,
            from_offset: usize,
            bytes: usize,
        ) -> CUresult as copies::within_device(Stream::plain(DEFAULT), bytes);
        fn cuMemcpyAtoA_v2_ptds(
            to: CUarray,
            to_offset: usize,
            from: CUarray,
            from_offset: usize,
            bytes: usize,
        ) -> CUresult as copies::within_device(Stream::per_thread(DEFAULT), bytes);
        fn cuMemcpyAtoD_v2(
            to: CUdeviceptr,
            from: CUarray,
            from_offset: usize,
            bytes: usize,
        ) -> CUresult as copies::within_device(Stream::plain(DEFAULT), bytes);
        fn cuMemcpyAtoD_v2_ptds(
            to: CUdeviceptr,
            from: CUarray,
            from_offset: usize,
            bytes: usize,
        ) -> CUresult as copies::within_device(Stream::per_thread(DEFAULT), bytes);
        fn cuMemcpyDtoA_v2(
            to: CUarray,
            to_offset: usize,
            from: CUdeviceptr,
            bytes: usize,
        ) -> CUresult as copies::within_device(Stream::plain(DEFAULT), bytes);
        fn cuMemcpyDtoA_v2_ptds(
            to: CUarray,
            to_offset: usize,
            from: CUdeviceptr,
            bytes: usize,
        ) -> CUresult as copies::within_device(Stream::per_thread(DEFAULT), bytes);
        fn cuMemcpyHtoD_v2(
            to: CUdeviceptr,
            from: *const c_void,
            bytes: usize,
        ) -> CUresult as copies::pause(Stream::plain(DEFAULT));
        fn cuMemcpyHtoD_v2_ptds(
            to: CUdeviceptr,
            from: *const c_void,
            bytes: usize,
        ) -> CUresult as copies::pause(Stream::per_thread(DEFAULT));
        fn cuMemcpyDtoH_v2(
            to: *mut c_void,
            from: CUdeviceptr,
            bytes: usize,
        ) -> CUresult as copies::pause(Stream::plain(DEFAULT));
        fn cuMemcpyDtoH_v2_ptds(
            to: *mut c_void,
            from: CUdeviceptr,
            bytes: usize,
        ) -> CUresult as copies::pause(Stream::per_thread(DEFAULT));
        fn cuMemcpyDtoDAsync_v2(
            to: CUdeviceptr,
            from: CUdeviceptr,
            bytes: usize,
            stream: CUstream,
        ) -> CUresult as copies::within_device(Stream::plain(stream), bytes);
        fn cuMemcpyDtoDAsync_v2_ptsz(
            to: CUdeviceptr,
            from: CUdeviceptr,
            bytes: usize,
            stream: CUstream,
        ) -> CUresult as copies::within_device(Stream::per_thread(stream), bytes);
        fn cuMemcpy2DAsync_v2(
            copy: *const CUDA_MEMCPY2D,
            stream: CUstream,
        ) -> CUresult as copies::rectangle(Stream::plain(stream), copy);
        fn cuMemcpy2DAsync_v2_ptsz(
            copy: *const CUDA_MEMCPY2D,
            stream: CUstream,
        ) -> CUresult as copies::rectangle(Stream::per_thread(stream), copy);
        fn cuMemcpy3DAsync_v2(
            copy: *const CUDA_MEMCPY3D,
            stream: CUstream,
        ) -> CUresult as copies::a_box(Stream::plain(stream), copy);
        fn cuMemcpy3DAsync_v2_ptsz(
            copy: *const CUDA_MEMCPY3D,
            stream: CUstream,
        ) -> CUresult as copies::a_box(Stream::per_thread(stream), copy);
        fn cuMemcpyHtoDAsync_v2(
            to: CUdeviceptr,
            from: *const c_void,
            bytes: usize,
            stream: CUstream,
        ) -> CUresult as copies::pause(Stream::plain(stream));
        fn cuMemcpyHtoDAsync_v2_ptsz(
            to: CUdeviceptr,
            from: *const c_void,
            bytes: usize,
            stream: CUstream,
        ) -> CUresult as copies::pause(Stream::per_thread(stream));
        fn cuMemcpyDtoHAsync_v2(
            to: *mut c_void,
            from: CUdeviceptr,
            bytes: usize,
            stream: CUstream,
        ) -> CUresult as copies::pause(Stream::plain(stream));
        fn cuMemcpyDtoHAsync_v2_ptsz(
            to: *mut c_void,
            from: CUdeviceptr,
            bytes: usize,
            stream: CUstream,
        ) -> CUresult as copies::pause(Stream::per_thread(stream));
        fn cuMemcpyBatchAsync(
            to: *mut CUdeviceptr,
            from: *mut CUdeviceptr,
            sizes: *mut usize,
            count: usize,
            attributes: *mut CUmemcpyAttributes,
            attribute_places: *mut usize,
            attribute_count: usize,
            failed: *mut usize,
            stream: CUstream,
        ) -> CUresult as copies::several(Stream::plain(stream), to, from, sizes, count);
        fn cuMemcpyBatchAsync_ptsz(
            to: *mut CUdeviceptr,
            from: *mut CUdeviceptr,
            sizes: *mut usize,
            count: usize,
            attributes: *mut CUmemcpyAttributes,
            attribute_places: *mut usize,
            attribute_count: usize,
            failed: *mut usize,
            stream: CUstream,
        ) -> CUresult as copies::several(Stream::per_thread(stream), to, from, sizes, count);
        fn cuMemcpyBatchAsync_v2(
            to: *mut CUdeviceptr,
            from: *mut CUdeviceptr,
            sizes: *mut usize,
            count: usize,
            attributes: *mut CUmemcpyAttributes,
            attribute_places: *mut usize,
            attribute_count: usize,
            stream: CUstream,
        ) -> CUresult as copies::several(Stream::plain(stream), to, from, sizes, count);
        fn cuMemcpyBatchAsync_v2_ptsz(
            to: *mut CUdeviceptr,
            from: *mut CUdeviceptr,
            sizes: *mut usize,
            count: usize,
            attributes: *mut CUmemcpyAttributes,
            attribute_places: *mut usize,
            attribute_count: usize,
            stream: CUstream,
        ) -> CUresult as copies::several(Stream::per_thread(stream), to, from, sizes, count);
        fn cuMemcpy3DBatchAsync(
            count: usize,
            copies: *mut CUDA_MEMCPY3D_BATCH_OP,
            failed: *mut usize,
            flags: c_ulonglong,
            stream: CUstream,
        ) -> CUresult as copies::boxes(Stream::plain(stream), count);
        fn cuMemcpy3DBatchAsync_ptsz(
            count: usize,
            copies: *mut CUDA_MEMCPY3D_BATCH_OP,
            failed: *mut usize,
            flags: c_ulonglong,
            stream: CUstream,
        ) -> CUresult as copies::boxes(Stream::per_thread(stream), count);
        fn cuMemcpy3DBatchAsync_v2(
            count: usize,
            copies: *mut CUDA_MEMCPY3D_BATCH_OP,
            flags: c_ulonglong,
            stream: CUstream,
        ) -> CUresult as copies::boxes(Stream::plain(stream), count);
        fn cuMemcpy3DBatchAsync_v2_ptsz(
            count: usize,
            copies: *mut CUDA_MEMCPY3D_BATCH_OP,
            flags: c_ulonglong,
            stream: CUstream,
        ) -> CUresult as copies::boxes(Stream::per_thread(stream), count);
    }
    Pause {
        fn cuStreamWaitEvent(
            stream: CUstream,
            event: CUevent,
            flags: c_uint,
        ) -> CUresult as copies::join(Stream::plain(stream));
        fn cuStreamWaitEvent_ptsz(
            stream: CUstream,
            event: CUevent,
            flags: c_uint,
        ) -> CUresult as copies::join(Stream::per_thread(stream));
        fn cuStreamAddCallback(
            stream: CUstream,
            callback: CUstreamCallback,
            user_data: *mut c_void,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::plain(stream));
        fn cuStreamAddCallback_ptsz(
            stream: CUstream,
            callback: CUstreamCallback,
            user_data: *mut c_void,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::per_thread(stream));
        fn cuWaitExternalSemaphoresAsync(
            semaphores: *const CUexternalSemaphore,
            params: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
            count: c_uint,
            stream: CUstream,
        ) -> CUresult as copies::pause(Stream::plain(stream));
        fn cuWaitExternalSemaphoresAsync_ptsz(
            semaphores: *const CUexternalSemaphore,
            params: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
            count: c_uint,
            stream: CUstream,
        ) -> CUresult as copies::pause(Stream::per_thread(stream));
        fn cuStreamWaitValue32(
            stream: CUstream,
            address: CUdeviceptr,
            value: cuuint32_t,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::plain(stream));
        fn cuStreamWaitValue32_ptsz(
            stream: CUstream,
            address: CUdeviceptr,
            value: cuuint32_t,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::per_thread(stream));
        fn cuStreamWaitValue32_v2(
            stream: CUstream,
            address: CUdeviceptr,
            value: cuuint32_t,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::plain(stream));
        fn cuStreamWaitValue32_v2_ptsz(
            stream: CUstream,
            address: CUdeviceptr,
            value: cuuint32_t,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::per_thread(stream));
        fn cuStreamWaitValue64(
            stream: CUstream,
            address: CUdeviceptr,
            value: cuuint64_t,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::plain(stream));
        fn cuStreamWaitValue64_ptsz(
            stream: CUstream,
            address: CUdeviceptr,
            value: cuuint64_t,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::per_thread(stream));
        fn cuStreamWaitValue64_v2(
            stream: CUstream,
            address: CUdeviceptr,
            value: cuuint64_t,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::plain(stream));
        fn cuStreamWaitValue64_v2_ptsz(
            stream: CUstream,
            address: CUdeviceptr,
            value: cuuint64_t,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::per_thread(stream));
        fn cuStreamBatchMemOp(
            stream: CUstream,
            count: c_uint,
            params: *mut CUstreamBatchMemOpParams,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::plain(stream));
        fn cuStreamBatchMemOp_ptsz(
            stream: CUstream,
            count: c_uint,
            params: *mut CUstreamBatchMemOpParams,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::per_thread(stream));
        fn cuStreamBatchMemOp_v2(
            stream: CUstream,
            count: c_uint,
            params: *mut CUstreamBatchMemOpParams,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::plain(stream));
        fn cuStreamBatchMemOp_v2_ptsz(
            stream: CUstream,
            count: c_uint,
            params: *mut CUstreamBatchMemOpParams,
            flags: c_uint,
        ) -> CUresult as copies::pause(Stream::per_thread(stream));
        fn cuLaunchHostFunc(
            stream: CUstream,
            function: CUhostFn,
            user_data: *mut c_void,
        ) -> CUresult as copies::pause(Stream::plain(stream));
        fn cuLaunchHostFunc_ptsz(
            stream: CUstream,
            function: CUhostFn,
            user_data: *mut c_void,
        ) -> CUresult as copies::pause(Stream::per_thread(stream));
        fn cuLaunchHostFunc_v2(
            stream: CUstream,
            function: CUhostFn,
            user_data: *mut c_void,
            sync_mode: c_uint,
        ) -> CUresult as copies::pause(Stream::plain(stream));
        fn cuLaunchHostFunc_v2_ptsz(
            stream: CUstream,
            function: CUhostFn,
            user_data: *mut c_void,
            sync_mode: c_uint,
        ) -> CUresult as copies::pause(Stream::per_thread(stream));
    }
    Capture {
        fn cuStreamBeginCapture(stream: CUstream) -> CUresult as copies::begin_capture(Stream::plain(stream));
        fn cuStreamBeginCapture_ptsz(stream: CUstream) -> CUresult as copies::begin_capture(Stream::per_thread(stream));
        fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) -> CUresult as copies::begin_capture(Stream::plain(stream));
        fn cuStreamBeginCapture_v2_ptsz(
            stream: CUstream,
            mode: CUstreamCaptureMode,
        ) -> CUresult as copies::begin_capture(Stream::per_thread(stream));
        fn cuStreamBeginCaptureToGraph(
            stream: CUstream,
            graph: CUgraph,
            dependencies: *const CUgraphNode,
            dependency_data: *const CUgraphEdgeData,
            dependency_count: usize,
            mode: CUstreamCaptureMode,
        ) -> CUresult as copies::begin_capture(Stream::plain(stream));
        fn cuStreamBeginCaptureToGraph_ptsz(
            stream: CUstream,
            graph: CUgraph,
            dependencies: *const CUgraphNode,
            dependency_data: *const CUgraphEdgeData,
            dependency_count: usize,
            mode: CUstreamCaptureMode,
        ) -> CUresult as copies::begin_capture(Stream::per_thread(stream));
        fn cuStreamBeginRecaptureToGraph(
            stream: CUstream,
            mode: CUstreamCaptureMode,
            graph: CUgraph,
            callback: CUgraphRecaptureCallback,
            user_data: *mut c_void,
        ) -> CUresult as copies::begin_capture(Stream::plain(stream));
        fn cuStreamBeginRecaptureToGraph_ptsz(
            stream: CUstream,
            mode: CUstreamCaptureMode,
            graph: CUgraph,
            callback: CUgraphRecaptureCallback,
            user_data: *mut c_void,
        ) -> CUresult as copies::begin_capture(Stream::per_thread(stream));
        fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> CUresult as copies::end_capture(Stream::plain(stream));
        fn cuStreamEndCapture_ptsz(
            stream: CUstream,
            graph: *mut CUgraph,
        ) -> CUresult as copies::end_capture(Stream::per_thread(stream));
    }
    Wait {
        fn cuStreamSynchronize(stream: CUstream) -> CUresult;
        fn cuStreamSynchronize_ptsz(stream: CUstream) -> CUresult;
        fn cuCtxSynchronize() -> CUresult;
        fn cuCtxSynchronize_v2(context: CUcontext) -> CUresult;
        fn cuEventSynchronize(event: CUevent) -> CUresult;
        fn cuStreamDestroy(stream: CUstream) -> CUresult;
        fn cuStreamDestroy_v2(stream: CUstream) -> CUresult;
    }
    View {
        fn cuMemGetInfo(free: *mut c_uint, total: *mut c_uint) -> CUresult;
        fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult;
        fn cuDeviceTotalMem(bytes: *mut c_uint, device: CUdevice) -> CUresult;
        fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> CUresult;
    }
} };
}
pub(crate) use cuda_functions;

cuda_functions!(declare);

/// libcuda.
pub(crate) static CUDA: Library = Library {
    soname: c"libcuda.so.1",
    rows: ROWS,
    no_library: CUDA_ERROR_NO_DEVICE,
    no_function: CUDA_ERROR_NOT_FOUND,
    denied: CUDA_ERROR_NO_DEVICE,
    resolved: AtomicBool::new(false),
};
