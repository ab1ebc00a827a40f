// What the GPU uses and no process has: the driver's figure for the GPU less its figures for all processes. And how long the memory of
// something that is gone stays.

static long long nobody_has(long long *used, long long *listed) {
    struct nvml_process list[64];
    unsigned count = 64;
    *listed = 0;
    if (nvml.compute(nvml.device, &count, list)) return -1;
    for (unsigned i = 0; i < count; i++) *listed += list[i].used;
    *used = nvml_used();
    return *used - *listed;
}

static void nobody_mark(int result, const char *what) {
    long long used, listed, nobody = nobody_has(&used, &listed);
    struct nvml_memory memory = {.version = NVML_MEMORY_V2};
    nvml.memory(nvml.device, &memory);
    field("r", "%d", result);
    field("used_kib", "%lld", used / 1024);
    field("listed_kib", "%lld", listed / 1024);
    field("nobody_kib", "%lld", nobody / 1024);
    field("reserved_kib", "%llu", memory.reserved / 1024);
    say("%s", what);
}

// The ms until what nobody has is less than half of what is held beyond `base`; 3000 for longer.
static double nobody_until(long long base, long long held) {
    double begin = now_ns();
    long long used, listed;
    while (nobody_has(&used, &listed) > base + held / 2 && now_ns() < begin + 3e9) usleep(200);
    return (now_ns() - begin) / 1e6;
}

// Another process with a context, memory, and what `also` says. It says that it is ready, and waits to be killed.
static void nobody_other(char **arguments) {
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&own_context, 0));
    NEED(cuCtxSetCurrent(own_context));
    CUdeviceptr at;
    NEED(cuMemAlloc(&at, strtoull(arguments[0], NULL, 10) * MIB));
    int fd = -1;
    if (!strcmp(arguments[1], "dma_buf")) NEED(cuMemGetHandleForAddressRange(&fd, at, 64 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    pid_t child = 0;
    if (!strncmp(arguments[1], "fork", 4)) {
        child = fork();
        if (!child) {
            if (!strcmp(arguments[1], "fork_closes")) for (int fd = 3; fd < 1024; fd++) if (fd != 100) close(fd);
            for (;;) pause();
        }
    }
    if (write(1, &child, sizeof child) != sizeof child) {}
    for (;;) pause();
}

static pid_t nobody_start(const char *mib, const char *also, pid_t *grandchild) {
    int ready[2];
    if (pipe(ready)) exit(4);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        dup2(ready[1], 1);
        close(ready[0]);
        close(ready[1]);
        execl("/proc/self/exe", "memory_facts", "nobody_other", mib, also, NULL);
        _exit(4);
    }
    close(ready[1]);
    pid_t other = 0;
    if (read(ready[0], &other, sizeof other) != sizeof other) exit(4);
    close(ready[0]);
    if (grandchild) *grandchild = other;
    return child;
}

// Memory whose descriptor is all that is left, from its making to the descriptor's end.
static void nobody_described(const char *how, int fd, int result) {
    long long used, listed;
    nobody_mark(result, how);
    if (fd < 0) return;
    usleep(50000);
    nobody_mark(0, "50 ms later");
    long long before = nobody_has(&used, &listed);
    close(fd);
    field("ms", "%.2f", nobody_until(before - 64 * (long long)MIB, 64 * MIB));
    nobody_mark(0, "descriptor closed");
}

static void nobody(char **arguments) {
    nvml_open();
    nobody_mark(0, "nothing");
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&own_context, 0));
    NEED(cuCtxSetCurrent(own_context));
    nobody_mark(0, "a context");
    CUdeviceptr at;
    NEED(cuMemAlloc(&at, GIB));
    nobody_mark(0, "1 GiB");
    NEED(cuMemFree(at));
    nobody_mark(0, "freed");
    pid_t others[3];
    for (int i = 0; i < 3; i++) others[i] = nobody_start("64", "nothing", NULL);
    nobody_mark(0, "three other processes of 64 MiB");
    for (int i = 0; i < 3; i++) kill(others[i], SIGKILL), waitpid(others[i], NULL, 0);
    nobody_mark(0, "they are gone");
    usleep(200000);
    nobody_mark(0, "0.2 s later");
    int fd = -1, result;
    for (int round = 0; round < 3; round++) {
        fd = -1;
        NEED(cuMemAlloc(&at, 64 * MIB));
        result = cuMemGetHandleForAddressRange(&fd, at, 64 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
        NEED(cuMemFree(at));
        nobody_described("64 MiB freed that a dma-buf has", fd, result);
    }
    CUmemAllocationProp property = mapped_property(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle handle;
    NEED(cuMemCreate(&handle, 64 * MIB, &property, 0));
    NEED(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    NEED(cuMemRelease(handle));
    nobody_described("64 MiB released that a descriptor has", fd, 0);
    CUmemoryPool pool = pool_make(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    NEED(cuMemAllocFromPoolAsync(&at, 64 * MIB, pool, 0));
    NEED(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    nobody_mark(0, "an exported pool with 64 MiB");
    NEED(cuMemFreeAsync(at, 0));
    NEED(cuCtxSynchronize());
    nobody_mark(0, "freed");
    NEED(cuMemPoolDestroy(pool));
    nobody_described("the pool destroyed, its descriptor open", fd, 0);
    // Destroyed in use.
    pool = pool_make(0, CU_MEM_HANDLE_TYPE_NONE);
    NEED(cuMemAllocFromPoolAsync(&at, 64 * MIB, pool, 0));
    NEED(cuMemPoolDestroy(pool));
    nobody_mark(0, "a pool destroyed in use");
    NEED(cuMemFreeAsync(at, 0));
    NEED(cuCtxSynchronize());
    nobody_mark(0, "its memory freed");
    NEED(cuMemAllocManaged(&at, 256 * MIB, CU_MEM_ATTACH_GLOBAL));
    NEED(cuMemsetD8(at, 1, 256 * MIB));
    NEED(cuCtxSynchronize());
    nobody_mark(0, "256 MiB of managed memory, written on the GPU");
    NEED(cuMemFree(at));
    nobody_mark(0, "freed");
}

// Memory that is mapped into a sparse array, or is not.
static void nobody_tiles(char **arguments) {
    nvml_open();
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&own_context, 0));
    NEED(cuCtxSetCurrent(own_context));
    CUDA_ARRAY3D_DESCRIPTOR described = {.Width = 4096, .Height = 4096, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1, .Flags = CUDA_ARRAY3D_SPARSE};
    CUarray array;
    CUmemAllocationProp property = mapped_property(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_NONE);
    property.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
    CUmemGenericAllocationHandle handle;
    CUDA_ARRAY_SPARSE_PROPERTIES sparse;
    for (int round = 0; round < 3; round++) {
        NEED(cuArray3DCreate(&array, &described));
        NEED(cuArrayGetSparseProperties(&sparse, array));
        field("tile", "[%u,%u,%u]", sparse.tileExtent.width, sparse.tileExtent.height, sparse.tileExtent.depth);
        nobody_mark(0, "a sparse array");
        NEED(cuMemCreate(&handle, 64 * MIB, &property, 0));
        nobody_mark(0, "64 MiB of tiles");
        CUarrayMapInfo map = {
            .resourceType = CU_RESOURCE_TYPE_ARRAY, .resource.array = array, .subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
            .subresource.sparseLevel = {.extentWidth = 4096, .extentHeight = round == 2 ? 100 : 4096, .extentDepth = 1},
            .memOperationType = CU_MEM_OPERATION_TYPE_MAP, .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC, .memHandle.memHandle = handle, .deviceBitMask = 1,
        };
        CUresult result = cuMemMapArrayAsync(&map, 1, 0);
        cuCtxSynchronize();
        nobody_mark(result, round == 2 ? "mapped a part that is not whole tiles" : "mapped");
        nobody_mark(cuMemRelease(handle), "released");
        if (round == 0) {
            map.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
            map.memHandle.memHandle = 0;
            result = cuMemMapArrayAsync(&map, 1, 0);
            cuCtxSynchronize();
            nobody_mark(result, "unmapped");
        }
        nobody_mark(cuArrayDestroy(array), "array destroyed");
    }
}

// What a forked child keeps of a process that is killed: "fork" has the driver's files, "fork_closes" has closed them.
static void nobody_forked(char **arguments) {
    nvml_open();
    for (int i = 0; i < 3; i++) {
        static const char *const kinds[] = {"nothing", "fork", "fork_closes"};
        for (int round = 0; round < 3; round++) {
            long long used, listed, base = nobody_has(&used, &listed) + listed;
            pid_t grandchild, child = nobody_start("1024", kinds[i], &grandchild);
            field("kind", "\"%s\"", kinds[i]);
            nobody_mark(0, "1 GiB in a process");
            kill(child, SIGKILL);
            double begin = now_ns();
            waitpid(child, NULL, 0);
            field("reaped_ms", "%.2f", (now_ns() - begin) / 1e6);
            while (nvml_used() > base + 512 * (long long)MIB && now_ns() < begin + 2e9) usleep(200);
            field("free_ms", "%.2f", (now_ns() - begin) / 1e6);
            nobody_mark(0, "killed");
            if (grandchild) {
                kill(grandchild, SIGKILL);
                begin = now_ns();
                while (nvml_used() > base + 512 * (long long)MIB && now_ns() < begin + 2e9) usleep(200);
                field("free_ms", "%.2f", (now_ns() - begin) / 1e6);
                nobody_mark(0, "its child killed");
            }
        }
    }
    // A process that had a descriptor of what it held.
    for (int round = 0; round < 5; round++) {
        long long used, listed, base = nobody_has(&used, &listed);
        pid_t child = nobody_start("1024", "dma_buf", NULL);
        kill(child, SIGKILL);
        double begin = now_ns();
        waitpid(child, NULL, 0);
        field("reaped_ms", "%.2f", (now_ns() - begin) / 1e6);
        field("free_ms", "%.2f", nobody_until(base, GIB));
        nobody_mark(0, "killed with a dma-buf");
    }
}
