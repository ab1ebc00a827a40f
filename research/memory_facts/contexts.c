// What contexts and what belongs to them take.

static void about(char **arguments) {
    start();
    int version;
    cuDriverGetVersion(&version);
    field("driver_version", "%d", version);
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    char line[256] = "";
    if (file && fgets(line, sizeof line, file)) line[strcspn(line, "\n")] = 0;
    field("module", "\"%s\"", line);
    static const struct { const char *name; CUdevice_attribute attribute; } asked[] = {
        {"sms", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
        {"threads_per_sm", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
        {"pageable_memory", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
        {"concurrent_managed", CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS},
        {"posix_fd", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
        {"fabric", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED},
        {"sparse_arrays", CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED},
        {"deferred_arrays", CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED},
        {"pool_handles", CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES},
        {"host_numa_vmm", CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
    };
    for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++) {
        int value = -1;
        cuDeviceGetAttribute(&value, asked[i].attribute, 0);
        field(asked[i].name, "%d", value);
    }
    size_t available, total, least, advised;
    cuMemGetInfo(&available, &total);
    field("cuda_total", "%zu", total);
    struct nvml_memory memory = {.version = NVML_MEMORY_V2};
    nvml.memory(nvml.device, &memory);
    field("nvml_total", "%llu", memory.total);
    field("nvml_reserved", "%llu", memory.reserved);
    field("nvml_free_less_cuda_free", "%lld", (long long)memory.free - (long long)available);
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    cuMemGetAllocationGranularity(&least, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    cuMemGetAllocationGranularity(&advised, &property, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    field("granularity", "[%zu,%zu]", least, advised);
    static const CUlimit limits[] = {CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT};
    for (unsigned i = 0; i < 4; i++) {
        size_t value = 0;
        cuCtxGetLimit(&value, limits[i]);
        char name[32];
        sprintf(name, "limit_%d", limits[i]);
        field(name, "%zu", value);
    }
    say("machine");
}

// Run with CUDA_MODULE_LOADING in the environment, and without.
static void context_primary(char **arguments) {
    nvml_open();
    CUdeviceptr small;
    mark(0, "before cuInit");
    STEP(cuInit(0), "cuInit");
    STEP(cuDevicePrimaryCtxRetain(&own_context, 0), "cuDevicePrimaryCtxRetain");
    STEP(cuCtxSetCurrent(own_context), "cuCtxSetCurrent");
    STEP(cuCtxSynchronize(), "cuCtxSynchronize");
    STEP(cuMemAlloc(&small, 512), "cuMemAlloc(512)");
    STEP(cuMemFree(small), "cuMemFree");
    STEP(cuModuleLoadData(&plain_module, ptx_plain), "cuModuleLoadData, a small one");
    CUfunction nothing;
    STEP(cuModuleGetFunction(&nothing, plain_module, "nothing"), "cuModuleGetFunction");
    STEP(launch(nothing, 0, 0, 0), "launch");
    STEP(cuCtxSynchronize(), "synchronize");
    STEP(cuMemAlloc(&small, 64 * MIB), "cuMemAlloc(64 MiB), left to the context");
    STEP(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
    STEP(cuDevicePrimaryCtxRetain(&own_context, 0), "cuDevicePrimaryCtxRetain again");
    STEP(cuCtxSetCurrent(own_context), "cuCtxSetCurrent");
    STEP(cuMemAlloc(&small, 64 * MIB), "cuMemAlloc(64 MiB), left to the context");
    STEP(cuDevicePrimaryCtxReset(0), "cuDevicePrimaryCtxReset");
    STEP(cuCtxSetCurrent(own_context), "cuCtxSetCurrent, not retained again");
    STEP(cuMemAlloc(&small, 64 * MIB), "cuMemAlloc(64 MiB)");
}

static void context_more(char **arguments) {
    CUresult (*create_v2)(CUcontext *, unsigned, CUdevice);
    CUresult (*create_v3)(CUcontext *, void *, int, unsigned, CUdevice);
    CUresult (*create_v4)(CUcontext *, void *, unsigned, CUdevice);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&create_v2 = dlsym(driver, "cuCtxCreate_v2");
    *(void **)&create_v3 = dlsym(driver, "cuCtxCreate_v3");
    *(void **)&create_v4 = dlsym(driver, "cuCtxCreate_v4");
    start();
    CUcontext made[6] = {0};
    CUdeviceptr small[7];
    field("address", "\"%#llx\"", cuMemAlloc(&small[6], 512) ? 0 : small[6]);
    mark(0, "512 B in the primary context");
    STEP(create_v2(&made[0], 0, 0), "cuCtxCreate_v2");
    field("address", "\"%#llx\"", cuMemAlloc(&small[0], 512) ? 0 : small[0]);
    mark(0, "512 B in it");
    STEP(create_v2(&made[1], 0, 0), "cuCtxCreate_v2");
    STEP(create_v2(&made[2], CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_MAP_HOST | CU_CTX_SCHED_BLOCKING_SYNC, 0), "cuCtxCreate_v2, other flags");
    if (create_v3) STEP(create_v3(&made[3], NULL, 0, 0, 0), "cuCtxCreate_v3");
    if (create_v4) STEP(create_v4(&made[4], NULL, 0, 0), "cuCtxCreate_v4");
    for (int i = 4; i >= 0; i--)
        if (made[i]) STEP(cuCtxDestroy(made[i]), "cuCtxDestroy of number %d", i);
    STEP(cuCtxSetCurrent(own_context), "the primary one current");
    STEP(create_v2(&made[0], 0, 0), "cuCtxCreate_v2 again");
    STEP(cuDevicePrimaryCtxReset(0), "cuDevicePrimaryCtxReset while it lives");
    STEP(cuCtxDestroy(made[0]), "cuCtxDestroy");
}

static void context_green(char **arguments) {
    nvml_open();
    NEED(cuInit(0));
    mark(0, "cuInit");
    CUdevResource whole = {0}, parts[4], rest;
    unsigned groups = 4;
    CUdevResourceDesc description[4];
    CUgreenCtx green[4];
    CUcontext context[4];
    CUdeviceptr small;
    STEP(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
    STEP(cuDevSmResourceSplitByCount(parts, &groups, &whole, &rest, 0, 16), "cuDevSmResourceSplitByCount");
    for (int i = 0; i < 3; i++) {
        STEP(cuDevResourceGenerateDesc(&description[i], &parts[i], 1), "cuDevResourceGenerateDesc");
        STEP(cuGreenCtxCreate(&green[i], description[i], 0, CU_GREEN_CTX_DEFAULT_STREAM), "cuGreenCtxCreate number %d", i);
        STEP(cuCtxFromGreenCtx(&context[i], green[i]), "cuCtxFromGreenCtx");
        STEP(cuCtxSetCurrent(context[i]), "cuCtxSetCurrent");
        STEP(cuMemAlloc(&small, 512), "cuMemAlloc(512)");
        field("address", "\"%#llx\"", small);
        plain_module = NULL;
        STEP(launch(plain("nothing"), 0, 0, 0), "launch");
        CUstream stream;
        STEP(cuGreenCtxStreamCreate(&stream, green[i], CU_STREAM_NON_BLOCKING, 0), "cuGreenCtxStreamCreate");
    }
    STEP(cuDevicePrimaryCtxRetain(&own_context, 0), "cuDevicePrimaryCtxRetain");
    for (int i = 0; i < 3; i++) STEP(cuGreenCtxDestroy(green[i]), "cuGreenCtxDestroy number %d", i);
    STEP(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
}

static void context_streams(char **arguments) {
    start();
    static CUstream streams[2048];
    static CUevent events[4096];
    CUfunction nothing = plain("nothing");
    mark(0, "a small module");
    for (int i = 0, next = 1; i < 2048; i++) {
        if (cuStreamCreateWithPriority(&streams[i], CU_STREAM_NON_BLOCKING, i % 2 ? -1 : 0)) break;
        launch(nothing, 0, 0, streams[i]);
        if (i + 1 == next) mark(cuCtxSynchronize(), "%d streams, each used", next), next *= 2;
    }
    for (int i = 0; i < 4096; i++) cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING), cuEventRecord(events[i], streams[0]);
    mark(cuCtxSynchronize(), "4096 events");
    for (int i = 0; i < 4096; i++) cuEventDestroy(events[i]);
    for (int i = 0; i < 2048; i++) cuStreamDestroy(streams[i]);
    mark(0, "all destroyed");
    CUdeviceptr from, to;
    static char pageable_bytes[32 * MIB];
    cuMemAlloc(&from, 32 * MIB);
    cuMemAlloc(&to, 32 * MIB);
    mark(0, "two of 32 MiB");
    STEP(cuMemcpyHtoD(from, pageable_bytes, 32 * MIB), "copied from pageable memory");
    STEP(cuMemcpyDtoD(to, from, 32 * MIB), "copied on the device");
    STEP(cuMemcpyDtoH(pageable_bytes, to, 32 * MIB), "copied to pageable memory");
    STEP(cuMemcpyPeer(to, own_context, from, own_context, 32 * MIB), "cuMemcpyPeer to itself");
}
