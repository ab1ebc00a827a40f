// Programs whose launches wait for each other: none may hang because a launch is held back.
//
//     waits CASE...        some of the cases below; a number is how many rounds the next ones have
//     waits ring FOLDER RANK [DEVICE [ROUNDS KERNELS PAUSE]]
//
// Of a ring there are two, 0 and 1, which tell each other in the folder where their memory is. In each round it launches so
// many kernels before and after it waits for the other, and halfway it does nothing for so many milliseconds. Each says how
// long it took.

#include "pace.h"

#include <errno.h>
#include <pthread.h>

enum { SOME = 20, WORDS = 4096, ROUNDS = 4 };

static const char TEXT[] = "kernel step 100000\nkernel await spins\nkernel set writes\n";

static int rounds = ROUNDS;
static void *one, *two, *step, *await, *set;
// Memory of the host that the GPU writes too.
static volatile uint32_t *words;

static void work(int kernels, void *stream)
{
    for (int at = 0; at < kernels; at++)
        must("cuLaunchKernel", launch(step, stream));
}

static void some_work(void *stream)
{
    work(SOME, stream);
}

static void launch_at(void *kernel, const volatile void *word, void *stream)
{
    uint64_t at = (uint64_t)(uintptr_t)word, value = 1;
    void *arguments[] = {&at, &value};
    must("cuLaunchKernel", cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

static void finish(void)
{
    must("cuCtxSynchronize", cu.cuCtxSynchronize());
}

// A kernel spins until a later launch of the same thread.
static void later_launch(void)
{
    some_work(one);
    launch_at(await, words, one);
    some_work(one);
    some_work(two);
    launch_at(set, words, two);
}

static void wait_for_word(void)
{
    must("cuStreamWaitValue32", cu.cuStreamWaitValue32_v2(one, (device_pointer)(uintptr_t)words, 1, 0));
}

// A stream waits for a word that a later call writes, behind work of its own.
static void wait_value(void)
{
    some_work(one);
    wait_for_word();
    for (int at = 0; at < 3; at++)
        some_work(one);
    some_work(two);
    must("cuStreamWriteValue32", cu.cuStreamWriteValue32_v2(two, (device_pointer)(uintptr_t)words, 1, 0));
}

// The same, and the host writes it, once the thread is through with its launches.
static void wait_for_host(void)
{
    wait_for_word();
    for (int at = 0; at < 3; at++)
        some_work(one);
    words[0] = 1;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void take_lock(void *nothing)
{
    (void)nothing;
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

// The driver's thread needs a lock that the launching thread holds: Python and its global lock.
static void host_callback(void)
{
    pthread_mutex_lock(&lock);
    some_work(one);
    must("cuLaunchHostFunc", cu.cuLaunchHostFunc(one, take_lock, NULL));
    for (int at = 0; at < 3; at++)
        some_work(one);
    pthread_mutex_unlock(&lock);
}

// A kernel that stays, while others come and go, until a launch stops it.
static void persistent(void)
{
    launch_at(await, words, one);
    for (int at = 0; at < 5; at++) {
        some_work(two);
        must("cuStreamSynchronize", cu.cuStreamSynchronize(two));
    }
    launch_at(set, words, two);
}

// As a library of collectives does: kernels of two streams that wait for each other's.
static void both_ways(void)
{
    for (int at = 0; at < ROUNDS; at++) {
        launch_at(await, words + 2 * at, one);
        launch_at(set, words + 2 * at + 1, one);
        some_work(one);
        some_work(two);
        launch_at(set, words + 2 * at, two);
        launch_at(await, words + 2 * at + 1, two);
    }
}

// The same on two GPUs, by one thread.
static void two_gpus(void)
{
    void *contexts[2], *streams[2], *kernels[2][3];
    for (int gpu = 0; gpu < 2; gpu++) {
        contexts[gpu] = use_gpu(gpu);
        streams[gpu] = new_stream();
        kernels[gpu][0] = kernel_of(TEXT, "step");
        kernels[gpu][1] = kernel_of(TEXT, "await");
        kernels[gpu][2] = kernel_of(TEXT, "set");
    }
    for (int at = 0; at < rounds; at++) {
        for (int gpu = 0; gpu < 2; gpu++) {
            must("cuCtxSetCurrent", cu.cuCtxSetCurrent(contexts[gpu]));
            for (int some = 0; some < SOME; some++)
                must("cuLaunchKernel", launch(kernels[gpu][0], streams[gpu]));
            launch_at(kernels[gpu][2], words + 2 * at + gpu, streams[gpu]);
            launch_at(kernels[gpu][1], words + 2 * at + !gpu, streams[gpu]);
        }
    }
    for (int gpu = 1; gpu >= 0; gpu--) {
        must("cuCtxSetCurrent", cu.cuCtxSetCurrent(contexts[gpu]));
        finish();
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"later_launch", later_launch},   {"wait_value", wait_value}, {"wait_for_host", wait_for_host},
    {"host_callback", host_callback}, {"persistent", persistent}, {"both_ways", both_ways},
    {"two_gpus", two_gpus},
};

static void run(const char *name)
{
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        if (strcmp(name, cases[at].name) != 0)
            continue;
        memset((void *)words, 0, WORDS * sizeof *words);
        double start = now();
        cases[at].run();
        finish();
        printf("waits: %s took %.0f ms\n", name, (now() - start) * 1000);
        fflush(stdout);
        return;
    }
    fail(name, "no such case");
}

// Puts a handle where the other one looks, all of it at once.
static void show(const char *folder, int rank, const struct ipc *handle)
{
    char path[256], whole[256];
    snprintf(whole, sizeof whole, "%s/ring.%d", folder, rank);
    snprintf(path, sizeof path, "%s/ring.%d.new", folder, rank);
    FILE *file = fopen(path, "we");
    if (!file || fwrite(handle, sizeof *handle, 1, file) != 1 || fclose(file) != 0 || rename(path, whole) != 0)
        fail(path, strerror(errno));
}

static struct ipc shown(const char *folder, int rank)
{
    struct ipc handle;
    char path[256];
    snprintf(path, sizeof path, "%s/ring.%d", folder, rank);
    for (FILE *file = NULL; !file; rest(0.001)) {
        file = fopen(path, "re");
        if (file && fread(&handle, sizeof handle, 1, file) != 1)
            fail(path, "too short");
        if (file)
            fclose(file);
    }
    return handle;
}

// Kernels of two processes that wait for each other's, in words of either's memory.
static void ring(const char *folder, int rank, int kernels, int pause)
{
    device_pointer own = 0, other = 0;
    struct ipc handle;
    must("cuMemAlloc", cu.cuMemAlloc_v2(&own, 4 << 20));
    must("cuMemsetD8", cu.cuMemsetD8_v2(own, 0, 4 << 20));
    must("cuIpcGetMemHandle", cu.cuIpcGetMemHandle(&handle, own));
    show(folder, rank, &handle);
    must("cuIpcOpenMemHandle", cu.cuIpcOpenMemHandle_v2(&other, shown(folder, !rank), 1));
    double start = now();
    for (int at = 0; at < rounds; at++) {
        if (at == rounds / 2)
            rest(pause * 1e-3);
        work(kernels, one);
        launch_at(set, (uint32_t *)(uintptr_t)other + at, one);
        launch_at(await, (uint32_t *)(uintptr_t)own + at, one);
        work(kernels, one);
    }
    finish();
    printf("waits: ring took %.0f ms\n", (now() - start) * 1000);
    fflush(stdout);
    // What the other one looks at has to stay until it is through.
    launch_at(set, (uint32_t *)(uintptr_t)other + rounds, one);
    finish();
    while (!((volatile uint32_t *)(uintptr_t)own)[rounds])
        rest(0.001);
}

int main(int count, char **word)
{
    int is_ring = count > 3 && strcmp(word[1], "ring") == 0;
    reach("dlsym");
    must("cuInit", cu.cuInit(0));
    use_gpu(is_ring && count > 4 ? atoi(word[4]) : 0);
    step = kernel_of(TEXT, "step");
    await = kernel_of(TEXT, "await");
    set = kernel_of(TEXT, "set");
    one = new_stream();
    two = new_stream();
    must("cuMemHostAlloc", cu.cuMemHostAlloc((void **)&words, WORDS * sizeof *words, 0));
    if (is_ring) {
        int is_told = count > 7;
        if (is_told)
            rounds = atoi(word[5]);
        ring(word[2], atoi(word[3]), is_told ? atoi(word[6]) : SOME, is_told ? atoi(word[7]) : 0);
        return 0;
    }
    for (int at = 1; at < count; at++) {
        int number = atoi(word[at]);
        if (number > WORDS / 2)
            fail(word[at], "too many");
        if (number > 0)
            rounds = number;
        else
            run(word[at]);
    }
    return 0;
}
