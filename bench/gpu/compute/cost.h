// What launching a kernel that does nothing takes the program: each by itself, and a batch of them.

static void cost(void) {
    enum { BATCH = 256, TIMES = 200 };
    static double each[BATCH * TIMES], batches[TIMES], first[TIMES];
    CUstream stream;
    CUfunction nothing = function("nothing");
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < TIMES; i++) {
        NEED(cuStreamSynchronize(stream));
        double begun = now_ns();
        NEED(launch(nothing, 1, 0, 0, stream));
        first[i] = now_ns() - begun;
        NEED(cuStreamSynchronize(stream));
    }
    for (int i = 0; i < TIMES; i++) {
        // The first on an idle stream is another thing, measured above.
        NEED(launch(nothing, 1, 0, 0, stream));
        double begun = now_ns();
        for (int k = 0; k < BATCH; k++) NEED(launch(nothing, 1, 0, 0, stream));
        batches[i] = (now_ns() - begun) / BATCH;
        NEED(cuStreamSynchronize(stream));
    }
    for (int i = 0; i < TIMES; i++) {
        NEED(launch(nothing, 1, 0, 0, stream));
        for (int k = 0; k < BATCH; k++) {
            double begun = now_ns();
            NEED(launch(nothing, 1, 0, 0, stream));
            each[i * BATCH + k] = now_ns() - begun;
        }
        NEED(cuStreamSynchronize(stream));
    }
    sort(each, BATCH * TIMES);
    sort(batches, TIMES);
    sort(first, TIMES);
    printf("{\"each_ns\":%.1f,\"each_p99_ns\":%.1f,\"batch_ns\":%.2f,\"batch_p10_ns\":%.2f,\"first_ns\":%.1f}\n", part(each, BATCH * TIMES, 0.5), part(each, BATCH * TIMES, 0.99), part(batches, TIMES, 0.5), part(batches, TIMES, 0.1), part(first, TIMES, 0.5));
    NEED(cuStreamDestroy(stream));
}
