// Takes device memory in one way until the driver refuses it, gives all back, and does it again.
//
//     fill WAY STEP_BYTES MOST_BYTES
#include "common.h"

struct block { unsigned long long at; void *thing; };

struct way {
    const char *name;
    CUresult (*take)(unsigned long long step, struct block *block);
    CUresult (*give)(struct block *block, unsigned long long step);
    // What one step asks for, where it is not the step.
    unsigned long long (*bytes)(unsigned long long step);
};

static CUstream stream;
static CUmemoryPool pool;

static CUresult take_linear(unsigned long long step, struct block *b) { return cuMemAlloc((CUdeviceptr *)&b->at, step); }
static CUresult give_linear(struct block *b, unsigned long long step) { return cuMemFree(b->at); }

static CUresult take_pitch(unsigned long long step, struct block *b) {
    size_t pitch;
    return cuMemAllocPitch((CUdeviceptr *)&b->at, &pitch, 8192, step / 8192, 16);
}

static CUresult take_managed(unsigned long long step, struct block *b) {
    return cuMemAllocManaged((CUdeviceptr *)&b->at, step, CU_MEM_ATTACH_GLOBAL);
}

static const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

static CUresult take_mapped(unsigned long long step, struct block *b) {
    CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    CUmemAccessDesc access = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUresult result = cuMemCreate(&handle, step, &what, 0);
    if (result) return result;
    NEED(cuMemAddressReserve((CUdeviceptr *)&b->at, step, 0, 0, 0));
    NEED(cuMemMap(b->at, step, 0, handle, 0));
    NEED(cuMemSetAccess(b->at, step, &access, 1));
    return cuMemRelease(handle);
}

static CUresult give_mapped(struct block *b, unsigned long long step) {
    CUresult result = cuMemUnmap(b->at, step);
    return result ? result : cuMemAddressFree(b->at, step);
}

static CUresult take_async(unsigned long long step, struct block *b) { return cuMemAllocAsync((CUdeviceptr *)&b->at, step, stream); }
static CUresult give_async(struct block *b, unsigned long long step) { return cuMemFreeAsync(b->at, stream); }

static CUresult take_pool(unsigned long long step, struct block *b) {
    CUmemPoolProps what = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    if (!pool) NEED(cuMemPoolCreate(&pool, &what));
    return cuMemAllocFromPoolAsync((CUdeviceptr *)&b->at, step, pool, stream);
}

static CUresult take_array(unsigned long long step, struct block *b) {
    CUDA_ARRAY_DESCRIPTOR what = {.Width = 2048, .Height = step / 8192, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    return cuArrayCreate((CUarray *)&b->thing, &what);
}

static CUresult take_array_3d(unsigned long long step, struct block *b) {
    CUDA_ARRAY3D_DESCRIPTOR what = {.Width = 128, .Height = 128, .Depth = step / 65536, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    return cuArray3DCreate((CUarray *)&b->thing, &what);
}

static CUresult give_array(struct block *b, unsigned long long step) { return cuArrayDestroy(b->thing); }

// Three quarters of the step, and its levels below.
static CUresult take_mipmap(unsigned long long step, struct block *b) {
    CUDA_ARRAY3D_DESCRIPTOR what = {.Width = 1536, .Height = step / 8192, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    return cuMipmappedArrayCreate((CUmipmappedArray *)&b->thing, &what, 6);
}

static CUresult give_mipmap(struct block *b, unsigned long long step) { return cuMipmappedArrayDestroy(b->thing); }

// Four nodes a graph: the memory of graphs grows by 32 MiB.
enum { NODES = 4 };
static unsigned long long of_graph(unsigned long long step) { return NODES * step; }

static CUresult launched(CUgraph graph, struct block *b) {
    CUgraphExec exec = NULL;
    CUresult result = cuGraphInstantiate(&exec, graph, 0);
    if (!result) result = cuGraphLaunch(exec, stream);
    if (!result) result = cuStreamSynchronize(stream);
    if (exec) cuGraphExecDestroy(exec);
    NEED(cuGraphDestroy(graph));
    return result;
}

static CUresult take_many(unsigned long long step, struct block *b, int nodes) {
    CUgraph graph;
    CUgraphNode node;
    CUdeviceptr *at = b->thing = calloc(NODES, sizeof *at);
    NEED(cuGraphCreate(&graph, 0));
    for (int i = 0; i < nodes; i++) {
        CUDA_MEM_ALLOC_NODE_PARAMS take = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here}, .bytesize = step};
        CUresult result = cuGraphAddMemAllocNode(&node, graph, i ? &node : NULL, i > 0, &take);
        if (result) { cuGraphDestroy(graph); return result; }
        at[i] = take.dptr;
    }
    return launched(graph, b);
}

static CUresult take_nodes(unsigned long long step, struct block *b) { return take_many(step, b, NODES); }
static CUresult take_node(unsigned long long step, struct block *b) { return take_many(step, b, 1); }

static CUresult take_captured(unsigned long long step, struct block *b) {
    CUgraph graph;
    CUdeviceptr *at = b->thing = calloc(NODES, sizeof *at);
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < NODES && !result; i++) result = cuMemAllocAsync(&at[i], step, stream);
    CUresult ended = cuStreamEndCapture(stream, &graph);
    return result ? result : ended ? ended : launched(graph, b);
}

static CUresult give_nodes(struct block *b, unsigned long long step) {
    CUdeviceptr *at = b->thing;
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < NODES && at[i]; i++) result = result ? result : cuMemFree(at[i]);
    return result;
}

static unsigned long long of_context(unsigned long long step) { return 518 * MIB; }

static CUresult take_context(unsigned long long step, struct block *b) {
#if CUDA_VERSION >= 13000
    CUresult result = cuCtxCreate((CUcontext *)&b->thing, NULL, 0, 0);
#else
    CUresult result = cuCtxCreate((CUcontext *)&b->thing, 0, 0);
#endif
    cuCtxSetCurrent(own_context);
    return result;
}

static CUresult give_context(struct block *b, unsigned long long step) { return cuCtxDestroy(b->thing); }

enum { FRAME = 128 };
static unsigned long long of_stack(unsigned long long step) { return FRAME * resident_threads(); }

static CUresult take_stack(unsigned long long step, struct block *b) {
    size_t size;
    NEED(cuCtxGetLimit(&size, CU_LIMIT_STACK_SIZE));
    b->at = size;
    return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, size + FRAME);
}

static CUresult give_stack(struct block *b, unsigned long long step) { return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, b->at); }

static const struct way ways[] = {
    {"cuMemAlloc", take_linear, give_linear},
    {"cuMemAllocPitch", take_pitch, give_linear},
    {"cuMemCreate", take_mapped, give_mapped},
    {"cuMemAllocManaged", take_managed, give_linear},
    {"cuMemAllocAsync", take_async, give_async},
    {"cuMemAllocFromPoolAsync", take_pool, give_async},
    {"cuArrayCreate", take_array, give_array},
    {"cuArray3DCreate", take_array_3d, give_array},
    {"cuMipmappedArrayCreate", take_mipmap, give_mipmap},
    {"graph memory nodes", take_nodes, give_nodes, of_graph},
    {"graph memory node, one a graph", take_node, give_nodes},
    {"captured cuMemAllocAsync", take_captured, give_nodes, of_graph},
    {"cuCtxCreate", take_context, give_context, of_context},
    {"cuCtxSetLimit(STACK_SIZE)", take_stack, give_stack, of_stack},
};

int main(int words, char **word) {
    if (words != 4) return 2;
    const struct way *way = ways;
    while (strcmp(way->name, word[1])) if (++way == ways + sizeof ways / sizeof *ways) return 2;
    unsigned long long step = strtoull(word[2], NULL, 10), most = strtoull(word[3], NULL, 10);
    begin();
    CUfunction nothing = plain("nothing");
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(launch(nothing, 0, 0, stream));
    NEED(cuStreamSynchronize(stream));
    phase("context");
    unsigned long long each = way->bytes ? way->bytes(step) : step;
    struct block *blocks = calloc(most / each + 2, sizeof *blocks);
    for (int round = 1; round <= 2; round++) {
        size_t count = 0, available = 0, total = 0;
        CUresult result = CUDA_SUCCESS, given = CUDA_SUCCESS;
        double start = now_ns();
        while (count * each < most && !(result = way->take(step, &blocks[count]))) count++;
        field("seconds", "%.3f", (now_ns() - start) / 1e9);
        field("got", "%llu", count * each);
        field("code", "%d", result);
        // Refused, and nothing else: what needs no memory goes on.
        result = launch(nothing, 0, 0, stream);
        field("kernel", "%d", result ? result : cuStreamSynchronize(stream));
        cuMemGetInfo(&available, &total);
        field("free", "%zu", available);
        field("total", "%zu", total);
        phase("full %d", round);
        while (count > 0) {
            result = way->give(&blocks[--count], step);
            given = given ? given : result;
        }
        cuStreamSynchronize(stream);
        cuDeviceGraphMemTrim(0);
        field("given", "%d", given);
        phase("empty %d", round);
    }
    return 0;
}
