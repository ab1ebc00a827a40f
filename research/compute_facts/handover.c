// What is lost between two processes that use the GPU one after the other, or at the same time.

enum { ROUNDS = 100 };

// A process's way of knowing that its work is done.
static void await_event(CUevent spinning, CUevent blocking, int way) {
    if (way == 0) while (cuEventQuery(spinning) == CUDA_ERROR_NOT_READY) ;
    else NEED(cuEventSynchronize(way == 1 ? spinning : blocking));
}

static const char *const wait_names[] = {"cuEventQuery in a loop", "cuEventSynchronize", "cuEventSynchronize, blocking"};

// Ping-pong: each launches when the other has seen its work end.
static void in_turns(int who, CUfunction work, CUstream stream, CUevent spinning, CUevent blocking, CUdeviceptr log, double rate) {
    uint32_t generation = 0;
    static const double lengths[] = {200, 2000};
    for (int length = 0; length < 2; length++)
        for (int way = 0; way < 3; way++)
            for (int sleep = 0; sleep < 2; sleep++) {
                long rounds = length ? 20 : ROUNDS;
                if (who == 0) atomic_store(&both->turn, 0);
                meet(++generation);
                for (long i = 0; i < rounds; i++) {
                    wait_turn(2 * i + who, sleep);
                    NEED(launch(work, full_grid, rounds_for(lengths[length], rate), log, stream));
                    NEED(cuEventRecord(spinning, stream));
                    if (way == 2) NEED(cuEventRecord(blocking, stream));
                    await_event(spinning, blocking, way);
                    give_turn(2 * i + who + 1);
                }
                bring(who, log);
                meet(++generation);
                if (who) {
                    long n = 0;
                    for (long i = 0; i < rounds; i++) {
                        samples[n++] = (double)(int64_t)(both->stamps[1][i].begin - both->stamps[0][i].end);
                        if (i + 1 < rounds) samples[n++] = (double)(int64_t)(both->stamps[0][i + 1].begin - both->stamps[1][i].end);
                    }
                    sort(samples, n);
                    printf("{\"at\":\"GPU idle between two processes in turns of %.0f us, %s, %s\",\"us\":{\"p10\":%.1f,\"p50\":%.1f,\"p90\":%.1f}}\n", lengths[length], wait_names[way], sleep ? "futex" : "word in a loop", part(samples, n, 0.1) / 1e3, part(samples, n, 0.5) / 1e3, part(samples, n, 0.9) / 1e3);
                }
                meet(++generation);
            }
}

// Kernels of 100 us each, a few or many of the first process: the second launches its own so long before the first's are done.
static void ahead(int who, CUfunction work, CUstream stream, CUdeviceptr log, double rate) {
    static const struct { double lead; int first; } ways[] = {{0, 10}, {50, 10}, {200, 10}, {400, 10}, {1000, 10}, {0, 120}, {200, 120}, {400, 120}, {600, 120}, {1000, 120}, {2000, 120}};
    enum { TIMES = 30, SECOND = 10 };
    uint32_t generation = 0;
    for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
        double lead = ways[way].lead;
        int first = ways[way].first, own = who ? SECOND : first;
        for (int i = 0; i < TIMES; i++) {
            // Both are idle; the start is on the clock that both see.
            NEED(cuStreamSynchronize(stream));
            meet(++generation);
            if (who == 0) atomic_store(&both->start, (uint64_t)now_ns() + 300000);
            meet(++generation);
            double start = atomic_load(&both->start) + (who ? first * 100e3 + 10e3 - lead * 1e3 : 0);
            while (now_ns() < start) ;
            for (int k = 0; k < own; k++) NEED(launch(work, full_grid, rounds_for(100, rate), log, stream));
            NEED(cuStreamSynchronize(stream));
        }
        bring(who, log);
        meet(++generation);
        if (who) {
            double spans[TIMES], longest[TIMES], early[TIMES];
            for (int i = 0; i < TIMES; i++) {
                const struct stamp *a = both->stamps[0] + i * first, *b = both->stamps[1] + i * SECOND;
                uint64_t a_end = a[first - 1].end, b_end = b[SECOND - 1].end;
                samples[i] = (double)(int64_t)(b[0].begin - a_end);
                spans[i] = (b_end > a_end ? b_end : a_end) - a[0].begin;
                longest[i] = early[i] = 0;
                for (int k = 0; k < first; k++)
                    if (a[k].end - a[k].begin > longest[i]) longest[i] = a[k].end - a[k].begin;
                for (int k = 0; k < SECOND; k++) {
                    if (b[k].end - b[k].begin > longest[i]) longest[i] = b[k].end - b[k].begin;
                    early[i] += b[k].begin < a_end;
                }
            }
            sort(samples, TIMES);
            sort(spans, TIMES);
            sort(longest, TIMES);
            sort(early, TIMES);
            printf("{\"at\":\"after %.1f ms of one process, a second launches %.0f us before the first is done\",\"gap_us\":{\"p10\":%.1f,\"p50\":%.1f,\"p90\":%.1f},\"both_us\":%.1f,\"of_us\":%d,\"longest_kernel_us\":%.1f,\"second_begun_before_end\":%.0f}\n", first / 10.0, lead,
                part(samples, TIMES, 0.1) / 1e3, part(samples, TIMES, 0.5) / 1e3, part(samples, TIMES, 0.9) / 1e3, part(spans, TIMES, 0.5) / 1e3, (first + SECOND) * 100, part(longest, TIMES, 0.5) / 1e3, part(early, TIMES, 0.5));
        }
        meet(++generation);
    }
}

// Both busy all the time: how the driver shares out time by itself, and what that loses.
static void time_sliced(int who, CUfunction work, CUstream stream, CUevent event, CUdeviceptr log, double rate) {
    meet(1);
    double end = now_ns() + 1e9;
    while (now_ns() < end) {
        for (int i = 0; i < 50; i++) NEED(launch(work, full_grid, rounds_for(100, rate), log, stream));
        NEED(cuEventRecord(event, stream));
        for (int i = 0; i < 50; i++) NEED(launch(work, full_grid, rounds_for(100, rate), log, stream));
        NEED(cuEventSynchronize(event));
    }
    NEED(cuStreamSynchronize(stream));
    bring(who, log);
    meet(2);
    if (!who) return;
    // Merged by when they began: runs of kernels of one process are its slices.
    uint64_t at[2] = {0, 0}, first = both->stamps[0][0].begin, last = 0;
    static double gaps[MOST], slices[MOST];
    long changes = 0, found = 0, long_ones = 0;
    double slice_begin = 0, before = 0;
    int of = -1;
    while (at[0] < both->counts[0] && at[1] < both->counts[1]) {
        int next = both->stamps[0][at[0]].begin <= both->stamps[1][at[1]].begin ? 0 : 1;
        struct stamp stamp = both->stamps[next][at[next]++];
        if (stamp.end - stamp.begin > 150000) long_ones++;
        if (next != of && of >= 0) {
            if (stamp.begin > before) gaps[changes++] = stamp.begin - before;
            slices[found++] = before - slice_begin;
            slice_begin = stamp.begin;
        } else if (of < 0) slice_begin = stamp.begin;
        of = next;
        before = stamp.end;
        last = stamp.end;
    }
    sort(gaps, changes);
    sort(slices, found);
    printf("{\"at\":\"both busy, time-sliced\",\"seconds\":%.3f,\"kernels\":[%lu,%lu],\"work_of_wall\":%.4f,\"changes\":%ld,\"slice_us\":{\"p10\":%.1f,\"p50\":%.1f,\"p90\":%.1f},\"gap_us\":{\"n\":%ld,\"p10\":%.1f,\"p50\":%.1f,\"p90\":%.1f},\"kernels_over_150_us\":%ld}\n", (last - first) / 1e9, at[0], at[1], (at[0] + at[1]) * 100e3 / (last - first), found,
        part(slices, found, 0.1) / 1e3, part(slices, found, 0.5) / 1e3, part(slices, found, 0.9) / 1e3, changes, part(gaps, changes, 0.1) / 1e3, part(gaps, changes, 0.5) / 1e3, part(gaps, changes, 0.9) / 1e3, long_ones);
}

static void handover(char **arguments) {
    struct side side = begin_both();
    CUevent spinning, blocking;
    NEED(cuEventCreate(&spinning, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventCreate(&blocking, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    if (!strcmp(arguments[0], "turns")) in_turns(side.who, side.work, side.stream, spinning, blocking, side.log, side.rate);
    else if (!strcmp(arguments[0], "ahead")) ahead(side.who, side.work, side.stream, side.log, side.rate);
    else time_sliced(side.who, side.work, side.stream, spinning, side.log, side.rate);
    end_both(&side);
}
