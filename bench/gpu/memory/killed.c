// How long after a process of a job is killed another one has its memory, and whether both ever hold it.
//
//     killed HOLD_BYTES THREADS ROUNDS
//
// A holder takes HOLD_BYTES; a survivor takes what is left, the holder is killed, and the survivor asks for HOLD_BYTES.
#include "common.h"
#include <sys/prctl.h>

static void *churn(void *nothing) {
    CUdeviceptr at;
    cuCtxSetCurrent(own_context);
    for (;;) if (!cuMemAlloc(&at, 2 * MIB)) cuMemFree(at);
}

int main(int words, char **word) {
    if (words != 4) return 2;
    unsigned long long bytes = strtoull(word[1], NULL, 10);
    int threads = atoi(word[2]), rounds = atoi(word[3]);
    static CUdeviceptr held[8192];
    int to[2], from[2];
    if (pipe(to) || pipe(from)) return 4;
    // This one is the survivor; the holders come from a child that never uses CUDA, because a fork after cuInit has none.
    pid_t keeper = fork();
    if (!keeper) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(to[1]);
        signal(SIGCHLD, SIG_IGN);
        char letter;
        while (read(to[0], &letter, 1) == 1) {
            pid_t pid = fork();
            if (pid) continue;
            CUdeviceptr at;
            pthread_t thread;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            begin();
            CUresult result = cuMemAlloc(&at, bytes);
            for (int i = 0; i < threads; i++) pthread_create(&thread, NULL, churn, NULL);
            struct { pid_t pid; CUresult result; } answer = {getpid(), result};
            if (write(from[1], &answer, sizeof answer) != sizeof answer) _exit(4);
            for (;;) pause();
        }
        _exit(0);
    }
    close(to[0]);
    begin();
    for (int round = 0; round < rounds; round++) {
        struct { pid_t pid; CUresult result; } holder;
        if (write(to[1], "h", 1) != 1 || read(from[0], &holder, sizeof holder) != sizeof holder) return 4;
        usleep(50000);
        int count = 0, calls = 0;
        CUdeviceptr at;
        CUresult result = CUDA_SUCCESS;
        while (count < 8192 && !cuMemAlloc(&held[count], 8 * MIB)) count++;
        kill(holder.pid, SIGKILL);
        double start = now_ns(), first = 0;
        do {
            result = cuMemAlloc(&at, bytes);
            if (!calls++) first = now_ns() - start;
        } while (result && now_ns() - start < 5e9);
        field("holder", "%d", holder.result);
        field("survivor_steps", "%d", count);
        field("calls", "%d", calls);
        field("code", "%d", result);
        field("first_call_ms", "%.2f", first / 1e6);
        field("ms", "%.2f", (now_ns() - start) / 1e6);
        phase("round %d", round + 1);
        if (!result) cuMemFree(at);
        while (count > 0) cuMemFree(held[--count]);
    }
    close(to[1]);
    kill(keeper, SIGKILL);
    return 0;
}
