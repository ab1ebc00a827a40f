// Memory that one process makes and another maps: who is charged, and what is left when the maker frees it or dies.

static int ask_importer = -1, answer_importer = -1;

// Lets the importer do its next step and waits until it is done.
static void importer_step(char step) {
    char answer;
    if (write(ask_importer, &step, 1) != 1 || read(answer_importer, &answer, 1) != 1) printf("{\"error\":\"the importer is gone\"}\n");
}

// Starts this program again as the importer, with the descriptors 3 (steps) and 4 (answers) and a word.
static pid_t importer_start(const char *kind, const char *word) {
    int steps[2], answers[2];
    if (pipe(steps) || pipe(answers)) exit(4);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        dup2(steps[0], 100);
        dup2(answers[1], 101);
        for (int i = 0; i < 2; i++) close(steps[i]), close(answers[i]);
        execl("/proc/self/exe", "memory_facts", "importer", kind, word, NULL);
        _exit(4);
    }
    close(steps[0]);
    close(answers[1]);
    ask_importer = steps[1];
    answer_importer = answers[0];
    char ready;
    if (read(answer_importer, &ready, 1) != 1) exit(4);
    return child;
}

// Started by the exporter. Steps: o open, m map or use, s say what NVML says now, w write it, c close, q end.
static void importer(char **arguments) {
    const char *kind = arguments[0], *word = arguments[1];
    who = "importer";
    list_all = 1;
    start();
    CUipcMemHandle ipc;
    CUmemGenericAllocationHandle handle = 0;
    CUmemoryPool pool = NULL;
    CUmemPoolPtrExportData data;
    CUdeviceptr at = 0;
    size_t bytes = 64 * MIB;
    if (*kind == 'i') for (unsigned i = 0; i < sizeof ipc; i++) sscanf(word + 2 * i, "%2hhx", (unsigned char *)&ipc + i);
    if (*kind == 'p') for (unsigned i = 0; i < sizeof data; i++) sscanf(strchr(word, ':') + 1 + 2 * i, "%2hhx", (unsigned char *)&data + i);
    char step = 'r';
    do {
        CUresult result = 0;
        if (step == 'o') {
            if (*kind == 'i') result = cuIpcOpenMemHandle(&at, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
            if (*kind == 'v') result = cuMemImportFromShareableHandle(&handle, (void *)(long)atoi(word), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
            if (*kind == 'p') result = cuMemPoolImportFromShareableHandle(&pool, (void *)(long)atoi(word), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
            if (*kind != 'i') close(atoi(word));
            if (*kind == 'i' && !result) {
                CUdeviceptr base;
                cuMemGetAddressRange(&base, &bytes, at);
                field("modulo", "%llu", at % PIECE);
                field("range", "%zu", bytes);
            }
            mark(result, "importer opened it");
        } else if (step == 'm') {
            if (*kind == 'v') {
                NEED(cuMemAddressReserve(&at, bytes, 0, 0, 0));
                result = cuMemMap(at, bytes, 0, handle, 0);
                if (!result) result = mapped_access(at, bytes);
            }
            if (*kind == 'p') {
                result = cuMemPoolImportPointer(&at, pool, &data);
                pool_fields(pool);
            }
            mark(result, "importer mapped it");
        } else if (step == 's') {
            if (pool) pool_fields(pool);
            mark(0, "importer looks");
        } else if (step == 'w') {
            result = cuMemsetD8(at, 5, bytes);
            if (!result) result = cuCtxSynchronize();
            mark(result, "importer wrote it");
        } else if (step == 'c') {
            if (*kind == 'i') result = cuIpcCloseMemHandle(at);
            if (*kind == 'v') result = cuMemUnmap(at, bytes), result = result ? result : cuMemRelease(handle);
            if (*kind == 'p') {
                result = cuMemFree(at);
                pool_fields(pool);
                mark(result, "importer freed its pointer");
                result = cuMemPoolDestroy(pool);
            }
            mark(result, "importer closed it");
        }
        if (write(101, "d", 1) != 1) {}
    } while (read(100, &step, 1) == 1 && step != 'q');
    // The maker is gone, and nobody asks any more: what is left of it here?
    if (step != 'q') {
        usleep(300000);
        mark(0, "importer looks, the maker is gone");
        STEP(cuMemsetD8(at, 6, bytes), "importer writes it");
        STEP(cuCtxSynchronize(), "synchronized");
        if (*kind == 'i') STEP(cuIpcCloseMemHandle(at), "importer closes it");
        if (*kind == 'v') STEP(cuMemUnmap(at, bytes), "importer unmaps it");
        if (*kind == 'v') STEP(cuMemRelease(handle), "importer releases it");
        if (*kind == 'p') STEP(cuMemFree(at), "importer frees it");
    }
}

// Arguments: ipc, ipc_small, vmm or pool; "frees" or "dies".
static void shared(char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    const char *kind = arguments[0];
    int dies = !strcmp(arguments[1], "dies");
    who = "exporter";
    list_all = 1;
    start();
    CUipcMemHandle ipc;
    CUmemGenericAllocationHandle handle = 0;
    CUmemoryPool pool = NULL;
    CUmemPoolPtrExportData data;
    CUdeviceptr at = 0;
    char word[300] = "";
    int fd = -1;
    if (*kind == 'i') {
        NEED(cuMemAlloc(&at, !strcmp(kind, "ipc_small") ? 1000 : 64 * MIB));
        STEP(cuIpcGetMemHandle(&ipc, at), "exporter made it");
        for (unsigned i = 0; i < sizeof ipc; i++) sprintf(word + 2 * i, "%02hhx", ((unsigned char *)&ipc)[i]);
    } else if (*kind == 'v') {
        CUmemAllocationProp property = mapped_property(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        NEED(cuMemCreate(&handle, 64 * MIB, &property, 0));
        NEED(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0));
        NEED(cuMemMap(at, 64 * MIB, 0, handle, 0));
        STEP(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "exporter made it");
    } else {
        pool = pool_make(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        NEED(cuMemAllocFromPoolAsync(&at, 64 * MIB, pool, 0));
        NEED(cuCtxSynchronize());
        NEED(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        pool_fields(pool);
        STEP(cuMemPoolExportPointer(&data, at), "exporter made it");
    }
    if (fd >= 0) {
        // The importer inherits it under the same number.
        fcntl(fd, F_SETFD, 0);
        sprintf(word, "%d", fd);
    }
    if (*kind == 'p') {
        strcat(word, ":");
        for (unsigned i = 0; i < sizeof data; i++) sprintf(word + strlen(word), "%02hhx", ((unsigned char *)&data)[i]);
    }
    pid_t child = importer_start(kind, word);
    if (fd >= 0) close(fd);
    mark(0, "importer is there");
    importer_step('o');
    mark(0, "exporter looks: opened");
    importer_step('m');
    mark(0, "exporter looks: mapped");
    importer_step('w');
    if (dies) {
        fflush(stdout);
        kill(getpid(), SIGKILL);
    }
    if (*kind == 'i') STEP(cuMemFree(at), "exporter frees it");
    if (*kind == 'v') {
        STEP(cuMemRelease(handle), "exporter releases it");
        STEP(cuMemUnmap(at, 64 * MIB), "exporter unmaps it");
    }
    if (*kind == 'p') {
        cuMemFreeAsync(at, 0);
        cuCtxSynchronize();
        pool_fields(pool);
        mark(0, "exporter frees it");
        STEP(cuMemPoolDestroy(pool), "exporter destroys the pool");
    }
    importer_step('s');
    importer_step('w');
    importer_step('c');
    mark(0, "exporter looks: closed");
    if (write(ask_importer, "q", 1) != 1) {}
    waitpid(child, NULL, 0);
    mark(0, "importer is gone");
}
