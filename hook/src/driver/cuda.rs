//! The functions of libcuda that the hook exports, by family.

use core::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

use super::library::{Library, State};
use super::table::{c_name, declare};

/// Gives the list to a macro: [`declare`] makes the driver's own functions of it, and [`crate::exports`] the functions
/// that programs call. Only the exports read the code between braces, which answers in the driver's place. The name
/// after `and` is the same function for the default stream of each thread.
macro_rules! cuda_functions {
    ($then:path) => { $then! { CUDA, cuda;
    Lookup {
        fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: cuuint64_t) -> CUresult
            { proc_address::answer[symbol, pfn]() }
        fn cuGetProcAddress_v2(
            symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: cuuint64_t,
            symbol_status: *mut CUdriverProcAddressQueryResult) -> CUresult
            { proc_address::answer_with_status[symbol, pfn, symbol_status]() }
    }
    Entry {
        fn cuInit(flags: c_uint) -> CUresult { init::init() }
    }
    Context {
        fn cuCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice) -> CUresult
            { contexts::create(device) giving context }
        fn cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) -> CUresult
            { contexts::create(device) giving context }
        fn cuCtxCreate_v3(
            context: *mut CUcontext, params_array: *mut CUexecAffinityParam, num_params: c_int, flags: c_uint,
            device: CUdevice) -> CUresult
            { contexts::create(device) giving context }
        fn cuCtxCreate_v4(
            context: *mut CUcontext, ctx_create_params: *mut CUctxCreateParams, flags: c_uint, device: CUdevice) -> CUresult
            { contexts::create(device) giving context }
        fn cuCtxDestroy(context: CUcontext) -> CUresult { contexts::destroy(context) }
        fn cuCtxDestroy_v2(context: CUcontext) -> CUresult { contexts::destroy(context) }
        fn cuCtxAttach(context: *mut CUcontext, flags: c_uint) -> CUresult;
        fn cuCtxDetach(context: CUcontext) -> CUresult;
        fn cuCtxSetLimit(limit: CUlimit, value: usize) -> CUresult { stacks::set_limit(limit, value) }
        fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult;
        fn cuCtxGetDevice_v2(device: *mut CUdevice, context: CUcontext) -> CUresult;
        fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult { contexts::retain_primary(device) }
        fn cuDevicePrimaryCtxRelease(device: CUdevice) -> CUresult { contexts::end_primary(device) }
        fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult { contexts::end_primary(device) }
        fn cuDevicePrimaryCtxReset(device: CUdevice) -> CUresult { contexts::end_primary(device) }
        fn cuDevicePrimaryCtxReset_v2(device: CUdevice) -> CUresult { contexts::end_primary(device) }
        fn cuGreenCtxCreate(ctx: *mut CUgreenCtx, desc: CUdevResourceDesc, device: CUdevice, flags: c_uint) -> CUresult
            { contexts::create_green(device) }
        fn cuGreenCtxDestroy(ctx: CUgreenCtx) -> CUresult;
        fn cuGreenCtxStreamCreate(stream: *mut CUstream, context: CUgreenCtx, flags: c_uint, priority: c_int) -> CUresult
            { streams::create() giving stream }
        fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult { streams::create() giving stream }
        fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) -> CUresult
            { streams::create() giving stream }
        fn cuCtxFromGreenCtx(context: *mut CUcontext, ctx: CUgreenCtx) -> CUresult;
    }
    Memory {
        fn cuMemAlloc(pointer: *mut CUdeviceptr_v1, bytes: c_uint) -> CUresult
            { alloc::alloc(bytes.into(), c"cuMemAlloc") giving pointer }
        fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize) -> CUresult
            { alloc::alloc(bytes as u64, c"cuMemAlloc") giving pointer }
        fn cuMemAllocPitch(
            pointer: *mut CUdeviceptr_v1, pitch: *mut c_uint, width_in_bytes: c_uint, height: c_uint,
            element_size_bytes: c_uint) -> CUresult
            { alloc::alloc_pitched(width_in_bytes.into(), height.into()) giving pointer }
        fn cuMemAllocPitch_v2(
            pointer: *mut CUdeviceptr, pitch: *mut usize, width_in_bytes: usize, height: usize,
            element_size_bytes: c_uint) -> CUresult
            { alloc::alloc_pitched(width_in_bytes as u64, height as u64) giving pointer }
        fn cuMemAllocManaged(pointer: *mut CUdeviceptr, bytes: usize, flags: c_uint) -> CUresult
            { managed::alloc(bytes as u64) giving pointer }
        fn cuMemFree(pointer: CUdeviceptr_v1) -> CUresult { alloc::free(pointer.into()) }
        fn cuMemFree_v2(pointer: CUdeviceptr) -> CUresult { alloc::free(pointer) }
        fn cuMemAllocAsync(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream) and cuMemAllocAsync_ptsz -> CUresult
            { pools::alloc(NO_POOL, bytes, form(stream), c"cuMemAllocAsync") }
        fn cuMemAllocFromPoolAsync(
            pointer: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool,
            stream: CUstream) and cuMemAllocFromPoolAsync_ptsz -> CUresult
            { pools::alloc(pool, bytes, form(stream), c"cuMemAllocFromPoolAsync") }
        fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream) and cuMemFreeAsync_ptsz -> CUresult
            { alloc::free_later(pointer) }
        fn cuMemPoolCreate(pool: *mut CUmemoryPool, pool_props: *const CUmemPoolProps) -> CUresult
            { pools::create() giving pool copying pool_props }
        fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult { pools::destroy(pool) }
        fn cuMemPoolTrimTo(pool: CUmemoryPool, min_bytes_to_keep: usize) -> CUresult { pools::trim(pool) }
        fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) -> CUresult { pools::set_current() }
        fn cuMemGetDefaultMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType) -> CUresult;
        fn cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType) -> CUresult;
        fn cuMemSetMemPool(location: *mut CUmemLocation, kind: CUmemAllocationType, pool: CUmemoryPool) -> CUresult
            { pools::set_current() }
        fn cuMemPoolExportToShareableHandle(
            handle_out: *mut c_void, pool: CUmemoryPool, handle_type: CUmemAllocationHandleType,
            flags: c_ulonglong) -> CUresult;
        fn cuMemPoolImportFromShareableHandle(
            pool_out: *mut CUmemoryPool, handle: *mut c_void, handle_type: CUmemAllocationHandleType,
            flags: c_ulonglong) -> CUresult;
        fn cuMemPoolImportPointer(
            ptr_out: *mut CUdeviceptr, pool: CUmemoryPool, share_data: *mut CUmemPoolPtrExportData) -> CUresult
            { ipc::import_pointer() giving ptr_out }
        fn cuMemCreate(
            handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp,
            flags: c_ulonglong) -> CUresult
            { vmm::create(size) giving handle copying prop }
        fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult { vmm::release(handle) }
        fn cuMemMap(
            ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong) -> CUresult
            { vmm::map(ptr, size, offset, handle) }
        fn cuMemUnmap(ptr: CUdeviceptr, size: usize) -> CUresult { vmm::unmap(ptr, size) }
        fn cuMemMapArrayAsync(
            map_info_list: *mut CUarrayMapInfo, count: c_uint, stream: CUstream) and cuMemMapArrayAsync_ptsz -> CUresult
            { vmm::map_array() }
        fn cuMemExportToShareableHandle(
            shareable_handle: *mut c_void, handle: CUmemGenericAllocationHandle, handle_type: CUmemAllocationHandleType,
            flags: c_ulonglong) -> CUresult
            { export::handle_outlives(handle, EXPORTED) }
        fn cuMemImportFromShareableHandle(
            handle: *mut CUmemGenericAllocationHandle, os_handle: *mut c_void,
            sh_handle_type: CUmemAllocationHandleType) -> CUresult
            { vmm::import() giving handle }
        fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void) -> CUresult
            { vmm::retain(addr as u64) giving handle }
        fn cuMemGetHandleForAddressRange(
            handle: *mut c_void, pointer: CUdeviceptr, size: usize, handle_type: CUmemRangeHandleType,
            flags: c_ulonglong) -> CUresult
            { export::address_outlives(pointer) }
        fn cuMulticastCreate(mc_handle: *mut CUmemGenericAllocationHandle, prop: *const CUmulticastObjectProp) -> CUresult;
        fn cuMulticastBindMem(
            mc_handle: CUmemGenericAllocationHandle, mc_offset: usize, mem_handle: CUmemGenericAllocationHandle,
            mem_offset: usize, size: usize, flags: c_ulonglong) -> CUresult
            { export::handle_outlives(mem_handle, 0) }
        fn cuMulticastBindMem_v2(
            mc_handle: CUmemGenericAllocationHandle, device: CUdevice, mc_offset: usize,
            mem_handle: CUmemGenericAllocationHandle, mem_offset: usize, size: usize, flags: c_ulonglong) -> CUresult
            { export::handle_outlives(mem_handle, 0) }
        fn cuMulticastBindAddr(
            mc_handle: CUmemGenericAllocationHandle, mc_offset: usize, pointer: CUdeviceptr, size: usize,
            flags: c_ulonglong) -> CUresult
            { export::address_outlives(pointer) }
        fn cuMulticastBindAddr_v2(
            mc_handle: CUmemGenericAllocationHandle, device: CUdevice, mc_offset: usize, pointer: CUdeviceptr, size: usize,
            flags: c_ulonglong) -> CUresult
            { export::address_outlives(pointer) }
        fn cuMulticastUnbind(
            mc_handle: CUmemGenericAllocationHandle, device: CUdevice, mc_offset: usize, size: usize) -> CUresult;
        fn cuMemPrefetchAsync(
            pointer: CUdeviceptr, count: usize, dst_device: CUdevice, stream: CUstream) and cuMemPrefetchAsync_ptsz -> CUresult;
        fn cuMemPrefetchAsync_v2(
            pointer: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint,
            stream: CUstream) and cuMemPrefetchAsync_v2_ptsz -> CUresult;
        fn cuMemPrefetchBatchAsync(
            pointers: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetch_locs: *mut CUmemLocation,
            prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong,
            stream: CUstream) and cuMemPrefetchBatchAsync_ptsz -> CUresult;
        fn cuMemDiscardAndPrefetchBatchAsync(
            pointers: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetch_locs: *mut CUmemLocation,
            prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong,
            stream: CUstream) and cuMemDiscardAndPrefetchBatchAsync_ptsz -> CUresult;
        fn cuArrayCreate(handle: *mut CUarray, allocate_array: *const CUDA_ARRAY_DESCRIPTOR_v1) -> CUresult
            { arrays::create() giving handle copying allocate_array }
        fn cuArrayCreate_v2(handle: *mut CUarray, allocate_array: *const CUDA_ARRAY_DESCRIPTOR) -> CUresult
            { arrays::create() giving handle copying allocate_array }
        fn cuArray3DCreate(handle: *mut CUarray, allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR_v1) -> CUresult
            { arrays::create() giving handle copying allocate_array }
        fn cuArray3DCreate_v2(handle: *mut CUarray, allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR) -> CUresult
            { arrays::create() giving handle copying allocate_array }
        fn cuArrayDestroy(array: CUarray) -> CUresult { ledger::given_back(Kind::Array, array as u64) }
        fn cuMipmappedArrayCreate(
            handle: *mut CUmipmappedArray, mipmapped_array_desc: *const CUDA_ARRAY3D_DESCRIPTOR,
            num_mipmap_levels: c_uint) -> CUresult
            { arrays::create_mipmapped(num_mipmap_levels) giving handle copying mipmapped_array_desc }
        fn cuMipmappedArrayDestroy(mipmapped_array: CUmipmappedArray) -> CUresult
            { ledger::given_back(Kind::Mipmap, mipmapped_array as u64) }
        fn cuGraphAddMemAllocNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            node_params: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> CUresult;
        fn cuGraphAddNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            node_params: *mut CUgraphNodeParams) -> CUresult;
        fn cuGraphAddNode_v2(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode,
            dependency_data: *const CUgraphEdgeData, num_dependencies: usize, node_params: *mut CUgraphNodeParams) -> CUresult;
        fn cuGraphAddNode_v3(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode,
            dependency_data: *const CUgraphEdgeData, num_dependencies: usize, node_params: *mut CUgraphNodeParams) -> CUresult;
        fn cuGraphInstantiate(
            graph_exec: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log_buffer: *mut c_char,
            buffer_size: usize) -> CUresult
            { graphs::instantiate(graph) giving graph_exec }
        fn cuGraphInstantiate_v2(
            graph_exec: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log_buffer: *mut c_char,
            buffer_size: usize) -> CUresult
            { graphs::instantiate(graph) giving graph_exec }
        fn cuGraphInstantiateWithFlags(graph_exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) -> CUresult
            { graphs::instantiate(graph) giving graph_exec }
        fn cuGraphInstantiateWithParams(
            graph_exec: *mut CUgraphExec, graph: CUgraph,
            instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) and cuGraphInstantiateWithParams_ptsz -> CUresult
            { graphs::instantiate_with_params(graph) giving graph_exec }
        fn cuGraphUpload(graph_exec: CUgraphExec, stream: CUstream) and cuGraphUpload_ptsz -> CUresult
            { graphs::launched(graph_exec, c"cuGraphUpload") }
        fn cuGraphExecUpdate(
            graph_exec: CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode,
            update_result_out: *mut CUgraphExecUpdateResult) -> CUresult
            { graphs::update(graph_exec, graph) }
        fn cuGraphExecUpdate_v2(
            graph_exec: CUgraphExec, graph: CUgraph, result_info: *mut CUgraphExecUpdateResultInfo) -> CUresult
            { graphs::update(graph_exec, graph) }
        fn cuGraphExecNodeSetParams(graph_exec: CUgraphExec, node: CUgraphNode, node_params: *mut CUgraphNodeParams) -> CUresult
            { graphs::change_node() }
        fn cuGraphExecChildGraphNodeSetParams(graph_exec: CUgraphExec, node: CUgraphNode, child_graph: CUgraph) -> CUresult
            { graphs::change_node() }
        fn cuGraphExecDestroy(graph_exec: CUgraphExec) -> CUresult { graphs::destroy(graph_exec) }
        fn cuDeviceGraphMemTrim(device: CUdevice) -> CUresult { graphs::trim(device) }
        fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, pointer: CUdeviceptr) -> CUresult { export::share(pointer) giving handle }
        fn cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) -> CUresult
            { ipc::open(handle) giving pdptr }
        fn cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) -> CUresult
            { ipc::open(handle) giving pdptr }
        fn cuIpcCloseMemHandle(pointer: CUdeviceptr) -> CUresult { ledger::released(Kind::Opened, pointer) }
        fn cuImportExternalMemory(
            ext_mem_out: *mut CUexternalMemory, mem_handle_desc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC) -> CUresult
            { ipc::import() giving ext_mem_out copying mem_handle_desc }
        fn cuDestroyExternalMemory(ext_mem: CUexternalMemory) -> CUresult { ledger::given_back(Kind::External, ext_mem as u64) }
        fn cuModuleLoad(module: *mut CUmodule, fname: *const c_char) -> CUresult { modules::load(c"cuModuleLoad") giving module }
        fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> CUresult
            { modules::load(c"cuModuleLoadData") giving module }
        fn cuModuleLoadDataEx(
            module: *mut CUmodule, image: *const c_void, num_options: c_uint, options: *mut CUjit_option,
            option_values: *mut *mut c_void) -> CUresult
            { modules::load(c"cuModuleLoadDataEx") giving module }
        fn cuModuleLoadFatBinary(module: *mut CUmodule, fat_cubin: *const c_void) -> CUresult
            { modules::load(c"cuModuleLoadFatBinary") giving module }
        fn cuModuleUnload(hmod: CUmodule) -> CUresult { modules::unload() }
        fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> CUresult { modules::find() }
        fn cuModuleGetGlobal(
            pointer: *mut CUdeviceptr_v1, bytes: *mut c_uint, module: CUmodule, name: *const c_char) -> CUresult
            { modules::find() }
        fn cuModuleGetGlobal_v2(pointer: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char) -> CUresult
            { modules::find_variable(c"cuModuleGetGlobal") giving pointer }
        fn cuLibraryLoadData(
            library: *mut CUlibrary, code: *const c_void, jit_options: *mut CUjit_option, jit_options_values: *mut *mut c_void,
            num_jit_options: c_uint, library_options: *mut CUlibraryOption, library_option_values: *mut *mut c_void,
            num_library_options: c_uint) -> CUresult
            { modules::load_library(c"cuLibraryLoadData") giving library }
        fn cuLibraryLoadFromFile(
            library: *mut CUlibrary, file_name: *const c_char, jit_options: *mut CUjit_option,
            jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut CUlibraryOption,
            library_option_values: *mut *mut c_void, num_library_options: c_uint) -> CUresult
            { modules::load_library(c"cuLibraryLoadFromFile") giving library }
        fn cuLibraryUnload(library: CUlibrary) -> CUresult { modules::unload() }
        fn cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) -> CUresult { modules::find() }
        fn cuLibraryGetGlobal(pointer: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) -> CUresult
            { modules::find_variable(c"cuLibraryGetGlobal") giving pointer }
        fn cuLibraryGetManaged(
            pointer: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) -> CUresult
            { modules::find_variable(c"cuLibraryGetManaged") giving pointer }
        fn cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel) -> CUresult { modules::find() }
        fn cuFuncLoad(function: CUfunction) -> CUresult { modules::find() }
        fn cuCheckpointProcessCheckpoint(pid: c_int, args: *mut CUcheckpointCheckpointArgs) -> CUresult;
        fn cuCheckpointProcessRestore(pid: c_int, args: *mut CUcheckpointRestoreArgs) -> CUresult;
    }
    Launch {
        fn cuLaunch(function: CUfunction) -> CUresult { kernels::launch(function, form(DEFAULT), c"cuLaunch") }
        fn cuLaunchGrid(function: CUfunction, grid_width: c_int, grid_height: c_int) -> CUresult
            { kernels::launch(function, form(DEFAULT), c"cuLaunchGrid") }
        fn cuLaunchGridAsync(function: CUfunction, grid_width: c_int, grid_height: c_int, stream: CUstream) -> CUresult
            { kernels::launch(function, form(stream), c"cuLaunchGridAsync") }
        fn cuLaunchKernel(
            function: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint,
            block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CUstream,
            kernel_params: *mut *mut c_void, extra: *mut *mut c_void) and cuLaunchKernel_ptsz -> CUresult
            { kernels::launch(function, form(stream), c"cuLaunchKernel") }
        fn cuLaunchKernelEx(
            config: *const CUlaunchConfig, function: CUfunction, kernel_params: *mut *mut c_void,
            extra: *mut *mut c_void) and cuLaunchKernelEx_ptsz -> CUresult
            { kernels::launch_ex(function, form) copying config }
        fn cuLaunchCooperativeKernel(
            function: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint,
            block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CUstream,
            kernel_params: *mut *mut c_void) and cuLaunchCooperativeKernel_ptsz -> CUresult
            { kernels::launch(function, form(stream), c"cuLaunchCooperativeKernel") }
        fn cuLaunchCooperativeKernelMultiDevice(
            launch_params_list: *mut CUDA_LAUNCH_PARAMS, num_devices: c_uint, flags: c_uint) -> CUresult
            { kernels::launch_together[launch_params_list](num_devices) }
        fn cuGraphLaunch(graph: CUgraphExec, stream: CUstream) and cuGraphLaunch_ptsz -> CUresult
            { graphs::launch(graph, form(stream)) }
    }
    Copy {
        fn cuMemsetD8_v2(to: CUdeviceptr, value: c_uchar, count: usize) and cuMemsetD8_v2_ptds -> CUresult
            { gives copies::within_device(form(DEFAULT)) }
        fn cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) and cuMemsetD8Async_ptsz -> CUresult
            { gives copies::within_device(form(stream)) }
        fn cuMemsetD16_v2(to: CUdeviceptr, value: c_ushort, count: usize) and cuMemsetD16_v2_ptds -> CUresult
            { gives copies::within_device(form(DEFAULT)) }
        fn cuMemsetD16Async(
            to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) and cuMemsetD16Async_ptsz -> CUresult
            { gives copies::within_device(form(stream)) }
        fn cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize) and cuMemsetD32_v2_ptds -> CUresult
            { gives copies::within_device(form(DEFAULT)) }
        fn cuMemsetD32Async(
            to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) and cuMemsetD32Async_ptsz -> CUresult
            { gives copies::within_device(form(stream)) }
        fn cuMemsetD2D8_v2(
            to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize) and cuMemsetD2D8_v2_ptds -> CUresult
            { gives copies::within_device(form(DEFAULT)) }
        fn cuMemsetD2D8Async(
            to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize,
            stream: CUstream) and cuMemsetD2D8Async_ptsz -> CUresult
            { gives copies::within_device(form(stream)) }
        fn cuMemsetD2D16_v2(
            to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize) and cuMemsetD2D16_v2_ptds -> CUresult
            { gives copies::within_device(form(DEFAULT)) }
        fn cuMemsetD2D16Async(
            to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize,
            stream: CUstream) and cuMemsetD2D16Async_ptsz -> CUresult
            { gives copies::within_device(form(stream)) }
        fn cuMemsetD2D32_v2(
            to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize) and cuMemsetD2D32_v2_ptds -> CUresult
            { gives copies::within_device(form(DEFAULT)) }
        fn cuMemsetD2D32Async(
            to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize,
            stream: CUstream) and cuMemsetD2D32Async_ptsz -> CUresult
            { gives copies::within_device(form(stream)) }
        fn cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) and cuMemcpy_ptds -> CUresult
            { gives copies::copy(form(DEFAULT), to, from) }
        fn cuMemcpyPeer(
            to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext,
            bytes: usize) and cuMemcpyPeer_ptds -> CUresult
            { gives copies::between(form(DEFAULT), to, from) }
        fn cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D_PEER) and cuMemcpy3DPeer_ptds -> CUresult
            { gives copies::box_between[copy](form(DEFAULT)) }
        fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) and cuMemcpyAsync_ptsz -> CUresult
            { gives copies::copy(form(stream), to, from) }
        fn cuMemcpyPeerAsync(
            to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize,
            stream: CUstream) and cuMemcpyPeerAsync_ptsz -> CUresult
            { gives copies::between(form(stream), to, from) }
        fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) and cuMemcpy3DPeerAsync_ptsz -> CUresult
            { gives copies::box_between[copy](form(stream)) }
        fn cuMemcpyWithAttributesAsync(
            to: CUdeviceptr, from: CUdeviceptr, size: usize, attributes: *mut CUmemcpyAttributes,
            stream: CUstream) and cuMemcpyWithAttributesAsync_ptsz -> CUresult
            { gives copies::copy(form(stream), to, from) }
        fn cuMemcpy3DWithAttributesAsync(
            copy: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong,
            stream: CUstream) and cuMemcpy3DWithAttributesAsync_ptsz -> CUresult
            { gives copies::within_device(form(stream)) }
        fn cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) and cuMemcpyDtoD_v2_ptds -> CUresult
            { gives copies::within_device(form(DEFAULT)) }
        fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D) and cuMemcpy2D_v2_ptds -> CUresult
            { gives copies::rectangle[copy](form(DEFAULT)) }
        fn cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D) and cuMemcpy2DUnaligned_v2_ptds -> CUresult
            { gives copies::rectangle[copy](form(DEFAULT)) }
        fn cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D) and cuMemcpy3D_v2_ptds -> CUresult
            { gives copies::a_box[copy](form(DEFAULT)) }
        fn cuMemcpyAtoA_v2(
            to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize) and cuMemcpyAtoA_v2_ptds -> CUresult
            { gives copies::within_device(form(DEFAULT)) }
        fn cuMemcpyAtoD_v2(
            to: CUdeviceptr, from: CUarray, from_offset: usize, bytes: usize) and cuMemcpyAtoD_v2_ptds -> CUresult
            { gives copies::within_device(form(DEFAULT)) }
        fn cuMemcpyDtoA_v2(to: CUarray, to_offset: usize, from: CUdeviceptr, bytes: usize) and cuMemcpyDtoA_v2_ptds -> CUresult
            { gives copies::within_device(form(DEFAULT)) }
        fn cuMemcpyDtoDAsync_v2(
            to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) and cuMemcpyDtoDAsync_v2_ptsz -> CUresult
            { gives copies::within_device(form(stream)) }
        fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream) and cuMemcpy2DAsync_v2_ptsz -> CUresult
            { gives copies::rectangle[copy](form(stream)) }
        fn cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream) and cuMemcpy3DAsync_v2_ptsz -> CUresult
            { gives copies::a_box[copy](form(stream)) }
        fn cuMemcpyBatchAsync(
            to: *mut CUdeviceptr, from: *mut CUdeviceptr, sizes: *mut usize, count: usize, attributes: *mut CUmemcpyAttributes,
            attribute_places: *mut usize, attribute_count: usize, failed: *mut usize,
            stream: CUstream) and cuMemcpyBatchAsync_ptsz -> CUresult
            { gives copies::several[to, from](form(stream), count) }
        fn cuMemcpyBatchAsync_v2(
            to: *mut CUdeviceptr, from: *mut CUdeviceptr, sizes: *mut usize, count: usize, attributes: *mut CUmemcpyAttributes,
            attribute_places: *mut usize, attribute_count: usize, stream: CUstream) and cuMemcpyBatchAsync_v2_ptsz -> CUresult
            { gives copies::several[to, from](form(stream), count) }
        fn cuMemcpy3DBatchAsync(
            count: usize, copies: *mut CUDA_MEMCPY3D_BATCH_OP, failed: *mut usize, flags: c_ulonglong,
            stream: CUstream) and cuMemcpy3DBatchAsync_ptsz -> CUresult
            { gives copies::within_device(form(stream)) }
        fn cuMemcpy3DBatchAsync_v2(
            count: usize, copies: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong,
            stream: CUstream) and cuMemcpy3DBatchAsync_v2_ptsz -> CUresult
            { gives copies::within_device(form(stream)) }
    }
    Capture {
        fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) and cuStreamWaitEvent_ptsz -> CUresult
            { gives copies::join() }
        fn cuStreamBeginCapture(stream: CUstream) and cuStreamBeginCapture_ptsz -> CUresult
            { gives copies::begin_capture() }
        fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) and cuStreamBeginCapture_v2_ptsz -> CUresult
            { gives copies::begin_capture() }
        fn cuStreamBeginCaptureToGraph(
            stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode, dependency_data: *const CUgraphEdgeData,
            dependency_count: usize, mode: CUstreamCaptureMode) and cuStreamBeginCaptureToGraph_ptsz -> CUresult
            { gives copies::begin_capture() }
        fn cuStreamBeginRecaptureToGraph(
            stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph, callback: CUgraphRecaptureCallback,
            user_data: *mut c_void) and cuStreamBeginRecaptureToGraph_ptsz -> CUresult
            { gives copies::begin_capture() }
        fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) and cuStreamEndCapture_ptsz -> CUresult
            { gives copies::end_capture(form(stream)) }
    }
    Wait {
        fn cuStreamDestroy(stream: CUstream) -> CUresult { streams::destroy(stream) }
        fn cuStreamDestroy_v2(stream: CUstream) -> CUresult { streams::destroy(stream) }
    }
    View {
        fn cuMemGetInfo(free: *mut c_uint, total: *mut c_uint) -> CUresult { memory::info_32[free, total]() }
        fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult { memory::info[free, total]() }
        fn cuDeviceTotalMem(bytes: *mut c_uint, device: CUdevice) -> CUresult { memory::total_32[bytes](device) }
        fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> CUresult { memory::total[bytes](device) }
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
    state: State::new(),
};
