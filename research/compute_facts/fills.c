// What two events say of fills, which the copy engines do: by how much it is more than the same fills take in a row.

// The most events of a row, and the most fills.
#define MOST_EVENTS 64
#define FILLS 1024
#define FILL_BYTES (64ul << 20)

// So many fills or kernels in a row, with an event before the first, behind each `each` and behind the last. Returns the
// time from the first event to the last in us; `parts` gets that of each part.
static double row(CUstream stream, CUdeviceptr target, CUfunction work, uint64_t rounds, int count, int each, double *parts) {
    static CUevent events[MOST_EVENTS + 1];
    int recorded = 0;
    float ms;
    for (int i = 0; i <= MOST_EVENTS && !events[i]; i++) NEED(cuEventCreate(&events[i], 0));
    NEED(cuEventRecord(events[recorded++], stream));
    for (int i = 0; i < count; i++) {
        if (target) NEED(cuMemsetD8Async(target, i, FILL_BYTES, stream));
        else NEED(launch(work, full_grid, rounds, 0, stream));
        if ((i + 1) % each == 0 || i + 1 == count) NEED(cuEventRecord(events[recorded++], stream));
    }
    NEED(cuStreamSynchronize(stream));
    for (int i = 1; i < recorded; i++) {
        NEED(cuEventElapsedTime(&ms, events[i - 1], events[i]));
        if (parts) parts[i - 1] = ms * 1e3;
    }
    NEED(cuEventElapsedTime(&ms, events[0], events[recorded - 1]));
    return ms * 1e3;
}

// With the queue full before the first, and after a rest; kernels that take about as long are the control.
static void fills(char **arguments) {
    (void)arguments;
    static const int groups[] = {1, 2, 4, 8, 16, 22, 64};
    static const double rests[] = {0, 1, 10, 50};
    static double parts[MOST_EVENTS];
    CUstream stream;
    CUdeviceptr target;
    begin();
    double rate = rounds_per_us();
    CUfunction work = function("work"), spin = function("spin");
    uint64_t rounds = rounds_for(18, rate);
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAlloc(&target, FILL_BYTES));
    for (int kernels = 0; kernels < 2; kernels++) {
        const char *what = kernels ? "kernels" : "fills";
        CUdeviceptr to = kernels ? 0 : target;
        row(stream, to, work, rounds, FILLS, FILLS, NULL);
        double batch = row(stream, to, work, rounds, FILLS, FILLS, NULL) / FILLS;
        printf("{\"at\":\"%s in a batch\",\"us\":%.3f}\n", what, batch);
        // What events between them add to a row, and what each part is too long by.
        for (int g = 0; g < 7; g++) {
            long many = 0;
            double sum = 0;
            int count = groups[g] * MOST_EVENTS < FILLS / 2 ? groups[g] * MOST_EVENTS : FILLS / 2;
            for (int i = 0; i < 20; i++) {
                NEED(launch(spin, 1, 300000 + count * 4000, 0, stream));
                sum += row(stream, to, work, rounds, count, groups[g], parts);
                // The first comes behind another kind of work.
                for (int part = 1; part < count / groups[g]; part++) samples[many++] = parts[part] - groups[g] * batch;
            }
            sort(samples, many);
            printf("{\"at\":\"%s, an event behind each %d\",\"row_over_batch_us\":%.2f,\"events\":%d,\"over_us\":{\"p10\":%.2f,\"p50\":%.2f,\"p90\":%.2f}}\n", what, groups[g], sum / 20 - count * batch, count / groups[g], part(samples, many, 0.1), part(samples, many, 0.5), part(samples, many, 0.9));
        }
        // How long each of the next 4 ms takes after a rest: 22 at a time.
        for (int r = 0; r < 4; r++) {
            enum { PARTS = 10, TIMES = 15 };
            static double over[PARTS][TIMES];
            for (int i = 0; i < TIMES; i++) {
                if (rests[r] > 0) sleep_until(now_ns() + rests[r] * 1e6);
                row(stream, to, work, rounds, PARTS * 22, 22, parts);
                for (int part = 0; part < PARTS; part++) over[part][i] = parts[part] / 22;
            }
            printf("{\"at\":\"%s after a rest of %.0f ms, each of 22 and an event\",\"us\":[", what, rests[r]);
            for (int p = 0; p < PARTS; p++) {
                sort(over[p], TIMES);
                printf("%s%.2f", p ? "," : "", part(over[p], TIMES, 0.5));
            }
            printf("]}\n");
            for (int i = 0; i < TIMES; i++) {
                if (rests[r] > 0) sleep_until(now_ns() + rests[r] * 1e6);
                samples[i] = row(stream, to, work, rounds, PARTS * 22, PARTS * 22, NULL) / PARTS / 22;
            }
            sort(samples, TIMES);
            printf("{\"at\":\"%s after a rest of %.0f ms, each of 220 without an event\",\"us\":%.2f}\n", what, rests[r], part(samples, TIMES, 0.5));
        }
    }
}
