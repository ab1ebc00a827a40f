// Managed variables of code, which no call names and no figure of the driver's shows.
//
//     variables ACTION [ARGUMENT...]: see the end of this file
//
// What the job holds is the slice less what cuMemGetInfo says to be free.

#include <pthread.h>

#include "pace.h"
#include "ways.h"

enum { MIB = 1 << 20 };

static char text[65536];

// A real GPU knows it, too.
#define PTX ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry step()\n{\n    ret;\n}\n"

// An image with a managed variable of so many bytes.
static void write_variable(char *image, size_t bytes)
{
    sprintf(image,
            "//managed table %zu\n//code 512\n" PTX
            ".visible .global .attribute(.managed) .align 8 .b8 table[%zu];\n",
            bytes, bytes);
}

static const char *variable(size_t bytes)
{
    write_variable(text, bytes);
    return text;
}

static long held(void)
{
    size_t free = 0, total = 0;
    must("cuMemGetInfo", cu.cuMemGetInfo_v2(&free, &total));
    return (long)((total - free) / MIB);
}

static const char *in_file(const char *image)
{
    static char path[32];
    strcpy(path, "/tmp/variables-XXXXXX");
    int file = mkstemp(path);
    if (file < 0 || write(file, image, strlen(image)) < 0)
        fail(path, "cannot be written");
    close(file);
    return path;
}

static int load_module(void **module, const char *image)
{
    return cu.cuModuleLoadData(module, image);
}

static int load_module_ex(void **module, const char *image)
{
    return cu.cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

static int load_module_fat(void **module, const char *image)
{
    return cu.cuModuleLoadFatBinary(module, image);
}

static int load_module_file(void **module, const char *image)
{
    const char *path = in_file(image);
    int result = cu.cuModuleLoad(module, path);
    unlink(path);
    return result;
}

static int load_library(void **library, const char *image)
{
    return cu.cuLibraryLoadData(library, image, NULL, NULL, 0, NULL, NULL, 0);
}

static int load_library_file(void **library, const char *image)
{
    const char *path = in_file(image);
    int result = cu.cuLibraryLoadFromFile(library, path, NULL, NULL, 0, NULL, NULL, 0);
    unlink(path);
    return result;
}

static const struct {
    const char *name;
    int (*load)(void **code, const char *image);
    bool is_library;
} loads[] = {
    {"cuModuleLoadData", load_module, false},
    {"cuModuleLoadDataEx", load_module_ex, false},
    {"cuModuleLoadFatBinary", load_module_fat, false},
    {"cuModuleLoad", load_module_file, false},
    {"cuLibraryLoadData", load_library, true},
    {"cuLibraryLoadFromFile", load_library_file, true},
};

enum { LOADS = sizeof loads / sizeof *loads };

static int unload(void *code, bool is_library)
{
    return is_library ? cu.cuLibraryUnload(code) : cu.cuModuleUnload(code);
}

// Each function that loads code, with a variable of so many bytes.
static void in_all_ways(size_t bytes)
{
    must("start", start(false));
    for (int i = 0; i < LOADS; i++) {
        void *code = NULL;
        long before = held();
        int result = loads[i].load(&code, variable(bytes));
        long loaded = held();
        if (result == SUCCESS)
            must("unload", unload(code, loads[i].is_library));
        printf("%s: result=%d more=%ld left=%ld\n", loads[i].name, result, loaded - before, held() - before);
    }
    fflush(stdout);
    wait_for_line();
}

// A library that is loaded before there is a context, in which nothing more is asked for.
static void early(size_t bytes)
{
    void *library = NULL, *module = NULL;
    must("cuInit", cu.cuInit(0));
    int result = load_library(&library, variable(bytes));
    use_gpu(0);
    long with = held();
    if (result == SUCCESS)
        must("cuLibraryUnload", cu.cuLibraryUnload(library));
    printf("early: result=%d more=%ld\n", result, with - held());
    must("cuModuleLoadData", cu.cuModuleLoadData(&module, PTX));
    fflush(stdout);
    wait_for_line();
}

// What is there after a context has gone with its modules; a library's variables stay.
static void ends(size_t bytes)
{
    void *own = NULL, *module = NULL, *library = NULL;
    must("cuInit", cu.cuInit(0));
    use_gpu(0);
    long before = held();
    must("cuCtxCreate", cu.cuCtxCreate_v2(&own, 0, 0));
    must("cuModuleLoadData", cu.cuModuleLoadData(&module, variable(bytes)));
    must("cuModuleLoadData", cu.cuModuleLoadData(&module, variable(1000)));
    must("cuCtxDestroy", cu.cuCtxDestroy_v2(own));
    void *primary = use_gpu(0);
    printf("destroyed: left=%ld\n", held() - before);
    must("cuModuleLoadData", cu.cuModuleLoadData(&module, variable(bytes)));
    must("cuDevicePrimaryCtxReset", cu.cuDevicePrimaryCtxReset_v2(0));
    primary = use_gpu(0);
    printf("reset: left=%ld\n", held() - before);
    must("cuLibraryLoadData", load_library(&library, variable(bytes)));
    must("cuDevicePrimaryCtxReset", cu.cuDevicePrimaryCtxReset_v2(0));
    primary = use_gpu(0);
    printf("library: left=%ld\n", held() - before);
    must("cuLibraryUnload", cu.cuLibraryUnload(library));
    printf("unloaded: left=%ld\n", held() - before);
    (void)primary;
}

// Small variables and small allocations share pieces, of which each counts once until the last in it is gone.
static void small(int count)
{
    must("start", start(false));
    void *first = NULL, *second = NULL, *third = NULL;
    device_pointer at = 0, more = 0;
    char *end = text + sprintf(text, PTX);
    for (int i = 0; i < count; i++)
        end += sprintf(end, "//managed small%d 100\n.visible .global .attribute(.managed) .b8 small%d[100];\n", i,
                       i);
    long before = held();
    must("cuModuleLoadData", cu.cuModuleLoadData(&first, text));
    printf("many: more=%ld\n", held() - before);
    must("cuModuleLoadData", cu.cuModuleLoadData(&second, variable(MIB)));
    must("cuMemAllocManaged", cu.cuMemAllocManaged(&at, 4096, 1));
    printf("shared: more=%ld\n", held() - before);
    must("cuModuleUnload", cu.cuModuleUnload(first));
    must("cuMemFree", cu.cuMemFree_v2(at));
    printf("without the first: more=%ld\n", held() - before);
    must("cuModuleUnload", cu.cuModuleUnload(second));
    printf("without all: more=%ld\n", held() - before);
    must("cuMemAllocManaged", cu.cuMemAllocManaged(&at, 4096, 1));
    must("cuMemAllocManaged", cu.cuMemAllocManaged(&more, 4096, 1));
    must("cuModuleLoadData", cu.cuModuleLoadData(&third, variable(MIB)));
    must("cuMemFree", cu.cuMemFree_v2(at));
    must("cuMemFree", cu.cuMemFree_v2(more));
    printf("behind what was freed: more=%ld\n", held() - before);
    must("cuModuleUnload", cu.cuModuleUnload(third));
    printf("at the end: more=%ld\n", held() - before);
}

// Variables beside all other managed memory, which is charged already.
static void beside(size_t bytes)
{
    struct pool_properties properties = {.type = 2, .location = {1, 0}};
    void *pool = NULL, *module = NULL;
    device_pointer large = 0, small = 0, pooled = 0;
    must("start", start(false));
    long before = held();
    must("cuMemAllocManaged", cu.cuMemAllocManaged(&large, bytes, 1));
    must("cuMemAllocManaged", cu.cuMemAllocManaged(&small, 4096, 1));
    must("cuMemPoolCreate", cu.cuMemPoolCreate(&pool, &properties));
    must("cuMemAllocFromPoolAsync", cu.cuMemAllocFromPoolAsync(&pooled, bytes, pool, NULL));
    long with = held();
    must("cuModuleLoadData", cu.cuModuleLoadData(&module, variable(8 * MIB)));
    printf("loaded: more=%ld\n", held() - with);
    must("cuModuleUnload", cu.cuModuleUnload(module));
    printf("unloaded: more=%ld\n", held() - with);
    must("cuMemFree", cu.cuMemFree_v2(large));
    must("cuMemFree", cu.cuMemFree_v2(small));
    must("cuMemFreeAsync", cu.cuMemFreeAsync(pooled, NULL));
    must("cuStreamSynchronize", cu.cuStreamSynchronize(NULL));
    must("cuMemPoolDestroy", cu.cuMemPoolDestroy(pool));
    printf("freed: left=%ld\n", held() - before);
}

// A variable, and then blocks until there is no more.
static void fill(size_t bytes)
{
    void *module = NULL;
    device_pointer at = 0;
    int taken = 0;
    must("start", start(false));
    must("cuModuleLoadData", cu.cuModuleLoadData(&module, variable(bytes)));
    while (cu.cuMemAlloc_v2(&at, 8 * MIB) == SUCCESS)
        taken++;
    printf("fill: taken=%d\n", taken);
}

// Code that came by no name, as old CUDA runtimes load theirs.
static void unnamed(size_t bytes)
{
    struct {
        size_t bytes;
        void *contexts[3];
        int (*load)(void **module, const void *image);
    } *table = NULL;
    void *module = NULL;
    device_pointer at = 0;
    must("start", start(false));
    long before = held();
    must("cuGetExportTable", cu.cuGetExportTable((void *)&table, "fakecudatable\0\0\1"));
    must("load", table->load(&module, variable(bytes)));
    int result = cu.cuModuleGetGlobal_v2(&at, NULL, module, "table");
    long loaded = held();
    must("cuModuleUnload", cu.cuModuleUnload(module));
    printf("unnamed: result=%d more=%ld left=%ld\n", result, loaded - before, held() - before);
}

// Threads that load and unload code, and threads that allocate and free managed memory.
static pthread_barrier_t together;
static int rounds, failures;
static char large_image[512], small_image[512];

static void note(const char *call, int result)
{
    if (result != SUCCESS && __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED) < 10)
        fprintf(stderr, "%s: %d\n", call, result);
}

static void *loads_code(void *unused)
{
    (void)unused;
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(main_context));
    pthread_barrier_wait(&together);
    for (int i = 0; i < rounds; i++) {
        void *large = NULL, *small = NULL;
        note("cuModuleLoadData", cu.cuModuleLoadData(&large, large_image));
        note("cuLibraryLoadData", load_library(&small, small_image));
        note("cuModuleUnload", cu.cuModuleUnload(large));
        note("cuLibraryUnload", cu.cuLibraryUnload(small));
    }
    return NULL;
}

static void *allocates(void *unused)
{
    (void)unused;
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(main_context));
    pthread_barrier_wait(&together);
    for (int i = 0; i < 5 * rounds; i++) {
        device_pointer large = 0, small = 0;
        note("cuMemAllocManaged", cu.cuMemAllocManaged(&large, 8 * MIB, 1));
        note("cuMemAllocManaged", cu.cuMemAllocManaged(&small, 600000, 1));
        note("cuMemFree", cu.cuMemFree_v2(large));
        note("cuMemFree", cu.cuMemFree_v2(small));
    }
    return NULL;
}

static void race(int count, int how_often)
{
    pthread_t threads[64];
    void *last = NULL;
    must("start", start(false));
    rounds = how_often;
    write_variable(large_image, 8 * MIB);
    write_variable(small_image, 600000);
    pthread_barrier_init(&together, NULL, count);
    long before = held();
    for (int i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, i % 2 ? loads_code : allocates, NULL) != 0)
            fail("pthread_create", "no thread");
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    long left = held();
    must("cuModuleLoadData", cu.cuModuleLoadData(&last, variable(100)));
    long with = held();
    must("cuModuleUnload", cu.cuModuleUnload(last));
    printf("race: failed=%d left=%ld more=%ld\n", failures, left - before, with - before);
}

int main(int count, char **words)
{
    say_library();
    reach("linked");
    const char *action = count > 1 ? words[1] : "";
    size_t first = count > 2 ? strtoul(words[2], NULL, 0) : 0;
    size_t second = count > 3 ? strtoul(words[3], NULL, 0) : 0;
    if (strcmp(action, "ways") == 0)
        in_all_ways(first * MIB);
    else if (strcmp(action, "early") == 0)
        early(first * MIB);
    else if (strcmp(action, "ends") == 0)
        ends(first * MIB);
    else if (strcmp(action, "small") == 0)
        small((int)first);
    else if (strcmp(action, "beside") == 0)
        beside(first * MIB);
    else if (strcmp(action, "fill") == 0)
        fill(first * MIB);
    else if (strcmp(action, "unnamed") == 0)
        unnamed(first * MIB);
    else if (strcmp(action, "race") == 0)
        race((int)first, (int)second);
    else
        fail(action, "no such action");
    return 0;
}
