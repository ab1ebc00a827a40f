// Graphs that allocate: when the memory is taken, who shares it, when it is given back.

static unsigned long long graph_value(CUgraphMem_attribute attribute) {
    cuuint64_t value = 0;
    return cuDeviceGetGraphMemAttribute(0, attribute, &value) ? ~0ull : value;
}

static void graph_fields(void) {
    field("reserved", "%llu", graph_value(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
    field("in_use", "%llu", graph_value(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
}

#define GRAPH_STEP(call, ...) do { CUresult g_ = (call); graph_fields(); mark(g_, __VA_ARGS__); } while (0)

// Adds an allocation, a kernel of some length after it and, if wished, the release.
static CUresult graph_add(CUgraph graph, CUgraphNode *last, CUdeviceptr *at, unsigned long long bytes, unsigned long long ns, int release) {
    CUDA_MEM_ALLOC_NODE_PARAMS take = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}}, .bytesize = bytes};
    CUgraphNode node;
    CUresult result = cuGraphAddMemAllocNode(&node, graph, last, *last ? 1 : 0, &take);
    if (result) return result;
    *at = take.dptr;
    void *words[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = plain("spin"), .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = words};
    CUgraphNode work;
    result = cuGraphAddKernelNode(&work, graph, &node, 1, &kernel);
    *last = work;
    if (result || !release) return result;
    result = cuGraphAddMemFreeNode(&node, graph, last, 1, *at);
    *last = node;
    return result;
}

static void graph_nodes(char **arguments) {
    start();
    plain("spin");
    CUstream stream;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    static const unsigned long long sizes[] = {64 * MIB, KIB, 33 * MIB, 3 * MIB};
    for (int i = 0; i < 4; i++) {
        CUgraph graph;
        CUgraphExec exec;
        CUgraphNode last = NULL;
        CUdeviceptr at;
        NEED(cuGraphCreate(&graph, 0));
        GRAPH_STEP(graph_add(graph, &last, &at, sizes[i], 1000, 1), "%llu KiB: nodes added", sizes[i] / KIB);
        GRAPH_STEP(cuGraphInstantiate(&exec, graph, 0), "instantiated");
        GRAPH_STEP(cuGraphUpload(exec, stream), "uploaded");
        GRAPH_STEP(cuStreamSynchronize(stream), "synchronized");
        GRAPH_STEP(cuGraphLaunch(exec, stream), "launched");
        GRAPH_STEP(cuStreamSynchronize(stream), "synchronized");
        GRAPH_STEP(cuGraphLaunch(exec, stream), "launched again");
        GRAPH_STEP(cuStreamSynchronize(stream), "synchronized");
        GRAPH_STEP(cuDeviceGraphMemTrim(0), "cuDeviceGraphMemTrim with the exec alive");
        GRAPH_STEP(cuGraphLaunch(exec, stream), "launched again");
        GRAPH_STEP(cuStreamSynchronize(stream), "synchronized");
        GRAPH_STEP(cuGraphExecDestroy(exec), "exec destroyed");
        GRAPH_STEP(cuGraphDestroy(graph), "graph destroyed");
        GRAPH_STEP(cuDeviceGraphMemTrim(0), "cuDeviceGraphMemTrim");
    }
}

static void graph_captured(char **arguments) {
    start();
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr at, second;
    CUmemoryPool pool;
    plain("spin");
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUresult took = cuMemAllocAsync(&at, 64 * MIB, stream);
    field("took", "%d", took);
    field("address", "\"%#llx\"", at);
    took = cuMemAllocAsync(&second, 40 * MIB, stream);
    launch(plain("spin"), 1000, 0, stream);
    cuMemFreeAsync(at, stream);
    cuMemFreeAsync(second, stream);
    CUresult result = cuStreamEndCapture(stream, &graph);
    pool_fields(pool);
    mark(result, "captured 64 and 40 MiB; the fields are the default pool's");
    GRAPH_STEP(cuGraphInstantiate(&exec, graph, 0), "instantiated");
    GRAPH_STEP(cuGraphLaunch(exec, stream), "launched");
    GRAPH_STEP(cuStreamSynchronize(stream), "synchronized");
    pool_fields(pool);
    mark(0, "default pool");
    GRAPH_STEP(cuGraphExecDestroy(exec), "exec destroyed");
    GRAPH_STEP(cuDeviceGraphMemTrim(0), "cuDeviceGraphMemTrim");
    // From a pool of its own, captured: whose memory is it?
    CUmemoryPool own = pool_make(0, CU_MEM_HANDLE_TYPE_NONE);
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    field("took", "%d", cuMemAllocFromPoolAsync(&at, 64 * MIB, own, stream));
    cuMemFreeAsync(at, stream);
    mark(cuStreamEndCapture(stream, &graph), "captured from a pool of its own");
    NEED(cuGraphInstantiate(&exec, graph, 0));
    NEED(cuGraphLaunch(exec, stream));
    pool_fields(own);
    mark(cuStreamSynchronize(stream), "launched; the fields are that pool's");
    GRAPH_STEP(cuGraphExecDestroy(exec), "exec destroyed");
    GRAPH_STEP(cuDeviceGraphMemTrim(0), "cuDeviceGraphMemTrim");
}

// Two execs, first one after the other and then at once.
static void graph_two(char **arguments) {
    start();
    plain("spin");
    CUstream stream[2];
    CUgraphExec exec[2];
    for (int i = 0; i < 2; i++) {
        CUgraph graph;
        CUgraphNode last = NULL;
        CUdeviceptr at;
        NEED(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
        NEED(cuGraphCreate(&graph, 0));
        NEED(graph_add(graph, &last, &at, 64 * MIB, 200000000, 1));
        GRAPH_STEP(cuGraphInstantiate(&exec[i], graph, 0), "instantiated");
    }
    GRAPH_STEP(cuGraphLaunch(exec[0], stream[0]), "first launched");
    GRAPH_STEP(cuGraphLaunch(exec[1], stream[0]), "second launched behind it, same stream");
    GRAPH_STEP(cuStreamSynchronize(stream[0]), "synchronized");
    GRAPH_STEP(cuGraphLaunch(exec[0], stream[0]), "first launched");
    GRAPH_STEP(cuGraphLaunch(exec[1], stream[1]), "second launched at once, other stream");
    GRAPH_STEP(cuCtxSynchronize(), "synchronized");
    GRAPH_STEP(cuGraphLaunch(exec[0], stream[0]), "first launched");
    GRAPH_STEP(cuGraphLaunch(exec[1], stream[0]), "second launched behind it");
    GRAPH_STEP(cuCtxSynchronize(), "synchronized");
    GRAPH_STEP(cuGraphExecDestroy(exec[0]), "first destroyed");
    GRAPH_STEP(cuGraphExecDestroy(exec[1]), "second destroyed");
    GRAPH_STEP(cuDeviceGraphMemTrim(0), "trimmed");
}

// An allocation that the graph does not free.
static void graph_kept(char **arguments) {
    start();
    plain("spin");
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode last = NULL;
    CUdeviceptr at;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuGraphCreate(&graph, 0));
    GRAPH_STEP(graph_add(graph, &last, &at, 64 * MIB, 1000, 0), "64 MiB, not freed in the graph");
    GRAPH_STEP(cuGraphInstantiate(&exec, graph, 0), "instantiated");
    GRAPH_STEP(cuGraphLaunch(exec, stream), "launched");
    GRAPH_STEP(cuStreamSynchronize(stream), "synchronized");
    GRAPH_STEP(cuGraphLaunch(exec, stream), "launched again, not freed");
    GRAPH_STEP(cuMemFreeAsync(at, stream), "cuMemFreeAsync");
    GRAPH_STEP(cuStreamSynchronize(stream), "synchronized");
    GRAPH_STEP(cuGraphLaunch(exec, stream), "launched again");
    GRAPH_STEP(cuStreamSynchronize(stream), "synchronized");
    GRAPH_STEP(cuMemFree(at), "cuMemFree");
    GRAPH_STEP(cuGraphLaunch(exec, stream), "launched again");
    GRAPH_STEP(cuStreamSynchronize(stream), "synchronized");
    GRAPH_STEP(cuGraphExecDestroy(exec), "exec destroyed with the memory in use");
    GRAPH_STEP(cuGraphDestroy(graph), "graph destroyed");
    GRAPH_STEP(cuDeviceGraphMemTrim(0), "trimmed");
    GRAPH_STEP(cuMemFreeAsync(at, stream), "cuMemFreeAsync");
    GRAPH_STEP(cuStreamSynchronize(stream), "synchronized");
    GRAPH_STEP(cuDeviceGraphMemTrim(0), "trimmed");
    // With the flag that frees it at the next launch.
    last = NULL;
    NEED(cuGraphCreate(&graph, 0));
    NEED(graph_add(graph, &last, &at, 64 * MIB, 1000, 0));
    GRAPH_STEP(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH), "instantiated, freed at the next launch");
    GRAPH_STEP(cuGraphLaunch(exec, stream), "launched");
    GRAPH_STEP(cuGraphLaunch(exec, stream), "launched again");
    GRAPH_STEP(cuStreamSynchronize(stream), "synchronized");
    GRAPH_STEP(cuGraphExecDestroy(exec), "exec destroyed");
    GRAPH_STEP(cuDeviceGraphMemTrim(0), "trimmed");
    // More than there is.
    last = NULL;
    NEED(cuGraphCreate(&graph, 0));
    GRAPH_STEP(graph_add(graph, &last, &at, 1ull << 40, 1000, 1), "1 TiB: node added");
    GRAPH_STEP(cuGraphInstantiate(&exec, graph, 0), "instantiated");
    GRAPH_STEP(cuGraphLaunch(exec, stream), "launched");
}

// A graph whose memory is not there; and whether what graphs keep is given back when another call needs it.
static void graph_no_room(char **arguments) {
    start();
    plain("spin");
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode last = NULL;
    CUdeviceptr at, filler, other;
    size_t available, total;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuGraphCreate(&graph, 0));
    NEED(graph_add(graph, &last, &at, GIB, 1000, 1));
    GRAPH_STEP(cuGraphInstantiate(&exec, graph, 0), "1 GiB, instantiated");
    cuMemGetInfo(&available, &total);
    STEP(cuMemAlloc(&filler, (available - 100 * MIB) / PIECE * PIECE), "all but 100 MiB taken");
    GRAPH_STEP(cuGraphUpload(exec, stream), "uploaded where there is no room");
    GRAPH_STEP(cuGraphLaunch(exec, stream), "launched where there is no room");
    GRAPH_STEP(cuStreamSynchronize(stream), "synchronized");
    STEP(cuMemFree(filler), "room again");
    GRAPH_STEP(cuGraphLaunch(exec, stream), "launched");
    GRAPH_STEP(cuStreamSynchronize(stream), "synchronized");
    cuMemGetInfo(&available, &total);
    STEP(cuMemAlloc(&filler, (available - 100 * MIB) / PIECE * PIECE), "all but 100 MiB taken");
    GRAPH_STEP(cuMemAlloc(&other, 512 * MIB), "cuMemAlloc(512 MiB), which only the graph's memory has room for");
    GRAPH_STEP(cuGraphLaunch(exec, stream), "launched");
    double begin = now_ns();
    cuStreamSynchronize(stream);
    cuDeviceGraphMemTrim(0);
    field("ms", "%.2f", (now_ns() - begin) / 1e6);
    GRAPH_STEP(0, "trimmed");
    unsigned long long value;
    TIME("cuDeviceGetGraphMemAttribute(RESERVED)", 100, cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value));
    TIME("cuDeviceGraphMemTrim, nothing to do", 100, cuDeviceGraphMemTrim(0));
}

// What graphs take that allocate nothing.
static void graph_large(char **arguments) {
    start();
    CUfunction nothing = plain("nothing");
    CUstream stream;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    mark(0, "stream");
    static const int counts[] = {10, 1000, 20000};
    for (int c = 0; c < 3; c++) {
        CUgraph graph;
        CUgraphExec exec;
        CUgraphNode node, before = NULL;
        NEED(cuGraphCreate(&graph, 0));
        for (int i = 0; i < counts[c]; i++) {
            CUDA_KERNEL_NODE_PARAMS kernel = {.func = nothing, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
            NEED(cuGraphAddKernelNode(&node, graph, &before, before ? 1 : 0, &kernel));
            before = node;
        }
        mark(0, "%d kernels", counts[c]);
        STEP(cuGraphInstantiate(&exec, graph, 0), "instantiated");
        STEP(cuGraphUpload(exec, stream), "uploaded");
        STEP(cuGraphLaunch(exec, stream), "launched");
        STEP(cuStreamSynchronize(stream), "synchronized");
        STEP(cuGraphExecDestroy(exec), "exec destroyed");
        STEP(cuGraphDestroy(graph), "graph destroyed");
    }
}
