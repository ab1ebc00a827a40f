// A profiler's library: counts allocations and passes them on to the next library, as ncu and its like do.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

static int seen;

int cuMemAlloc_v2(device_pointer *at, size_t bytes)
{
    static int (*next)(device_pointer *, size_t);
    if (!next)
        next = (int (*)(device_pointer *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    if (!next || next == cuMemAlloc_v2) {
        fprintf(stderr, "RTLD_NEXT of the interposer finds %s\n", next ? "itself" : "nothing");
        exit(1);
    }
    seen++;
    return next(at, bytes);
}

// How many allocations came by, for the program that asks.
int interposer_seen(void)
{
    return seen;
}
