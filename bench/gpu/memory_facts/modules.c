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
