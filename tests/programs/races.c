// Threads that do at the same moment what changes the account, and what a program leaves behind on purpose.
//
//     races ACTION [ARGUMENT...]: see the end of this file

#include <pthread.h>

#include "pace.h"
#include "ways.h"

enum { MOST = 16384, MIB = 1 << 20 };

static void *context;
static pthread_barrier_t together;
static int failures;

static void begin(void)
{
    must("start", start(false));
    context = main_context;
}

// Runs so many threads, which begin together, and says how many of their calls failed.
static void run(const char *what, int count, void *(*work)(void *), void *with)
{
    pthread_t threads[64];
    pthread_barrier_init(&together, NULL, count);
    for (int i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, work, with) != 0)
            fail("pthread_create", "no thread");
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("%s: failed=%d\n", what, failures);
    fflush(stdout);
}

static void note(const char *call, int result)
{
    if (result != SUCCESS && __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED) < 10)
        fprintf(stderr, "%s: %d\n", call, result);
}

// The same kernel for the first time, half a millisecond apart: the first one's stacks are being looked after by then.
static void *launches_deep(void *kernel)
{
    static int arrived;
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
    pthread_barrier_wait(&together);
    rest(__atomic_fetch_add(&arrived, 1, __ATOMIC_RELAXED) * 0.0005);
    note("cuLaunchKernel", launch(kernel, NULL));
    return NULL;
}

static void deep(int threads, const char *bytes)
{
    char text[64];
    begin();
    snprintf(text, sizeof text, "kernel deep 100 local %s\n", bytes);
    run("deep", threads, launches_deep, kernel_of(text, "deep"));
}

// Unused memory of a pool is there for all threads that run out of memory at the same time.
static void *takes(void *bytes)
{
    device_pointer at = 0;
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
    pthread_barrier_wait(&together);
    note("cuMemAlloc", cu.cuMemAlloc_v2(&at, (size_t)bytes));
    return NULL;
}

static void kept(int threads, size_t kept_mib, size_t each_mib)
{
    void *pool = NULL;
    unsigned long long all = -1;
    device_pointer at = 0;
    begin();
    must("cuDeviceGetMemPool", cu.cuDeviceGetMemPool(&pool, 0));
    must("cuMemPoolSetAttribute", cu.cuMemPoolSetAttribute(pool, 4, &all));
    must("cuMemAllocAsync", cu.cuMemAllocAsync(&at, kept_mib * MIB, NULL));
    must("cuMemFreeAsync", cu.cuMemFreeAsync(at, NULL));
    must("cuStreamSynchronize", cu.cuStreamSynchronize(NULL));
    run("kept", threads, takes, (void *)(each_mib * MIB));
}

// The primary context ends and is made anew while others launch in it.
static void *makes_contexts(void *rounds)
{
    pthread_barrier_wait(&together);
    for (size_t i = 0; i < (size_t)rounds; i++) {
        void *own = NULL, *module = NULL, *kernel = NULL;
        device_pointer at = 0;
        note("cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(&own, 0));
        note("cuCtxSetCurrent", cu.cuCtxSetCurrent(own));
        note("cuMemAlloc", cu.cuMemAlloc_v2(&at, 4 * MIB));
        note("cuModuleLoadData", cu.cuModuleLoadData(&module, "kernel step 1000\n"));
        note("cuModuleGetFunction", cu.cuModuleGetFunction(&kernel, module, "step"));
        for (int j = 0; j < 3; j++)
            note("cuLaunchKernel", launch(kernel, NULL));
        note("cuCtxSynchronize", cu.cuCtxSynchronize());
        note("cuMemFree", cu.cuMemFree_v2(at));
        note("cuCtxSetCurrent", cu.cuCtxSetCurrent(NULL));
        note("cuDevicePrimaryCtxRelease", cu.cuDevicePrimaryCtxRelease_v2(0));
    }
    return NULL;
}

static void contexts(int threads, size_t rounds)
{
    double start = now();
    must("cuInit", cu.cuInit(0));
    run("contexts", threads, makes_contexts, (void *)rounds);
    printf("took: milliseconds=%.0f\n", (now() - start) * 1000);
}

// A context ends with all that was taken in it.
static void blocks(int count, size_t each_mib)
{
    void *own = NULL;
    begin();
    must("cuCtxCreate", cu.cuCtxCreate_v2(&own, 0, 0));
    device_pointer at = 0;
    int taken = 0;
    while (taken < count && cu.cuMemAlloc_v2(&at, each_mib * MIB) == SUCCESS)
        taken++;
    must("cuCtxDestroy", cu.cuCtxDestroy_v2(own));
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
    printf("blocks: taken=%d again=%d\n", taken, cu.cuMemAlloc_v2(&at, taken * each_mib * MIB));
}

// Memory that a descriptor keeps is freed, at once or in a stream, as often as there is any.
static void descriptors(bool in_stream, size_t each_mib)
{
    begin();
    int taken = 0, result = SUCCESS;
    while (taken < 64) {
        device_pointer at = 0;
        int descriptor = -1;
        result = cu.cuMemAlloc_v2(&at, each_mib * MIB);
        if (result)
            break;
        taken++;
        must("cuMemGetHandleForAddressRange",
             cu.cuMemGetHandleForAddressRange(&descriptor, at, each_mib * MIB, 1, 0));
        must("free", in_stream ? cu.cuMemFreeAsync(at, NULL) : cu.cuMemFree_v2(at));
        must("cuStreamSynchronize", cu.cuStreamSynchronize(NULL));
    }
    printf("descriptors: taken=%d then=%d\n", taken, result);
}

// Blocks of so many MiB until there is no more.
static void fill(const char *what, size_t step_mib)
{
    device_pointer at = 0;
    int taken = 0;
    while (taken < MOST && cu.cuMemAlloc_v2(&at, step_mib * MIB) == SUCCESS)
        taken++;
    printf("%s: taken=%d\n", what, taken);
}

// Pools of managed memory come and go; then blocks are taken until there is no more.
static void managed(int rounds, size_t each_mib, size_t step_mib)
{
    struct pool_properties properties = {.type = 2, .location = {1, 0}};
    device_pointer at = 0;
    begin();
    for (int i = 0; i < rounds; i++) {
        void *pool = NULL;
        must("cuMemPoolCreate", cu.cuMemPoolCreate(&pool, &properties));
        must("cuMemAllocFromPoolAsync", cu.cuMemAllocFromPoolAsync(&at, each_mib * MIB, pool, NULL));
        must("cuMemFreeAsync", cu.cuMemFreeAsync(at, NULL));
        must("cuStreamSynchronize", cu.cuStreamSynchronize(NULL));
        must("cuMemPoolDestroy", cu.cuMemPoolDestroy(pool));
    }
    fill("managed", step_mib);
}

// Pools come and go while other threads allocate from the GPU's own and look at what is free.
static volatile int makers;

static void *makes_pools(void *rounds)
{
    struct pool_properties properties = {.type = 1, .location = {1, 0}};
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
    pthread_barrier_wait(&together);
    for (size_t i = 0; i < (size_t)rounds; i++) {
        void *pool = NULL;
        device_pointer at = 0;
        note("cuMemPoolCreate", cu.cuMemPoolCreate(&pool, &properties));
        // Until it is destroyed, other threads' allocations come from it too.
        if (i % 2)
            note("cuDeviceSetMemPool", cu.cuDeviceSetMemPool(0, pool));
        note("cuMemAllocFromPoolAsync", cu.cuMemAllocFromPoolAsync(&at, MIB, pool, NULL));
        note("cuMemFreeAsync", cu.cuMemFreeAsync(at, NULL));
        note("cuStreamSynchronize", cu.cuStreamSynchronize(NULL));
        note("cuMemPoolDestroy", cu.cuMemPoolDestroy(pool));
    }
    __atomic_fetch_sub(&makers, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void *looks_at_memory(void *rounds)
{
    (void)rounds;
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
    pthread_barrier_wait(&together);
    while (makers > 0) {
        size_t bytes = 0, total = 0;
        device_pointer at = 0;
        note("cuMemGetInfo", cu.cuMemGetInfo_v2(&bytes, &total));
        note("cuMemAllocAsync", cu.cuMemAllocAsync(&at, MIB, NULL));
        note("cuMemFreeAsync", cu.cuMemFreeAsync(at, NULL));
    }
    return NULL;
}

static void *makes_or_looks(void *rounds)
{
    static int arrived;
    return (__atomic_fetch_add(&arrived, 1, __ATOMIC_SEQ_CST) < makers ? makes_pools : looks_at_memory)(rounds);
}

static void pools(int threads, size_t rounds, size_t step_mib)
{
    begin();
    makers = threads / 2;
    run("pools", threads, makes_or_looks, (void *)rounds);
    fill("beside", step_mib);
}

// A graph that takes memory when it is launched is updated again and again.
static void updates(int count, size_t mib, size_t step_mib)
{
    void *graph = NULL, *node = NULL, *ready = NULL;
    struct memory_node asked = memory_node(mib * MIB);
    char outcome[64];
    begin();
    must("cuGraphCreate", cu.cuGraphCreate(&graph, 0));
    must("cuGraphAddMemAllocNode", cu.cuGraphAddMemAllocNode(&node, graph, NULL, 0, &asked));
    must("cuGraphInstantiateWithFlags", cu.cuGraphInstantiateWithFlags(&ready, graph, 0));
    for (int i = 0; i < count; i++)
        must("cuGraphExecUpdate", cu.cuGraphExecUpdate_v2(ready, graph, outcome));
    fill("updates", step_mib);
}

// A thread that has no context, in a stream that has one.
static void *allocates_apart(void *stream)
{
    device_pointer at = 0;
    note("cuMemAllocAsync", cu.cuMemAllocAsync(&at, 2000ul * MIB, stream));
    return NULL;
}

static void *runs_graph_apart(void *stream)
{
    void *graph = NULL, *node = NULL, *ready = NULL;
    struct memory_node asked = memory_node(2000ul * MIB);
    must("cuGraphCreate", cu.cuGraphCreate(&graph, 0));
    must("cuGraphAddMemAllocNode", cu.cuGraphAddMemAllocNode(&node, graph, NULL, 0, &asked));
    int result = cu.cuGraphInstantiateWithFlags(&ready, graph, 0);
    note("graph", result ? result : cu.cuGraphLaunch(ready, stream));
    return NULL;
}

static void apart(void)
{
    begin();
    void *stream = new_stream();
    run("apart", 1, allocates_apart, stream);
    run("apart, a graph", 1, runs_graph_apart, stream);
}

// One thread gives memory to others while another gives it back.
static unsigned long long exported;
static size_t exported_bytes;

static void *exports_handle(void *unused)
{
    (void)unused;
    int descriptor = -1;
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
    pthread_barrier_wait(&together);
    cu.cuMemExportToShareableHandle(&descriptor, exported, 1, 0);
    return NULL;
}

static void *exports_address(void *unused)
{
    (void)unused;
    int descriptor = -1;
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
    pthread_barrier_wait(&together);
    cu.cuMemGetHandleForAddressRange(&descriptor, exported, MIB, 1, 0);
    return NULL;
}

static void *maps(void *unused)
{
    (void)unused;
    device_pointer at = 0;
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
    must("cuMemAddressReserve", cu.cuMemAddressReserve(&at, exported_bytes, 0, 0, 0));
    pthread_barrier_wait(&together);
    cu.cuMemMap(at, exported_bytes, 0, exported, 0);
    return NULL;
}

// Each round takes memory, and gives it back while another thread does what keeps it, if that comes first.
static void kept_while_given_back(int rounds, size_t mib, const char *how)
{
    struct physical_properties properties = {.type = 1, .handle_types = 1, .location = {1, 0}};
    bool is_handle = strcmp(how, "address") != 0;
    void *(*keep)(void *) = strcmp(how, "map") == 0 ? maps : is_handle ? exports_handle : exports_address;
    exported_bytes = mib * MIB;
    begin();
    int taken = 0;
    while (taken < rounds) {
        pthread_t thread;
        int result = is_handle ? cu.cuMemCreate(&exported, exported_bytes, &properties, 0)
                               : cu.cuMemAlloc_v2(&exported, exported_bytes);
        if (result != SUCCESS)
            break;
        taken++;
        pthread_barrier_init(&together, NULL, 2);
        if (pthread_create(&thread, NULL, keep, NULL) != 0)
            fail("pthread_create", "no thread");
        pthread_barrier_wait(&together);
        if (is_handle)
            must("cuMemRelease", cu.cuMemRelease(exported));
        else
            must("cuMemFree", cu.cuMemFree_v2(exported));
        pthread_join(thread, NULL);
    }
    printf("%s: rounds=%d\n", how, taken);
}

static volatile device_pointer place;
static device_pointer elsewhere;
static volatile bool is_over;

static void *writes_to_place(void *unused)
{
    (void)unused;
    while (!is_over)
        place = elsewhere;
    return NULL;
}

// One thread writes another allocation's address all the time to the place where the driver is to write that of a new one.
static void overwritten(int most, size_t each_mib)
{
    begin();
    pthread_t thread;
    must("cuMemAlloc", cu.cuMemAlloc_v2(&elsewhere, each_mib * MIB));
    if (pthread_create(&thread, NULL, writes_to_place, NULL) != 0)
        fail("pthread_create", "no thread");
    int taken = 1;
    while (taken < most && cu.cuMemAlloc_v2((device_pointer *)&place, each_mib * MIB) == SUCCESS)
        taken++;
    is_over = true;
    pthread_join(thread, NULL);
    printf("overwritten: taken=%d\n", taken);
}

// Pieces that a descriptor keeps: the driver may give their addresses again.
static void pieces(int most)
{
    begin();
    int taken = 0;
    device_pointer at = 0;
    while (taken < most && cu.cuMemAlloc_v2(&at, MIB * 3 / 2) == SUCCESS) {
        int descriptor = -1;
        taken++;
        must("cuMemGetHandleForAddressRange", cu.cuMemGetHandleForAddressRange(&descriptor, at, MIB, 1, 0));
        must("cuMemFree", cu.cuMemFree_v2(at));
    }
    printf("pieces: taken=%d\n", taken);
}

// All threads ask for stacks of the same size.
static void *sets_limit(void *bytes)
{
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
    pthread_barrier_wait(&together);
    note("cuCtxSetLimit", cu.cuCtxSetLimit(0, (size_t)bytes));
    return NULL;
}

static void limits(int threads, size_t bytes, size_t step_mib)
{
    begin();
    run("limits", threads, sets_limit, (void *)bytes);
    fill("beside", step_mib);
}

// In a context that the CUDA runtime made by its private table, which takes no memory by any name.
static void private_table(void)
{
    struct {
        size_t bytes;
        int (*retain)(void **context, int device);
    } *table = NULL;
    void *module = NULL, *kernel = NULL;
    must("cuInit", cu.cuInit(0));
    must("cuGetExportTable", cu.cuGetExportTable((void *)&table, "fakecudatable\0\0\1"));
    must("retain", table->retain(&context, 0));
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
    device_pointer at = 0;
    printf("cuMemAlloc: %d\n", cu.cuMemAlloc_v2(&at, MIB));
    printf("cuModuleLoadData: %d\n", cu.cuModuleLoadData(&module, "kernel step 1000\ncode 1000000000\n"));
    if (module && cu.cuModuleGetFunction(&kernel, module, "step") == SUCCESS)
        printf("cuLaunchKernel: %d\n", launch(kernel, NULL));
}

int main(int count, char **words)
{
    say_library();
    reach("linked");
    const char *action = count > 1 ? words[1] : "";
    long numbers[3] = {0};
    for (int i = 2; i < count && i < 5; i++)
        numbers[i - 2] = atol(words[i]);
    if (strcmp(action, "deep") == 0)
        deep((int)numbers[0], words[3]);
    else if (strcmp(action, "kept") == 0)
        kept((int)numbers[0], numbers[1], numbers[2]);
    else if (strcmp(action, "contexts") == 0)
        contexts((int)numbers[0], numbers[1]);
    else if (strcmp(action, "pools") == 0)
        pools((int)numbers[0], numbers[1], numbers[2]);
    else if (strcmp(action, "blocks") == 0)
        blocks((int)numbers[0], numbers[1]);
    else if (strcmp(action, "descriptors") == 0)
        descriptors(numbers[0] != 0, numbers[1]);
    else if (strcmp(action, "managed") == 0)
        managed((int)numbers[0], numbers[1], numbers[2]);
    else if (strcmp(action, "updates") == 0)
        updates((int)numbers[0], numbers[1], numbers[2]);
    else if (strcmp(action, "apart") == 0)
        apart();
    else if (strcmp(action, "export") == 0 || strcmp(action, "address") == 0 || strcmp(action, "map") == 0)
        kept_while_given_back((int)numbers[0], numbers[1], action);
    else if (strcmp(action, "overwritten") == 0)
        overwritten((int)numbers[0], numbers[1]);
    else if (strcmp(action, "pieces") == 0)
        pieces((int)numbers[0]);
    else if (strcmp(action, "limits") == 0)
        limits((int)numbers[0], numbers[1], numbers[2]);
    else if (strcmp(action, "private") == 0)
        private_table();
    else
        fail(action, "no such action");
    return 0;
}
