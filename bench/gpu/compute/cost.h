// What launching a kernel that does nothing takes the program, through whatever stands before the driver and from the
// driver itself, in turns: each by itself, a batch of them, and the first on an idle stream.
#include <elf.h>
#include <link.h>

typedef CUresult (*launch_way)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

struct sought { const char *name; void *found; };

// Finds a function in the driver's own table of symbols, which nothing that is preloaded changes.
static int look_into(struct dl_phdr_info *library, size_t size, void *argument) {
    (void)size;
    struct sought *sought = argument;
    const Elf64_Sym *symbols = NULL;
    const char *names = NULL;
    const uint32_t *hashes = NULL;
    if (!strstr(library->dlpi_name, "libcuda.so")) return 0;
    for (int i = 0; i < library->dlpi_phnum; i++) {
        if (library->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        for (const Elf64_Dyn *one = (void *)(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr); one->d_tag != DT_NULL; one++) {
            // glibc has made addresses of them.
            const void *at = (void *)(one->d_un.d_ptr < library->dlpi_addr ? library->dlpi_addr + one->d_un.d_ptr : one->d_un.d_ptr);
            if (one->d_tag == DT_SYMTAB) symbols = at;
            if (one->d_tag == DT_STRTAB) names = at;
            if (one->d_tag == DT_GNU_HASH) hashes = at;
        }
    }
    if (!symbols || !names || !hashes) return 0;
    uint32_t hash = 5381, buckets = hashes[0], first = hashes[1];
    for (const char *c = sought->name; *c; c++) hash = hash * 33 + (unsigned char)*c;
    const uint32_t *bucket = hashes + 4 + 2 * hashes[2], *chain = bucket + buckets;
    for (uint32_t i = bucket[hash % buckets]; i >= first; i++) {
        if ((chain[i - first] | 1) == (hash | 1) && !strcmp(names + symbols[i].st_name, sought->name)) {
            sought->found = (void *)(library->dlpi_addr + symbols[i].st_value);
            return 1;
        }
        if (chain[i - first] & 1) break;
    }
    return 0;
}

enum { BATCH = 256, TIMES = 200 };
static const char *const cost_names[] = {"batch", "each", "first"};

// Nanoseconds a launch, of one round.
static double cost_of(launch_way way, int kind, CUfunction nothing, CUstream stream, double *each) {
#define ONE() NEED(way(nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL))
    double begun, took = 0;
    NEED(cuStreamSynchronize(stream));
    if (kind == 2) {
        begun = now_ns();
        ONE();
        return now_ns() - begun;
    }
    // The first on an idle stream is another thing.
    ONE();
    begun = now_ns();
    for (int k = 0; k < BATCH; k++) {
        double since = kind == 1 ? now_ns() : 0;
        ONE();
        if (kind == 1) each[k] = now_ns() - since;
    }
    took = (now_ns() - begun) / BATCH;
    if (kind == 1) {
        sort(each, BATCH);
        took = part(each, BATCH, 0.5);
    }
    return took;
#undef ONE
}

static void cost(void) {
    static double taken[2][TIMES], more[TIMES], each[BATCH];
    CUstream stream;
    struct sought sought = {"cuLaunchKernel", NULL};
    CUfunction nothing = function("nothing");
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    dl_iterate_phdr(look_into, &sought);
    launch_way ways[2] = {(launch_way)sought.found, cuLaunchKernel};
    if (!sought.found) {
        printf("{\"error\":\"the driver's own cuLaunchKernel was not found\"}\n");
        return;
    }
    printf("{\"is_bare\":%s", ways[0] == ways[1] ? "true" : "false");
    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < TIMES; i++) {
            for (int turn = 0; turn < 2; turn++) {
                int way = (turn + i) % 2;
                taken[way][i] = cost_of(ways[way], kind, nothing, stream, each);
            }
            more[i] = taken[1][i] - taken[0][i];
        }
        for (int way = 0; way < 2; way++) sort(taken[way], TIMES);
        sort(more, TIMES);
        printf(",\"%s\":{\"driver\":[%.1f,%.1f,%.1f],\"launch\":[%.1f,%.1f,%.1f],\"more\":[%.1f,%.1f,%.1f]}", cost_names[kind],
            part(taken[0], TIMES, 0.1), part(taken[0], TIMES, 0.5), part(taken[0], TIMES, 0.9), part(taken[1], TIMES, 0.1), part(taken[1], TIMES, 0.5), part(taken[1], TIMES, 0.9), part(more, TIMES, 0.1), part(more, TIMES, 0.5), part(more, TIMES, 0.9));
    }
    printf("}\n");
    NEED(cuStreamSynchronize(stream));
    NEED(cuStreamDestroy(stream));
}
