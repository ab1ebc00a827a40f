// One process that keeps all GPUs busy that it sees, a thread for each, and what each of them finished.
//
//     two ROUNDS ESTIMATE_US SECONDS [GPUS]
//
// Says when it is ready, then waits for a line with the start (ns of CLOCK_MONOTONIC; 0: now).
#include "common.h"

#define MOST_GPUS 8
// What comes before is not counted.
#define SETTLE_NS 5e8
// Kernels behind which an event stands, and how many of these are in flight.
#define BATCH 5
#define BATCHES 8

static uint64_t rounds;
static double seconds, start, estimate_us;
static struct { pthread_t thread; int ordinal; char uuid[64]; long finished, counted; double last; } gpus[MOST_GPUS];
static pthread_barrier_t ready, begun;

static void *keep_busy(void *argument) {
    int at = (int)(intptr_t)argument;
    CUstream stream;
    CUevent events[BATCHES];
    CUuuid uuid;
    begin_on(at);
    NEED(cuDeviceGetUuid(&uuid, at));
    for (int i = 0, used = 0; i < 16; i++) used += sprintf(gpus[at].uuid + used, "%02x", (unsigned char)uuid.bytes[i]);
    CUfunction work = function("work");
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < BATCHES; i++) NEED(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&begun);
    sleep_until(start);
    // Long kernels in smaller batches.
    long batch = estimate_us > 1000 ? 1 : BATCH;
    double end = start + seconds * 1e9;
    for (long b = 0; now_ns() < end; b++) {
        if (b >= BATCHES) {
            NEED(cuEventSynchronize(events[b % BATCHES]));
            double at_ns = now_ns();
            gpus[at].finished += batch;
            if (at_ns >= start + SETTLE_NS && at_ns < end) gpus[at].counted += batch;
        }
        for (int i = 0; i < batch; i++) NEED(launch(work, full_grid, rounds, 0, stream));
        NEED(cuEventRecord(events[b % BATCHES], stream));
    }
    NEED(cuStreamSynchronize(stream));
    return NULL;
}

int main(int count, char **words) {
    int found, wanted = count > 4 ? atoi(words[4]) : MOST_GPUS;
    char line[64];
    if (count < 4) return 2;
    rounds = strtoull(words[1], NULL, 10);
    estimate_us = atof(words[2]);
    seconds = atof(words[3]);
    NEED(cuInit(0));
    NEED(cuDeviceGetCount(&found));
    if (found > wanted) found = wanted;
    pthread_barrier_init(&ready, NULL, found + 1);
    pthread_barrier_init(&begun, NULL, found + 1);
    for (int i = 0; i < found; i++) pthread_create(&gpus[i].thread, NULL, keep_busy, (void *)(intptr_t)i);
    pthread_barrier_wait(&ready);
    printf("{\"begun\":%d}\n", getpid());
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 5;
    start = atof(line);
    if (start < now_ns()) start = now_ns();
    pthread_barrier_wait(&begun);
    for (int i = 0; i < found; i++) pthread_join(gpus[i].thread, NULL);
    printf("{\"gpus\":[");
    for (int i = 0; i < found; i++) printf("%s{\"ordinal\":%d,\"uuid\":\"%s\",\"finished\":%ld,\"rate\":%.3f}", i ? "," : "", i, gpus[i].uuid, gpus[i].finished, gpus[i].counted / (seconds - SETTLE_NS / 1e9));
    printf("]}\n");
    return 0;
}
