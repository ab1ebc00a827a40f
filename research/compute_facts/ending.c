// What becomes of a kernel that still runs when its stream, module, context or process ends.

// `alive`: for nanoseconds, tells how long it has run for; tells when it has ended.
static const char ptx_alive[] = PTX_HEAD
    ".visible .entry alive(.param .u64 ns, .param .u64 told) {\n"
    " .reg .u64 %a<5>; .reg .pred %p;\n"
    " ld.param.u64 %a0, [ns];\n ld.param.u64 %a1, [told];\n mov.u64 %a2, %globaltimer;\n"
    "again: mov.u64 %a3, %globaltimer;\n sub.u64 %a4, %a3, %a2;\n st.volatile.global.u64 [%a1], %a4;\n membar.sys;\n"
    " setp.lt.u64 %p, %a4, %a0;\n @%p bra again;\n"
    " mov.u64 %a4, 1;\n st.volatile.global.u64 [%a1+8], %a4;\n membar.sys;\n ret;\n}\n";

#define ALIVE_NS 200000000ull

static const char *const endings[] = {
    "cuStreamDestroy", "cuModuleUnload", "cuCtxDestroy", "cuCtxDestroy of another than the current one", "cuDevicePrimaryCtxReset",
    "cuDevicePrimaryCtxRelease, the last", "exit", "SIGKILL",
};

static CUcontext new_context(void) {
    CUcontext made;
#if CUDA_VERSION >= 13000
    NEED(cuCtxCreate(&made, NULL, 0, 0));
#else
    NEED(cuCtxCreate(&made, 0, 0));
#endif
    return made;
}

// What the kernel tells goes through the memory of a context that stays, so that the end itself hides nothing.
static void ending_one(unsigned which, volatile uint64_t *told) {
    CUcontext stays, goes;
    CUmodule alive_module;
    CUfunction alive;
    CUstream stream;
    CUdeviceptr told_at;
    NEED(cuInit(0));
    bool primary = strstr(endings[which], "Primary");
    if (primary) {
        stays = new_context();
        NEED(cuDevicePrimaryCtxRetain(&goes, 0));
    } else {
        NEED(cuDevicePrimaryCtxRetain(&stays, 0));
        goes = new_context();
    }
    NEED(cuCtxSetCurrent(stays));
    NEED(cuMemHostRegister((void *)told, 4096, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    NEED(cuCtxSetCurrent(goes));
    NEED(cuMemHostGetDevicePointer(&told_at, (void *)told, 0));
    NEED(cuModuleLoadData(&alive_module, ptx_alive));
    NEED(cuModuleGetFunction(&alive, alive_module, "alive"));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(launch(alive, 1, ALIVE_NS, told_at, stream));
    double since = now_ns();
    while (told[0] < 5000000 && now_ns() - since < 1e9) ;
    if (!strncmp(endings[which], "cuCtxDestroy of", 15)) NEED(cuCtxSetCurrent(stays));
    told[3] = told[0];
    since = now_ns();
    CUresult result = 0;
    switch (which) {
    case 0: result = cuStreamDestroy(stream); break;
    case 1: result = cuModuleUnload(alive_module); break;
    case 2: case 3: result = cuCtxDestroy(goes); break;
    case 4: result = cuDevicePrimaryCtxReset(0); break;
    case 5: result = cuDevicePrimaryCtxRelease(0); break;
    case 6: exit(0);
    default: raise(SIGKILL);
    }
    double took = now_ns() - since;
    told[4] = (uint64_t)took;
    told[5] = told[0];
    told[6] = told[1];
    told[7] = (uint64_t)result + 1;
    busy_ns(300e6);
    _exit(0);
}

static void ending(char **arguments) {
    (void)arguments;
    for (unsigned which = 0; which < sizeof endings / sizeof *endings; which++) {
        volatile uint64_t *told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        // A process each, begun before the driver.
        pid_t child = fork();
        if (!child) ending_one(which, told);
        int status;
        waitpid(child, &status, 0);
        uint64_t at_death = told[0];
        busy_ns(250e6);
        printf("{\"at\":\"%s\",\"r\":%d,\"kernel_ms\":%.1f,\"call_ms\":%.2f,\"ran_ms_before\":%.1f,\"ran_ms_at_return\":%.1f,\"ended_at_return\":%s,\"ran_ms_when_the_process_was_gone\":%.1f,\"ran_ms_at_last\":%.1f,\"ended\":%s,\"signal\":%d}\n",
               endings[which], (int)told[7] - 1, ALIVE_NS / 1e6, told[4] / 1e6, told[3] / 1e6, told[5] / 1e6, told[6] ? "true" : "false",
               at_death / 1e6, told[0] / 1e6, told[1] ? "true" : "false", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        munmap((void *)told, 4096);
    }
}
