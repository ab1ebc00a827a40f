// Gives the GPU work of one length for some time, and says what share of it the GPU worked for that.
//
//     paced NANOSECONDS MILLISECONDS WAY [STREAMS]
//
// The function that launches: async (cuLaunchKernel), ex, cooperative, multi_device, each also with _ptsz where there is
// one; launch, grid, grid_async; legacy and own (cuLaunchKernel in the default stream, the context's or the thread's);
// graph (of ten kernels), graph_ptsz, captured (the same, captured); fill and copy (of the GPU's memory, as much as the fake
// driver's does in that time).
// How it goes on, with cuLaunchKernel: sync (waits for each), idle (one kernel, then nine times its length of nothing),
// mixed (kernels of this length and of a tenth of it), last (in the last of its streams, once each had one).
//
// REACH says how it gets at the driver. It launches nothing while there is a file of the name in RESTS. Its work in the first
// moments is not counted: until then a job that was idle has credit.

#include "pace.h"

enum { BATCH = 500, NODES = 10, MOST_STREAMS = 512 };

static const double WARM = 0.08, LONGEST_BATCH = 0.05;

static void *kernel, *small, *graph;
static void *streams[MOST_STREAMS];
static int count = 1;
static unsigned long length;

static int by_kernel_ptsz(void *what, void *stream)
{
    return cu.cuLaunchKernel_ptsz(what, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

static int by_legacy(void *what, void *stream)
{
    (void)stream;
    return launch(what, NULL);
}

static int by_own(void *what, void *stream)
{
    (void)stream;
    return by_kernel_ptsz(what, NULL);
}

static int by_ex(void *what, void *stream)
{
    struct launch how = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .stream = stream};
    return cu.cuLaunchKernelEx(&how, what, NULL, NULL);
}

static int by_ex_ptsz(void *what, void *stream)
{
    struct launch how = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .stream = stream};
    return cu.cuLaunchKernelEx_ptsz(&how, what, NULL, NULL);
}

static int by_cooperative(void *what, void *stream)
{
    return cu.cuLaunchCooperativeKernel(what, 1, 1, 1, 32, 1, 1, 0, stream, NULL);
}

static int by_cooperative_ptsz(void *what, void *stream)
{
    return cu.cuLaunchCooperativeKernel_ptsz(what, 1, 1, 1, 32, 1, 1, 0, stream, NULL);
}

static int by_multi_device(void *what, void *stream)
{
    struct launch_there there = {what, {1, 1, 1}, {32, 1, 1}, 0, stream, NULL};
    return cu.cuLaunchCooperativeKernelMultiDevice(&there, 1, 0);
}

static int by_launch(void *what, void *stream)
{
    (void)stream;
    return cu.cuLaunch(what);
}

static int by_grid(void *what, void *stream)
{
    (void)stream;
    return cu.cuLaunchGrid(what, 1, 1);
}

static int by_grid_async(void *what, void *stream)
{
    return cu.cuLaunchGridAsync(what, 1, 1, stream);
}

static int by_graph(void *what, void *stream)
{
    (void)what;
    return cu.cuGraphLaunch(graph, stream);
}

static int by_graph_ptsz(void *what, void *stream)
{
    (void)what;
    return cu.cuGraphLaunch_ptsz(graph, stream);
}

// The GPU copies and fills so many bytes in the time of a kernel.
static size_t bytes;
static device_pointer to, from;

static int by_fill(void *what, void *stream)
{
    (void)what;
    return cu.cuMemsetD8Async(to, 1, bytes, stream);
}

static int by_copy(void *what, void *stream)
{
    (void)what;
    return cu.cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}

static const struct way {
    const char *name;
    int (*launch)(void *what, void *stream);
} ways[] = {
    {"async", launch},
    {"sync", launch},
    {"idle", launch},
    {"mixed", launch},
    {"last", launch},
    {"ptsz", by_kernel_ptsz},
    {"legacy", by_legacy},
    {"own", by_own},
    {"ex", by_ex},
    {"ex_ptsz", by_ex_ptsz},
    {"cooperative", by_cooperative},
    {"cooperative_ptsz", by_cooperative_ptsz},
    {"multi_device", by_multi_device},
    {"launch", by_launch},
    {"grid", by_grid},
    {"grid_async", by_grid_async},
    {"graph", by_graph},
    {"graph_ptsz", by_graph_ptsz},
    {"captured", by_graph},
    {"fill", by_fill},
    {"copy", by_copy},
};

static const struct way *way;

static int is(const char *name)
{
    return strcmp(way->name, name) == 0;
}

static void make_graph(int captured)
{
    void *made = NULL;
    if (captured) {
        must("cuStreamBeginCapture", cu.cuStreamBeginCapture_v2(streams[0], 0));
        for (int at = 0; at < NODES; at++)
            must("cuLaunchKernel", launch(kernel, streams[0]));
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

// Launches for so long, and returns how long the GPU worked for that.
static double work(double seconds, unsigned long *launched)
{
    double end = now() + seconds, worked = 0, batch = 0;
    const char *rests = getenv("RESTS");
    int in_batch = 0;
    while (now() < end) {
        while (rests && access(rests, F_OK) == 0)
            rest(0.001);
        int is_last = is("last") && *launched >= (unsigned long)count;
        void *stream = streams[is_last ? count - 1 : (int)(*launched % count)];
        int is_small = is("mixed") && *launched % 3;
        must(way->name, way->launch(is_small ? small : kernel, stream));
        double took = length * 1e-9 * (graph ? NODES : is_small ? 0.1 : 1);
        ++*launched;
        worked += took;
        batch += took;
        if (is("sync") || is("idle"))
            must("cuStreamSynchronize", cu.cuStreamSynchronize(stream));
        if (is("idle"))
            rest(length * 9e-9);
        if (++in_batch == BATCH || (in_batch > 1 && batch > LONGEST_BATCH)) {
            must("cuCtxSynchronize", cu.cuCtxSynchronize());
            in_batch = 0;
            batch = 0;
        }
    }
    must("cuCtxSynchronize", cu.cuCtxSynchronize());
    return worked;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    length = strtoul(argv[1], NULL, 10);
    double seconds = strtod(argv[2], NULL) / 1000;
    for (size_t at = 0; at < sizeof ways / sizeof *ways; at++)
        way = strcmp(argv[3], ways[at].name) == 0 ? &ways[at] : way;
    if (!way)
        fail(argv[3], "no such way");
    if (argc > 4)
        count = atoi(argv[4]);
    reach(getenv("REACH") ? getenv("REACH") : "cuGetProcAddress_v2");
    must("cuInit", cu.cuInit(0));
    use_gpu(0);
    kernel = kernel_of_length(length);
    small = kernel_of_length(length / 10);
    for (int at = 0; at < count; at++)
        streams[at] = new_stream();
    enum { BYTES_PER_MICROSECOND = 8192 };
    bytes = length / 1000 * BYTES_PER_MICROSECOND;
    if (is("fill") || is("copy")) {
        must("cuMemAlloc", cu.cuMemAlloc_v2(&to, bytes));
        must("cuMemAlloc", cu.cuMemAlloc_v2(&from, bytes));
    }
    if (is("captured") || is("graph") || is("graph_ptsz"))
        make_graph(is("captured"));

    unsigned long launched = 0;
    work(WARM, &launched);
    double start = now(), worked = work(seconds, &launched), took = now() - start;
    printf("paced: launched %lu in %.0f ms, share %.0f of 10000\n", launched, took * 1000, worked / took * 10000);
    return 0;
}
