// What can become of a process that holds device memory, and of the memory: refusals, wrong frees, fork, exec and more.
//
//     lives ACTION [ARGUMENT...]: see the end of this file

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "ways.h"

enum { STEP = 8 << 20, MOST = 4096 };

static device_pointer held[MOST];
static int count;

static int take_until(int most)
{
    int result = SUCCESS;
    while (count < most && (result = cu.cuMemAlloc_v2(&held[count], STEP)) == SUCCESS)
        count++;
    printf("took: blocks=%d then=%d\n", count, result);
    fflush(stdout);
    return result;
}

static void begin(void)
{
    int result = start(false);
    printf("start: %d\n", result);
    fflush(stdout);
    if (result)
        exit(0);
}

// A refusal changes nothing: neither what is held nor what is in it, nor the program's own variables.
static void refused(void)
{
    begin();
    take_until(MOST);
    unsigned char back[64] = {0};
    int wrong = 0, others = 0;
    for (int i = 0; i < count; i++)
        wrong += cu.cuMemsetD8_v2(held[i], (unsigned char)i, sizeof back) != SUCCESS;
    for (int i = 0; i < 2000; i++) {
        device_pointer at = 0x1234;
        errno = EXDEV;
        others += cu.cuMemAlloc_v2(&at, i % 2 ? STEP : (size_t)STEP << 10) != OUT_OF_MEMORY;
        wrong += at != 0x1234 || errno != EXDEV;
    }
    for (int i = 0; i < count; i++) {
        wrong += cu.cuMemcpyDtoH_v2(back, held[i], sizeof back) != SUCCESS;
        wrong += back[0] != (unsigned char)i || back[63] != (unsigned char)i;
    }
    printf("refused: others=%d wrong=%d\n", others, wrong);
    fflush(stdout);
    wait_for_line();
    // The program recovers by giving something back.
    for (int i = 0; i < 5; i++)
        cu.cuMemFree_v2(held[--count]);
    take_until(MOST);
}

// What the driver says to frees that go wrong is the driver's to say.
static void frees(void)
{
    begin();
    device_pointer at = 0, pooled = 0, mapped = 0;
    size_t bytes = 0, total = 0;
    cu.cuMemAlloc_v2(&at, STEP);
    printf("nothing: %d\n", cu.cuMemFree_v2(0));
    printf("unknown: %d\n", cu.cuMemFree_v2(0x7f0000000000));
    printf("within: %d\n", cu.cuMemFree_v2(at + 512));
    printf("our own: %d\n", cu.cuMemFree_v2((device_pointer)(uintptr_t)&at));
    printf("once: %d\n", cu.cuMemFree_v2(at));
    printf("twice: %d\n", cu.cuMemFree_v2(at));
    printf("twice, in a stream: %d\n", cu.cuMemFreeAsync(at, NULL));
    cu.cuMemAlloc_v2(&at, STEP);
    printf("in a stream: %d\n", cu.cuMemFreeAsync(at, NULL));
    cu.cuMemAllocAsync(&pooled, STEP, NULL);
    printf("a pool's: %d\n", cu.cuMemFree_v2(pooled));
    printf("a pool's, twice: %d\n", cu.cuMemFreeAsync(pooled, NULL));
    struct block block = {0};
    take_handle(STEP, &block);
    printf("no handle: %d\n", cu.cuMemRelease(block.handle + 12345));
    printf("a handle: %d\n", cu.cuMemRelease(block.handle));
    printf("a handle, twice: %d\n", cu.cuMemRelease(block.handle));
    take_physical(STEP, &block);
    mapped = block.at;
    printf("mapped memory, as memory: %d\n", cu.cuMemFree_v2(mapped));
    printf("half of a mapping: %d\n", cu.cuMemUnmap(mapped, STEP / 2));
    printf("a mapping: %d\n", cu.cuMemUnmap(mapped, STEP));
    printf("a mapping, twice: %d\n", cu.cuMemUnmap(mapped, STEP));
    printf("its addresses: %d\n", cu.cuMemAddressFree(mapped, STEP));
    take_array(STEP, &block);
    printf("an array: %d\n", cu.cuArrayDestroy(block.one));
    printf("an array, twice: %d\n", cu.cuArrayDestroy(block.one));
    take_graph(STEP, &block);
    printf("a graph's: %d\n", cu.cuMemFree_v2(block.at));
    printf("a graph's, twice: %d\n", cu.cuMemFree_v2(block.at));
    printf("a graph: %d\n", cu.cuGraphExecDestroy(block.two));
    printf("a graph, twice: %d\n", cu.cuGraphExecDestroy(block.two));
    take_context_v2(0, &block);
    printf("a context: %d\n", cu.cuCtxDestroy_v2(block.one));
    printf("a context, twice: %d\n", cu.cuCtxDestroy_v2(block.one));
    printf("unknown: %d\n", cu.cuIpcCloseMemHandle(0x7f0000000000));
    printf("no module: %d\n", cu.cuModuleUnload((void *)0x1234));
    printf("no pool: %d\n", cu.cuMemPoolDestroy((void *)0x1234));
    make_own_pool();
    take_from_pool(STEP, &block);
    give_async(&block);
    cu.cuStreamSynchronize(NULL);
    printf("a pool: %d\n", cu.cuMemPoolDestroy(own_pool));
    printf("memory of a pool that is gone: %d\n", take_from_pool(STEP, &block));
    printf("a pool, twice: %d\n", cu.cuMemPoolDestroy(own_pool));
    printf("free memory: %d\n", cu.cuMemGetInfo_v2(&bytes, &total));
    printf("no external memory: %d\n", cu.cuDestroyExternalMemory((void *)0x1234));
    printf("too much: %d\n", cu.cuMemAlloc_v2(&at, SIZE_MAX));
    printf("nowhere: %d\n", cu.cuMemAlloc_v2(NULL, STEP));
    printf("none: %d\n", cu.cuMemAlloc_v2(&at, 0));
    fflush(stdout);
}

// A child that makes no call has no account, takes none with it, and gives none back.
static void forks(void)
{
    begin();
    take_until(100);
    wait_for_line();
    for (int way = 0; way < 3; way++) {
        pid_t child = way == 2 ? vfork() : fork();
        if (child == 0 && way == 0)
            exit(0);
        if (child == 0)
            _exit(0);
        int status = -1;
        waitpid(child, &status, 0);
        printf("child: %d\n", status);
        fflush(stdout);
        wait_for_line();
    }
    take_until(MOST);
}

// A child outlives its parent: it ends with its input.
static void orphan(void)
{
    begin();
    take_until(MOST);
    pid_t child = fork();
    if (child == 0) {
        while (getchar() != EOF)
            ;
        _exit(0);
    }
    printf("forked: %d\n", child);
    fflush(stdout);
    pause();
}

// A child that runs another program has nothing of the parent's.
static void launcher(void)
{
    begin();
    take_until(MOST);
    // Until it is another program, the child keeps what this process has.
    int ends[2] = {-1, -1};
    char none;
    if (pipe2(ends, O_CLOEXEC) != 0)
        fail("pipe2", strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/cat", "cat", NULL);
        _exit(1);
    }
    close(ends[1]);
    while (read(ends[0], &none, 1) > 0)
        ;
    printf("forked: %d\n", child);
    fflush(stdout);
    pause();
}

// A child that forks before the first call is a process like any other.
static void fork_first(void)
{
    pid_t child = fork();
    begin();
    take_until(child == 0 ? 50 : 100);
    wait_for_line();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    take_until(MOST);
}

static void exec_self(char *program)
{
    begin();
    take_until(MOST);
    char *again[] = {program, "fill", NULL};
    execv("/proc/self/exe", again);
    fail("execv", "came back");
}

static void fill(void)
{
    begin();
    take_until(MOST);
    wait_for_line();
}

// Descriptors of the driver and of the account are closed behind their backs.
static void closes(void)
{
    begin();
    take_until(100);
    closefrom(3);
    wait_for_line();
    take_until(MOST);
    wait_for_line();
}

static void unloads(void)
{
    for (int i = 0; i < 3; i++) {
        reach("dlsym");
        begin();
        count = 0;
        take_until(MOST);
        while (count > 0)
            cu.cuMemFree_v2(held[--count]);
        printf("release: %d\n", cu.cuDevicePrimaryCtxRelease_v2(device_number));
        printf("dlclose: %d\n", dlclose(driver_library));
        driver_library = NULL;
    }
}

// What was allocated in the primary context goes with it: by its reset, and with its last holder.
static void again(void)
{
    printf("retain: %d\n", cu.cuDevicePrimaryCtxRetain(&main_context, device_number));
    printf("use: %d\n", cu.cuCtxSetCurrent(main_context));
    count = 0;
    take_until(MOST);
}

static void resets(void)
{
    begin();
    take_until(MOST);
    printf("reset: %d\n", cu.cuDevicePrimaryCtxReset_v2(device_number));
    again();
    printf("reset: %d\n", cu.cuDevicePrimaryCtxReset(device_number));
    again();
    // As often as it was retained.
    while (cu.cuDevicePrimaryCtxRelease_v2(device_number) == SUCCESS)
        ;
    again();
    printf("release: %d\n", cu.cuDevicePrimaryCtxRelease(device_number));
    again();
}

// Memory of another interface, for which any file stands here.
static void externals(void)
{
    static void *memories[MOST];
    begin();
    int imported = 0, result = SUCCESS, worst = SUCCESS;
    while (!result && imported < MOST) {
        int file = memfd_create("external", 0);
        if (file < 0 || ftruncate(file, STEP) != 0)
            fail("memfd_create", strerror(errno));
        struct external asked = {.type = 1, .handle.descriptor = file, .bytes = STEP};
        result = cu.cuImportExternalMemory(&memories[imported], &asked);
        if (!result)
            imported++;
        else
            worst = fcntl(file, F_GETFD) < 0;
    }
    printf("imported: blocks=%d then=%d taken_away=%d\n", imported, result, worst);
    while (imported > 0)
        worst |= cu.cuDestroyExternalMemory(memories[--imported]);
    printf("destroyed: %d\n", worst);
    take_until(MOST);
}

// Many small pieces are taken and most of them given back: the driver keeps what one that stays lies in.
static void fragments(const char *kind)
{
    enum { SMALL = 64 << 10, PIECES = 2000, EACH = 32 };
    static struct block blocks[PIECES * EACH];
    bool arrays = strcmp(kind, "arrays") == 0;
    begin();
    int taken = 0, result = SUCCESS;
    while (taken < PIECES * EACH && !result) {
        result = arrays ? take_array(SMALL, &blocks[taken]) : take_plain(SMALL, &blocks[taken]);
        taken += !result;
    }
    for (int i = 0; i < taken; i++) {
        if (i % EACH != 0 && (arrays ? give_array(&blocks[i]) : give_plain(&blocks[i])) != SUCCESS)
            fail(kind, "not given back");
    }
    printf("fragments: blocks=%d then=%d\n", taken, result);
    fflush(stdout);
    take_until(MOST);
}

// Unused memory of pools and graphs is given back by trimming, and is there for another process then.
static void trims(void)
{
    static struct block blocks[64];
    begin();
    for (int i = 0; i < 128; i++) {
        struct block *block = &blocks[i % 64];
        int result = i < 64 ? take_from_pool(STEP, block) : take_graph(STEP, block);
        if (result)
            fail("trims", "no memory");
        if (i % 64 == 63) {
            for (int j = 0; j < 64; j++)
                (i < 64 ? give_async : give_graph)(&blocks[j]);
        }
    }
    printf("kept: 0\n");
    fflush(stdout);
    wait_for_line();
    printf("trimmed: %d\n", cu.cuMemPoolTrimTo(own_pool, 0));
    fflush(stdout);
    wait_for_line();
    printf("trimmed too: %d\n", cu.cuDeviceGraphMemTrim(device_number));
    fflush(stdout);
    wait_for_line();
}

// Memory that was mapped into an array: no call says which part of it still is, so it stays with the process.
static void sparse(void)
{
    char list[96] = {0};
    begin();
    for (int i = 0; i < 2; i++) {
        struct block block = {0};
        printf("take: %d\n", take_handle((size_t)64 << 20, &block));
        printf("map: %d\n", i ? cu.cuMemMapArrayAsync_ptsz(list, 1, NULL) : cu.cuMemMapArrayAsync(list, 1, NULL));
        printf("give: %d\n", give_handle(&block));
    }
    printf("given: 0\n");
    fflush(stdout);
    wait_for_line();
}

// What a thread calls that has no context.
static void without_context(void)
{
    device_pointer at = 0;
    size_t available, total;
    cu.cuInit(0);
    printf("took: alloc=%d ", cu.cuMemAlloc_v2(&at, STEP));
    printf("async=%d ", cu.cuMemAllocAsync(&at, STEP, NULL));
    printf("free=%d ", cu.cuMemFree_v2(0x7f0000000000));
    printf("info=%d\n", cu.cuMemGetInfo_v2(&available, &total));
    fflush(stdout);
    wait_for_line();
}

// Room for what kernels print and for the heap that they allocate from.
static void limits(void)
{
    begin();
    printf("printf: %d\n", cu.cuCtxSetLimit(1, 64 << 20));
    printf("heap: %d\n", cu.cuCtxSetLimit(2, 256 << 20));
    printf("heap, too large: %d\n", cu.cuCtxSetLimit(2, (size_t)64 << 30));
    take_until(MOST);
}

// Memory of a context goes with the context.
static void contexts(void)
{
    begin();
    struct block block = {0};
    for (int i = 0; i < 3; i++) {
        printf("create: %d\n", take_context_v2(0, &block));
        printf("use: %d\n", cu.cuCtxSetCurrent(block.one));
        count = 0;
        take_until(MOST);
        printf("destroy: %d\n", i ? cu.cuCtxDestroy_v2(block.one) : cu.cuCtxDestroy(block.one));
        cu.cuCtxSetCurrent(main_context);
    }
    count = 0;
    take_until(MOST);
}

// Modules: one that does not fit is refused and leaves nothing.
static void modules(const char *mib)
{
    begin();
    struct block block = {0};
    size_t bytes = strtoull(mib, NULL, 0) << 20;
    printf("large: %d\n", take_module(bytes, &block));
    printf("large library: %d\n", take_library(bytes, &block));
    take_until(MOST);
    fflush(stdout);
    wait_for_line();
}

// Loads code and says what is free, at each line.
static void looks(void)
{
    begin();
    struct block block = {0};
    while (!feof(stdin)) {
        size_t bytes = 0, total = 0;
        int result = take_module(1 << 20, &block);
        cu.cuMemGetInfo_v2(&bytes, &total);
        printf("free: load=%d mib=%zu\n", result, bytes >> 20);
        fflush(stdout);
        wait_for_line();
    }
}

// Asks the driver for functions, closes it, and goes on with the copy in this file, as programs do that look for a forward
// compatibility package.
static void probe(const char *file)
{
    void *first = dlopen("libcuda.so.1", RTLD_LAZY);
    int (*version)(int *) = (int (*)(int *))dlsym(first, "cuDriverGetVersion");
    int number = 0;
    if (!version || version(&number) || !dlsym(first, "cuInit") || !dlsym(first, "cuMemAlloc_v2"))
        fail("libcuda.so.1", "no driver");
    dlclose(first);
    driver_library = dlopen(file, RTLD_LAZY);
    // Libraries look for the driver by this name, and find the copy.
    printf("found: %d\n", dlopen("libcuda.so.1", RTLD_LAZY) == driver_library);
}

// The same, but a function of the first was called.
static void probe_by_a_call(const char *file)
{
    void *first = dlopen("libcuda.so.1", RTLD_LAZY), *found = NULL;
    get_proc_address_v1 *ask = (get_proc_address_v1 *)dlsym(first, "cuGetProcAddress");
    if (!ask || ask("cuInit", &found, 12000, 0) || !found)
        fail("libcuda.so.1", "no cuInit");
    dlclose(first);
    driver_library = dlopen(file, RTLD_LAZY);
}

static void say_nvml(const char *when, void *nvml)
{
    int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*gpu)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int (*memory)(void *, void *) = (int (*)(void *, void *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    void *device = NULL;
    unsigned long long figures[3] = {0};
    if (!init || !gpu || !memory || init() || gpu(0, &device))
        fail(when, "no NVML");
    int result = memory(device, figures);
    printf("%s: result=%d total=%llu\n", when, result, figures[0] >> 20);
}

// Asks NVML for a function, closes it, and uses one copy of it and then another.
static void nvml(const char *one, const char *other)
{
    void *first = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    if (!first || !dlsym(first, "nvmlInit_v2") || dlclose(first))
        fail("libnvidia-ml.so.1", "no NVML");
    say_nvml("one", dlopen(one, RTLD_LAZY));
    say_nvml("other", dlopen(other, RTLD_LAZY));
}

int main(int words, char **word)
{
    if (words < 2)
        fail(word[0], "what to do?");
    const char *action = word[1];
    if (strcmp(action, "probes") == 0 && words > 2)
        probe(word[2]);
    else if (strcmp(action, "probes-by-a-call") == 0 && words > 2)
        probe_by_a_call(word[2]);
    reach("dlsym");
    say_library();
    if (strcmp(action, "refused") == 0)
        refused();
    else if (strcmp(action, "frees") == 0)
        frees();
    else if (strcmp(action, "frees-and-fill") == 0)
        frees(), take_until(MOST);
    else if (strcmp(action, "forks") == 0)
        forks();
    else if (strcmp(action, "fork-first") == 0)
        fork_first();
    else if (strcmp(action, "orphan") == 0)
        orphan();
    else if (strcmp(action, "launcher") == 0)
        launcher();
    else if (strcmp(action, "exec") == 0)
        exec_self(word[0]);
    else if (strcmp(action, "fill") == 0 || strncmp(action, "probes", 6) == 0)
        fill();
    else if (strcmp(action, "closes") == 0)
        closes();
    else if (strcmp(action, "unloads") == 0)
        unloads();
    else if (strcmp(action, "resets") == 0)
        resets();
    else if (strcmp(action, "externals") == 0)
        externals();
    else if (strcmp(action, "fragments") == 0 && words > 2)
        fragments(word[2]);
    else if (strcmp(action, "trims") == 0)
        trims();
    else if (strcmp(action, "sparse") == 0)
        sparse();
    else if (strcmp(action, "without-context") == 0)
        without_context();
    else if (strcmp(action, "limits") == 0)
        limits();
    else if (strcmp(action, "contexts") == 0)
        contexts();
    else if (strcmp(action, "nvml") == 0 && words > 3)
        nvml(word[2], word[3]);
    else if (strcmp(action, "looks") == 0)
        looks();
    else if (strcmp(action, "modules") == 0 && words > 2)
        modules(word[2]);
    else
        fail(action, "no such action");
    return 0;
}
