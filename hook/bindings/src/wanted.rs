//! The declarations that are generated besides the functions, and the places where the headers of CUDA 12 and 13 may
//! differ.

/// Types whose fields the hook or the fake driver looks into. All others keep their size and alignment only.
pub(crate) const FULL: &[&str] = &[
    "CUDA_ARRAY3D_DESCRIPTOR",
    "CUDA_ARRAY3D_DESCRIPTOR_v1",
    "CUDA_ARRAY_DESCRIPTOR",
    "CUDA_ARRAY_DESCRIPTOR_v1",
    "CUDA_ARRAY_MEMORY_REQUIREMENTS",
    "CUDA_CHILD_GRAPH_NODE_PARAMS",
    "CUDA_EXTERNAL_MEMORY_BUFFER_DESC",
    "CUDA_EXTERNAL_MEMORY_HANDLE_DESC",
    "CUDA_GRAPH_INSTANTIATE_PARAMS",
    "CUDA_KERNEL_NODE_PARAMS_v2",
    "CUDA_KERNEL_NODE_PARAMS_v3",
    "CUDA_LAUNCH_PARAMS",
    "CUDA_MEMCPY2D_v2",
    "CUDA_MEMCPY3D_PEER_v1",
    "CUDA_MEMCPY3D_v2",
    "CUDA_MEM_ALLOC_NODE_PARAMS_v1",
    "CUDA_MEM_ALLOC_NODE_PARAMS_v2",
    "CUDA_MEM_FREE_NODE_PARAMS",
    "CUctxCreateParams",
    "CUgraphExecUpdateResultInfo",
    "CUgraphNodeParams",
    "CUipcMemHandle",
    "CUlaunchAttribute",
    "CUlaunchConfig",
    "CUmulticastObjectProp",
    "CUmemAccessDesc",
    "CUmemAllocationProp",
    "CUmemLocation",
    "CUmemPoolProps",
    "CUuuid",
    "nvmlAccountingStats_t",
    "nvmlDeviceAttributes_t",
    "nvmlMemory_t",
    "nvmlMemory_v2_t",
    "nvmlPciInfo_t",
    "nvmlProcessDetailList_t",
    "nvmlProcessDetail_v1_t",
    "nvmlProcessInfo_t",
    "nvmlProcessInfo_v1_t",
    "nvmlProcessUtilizationInfo_v1_t",
    "nvmlProcessUtilizationSample_t",
    "nvmlProcessesUtilizationInfo_t",
    "nvmlUtilization_t",
    "nvmlValue_t",
];

/// Enums that no signature names, since the functions take their values as plain integers.
pub(crate) const ENUMS: &[&str] = &[
    "CUctx_flags",
    "CUdriverProcAddress_flags",
    "CUevent_flags",
    "CUipcMem_flags",
    "CUmemAttach_flags",
    "CUmemorytype",
    "CUpointer_attribute",
    "CUstream_flags",
];

/// Macros with a number in them, as regular expressions.
pub(crate) const MACROS: &[&str] = &[
    "CUDA_ARRAY3D_.*",
    "NVML_.*_BUFFER_.*SIZE",
    "NVML_INIT_FLAG_.*",
];

/// Declarations in which CUDA 13 differs from CUDA 12, with the one to take and the reason.
pub(crate) const DIFFERENT: &[(&str, Take, &str)] = &[
    (
        "CUdevResource_st",
        Take::Cuda12,
        "CUDA 13 wants it on 8 bytes, but a program made with CUDA 12 passes one on 4",
    ),
    (
        "CUgraphChildGraphNodeOwnership_enum",
        Take::Cuda13,
        "CUDA 13 adds a value below 0; both are four bytes",
    ),
    (
        "CUgraphNodeParams_st__bindgen_ty_1",
        Take::Cuda12,
        "CUDA 13 adds a view of the same bytes as characters",
    ),
    (
        "CUmemLocation_st",
        Take::Cuda12,
        "CUDA 13 lays device and locality domain, a byte each, over id, for the one type of location that has domains",
    ),
    (
        "CUmemPoolProps_st",
        Take::Cuda13,
        "CUDA 13 names a byte that was reserved",
    ),
];

/// Which of two declarations to take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// The older one.
    Cuda12,
    /// The newer one.
    Cuda13,
}
