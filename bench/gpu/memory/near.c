// Memory that no allocation names, with little left below the limit: a kernel with a large frame, the device's heap, a
// module with a large global variable. Each is refused, then has its room after something was freed.
//
//     near frame|heap|module LIMIT_BYTES
//     near nodes 0                          what graphs with several memory nodes take, without a limit
#include "common.h"

static CUdeviceptr held[4096];
static int count;

// Takes steps of 8 MiB until `left` bytes would be left below the limit by what cuMemGetInfo of an unlimited process, or
// the limit itself, says: a context's 518 MiB and the steps.
static void fill_but(unsigned long long limit, unsigned long long left) {
    while ((count + 1) * 8 * MIB + 530 * MIB + left <= limit && !cuMemAlloc(&held[count], 8 * MIB)) count++;
}

static void empty(void) {
    while (count > 0) cuMemFree(held[--count]);
}

static CUresult run(CUfunction function, unsigned long long first) {
    CUresult result = launch(function, first, 0, 0);
    return result ? result : cuCtxSynchronize();
}

static CUfunction named(const char *text, const char *name, CUmodule *module) {
    CUfunction function;
    NEED(cuModuleLoadData(module, text));
    NEED(cuModuleGetFunction(&function, *module, name));
    return function;
}

// Random graphs with up to eight nodes of up to 100 MiB: what each takes, over its sum and over the sum of whole steps.
static void nodes(void) {
    CUstream stream;
    int above_sum = 0, above_steps = 0, below_steps = 0;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int number = 0; number < 200; number++) {
        CUgraph graph;
        CUgraphExec exec;
        CUgraphNode node = NULL;
        CUdeviceptr at[8];
        unsigned long long sum = 0, steps = 0;
        cuuint64_t before = 0, after = 0;
        int count = 1 + (int)(random_unit() * 8), side_by_side = number % 2;
        NEED(cuGraphCreate(&graph, 0));
        for (int i = 0; i < count; i++) {
            unsigned long long bytes = random_size(KIB, 100 * MIB);
            CUDA_MEM_ALLOC_NODE_PARAMS take = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}}, .bytesize = bytes};
            CUgraphNode last = node;
            NEED(cuGraphAddMemAllocNode(&node, graph, side_by_side ? NULL : &last, !side_by_side && i > 0, &take));
            at[i] = take.dptr;
            sum += bytes;
            steps += (bytes + 32 * MIB - 1) / (32 * MIB) * 32 * MIB;
        }
        NEED(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &before));
        NEED(cuGraphInstantiate(&exec, graph, 0));
        NEED(cuGraphLaunch(exec, stream));
        NEED(cuStreamSynchronize(stream));
        NEED(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &after));
        unsigned long long took = after - before, least = (sum + 32 * MIB - 1) / (32 * MIB) * 32 * MIB;
        above_sum += took > least;
        above_steps += took > steps;
        below_steps += took < steps;
        if (took > least && above_sum < 6) {
            field("nodes", "%d", count);
            field("side_by_side", "%d", side_by_side);
            field("sum_mib", "%.2f", sum / 1048576.0);
            field("steps_mib", "%llu", steps / MIB);
            field("took_mib", "%llu", took / MIB);
            phase("more than the sum in whole steps");
        }
        for (int i = 0; i < count; i++) NEED(cuMemFree(at[i]));
        NEED(cuGraphExecDestroy(exec));
        NEED(cuGraphDestroy(graph));
        NEED(cuDeviceGraphMemTrim(0));
    }
    field("graphs", "200");
    field("above_ceil32_of_sum", "%d", above_sum);
    field("above_sum_of_ceil32", "%d", above_steps);
    field("below_sum_of_ceil32", "%d", below_steps);
    phase("all");
}

int main(int words, char **word) {
    if (words != 3) return 2;
    unsigned long long limit = strtoull(word[2], NULL, 10);
    CUmodule module;
    CUresult result;
    begin();
    CUfunction nothing = plain("nothing");
    NEED(run(nothing, 0));
    phase("context");
    if (!strcmp(word[1], "frame")) {
        // 64 KiB for each resident thread are more than the whole limit, 8 KiB half of it.
        CUfunction large = named(ptx_frame(64 * KIB), "frame", &module), middle = named(ptx_frame(8 * KIB), "frame", &module);
        result = run(large, 0);
        field("frame_mib", "%llu", 64 * KIB * resident_threads() / MIB);
        field("code", "%d", result);
        field("then", "%d", run(nothing, 0));
        phase("64 KiB");
        fill_but(limit, GIB);
        result = run(middle, 0);
        field("frame_mib", "%llu", 8 * KIB * resident_threads() / MIB);
        field("code", "%d", result);
        field("then", "%d", run(nothing, 0));
        phase("8 KiB, 1 GiB left");
        empty();
        result = run(middle, 0);
        field("code", "%d", result);
        phase("8 KiB, all left");
    } else if (!strcmp(word[1], "heap")) {
        CUfunction heap = named(ptx_heap, "heap", &module);
        field("code", "%d", cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, limit));
        field("then", "%d", run(nothing, 0));
        phase("as much as the limit");
        field("code", "%d", cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, limit / 2));
        field("then", "%d", run(heap, 100));
        phase("half of the limit");
        fill_but(limit, 0);
        field("got", "%llu", count * 8 * MIB);
        phase("full");
    } else if (!strcmp(word[1], "nodes")) {
        nodes();
    } else {
        const char *text = ptx_global(512 * MIB);
        fill_but(limit, 256 * MIB);
        result = cuModuleLoadData(&module, text);
        field("code", "%d", result);
        field("then", "%d", run(nothing, 0));
        phase("256 MiB left");
        for (int i = 0; i < 40 && count > 0; i++) cuMemFree(held[--count]);
        field("code", "%d", cuModuleLoadData(&module, text));
        phase("576 MiB left");
    }
    return 0;
}
