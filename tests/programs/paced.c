// Launches kernels of one length for some time, and says what share of it the GPU worked for them.
//
//     paced NANOSECONDS MILLISECONDS WAY [STREAMS]
//
// WAY: async, sync (waits for each), ex, cooperative, graph (of ten kernels), captured (the same, captured), idle (one
// kernel, then nine times its length of nothing), mixed (kernels of this length and of a tenth of it).

#include "calls.h"

#include <stdint.h>
#include <time.h>

enum { BATCH = 500, NODES = 10, MOST_STREAMS = 16 };

static void *module, *kernel, *small, *graph;
static void *streams[MOST_STREAMS];
static int count = 1;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void must(const char *what, int result)
{
    if (result == 0)
        return;
    fprintf(stderr, "%s: %d\n", what, result);
    exit(1);
}

static void launch(void *what, void *stream)
{
    must("cuLaunchKernel", cu.cuLaunchKernel(what, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

static void make_graph(int captured)
{
    void *made = NULL;
    if (captured) {
        must("cuStreamBeginCapture", cu.cuStreamBeginCapture_v2(streams[0], 0));
        for (int at = 0; at < NODES; at++)
            launch(kernel, streams[0]);
        must("cuStreamEndCapture", cu.cuStreamEndCapture(streams[0], &made));
    } else {
        struct kernel_node node = {.function = kernel, .grid = {1, 1, 1}, .block = {32, 1, 1}};
        void *last = NULL;
        must("cuGraphCreate", cu.cuGraphCreate(&made, 0));
        for (int at = 0; at < NODES; at++) {
            void *next = NULL;
            must("cuGraphAddKernelNode", cu.cuGraphAddKernelNode_v2(&next, made, &last, last != NULL, &node));
            last = next;
        }
    }
    must("cuGraphInstantiate", cu.cuGraphInstantiateWithFlags(&graph, made, 0));
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    unsigned long length = strtoul(argv[1], NULL, 10);
    double seconds = strtod(argv[2], NULL) / 1000;
    const char *way = argv[3];
    if (argc > 4)
        count = atoi(argv[4]);
    reach("cuGetProcAddress_v2");
    void *context = NULL;
    must("cuInit", cu.cuInit(0));
    must("cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(&context, 0));
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
    char text[256];
    snprintf(text, sizeof text, "kernel step %lu\nkernel small %lu\n", length, length / 10);
    must("cuModuleLoadData", cu.cuModuleLoadData(&module, text));
    must("cuModuleGetFunction", cu.cuModuleGetFunction(&kernel, module, "step"));
    must("cuModuleGetFunction", cu.cuModuleGetFunction(&small, module, "small"));
    for (int at = 0; at < count; at++)
        must("cuStreamCreate", cu.cuStreamCreate(&streams[at], 1));
    int is_captured = !strcmp(way, "captured");
    if (is_captured || !strcmp(way, "graph"))
        make_graph(is_captured);
    struct launch how = {.grid = {1, 1, 1}, .block = {32, 1, 1}};

    double start = now(), end = start + seconds, worked = 0;
    unsigned long launched = 0;
    while (now() < end) {
        void *stream = streams[launched % count];
        how.stream = stream;
        double kernels = 1;
        if (graph) {
            must("cuGraphLaunch", cu.cuGraphLaunch(graph, stream));
            kernels = NODES;
        } else if (!strcmp(way, "ex")) {
            must("cuLaunchKernelEx", cu.cuLaunchKernelEx(&how, kernel, NULL, NULL));
        } else if (!strcmp(way, "cooperative")) {
            must("cuLaunchCooperativeKernel",
                 cu.cuLaunchCooperativeKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL));
        } else if (!strcmp(way, "mixed") && launched % 3) {
            launch(small, stream);
            kernels = 0.1;
        } else {
            launch(kernel, stream);
        }
        launched++;
        worked += kernels * length * 1e-9;
        if (!strcmp(way, "sync"))
            must("cuStreamSynchronize", cu.cuStreamSynchronize(stream));
        if (!strcmp(way, "idle")) {
            must("cuStreamSynchronize", cu.cuStreamSynchronize(stream));
            struct timespec rest = {0, (long)(length * 9)};
            nanosleep(&rest, NULL);
        }
        if (launched % BATCH == 0)
            must("cuCtxSynchronize", cu.cuCtxSynchronize());
    }
    must("cuCtxSynchronize", cu.cuCtxSynchronize());
    double took = now() - start;
    printf("paced: launched %lu in %.0f ms, share %.0f of 10000\n", launched, took * 1000, worked / took * 10000);
    return 0;
}
