// What calls cost. Takes its turn each time that a line comes on stdin: several processes, with and without the library,
// take turns with each other.
//
//     costs first          the first allocation after the context was made, and the second
//     costs calls          in turns: pairs of each kind, launches, questions
//     costs short          in turns: launches and the shortest pairs alone
//     costs live COUNT     in turns: the same pairs with so many small allocations alive
#include "common.h"

static CUstream stream;

// The median over batches of the time of one call, in ns.
#define BATCHES(name, batches, each, call) do { \
        double times_[batches]; \
        for (int b_ = 0; b_ < (batches); b_++) { \
            double begin_ = now_ns(); \
            for (int i_ = 0; i_ < (each); i_++) call; \
            times_[b_] = (now_ns() - begin_) / (each); \
        } \
        printf("time %s %.2f\n", name, median(times_, batches)); \
    } while (0)

static void pair(size_t bytes) {
    CUdeviceptr at;
    if (cuMemAlloc(&at, bytes) || cuMemFree(at)) exit(6);
}

static void async_pair(size_t bytes) {
    CUdeviceptr at;
    if (cuMemAllocAsync(&at, bytes, stream) || cuMemFreeAsync(at, stream)) exit(6);
}

static void short_pairs(int anchored);

static void pairs(int anchored) {
    static const struct { const char *name; size_t bytes; int each; } sizes[] = {
        {"pair_1KiB_ns", KIB, 20}, {"pair_64KiB_ns", 64 * KIB, 20}, {"pair_1MiB_ns", MIB, 20},
        {"pair_2MiB_ns", 2 * MIB, 20}, {"pair_16MiB_ns", 16 * MIB, 20}, {"pair_64MiB_ns", 64 * MIB, 15},
    };
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) BATCHES(sizes[i].name, 21, sizes[i].each, pair(sizes[i].bytes));
    short_pairs(anchored);
}

static void short_pairs(int anchored) {
    // In a piece that another allocation keeps.
    CUdeviceptr anchor;
    if (!anchored) NEED(cuMemAlloc(&anchor, 512));
    BATCHES("pair_1KiB_shared_ns", 41, 200, pair(KIB));
    if (!anchored) NEED(cuMemFree(anchor));
    BATCHES("async_pair_4KiB_ns", 41, 1000, async_pair(4096));
    cuStreamSynchronize(stream);
    BATCHES("async_pair_1MiB_ns", 41, 1000, async_pair(MIB));
    cuStreamSynchronize(stream);
}

static int turn(void) {
    char answer[16];
    printf("done\n");
    fflush(stdout);
    return fgets(answer, sizeof answer, stdin) != NULL;
}

int main(int words, char **word) {
    if (words < 2) return 2;
    begin();
    if (!strcmp(word[1], "first")) {
        CUdeviceptr at;
        double start = now_ns();
        NEED(cuMemAlloc(&at, MIB));
        double middle = now_ns();
        NEED(cuMemAlloc(&at, 4 * MIB));
        printf("time first_ns %.0f\ntime second_ns %.0f\n", middle - start, now_ns() - middle);
        NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        start = now_ns();
        NEED(cuMemAllocAsync(&at, MIB, stream));
        printf("time first_async_ns %.0f\n", now_ns() - start);
        start = now_ns();
        CUfunction nothing = plain("nothing");
        printf("time module_ns %.0f\n", now_ns() - start);
        start = now_ns();
        NEED(launch(nothing, 0, 0, stream));
        printf("time first_launch_ns %.0f\n", now_ns() - start);
        return 0;
    }
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUfunction nothing = plain("nothing");
    int live = words > 2 ? atoi(word[2]) : 0, is_short = !strcmp(word[1], "short");
    CUdeviceptr at;
    for (int i = 0; i < live; i++) NEED(cuMemAlloc(&at, KIB));
    pairs(live);
    while (turn()) {
        if (is_short) short_pairs(0);
        else pairs(live);
        if (live) continue;
        size_t available, total;
        BATCHES("launch_ns", 41, 500, launch(nothing, 0, 0, stream));
        cuStreamSynchronize(stream);
        BATCHES("mem_get_info_ns", 21, 50, cuMemGetInfo(&available, &total));
    }
    return 0;
}
