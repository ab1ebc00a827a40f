// Programs whose launches wait for each other: none may hang because a launch is held back.
//
//     live CASE [ROUNDS_PER_US [TIMES]]
//
// A kernel that waits gives up after MOST_NS, so that no GPU is left hanging; that is a failure. Prints a line of JSON.
#include "common.h"

#define MOST_NS 8000000000ull

static CUstream one, two;
// Host memory that the GPU writes too: a word that is awaited, and behind it whether a process gave up.
static volatile uint32_t *word;
static CUfunction work, set, await;
static uint64_t rounds_of_ms;

static void some_work(CUstream stream, int ms) {
    for (int i = 0; i < ms; i++) NEED(launch(work, full_grid, rounds_of_ms, 0, stream));
}

// A kernel spins until a later launch of the same thread.
static void later_launch(void) {
    some_work(one, 20);
    NEED(launch(await, 1, (CUdeviceptr)word, MOST_NS, one));
    some_work(two, 20);
    NEED(launch(set, 1, (CUdeviceptr)word, 1, two));
    NEED(cuCtxSynchronize());
}

// A stream waits for a word that a later call writes, behind work of its own.
static void wait_value(void) {
    some_work(one, 20);
    NEED(cuStreamWaitValue32(one, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
    some_work(one, 20);
    some_work(two, 20);
    NEED(cuStreamWriteValue32(two, (CUdeviceptr)word, 1, 0));
    NEED(cuCtxSynchronize());
}

// The same, and what it waits for is written by the host once the thread is through with its launches.
static void wait_for_host(void) {
    NEED(cuStreamWaitValue32(one, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
    some_work(one, 60);
    *word = 1;
    NEED(cuCtxSynchronize());
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void take_lock(void *nothing) {
    (void)nothing;
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

// The driver's thread needs a lock that the launching thread holds: Python and its global lock.
static void host_callback(void) {
    pthread_mutex_lock(&lock);
    some_work(one, 20);
    NEED(cuLaunchHostFunc(one, take_lock, NULL));
    some_work(one, 60);
    pthread_mutex_unlock(&lock);
    NEED(cuCtxSynchronize());
}

// A kernel that stays, while others come and go, until a launch stops it.
static void persistent(void) {
    NEED(launch(await, 1, (CUdeviceptr)word, MOST_NS, one));
    for (int i = 0; i < 10; i++) {
        some_work(two, 10);
        NEED(cuStreamSynchronize(two));
    }
    NEED(launch(set, 1, (CUdeviceptr)word, 1, two));
    NEED(cuCtxSynchronize());
}

// As a library of collectives does: kernels of two streams that wait for each other's.
static void both_ways(void) {
    for (int i = 0; i < 4; i++) {
        NEED(launch(await, 1, (CUdeviceptr)(word + 2 * i), MOST_NS, one));
        some_work(one, 5);
        some_work(two, 5);
        NEED(launch(set, 1, (CUdeviceptr)(word + 2 * i), 1, two));
    }
    NEED(cuCtxSynchronize());
}

static const struct { const char *name; void (*run)(void); } cases[] = {
    {"later_launch", later_launch}, {"wait_value", wait_value}, {"wait_for_host", wait_for_host},
    {"host_callback", host_callback}, {"persistent", persistent}, {"both_ways", both_ways},
};

static void report(const char *name, bool ok, double begun, double longest) {
    printf("{\"case\":\"%s\",\"ok\":%s,\"ms\":%.1f,\"longest_ms\":%.1f}\n", name, ok ? "true" : "false", (now_ns() - begun) / 1e6, longest / 1e6);
    fflush(stdout);
}

// Of two processes: one has the word on the GPU and a kernel that waits for it; the other sets it. They tell each other by
// lines on stdin and stdout, which the process that started them passes on.
static void waits_for_other(void) {
    char line[16];
    CUdeviceptr at;
    CUipcMemHandle handle;
    uint32_t seen[2] = {0, 0};
    NEED(cuMemAlloc(&at, 4 << 20));
    NEED(cuMemsetD8(at, 0, 4 << 20));
    NEED(cuIpcGetMemHandle(&handle, at));
    printf("{\"handle\":\"");
    for (unsigned i = 0; i < sizeof handle; i++) printf("%02x", ((unsigned char *)&handle)[i]);
    printf("\"}\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) _exit(5);
    double begun = now_ns();
    some_work(one, 20);
    NEED(launch(await, 1, at, MOST_NS, one));
    some_work(one, 20);
    printf("{\"waiting\":1}\n");
    fflush(stdout);
    NEED(cuCtxSynchronize());
    NEED(cuMemcpyDtoH(seen, at, sizeof seen));
    report("waits_for_other", !seen[1], begun, now_ns() - begun);
    if (!fgets(line, sizeof line, stdin)) _exit(5);
}

static void sets_other(void) {
    char line[256];
    CUipcMemHandle handle;
    CUdeviceptr at;
    if (!fgets(line, sizeof line, stdin)) _exit(5);
    for (unsigned i = 0; i < sizeof handle; i++) {
        unsigned byte;
        if (sscanf(line + 2 * i, "%2x", &byte) != 1) _exit(5);
        ((unsigned char *)&handle)[i] = byte;
    }
    NEED(cuIpcOpenMemHandle(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    printf("{\"opened\":1}\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) _exit(5);
    double begun = now_ns();
    some_work(two, 20);
    NEED(launch(set, 1, at, 1, two));
    NEED(cuCtxSynchronize());
    report("sets_other", true, begun, now_ns() - begun);
    NEED(cuIpcCloseMemHandle(at));
}

int main(int count, char **words) {
    begin();
    // Below a limit it cannot be measured here.
    rounds_of_ms = 1000 * (count > 2 ? atof(words[2]) : rounds_per_us()) + 1;
    work = function("work");
    set = function("set");
    await = function("await");
    NEED(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
    NEED(cuMemHostAlloc((void **)&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    if (count > 1 && !strcmp(words[1], "waits_for_other")) waits_for_other();
    if (count > 1 && !strcmp(words[1], "sets_other")) sets_other();
    int times = count > 3 ? atoi(words[3]) : 3;
    for (unsigned i = 0; count > 1 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(words[1], cases[i].name)) continue;
        double begun = now_ns(), longest = 0;
        bool ok = true;
        for (int k = 0; k < times; k++) {
            double round = now_ns();
            memset((void *)word, 0, 4096);
            cases[i].run();
            for (int w = 0; w < 8; w += 2) ok = ok && !word[w + 1];
            if (now_ns() - round > longest) longest = now_ns() - round;
        }
        report(cases[i].name, ok, begun, longest);
    }
    return 0;
}
