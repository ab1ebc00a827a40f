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

// Each function: its symbol, the name and the first version by which cuGetProcAddress knows it, its arguments.
#define CALLS(CALL)                                                                                         \
    CALL(cuInit, cuInit, 2000, (unsigned flags))                                                            \
    CALL(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *count))                                            \
    CALL(cuDeviceGet, cuDeviceGet, 2000, (int *device, int ordinal))                                        \
    CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (void **context, int device))            \
    CALL(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, (int device))                      \
    CALL(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, (int device))                          \
    CALL(cuCtxCreate, cuCtxCreate, 2000, (void **context, unsigned flags, int device))                      \
    CALL(cuCtxCreate_v2, cuCtxCreate, 3020, (void **context, unsigned flags, int device))                   \
    CALL(cuCtxCreate_v3, cuCtxCreate, 11040,                                                                \
         (void **context, void *affinities, int count, unsigned flags, int device))                         \
    CALL(cuCtxCreate_v4, cuCtxCreate, 12050,                                                                \
         (void **context, struct context_parameters *parameters, unsigned flags, int device))               \
    CALL(cuCtxDestroy_v2, cuCtxDestroy, 4000, (void *context))                                              \
    CALL(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (void *context))                                           \
    CALL(cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000, (void **context))                                       \
    CALL(cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                                                  \
    CALL(cuCtxSetLimit, cuCtxSetLimit, 3010, (unsigned limit, size_t value))                                \
    CALL(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, (int device, void *resource, unsigned type)) \
    CALL(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040,                                       \
         (void **description, void *resources, unsigned count))                                             \
    CALL(cuGreenCtxCreate, cuGreenCtxCreate, 12040,                                                         \
         (void **context, void *description, int device, unsigned flags))                                   \
    CALL(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, (void *context))                                      \
    CALL(cuMemGetInfo_v2, cuMemGetInfo, 3020, (size_t *free, size_t *total))                                \
    CALL(cuMemAlloc, cuMemAlloc, 2000, (unsigned *at, unsigned bytes))                                      \
    CALL(cuMemAlloc_v2, cuMemAlloc, 3020, (device_pointer *at, size_t bytes))                               \
    CALL(cuMemAllocPitch, cuMemAllocPitch, 2000,                                                            \
         (unsigned *at, unsigned *pitch, unsigned width, unsigned height, unsigned element))                \
    CALL(cuMemAllocPitch_v2, cuMemAllocPitch, 3020,                                                         \
         (device_pointer *at, size_t *pitch, size_t width, size_t height, unsigned element))                \
    CALL(cuMemAllocManaged, cuMemAllocManaged, 6000, (device_pointer *at, size_t bytes, unsigned flags))    \
    CALL(cuMemFree, cuMemFree, 2000, (unsigned at))                                                         \
    CALL(cuMemFree_v2, cuMemFree, 3020, (device_pointer at))                                                \
    CALL(cuMemsetD8_v2, cuMemsetD8, 3020, (device_pointer at, unsigned char byte, size_t count))            \
    CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020, (void *to, device_pointer from, size_t bytes))                \
    CALL(cuMemAllocAsync, cuMemAllocAsync, 11020, (device_pointer *at, size_t bytes, void *stream))         \
    CALL(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, (device_pointer *at, size_t bytes, void *stream))    \
    CALL(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020,                                           \
         (device_pointer *at, size_t bytes, void *pool, void *stream))                                      \
    CALL(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020,                                      \
         (device_pointer *at, size_t bytes, void *pool, void *stream))                                      \
    CALL(cuMemFreeAsync, cuMemFreeAsync, 11020, (device_pointer at, void *stream))                          \
    CALL(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, (device_pointer at, void *stream))                     \
    CALL(cuMemPoolCreate, cuMemPoolCreate, 11020, (void **pool, const struct pool_properties *properties))  \
    CALL(cuMemPoolDestroy, cuMemPoolDestroy, 11020, (void *pool))                                           \
    CALL(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, (void *pool, unsigned attribute, void *value)) \
    CALL(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020,                         \
         (void *handle, void *pool, unsigned type, unsigned long long flags))                               \
    CALL(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020,                     \
         (void **pool, void *handle, unsigned type, unsigned long long flags))                              \
    CALL(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020, (struct ipc *data, device_pointer at))      \
    CALL(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020,                                             \
         (device_pointer *at, void *pool, struct ipc *data))                                                \
    CALL(cuMemCreate, cuMemCreate, 10020,                                                                   \
         (unsigned long long *handle, size_t bytes, const struct physical_properties *properties,           \
          unsigned long long flags))                                                                        \
    CALL(cuMemRelease, cuMemRelease, 10020, (unsigned long long handle))                                    \
    CALL(cuMemAddressReserve, cuMemAddressReserve, 10020,                                                   \
         (device_pointer *at, size_t bytes, size_t alignment, device_pointer wish, unsigned long long flags)) \
    CALL(cuMemAddressFree, cuMemAddressFree, 10020, (device_pointer at, size_t bytes))                      \
    CALL(cuMemMap, cuMemMap, 10020,                                                                         \
         (device_pointer at, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags)) \
    CALL(cuMemUnmap, cuMemUnmap, 10020, (device_pointer at, size_t bytes))                                  \
    CALL(cuMemSetAccess, cuMemSetAccess, 10020,                                                             \
         (device_pointer at, size_t bytes, const struct access *access, size_t count))                      \
    CALL(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020,                                 \
         (void *handle, unsigned long long memory, unsigned type, unsigned long long flags))                \
    CALL(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020,                             \
         (unsigned long long *memory, void *handle, unsigned type))                                         \
    CALL(cuArrayCreate, cuArrayCreate, 2000, (void **array, const struct array_old *asked))                 \
    CALL(cuArrayCreate_v2, cuArrayCreate, 3020, (void **array, const struct array *asked))                  \
    CALL(cuArray3DCreate, cuArray3DCreate, 2000, (void **array, const struct array_3d_old *asked))          \
    CALL(cuArray3DCreate_v2, cuArray3DCreate, 3020, (void **array, const struct array_3d *asked))           \
    CALL(cuArrayDestroy, cuArrayDestroy, 2000, (void *array))                                               \
    CALL(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000,                                              \
         (void **array, const struct array_3d *asked, unsigned levels))                                     \
    CALL(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, (void *array))                             \
    CALL(cuStreamCreate, cuStreamCreate, 2000, (void **stream, unsigned flags))                             \
    CALL(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, (void *stream, unsigned mode))               \
    CALL(cuStreamEndCapture, cuStreamEndCapture, 10000, (void *stream, void **graph))                       \
    CALL(cuGraphCreate, cuGraphCreate, 10000, (void **graph, unsigned flags))                               \
    CALL(cuGraphDestroy, cuGraphDestroy, 10000, (void *graph))                                              \
    CALL(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040,                                             \
         (void **node, void *graph, void *const *after, size_t count, struct memory_node *memory))          \
    CALL(cuGraphAddNode, cuGraphAddNode, 12020,                                                             \
         (void **node, void *graph, void *const *after, size_t count, struct graph_node *asked))            \
    CALL(cuGraphAddNode_v2, cuGraphAddNode, 12030,                                                          \
         (void **node, void *graph, void *const *after, const void *edges, size_t count,                    \
          struct graph_node *asked))                                                                        \
    CALL(cuGraphAddNode_v3, cuGraphAddNode, 13040,                                                          \
         (void **node, void *graph, void *const *after, const void *edges, size_t count,                    \
          struct graph_node *asked))                                                                        \
    CALL(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040,                                   \
         (void **ready, void *graph, unsigned long long flags))                                             \
    CALL(cuGraphUpload, cuGraphUpload, 11010, (void *ready, void *stream))                                  \
    CALL(cuGraphLaunch, cuGraphLaunch, 10000, (void *ready, void *stream))                                  \
    CALL(cuGraphLaunch_ptsz, cuGraphLaunch, 10000, (void *ready, void *stream))                             \
    CALL(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (void *ready))                                      \
    CALL(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (struct ipc *handle, device_pointer at))               \
    CALL(cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010, (device_pointer *at, struct ipc handle, unsigned flags)) \
    CALL(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000,                                                  \
         (device_pointer *at, struct ipc handle, unsigned flags))                                           \
    CALL(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (device_pointer at))                               \
    CALL(cuImportExternalMemory, cuImportExternalMemory, 10000,                                             \
         (void **memory, const struct external *asked))                                                     \
    CALL(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, (void *memory))                           \
    CALL(cuModuleLoad, cuModuleLoad, 2000, (void **module, const char *path))                               \
    CALL(cuModuleLoadData, cuModuleLoadData, 2000, (void **module, const void *image))                      \
    CALL(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010,                                                      \
         (void **module, const void *image, unsigned count, void *options, void *values))                   \
    CALL(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, (void **module, const void *image))            \
    CALL(cuModuleUnload, cuModuleUnload, 2000, (void *module))                                              \
    CALL(cuLibraryLoadData, cuLibraryLoadData, 12000,                                                       \
         (void **library, const void *code, void *options, void *values, unsigned count, void *more,        \
          void *more_values, unsigned more_count))                                                          \
    CALL(cuLibraryGetGlobal, cuLibraryGetGlobal, 12000,                                                     \
         (device_pointer *at, size_t *bytes, void *library, const char *name))                              \
    CALL(cuLibraryUnload, cuLibraryUnload, 12000, (void *library))

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
