//! Graphs: their memory nodes take memory when a graph is uploaded or first launched, and what they took stays for the next
//! launch. Kernels in them may make the GPU's stacks grow when a graph is instantiated.

use core::ffi::{CStr, c_char, c_ulonglong};
use core::sync::atomic::{AtomicBool, Ordering};

use softmig_driver_sys::cuda::{
    CU_GRAPH_NODE_TYPE_GRAPH, CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v2,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_SUCCESS, CUdevice, CUgraph, CUgraphExec,
    CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo, CUgraphNode, CUgraphNodeParams, CUresult,
    CUstream,
};
use softmig_region::units;

use crate::driver::cuda::real;
use crate::driver::cuda_queries;
use crate::driver::stream::Stream;
use crate::identity::gate;
use crate::ledger::{self, Busy, Holding, Kind, Limited, here, nvml_usage, pools};
use crate::memory::stacks;
use crate::os;
use crate::pacing::{self, UNKNOWN_TIME, Work};

/// The memory of a graph grows by multiples of this (docs/gpu-notes.md).
const STEP: u64 = 32 << 20;
/// A memory node takes multiples of this.
const PIECE: u64 = 2 << 20;
/// How deep graphs may lie in graphs.
const DEPTH: usize = 64;

/// Whether any graph with memory nodes was instantiated: else a launch need not look for it.
static ANY: AtomicBool = AtomicBool::new(false);

/// What a graph's nodes ask for.
#[derive(Clone, Copy, Default)]
struct Needs {
    /// The bytes of its memory nodes, each rounded up as the driver may.
    bytes: u64,
    /// The GPU that they lie on.
    device: Option<CUdevice>,
    /// The largest frame of its kernels.
    frame: u32,
}

impl Needs {
    /// `None` if nobody can tell.
    fn of(graph: CUgraph) -> Option<Self> {
        let mut needs = Self::default();
        needs.add(graph, DEPTH)?;
        Some(needs)
    }

    /// The GPU of the memory nodes, if anything is limited there.
    fn gpu(&self) -> Option<Limited> {
        Limited::on(self.device?)
    }

    /// What the memory nodes take together.
    fn units(&self) -> u32 {
        units(self.bytes)
    }

    fn add(&mut self, graph: CUgraph, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let mut count = 0;
        // SAFETY: with no room the driver tells the number.
        let result =
            unsafe { cuda_queries::cuGraphGetNodes(graph, core::ptr::null_mut(), &raw mut count) };
        if result != CUDA_SUCCESS || count == 0 {
            // Not a graph: the driver will say so itself.
            return Some(());
        }
        let size = count.checked_mul(size_of::<CUgraphNode>())?;
        let start = os::map(size).ok()?;
        let nodes = start.cast::<CUgraphNode>();
        // SAFETY: there is room for so many.
        let result =
            unsafe { cuda_queries::cuGraphGetNodes(graph, nodes.as_ptr(), &raw mut count) };
        let mut added = None;
        if result == CUDA_SUCCESS {
            // SAFETY: the driver wrote at most as many as there was room for; the rest is null.
            let nodes = unsafe { core::slice::from_raw_parts(nodes.as_ptr(), count) };
            added = nodes
                .iter()
                .try_for_each(|node| self.add_node(*node, depth));
        }
        os::unmap(start, size);
        added
    }

    fn add_node(&mut self, node: CUgraphNode, depth: usize) -> Option<()> {
        let mut kind = 0;
        // SAFETY: a node of the program's graph, and room for the answer.
        let result = unsafe { cuda_queries::cuGraphNodeGetType(node, &raw mut kind) };
        if result != CUDA_SUCCESS {
            return None;
        }
        match kind {
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => self.add_memory(node),
            CU_GRAPH_NODE_TYPE_KERNEL => {
                self.add_kernel(node);
                Some(())
            }
            CU_GRAPH_NODE_TYPE_GRAPH => {
                let mut child: CUgraph = core::ptr::null_mut();
                // SAFETY: as above.
                let result =
                    unsafe { cuda_queries::cuGraphChildGraphNodeGetGraph(node, &raw mut child) };
                (result == CUDA_SUCCESS).then(|| self.add(child, depth))?
            }
            // The bodies of conditional nodes hold no memory nodes (CUDA programming guide).
            _ => Some(()),
        }
    }

    fn add_memory(&mut self, node: CUgraphNode) -> Option<()> {
        let mut params = core::mem::MaybeUninit::<CUDA_MEM_ALLOC_NODE_PARAMS>::zeroed();
        // SAFETY: as above.
        let result =
            unsafe { cuda_queries::cuGraphMemAllocNodeGetParams(node, params.as_mut_ptr()) };
        if result != CUDA_SUCCESS {
            return None;
        }
        // SAFETY: plain numbers and pointers, all zero before the driver wrote.
        let params = unsafe { params.assume_init_ref() };
        let bytes = (params.bytesize as u64).div_ceil(STEP).saturating_mul(STEP);
        self.bytes = self.bytes.saturating_add(bytes);
        // A node names its GPU itself. Nodes on several GPUs are nobody's to count.
        let device = params.poolProps.location.id;
        let same = *self.device.get_or_insert(device) == device;
        same.then_some(())
    }

    fn add_kernel(&mut self, node: CUgraphNode) {
        let mut params = core::mem::MaybeUninit::<CUDA_KERNEL_NODE_PARAMS_v2>::zeroed();
        // SAFETY: as above.
        let result =
            unsafe { cuda_queries::cuGraphKernelNodeGetParams_v2(node, params.as_mut_ptr()) };
        if result == CUDA_SUCCESS {
            // SAFETY: as above.
            let params = unsafe { params.assume_init_ref() };
            let function = if params.func.is_null() {
                params.kern.cast()
            } else {
                params.func
            };
            self.frame = self.frame.max(stacks::frame_of(function));
        }
    }
}

/// Instantiates or changes a graph: its kernels' stacks come now, the memory of its nodes when it is launched.
fn made(
    graph: CUgraph,
    function: &CStr,
    call: impl FnOnce() -> CUresult,
    exec: impl FnOnce() -> CUgraphExec,
) -> CUresult {
    if !gate::is_limited_process() {
        return call();
    }
    let Some(needs) = Needs::of(graph) else {
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    // A thread without a context may do this too.
    let here = here();
    let Some(gpu) = here.or_else(|| needs.gpu()) else {
        return call();
    };
    let busy = Busy::on(&gpu);
    if here.is_some() && !stacks::reserve(&gpu, &busy, needs.frame, function) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if let Some(gpu) = needs.gpu()
        && gpu.place().graph.swap(1, Ordering::Relaxed) == 0
    {
        // The first with memory nodes takes a piece for itself.
        gpu.place()
            .overhead
            .fetch_add(units(PIECE), Ordering::Relaxed);
        gpu.charge(units(PIECE));
    }
    let result = call();
    // A large graph takes memory itself.
    if here.is_some() {
        nvml_usage::after_code(&gpu);
    }
    if result == CUDA_SUCCESS
        && let Some(gpu) = needs.gpu()
    {
        ANY.store(true, Ordering::Relaxed);
        let held = Holding {
            units: needs.units(),
            device: gpu.number(),
            count: 0,
            other: 0,
        };
        gpu.holdings().put(Kind::Graph, exec() as u64, held);
    }
    result
}

pub(crate) unsafe fn instantiate(
    place: *mut CUgraphExec,
    graph: CUgraph,
    error: *mut CUgraphNode,
    log: *mut c_char,
    size: usize,
) -> CUresult {
    made(
        graph,
        c"cuGraphInstantiate",
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        || unsafe { real::cuGraphInstantiate(place, graph, error, log, size) },
        // SAFETY: the driver has just written there.
        || unsafe { place.read() },
    )
}

pub(crate) unsafe fn instantiate_v2(
    place: *mut CUgraphExec,
    graph: CUgraph,
    error: *mut CUgraphNode,
    log: *mut c_char,
    size: usize,
) -> CUresult {
    made(
        graph,
        c"cuGraphInstantiate",
        // SAFETY: as above.
        || unsafe { real::cuGraphInstantiate_v2(place, graph, error, log, size) },
        // SAFETY: as above.
        || unsafe { place.read() },
    )
}

pub(crate) unsafe fn instantiate_with_flags(
    place: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> CUresult {
    made(
        graph,
        c"cuGraphInstantiate",
        // SAFETY: as above.
        || unsafe { real::cuGraphInstantiateWithFlags(place, graph, flags) },
        // SAFETY: as above.
        || unsafe { place.read() },
    )
}

/// With these parameters the graph may be uploaded at once.
fn made_with(
    graph: CUgraph,
    call: impl FnOnce() -> CUresult,
    exec: impl FnOnce() -> CUgraphExec,
) -> CUresult {
    if !gate::is_limited_process() {
        return call();
    }
    let Some(needs) = Needs::of(graph) else {
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    let units = needs.units();
    let name = c"cuGraphInstantiateWithParams";
    let Some(gpu) = needs.gpu() else {
        return made(graph, name, call, exec);
    };
    let busy = Busy::on(&gpu);
    if !gpu.reserve(&busy, units, name) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    drop(busy);
    let result = made(graph, name, call, exec);
    pools::graphs_grew(&gpu, units);
    result
}

pub(crate) unsafe fn instantiate_with_params(
    place: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> CUresult {
    made_with(
        graph,
        // SAFETY: as above.
        || unsafe { real::cuGraphInstantiateWithParams(place, graph, params) },
        // SAFETY: as above.
        || unsafe { place.read() },
    )
}

pub(crate) unsafe fn instantiate_with_params_ptsz(
    place: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> CUresult {
    made_with(
        graph,
        // SAFETY: as above.
        || unsafe { real::cuGraphInstantiateWithParams_ptsz(place, graph, params) },
        // SAFETY: as above.
        || unsafe { place.read() },
    )
}

pub(crate) unsafe fn update(
    exec: CUgraphExec,
    graph: CUgraph,
    error: *mut CUgraphNode,
    outcome: *mut CUgraphExecUpdateResult,
) -> CUresult {
    made(
        graph,
        c"cuGraphExecUpdate",
        // SAFETY: as above.
        || unsafe { real::cuGraphExecUpdate(exec, graph, error, outcome) },
        || exec,
    )
}

pub(crate) unsafe fn update_v2(
    exec: CUgraphExec,
    graph: CUgraph,
    info: *mut CUgraphExecUpdateResultInfo,
) -> CUresult {
    made(
        graph,
        c"cuGraphExecUpdate",
        // SAFETY: as above.
        || unsafe { real::cuGraphExecUpdate_v2(exec, graph, info) },
        || exec,
    )
}

/// Changes a node of a graph that can be launched: another kernel's stacks may come now.
fn changed(result: CUresult) -> CUresult {
    match here().filter(|_| result == CUDA_SUCCESS) {
        Some(gpu) if !gpu.has_room() => CUDA_ERROR_OUT_OF_MEMORY,
        _ => result,
    }
}

pub(crate) unsafe fn set_params(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *mut CUgraphNodeParams,
) -> CUresult {
    // SAFETY: as above.
    changed(unsafe { real::cuGraphExecNodeSetParams(exec, node, params) })
}

pub(crate) unsafe fn set_child(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) -> CUresult {
    // SAFETY: as above.
    changed(unsafe { real::cuGraphExecChildGraphNodeSetParams(exec, node, child) })
}

pub(crate) unsafe fn destroy(exec: CUgraphExec) -> CUresult {
    if let Some(holdings) = ledger::holdings() {
        // It holds nothing itself: what its launches took stays with the GPU's graphs.
        holdings.take(Kind::Graph, exec as u64);
    }
    // SAFETY: as above.
    unsafe { real::cuGraphExecDestroy(exec) }
}

/// Launches or uploads a graph.
#[inline]
fn launched(exec: CUgraphExec, function: &CStr, call: impl FnOnce() -> CUresult) -> CUresult {
    // Relaxed: whoever launches a graph has seen it instantiated.
    if !ANY.load(Ordering::Relaxed) || !gate::is_limited_process() {
        return call();
    }
    launched_with_memory(exec, function, call)
}

#[cold]
fn launched_with_memory(
    exec: CUgraphExec,
    function: &CStr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let held = ledger::holdings().and_then(|holdings| holdings.get(Kind::Graph, exec as u64));
    let gpu = held.and_then(|held| Limited::on(held.device.into()));
    let (Some(held), Some(gpu)) = (held, gpu) else {
        return call();
    };
    let busy = Busy::on(&gpu);
    if !gpu.reserve(&busy, held.units, function) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let result = call();
    pools::graphs_grew(&gpu, held.units);
    result
}

/// The time of a graph is charged when it is launched.
fn work(exec: CUgraphExec) -> Work {
    Work {
        what: exec as u64,
        size: 0,
        is_chained: false,
        guess: UNKNOWN_TIME,
    }
}

pub(crate) unsafe fn launch(exec: CUgraphExec, stream: CUstream) -> CUresult {
    launched(exec, c"cuGraphLaunch", || {
        pacing::paced(
            Stream::plain(stream),
            || work(exec),
            || {
                // SAFETY: as above.
                unsafe { real::cuGraphLaunch(exec, stream) }
            },
        )
    })
}

pub(crate) unsafe fn launch_ptsz(exec: CUgraphExec, stream: CUstream) -> CUresult {
    launched(exec, c"cuGraphLaunch", || {
        pacing::paced(
            Stream::per_thread(stream),
            || work(exec),
            || {
                // SAFETY: as above.
                unsafe { real::cuGraphLaunch_ptsz(exec, stream) }
            },
        )
    })
}

pub(crate) unsafe fn upload(exec: CUgraphExec, stream: CUstream) -> CUresult {
    launched(exec, c"cuGraphUpload", || {
        // SAFETY: as above.
        unsafe { real::cuGraphUpload(exec, stream) }
    })
}

pub(crate) unsafe fn upload_ptsz(exec: CUgraphExec, stream: CUstream) -> CUresult {
    launched(exec, c"cuGraphUpload", || {
        // SAFETY: as above.
        unsafe { real::cuGraphUpload_ptsz(exec, stream) }
    })
}

pub(crate) unsafe fn trim(device: CUdevice) -> CUresult {
    // SAFETY: as above.
    let result = unsafe { real::cuDeviceGraphMemTrim(device) };
    if result == CUDA_SUCCESS
        && gate::is_limited_process()
        && let Some(gpu) = Limited::on(device)
    {
        let _busy = Busy::on(&gpu);
        pools::refresh_graphs(&gpu);
    }
    result
}
