//! Memory of graphs: taken when a graph is launched, and kept until it is trimmed.

use softmig_driver_sys::cuda::*;

use crate::harness::*;

/// A figure of the graphs' memory in MiB.
fn attribute(which: u32) -> u64 {
    let mut value = 0u64;
    ok!(cuDeviceGetGraphMemAttribute(0i32, which, &raw mut value));
    value >> 20
}

fn instantiate(graph: usize, flags: u64) -> Result<usize, u32> {
    let mut ready = 0usize;
    match cu!(cuGraphInstantiateWithFlags(&raw mut ready, graph, flags)) {
        0 => Ok(ready),
        code => Err(code),
    }
}

/// Launches a graph, and waits for it.
fn run(graph: usize, stream: usize) -> u32 {
    match cu!(cuGraphLaunch(graph, stream)) {
        0 => cu!(cuStreamSynchronize(stream)),
        code => code,
    }
}

/// A graph that takes as many MiB and gives them back, from a capture.
fn captured(mib: usize, stream: usize) -> usize {
    ok!(cuStreamBeginCapture_v2(stream, 0u32));
    let memory: u64 = new!(cuMemAllocAsync(mib * MIB, stream));
    ok!(cuMemFreeAsync(memory, stream));
    new_graph(stream)
}

fn new_graph(stream: usize) -> usize {
    let mut graph = 0usize;
    ok!(cuStreamEndCapture(stream, &raw mut graph));
    graph
}

/// Adds a node that takes as many MiB, and returns its address.
fn add_memory(graph: usize, mib: usize) -> u64 {
    let mut asked: CUDA_MEM_ALLOC_NODE_PARAMS = zeroed();
    asked.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    asked.poolProps.location = DEVICE;
    asked.bytesize = mib * MIB;
    let to = &raw mut asked;
    let _: usize = new!(cuGraphAddMemAllocNode(graph, 0usize, 0usize, to));
    asked.dptr
}

#[test]
fn memory_is_taken_at_launch_and_kept_until_trimmed() {
    test(|| {
        start();
        let (stream, graph) = (stream(), new!(cuGraphCreate(0u32)));
        let memory = add_memory(graph, 100);
        let ready = instantiate(graph, 0).unwrap();
        let before = taken();
        // 128 MiB for 100.
        assert_eq!(run(ready, stream), 0);
        assert_eq!(taken() - before, 128);
        assert_eq!(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 128);
        assert_eq!(run(ready, stream), CUDA_ERROR_INVALID_VALUE);
        ok!(cuMemFreeAsync(memory, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(taken() - before, 128);
        assert_eq!(run(ready, stream), 0);
        ok!(cuDeviceGraphMemTrim(0i32));
        assert_eq!(taken() - before, 128);
        ok!(cuMemFree_v2(memory));
        ok!(cuDeviceGraphMemTrim(0i32));
        assert_eq!(taken() - before, 0);
        assert_eq!(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 128);
        // A graph with memory is ready once at a time.
        let free_on_launch = 1;
        let again = instantiate(graph, free_on_launch);
        assert_eq!(again, Err(CUDA_ERROR_NOT_SUPPORTED));
        ok!(cuGraphExecDestroy(ready));
        let again = instantiate(graph, free_on_launch).unwrap();
        assert_eq!([run(again, stream), run(again, stream)], [0, 0]);
        assert_eq!(taken() - before, 128);
    });
}

#[test]
fn a_graph_that_gives_back_what_it_takes_runs_again() {
    test(|| {
        start();
        let stream = stream();
        let ready = instantiate(captured(40, stream), 0).unwrap();
        let before = taken();
        ok!(cuGraphUpload(ready, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(taken() - before, 64);
        assert_eq!([0; 3].map(|_| run(ready, stream)), [0; 3]);
        assert_eq!(taken() - before, 64);
        ok!(cuDeviceGraphMemTrim(0i32));
        assert_eq!(taken() - before, 0);
    });
}

#[test]
fn memory_of_graphs_goes_to_who_asks() {
    test(|| {
        start();
        let stream = stream();
        let ready = instantiate(captured(200, stream), 0).unwrap();
        let all = allocate(info().0 - 100 * MIB).unwrap();
        let before = taken();
        assert_eq!(run(ready, stream), CUDA_ERROR_OUT_OF_MEMORY);
        // It has what it could get.
        assert_eq!(taken() - before, 96);
        allocate(64 * MIB).unwrap();
        assert_eq!(taken() - before, 64);
        ok!(cuMemFree_v2(all));
        let before = taken();
        assert_eq!(run(ready, stream), 0);
        assert_eq!(taken() - before, 224);
    });
}

#[test]
fn a_graph_that_was_moved_into_another_is_its() {
    test(|| {
        start();
        let (stream, outer) = (stream(), new!(cuGraphCreate(0u32)));
        let inner: usize = new!(cuGraphCreate(0u32));
        add_memory(inner, 100);
        let mut asked: CUgraphNodeParams = zeroed();
        asked.type_ = CU_GRAPH_NODE_TYPE_GRAPH;
        asked.__bindgen_anon_1.graph = CUDA_CHILD_GRAPH_NODE_PARAMS {
            graph: std::ptr::without_provenance_mut(inner),
            ownership: CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE,
        };
        let (none, to) = (0usize, &raw mut asked);
        let child: usize = new!(cuGraphAddNode_v2(outer, none, none, none, to));
        let mut within = 0usize;
        ok!(cuGraphChildGraphNodeGetGraph(child, &raw mut within));
        assert_eq!(within, inner);
        assert_eq!(instantiate(inner, 0), Err(CUDA_ERROR_NOT_SUPPORTED));
        let ready = instantiate(outer, 0).unwrap();
        let before = taken();
        assert_eq!(run(ready, stream), 0);
        assert_eq!(taken() - before, 128);
    });
}

#[test]
fn a_graph_has_its_stacks_from_when_it_is_made_ready() {
    test(|| {
        start();
        let (stream, kernel) = (stream(), kernel("deep"));
        ok!(cuStreamBeginCapture_v2(stream, 0u32));
        assert_eq!(launch(kernel, stream, [0, 0]), 0);
        let graph = new_graph(stream);
        let before = taken();
        let ready = instantiate(graph, 0).unwrap();
        // 2 MiB are the graph's own.
        let wanted = crate::contexts::stacks(4096) + 2;
        assert_eq!(taken() - before, wanted);
        assert_eq!(run(ready, stream), 0);
        ok!(cuGraphExecDestroy(ready));
        assert_eq!(taken() - before, wanted);
    });
}
