// What calls cost, from which threads they work, and what a capture in another thread makes of them.

static double samples[200000];

// The median, the 99th percentile and the mean of what was sampled.
static void report(const char *what, long count) {
    double sum = 0;
    for (long i = 0; i < count; i++) sum += samples[i];
    sort(samples, count);
    printf("{\"at\":\"%s\",\"ns\":{\"p50\":%.0f,\"p99\":%.0f,\"mean\":%.1f,\"n\":%ld}}\n", what, part(samples, count, 0.5), part(samples, count, 0.99), sum / count, count);
}

// Each call by itself, and all of them together, which the clock does not blur.
#define COST(what, count, call) do { \
    double all_ = now_ns(); \
    for (int i_ = 0; i_ < (count); i_++) (void)(call); \
    all_ = (now_ns() - all_) / (count); \
    for (int i_ = 0; i_ < (count); i_++) { double t_ = now_ns(); (void)(call); samples[i_] = now_ns() - t_; } \
    sort(samples, count); \
    printf("{\"at\":\"%s\",\"amortised_ns\":%.1f,\"p50\":%.0f,\"p99\":%.0f}\n", what, all_, part(samples, count, 0.5), part(samples, count, 0.99)); \
} while (0)

static void costs(char **arguments) {
    (void)arguments;
    CUstream stream, other;
    CUevent timed, plain, blocking;
    CUcontext current;
    CUstreamCaptureStatus capture;
    unsigned long long id;
    float ms;
    begin();
    CUfunction nothing = function("nothing"), spin = function("spin");
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&timed, 0));
    NEED(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventCreate(&blocking, CU_EVENT_BLOCKING_SYNC));
    NEED(launch(nothing, 1, 0, 0, stream));
    NEED(cuEventRecord(timed, stream));
    NEED(cuStreamSynchronize(stream));
    COST("clock_gettime", 20000, now_ns());
#ifdef __x86_64__
    COST("the processor's counter", 20000, __builtin_ia32_rdtsc());
#endif
    static _Atomic uint64_t word;
    COST("an atomic addition", 20000, atomic_fetch_add(&word, 1));
    COST("cuCtxGetCurrent", 20000, cuCtxGetCurrent(&current));
    COST("cuStreamIsCapturing", 20000, cuStreamIsCapturing(stream, &capture));
    COST("cuStreamIsCapturing, legacy stream", 20000, cuStreamIsCapturing(0, &capture));
    COST("cuStreamGetCtx", 20000, cuStreamGetCtx(stream, &current));
    COST("cuStreamGetId", 20000, cuStreamGetId(stream, &id));
    COST("cuStreamQuery, idle", 20000, cuStreamQuery(stream));
    COST("cuEventQuery, done", 20000, cuEventQuery(timed));
    COST("cuEventElapsedTime", 5000, cuEventElapsedTime(&ms, timed, timed));
    COST("cuEventCreate and cuEventDestroy", 2000, (cuEventCreate(&plain, 0), cuEventDestroy(plain)));
    NEED(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    // While the GPU is busy: nothing of what follows ends meanwhile.
    NEED(launch(spin, 1, 60000000, 0, stream));
    NEED(cuEventRecord(timed, stream));
    COST("cuStreamQuery, busy", 5000, cuStreamQuery(stream));
    COST("cuEventQuery, pending", 5000, cuEventQuery(timed));
    NEED(cuStreamSynchronize(stream));
    for (int kind = 0; kind < 3; kind++) {
        CUevent event = kind == 0 ? timed : kind == 1 ? plain : blocking;
        const char *name = kind == 0 ? "timed" : kind == 1 ? "not timed" : "blocking";
        char what[80];
        for (int queued = 0; queued < 2; queued++) {
            long count = queued ? 300 : 200;
            if (queued) NEED(launch(spin, 1, 20000000, 0, stream));
            double all = 0;
            for (long i = 0; i < count; i++) {
                if (!queued) NEED(cuStreamSynchronize(stream));
                double t = now_ns();
                NEED(cuEventRecord(event, stream));
                all += samples[i] = now_ns() - t;
            }
            NEED(cuStreamSynchronize(stream));
            snprintf(what, sizeof what, "cuEventRecord, %s, %s", name, queued ? "stream busy" : "stream idle");
            report(what, count);
        }
    }
    // Launches with an event after every so many, in batches that fit in the queue.
    for (int every = 0; every <= 64; every = every ? every * 4 : 1) {
        char what[80];
        long batches = 40;
        for (long batch = 0; batch < batches; batch++) {
            double t = now_ns();
            for (int i = 1; i <= 256; i++) {
                NEED(launch(nothing, 1, 0, 0, stream));
                if (every && i % every == 0) NEED(cuEventRecord(timed, stream));
            }
            samples[batch] = (now_ns() - t) / 256;
            NEED(cuStreamSynchronize(stream));
        }
        snprintf(what, sizeof what, "launch of nothing, event every %d (0: none), for each launch", every);
        report(what, batches);
    }
}

// What another thread tells of the calls that it made.
struct teller { CUstream stream; CUevent done, fresh; bool relaxed; char said[2000]; };

static void tell(struct teller *teller, const char *what, CUresult result) {
    size_t used = strlen(teller->said);
    snprintf(teller->said + used, sizeof teller->said - used, "%s\"%s\":%d", used ? "," : "", what, result);
}

static void *all_calls(void *argument) {
    struct teller *teller = argument;
    CUcontext current = NULL;
    CUevent event = NULL;
    float ms;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (teller->relaxed) tell(teller, "cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
    tell(teller, "cuCtxGetCurrent", cuCtxGetCurrent(&current));
    tell(teller, "has a context", current != NULL);
    tell(teller, "cuEventQuery", cuEventQuery(teller->done));
    tell(teller, "cuEventElapsedTime", cuEventElapsedTime(&ms, teller->done, teller->done));
    tell(teller, "cuEventSynchronize", cuEventSynchronize(teller->done));
    tell(teller, "cuEventRecord", cuEventRecord(teller->fresh, teller->stream));
    tell(teller, "cuEventSynchronize of that", cuEventSynchronize(teller->fresh));
    tell(teller, "cuStreamQuery", cuStreamQuery(teller->stream));
    tell(teller, "cuEventCreate", cuEventCreate(&event, 0));
    if (event) tell(teller, "cuEventDestroy", cuEventDestroy(event));
    return NULL;
}

static struct teller new_teller(void) {
    struct teller teller = {0};
    NEED(cuStreamCreate(&teller.stream, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&teller.done, CU_EVENT_BLOCKING_SYNC));
    NEED(cuEventCreate(&teller.fresh, 0));
    NEED(launch(function("nothing"), 1, 0, 0, teller.stream));
    NEED(cuEventRecord(teller.done, teller.stream));
    NEED(cuStreamSynchronize(teller.stream));
    return teller;
}

static void thread_without_context(char **arguments) {
    (void)arguments;
    pthread_t thread;
    begin();
    struct teller teller = new_teller();
    pthread_create(&thread, NULL, all_calls, &teller);
    pthread_join(thread, NULL);
    printf("{\"at\":\"calls from a thread without a context\",\"r\":{%s}}\n", teller.said);
}

// One of them.
struct one_call { struct teller *teller; unsigned name; bool relaxed; CUresult result; };

static void *make_call(void *argument) {
    struct one_call *one = argument;
    CUstreamCaptureMode wanted = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUevent event;
    CUcontext current;
    float ms;
    if (one->relaxed) cuThreadExchangeStreamCaptureMode(&wanted);
    switch (one->name) {
    case 0: one->result = cuEventQuery(one->teller->done); break;
    case 1: one->result = cuEventElapsedTime(&ms, one->teller->done, one->teller->done); break;
    case 2: one->result = cuEventSynchronize(one->teller->done); break;
    case 3: one->result = cuEventRecord(one->teller->fresh, one->teller->stream); break;
    case 4: one->result = cuStreamQuery(one->teller->stream); break;
    case 5: one->result = cuEventCreate(&event, 0); break;
    default: one->result = cuStreamGetCtx(one->teller->stream, &current);
    }
    return NULL;
}

static void in_a_capture(char **arguments) {
    (void)arguments;
    static const char *const modes[] = {"global", "thread local", "relaxed"};
    // One call after the other, since the first that is refused spoils the capture for those after it.
    static const char *const names[] = {"cuEventQuery", "cuEventElapsedTime", "cuEventSynchronize", "cuEventRecord", "cuStreamQuery", "cuEventCreate", "cuStreamGetCtx"};
    begin();
    CUfunction nothing = function("nothing");
    CUstream captured;
    NEED(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    for (int mode = 0; mode < 3; mode++)
        for (int relaxed = 0; relaxed < 2; relaxed++)
            for (unsigned name = 0; name < sizeof names / sizeof *names; name++) {
                struct teller teller = new_teller();
                CUgraph graph = NULL;
                NEED(cuStreamBeginCapture(captured, (CUstreamCaptureMode)mode));
                NEED(launch(nothing, 1, 0, 0, captured));
                struct one_call one = {&teller, name, relaxed, 0};
                pthread_t thread;
                pthread_create(&thread, NULL, make_call, &one);
                pthread_join(thread, NULL);
                CUresult end = cuStreamEndCapture(captured, &graph);
                printf("{\"at\":\"%s by another thread%s, capture %s\",\"r\":%d,\"end_of_capture\":%d}\n", names[name], relaxed ? " in relaxed mode" : "", modes[mode], one.result, end);
                if (graph) cuGraphDestroy(graph);
            }
}
