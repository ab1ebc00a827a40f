//! Queries about a graph's nodes.

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::graph_memory;
use crate::graphs::NodeWork;
use crate::work::Op;
use softmig_fake_node::edge::handle;

exports! {
    static SYMBOLS;

    /// A graph's nodes, and how many there are where no place for them is given.
    fn cuGraphGetNodes [cuGraphGetNodes 10000] (
        graph: CUgraph, out: Out<CUgraphNode>, count: Out<usize>
    ) => locked(|driver| {
        let graph = driver.graphs.get(graph as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if !out.is_wanted() {
            return count.set(graph.nodes.len());
        }
        let room = count.get()?;
        for place in 0..room {
            // Entries beyond the last node are null, as in the manual.
            let node = graph.nodes.get(place).map_or(0, |node| node.number);
            out.set_at(place, handle(node))?;
        }
        count.set(room.min(graph.nodes.len()))
    });

    /// The kind of a node.
    fn cuGraphNodeGetType [cuGraphNodeGetType 10000] (node: CUgraphNode, out: Out<CUgraphNodeType>) =>
        locked(|driver| out.set(kind(&driver.graphs.node(node as usize)?.work)));

    /// The kernel that a node runs. Its arguments are not kept.
    fn cuGraphKernelNodeGetParams_v2 [cuGraphKernelNodeGetParams 12000] (
        node: CUgraphNode, out: Out<CUDA_KERNEL_NODE_PARAMS>
    ) => locked(|driver| {
        let NodeWork::Op(Op::Kernel(kernel)) = driver.graphs.node(node as usize)?.work else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let ([x, y, z], [block_x, block_y, block_z]) = (kernel.shape.grid, kernel.shape.block);
        out.set(CUDA_KERNEL_NODE_PARAMS {
            func: handle(kernel.function),
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: kernel.shape.shared,
            kernelParams: handle(0),
            extra: handle(0),
            kern: handle(0),
            ctx: handle(0),
        })
    });

    /// The memory that a node takes.
    fn cuGraphMemAllocNodeGetParams [cuGraphMemAllocNodeGetParams 11040] (
        node: CUgraphNode, out: Out<CUDA_MEM_ALLOC_NODE_PARAMS>
    ) => locked(|driver| {
        let NodeWork::Allocate(address) = driver.graphs.node(node as usize)?.work else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        out.set(graph_memory::parameters(driver, address)?)
    });

    /// The memory that a node gives back.
    fn cuGraphMemFreeNodeGetParams [cuGraphMemFreeNodeGetParams 11040] (
        node: CUgraphNode, out: Out<CUdeviceptr>
    ) => locked(|driver| {
        let NodeWork::Free(address) = driver.graphs.node(node as usize)?.work else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        out.set(address)
    });

    /// The graph that a node runs.
    fn cuGraphChildGraphNodeGetGraph [cuGraphChildGraphNodeGetGraph 10000] (
        node: CUgraphNode, out: Out<CUgraph>
    ) => locked(|driver| out.set(handle(child(driver, node as usize)?)));
}

fn child(driver: &Driver, node: usize) -> Outcome<usize> {
    match driver.graphs.node(node)?.work {
        NodeWork::Graph(child) => Ok(child),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// The header's word for a kind of node.
pub(crate) fn kind(work: &NodeWork) -> CUgraphNodeType {
    match work {
        NodeWork::Op(Op::Kernel(_)) => CU_GRAPH_NODE_TYPE_KERNEL,
        NodeWork::Op(Op::Copy(_)) => CU_GRAPH_NODE_TYPE_MEMCPY,
        NodeWork::Op(Op::Fill(_)) => CU_GRAPH_NODE_TYPE_MEMSET,
        NodeWork::Op(Op::Host(_)) => CU_GRAPH_NODE_TYPE_HOST,
        NodeWork::Op(Op::AwaitValue { .. } | Op::WriteValue { .. }) => {
            CU_GRAPH_NODE_TYPE_BATCH_MEM_OP
        }
        NodeWork::Allocate(_) => CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        NodeWork::Free(_) => CU_GRAPH_NODE_TYPE_MEM_FREE,
        NodeWork::Record(_) => CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        NodeWork::Wait(_) => CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        NodeWork::Graph(_) => CU_GRAPH_NODE_TYPE_GRAPH,
        NodeWork::Nothing | NodeWork::Op(Op::Mark(_) | Op::Await(_)) => CU_GRAPH_NODE_TYPE_EMPTY,
    }
}
