// What the clients need that launch kernels for some time.

#ifndef PACE_H
#define PACE_H

#include "calls.h"

#include <time.h>

static inline double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static inline void rest(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static inline void must(const char *what, int result)
{
    if (result == 0)
        return;
    fprintf(stderr, "%s: %d\n", what, result);
    exit(1);
}

// Lets this thread work on a GPU.
static inline void *use_gpu(int device)
{
    void *context = NULL;
    must("cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(&context, device));
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
    return context;
}

// A kernel of a new module that has this text.
static inline void *kernel_of(const char *text, const char *name)
{
    void *module = NULL, *kernel = NULL;
    must("cuModuleLoadData", cu.cuModuleLoadData(&module, text));
    must("cuModuleGetFunction", cu.cuModuleGetFunction(&kernel, module, name));
    return kernel;
}

// A kernel that takes so many nanoseconds.
static inline void *kernel_of_length(unsigned long length)
{
    char text[64];
    snprintf(text, sizeof text, "kernel step %lu\n", length);
    return kernel_of(text, "step");
}

static inline void *new_stream(void)
{
    void *stream = NULL;
    must("cuStreamCreate", cu.cuStreamCreate(&stream, 1));
    return stream;
}

static inline int launch(void *kernel, void *stream)
{
    return cu.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

#endif
