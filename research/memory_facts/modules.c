// Modules and libraries with device memory of their own. Run with CUDA_MODULE_LOADING in the environment, and without.

static void module_global(char **arguments) {
    start();
    CUmodule module;
    CUdeviceptr at;
    CUfunction function;
    size_t bytes;
    static const unsigned long long sizes[] = {256 * MIB, 4, 3 * MIB};
    for (int i = 0; i < 3; i++) {
        STEP(cuModuleLoadData(&module, ptx_global(sizes[i])), "module with %llu KiB loaded", sizes[i] / KIB);
        STEP(cuModuleGetFunction(&function, module, "nothing"), "cuModuleGetFunction of a kernel that does not use it");
        STEP(launch(function, 0, 0, 0), "launched");
        STEP(cuModuleGetFunction(&function, module, "first"), "cuModuleGetFunction of a kernel that uses it");
        CUresult result = cuModuleGetGlobal(&at, &bytes, module, "big");
        field("modulo", "%llu", at % PIECE);
        field("bytes", "%zu", bytes);
        mark(result, "cuModuleGetGlobal");
        STEP(launch(function, at, 0, 0), "launched");
        STEP(cuCtxSynchronize(), "synchronized");
        STEP(cuModuleUnload(module), "unloaded");
    }
    // Many small modules.
    static CUmodule many[300];
    for (int i = 0; i < 300; i++) NEED(cuModuleLoadData(&many[i], ptx_plain));
    mark(0, "300 small modules");
    for (int i = 0; i < 300; i++) NEED(cuModuleGetFunction(&function, many[i], "nothing"));
    mark(0, "a function of each");
    for (int i = 0; i < 300; i++) NEED(cuModuleUnload(many[i]));
    mark(0, "unloaded");
    size_t available, total;
    CUdeviceptr filler;
    cuMemGetInfo(&available, &total);
    STEP(cuMemAlloc(&filler, (available - 128 * MIB) / PIECE * PIECE), "all but 128 MiB taken");
    STEP(cuModuleLoadData(&module, ptx_global(256 * MIB)), "module with 256 MiB, where there is no room");
}

static void library_global(char **arguments) {
    nvml_open();
    NEED(cuInit(0));
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    CUdeviceptr at;
    size_t bytes;
    STEP(cuLibraryLoadData(&library, ptx_global(256 * MIB), NULL, NULL, 0, NULL, NULL, 0), "cuLibraryLoadData without a context");
    NEED(cuDevicePrimaryCtxRetain(&own_context, 0));
    NEED(cuCtxSetCurrent(own_context));
    mark(0, "context");
    STEP(cuLibraryGetKernel(&kernel, library, "nothing"), "cuLibraryGetKernel of a kernel that does not use it");
    STEP(cuKernelGetFunction(&function, kernel), "cuKernelGetFunction");
    STEP(launch(function, 0, 0, 0), "launched");
    STEP(cuLibraryGetGlobal(&at, &bytes, library, "big"), "cuLibraryGetGlobal");
    STEP(cuLibraryUnload(library), "unloaded");
    STEP(cuLibraryLoadData(&library, ptx_global(256 * MIB), NULL, NULL, 0, NULL, NULL, 0), "cuLibraryLoadData with a context");
    STEP(cuLibraryGetKernel(&kernel, library, "nothing"), "cuLibraryGetKernel");
    STEP(launch((CUfunction)kernel, 0, 0, 0), "the kernel launched, never made a function");
    STEP(cuCtxSynchronize(), "synchronized");
    STEP(cuLibraryUnload(library), "unloaded");
}

// How much of /dev/nvidia-uvm is mapped, and how long it takes to find that out.
static void managed_seen(void) {
    double begin = now_ns();
    char line[512];
    unsigned long long from, to, sum = 0;
    int lines = 0, count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        lines++;
        if (!strstr(line, "/dev/nvidia-uvm") || sscanf(line, "%llx-%llx", &from, &to) != 2) continue;
        sum += to - from;
        count++;
    }
    fclose(maps);
    field("uvm_maps", "%d", count);
    field("uvm_mapped", "%llu", sum);
    field("lines", "%d", lines);
    field("ns", "%.0f", now_ns() - begin);
}

static void managed_asked(CUdeviceptr at) {
    int is_managed = -1;
    CUdeviceptr start = 0;
    size_t size = 0;
    cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
    cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at);
    cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at);
    field("is_managed", "%d", is_managed);
    field("range_at", "%lld", (long long)(at - start));
    field("range_size", "%zu", size);
}

#define SEEN(call, ...) do { CUresult seen_ = (call); managed_seen(); mark(seen_, __VA_ARGS__); } while (0)

// A block of a thousand threads for each 4 MiB that are to be written.
static CUresult touch(CUfunction function, unsigned long long bytes) {
    return cuLaunchKernel(function, (bytes + 4096 * 1024 - 1) / (4096 * 1024), 1, 1, 1024, 1, 1, 0, 0, NULL, NULL);
}

// Managed variables of modules: when they are there, who sees them, and whether they can be found.
static void module_managed(char **arguments) {
    start();
    CUmodule module;
    CUdeviceptr at;
    CUfunction function;
    size_t bytes;
    static const unsigned long long sizes[] = {4, 3 * MIB, 256 * MIB, 8 * GIB};
    for (int i = 0; i < 4; i++) {
        SEEN(0, "before");
        SEEN(cuModuleLoadData(&module, ptx_managed(sizes[i])), "module with a managed variable of %llu KiB loaded", sizes[i] / KIB);
        SEEN(cuModuleGetFunction(&function, module, "nothing"), "cuModuleGetFunction of a kernel that does not use it");
        SEEN(cuModuleGetFunction(&function, module, "touch"), "cuModuleGetFunction of a kernel that uses it");
        SEEN(touch(function, sizes[i]), "written by a kernel");
        SEEN(cuCtxSynchronize(), "synchronized");
        CUresult result = cuModuleGetGlobal(&at, &bytes, module, "big");
        field("bytes", "%zu", bytes);
        field("modulo", "%llu", at % PIECE);
        managed_asked(at);
        SEEN(result, "cuModuleGetGlobal");
        SEEN(cuModuleUnload(module), "unloaded");
    }
    CUmodule more;
    SEEN(cuModuleLoadData(&module, ptx_managed(512 * MIB)), "module with 512 MiB loaded");
    SEEN(cuModuleLoadData(&more, ptx_managed(512 * MIB)), "another");
    SEEN(cuModuleUnload(module), "first unloaded");
    SEEN(cuModuleUnload(more), "second unloaded");
    size_t available, total;
    CUdeviceptr filler;
    cuMemGetInfo(&available, &total);
    STEP(cuMemAlloc(&filler, (available - 128 * MIB) / PIECE * PIECE), "all but 128 MiB taken");
    SEEN(cuModuleLoadData(&module, ptx_managed(256 * MIB)), "module with 256 MiB, where there is no room");
}

// Small ones: which lie together, and what the driver knows of them.
static void managed_small(char **arguments) {
    nvml_open();
    NEED(cuInit(0));
    CUlibrary library;
    CUmodule module;
    CUmemoryPool pool;
    CUdeviceptr at[3], pooled;
    size_t bytes;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    SEEN(cuLibraryLoadData(&library, ptx_managed_many(100), NULL, NULL, 0, NULL, NULL, 0), "library with 100 variables of 4 B and one of 3 MiB, without a context");
    CUresult result = cuLibraryGetManaged(at, &bytes, library, "small99");
    managed_asked(at[0]);
    SEEN(result, "cuLibraryGetManaged");
    NEED(cuDevicePrimaryCtxRetain(&own_context, 0));
    NEED(cuCtxSetCurrent(own_context));
    SEEN(0, "context");
    SEEN(cuModuleLoadData(&module, ptx_managed_many(100)), "module with the same");
    SEEN(cuMemAllocManaged(&at[0], 4 * KIB, CU_MEM_ATTACH_GLOBAL), "4 KiB allocated");
    SEEN(cuMemAllocManaged(&at[1], 1000 * KIB, CU_MEM_ATTACH_GLOBAL), "1000 KiB allocated");
    SEEN(cuMemAllocManaged(&at[2], 2000 * KIB, CU_MEM_ATTACH_GLOBAL), "2000 KiB allocated");
    SEEN(cuLibraryUnload(library), "library unloaded");
    SEEN(cuModuleUnload(module), "module unloaded");
    result = cuMemFree(at[0]);
    managed_asked(at[0]);
    SEEN(result, "4 KiB freed");
    SEEN(cuMemPoolCreate(&pool, &properties), "pool of managed memory");
    result = cuMemAllocFromPoolAsync(&pooled, 5 * MIB, pool, 0);
    managed_asked(pooled);
    SEEN(result, "5 MiB of it");
    result = cuMemPoolDestroy(pool);
    managed_asked(pooled);
    SEEN(result, "pool destroyed");
}

static void library_managed(char **arguments) {
    nvml_open();
    NEED(cuInit(0));
    CUlibrary library;
    CUkernel kernel;
    CUdeviceptr at;
    size_t bytes;
    SEEN(cuLibraryLoadData(&library, ptx_managed(256 * MIB), NULL, NULL, 0, NULL, NULL, 0), "cuLibraryLoadData without a context");
    CUresult result = cuLibraryGetManaged(&at, &bytes, library, "big");
    SEEN(result, "cuLibraryGetManaged without a context");
    NEED(cuDevicePrimaryCtxRetain(&own_context, 0));
    NEED(cuCtxSetCurrent(own_context));
    SEEN(0, "context");
    result = cuLibraryGetManaged(&at, &bytes, library, "big");
    field("bytes", "%zu", bytes);
    managed_asked(at);
    SEEN(result, "cuLibraryGetManaged");
    result = cuLibraryGetGlobal(&at, &bytes, library, "big");
    SEEN(result, "cuLibraryGetGlobal");
    SEEN(cuLibraryGetKernel(&kernel, library, "touch"), "cuLibraryGetKernel");
    SEEN(touch((CUfunction)kernel, 256 * MIB), "written by the kernel, never made a function");
    SEEN(cuCtxSynchronize(), "synchronized");
    SEEN(cuLibraryUnload(library), "unloaded");
    SEEN(cuLibraryLoadData(&library, ptx_managed(256 * MIB), NULL, NULL, 0, NULL, NULL, 0), "cuLibraryLoadData with a context");
    SEEN(cuLibraryGetKernel(&kernel, library, "touch"), "cuLibraryGetKernel");
    SEEN(touch((CUfunction)kernel, 256 * MIB), "written by the kernel, nothing else asked for");
    SEEN(cuCtxSynchronize(), "synchronized");
    SEEN(cuLibraryUnload(library), "unloaded");
}
