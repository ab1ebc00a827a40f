// What an event between two launches does to their overlap where the second may begin before the first has ended.

static const char ptx_overlap[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
    // Lets the next one begin at once, then waits for nanoseconds; notes when it began and ended.
    ".visible .entry early(.param .u64 ns, .param .u64 log) {\n"
    " .reg .u64 %a<8>; .reg .pred %p;\n"
    " mov.u64 %a1, %globaltimer;\n griddepcontrol.launch_dependents;\n"
    " ld.param.u64 %a0, [ns];\n ld.param.u64 %a4, [log];\n"
    "again: mov.u64 %a2, %globaltimer;\n sub.u64 %a3, %a2, %a1;\n setp.lt.u64 %p, %a3, %a0;\n @%p bra again;\n"
    " griddepcontrol.wait;\n"
    " atom.global.add.u64 %a5, [%a4], 1;\n shl.b64 %a5, %a5, 4;\n add.u64 %a6, %a4, %a5;\n st.global.v2.u64 [%a6+" STAMPS_AT "], {%a1, %a2};\n ret;\n}\n";

static void programmatic(char **arguments) {
    (void)arguments;
    static const char *const ways[] = {"no attribute", "attribute", "attribute, event between", "attribute, event with no timing between", "attribute, event after every fourth"};
    enum { CHAIN = 16 };
    CUstream stream;
    CUevent timed, plain;
    CUmodule overlap;
    CUfunction early;
    uint64_t bytes;
    begin();
    CUresult loaded = cuModuleLoadData(&overlap, ptx_overlap);
    if (loaded) {
        printf("{\"at\":\"programmatic launches\",\"r\":%d}\n", loaded);
        return;
    }
    NEED(cuModuleGetFunction(&early, overlap, "early"));
    CUdeviceptr log = new_log(64, &bytes);
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&timed, 0));
    NEED(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    for (int way = 0; way < 5; way++)
        for (int round = 0; round < 20; round++) {
            uint64_t ns = 50000, count;
            void *words[] = {&ns, &log};
            CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, .value.programmaticStreamSerializationAllowed = 1};
            CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .hStream = stream, .attrs = &attribute, .numAttrs = way > 0};
            empty_log(log);
            for (int i = 0; i < CHAIN; i++) {
                NEED(cuLaunchKernelEx(&config, early, words, NULL));
                if (way == 2 || (way == 4 && i % 4 == 3)) NEED(cuEventRecord(timed, stream));
                if (way == 3) NEED(cuEventRecord(plain, stream));
            }
            NEED(cuStreamSynchronize(stream));
            struct stamp *stamps = copied(log, bytes, &count);
            samples[round] = stamps[count - 1].end - stamps[0].begin;
            free((char *)stamps - sizeof(struct log));
            if (round < 19) continue;
            sort(samples, 20);
            printf("{\"at\":\"%d kernels of 50 us, each of which may begin early: %s\",\"us\":%.1f}\n", CHAIN, ways[way], part(samples, 20, 0.5) / 1e3);
        }
}
