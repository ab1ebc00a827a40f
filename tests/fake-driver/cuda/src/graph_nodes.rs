//! Nodes that a program adds to a graph itself.

use softmig_driver_sys::cuda::*;

use crate::Outcome;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::graphs::{self, NodeWork};
use crate::launches::Arguments;
use crate::work::{Op, Shape};
use crate::{In, Out};
use crate::{graph_memory, launches};

exports! {
    static SYMBOLS;

    /// Adds a kernel.
    fn cuGraphAddKernelNode_v2 [cuGraphAddKernelNode 12000] (
        out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, kernel: In<CUDA_KERNEL_NODE_PARAMS>
    ) => locked(|driver| {
        let kernel = kernel.get()?;
        let shape = Shape {
            grid: [kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ],
            block: [kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ],
            shared: kernel.sharedMemBytes,
        };
        let arguments = (kernel.kernelParams, kernel.extra);
        let work = kernel_work(driver, kernel.func, kernel.kern, shape, arguments)?;
        out.set(graphs::add(driver, graph as usize, after, count, work)?)
    });

    /// Adds a graph as a node: a copy of it.
    fn cuGraphAddChildGraphNode [cuGraphAddChildGraphNode 10000] (
        out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, child: CUgraph
    ) => locked(|driver| {
        let work = driver.graphs.embed(graph as usize, child as usize, false)?;
        out.set(graphs::add(driver, graph as usize, after, count, work)?)
    });

    /// Adds memory to be taken, and says where it will be.
    fn cuGraphAddMemAllocNode [cuGraphAddMemAllocNode 11040] (
        out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize,
        memory: Out<CUDA_MEM_ALLOC_NODE_PARAMS>
    ) => locked(|driver| {
        let mut asked = memory.get()?;
        let address = graph_memory::plan(driver, &asked.poolProps, asked.bytesize)?;
        out.set(graphs::add(driver, graph as usize, after, count, NodeWork::Allocate(address))?)?;
        asked.dptr = address;
        memory.set(asked)
    });

    /// Adds memory to be given back.
    fn cuGraphAddMemFreeNode [cuGraphAddMemFreeNode 11040] (
        out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, address: CUdeviceptr
    ) => locked(|driver| {
        graph_memory::is_planned(driver, address)?;
        out.set(graphs::add(driver, graph as usize, after, count, NodeWork::Free(address))?)
    });

    /// Adds a node of any of these kinds.
    fn cuGraphAddNode [cuGraphAddNode 12020] (
        out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, node: Out<CUgraphNodeParams>
    ) => locked(|driver| add(driver, out, graph as usize, after, count, node));

    /// Adds a node of any of these kinds; edges are all alike here.
    fn cuGraphAddNode_v3 [cuGraphAddNode 13040] (
        out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, _edges: In<CUgraphEdgeData>, count: usize,
        node: Out<CUgraphNodeParams>
    ) => locked(|driver| add(driver, out, graph as usize, after, count, node));

    /// Adds a node of any of these kinds; edges are all alike here.
    fn cuGraphAddNode_v2 [cuGraphAddNode 12030] (
        out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, _edges: In<CUgraphEdgeData>, count: usize,
        node: Out<CUgraphNodeParams>
    ) => locked(|driver| add(driver, out, graph as usize, after, count, node));
}

fn kernel_work(
    driver: &Driver,
    function: CUfunction,
    kernel: CUkernel,
    shape: Shape,
    arguments: Arguments,
) -> Outcome<NodeWork> {
    let function = if function.is_null() {
        kernel as usize
    } else {
        function as usize
    };
    let kernel = launches::kernel(driver, function, shape, arguments)?;
    Ok(NodeWork::Op(Op::Kernel(kernel)))
}

/// The kernel that a node of any kind is asked to be, once its type says so.
pub(crate) fn kernel_of(driver: &Driver, asked: &CUgraphNodeParams) -> Outcome<NodeWork> {
    // SAFETY: the type says which part of the union the program filled in, and any bytes are such parameters.
    let kernel = unsafe { asked.__bindgen_anon_1.kernel };
    let shape = Shape {
        grid: [kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ],
        block: [kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ],
        shared: kernel.sharedMemBytes,
    };
    let arguments = (kernel.kernelParams, kernel.extra);
    kernel_work(driver, kernel.func, kernel.kern, shape, arguments)
}

fn add(
    driver: &mut Driver,
    out: Out<CUgraphNode>,
    graph: usize,
    after: In<CUgraphNode>,
    count: usize,
    node: Out<CUgraphNodeParams>,
) -> Outcome {
    let mut asked = node.get()?;
    let work = match asked.type_ {
        CU_GRAPH_NODE_TYPE_KERNEL => kernel_of(driver, &asked)?,
        CU_GRAPH_NODE_TYPE_GRAPH => {
            // SAFETY: the type says which part of the union the program filled in, and any bytes are such parameters.
            let child = unsafe { asked.__bindgen_anon_1.graph };
            let moved = child.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
            driver.graphs.embed(graph, child.graph as usize, moved)?
        }
        CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
            // SAFETY: as above.
            let mut memory = unsafe { asked.__bindgen_anon_1.alloc };
            let address = graph_memory::plan(driver, &memory.poolProps, memory.bytesize)?;
            memory.dptr = address;
            asked.__bindgen_anon_1.alloc = memory;
            node.set(asked)?;
            NodeWork::Allocate(address)
        }
        CU_GRAPH_NODE_TYPE_MEM_FREE => {
            // SAFETY: as above.
            let address = unsafe { asked.__bindgen_anon_1.free.dptr };
            graph_memory::is_planned(driver, address)?;
            NodeWork::Free(address)
        }
        CU_GRAPH_NODE_TYPE_EMPTY => NodeWork::Nothing,
        _ => return Err(CUDA_ERROR_NOT_SUPPORTED),
    };
    out.set(graphs::add(driver, graph, after, count, work)?)
}
