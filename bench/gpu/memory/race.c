// Many processes of one job, each with threads, race for what is left below the limit.
//
//     race PROCESSES THREADS STEP_BYTES LEAVE_BYTES LIMIT_BYTES ROUNDS
//
// All make their contexts first. The first then takes what is left but LEAVE_BYTES, by what the caller answers that NVML
// counts for all. In each round every thread takes steps until it is refused; none frees before all were refused.
#include "common.h"
#include <sys/prctl.h>

enum { MOST = 1024, PROCESSES = 256 };
static struct shared {
    atomic_int ready, go, done, freed, wrong;
    atomic_llong base, got[PROCESSES];
    atomic_llong refusals;
} *shared;

static unsigned long long step;
static int process, processes, threads, rounds;

static void wait_for(atomic_int *what, int least) {
    while (atomic_load(what) < least) usleep(50);
}

static void *racer(void *nothing) {
    static _Thread_local CUdeviceptr held[MOST];
    NEED(cuCtxSetCurrent(own_context));
    for (int round = 1; round <= rounds; round++) {
        int count = 0;
        CUresult result = CUDA_SUCCESS;
        atomic_fetch_add(&shared->ready, 1);
        while (atomic_load(&shared->go) < round) usleep(20);
        while (count < MOST && !(result = cuMemAlloc(&held[count], step))) count++;
        atomic_fetch_add(&shared->got[process], count);
        if (result != CUDA_ERROR_OUT_OF_MEMORY) atomic_store(&shared->wrong, result ? (int)result : -1);
        // While another process still races, memory may come free again: a refused step is tried once more at the end.
        atomic_fetch_add(&shared->done, 1);
        wait_for(&shared->done, round * processes * threads);
        CUdeviceptr more;
        if (process == 0 && cuMemAlloc(&more, step) == CUDA_SUCCESS) {
            atomic_fetch_add(&shared->refusals, 1);
            cuMemFree(more);
        }
        wait_for(&shared->freed, (round - 1) * (processes * threads + 1) + 1);
        while (count > 0) if (cuMemFree(held[--count])) atomic_store(&shared->wrong, -2);
        atomic_fetch_add(&shared->freed, 1);
    }
    return NULL;
}

static void child(void) {
    pthread_t thread[64];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    begin();
    atomic_fetch_add(&shared->ready, 1);
    while (atomic_load(&shared->base) < 0) usleep(100);
    CUdeviceptr base;
    if (process == 0) {
        CUresult result = cuMemAlloc(&base, atomic_load(&shared->base));
        if (result) atomic_store(&shared->wrong, result);
        atomic_fetch_add(&shared->ready, 1);
    }
    wait_for(&shared->ready, processes + 1);
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, racer, NULL);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    _exit(0);
}

int main(int words, char **word) {
    if (words != 7) return 2;
    processes = atoi(word[1]), threads = atoi(word[2]), rounds = atoi(word[6]);
    step = strtoull(word[3], NULL, 10);
    unsigned long long leave = strtoull(word[4], NULL, 10), limit = strtoull(word[5], NULL, 10);
    if (processes > PROCESSES || threads > 64) return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    atomic_store(&shared->base, -1);
    double start = now_ns();
    for (process = 0; process < processes; process++) {
        pid_t pid = fork();
        if (!pid) child();
    }
    while (atomic_load(&shared->ready) < processes && now_ns() - start < 60e9) usleep(1000);
    field("ready", "%d", atomic_load(&shared->ready));
    field("seconds", "%.1f", (now_ns() - start) / 1e9);
    // The answer is what NVML counts for all together.
    printf("{\"phase\":\"contexts\"%s}\n", fields);
    fields[0] = 0;
    fflush(stdout);
    char answer[64];
    if (!fgets(answer, sizeof answer, stdin)) return 5;
    unsigned long long base = (limit - strtoull(answer, NULL, 10) - leave) / PIECE * PIECE;
    atomic_store(&shared->base, base);
    wait_for(&shared->ready, processes + 1);
    for (int round = 1; round <= rounds; round++) {
        int all = processes * threads;
        wait_for(&shared->ready, processes + 1 + round * all);
        for (int i = 0; i < processes; i++) atomic_store(&shared->got[i], 0);
        atomic_store(&shared->refusals, 0);
        start = now_ns();
        atomic_store(&shared->go, round);
        wait_for(&shared->done, round * all);
        double took = now_ns() - start;
        usleep(300000);
        long long sum = 0, least = 1 << 30, most = 0;
        for (int i = 0; i < processes; i++) {
            long long got = atomic_load(&shared->got[i]);
            sum += got;
            least = got < least ? got : least;
            most = got > most ? got : most;
        }
        field("base", "%llu", base);
        field("steps", "%lld", sum);
        field("got", "%llu", sum * step);
        field("least", "%lld", least);
        field("most", "%lld", most);
        field("one_more_later", "%lld", (long long)atomic_load(&shared->refusals));
        field("wrong", "%d", atomic_load(&shared->wrong));
        field("seconds", "%.3f", took / 1e9);
        phase("full %d", round);
        atomic_fetch_add(&shared->freed, 1);
        wait_for(&shared->freed, round * (all + 1));
    }
    while (wait(NULL) > 0) {}
    return 0;
}
