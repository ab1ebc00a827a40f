// The ways by which a program takes device memory: each takes a block of some size and gives it back. What fails halfway
// is undone, so that a refusal leaves nothing behind. Any number of threads may use them at once.

#ifndef WAYS_H
#define WAYS_H

#include "calls.h"

// Something that was taken.
struct block {
    device_pointer at;
    unsigned long long handle;
    void *one, *two;
    size_t bytes;
};

struct way {
    const char *name;
    // Fills the block and returns 0, or returns the driver's error.
    int (*take)(size_t bytes, struct block *);
    int (*give)(struct block *);
    // Works in contexts of `cuCtxCreate` of CUDA 2 alone.
    bool old;
};

static int device_number;
static void *main_context;

// This thread's stream, in the context that it had first. Streams take memory, so there may be none.
static int stream_of_thread(void **place)
{
    static _Thread_local void *stream;
    int result = stream ? SUCCESS : cu.cuStreamCreate(&stream, 1);
    *place = stream;
    return result;
}

static int take_plain(size_t bytes, struct block *block)
{
    return cu.cuMemAlloc_v2(&block->at, bytes);
}

static int give_plain(struct block *block)
{
    return cu.cuMemFree_v2(block->at);
}

static int take_plain_old(size_t bytes, struct block *block)
{
    unsigned at = 0;
    int result = cu.cuMemAlloc(&at, (unsigned)bytes);
    block->at = at;
    return result;
}

static int give_plain_old(struct block *block)
{
    return cu.cuMemFree((unsigned)block->at);
}

// Rows that are longer than what is asked for.
enum { WIDTH = 1000, PITCH = 1024 };

static int take_pitch(size_t bytes, struct block *block)
{
    size_t pitch = 0;
    return cu.cuMemAllocPitch_v2(&block->at, &pitch, WIDTH, bytes / PITCH, 4);
}

static int take_pitch_old(size_t bytes, struct block *block)
{
    unsigned at = 0, pitch = 0;
    int result = cu.cuMemAllocPitch(&at, &pitch, WIDTH, (unsigned)(bytes / PITCH), 4);
    block->at = at;
    return result;
}

static int take_managed(size_t bytes, struct block *block)
{
    return cu.cuMemAllocManaged(&block->at, bytes, 1);
}

static int take_async(size_t bytes, struct block *block)
{
    return cu.cuMemAllocAsync(&block->at, bytes, NULL);
}

static int give_async(struct block *block)
{
    return cu.cuMemFreeAsync(block->at, NULL);
}

static int take_async_ptsz(size_t bytes, struct block *block)
{
    return cu.cuMemAllocAsync_ptsz(&block->at, bytes, NULL);
}

static int give_async_ptsz(struct block *block)
{
    return cu.cuMemFreeAsync_ptsz(block->at, NULL);
}

// A pool of the program's own, with nothing given back by itself.
static void *own_pool;

static int make_own_pool(void)
{
    struct pool_properties properties = {.type = 1, .location = {1, device_number}};
    uint64_t keep = UINT64_MAX;
    int result = cu.cuMemPoolCreate(&own_pool, &properties);
    return result ? result : cu.cuMemPoolSetAttribute(own_pool, 4, &keep);
}

static int take_from_pool(size_t bytes, struct block *block)
{
    return cu.cuMemAllocFromPoolAsync(&block->at, bytes, own_pool, NULL);
}

static int take_from_pool_ptsz(size_t bytes, struct block *block)
{
    return cu.cuMemAllocFromPoolAsync_ptsz(&block->at, bytes, own_pool, NULL);
}

// A pool for this alone, which goes with it.
static int take_pool(size_t bytes, struct block *block)
{
    struct pool_properties properties = {.type = 1, .location = {1, device_number}};
    int result = cu.cuMemPoolCreate(&block->one, &properties);
    if (result)
        return result;
    result = cu.cuMemAllocFromPoolAsync(&block->at, bytes, block->one, NULL);
    if (result)
        cu.cuMemPoolDestroy(block->one);
    return result;
}

static int give_pool(struct block *block)
{
    int result = give_async(block);
    return result ? result : cu.cuMemPoolDestroy(block->one);
}

enum { PIECE = 2 << 20 };

static int give_physical(struct block *block)
{
    int result = cu.cuMemUnmap(block->at, block->bytes);
    // Its handle was released as soon as it was mapped: now the memory goes.
    return result ? result : cu.cuMemAddressFree(block->at, block->bytes);
}

static int map_physical(unsigned long long handle, size_t bytes, struct block *block)
{
    struct access access = {{1, device_number}, 3};
    int result = cu.cuMemAddressReserve(&block->at, bytes, 0, 0, 0);
    if (result)
        return result;
    result = cu.cuMemMap(block->at, bytes, 0, handle, 0);
    if (result) {
        cu.cuMemAddressFree(block->at, bytes);
        return result;
    }
    block->bytes = bytes;
    result = cu.cuMemSetAccess(block->at, bytes, &access, 1);
    if (result)
        give_physical(block);
    return result;
}

static int take_physical(size_t bytes, struct block *block)
{
    struct physical_properties properties = {.type = 1, .location = {1, device_number}};
    unsigned long long handle = 0;
    bytes = (bytes + PIECE - 1) / PIECE * PIECE;
    int result = cu.cuMemCreate(&handle, bytes, &properties, 0);
    if (result)
        return result;
    result = map_physical(handle, bytes, block);
    int released = cu.cuMemRelease(handle);
    return result ? result : released;
}

// The same without addresses: the handle alone keeps it.
static int take_handle(size_t bytes, struct block *block)
{
    struct physical_properties properties = {.type = 1, .location = {1, device_number}};
    bytes = (bytes + PIECE - 1) / PIECE * PIECE;
    return cu.cuMemCreate(&block->handle, bytes, &properties, 0);
}

static int give_handle(struct block *block)
{
    return cu.cuMemRelease(block->handle);
}

enum { UNSIGNED_INT32 = 3, ROW = 1024, LAYER = 64 };

static int take_array_old(size_t bytes, struct block *block)
{
    struct array_old asked = {ROW, (unsigned)(bytes / 4 / ROW), UNSIGNED_INT32, 1};
    return cu.cuArrayCreate(&block->one, &asked);
}

static int take_array(size_t bytes, struct block *block)
{
    struct array asked = {ROW, bytes / 4 / ROW, UNSIGNED_INT32, 1};
    return cu.cuArrayCreate_v2(&block->one, &asked);
}

static int take_array_3d_old(size_t bytes, struct block *block)
{
    struct array_3d_old asked = {ROW, LAYER, (unsigned)(bytes / 4 / ROW / LAYER), UNSIGNED_INT32, 1, 0};
    return cu.cuArray3DCreate(&block->one, &asked);
}

static int take_array_3d(size_t bytes, struct block *block)
{
    struct array_3d asked = {ROW, LAYER, bytes / 4 / ROW / LAYER, UNSIGNED_INT32, 1, 0};
    return cu.cuArray3DCreate_v2(&block->one, &asked);
}

static int give_array(struct block *block)
{
    return cu.cuArrayDestroy(block->one);
}

static int take_mipmap(size_t bytes, struct block *block)
{
    // All levels together are a third more than the first.
    struct array_3d asked = {ROW, bytes / 4 / ROW * 3 / 4, 0, UNSIGNED_INT32, 1, 0};
    return cu.cuMipmappedArrayCreate(&block->one, &asked, 8);
}

static int give_mipmap(struct block *block)
{
    return cu.cuMipmappedArrayDestroy(block->one);
}

#include "ways_graph.h"
#include "ways_more.h"

#define WAY(name, take, give) {name, take, give, false}
#define OLD_WAY(name, take, give) {name, take, give, true}

static const struct way ways[] = {
    WAY("cuMemAlloc_v2", take_plain, give_plain),
    WAY("cuMemAllocPitch_v2", take_pitch, give_plain),
    WAY("cuMemAllocManaged", take_managed, give_plain),
    WAY("cuMemAllocAsync", take_async, give_async),
    WAY("cuMemAllocAsync_ptsz", take_async_ptsz, give_async_ptsz),
    WAY("cuMemAllocFromPoolAsync", take_from_pool, give_async),
    WAY("cuMemAllocFromPoolAsync_ptsz", take_from_pool_ptsz, give_async_ptsz),
    WAY("cuMemPoolCreate", take_pool, give_pool),
    WAY("cuMemMap", take_physical, give_physical),
    WAY("cuMemCreate", take_handle, give_handle),
    WAY("cuArrayCreate_v2", take_array, give_array),
    WAY("cuArray3DCreate_v2", take_array_3d, give_array),
    WAY("cuMipmappedArrayCreate", take_mipmap, give_mipmap),
    WAY("cuGraphAddMemAllocNode", take_graph, give_graph),
    WAY("cuGraphAddNode", take_graph_v1, give_graph),
    WAY("cuGraphAddNode_v2", take_graph_v2, give_graph),
    WAY("cuGraphAddNode_v3", take_graph_v3, give_graph),
    WAY("child-graph", take_child_graph, give_graph),
    WAY("cuGraphUpload", take_uploaded_graph, give_graph),
    WAY("captured", take_captured, give_graph),
    WAY("cuGraphLaunch_ptsz", take_graph_per_thread, give_graph),
    WAY("cuGraphInstantiate", take_graph_with_log, give_graph),
    WAY("cuGraphInstantiate_v2", take_graph_with_log_v2, give_graph),
    WAY("cuGraphInstantiateWithParams", take_graph_with_parameters, give_graph),
    WAY("cuGraphInstantiateWithParams_ptsz", take_graph_with_parameters_ptsz, give_graph),
    WAY("cuGraphUpload_ptsz", take_uploaded_graph_ptsz, give_graph),
    WAY("cuMemRetainAllocationHandle", take_retained, give_handle),
    // These keep what they took, or cannot be used by several threads at once.
    WAY("cuDeviceSetMemPool", take_from_set_pool, give_async),
    WAY("cuMemExportToShareableHandle", take_with_descriptor, give_descriptor),
    WAY("cuMemGetHandleForAddressRange", take_with_dma_buf, give_descriptor),
    WAY("cuStreamCreate", take_stream, give_stream),
    WAY("cuStreamCreateWithPriority", take_stream_with_priority, give_stream),
    WAY("cuLibraryLoadFromFile", take_library_file, give_library),
    WAY("cuCtxCreate", take_context_v1, give_context),
    WAY("cuCtxCreate_v2", take_context_v2, give_context),
    WAY("cuCtxCreate_v3", take_context_v3, give_context),
    WAY("cuCtxCreate_v4", take_context_v4, give_context),
    WAY("cuGreenCtxCreate", take_green, give_green),
    WAY("cuCtxSetLimit", take_stack, give_stack),
    WAY("cuModuleLoad", take_module_file, give_module),
    WAY("cuModuleLoadData", take_module, give_module),
    WAY("cuModuleLoadDataEx", take_module_ex, give_module),
    WAY("cuModuleLoadFatBinary", take_module_fat, give_module),
    WAY("cuLibraryLoadData", take_library, give_library),
    OLD_WAY("cuMemAlloc", take_plain_old, give_plain_old),
    OLD_WAY("cuMemAllocPitch", take_pitch_old, give_plain_old),
    OLD_WAY("cuArrayCreate", take_array_old, give_array),
    OLD_WAY("cuArray3DCreate", take_array_3d_old, give_array),
};

enum { WAYS = sizeof ways / sizeof *ways, WAYS_WITHOUT_GRAPHS = 13, WAYS_FOR_THREADS = 27 };

static inline const struct way *way_named(const char *name)
{
    for (size_t i = 0; i < WAYS; i++) {
        if (strcmp(ways[i].name, name) == 0)
            return &ways[i];
    }
    fail(name, "no such way to take memory");
    return NULL;
}

// Begins to use the device; what of that fails is returned.
static int start(bool old)
{
    int result = cu.cuInit(0);
    if (!result && old) {
        result = cu.cuCtxCreate(&main_context, 0, device_number);
    } else if (!result) {
        result = cu.cuDevicePrimaryCtxRetain(&main_context, device_number);
        if (!result)
            result = cu.cuCtxSetCurrent(main_context);
        if (!result)
            result = make_own_pool();
    }
    return result;
}

#endif
