// Whether the names of shared memory come again, and what the driver says of addresses that it does not know.

static void ipc_names(char **arguments) {
    start();
    CUipcMemHandle first, again;
    CUdeviceptr at, before = 0;
    int same_address = 0, same_name = 0, same_in_a_row = 0;
    memset(&first, 0, sizeof first);
    for (int round = 0; round < 200; round++) {
        NEED(cuMemAlloc(&at, 8 * MIB));
        NEED(cuIpcGetMemHandle(&again, at));
        same_address += round && at == before;
        same_name += round && !memcmp(&first, &again, sizeof first);
        CUipcMemHandle third;
        NEED(cuIpcGetMemHandle(&third, at));
        same_in_a_row += !memcmp(&third, &again, sizeof third);
        first = again;
        before = at;
        NEED(cuMemFree(at));
    }
    field("same_address", "%d", same_address);
    field("same_name", "%d", same_name);
    field("same_of_one_allocation", "%d", same_in_a_row);
    say("200 allocations, one after the other");
    // Within one allocation, and beside it.
    CUdeviceptr other;
    NEED(cuMemAlloc(&at, 8 * MIB));
    NEED(cuMemAlloc(&other, 8 * MIB));
    NEED(cuIpcGetMemHandle(&first, at));
    field("inside", "%d", cuIpcGetMemHandle(&again, at + MIB));
    field("inside_same", "%d", !memcmp(&first, &again, sizeof first));
    NEED(cuIpcGetMemHandle(&again, other));
    field("other_same", "%d", !memcmp(&first, &again, sizeof first));
    for (unsigned i = 0, between = 0; i < sizeof first; i++) {
        if (((unsigned char *)&first)[i] != ((unsigned char *)&again)[i] && between < 8) {
            char name[16];
            snprintf(name, sizeof name, "byte_%u", i);
            field(name, "[%u,%u]", ((unsigned char *)&first)[i], ((unsigned char *)&again)[i]);
            between++;
        }
    }
    say("two of 8 MiB");
}

static void attributes_of(CUdeviceptr at, const char *what) {
    unsigned long long kind = 77, device = 77, managed = 77, size = 77;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *places[] = {&kind, &device, &managed, &size};
    field("all", "%d", cuPointerGetAttributes(4, asked, places, at));
    field("values", "[%u,%d,%u,%llu]", (unsigned)kind, (int)device, (unsigned char)managed, size);
    field("one", "%d", cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    say("%s", what);
}

static void attributes(char **arguments) {
    start();
    CUdeviceptr at, managed, pooled;
    static char host[4096];
    NEED(cuMemAlloc(&at, 8 * MIB));
    NEED(cuMemAllocManaged(&managed, 8 * MIB, CU_MEM_ATTACH_GLOBAL));
    NEED(cuMemAllocAsync(&pooled, 8 * MIB, 0));
    for (int how = 0; how < 4; how++) {
        static const char *const where[] = {"", ", no context current", ", in a capture", ", another thread captures"};
        char what[64];
        CUstream stream = NULL;
        CUgraph graph;
        if (how == 1) NEED(cuCtxSetCurrent(NULL));
        if (how >= 2) {
            NEED(cuCtxSetCurrent(own_context));
            NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            NEED(cuStreamBeginCapture(stream, how == 2 ? CU_STREAM_CAPTURE_MODE_GLOBAL : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        }
        const struct { const char *name; CUdeviceptr at; } of[] = {{"plain", at + 5}, {"managed", managed}, {"pool's", pooled}, {"the host's", (CUdeviceptr)host}, {"nobody's", 0x7f0000000000}};
        for (unsigned i = 0; i < sizeof of / sizeof *of; i++) {
            snprintf(what, sizeof what, "%s%s", of[i].name, where[how]);
            attributes_of(of[i].at, what);
        }
        if (stream) NEED(cuStreamEndCapture(stream, &graph));
    }
    NEED(cuMemFreeAsync(at, 0));
    attributes_of(at, "plain, to be freed in a stream");
    NEED(cuCtxSynchronize());
    attributes_of(at, "freed");
    NEED(cuMemFree(managed));
    attributes_of(managed, "managed, freed");
    NEED(cuMemFreeAsync(pooled, 0));
    NEED(cuCtxSynchronize());
    attributes_of(pooled, "pool's, freed");
}
