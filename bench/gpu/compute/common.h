// What the programs beside this share. They use the driver alone, no runtime.
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels.h"

// What must not fail for the rest to make sense.
#define NEED(call) do { CUresult r_ = (call); if (r_) { printf("{\"error\":\"%s: %d\"}\n", #call, r_); fflush(stdout); _exit(4); } } while (0)

#define THREADS 256
// All blocks of a full grid run at the same time.
#define BLOCKS_PER_PROCESSOR 8

// Of the GPU: when kernels began and ended. The kernels write it.
struct stamp { uint64_t begin, end; };
struct log { uint64_t count, mask; struct { uint32_t ended, unused; uint64_t begin; } places[PLACES]; struct stamp stamps[]; };
_Static_assert(sizeof(struct log) == 272, "STAMPS_AT, of the kernels");

// Of each thread that uses a GPU.
static _Thread_local CUcontext context;
static _Thread_local CUmodule module;
static _Thread_local int full_grid;

static double clock_ns(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static double now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static void busy_ns(double ns) {
    double end = now_ns() + ns;
    while (now_ns() < end) ;
}

static void sleep_until(double ns) {
    struct timespec t = {(time_t)(ns / 1e9), (long)(ns - (double)(time_t)(ns / 1e9) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) ;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Sorts, so that the others can be read off.
static void sort(double *values, long count) { qsort(values, count, sizeof *values, compare); }
static double part(const double *sorted, long count, double of) { return count ? sorted[(long)(of * (count - 1) + 0.5)] : 0; }

static CUfunction function(const char *name) {
    CUfunction found;
    NEED(cuModuleGetFunction(&found, module, name));
    return found;
}

// The primary context and the kernels. What a process does while it waits is as CUDA does it by itself.
static void begin_on(int device) {
    int processors;
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    NEED(cuModuleLoadData(&module, ptx_kernels));
    NEED(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    full_grid = processors * BLOCKS_PER_PROCESSOR;
}

static void begin(void) {
    NEED(cuInit(0));
    begin_on(0);
}

// A log of at least so many stamps, empty.
static CUdeviceptr new_log(uint64_t stamps, uint64_t *bytes) {
    uint64_t room = 1;
    while (room < stamps) room *= 2;
    struct log head = {.mask = room - 1};
    CUdeviceptr at;
    *bytes = sizeof head + room * sizeof(struct stamp);
    NEED(cuMemAlloc(&at, *bytes));
    NEED(cuMemsetD8(at, 0, *bytes));
    NEED(cuMemcpyHtoD(at, &head, sizeof head));
    return at;
}

static void empty_log(CUdeviceptr at) {
    uint64_t none = 0;
    NEED(cuMemcpyHtoD(at, &none, sizeof none));
}

static CUresult launch(CUfunction kernel, int grid, uint64_t first, uint64_t second, CUstream stream) {
    // The third of `work`: its place in the log. Others have no third.
    uint64_t place = 0;
    void *words[] = {&first, &second, &place};
    return cuLaunchKernel(kernel, grid, 1, 1, grid == 1 ? 1 : THREADS, 1, 1, 0, stream, words, NULL);
}

// How many rounds of `work` keep the GPU busy for a microsecond: the slope between two lengths, so that what a launch
// itself takes is not part of it.
static double rounds_per_us(void) {
    CUfunction work = function("work");
    CUevent first, second;
    double best = 0;
    NEED(cuEventCreate(&first, 0));
    NEED(cuEventCreate(&second, 0));
    for (int round = 0; round < 5; round++) {
        float took[2];
        for (int half = 0; half < 2; half++) {
            NEED(cuEventRecord(first, 0));
            for (int i = 0; i < 20; i++) NEED(launch(work, full_grid, half ? 20000 : 10000, 0, 0));
            NEED(cuEventRecord(second, 0));
            NEED(cuEventSynchronize(second));
            NEED(cuEventElapsedTime(&took[half], first, second));
        }
        double rate = 20 * 10000 / ((took[1] - took[0]) * 1e3);
        // The clock rises with the first work: the last rounds count.
        if (round >= 2 && rate > best) best = rate;
    }
    NEED(cuEventDestroy(first));
    NEED(cuEventDestroy(second));
    return best;
}

// The time on the GPU's clock less that on CLOCK_MONOTONIC, from the quickest of some looks.
static double gpu_less_host(CUdeviceptr log) {
    struct { struct log head; struct stamp stamp; } seen;
    double best = 1e18, offset = 0;
    for (int i = 0; i < 20; i++) {
        empty_log(log);
        double before = now_ns();
        NEED(launch(function("work"), 1, 1, log, 0));
        NEED(cuStreamSynchronize(0));
        double after = now_ns();
        NEED(cuMemcpyDtoH(&seen, log, sizeof seen));
        if (after - before < best) {
            best = after - before;
            offset = seen.stamp.end - (before + after) / 2;
        }
    }
    empty_log(log);
    return offset;
}
