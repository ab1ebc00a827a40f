//! The functions of libcuda that the hook calls and does not export.

use core::ffi::{c_int, c_void};

use crate::table::ask;

ask! { CUDA, cuda;
    fn cuDeviceGetCount(count: *mut c_int) -> CUresult;
    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) -> CUresult;
    fn cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice) -> CUresult;
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) -> CUresult;
    fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult;
    fn cuCtxGetLimit(value: *mut usize, limit: CUlimit) -> CUresult;
    fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) -> CUresult;
    fn cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) -> CUresult;
    fn cuStreamIsCapturing_ptsz(stream: CUstream, status: *mut CUstreamCaptureStatus) -> CUresult;
    fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) -> CUresult;
    fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice) -> CUresult;
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) -> CUresult;
    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void) -> CUresult;
    fn cuMemGetAllocationPropertiesFromHandle(
        properties: *mut CUmemAllocationProp,
        handle: CUmemGenericAllocationHandle,
    ) -> CUresult;
    fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, pointer: CUdeviceptr) -> CUresult;
    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult;
    fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType) -> CUresult;
    fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> CUresult;
    fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph) -> CUresult;
    fn cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction) -> CUresult;
}
