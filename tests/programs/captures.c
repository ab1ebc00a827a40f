// Captures streams while this process is held to a share, and says what came of it: what it says is the same with a limit and
// without.
//
//     captures MODE        0 (global), 1 (of this thread), 2 (relaxed)

#include "pace.h"

#include <pthread.h>
#include <stdatomic.h>

enum { LENGTH = 100000, SHORT = 5000, WARM = 100, LAUNCHES = 200, BEFORE = 8 };

static void *one, *two, *three, *blocking, *kernel, *short_kernel, *context;
static unsigned mode;

static void times(int count, void *stream)
{
    for (int at = 0; at < count; at++)
        must("cuLaunchKernel", launch(kernel, stream));
}

static void finish(void)
{
    must("cuCtxSynchronize", cu.cuCtxSynchronize());
}

// In each of the ways to launch, whose graph is its nodes.
static void launches(void *stream)
{
    struct launch how = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .stream = stream};
    times(LAUNCHES / 4, stream);
    for (int at = 0; at < LAUNCHES / 4; at++) {
        must("cuLaunchKernelEx", cu.cuLaunchKernelEx(&how, kernel, NULL, NULL));
        must("cuLaunchKernel_ptsz", cu.cuLaunchKernel_ptsz(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
        must("cuLaunchCooperativeKernel",
             cu.cuLaunchCooperativeKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL));
    }
}

static void begin(void *stream)
{
    must("cuStreamBeginCapture", cu.cuStreamBeginCapture_v2(stream, mode));
}

// The end of a capture, and what is in its graph.
static void *end(const char *what, void *stream)
{
    void *graph = NULL, *nodes[4 * LAUNCHES] = {0};
    size_t count = sizeof nodes / sizeof *nodes, kernels = 0;
    int result = cu.cuStreamEndCapture(stream, &graph);
    if (result == 0)
        result = cu.cuGraphGetNodes(graph, nodes, &count);
    for (size_t at = 0; !result && at < count; at++) {
        unsigned type = 9;
        must("cuGraphNodeGetType", cu.cuGraphNodeGetType(nodes[at], &type));
        kernels += type == 0;
    }
    printf("%s: %d, %zu nodes, %zu kernels\n", what, result, result ? 0 : count, kernels);
    fflush(stdout);
    return graph;
}

// Nothing is under way.
static void alone(void)
{
    begin(one);
    launches(one);
    end("alone", one);
}

// Work of the stream is under way.
static void behind_work(void)
{
    times(BEFORE, one);
    begin(one);
    launches(one);
    end("behind work", one);
    times(BEFORE, one);
    finish();
}

// Into a graph that there is.
static void into_a_graph(void)
{
    void *graph = NULL;
    must("cuGraphCreate", cu.cuGraphCreate(&graph, 0));
    times(BEFORE, one);
    must("cuStreamBeginCaptureToGraph", cu.cuStreamBeginCaptureToGraph(one, graph, NULL, NULL, 0, mode));
    launches(one);
    end("into a graph", one);
    times(BEFORE, one);
    finish();
}

// So is some of a stream that joins later.
static void *joined(void)
{
    void *fork = NULL, *join = NULL;
    must("cuEventCreate", cu.cuEventCreate(&fork, 0));
    must("cuEventCreate", cu.cuEventCreate(&join, 0));
    times(BEFORE / 2, one);
    times(BEFORE / 2, two);
    begin(one);
    times(5, one);
    must("cuEventRecord", cu.cuEventRecord(fork, one));
    must("cuStreamWaitEvent", cu.cuStreamWaitEvent(two, fork, 0));
    launches(two);
    times(5, one);
    must("cuEventRecord", cu.cuEventRecord(join, two));
    must("cuStreamWaitEvent", cu.cuStreamWaitEvent(one, join, 0));
    times(5, one);
    void *graph = end("joined", one);
    times(BEFORE, two);
    finish();
    return graph;
}

static atomic_int over;

// Another thread that wants more than the process may have.
static void *greedy(void *stream)
{
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
    while (!over)
        times(1, stream);
    return NULL;
}

// Two of them, of which each waits for the other's work too.
static pthread_t others[2];

static void start_others(void)
{
    void *streams[] = {two, three};
    over = 0;
    for (int at = 0; at < 2; at++)
        if (pthread_create(&others[at], NULL, greedy, streams[at]) != 0)
            fail("pthread_create", NULL);
}

static void stop_others(void)
{
    over = 1;
    for (int at = 0; at < 2; at++)
        pthread_join(others[at], NULL);
    finish();
}

static void beside(const char *what, void *stream)
{
    start_others();
    times(BEFORE, stream);
    rest(0.02);
    begin(stream);
    for (int at = 0; at < 20; at++) {
        times(10, stream);
        rest(0.002);
    }
    end(what, stream);
    stop_others();
}

// Work of the default stream is under way that the program did not wait for; no call may name that stream while a blocking
// stream captures.
static void beside_the_default_stream(void)
{
    times(BEFORE, NULL);
    beside("beside the default stream", blocking);
}

// Short work of the stream is over, and no call asked for its end: it is known so well that it is not measured.
static void after_short_work(void)
{
    for (int at = 0; at < WARM; at++) {
        must("cuLaunchKernel", launch(short_kernel, one));
        finish();
    }
    must("cuLaunchKernel", launch(short_kernel, one));
    rest(0.002);
    begin(one);
    start_others();
    rest(0.02);
    launches(one);
    end("after short work", one);
    stop_others();
}

int main(int count, char **word)
{
    if (count < 2)
        return 2;
    mode = (unsigned)atoi(word[1]);
    reach("dlsym");
    must("cuInit", cu.cuInit(0));
    context = use_gpu(0);
    kernel = kernel_of_length(LENGTH);
    short_kernel = kernel_of_length(SHORT);
    one = new_stream();
    two = new_stream();
    three = new_stream();
    must("cuStreamCreate", cu.cuStreamCreate(&blocking, 0));
    times(WARM, one);
    times(WARM / 10, two);
    finish();
    alone();
    behind_work();
    into_a_graph();
    void *graph = joined(), *ready = NULL;
    beside("beside others", one);
    beside_the_default_stream();
    after_short_work();

    // What was captured is charged when it runs.
    must("cuGraphInstantiate", cu.cuGraphInstantiateWithFlags(&ready, graph, 0));
    size_t nodes = 0;
    must("cuGraphGetNodes", cu.cuGraphGetNodes(graph, NULL, &nodes));
    double start = 0, worked = 0;
    for (int at = 0; at < 8; at++) {
        if (at == 2)
            start = now();
        must("cuGraphLaunch", cu.cuGraphLaunch(ready, one));
        finish();
        worked += at < 2 ? 0 : nodes * LENGTH * 1e-9;
    }
    printf("share %.0f of 10000\n", worked / (now() - start) * 10000);
    return 0;
}
