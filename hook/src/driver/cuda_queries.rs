//! The functions of libcuda that the hook itself calls.

use core::ffi::{c_int, c_uint, c_void};

use super::args::{Argument, Number, Out};
use super::cuda::CUDA;
use super::table::{ask, ask_exported};

ask! { CUDA, cuda;
    fn cuDeviceGetCount(count: &mut c_int) -> CUresult;
    fn cuDeviceGetUuid_v2(uuid: &mut CUuuid, device: CUdevice) -> CUresult;
    fn cuDeviceGetUuid(uuid: &mut CUuuid, device: CUdevice) -> CUresult;
    fn cuDeviceGetAttribute(value: &mut c_int, attribute: CUdevice_attribute, device: CUdevice) -> CUresult;
    fn cuCtxGetCurrent(context: &mut CUcontext) -> CUresult;
    fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: &mut c_uint, active: &mut c_int) -> CUresult;
    fn cuArrayGetMemoryRequirements(
        requirements: &mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        array: CUarray,
        device: CUdevice,
    ) -> CUresult;
    fn cuMipmappedArrayGetMemoryRequirements(
        requirements: &mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        mipmap: CUmipmappedArray,
        device: CUdevice,
    ) -> CUresult;
    fn cuPointerGetAttributes(
        count: c_uint,
        attributes: Out<'_, CUpointer_attribute>,
        places: Out<'_, *mut c_void>,
        pointer: CUdeviceptr,
    ) -> CUresult;
    fn cuCtxPushCurrent_v2(context: CUcontext) -> CUresult;
    fn cuCtxPopCurrent_v2(context: &mut CUcontext) -> CUresult;
    fn cuStreamGetCtx(stream: CUstream, context: &mut CUcontext) -> CUresult;
    fn cuCtxGetLimit(value: &mut usize, limit: CUlimit) -> CUresult;
    fn cuStreamSynchronize(stream: CUstream) -> CUresult;
    fn cuStreamSynchronize_ptsz(stream: CUstream) -> CUresult;
    fn cuStreamQuery(stream: CUstream) -> CUresult;
    fn cuStreamQuery_ptsz(stream: CUstream) -> CUresult;
    fn cuEventCreate(event: &mut CUevent, flags: c_uint) -> CUresult;
    fn cuEventDestroy_v2(event: CUevent) -> CUresult;
    fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult;
    fn cuEventRecord_ptsz(event: CUevent, stream: CUstream) -> CUresult;
    fn cuEventQuery(event: CUevent) -> CUresult;
    fn cuStreamIsCapturing(stream: CUstream, status: &mut CUstreamCaptureStatus) -> CUresult;
    fn cuStreamIsCapturing_ptsz(stream: CUstream, status: &mut CUstreamCaptureStatus) -> CUresult;
    fn cuThreadExchangeStreamCaptureMode(mode: &mut CUstreamCaptureMode) -> CUresult;
    fn cuDeviceGetMemPool(pool: &mut CUmemoryPool, device: CUdevice) -> CUresult;
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: Number<'_>) -> CUresult;
    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: Number<'_>) -> CUresult;
    fn cuMemGetAllocationPropertiesFromHandle(
        properties: &mut CUmemAllocationProp,
        handle: CUmemGenericAllocationHandle,
    ) -> CUresult;
    fn cuMemGetAddressRange_v2(base: &mut CUdeviceptr, size: &mut usize, pointer: CUdeviceptr) -> CUresult;
    fn cuGraphGetNodes(graph: CUgraph, nodes: Out<'_, CUgraphNode>, count: &mut usize) -> CUresult;
    fn cuGraphNodeGetType(node: CUgraphNode, kind: &mut CUgraphNodeType) -> CUresult;
    fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, params: &mut CUDA_MEM_ALLOC_NODE_PARAMS) -> CUresult;
    fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: &mut CUgraph) -> CUresult;
    fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: &mut CUDA_KERNEL_NODE_PARAMS_v2) -> CUresult;
    fn cuFuncGetAttribute(value: &mut c_int, attribute: CUfunction_attribute, function: CUfunction) -> CUresult;
}

ask_exported! { super::cuda::real;
    fn cuDevicePrimaryCtxRetain(context: &mut CUcontext, device: CUdevice) -> CUresult;
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult;
    fn cuCtxGetDevice(device: &mut CUdevice) -> CUresult;
    fn cuMemGetInfo_v2(free: &mut usize, total: &mut usize) -> CUresult;
    fn cuMemFree_v2(pointer: CUdeviceptr) -> CUresult;
    fn cuIpcCloseMemHandle(pointer: CUdeviceptr) -> CUresult;
    fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> CUresult;
    fn cuDeviceGraphMemTrim(device: CUdevice) -> CUresult;
    fn cuArray3DCreate_v2(array: &mut CUarray, shape: &CUDA_ARRAY3D_DESCRIPTOR) -> CUresult;
    fn cuArrayDestroy(array: CUarray) -> CUresult;
    fn cuMipmappedArrayCreate(array: &mut CUmipmappedArray, shape: &CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) -> CUresult;
    fn cuMipmappedArrayDestroy(array: CUmipmappedArray) -> CUresult;
    fn cuModuleUnload(module: CUmodule) -> CUresult;
    fn cuLibraryUnload(library: CUlibrary) -> CUresult;
    fn cuKernelGetFunction(function: &mut CUfunction, kernel: CUkernel) -> CUresult;
    fn cuStreamDestroy_v2(stream: CUstream) -> CUresult;
}
