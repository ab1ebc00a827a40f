// Which calls a thread may make while a stream captures, and which of them break the capture.

static CUstream capture_other;
static CUmemoryPool capture_pool;
static CUfunction capture_function;
static CUdeviceptr capture_memory, capture_async;
static CUevent capture_event;

#define CAPTURE_CALLS(CALL) \
    CALL("nothing", 0) \
    CALL("cuCtxGetDevice", cuCtxGetDevice(&(CUdevice){0})) \
    CALL("cuStreamIsCapturing, own", cuStreamIsCapturing(stream, &(CUstreamCaptureStatus){0})) \
    CALL("cuStreamIsCapturing, other", cuStreamIsCapturing(capture_other, &(CUstreamCaptureStatus){0})) \
    CALL("cuStreamIsCapturing, legacy", cuStreamIsCapturing(CU_STREAM_LEGACY, &(CUstreamCaptureStatus){0})) \
    CALL("cuStreamIsCapturing, per thread", cuStreamIsCapturing(CU_STREAM_PER_THREAD, &(CUstreamCaptureStatus){0})) \
    CALL("cuMemGetInfo", cuMemGetInfo(&(size_t){0}, &(size_t){0})) \
    CALL("cuFuncGetAttribute", cuFuncGetAttribute(&(int){0}, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, capture_function)) \
    CALL("cuMemPoolGetAttribute", cuMemPoolGetAttribute(capture_pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &(cuuint64_t){0})) \
    CALL("cuMemPoolTrimTo", cuMemPoolTrimTo(capture_pool, 0)) \
    CALL("cuDeviceGetMemPool", cuDeviceGetMemPool(&(CUmemoryPool){0}, 0)) \
    CALL("cuDeviceGetGraphMemAttribute", cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &(cuuint64_t){0})) \
    CALL("cuDeviceGraphMemTrim", cuDeviceGraphMemTrim(0)) \
    CALL("cuPointerGetAttribute", cuPointerGetAttribute(&(unsigned){0}, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, capture_memory)) \
    CALL("cuMemGetAddressRange", cuMemGetAddressRange(&(CUdeviceptr){0}, &(size_t){0}, capture_memory)) \
    CALL("cuCtxGetLimit", cuCtxGetLimit(&(size_t){0}, CU_LIMIT_STACK_SIZE)) \
    CALL("cuCtxSetLimit", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048)) \
    CALL("cuMemAlloc", cuMemAlloc(&(CUdeviceptr){0}, MIB)) \
    CALL("cuMemFree", cuMemFree(capture_memory)) \
    CALL("cuMemAllocManaged", cuMemAllocManaged(&(CUdeviceptr){0}, MIB, CU_MEM_ATTACH_GLOBAL)) \
    CALL("cuMemAllocAsync, other stream", cuMemAllocAsync(&(CUdeviceptr){0}, MIB, capture_other)) \
    CALL("cuMemAllocAsync, own stream", cuMemAllocAsync(&(CUdeviceptr){0}, MIB, stream)) \
    CALL("cuMemFreeAsync, other stream", cuMemFreeAsync(capture_async, capture_other)) \
    CALL("cuMemCreate", capture_create()) \
    CALL("cuMemPoolCreate", capture_make_pool()) \
    CALL("cuMemPoolSetAttribute", pool_threshold(capture_pool, 0)) \
    CALL("cuModuleLoadData", cuModuleLoadData(&(CUmodule){0}, ptx_plain)) \
    CALL("cuArrayCreate", capture_array()) \
    CALL("cuMemHostAlloc", cuMemHostAlloc(&(void *){0}, MIB, 0)) \
    CALL("cuStreamCreate", cuStreamCreate(&(CUstream){0}, CU_STREAM_NON_BLOCKING)) \
    CALL("cuEventQuery", cuEventQuery(capture_event)) \
    CALL("cuStreamQuery, other", cuStreamQuery(capture_other)) \
    CALL("cuStreamSynchronize, other", cuStreamSynchronize(capture_other)) \
    CALL("cuCtxSynchronize", cuCtxSynchronize()) \
    CALL("launch on other", launch(capture_function, 0, 0, capture_other)) \
    CALL("NVML, own memory", nvml_own() < 0)

static CUresult capture_create(void) {
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    return cuMemCreate(&handle, PIECE, &property, 0);
}

static CUresult capture_make_pool(void) {
    CUmemPoolProps property = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    return cuMemPoolCreate(&pool, &property);
}

static CUresult capture_array(void) {
    CUDA_ARRAY_DESCRIPTOR description = {.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    return cuArrayCreate(&array, &description);
}

static CUresult capture_call(int number, CUstream stream) {
    int at = 0;
#define CAPTURE_CASE(name, call) if (at++ == number) return (call);
    CAPTURE_CALLS(CAPTURE_CASE)
    return -1;
}

struct capture_job { int number; CUstream stream; CUresult result; };

static void *capture_thread(void *argument) {
    struct capture_job *job = argument;
    cuCtxSetCurrent(own_context);
    job->result = capture_call(job->number, job->stream);
    return NULL;
}

static void capture(char **arguments) {
    start();
#define CAPTURE_NAME(name, call) name,
    static const char *names[] = {CAPTURE_CALLS(CAPTURE_NAME)};
    static const char *ways[] = {"global", "thread_local", "relaxed", "global_other_thread", "global_exchanged", "thread_local_other_thread", "global_blocking_stream"};
    NEED(cuStreamCreate(&capture_other, CU_STREAM_NON_BLOCKING));
    NEED(cuDeviceGetDefaultMemPool(&capture_pool, 0));
    capture_function = plain("nothing");
    NEED(cuEventCreate(&capture_event, 0));
    NEED(cuEventRecord(capture_event, capture_other));
    for (unsigned n = 0; n < sizeof names / sizeof *names; n++) {
        for (int way = 0; way < 7; way++) {
            CUstream stream;
            CUgraph graph = NULL;
            NEED(cuStreamCreate(&stream, way == 6 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
            NEED(cuMemAlloc(&capture_memory, 4 * MIB));
            NEED(cuMemAllocAsync(&capture_async, MIB, capture_other));
            NEED(cuCtxSynchronize());
            CUstreamCaptureMode mode = way == 2 ? CU_STREAM_CAPTURE_MODE_RELAXED : way == 1 || way == 5 ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL : CU_STREAM_CAPTURE_MODE_GLOBAL;
            NEED(cuStreamBeginCapture(stream, mode));
            launch(capture_function, 0, 0, stream);
            struct capture_job job = {n, stream, 0};
            if (way == 3 || way == 5) {
                pthread_t thread;
                pthread_create(&thread, NULL, capture_thread, &job);
                pthread_join(thread, NULL);
            } else {
                CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
                if (way == 4) cuThreadExchangeStreamCaptureMode(&relaxed);
                job.result = capture_call(n, stream);
                if (way == 4) cuThreadExchangeStreamCaptureMode(&relaxed);
            }
            CUresult end = cuStreamEndCapture(stream, &graph);
            field(ways[way], "[%d,%d]", job.result, end);
            if (graph) cuGraphDestroy(graph);
            cuStreamDestroy(stream);
            cuCtxSynchronize();
            if (strcmp(names[n], "cuMemFree") || job.result) cuMemFree(capture_memory);
            if (strcmp(names[n], "cuMemFreeAsync, other stream") || job.result) cuMemFreeAsync(capture_async, capture_other);
        }
        say("%s", names[n]);
    }
}
