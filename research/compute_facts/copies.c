// Which copies and memsets are kernels, and what a copy does to the time between two events.

// `hog`: its blocks have all shared memory of a processor each and stay until a word is set, or for `most` nanoseconds. No
// block of another kernel fits beside it: what goes on meanwhile does not need processors.
static const char ptx_hog[] = PTX_HEAD
    "// kernel hog spins\n"
    ".extern .shared .align 16 .b8 all[];\n"
    ".visible .entry hog(.param .u64 release, .param .u64 most, .param .u64 begun) {\n"
    " .reg .u64 %a<6>; .reg .u32 %r<4>; .reg .pred %p;\n"
    " mov.u32 %r0, %tid.x;\n setp.ne.u32 %p, %r0, 0;\n @%p bra out;\n"
    " ld.param.u64 %a0, [release];\n ld.param.u64 %a1, [most];\n ld.param.u64 %a2, [begun];\n mov.u64 %a3, %globaltimer;\n"
    " mov.u32 %r1, %ctaid.x;\n mul.wide.u32 %a4, %r1, 4;\n add.u64 %a4, %a2, %a4;\n mov.u32 %r2, 1;\n st.shared.u32 [all], %r2;\n"
    " st.volatile.global.u32 [%a4], %r2;\n membar.sys;\n"
    "again: ld.volatile.global.u32 %r3, [%a0];\n setp.ne.u32 %p, %r3, 0;\n @%p bra out;\n"
    " mov.u64 %a4, %globaltimer;\n sub.u64 %a5, %a4, %a3;\n setp.lt.u64 %p, %a5, %a1;\n @%p bra again;\n"
    "out: bar.sync 0;\n ret;\n}\n";

enum { COPY_MOST = 64 << 20, PROCESSORS_MOST = 1000 };
// How long an operation is given beside the hog, and how long the hog stays if nobody ends it.
#define BESIDE_NS 60e6
#define HOG_NS 2000000000ull

static struct {
    CUdeviceptr from, to, peer;
    void *host;
    CUcontext peer_context;
    CUfunction nothing;
} copying;

typedef CUresult (*operation)(size_t bytes, CUstream stream);

static CUresult set_8(size_t bytes, CUstream stream) { return cuMemsetD8Async(copying.to, 1, bytes, stream); }
static CUresult set_32(size_t bytes, CUstream stream) { return cuMemsetD32Async(copying.to, 1, bytes / 4, stream); }
// Rows of 256 bytes, 512 apart.
static CUresult set_rows(size_t bytes, CUstream stream) { return cuMemsetD2D8Async(copying.to, 512, 1, 256, bytes / 512, stream); }
static CUresult within(size_t bytes, CUstream stream) { return cuMemcpyDtoDAsync(copying.to, copying.from, bytes, stream); }
static CUresult unified(size_t bytes, CUstream stream) { return cuMemcpyAsync(copying.to, copying.from, bytes, stream); }
static CUresult rows_within(size_t bytes, CUstream stream) {
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = copying.from, .srcPitch = 512, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = copying.to, .dstPitch = 512, .WidthInBytes = 256, .Height = bytes / 512};
    return cuMemcpy2DAsync(&rows, stream);
}
static CUresult up(size_t bytes, CUstream stream) { return cuMemcpyHtoDAsync(copying.to, copying.host, bytes, stream); }
static CUresult down(size_t bytes, CUstream stream) { return cuMemcpyDtoHAsync(copying.host, copying.from, bytes, stream); }
static CUresult to_peer(size_t bytes, CUstream stream) { return cuMemcpyPeerAsync(copying.peer, copying.peer_context, copying.from, context, bytes, stream); }
static CUresult from_peer(size_t bytes, CUstream stream) { return cuMemcpyPeerAsync(copying.to, context, copying.peer, copying.peer_context, bytes, stream); }
static CUresult to_mapped_peer(size_t bytes, CUstream stream) { return cuMemcpyDtoDAsync(copying.peer, copying.from, bytes, stream); }
// So that a result of the method is known: this one needs a processor.
static CUresult kernel(size_t bytes, CUstream stream) {
    (void)bytes;
    return launch(copying.nothing, 1, 0, 0, stream);
}

static const struct { const char *name; operation act; bool peer; } operations[] = {
    {"an empty kernel", kernel, false},
    {"cuMemsetD8Async", set_8, false}, {"cuMemsetD32Async", set_32, false}, {"cuMemsetD2D8Async", set_rows, false},
    {"cuMemcpyDtoDAsync", within, false}, {"cuMemcpyAsync, DtoD", unified, false}, {"cuMemcpy2DAsync, DtoD", rows_within, false},
    {"cuMemcpyHtoDAsync, pinned", up, false}, {"cuMemcpyDtoHAsync, pinned", down, false},
    {"cuMemcpyPeerAsync, to the other GPU", to_peer, true}, {"cuMemcpyPeerAsync, from the other GPU", from_peer, true},
    {"cuMemcpyDtoDAsync, to a peer's memory", to_mapped_peer, true},
};

// What it takes by events, behind other work, so that no time of the host's is in it.
static double alone_us(operation act, size_t bytes, CUstream stream, CUfunction spin, CUevent first, CUevent second) {
    float ms;
    for (int i = 0; i < 2; i++) {
        // Twice: what is loaded at the first use is there then.
        NEED(launch(spin, 1, 200000, 0, stream));
        NEED(cuEventRecord(first, stream));
        NEED(act(bytes, stream));
        NEED(cuEventRecord(second, stream));
        NEED(cuStreamSynchronize(stream));
    }
    NEED(cuEventElapsedTime(&ms, first, second));
    return ms * 1e3;
}

// Whether it ends while every processor is taken.
static void beside(const char *name, bool in_a_graph, operation act, size_t bytes, int processors, int shared, CUfunction hog, volatile uint32_t *words, CUstream stream, CUstream hogs, double alone) {
    uint64_t release = (uint64_t)(uintptr_t)words, most = HOG_NS, begun = release + 64;
    void *arguments[] = {&release, &most, &begun};
    CUevent done;
    CUgraph graph;
    CUgraphExec exec = NULL;
    int there = 0;
    if (in_a_graph) {
        NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        NEED(act(bytes, stream));
        NEED(cuStreamEndCapture(stream, &graph));
        NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
        NEED(cuGraphDestroy(graph));
        NEED(cuGraphLaunch(exec, stream));
        NEED(cuStreamSynchronize(stream));
    }
    memset((void *)words, 0, 64 + processors * 4);
    NEED(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    NEED(cuLaunchKernel(hog, processors, 1, 1, 1024, 1, 1, shared, hogs, arguments, NULL));
    double since = now_ns();
    while (there < processors && now_ns() - since < 1e8)
        for (there = 0; there < processors && words[16 + there]; there++) ;
    since = now_ns();
    CUresult asked = in_a_graph ? cuGraphLaunch(exec, stream) : act(bytes, stream);
    double called = now_ns() - since;
    NEED(asked);
    NEED(cuEventRecord(done, stream));
    while (cuEventQuery(done) == CUDA_ERROR_NOT_READY && now_ns() - since < BESIDE_NS) ;
    double took = now_ns() - since;
    bool ended = cuEventQuery(done) == CUDA_SUCCESS;
    // A call that waited for the hog itself proves nothing.
    bool stayed = called < HOG_NS / 2;
    words[0] = 1;
    NEED(cuCtxSynchronize());
    NEED(cuEventDestroy(done));
    if (exec) NEED(cuGraphExecDestroy(exec));
    printf("{\"at\":\"%s%s\",\"bytes\":%zu,\"alone_us\":%.1f,\"processors_taken\":%d,\"ended_meanwhile\":%s,\"us\":%.1f,\"called_us\":%.1f}\n", name, in_a_graph ? ", in a graph" : "", bytes, alone, there, ended && stayed ? "true" : "false", took / 1e3, called / 1e3);
}

static void copies(char **arguments) {
    (void)arguments;
    static const size_t sizes[] = {4 << 10, 64 << 10, 1 << 20, COPY_MOST};
    int processors, shared, count = 0;
    volatile uint32_t *words;
    CUstream stream, hogs;
    CUevent first, second;
    CUmodule module_hog;
    CUfunction hog;
    begin();
    NEED(cuModuleLoadData(&module_hog, ptx_hog));
    NEED(cuModuleGetFunction(&hog, module_hog, "hog"));
    NEED(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    NEED(cuDeviceGetAttribute(&shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
    NEED(cuFuncSetAttribute(hog, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared));
    if (processors > PROCESSORS_MOST) processors = PROCESSORS_MOST;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&hogs, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&first, 0));
    NEED(cuEventCreate(&second, 0));
    NEED(cuMemAlloc(&copying.from, COPY_MOST));
    NEED(cuMemAlloc(&copying.to, COPY_MOST));
    NEED(cuMemHostAlloc(&copying.host, COPY_MOST, 0));
    NEED(cuMemHostAlloc((void **)&words, 64 + PROCESSORS_MOST * 4, CU_MEMHOSTALLOC_DEVICEMAP));
    copying.nothing = function("nothing");
    NEED(cuDeviceGetCount(&count));
    if (count > 1) {
        NEED(cuDevicePrimaryCtxRetain(&copying.peer_context, 1));
        NEED(cuCtxSetCurrent(copying.peer_context));
        NEED(cuMemAlloc(&copying.peer, COPY_MOST));
        NEED(cuCtxSetCurrent(context));
        CUresult mapped = cuCtxEnablePeerAccess(copying.peer_context, 0);
        printf("{\"at\":\"peer access to the other GPU\",\"r\":%d}\n", mapped);
        if (mapped) count = 1;
    } else printf("{\"at\":\"one GPU only: no copies between two\"}\n");
    for (unsigned i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (operations[i].peer && count < 2) continue;
        for (unsigned size = 0; size < sizeof sizes / sizeof *sizes; size++) {
            double alone = alone_us(operations[i].act, sizes[size], stream, function("spin"), first, second);
            beside(operations[i].name, false, operations[i].act, sizes[size], processors, shared, hog, words, stream, hogs, alone);
            if (sizes[size] == COPY_MOST && i > 0 && !operations[i].peer) beside(operations[i].name, true, operations[i].act, sizes[size], processors, shared, hog, words, stream, hogs, alone);
            if (i == 0) break;
        }
    }
}

// A copy between two kernels of a stream: whether its time is in that between the events around all three.
static void copy_between(char **arguments) {
    (void)arguments;
    static const size_t sizes[] = {0, 4 << 10, 1 << 20, COPY_MOST};
    enum { ROUNDS_EACH = 10 };
    CUstream stream, other;
    CUevent events[2], around[2];
    uint64_t bytes, count;
    begin();
    double rate = rounds_per_us();
    CUfunction work = function("work"), spin = function("spin");
    CUdeviceptr log = new_log(64, &bytes);
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
        NEED(cuEventCreate(&events[i], 0));
        NEED(cuEventCreate(&around[i], 0));
    }
    NEED(cuMemAlloc(&copying.to, COPY_MOST));
    NEED(cuMemHostAlloc(&copying.host, COPY_MOST, 0));
    for (int apart = 0; apart < 2; apart++)
        for (unsigned size = 0; size < sizeof sizes / sizeof *sizes; size++) {
            static double all[ROUNDS_EACH], copy[ROUNDS_EACH], gaps[ROUNDS_EACH];
            for (int i = 0; i < ROUNDS_EACH; i++) {
                float ms;
                CUstream copies_in = apart ? other : stream;
                empty_log(log);
                NEED(launch(spin, 1, 200000, 0, stream));
                NEED(cuEventRecord(events[0], stream));
                NEED(launch(work, full_grid, rounds_for(1000, rate), log, stream));
                NEED(cuEventRecord(around[0], copies_in));
                if (sizes[size]) NEED(cuMemcpyHtoDAsync(copying.to, copying.host, sizes[size], copies_in));
                NEED(cuEventRecord(around[1], copies_in));
                NEED(launch(work, full_grid, rounds_for(1000, rate), log, stream));
                NEED(cuEventRecord(events[1], stream));
                NEED(cuCtxSynchronize());
                NEED(cuEventElapsedTime(&ms, events[0], events[1]));
                all[i] = ms * 1e3;
                NEED(cuEventElapsedTime(&ms, around[0], around[1]));
                copy[i] = ms * 1e3;
                struct stamp *stamps = copied(log, sizeof(struct log) + 2 * sizeof(struct stamp), &count);
                gaps[i] = count < 2 ? 0 : (double)(int64_t)(stamps[1].begin - stamps[0].end) / 1e3;
                free((char *)stamps - sizeof(struct log));
            }
            sort(all, ROUNDS_EACH);
            sort(copy, ROUNDS_EACH);
            sort(gaps, ROUNDS_EACH);
            printf("{\"at\":\"two kernels of 1 ms and a copy from pinned memory %s\",\"bytes\":%zu,\"between_events_us\":%.1f,\"copy_us\":%.1f,\"gap_between_kernels_us\":%.1f}\n", apart ? "in another stream" : "between them", sizes[size], part(all, ROUNDS_EACH, 0.5), part(copy, ROUNDS_EACH, 0.5), part(gaps, ROUNDS_EACH, 0.5));
        }
}
