//! The nodes of graphs: queries, graphs within graphs, and changes to executable graphs.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Gpu, Kind, MIB};
use support::{Cuda, cu, driven, on};

/// A graph with nothing in it.
fn graph(cuda: &Cuda) -> usize {
    let mut graph = 0usize;
    assert_eq!(cu!(cuda, cuGraphCreate(&raw mut graph, 0u32)), 0);
    graph
}

/// The parameters of a node of this kind.
fn parameters(kind: u32) -> CUgraphNodeParams {
    // SAFETY: a struct of numbers and pointers.
    let mut node: CUgraphNodeParams = unsafe { std::mem::zeroed() };
    node.type_ = kind;
    node
}

fn add(cuda: &Cuda, graph: usize, mut node: CUgraphNodeParams) -> Result<usize, u32> {
    let mut number = 0usize;
    match cu!(
        cuda,
        cuGraphAddNode_v2(
            &raw mut number,
            graph,
            0usize,
            0usize,
            0usize,
            &raw mut node
        )
    ) {
        0 => Ok(number),
        code => Err(code),
    }
}

fn add_memory(cuda: &Cuda, graph: usize, bytes: usize) -> Result<usize, u32> {
    let mut node = parameters(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    // SAFETY: a struct of numbers and pointers.
    let mut memory: CUDA_MEM_ALLOC_NODE_PARAMS_v2 = unsafe { std::mem::zeroed() };
    memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    memory.poolProps.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
    memory.bytesize = bytes;
    node.__bindgen_anon_1.alloc = memory;
    add(cuda, graph, node)
}

fn add_kernel(cuda: &Cuda, graph: usize, kernel: usize) -> usize {
    let mut node = parameters(CU_GRAPH_NODE_TYPE_KERNEL);
    node.__bindgen_anon_1.kernel = kernel_parameters(kernel);
    add(cuda, graph, node).unwrap()
}

fn kernel_parameters(kernel: usize) -> CUDA_KERNEL_NODE_PARAMS_v3 {
    // SAFETY: a struct of numbers and pointers.
    let mut shape: CUDA_KERNEL_NODE_PARAMS_v3 = unsafe { std::mem::zeroed() };
    shape.func = std::ptr::without_provenance_mut(kernel);
    (shape.gridDimX, shape.gridDimY, shape.gridDimZ) = (7, 1, 1);
    (shape.blockDimX, shape.blockDimY, shape.blockDimZ) = (32, 1, 1);
    shape
}

fn instantiate(cuda: &Cuda, graph: usize) -> Result<usize, u32> {
    let mut ready = 0usize;
    match cu!(
        cuda,
        cuGraphInstantiateWithFlags(&raw mut ready, graph, 0u64)
    ) {
        0 => Ok(ready),
        code => Err(code),
    }
}

#[test]
fn a_graph_tells_of_its_nodes() {
    on("a_graph_tells_of_its_nodes", &[Gpu::h200(0)], |cuda| {
        cuda.start();
        let (graph, kernel) = (graph(&cuda), cuda.kernel("kernel step 1000", "step"));
        let runs = add_kernel(&cuda, graph, kernel);
        let takes = add_memory(&cuda, graph, 100 << 20).unwrap();
        let (mut count, mut nodes) = (0usize, [9usize; 3]);
        assert_eq!(cu!(cuda, cuGraphGetNodes(graph, 0usize, &raw mut count)), 0);
        assert_eq!(count, 2);
        count = 3;
        assert_eq!(
            cu!(
                cuda,
                cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count)
            ),
            0
        );
        assert_eq!((count, nodes), (2, [runs, takes, 0]));
        let mut kind = 99u32;
        for (node, wanted) in [
            (runs, CU_GRAPH_NODE_TYPE_KERNEL),
            (takes, CU_GRAPH_NODE_TYPE_MEM_ALLOC),
        ] {
            assert_eq!(cu!(cuda, cuGraphNodeGetType(node, &raw mut kind)), 0);
            assert_eq!(kind, wanted);
        }
        // SAFETY: a struct of numbers and pointers.
        let mut shape: CUDA_KERNEL_NODE_PARAMS_v2 = unsafe { std::mem::zeroed() };
        let code = cu!(cuda, cuGraphKernelNodeGetParams_v2(runs, &raw mut shape));
        assert_eq!((code, shape.func as usize), (0, kernel));
        assert_eq!((shape.gridDimX, shape.blockDimX), (7, 32));
        // SAFETY: a struct of numbers and pointers.
        let mut memory: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
        let code = cu!(cuda, cuGraphMemAllocNodeGetParams(takes, &raw mut memory));
        assert_eq!((code, memory.bytesize), (0, 100 << 20));
        assert_eq!(
            cu!(cuda, cuGraphMemAllocNodeGetParams(runs, &raw mut memory)),
            CUDA_ERROR_INVALID_VALUE
        );
        // More than the device has is refused at once.
        assert_eq!(
            add_memory(&cuda, graph, 1 << 40),
            Err(CUDA_ERROR_OUT_OF_MEMORY)
        );
    });
}

#[test]
fn a_graph_within_a_graph_is_copied_or_moved() {
    on(
        "a_graph_within_a_graph_is_copied_or_moved",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let (outer, inner, stream) = (graph(&cuda), graph(&cuda), cuda.stream());
            add_memory(&cuda, inner, 100 << 20).unwrap();
            // A memory node cannot be copied.
            let mut number = 0usize;
            let code = cu!(
                cuda,
                cuGraphAddChildGraphNode(&raw mut number, outer, 0usize, 0usize, inner)
            );
            assert_eq!(code, CUDA_ERROR_NOT_SUPPORTED);
            let mut node = parameters(CU_GRAPH_NODE_TYPE_GRAPH);
            node.__bindgen_anon_1.graph = CUDA_CHILD_GRAPH_NODE_PARAMS {
                graph: std::ptr::without_provenance_mut(inner),
                ownership: CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE,
            };
            let child = add(&cuda, outer, node).unwrap();
            assert_eq!(add(&cuda, inner, node), Err(CUDA_ERROR_INVALID_VALUE));
            let mut within = 0usize;
            assert_eq!(
                cu!(cuda, cuGraphChildGraphNodeGetGraph(child, &raw mut within)),
                0
            );
            assert_eq!(within, inner);
            assert_eq!(instantiate(&cuda, inner), Err(CUDA_ERROR_NOT_SUPPORTED));
            let ready = instantiate(&cuda, outer).unwrap();
            assert_eq!(cu!(cuda, cuGraphLaunch(ready, stream)), 0);
            assert_eq!(cuda.mine(Kind::Graph), 128 * MIB);
            assert_eq!(cu!(cuda, cuGraphDestroy(outer)), 0);
            assert_eq!(cu!(cuda, cuGraphDestroy(inner)), CUDA_ERROR_INVALID_VALUE);
        },
    );
}

#[test]
fn a_ready_graph_can_do_other_work_of_the_same_kind() {
    driven("a_ready_graph_can_do_other_work_of_the_same_kind", |cuda| {
        cuda.start();
        let text = "kernel short 1000\nkernel long 5000";
        let [short, long] = ["short", "long"].map(|name| cuda.kernel(text, name));
        let (one, stream) = (graph(&cuda), cuda.stream());
        let node = add_kernel(&cuda, one, short);
        let (mut ready, mut log) = (0usize, [7u8; 4]);
        let code = cu!(
            cuda,
            cuGraphInstantiate_v2(&raw mut ready, one, 0usize, log.as_mut_ptr(), 4usize)
        );
        assert_eq!((code, log[0]), (0, 0));
        let mut parameters = parameters(CU_GRAPH_NODE_TYPE_KERNEL);
        parameters.__bindgen_anon_1.kernel = kernel_parameters(long);
        assert_eq!(
            cu!(
                cuda,
                cuGraphExecNodeSetParams(ready, node, &raw mut parameters)
            ),
            0
        );
        assert_eq!(cu!(cuda, cuGraphLaunch(ready, stream)), 0);
        assert_eq!(cuda.node.busy_until(0), 5000);

        let (same, other) = (graph(&cuda), graph(&cuda));
        add_kernel(&cuda, same, short);
        add_memory(&cuda, other, 4096).unwrap();
        // SAFETY: a struct of numbers and pointers.
        let mut result: CUgraphExecUpdateResultInfo = unsafe { std::mem::zeroed() };
        let mut update = |graph: usize| {
            let code = cu!(cuda, cuGraphExecUpdate_v2(ready, graph, &raw mut result));
            (code, result.result)
        };
        assert_eq!(update(same), (0, CU_GRAPH_EXEC_UPDATE_SUCCESS));
        let failed = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        assert_eq!(
            update(other),
            (failed, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED)
        );
        add_kernel(&cuda, same, short);
        assert_eq!(
            update(same),
            (failed, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED)
        );
        assert_eq!(cu!(cuda, cuGraphLaunch(ready, stream)), 0);
        assert_eq!(cuda.node.busy_until(0), 6000);
    });
}
