// Launches kernels for some time, and loses what it launched them in again and again, with work under way there.
//
//     renewed WHAT NANOSECONDS MILLISECONDS
//
// What it loses: stream, context (one of its own), reset and release (the GPU's own context), fork (nothing, but there is a
// child that launches too, which has no GPU: the driver says so), crowd (nothing, but it has hundreds of streams that wait).
// Says what share of the time the GPU worked for it.

#include "pace.h"

#include <sys/wait.h>

static const double WARM = 0.1, BATCH = 0.005;

static void *context, *stream, *kernel;
static unsigned long length;
static int said_by_child = -1;

static void find_all(void)
{
    kernel = kernel_of_length(length);
    stream = new_stream();
}

static void by_stream(void)
{
    must("cuStreamDestroy", cu.cuStreamDestroy_v2(stream));
    stream = new_stream();
}

static void make_context(void)
{
    must("cuCtxCreate", cu.cuCtxCreate_v2(&context, 0, 0));
    find_all();
}

static void by_context(void)
{
    must("cuCtxDestroy", cu.cuCtxDestroy_v2(context));
    make_context();
}

static void by_reset(void)
{
    must("cuDevicePrimaryCtxReset", cu.cuDevicePrimaryCtxReset_v2(0));
    context = use_gpu(0);
    find_all();
}

static void by_release(void)
{
    must("cuDevicePrimaryCtxRelease", cu.cuDevicePrimaryCtxRelease_v2(0));
    context = use_gpu(0);
    find_all();
}

static void by_fork(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        // It must not outlive a test that fails.
        alarm(30);
        _exit(launch(kernel, stream));
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        fail("fork", "no child, or one that hangs");
    if (said_by_child >= 0 && said_by_child != WEXITSTATUS(status))
        fail("fork", "children hear different things");
    said_by_child = WEXITSTATUS(status);
}

static void nothing(void)
{
}

// Streams that wait as long as this process lives, each with a kernel behind.
static void make_crowd(void)
{
    enum { CROWD = 200 };
    void *word = NULL, *tiny = kernel_of_length(1000);
    must("cuMemHostAlloc", cu.cuMemHostAlloc(&word, sizeof(uint32_t), 0));
    for (int at = 0; at < CROWD; at++) {
        must("cuLaunchKernel", launch(tiny, stream));
        if (at % 10 == 0)
            must("cuStreamSynchronize", cu.cuStreamSynchronize(stream));
    }
    for (int at = 0; at < CROWD; at++) {
        void *waits = new_stream();
        must("cuStreamWaitValue32", cu.cuStreamWaitValue32_v2(waits, (device_pointer)(uintptr_t)word, 1, 0));
        must("cuLaunchKernel", launch(tiny, waits));
    }
    stream = new_stream();
}

static const struct {
    const char *name;
    void (*renew)(void);
} ways[] = {
    {"stream", by_stream}, {"context", by_context}, {"reset", by_reset}, {"release", by_release}, {"fork", by_fork},
    {"crowd", nothing},
};

// How long the GPU works for what is launched in some time.
static double work(double seconds, void (*renew)(void))
{
    double end = now() + seconds, worked = 0, batch = 0;
    while (now() < end) {
        must("cuLaunchKernel", launch(kernel, stream));
        worked += length * 1e-9;
        batch += length * 1e-9;
        if (batch >= BATCH) {
            renew();
            batch = 0;
        }
    }
    return worked;
}

int main(int count, char **word)
{
    if (count < 4)
        return 2;
    void (*renew)(void) = NULL;
    for (size_t at = 0; at < sizeof ways / sizeof *ways; at++)
        renew = strcmp(word[1], ways[at].name) == 0 ? ways[at].renew : renew;
    if (!renew)
        fail(word[1], "no such way");
    length = strtoul(word[2], NULL, 10);
    reach("cuGetProcAddress_v2");
    must("cuInit", cu.cuInit(0));
    if (renew == by_context) {
        make_context();
    } else {
        context = use_gpu(0);
        find_all();
    }
    if (renew == nothing)
        make_crowd();
    work(WARM, renew);
    double start = now(), worked = work(strtod(word[3], NULL) / 1000, renew), took = now() - start;
    printf("renewed: share %.0f of 10000, child %d\n", worked / took * 10000, said_by_child);
    fflush(stdout);
    // Some of it may wait for ever.
    _exit(0);
}
