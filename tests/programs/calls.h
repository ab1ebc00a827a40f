// Every function of the driver by which a program takes device memory, and what is needed around those: our own
// declarations, and the ways to look them up.

#ifndef CALLS_H
#define CALLS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdbool.h>

#include "driver.h"
#include "say.h"

enum { SUCCESS = 0, OUT_OF_MEMORY = 2 };

struct location {
    unsigned type;
    int id;
};

struct physical_properties {
    unsigned type, handle_types;
    struct location location;
    void *meta_data;
    unsigned char flags[8];
};

struct access {
    struct location location;
    unsigned flags;
};

struct pool_properties {
    unsigned type, handle_types;
    struct location location;
    void *security;
    size_t most;
    unsigned char reserved[56];
};

// CUDA_MEM_ALLOC_NODE_PARAMS
struct memory_node {
    struct pool_properties pool;
    const struct access *access;
    size_t accesses, bytes;
    device_pointer at;
};

// CUgraphNodeParams
struct graph_node {
    unsigned type;
    int reserved[3];
    union {
        struct memory_node memory;
        struct {
            void *graph;
            unsigned ownership;
        } child;
        char room[232];
    };
    long long reserved_too;
};

struct array_old {
    unsigned width, height, format, channels;
};

struct array {
    size_t width, height;
    unsigned format, channels;
};

struct array_3d_old {
    unsigned width, height, depth, format, channels, flags;
};

struct array_3d {
    size_t width, height, depth;
    unsigned format, channels, flags;
};

// CUDA_EXTERNAL_MEMORY_HANDLE_DESC
struct external {
    unsigned type;
    union {
        int descriptor;
        void *room[2];
    } handle;
    unsigned long long bytes;
    unsigned flags, reserved[16];
};

struct ipc {
    char bytes[64];
};

// CUctxCreateParams
struct context_parameters {
    void *affinity;
    int affinities;
    void *graphics;
};

// CUDA_GRAPH_INSTANTIATE_PARAMS
struct ready_parameters {
    unsigned long long flags;
    void *stream, *error;
    unsigned result;
};

// CUDA_KERNEL_NODE_PARAMS
struct kernel_node {
    void *function;
    unsigned grid[3], block[3], shared;
    void **parameters, **more;
    void *kernel, *context;
};

// CUlaunchConfig
struct launch {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned attribute_count;
};

// CUDA_LAUNCH_PARAMS
struct launch_there {
    void *function;
    unsigned grid[3], block[3], shared;
    void *stream, **parameters;
};

#include "calls_list.h"

// Weak: not every driver has them all.
#define AS_EXTERN_CALL(symbol, base, version, arguments) extern int symbol arguments __attribute__((weak));
CALLS(AS_EXTERN_CALL)
#undef AS_EXTERN_CALL

// The functions as this program has them, however it got them.
static struct {
#define AS_CALL(symbol, base, version, arguments) int(*symbol) arguments;
    CALLS(AS_CALL)
#undef AS_CALL
} cu;

static void *driver_library;

static void *look_up_in_library(const char *symbol, const char *base, int version, uint64_t flags)
{
    (void)base, (void)version, (void)flags;
    if (!driver_library)
        driver_library = dlopen("libcuda.so.1", RTLD_NOW);
    return driver_library ? dlsym(driver_library, symbol) : NULL;
}

static void *look_up_by_version(const char *symbol, const char *base, int version, uint64_t flags)
{
    static get_proc_address_v2 *ask;
    (void)symbol;
    if (!ask)
        ask = (get_proc_address_v2 *)look_up_in_library("cuGetProcAddress_v2", NULL, 0, 0);
    void *found = NULL;
    int status = 0;
    return ask && ask(base, &found, version, flags, &status) == SUCCESS ? found : NULL;
}

static void *look_up_by_version_of_old(const char *symbol, const char *base, int version, uint64_t flags)
{
    static get_proc_address_v1 *ask;
    (void)symbol;
    if (!ask)
        ask = (get_proc_address_v1 *)look_up_in_library("cuGetProcAddress", NULL, 0, 0);
    void *found = NULL;
    return ask && ask(base, &found, version, flags) == SUCCESS ? found : NULL;
}

static bool is_per_thread(const char *symbol)
{
    size_t length = strlen(symbol);
    return length > 5 && strcmp(symbol + length - 5, "_ptsz") == 0;
}

// Fills `cu` in the way of that name: linked, dlsym, cuGetProcAddress, cuGetProcAddress_v2.
static inline void reach(const char *how)
{
    void *(*look_up)(const char *, const char *, int, uint64_t) =
        strcmp(how, "dlsym") == 0                 ? look_up_in_library
        : strcmp(how, "cuGetProcAddress") == 0    ? look_up_by_version_of_old
        : strcmp(how, "cuGetProcAddress_v2") == 0 ? look_up_by_version
                                                  : NULL;
    if (!look_up && strcmp(how, "linked") != 0)
        fail(how, "no such way to the driver");
#define REACH(symbol, base, version, arguments)                                                            \
    cu.symbol = look_up ? (int(*) arguments)look_up(#symbol, #base, version,                               \
                                                    is_per_thread(#symbol) ? PER_THREAD_STREAM : LEGACY_STREAM) \
                        : symbol;
    CALLS(REACH)
#undef REACH
}

#endif
