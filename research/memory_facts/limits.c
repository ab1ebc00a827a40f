// What cuCtxSetLimit and kernels with local memory make the context take.

#define LIMIT_STEP(limit, value, ...) do { size_t l_ = 0; CUresult r2_ = cuCtxSetLimit(limit, value); cuCtxGetLimit(&l_, limit); field("is", "%zu", l_); mark(r2_, __VA_ARGS__); } while (0)

static CUfunction ptx_function(const char *text, const char *name, CUmodule *module) {
    CUfunction function;
    CUresult result = cuModuleLoadData(module, text);
    mark(result, "module with %s loaded", name);
    if (result) exit(5);
    result = cuModuleGetFunction(&function, *module, name);
    mark(result, "cuModuleGetFunction");
    return function;
}

static void limit_heap(char **arguments) {
    start();
    CUmodule module;
    CUfunction nothing = plain("nothing");
    mark(0, "a small module");
    LIMIT_STEP(CU_LIMIT_MALLOC_HEAP_SIZE, GIB, "heap of 1 GiB");
    STEP(launch(nothing, 0, 0, 0), "a plain kernel launched");
    STEP(cuCtxSynchronize(), "synchronized");
    LIMIT_STEP(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * GIB, "heap of 8 GiB");
    STEP(launch(nothing, 0, 0, 0), "a plain kernel launched");
    STEP(cuCtxSynchronize(), "synchronized");
    LIMIT_STEP(CU_LIMIT_MALLOC_HEAP_SIZE, GIB, "heap of 1 GiB again");
    CUfunction heap = ptx_function(ptx_heap, "heap", &module);
    STEP(launch(heap, 0, 0, 0), "launched, calls no malloc");
    STEP(cuCtxSynchronize(), "synchronized");
    STEP(launch(heap, 100, 0, 0), "launched, calls malloc");
    STEP(cuCtxSynchronize(), "synchronized");
    LIMIT_STEP(CU_LIMIT_MALLOC_HEAP_SIZE, 2 * GIB, "heap of 2 GiB, the module loaded");
    LIMIT_STEP(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * MIB, "heap of 8 MiB, the module loaded");
    STEP(cuModuleUnload(module), "module unloaded");
    LIMIT_STEP(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * MIB, "heap of 8 MiB, the module unloaded");
    STEP(launch(nothing, 0, 0, 0), "a plain kernel launched");
    STEP(cuCtxSynchronize(), "synchronized");
    LIMIT_STEP(CU_LIMIT_MALLOC_HEAP_SIZE, 1ull << 40, "heap of 1 TiB");
    STEP(launch(nothing, 0, 0, 0), "a plain kernel launched");
}

static void limit_others(char **arguments) {
    start();
    CUmodule module, heap_module;
    CUfunction nothing = plain("nothing");
    mark(0, "a small module");
    LIMIT_STEP(CU_LIMIT_PRINTF_FIFO_SIZE, GIB, "printf buffer of 1 GiB");
    STEP(launch(nothing, 0, 0, 0), "a plain kernel launched");
    STEP(cuCtxSynchronize(), "synchronized");
    CUfunction print = ptx_function(ptx_print, "print", &module);
    STEP(launch(print, 0, 0, 0), "launched, prints nothing");
    STEP(cuCtxSynchronize(), "synchronized");
    STEP(launch(print, 1, 0, 0), "launched, prints");
    STEP(cuCtxSynchronize(), "synchronized");
    LIMIT_STEP(CU_LIMIT_PRINTF_FIFO_SIZE, MIB, "printf buffer of 1 MiB, the module loaded");
    STEP(cuModuleUnload(module), "module unloaded");
    LIMIT_STEP(CU_LIMIT_PRINTF_FIFO_SIZE, MIB, "printf buffer of 1 MiB, the module unloaded");
    CUfunction heap = ptx_function(ptx_heap, "heap", &heap_module);
    STEP(launch(heap, 100, 0, 0), "a kernel with malloc, usual heap");
    STEP(cuCtxSynchronize(), "synchronized");
    LIMIT_STEP(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 1 << 20, "2^20 pending launches");
    STEP(launch(nothing, 0, 0, 0), "a plain kernel launched");
    STEP(cuCtxSynchronize(), "synchronized");
    LIMIT_STEP(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 20, "sync depth of 20");
    LIMIT_STEP(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128, "L2 fetch of 128");
    LIMIT_STEP(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 8 * MIB, "persisting L2 of 8 MiB");
    STEP(launch(nothing, 0, 0, 0), "a plain kernel launched");
    STEP(cuCtxSynchronize(), "synchronized");
}

static void limit_stack(char **arguments) {
    start();
    CUfunction nothing = plain("nothing");
    mark(0, "a small module");
    static const size_t sizes[] = {2 * KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1 * KIB, 16 * KIB, 1 * KIB};
    for (int i = 0; i < 8; i++) {
        LIMIT_STEP(CU_LIMIT_STACK_SIZE, sizes[i], "stack of %zu KiB", sizes[i] / (size_t)KIB);
        STEP(launch(nothing, 0, 0, 0), "a plain kernel launched");
        STEP(cuCtxSynchronize(), "synchronized");
    }
    CUstream stream;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    STEP(launch(nothing, 0, 0, stream), "a plain kernel launched on another stream");
    CUdeviceptr filler;
    size_t available, total;
    cuMemGetInfo(&available, &total);
    STEP(cuMemAlloc(&filler, (available - 256 * MIB) / PIECE * PIECE), "all but 256 MiB taken");
    LIMIT_STEP(CU_LIMIT_STACK_SIZE, 256 * KIB, "stack of 256 KiB, where there is no room");
    STEP(launch(nothing, 0, 0, 0), "a plain kernel launched");
}

static CUfunction frame_function(unsigned bytes, CUmodule *module) {
    char name[32];
    CUfunction function = ptx_function(ptx_frame(bytes), "frame", module);
    int local = -1;
    cuFuncGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function);
    field("local_size", "%d", local);
    snprintf(name, sizeof name, "frame of %u B", bytes);
    mark(0, "%s", name);
    return function;
}

static void local_frames(char **arguments) {
    start();
    plain("nothing");
    mark(0, "a small module");
    static const unsigned sizes[] = {512, 1024, 2048, 4096, 8192, 16384, 65536, 100000, 262144, 4096};
    CUmodule modules[10];
    for (int i = 0; i < 10; i++) {
        CUfunction frame = frame_function(sizes[i], &modules[i]);
        STEP(launch(frame, 0, 3, 0), "launched");
        STEP(cuCtxSynchronize(), "synchronized");
        STEP(launch(frame, 0, 3, 0), "launched again");
        STEP(cuCtxSynchronize(), "synchronized");
        if (i == 6) {
            CUstream stream;
            NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            STEP(launch(frame, 0, 3, stream), "launched on another stream");
            STEP(cuCtxSynchronize(), "synchronized");
        }
    }
    for (int i = 0; i < 10; i++) cuModuleUnload(modules[i]);
    mark(cuCtxSynchronize(), "all modules unloaded");
    STEP(launch(plain("nothing"), 0, 0, 0), "a plain kernel launched");
    STEP(cuCtxSynchronize(), "synchronized");
    LIMIT_STEP(CU_LIMIT_STACK_SIZE, KIB, "stack set to 1 KiB");
    STEP(launch(plain("nothing"), 0, 0, 0), "a plain kernel launched");
    LIMIT_STEP(CU_LIMIT_STACK_SIZE, 2 * KIB, "stack set to 2 KiB");
    LIMIT_STEP(CU_LIMIT_STACK_SIZE, KIB, "stack set to 1 KiB");
}

// The same through a graph; and a launch where there is no room for it.
static void local_graph(char **arguments) {
    start();
    CUmodule module, larger;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUfunction frame = frame_function(65536, &module);
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    STEP(launch(frame, 0, 3, stream), "captured");
    STEP(cuStreamEndCapture(stream, &graph), "capture ended");
    STEP(cuGraphInstantiate(&exec, graph, 0), "instantiated");
    STEP(cuGraphUpload(exec, stream), "uploaded");
    STEP(cuGraphLaunch(exec, stream), "launched");
    STEP(cuStreamSynchronize(stream), "synchronized");
    STEP(cuGraphLaunch(exec, stream), "launched again");
    STEP(cuStreamSynchronize(stream), "synchronized");
    STEP(cuGraphExecDestroy(exec), "exec destroyed");
    STEP(cuModuleUnload(module), "module unloaded");
    CUfunction too_large = frame_function(400000, &larger);
    CUdeviceptr filler;
    size_t available, total;
    cuMemGetInfo(&available, &total);
    STEP(cuMemAlloc(&filler, (available - 256 * MIB) / PIECE * PIECE), "all but 256 MiB taken");
    STEP(launch(too_large, 0, 3, stream), "launched where there is no room");
    STEP(cuStreamSynchronize(stream), "synchronized");
    STEP(cuMemFree(filler), "room again");
    STEP(launch(too_large, 0, 3, stream), "launched");
    STEP(cuStreamSynchronize(stream), "synchronized");
}
