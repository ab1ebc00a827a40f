// What events say of how long work took, and how soon somebody who waits for one is woken.

// Rounds of `work` that take so long in a batch.
static uint64_t rounds_for(double us, double rate) {
    uint64_t rounds = us * rate;
    return rounds ? rounds : 1;
}

static struct stamp *copied(CUdeviceptr log, uint64_t bytes, uint64_t *count) {
    struct log *copy = malloc(bytes);
    if (!copy) exit(4);
    NEED(cuMemcpyDtoH(copy, log, bytes));
    *count = copy->count < copy->mask + 1 ? copy->count : copy->mask + 1;
    return copy->stamps;
}

// Begin event, kernels, end event, on an idle stream; against the same kernels in a long batch.
static void isolated(char **arguments) {
    (void)arguments;
    static const double lengths[] = {5, 20, 100};
    static const double delays[] = {0, 5, 20, 100};
    static const int together[] = {1, 2, 4, 16};
    CUstream stream;
    CUevent first, second;
    uint64_t bytes, count;
    begin();
    double rate = rounds_per_us();
    CUfunction work = function("work"), spin = function("spin");
    CUdeviceptr log = new_log(4096, &bytes);
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&first, 0));
    NEED(cuEventCreate(&second, 0));
    for (int at = 0; at < 3; at++) {
        uint64_t rounds = rounds_for(lengths[at], rate);
        float ms;
        NEED(cuEventRecord(first, stream));
        for (int i = 0; i < 1000; i++) NEED(launch(work, full_grid, rounds, log, stream));
        NEED(cuEventRecord(second, stream));
        NEED(cuStreamSynchronize(stream));
        NEED(cuEventElapsedTime(&ms, first, second));
        double batch = ms;
        NEED(cuEventRecord(first, stream));
        for (int i = 0; i < 1000; i++) NEED(launch(work, full_grid, rounds, 0, stream));
        NEED(cuEventRecord(second, stream));
        NEED(cuStreamSynchronize(stream));
        NEED(cuEventElapsedTime(&ms, first, second));
        printf("{\"at\":\"%.0f us in a batch\",\"us\":%.3f,\"us_without_log\":%.3f}\n", lengths[at], batch, ms);
        // 0 events late: the begin event, then a pause, then the launch. 1: the queue is busy, so that nothing is late.
        for (int queued = 0; queued < 2; queued++)
            for (int n = 0; n < 4; n++)
                for (int delay = 0; delay < (queued ? 1 : 4); delay++) {
                    long rounds_made = 100;
                    static double kernel[100], host[100];
                    for (long i = 0; i < rounds_made; i++) {
                        empty_log(log);
                        NEED(cuStreamSynchronize(0));
                        busy_ns(20000);
                        if (queued) NEED(launch(spin, 1, 200000, 0, stream));
                        double t = now_ns();
                        NEED(cuEventRecord(first, stream));
                        if (delays[delay]) busy_ns(delays[delay] * 1e3);
                        for (int k = 0; k < together[n]; k++) NEED(launch(work, full_grid, rounds, log, stream));
                        host[i] = (now_ns() - t) / 1e3;
                        NEED(cuEventRecord(second, stream));
                        NEED(cuStreamSynchronize(stream));
                        NEED(cuEventElapsedTime(&ms, first, second));
                        samples[i] = ms * 1e3;
                        struct stamp *stamps = copied(log, sizeof(struct log) + 16 * sizeof(struct stamp), &count);
                        kernel[i] = (stamps[together[n] - 1].end - stamps[0].begin) / 1e3;
                        free((char *)stamps - sizeof(struct log));
                    }
                    sort(samples, rounds_made);
                    sort(kernel, rounds_made);
                    sort(host, rounds_made);
                    printf("{\"at\":\"%d of %.0f us between events\",\"queued\":%d,\"delay_us\":%.0f,\"elapsed_us\":[%.2f,%.2f,%.2f],\"in_kernels_us\":%.2f,\"record_to_launched_us\":%.2f,\"over_batch_us\":%.2f}\n", together[n], lengths[at], queued, delays[delay],
                        part(samples, rounds_made, 0.1), part(samples, rounds_made, 0.5), part(samples, rounds_made, 0.9), part(kernel, rounds_made, 0.5), part(host, rounds_made, 0.5), part(samples, rounds_made, 0.5) - together[n] * batch);
                }
    }
}

// One kernel or none between two events on an idle stream: what is left when the host's time from the return of the first
// record to that of the launch is taken off, and what the kernel takes in a batch.
static void pair(char **arguments) {
    (void)arguments;
    static const double lengths[] = {0, 5, 20, 100};
    static const char *const after[] = {"at once", "after busy 200 us", "after sleeping for 10 ms"};
    CUstream stream;
    CUevent first, second;
    uint64_t bytes;
    float ms;
    begin();
    double rate = rounds_per_us();
    CUfunction work = function("work");
    CUdeviceptr log = new_log(65536, &bytes);
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&first, 0));
    NEED(cuEventCreate(&second, 0));
    for (int at = 0; at < 4; at++) {
        uint64_t rounds = rounds_for(lengths[at], rate);
        double batch = 0;
        if (lengths[at] > 0) {
            NEED(cuEventRecord(first, stream));
            for (int i = 0; i < 1000; i++) NEED(launch(work, full_grid, rounds, log, stream));
            NEED(cuEventRecord(second, stream));
            NEED(cuStreamSynchronize(stream));
            NEED(cuEventElapsedTime(&ms, first, second));
            batch = ms;
        }
        for (int how = 0; how < 3; how++) {
            long count = how == 2 ? 200 : 1000;
            for (long i = 0; i < count; i++) {
                if (how == 1) busy_ns(200e3);
                if (how == 2) sleep_until(now_ns() + 10e6);
                NEED(cuEventRecord(first, stream));
                double recorded = now_ns();
                if (lengths[at] > 0) NEED(launch(work, full_grid, rounds, log, stream));
                double launched = now_ns();
                NEED(cuEventRecord(second, stream));
                // With nothing between them the GPU waits for the second record.
                double waited = (lengths[at] > 0 ? launched : now_ns()) - recorded;
                NEED(cuStreamSynchronize(stream));
                NEED(cuEventElapsedTime(&ms, first, second));
                samples[i] = ms * 1e3 - waited / 1e3 - batch;
            }
            sort(samples, count);
            printf("{\"at\":\"%.0f us, %s\",\"batch_us\":%.2f,\"over_us\":{\"p1\":%.2f,\"p10\":%.2f,\"p50\":%.2f,\"p90\":%.2f,\"p99\":%.2f}}\n", lengths[at], after[how], batch, part(samples, count, 0.01), part(samples, count, 0.1), part(samples, count, 0.5), part(samples, count, 0.9), part(samples, count, 0.99));
        }
    }
}

// From the launch of a kernel until a thread knows of its end, in each way of waiting; how much CPU time that takes.
static void waking(char **arguments) {
    (void)arguments;
    static const char *const ways[] = {"cuEventQuery in a loop", "cuEventSynchronize", "cuEventSynchronize, blocking", "cuStreamSynchronize", "a word written by a kernel, in a loop"};
    CUstream stream;
    CUevent plain, blocking;
    uint32_t *word;
    begin();
    CUfunction spin = function("spin"), set = function("set");
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventCreate(&blocking, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    NEED(cuMemHostAlloc((void **)&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    // One address on both sides.
    CUdeviceptr at = (CUdeviceptr)word;
    for (int length = 0; length < 2; length++)
        for (int way = 0; way < 5; way++) {
            long count = length ? 40 : 150;
            double us = length ? 5000 : 300, cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), wall = now_ns();
            for (long i = 0; i < count; i++) {
                *(volatile uint32_t *)word = 0;
                double t = now_ns();
                NEED(launch(spin, 1, us * 1e3, 0, stream));
                if (way == 4) NEED(launch(set, 1, at, 1, stream));
                else if (way < 3) NEED(cuEventRecord(way == 2 ? blocking : plain, stream));
                if (way == 0) while (cuEventQuery(plain) == CUDA_ERROR_NOT_READY) ;
                else if (way < 3) NEED(cuEventSynchronize(way == 2 ? blocking : plain));
                else if (way == 3) NEED(cuStreamSynchronize(stream));
                else while (!*(volatile uint32_t *)word && now_ns() - t < 2e7) ;
                samples[i] = now_ns() - t - us * 1e3;
            }
            cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
            wall = now_ns() - wall;
            sort(samples, count);
            printf("{\"at\":\"kernel of %.0f us, %s\",\"more_us\":{\"p10\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f},\"cpu\":%.3f}\n", us, ways[way], part(samples, count, 0.1) / 1e3, part(samples, count, 0.5) / 1e3, part(samples, count, 0.9) / 1e3, part(samples, count, 0.99) / 1e3, cpu / wall);
        }
}

// What a thread that is asked to sleep, or waits for another, is late by here.
static void host_waking(char **arguments) {
    (void)arguments;
    static const double sleeps[] = {50e3, 200e3, 1e6, 5e6};
    for (int at = 0; at < 4; at++) {
        for (int i = 0; i < 100; i++) {
            double until = now_ns() + sleeps[at];
            sleep_until(until);
            samples[i] = now_ns() - until;
        }
        char what[80];
        snprintf(what, sizeof what, "late after sleeping for %.0f us", sleeps[at] / 1e3);
        report(what, 100);
    }
    struct { _Atomic uint32_t word; double sent, seen; } *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!fork()) {
        for (uint32_t i = 1; i <= 300; i++) {
            busy_ns(300e3);
            shared->sent = now_ns();
            atomic_store(&shared->word, i);
            syscall(SYS_futex, &shared->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        }
        _exit(0);
    }
    for (uint32_t i = 1; i <= 300; i++) {
        while (atomic_load(&shared->word) < i) syscall(SYS_futex, &shared->word, FUTEX_WAIT, i - 1, NULL, NULL, 0);
        samples[i - 1] = now_ns() - shared->sent;
    }
    wait(NULL);
    report("a futex of another process, from the wake to the woken", 300);
}
