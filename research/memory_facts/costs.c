// What calls cost that an account may need, what NVML shows to whom, and what a fork without exec finds.

// What the calls cost that an account may need.
static void pool_costs(char **arguments) {
    start();
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at, base, apart[64];
    CUdevice device;
    CUcontext context;
    CUstreamCaptureStatus status;
    cuuint64_t value;
    size_t bytes, total;
    int attribute;
    unsigned kind;
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAllocAsync(&at, 100 * MIB, stream));
    CUfunction nothing = plain("nothing");
    for (int many = 0; many < 2; many++) {
        if (many) for (int i = 0; i < 64; i++) NEED(cuMemAllocAsync(&apart[i], 33 * MIB, stream));
        TIME(many ? "cuMemPoolGetAttribute(RESERVED), 64 pieces more" : "cuMemPoolGetAttribute(RESERVED)", 100, cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    }
    TIME("cuMemPoolGetAttribute(USED)", 100, cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
    TIME("cuDeviceGetMemPool", 100, cuDeviceGetMemPool(&pool, 0));
    TIME("cuMemPoolTrimTo(2^63), nothing to do", 100, cuMemPoolTrimTo(pool, 1ull << 63));
    TIME("cuStreamIsCapturing", 100, cuStreamIsCapturing(stream, &status));
    TIME("cuStreamIsCapturing, legacy stream", 100, cuStreamIsCapturing(CU_STREAM_LEGACY, &status));
    TIME("cuStreamGetCtx", 100, cuStreamGetCtx(stream, &context));
    TIME("cuCtxGetDevice", 100, cuCtxGetDevice(&device));
    TIME("cuCtxGetCurrent", 100, cuCtxGetCurrent(&context));
    TIME("cuMemGetAddressRange", 100, cuMemGetAddressRange(&base, &bytes, at + MIB));
    TIME("cuPointerGetAttribute(MEMORY_TYPE)", 100, cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    TIME("cuPointerGetAttribute(MEMPOOL_HANDLE)", 100, cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at));
    TIME("cuFuncGetAttribute(LOCAL_SIZE_BYTES)", 100, cuFuncGetAttribute(&attribute, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, nothing));
    TIME("cuCtxGetLimit(STACK_SIZE)", 100, cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE));
    TIME("cuThreadExchangeStreamCaptureMode", 100, cuThreadExchangeStreamCaptureMode(&(CUstreamCaptureMode){CU_STREAM_CAPTURE_MODE_RELAXED}));
    TIME("cuMemGetInfo", 10, cuMemGetInfo(&bytes, &total));
    TIME("cuMemAllocAsync + cuMemFreeAsync, 1 MiB", 10, cuMemAllocAsync(&at, MIB, stream) | cuMemFreeAsync(at, stream));
    TIME("cuMemAllocAsync + RESERVED + cuMemFreeAsync", 10, cuMemAllocAsync(&at, MIB, stream) | cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value) | cuMemFreeAsync(at, stream));
    TIME("launch of an empty kernel", 10, launch(nothing, 0, 0, stream));
}

static void idle_context(char **arguments) {
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&own_context, 0));
    NEED(cuCtxSetCurrent(own_context));
    if (write(1, "r", 1) != 1) {}
    char end;
    if (read(0, &end, 1) != 0) {}
}

static void cost_nvml(char **arguments) {
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&own_context, 0));
    NEED(cuCtxSetCurrent(own_context));
    double begin = now_ns();
    nvml_load();
    field("ms", "%.3f", (now_ns() - begin) / 1e6);
    say("dlopen and dlsym of NVML");
    for (int round = 0; round < 3; round++) {
        begin = now_ns();
        int result = nvml.init();
        field("ms", "%.3f", (now_ns() - begin) / 1e6);
        field("r", "%d", result);
        say("nvmlInit_v2, number %d", round + 1);
        char uuid[96];
        nvml.by_index(0, &nvml.device);
        nvml.uuid(nvml.device, uuid, sizeof uuid);
        begin = now_ns();
        result = nvml.by_uuid(uuid, &nvml.device);
        field("ms", "%.3f", (now_ns() - begin) / 1e6);
        field("r", "%d", result);
        say("nvmlDeviceGetHandleByUUID, number %d", round + 1);
        begin = now_ns();
        nvml_own();
        field("ms", "%.3f", (now_ns() - begin) / 1e6);
        say("first look at the processes");
        if (round == 2) break;
        begin = now_ns();
        nvml.shutdown();
        field("ms", "%.3f", (now_ns() - begin) / 1e6);
        say("nvmlShutdown");
    }
    struct nvml_process list[64];
    struct nvml_memory memory = {.version = NVML_MEMORY_V2};
    size_t available, total;
    unsigned count;
    int pipes[15][2], ready[2], children = 0;
    if (pipe(ready)) exit(4);
    for (int more = 0; more < 2; more++) {
        if (more) {
            for (; children < 15; children++) {
                if (pipe(pipes[children])) exit(4);
                fcntl(pipes[children][1], F_SETFD, FD_CLOEXEC);
                pid_t child = fork();
                if (!child) {
                    dup2(pipes[children][0], 0);
                    dup2(ready[1], 1);
                    execl("/proc/self/exe", "memory_facts", "idle_context", NULL);
                    _exit(4);
                }
            }
            char answer;
            begin = now_ns();
            for (int i = 0; i < children; i++) if (read(ready[0], &answer, 1) != 1) exit(4);
            field("ms", "%.0f", (now_ns() - begin) / 1e6);
            say("15 contexts made at once");
        }
        count = 64;
        nvml.compute(nvml.device, &count, list);
        field("processes", "%u", count);
        say("listed");
        TIME("nvmlDeviceGetComputeRunningProcesses_v3", 1, (count = 64, nvml.compute(nvml.device, &count, list)));
        TIME("nvmlDeviceGetComputeRunningProcesses_v3, the count alone", 1, (count = 0, nvml.compute(nvml.device, &count, NULL) != 7 && count));
        TIME("nvmlDeviceGetMemoryInfo_v2", 1, nvml.memory(nvml.device, &memory));
        TIME("cuMemGetInfo", 1, cuMemGetInfo(&available, &total));
    }
    for (int i = 0; i < children; i++) close(pipes[i][1]);
    while (wait(NULL) > 0) {}
}

// Whom NVML lists, and how, for another user and in a namespace of pids.
static void seen_from(char **arguments) {
    int ready[2], pipes[2];
    if (pipe(ready) || pipe(pipes)) exit(4);
    fcntl(pipes[1], F_SETFD, FD_CLOEXEC);
    pid_t other = fork();
    if (!other) {
        dup2(pipes[0], 0);
        dup2(ready[1], 1);
        execl("/proc/self/exe", "memory_facts", "idle_context", NULL);
        _exit(4);
    }
    char answer;
    if (read(ready[0], &answer, 1) != 1) exit(4);
    list_all = 1;
    for (int way = 0; way < 3; way++) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            if (way == 1 && (setgid(65534) || setuid(65534))) exit(4);
            if (way == 2) {
                if (unshare(CLONE_NEWPID | CLONE_NEWNS)) { say("no namespace of pids here"); exit(0); }
                pid_t inside = fork();
                if (inside) {
                    // From outside, while the one inside holds its context.
                    usleep(700000);
                    nvml_open();
                    field("its_pid_outside", "%d", inside);
                    mark(0, "seen from outside the namespace");
                    waitpid(inside, NULL, 0);
                    exit(0);
                }
                if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("proc", "/proc", "proc", 0, NULL)) say("no own /proc");
            }
            nvml_open();
            int result = cuInit(0);
            if (!result) result = cuDevicePrimaryCtxRetain(&own_context, 0);
            field("own_pid", "%d", getpid());
            field("other_pid", "%d", other);
            mark(result, "%s", way == 0 ? "the same user" : way == 1 ? "another user" : "a namespace of pids");
            if (way == 2) usleep(1000000);
            exit(0);
        }
        waitpid(child, NULL, 0);
    }
    close(pipes[1]);
    waitpid(other, NULL, 0);
}

static void fork_only(char **arguments) {
    start();
    CUdeviceptr at;
    NEED(cuMemAlloc(&at, 64 * MIB));
    mark(0, "64 MiB");
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        CUdeviceptr other;
        CUdevice device;
        CUcontext context;
        CUmemoryPool pool;
        size_t available, total;
        int count;
        who = "child";
#define CHILD(call) do { double b_ = now_ns(); CUresult c_ = (call); field("r", "%d", c_); field("us", "%.0f", (now_ns() - b_) / 1e3); say("%s", #call); } while (0)
        CHILD(cuCtxGetDevice(&device));
        CHILD(cuCtxGetCurrent(&context));
        CHILD(cuMemGetInfo(&available, &total));
        CHILD(cuDriverGetVersion(&count));
        CHILD(cuDeviceGetCount(&count));
        CHILD(cuDeviceGet(&device, 0));
        CHILD(cuMemAlloc(&other, MIB));
        CHILD(cuMemAllocAsync(&other, MIB, 0));
        CHILD(cuDeviceGetDefaultMemPool(&pool, 0));
        CHILD(cuMemFree(at));
        CHILD(cuDevicePrimaryCtxRetain(&context, 0));
        CHILD(cuInit(0));
        field("nvml", "%d", nvml.init());
        say("nvmlInit_v2");
        field("of_child", "%lld", nvml_own());
        field("of_parent", "%lld", nvml_of(getppid()));
        say("NVML");
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    field("status", "%d", status);
    mark(0, "the child is gone");
    STEP(cuMemsetD8(at, 1, 64 * MIB), "set in the parent");
    STEP(cuMemFree(at), "freed in the parent");
}
