// What the programs beside this share. They use the driver alone, no runtime.
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define PIECE (2 * MIB)

#include "see.h"

#include "ptx.h"

// Says where the program is, with the fields set before, and waits until the caller has looked from outside.
static void phase(const char *format, ...) {
    char answer[16];
    printf("{\"phase\":\"");
    va_list more;
    va_start(more, format);
    vprintf(format, more);
    va_end(more);
    printf("\"%s}\n", fields);
    fflush(stdout);
    fields[0] = 0;
    if (!fgets(answer, sizeof answer, stdin)) exit(5);
}

// The driver and the primary context, current.
static void begin(void) {
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&own_context, 0));
    NEED(cuCtxSetCurrent(own_context));
}

// How many bytes of local memory a context takes for each byte of the largest frame.
static unsigned long long resident_threads(void) {
    int processors = 0, threads = 0;
    NEED(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    NEED(cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0));
    return (unsigned long long)processors * threads;
}
