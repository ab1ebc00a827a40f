// Launches kernels of one length from several threads on each of some GPUs, and says what share of the time each GPU worked
// for them, in the order in which they were named.
//
//     several NANOSECONDS MILLISECONDS THREADS GPU...
//
// Without threads it launches on all of them at once, by cuLaunchCooperativeKernelMultiDevice.
// Its work in the first moments is not counted: until then a job that was idle has credit.

#include "pace.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MOST = 64 };

static const double WARM = 0.08, LONGEST_BATCH = 0.02;

static unsigned long length;
static double seconds;

struct worker {
    pthread_t thread;
    int gpu;
    double worked;
};

static void *work(void *own)
{
    struct worker *self = own;
    use_gpu(self->gpu);
    void *kernel = kernel_of_length(length), *stream = new_stream();
    double start = now(), batch = 0;
    while (now() < start + WARM + seconds) {
        int counts = now() >= start + WARM;
        must("cuLaunchKernel", launch(kernel, stream));
        self->worked += counts ? length * 1e-9 : 0;
        batch += length * 1e-9;
        if (batch > LONGEST_BATCH) {
            must("cuStreamSynchronize", cu.cuStreamSynchronize(stream));
            batch = 0;
        }
    }
    must("cuStreamSynchronize", cu.cuStreamSynchronize(stream));
    return NULL;
}

// All by one call; each of them works as long.
static void together(struct worker *workers, int gpus)
{
    struct launch_there there[MOST];
    void *contexts[MOST];
    for (int at = 0; at < gpus; at++) {
        contexts[at] = use_gpu(workers[at].gpu);
        there[at] = (struct launch_there){kernel_of_length(length), {1, 1, 1}, {32, 1, 1}, 0, new_stream(), NULL};
    }
    double start = now(), batch = 0;
    while (now() < start + WARM + seconds) {
        int counts = now() >= start + WARM;
        must("cuLaunchCooperativeKernelMultiDevice",
             cu.cuLaunchCooperativeKernelMultiDevice(there, (unsigned)gpus, 0));
        for (int at = 0; counts && at < gpus; at++)
            workers[at].worked += length * 1e-9;
        batch += length * 1e-9;
        for (int at = 0; batch > LONGEST_BATCH && at < gpus; at++) {
            must("cuCtxSetCurrent", cu.cuCtxSetCurrent(contexts[at]));
            must("cuCtxSynchronize", cu.cuCtxSynchronize());
        }
        batch = batch > LONGEST_BATCH ? 0 : batch;
    }
}

int main(int count, char **word)
{
    static struct worker workers[MOST];
    if (count < 5)
        return 2;
    length = strtoul(word[1], NULL, 10);
    seconds = strtod(word[2], NULL) / 1000;
    int threads = atoi(word[3]), gpus = count - 4;
    if (threads * gpus > MOST)
        fail(word[3], "too many threads");
    reach("cuGetProcAddress_v2");
    must("cuInit", cu.cuInit(0));
    double start = now();
    for (int at = 0; threads == 0 && at < gpus; at++)
        workers[at].gpu = atoi(word[4 + at]);
    if (threads == 0)
        together(workers, gpus);
    for (int at = 0; at < threads * gpus; at++) {
        workers[at].gpu = atoi(word[4 + at / threads]);
        if (pthread_create(&workers[at].thread, NULL, work, &workers[at]) != 0)
            fail("pthread_create", NULL);
    }
    for (int at = 0; at < threads * gpus; at++)
        pthread_join(workers[at].thread, NULL);
    double took = now() - start - WARM;
    printf("several:");
    for (int gpu = 0; gpu < gpus; gpu++) {
        double worked = threads == 0 ? workers[gpu].worked : 0;
        for (int at = 0; at < threads; at++)
            worked += workers[gpu * threads + at].worked;
        printf(" %.0f", worked / took * 10000);
    }
    printf(" of 10000\n");
    return 0;
}
