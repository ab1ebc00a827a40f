//! Graphs: their memory nodes take memory when a graph is uploaded or first launched, and what they took stays for the next
//! launch. Kernels in them may make the GPU's stacks grow when a graph is instantiated.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use softmig_driver_sys::cuda::{
    CU_GRAPH_NODE_TYPE_GRAPH, CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_SUCCESS,
    CUdevice, CUgraph, CUgraphExec, CUgraphNode, CUresult,
};
use softmig_region::units;

use crate::driver::args::{Given, Out, zeroed};
use crate::driver::cuda_queries;
use crate::driver::stream::Stream;
use crate::identity::gate;
use crate::ledger::{self, CallGuard, Holding, Kind, LimitedGpu, here, nvml_usage, pools};
use crate::memory::stacks;
use crate::os::cells::Mapped;
use crate::pacing;

/// The memory of a graph grows by multiples of this (research/gpu-memory.md).
const STEP: u64 = 32 << 20;
/// A memory node takes multiples of this.
const PIECE: u64 = 2 << 20;
/// How deep graphs may lie in graphs.
const DEPTH: usize = 64;

/// Whether any graph with memory nodes was instantiated: else a launch need not look for it.
static ANY: AtomicBool = AtomicBool::new(false);

/// The needs of a graph's nodes.
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
    /// `None` if that cannot be told.
    fn from_graph(graph: CUgraph) -> Option<Self> {
        let mut needs = Self::default();
        needs.add(graph, DEPTH)?;
        Some(needs)
    }

    /// The GPU of the memory nodes, if anything is limited there.
    fn gpu(&self) -> Option<LimitedGpu> {
        LimitedGpu::on(self.device?)
    }

    /// The units of the memory nodes together.
    fn units(&self) -> u32 {
        units(self.bytes)
    }

    fn add(&mut self, graph: CUgraph, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let mut count = 0;
        // Without room the driver tells the number.
        let result = cuda_queries::cuGraphGetNodes(graph, Out::null(), &mut count);
        if result != CUDA_SUCCESS || count == 0 {
            // Not a graph: the driver will say so itself.
            return Some(());
        }
        let mut nodes: Mapped<CUgraphNode> = Mapped::new(count).ok()?;
        let result = cuda_queries::cuGraphGetNodes(graph, Out::list(&mut nodes), &mut count);
        if result != CUDA_SUCCESS {
            return None;
        }
        nodes
            .iter()
            .take(count)
            .try_for_each(|node| self.add_node(*node, depth))
    }

    fn add_node(&mut self, node: CUgraphNode, depth: usize) -> Option<()> {
        let mut kind = 0;
        if cuda_queries::cuGraphNodeGetType(node, &mut kind) != CUDA_SUCCESS {
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
                let result = cuda_queries::cuGraphChildGraphNodeGetGraph(node, &mut child);
                (result == CUDA_SUCCESS).then(|| self.add(child, depth))?
            }
            // The bodies of conditional nodes hold no memory nodes (CUDA programming guide).
            _ => Some(()),
        }
    }

    fn add_memory(&mut self, node: CUgraphNode) -> Option<()> {
        let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = zeroed();
        if cuda_queries::cuGraphMemAllocNodeGetParams(node, &mut params) != CUDA_SUCCESS {
            return None;
        }
        let bytes = (params.bytesize as u64).div_ceil(STEP).saturating_mul(STEP);
        self.bytes = self.bytes.saturating_add(bytes);
        // A node names its GPU itself. Nodes on several GPUs cannot be counted.
        let device = params.poolProps.location.id;
        let same = *self.device.get_or_insert(device) == device;
        same.then_some(())
    }

    fn add_kernel(&mut self, node: CUgraphNode) {
        let mut params: CUDA_KERNEL_NODE_PARAMS_v2 = zeroed();
        if cuda_queries::cuGraphKernelNodeGetParams_v2(node, &mut params) == CUDA_SUCCESS {
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
    call: &dyn Fn() -> CUresult,
    exec: &dyn Fn() -> Option<CUgraphExec>,
) -> CUresult {
    if !gate::is_limited_process() {
        return call();
    }
    let Some(needs) = Needs::from_graph(graph) else {
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    // A thread without a context may do this too.
    let here = here();
    let Some(gpu) = here.or_else(|| needs.gpu()) else {
        return call();
    };
    let guard = CallGuard::on(&gpu);
    if here.is_some() && !stacks::reserve(&gpu, &guard, needs.frame, function) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if let Some(gpu) = needs.gpu()
        && gpu.state().graph.swap(1, Ordering::Relaxed) == 0
    {
        // The first with memory nodes takes a piece for itself.
        gpu.state()
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
        && let Some(exec) = exec()
    {
        ANY.store(true, Ordering::Relaxed);
        let held = Holding {
            units: needs.units(),
            device: gpu.number(),
            count: 0,
            other: 0,
        };
        gpu.holdings().put(Kind::Graph, exec as u64, held);
    }
    result
}

/// Instantiates a graph.
pub(crate) fn instantiate(
    exec: &Given<CUgraphExec>,
    graph: CUgraph,
    call: impl Fn() -> CUresult,
) -> CUresult {
    made(graph, c"cuGraphInstantiate", &call, &|| exec.get())
}

/// The same with parameters, by which the graph may be uploaded at once.
pub(crate) fn instantiate_with_params(
    exec: &Given<CUgraphExec>,
    graph: CUgraph,
    call: impl Fn() -> CUresult,
) -> CUresult {
    made_with_params(graph, &call, &|| exec.get())
}

fn made_with_params(
    graph: CUgraph,
    call: &dyn Fn() -> CUresult,
    exec: &dyn Fn() -> Option<CUgraphExec>,
) -> CUresult {
    if !gate::is_limited_process() {
        return call();
    }
    let Some(needs) = Needs::from_graph(graph) else {
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    let units = needs.units();
    let name = c"cuGraphInstantiateWithParams";
    let Some(gpu) = needs.gpu() else {
        return made(graph, name, call, exec);
    };
    let guard = CallGuard::on(&gpu);
    if !gpu.reserve(&guard, units, name) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    drop(guard);
    let result = made(graph, name, call, exec);
    pools::graphs_grew(&gpu, units);
    result
}

/// Updates a graph that can be launched.
pub(crate) fn update(exec: CUgraphExec, graph: CUgraph, call: impl Fn() -> CUresult) -> CUresult {
    made(graph, c"cuGraphExecUpdate", &call, &|| Some(exec))
}

/// Changes a node of a graph that can be launched: another kernel's stacks may come now.
pub(crate) fn change_node(call: impl FnOnce() -> CUresult) -> CUresult {
    node_changed(call())
}

fn node_changed(result: CUresult) -> CUresult {
    match here().filter(|_| result == CUDA_SUCCESS) {
        Some(gpu) if !gpu.has_room() => CUDA_ERROR_OUT_OF_MEMORY,
        _ => result,
    }
}

/// Destroys a graph that can be launched.
pub(crate) fn destroy(exec: CUgraphExec, call: impl FnOnce() -> CUresult) -> CUresult {
    if let Some(holdings) = ledger::holdings() {
        // It holds nothing itself: what its launches took stays with the GPU's graphs.
        holdings.take(Kind::Graph, exec as u64);
    }
    call()
}

/// Launches or uploads a graph.
#[inline]
pub(crate) fn launched(
    exec: CUgraphExec,
    function: &CStr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    // Relaxed: a thread that launches a graph has seen it instantiated.
    let may_grow = ANY.load(Ordering::Relaxed) && gate::is_limited_process();
    let growth = match may_grow.then(|| Growth::reserve(exec, function)) {
        Some(Err(refused)) => return refused,
        Some(Ok(growth)) => growth,
        None => None,
    };
    let result = call();
    if let Some(growth) = growth {
        growth.settle();
    }
    result
}

/// The memory by which a GPU's graphs may grow when one is launched.
struct Growth {
    gpu: LimitedGpu,
    units: u32,
    _guard: CallGuard,
}

impl Growth {
    /// Reserves this memory.
    #[cold]
    #[inline(never)]
    fn reserve(exec: CUgraphExec, function: &CStr) -> Result<Option<Self>, CUresult> {
        let held = ledger::holdings().and_then(|holdings| holdings.get(Kind::Graph, exec as u64));
        let gpu = held.and_then(|held| LimitedGpu::on(held.device.into()));
        let (Some(held), Some(gpu)) = (held, gpu) else {
            return Ok(None);
        };
        let guard = CallGuard::on(&gpu);
        if !gpu.reserve(&guard, held.units, function) {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        Ok(Some(Self {
            gpu,
            units: held.units,
            _guard: guard,
        }))
    }

    /// Compares the reservation with what the graphs hold, once the driver was asked.
    #[cold]
    #[inline(never)]
    fn settle(self) {
        pools::graphs_grew(&self.gpu, self.units);
    }
}

/// Launches a graph, whose time is charged then.
#[inline]
pub(crate) fn launch(
    exec: CUgraphExec,
    stream: Stream,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    launched(exec, c"cuGraphLaunch", || pacing::paced(stream, call))
}

/// Makes a GPU's graphs give unused memory back.
pub(crate) fn trim(device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    if result == CUDA_SUCCESS
        && gate::is_limited_process()
        && let Some(gpu) = LimitedGpu::on(device)
    {
        let _guard = CallGuard::on(&gpu);
        pools::refresh_graphs(&gpu);
    }
    result
}
