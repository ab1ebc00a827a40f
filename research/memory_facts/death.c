// A process that holds GPU memory and a lock that lives with a mapping is killed: which of the two is free first?

// The lock by a mapping whose descriptor is closed ("map"), with the descriptor kept ("open"), or by a descriptor alone
// that has a number above all of the driver's ("high").
static int death_take(const char *path, const char *how) {
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (!strcmp(how, "high")) {
        int high = fcntl(file, F_DUPFD_CLOEXEC, 900);
        close(file);
        file = high;
    }
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (file < 0 || fcntl(file, F_OFD_SETLK, &lock)) return -1;
    if (!strcmp(how, "high")) return 0;
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED || madvise(map, 4096, MADV_DONTFORK)) return -1;
    if (strcmp(how, "open")) close(file);
    return 0;
}

static void *death_allocate(void *unused) {
    cuCtxSetCurrent(own_context);
    for (;;) {
        CUdeviceptr at;
        if (!cuMemAlloc(&at, 4 * MIB)) cuMemFree(at);
    }
    return NULL;
}

// Arguments: file, kind of lock, "before" or "after" the context, threads that allocate, GiB held. Says that it is ready
// on descriptor 1 and waits for its death.
static void victim(char **arguments) {
    int late = !strcmp(arguments[2], "after");
    if (!late && death_take(arguments[0], arguments[1])) exit(4);
    unsigned long long bytes = strtoull(arguments[4], NULL, 10) * GIB;
    CUdeviceptr at;
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&own_context, 0));
    NEED(cuCtxSetCurrent(own_context));
    NEED(cuMemAlloc(&at, bytes));
    NEED(cuMemsetD8(at, 1, bytes));
    NEED(cuCtxSynchronize());
    if (late && death_take(arguments[0], arguments[1])) exit(4);
    pthread_t thread;
    for (int i = 0; i < atoi(arguments[3]); i++) pthread_create(&thread, NULL, death_allocate, NULL);
    if (write(1, "r", 1) != 1) {}
    for (;;) pause();
}

static struct { int file; pid_t child; long long empty; _Atomic int stop, held_unlisted; _Atomic double lock_free, reaped, last_held, first_empty, slowest, entry_gone; } dying;

static void *death_watch_lock(void *unused) {
    for (;;) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
        fcntl(dying.file, F_OFD_GETLK, &lock);
        if (lock.l_type == F_UNLCK) break;
        if (dying.stop) return NULL;
    }
    dying.lock_free = now_ns();
    return NULL;
}

static void *death_watch_exit(void *unused) {
    while (!dying.stop && waitpid(dying.child, NULL, WNOHANG) != dying.child) {}
    dying.reaped = now_ns();
    return NULL;
}

// The last look that saw the memory held, by when it began; the first that did not, by when it ended.
static void *death_watch_memory(void *unused) {
    while (!dying.stop) {
        int listed = nvml_of(dying.child) >= 0;
        double begin = now_ns();
        long long value = nvml_used() - dying.empty;
        double end = now_ns();
        if (end - begin > dying.slowest) dying.slowest = end - begin;
        // Asked after the list, so whoever trusts the list would have handed this out.
        if (value <= (long long)(512 * MIB)) {
            dying.first_empty = end;
            break;
        }
        dying.last_held = begin;
        dying.held_unlisted += !listed;
    }
    while (!dying.stop && nvml_of(dying.child) >= 0) {}
    dying.entry_gone = now_ns();
    return NULL;
}

// Arguments: trials, kind of lock, "before" or "after", threads, GiB held, "allocate" for a survivor that allocates as soon as the lock
// is free, once 64 MiB and then, until it works, what has room only without the dead.
static void death(char **arguments) {
    nvml_open();
    char path[] = "/tmp/memory-facts-XXXXXX";
    dying.file = mkstemp(path);
    if (dying.file < 0 || ftruncate(dying.file, 4096)) exit(4);
    int trials = atoi(arguments[0]), early = 0, after_reaped = 0, unlisted = 0, allocates = arguments[5] != NULL, refused_trials = 0;
    unsigned long long held_gib = strtoull(arguments[4], NULL, 10);
    double longest = 0;
    if (allocates) {
        NEED(cuInit(0));
        NEED(cuDevicePrimaryCtxRetain(&own_context, 0));
        NEED(cuCtxSetCurrent(own_context));
    }
    for (int trial = 0; trial < trials; trial++) {
        int ready[2];
        if (pipe(ready)) exit(4);
        dying.empty = nvml_used();
        size_t available = 0, total;
        if (allocates) cuMemGetInfo(&available, &total);
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            dup2(ready[1], 1);
            close(dying.file);
            close(ready[0]);
            close(ready[1]);
            execl("/proc/self/exe", "memory_facts", "victim", path, arguments[1], arguments[2], arguments[3], arguments[4], NULL);
            _exit(4);
        }
        close(ready[1]);
        char answer;
        if (read(ready[0], &answer, 1) != 1 || answer != 'r') exit(4);
        close(ready[0]);
        usleep(10000);
        long long held = nvml_used() - dying.empty;
        dying.child = child;
        dying.stop = dying.held_unlisted = 0;
        dying.lock_free = dying.reaped = dying.last_held = dying.first_empty = dying.slowest = dying.entry_gone = 0;
        pthread_t watchers[3];
        pthread_create(&watchers[0], NULL, death_watch_lock, NULL);
        pthread_create(&watchers[1], NULL, death_watch_exit, NULL);
        if (!allocates) pthread_create(&watchers[2], NULL, death_watch_memory, NULL);
        usleep(1000);
        double killed = now_ns();
        kill(child, SIGKILL);
        if (allocates) {
            while (!dying.lock_free && now_ns() < killed + 5e9) {}
            CUdeviceptr small, large;
            double begin = now_ns();
            CUresult result = cuMemAlloc(&small, 64 * MIB);
            double done = now_ns();
            long long then = nvml_used() - dying.empty;
            field("small_r", "%d", result);
            field("small_begin_after_lock_ms", "%.3f", (begin - dying.lock_free) / 1e6);
            field("small_took_ms", "%.3f", (done - begin) / 1e6);
            field("device_used_then_mib", "%lld", then / (long long)MIB);
            field("looked_ms_after_lock", "%.3f", (now_ns() - dying.lock_free) / 1e6);
            cuMemFree(small);
            int refused = 0;
            // Needs the memory of the dead.
            while ((result = cuMemAlloc(&large, (available - GIB) / PIECE * PIECE)) && now_ns() < killed + 5e9) refused++;
            field("large_r", "%d", result);
            field("large_refused", "%d", refused);
            field("large_ms_after_lock", "%.3f", (now_ns() - dying.lock_free) / 1e6);
            refused_trials += refused > 0;
            if (!result) cuMemFree(large);
        } else {
            while ((!dying.entry_gone || !dying.lock_free || !dying.reaped) && now_ns() < killed + 5e9) usleep(500);
        }
        while (!dying.reaped && now_ns() < killed + 5e9) usleep(500);
        dying.stop = 1;
        for (int i = 0; i < 3 - allocates; i++) pthread_join(watchers[i], NULL);
        double after = dying.last_held > dying.lock_free && dying.lock_free ? dying.last_held - dying.lock_free : 0;
        early += after > 0;
        after_reaped += dying.last_held > dying.reaped;
        if (after > longest) longest = after;
        field("held_mib", "%lld", held / (long long)MIB);
        field("lock_ms", "%.3f", dying.lock_free ? (dying.lock_free - killed) / 1e6 : -1);
        field("reaped_ms", "%.3f", (dying.reaped - killed) / 1e6);
        if (!allocates) {
            field("last_held_ms", "%.3f", (dying.last_held - killed) / 1e6);
            field("first_empty_ms", "%.3f", (dying.first_empty - killed) / 1e6);
            field("entry_gone_ms", "%.3f", (dying.entry_gone - killed) / 1e6);
            field("slowest_look_ms", "%.3f", dying.slowest / 1e6);
            field("held_unlisted", "%d", dying.held_unlisted);
            unlisted += dying.held_unlisted > 0;
        }
        say("trial %d", trial);
    }
    if (allocates) field("refused", "%d", refused_trials);
    else {
        field("held_after_lock", "%d", early);
        field("longest_ms", "%.3f", longest / 1e6);
        field("held_after_reaped", "%d", after_reaped);
        field("held_unlisted", "%d", unlisted);
    }
    say("%d trials, lock by %s, %s the context, %s threads, %llu GiB%s", trials, arguments[1], arguments[2], arguments[3], held_gib, allocates ? ", a survivor allocates" : "");
    unlink(path);
}
