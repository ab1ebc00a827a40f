// cuMemAlloc, cuMemAllocPitch, managed and host memory.

static const unsigned long long linear_asked[] = {
    1, 512, 4 * KIB, 64 * KIB, 512 * KIB, MIB - 1, MIB, MIB + 1, 3 * MIB / 2, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 3 * MIB,
    4 * MIB, 5 * MIB, 100 * MIB + 1,
};
#define LINEAR_ASKED (sizeof linear_asked / sizeof *linear_asked)

// Each size alone, then two of it; all given back before the next.
static void linear_sizes(char **arguments) {
    start();
    for (unsigned i = 0; i < LINEAR_ASKED; i++) {
        CUdeviceptr one = 0, two = 0;
        CUresult result = cuMemAlloc(&one, linear_asked[i]);
        field("modulo", "%llu", one % PIECE);
        mark(result, "%llu B", linear_asked[i]);
        result = cuMemAlloc(&two, linear_asked[i]);
        field("apart", "%lld", (long long)(two - one));
        mark(result, "%llu B, a second one", linear_asked[i]);
        STEP(cuMemFree(one), "first freed");
        STEP(cuMemFree(two), "second freed");
    }
    CUdeviceptr none;
    field("address", "%d", 0);
    STEP(cuMemAlloc(&none, 0), "0 B");
    STEP(cuMemAlloc(&none, 1ull << 50), "1 PiB");
    STEP(cuMemAlloc(&none, ~0ull), "2^64-1 B");
}

// Each size three times, nothing given back until the end.
static void linear_keep(char **arguments) {
    start();
    CUdeviceptr kept[3 * LINEAR_ASKED], first = 0;
    for (unsigned i = 0; i < 3 * LINEAR_ASKED; i++) {
        CUresult result = cuMemAlloc(&kept[i], linear_asked[i / 3]);
        if (!first) first = kept[i] - kept[i] % PIECE;
        field("at_piece", "%.6f", (double)(long long)(kept[i] - first) / PIECE);
        mark(result, "%llu B", linear_asked[i / 3]);
    }
    for (unsigned i = 0; i < 3 * LINEAR_ASKED; i += 2) cuMemFree(kept[i]);
    mark(0, "every second one freed");
    for (unsigned i = 1; i < 3 * LINEAR_ASKED; i += 2) cuMemFree(kept[i]);
    mark(0, "all freed");
}

#define LIVE_MOST 20000
static struct { CUdeviceptr at; unsigned long long bytes; } live[LIVE_MOST];
static int live_count;
static unsigned long long live_bytes;

// Random sizes in random order. Is the number of distinct pages of 2 MiB what NVML says, at every look?
// Arguments: seed, least, most (bytes), calls, calls between looks, "pitch" for cuMemAllocPitch.
static void linear_random(char **arguments) {
    start();
    seed += 977 * strtoull(arguments[0], NULL, 10);
    double least = strtod(arguments[1], NULL), most = strtod(arguments[2], NULL);
    int calls = atoi(arguments[3]), between = atoi(arguments[4]);
    int pitched = arguments[5] && !strcmp(arguments[5], "pitch");
    long long base = nvml_own(), base_free = cuda_free(), worst = 0, worst_free = 0;
    int looks = 0, equal = 0, crossing = 0, odd_large = 0;
    unsigned long long least_crossing = 0, most_inside_small = 0, largest_unaligned = 0;
    int growing = 1;
    for (int call = 1; call <= calls || live_count; call++) {
        int ending = call > calls;
        if (live_bytes > 12 * GIB || live_count == LIVE_MOST) growing = 0;
        if (live_count < 20) growing = 1;
        if (!ending && random_unit() < (growing ? 0.6 : 0.4)) {
            unsigned long long bytes = random_size(least, most);
            CUdeviceptr at;
            size_t pitch_bytes;
            if (pitched) {
                unsigned long long width = random_size(1, 1 + bytes / 2), rows = bytes / width + 1;
                if (width > 4 * MIB || rows > 65000 || cuMemAllocPitch(&at, &pitch_bytes, width, rows, 4)) continue;
                bytes = pitch_bytes * rows;
            } else NEED(cuMemAlloc(&at, bytes));
            pages(at, bytes, 1);
            if (bytes < PIECE && at / PIECE != (at + bytes - 1) / PIECE) {
                crossing++;
                if (!least_crossing || bytes < least_crossing) least_crossing = bytes;
            }
            if (at % PIECE && bytes > most_inside_small) most_inside_small = bytes;
            if (at % 512 && bytes > largest_unaligned) largest_unaligned = bytes;
            if (bytes >= PIECE && at % PIECE) odd_large++;
            live[live_count].at = at;
            live[live_count++].bytes = bytes;
            live_bytes += bytes;
        } else if (live_count) {
            int at = random_unit() * live_count;
            NEED(cuMemFree(live[at].at));
            pages(live[at].at, live[at].bytes, -1);
            live_bytes -= live[at].bytes;
            live[at] = live[--live_count];
        }
        if (call % between && live_count) continue;
        long long taken = nvml_own() - base, taken_free = base_free - cuda_free();
        long long off = taken - page_count * (long long)PIECE, off_free = taken_free - page_count * (long long)PIECE;
        if (llabs(off) > llabs(worst)) worst = off;
        if (llabs(off_free) > llabs(worst_free)) worst_free = off_free;
        looks++;
        equal += !off;
        if (looks % 10 == 1 || !live_count) {
            field("live", "%d", live_count);
            field("asked", "%llu", live_bytes);
            field("pages", "%lld", page_count * (long long)PIECE);
            field("nvml_less_pages", "%lld", off);
            field("taken_less_pages", "%lld", off_free);
            say("after %d calls", call);
        }
    }
    field("looks", "%d", looks);
    field("equal", "%d", equal);
    field("worst", "%lld", worst);
    field("worst_free", "%lld", worst_free);
    field("crossing", "%d", crossing);
    field("least_crossing", "%llu", least_crossing);
    field("largest_not_at_a_piece", "%llu", most_inside_small);
    field("largest_not_at_512", "%llu", largest_unaligned);
    field("large_not_at_a_piece", "%d", odd_large);
    say("random, %s to %s B", arguments[1], arguments[2]);
}

// Call by call, for finding the rule elsewhere: the file named gets +size or -size, address, NVML, free.
static void linear_trace(char **arguments) {
    start();
    FILE *file = fopen(arguments[0], "w");
    if (!file) exit(4);
    long long base = nvml_own(), base_free = cuda_free();
    for (int call = 0; call < 1500; call++) {
        int take = call < 1000 && random_unit() < (call < 500 ? 0.75 : 0.45);
        if (!take && !live_count) continue;
        if (take) {
            live[live_count].bytes = random_size(1, 6 * MIB);
            NEED(cuMemAlloc(&live[live_count].at, live[live_count].bytes));
            fprintf(file, "%llu %llx", live[live_count].bytes, live[live_count].at);
            live_count++;
        } else {
            int at = random_unit() * live_count;
            NEED(cuMemFree(live[at].at));
            fprintf(file, "-%llu %llx", live[at].bytes, live[at].at);
            live[at] = live[--live_count];
        }
        fprintf(file, " %lld %lld\n", nvml_own() - base, base_free - cuda_free());
    }
    fclose(file);
    say("trace written");
}

static void pitch(char **arguments) {
    start();
    static const struct { size_t width, height; } asked[] = {{1, 1}, {1, 1000}, {100, 100}, {513, 1000}, {1000, 1000}, {5000, 5000}, {70000, 100}};
    for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++)
        for (unsigned element = 4; element <= 16; element *= 4) {
            CUdeviceptr at = 0;
            size_t bytes = 0;
            CUresult result = cuMemAllocPitch(&at, &bytes, asked[i].width, asked[i].height, element);
            field("pitch", "%zu", bytes);
            field("extent", "%zu", bytes * asked[i].height);
            field("modulo", "%llu", at % PIECE);
            mark(result, "pitch, %zu x %zu, elements of %u", asked[i].width, asked[i].height, element);
            STEP(cuMemFree(at), "freed");
        }
}

static void managed(char **arguments) {
    start();
    CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    for (int attach = 0; attach < 2; attach++) {
        CUdeviceptr at = 0;
        unsigned flags = attach ? CU_MEM_ATTACH_HOST : CU_MEM_ATTACH_GLOBAL;
        STEP(cuMemAllocManaged(&at, 64 * MIB, flags), "cuMemAllocManaged(64 MiB), flags %u", flags);
        memset((void *)at, 1, 64 * MIB);
        mark(0, "host wrote it");
        STEP(fill(at, 32 * MIB), "a kernel wrote half of it");
        STEP(cuMemsetD8(at, 3, 64 * MIB), "cuMemsetD8 of all");
        STEP(cuCtxSynchronize(), "synchronized");
        memset((void *)at, 1, 16 * MIB);
        mark(0, "host wrote a quarter");
        STEP(cuMemPrefetchAsync(at, 64 * MIB, host, 0, 0), "prefetch to the host");
        STEP(cuCtxSynchronize(), "synchronized");
        STEP(cuMemPrefetchAsync(at, 64 * MIB, device, 0, 0), "prefetch to the device");
        STEP(cuCtxSynchronize(), "synchronized");
        STEP(cuMemFree(at), "freed");
    }
    CUdeviceptr small[3];
    for (int i = 0; i < 3; i++) {
        NEED(cuMemAllocManaged(&small[i], 1000, CU_MEM_ATTACH_GLOBAL));
        field("address", "\"%#llx\"", small[i]);
        mark(0, "managed, 1000 B");
        STEP(cuMemsetD8(small[i], 3, 1000), "set on the device");
    }
    for (int i = 0; i < 3; i++) STEP(cuMemFree(small[i]), "freed");
    CUdeviceptr large;
    STEP(cuMemAllocManaged(&large, 2 * GIB, CU_MEM_ATTACH_GLOBAL), "managed, 2 GiB");
    STEP(cuMemPrefetchAsync(large, 2 * GIB, device, 0, 0), "prefetch to the device");
    STEP(cuCtxSynchronize(), "synchronized");
    STEP(cuMemFree(large), "freed");
    CUmemPoolProps property = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool = NULL;
    STEP(cuMemPoolCreate(&pool, &property), "a managed pool");
    if (!pool) return;
    STEP(cuMemAllocFromPoolAsync(&large, 64 * MIB, pool, 0), "64 MiB from it");
    STEP(cuMemsetD8(large, 3, 64 * MIB), "set on the device");
    STEP(cuCtxSynchronize(), "synchronized");
    STEP(cuMemFreeAsync(large, 0), "freed");
    STEP(cuCtxSynchronize(), "synchronized");
    STEP(cuMemPoolDestroy(pool), "pool destroyed");
}

// What managed memory takes beyond its size, one after the other and together.
static void managed_sizes(char **arguments) {
    start();
    CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    static const unsigned long long sizes[] = {4096, 2 * MIB, 3 * MIB, 32 * MIB, 64 * MIB, 100 * MIB, 500 * MIB, 1000 * MIB};
    CUdeviceptr at[8];
    for (int i = 0; i < 8; i++) {
        NEED(cuMemAllocManaged(&at[i], sizes[i], CU_MEM_ATTACH_GLOBAL));
        cuMemPrefetchAsync(at[i], sizes[i], device, 0, 0);
        mark(cuCtxSynchronize(), "%llu KiB prefetched", sizes[i] / KIB);
        STEP(cuMemFree(at[i]), "freed");
    }
    for (int i = 0; i < 8; i++) {
        NEED(cuMemAllocManaged(&at[i], sizes[i], CU_MEM_ATTACH_GLOBAL));
        cuMemPrefetchAsync(at[i], sizes[i], device, 0, 0);
        mark(cuCtxSynchronize(), "%llu KiB prefetched, kept", sizes[i] / KIB);
    }
    for (int i = 7; i >= 0; i--) STEP(cuMemFree(at[i]), "freed %llu KiB", sizes[i] / KIB);
    // Many small ones.
    static CUdeviceptr small[500];
    for (int i = 0; i < 500; i++) {
        NEED(cuMemAllocManaged(&small[i], 100 * KIB, CU_MEM_ATTACH_GLOBAL));
        cuMemsetD8(small[i], 1, 100 * KIB);
    }
    mark(cuCtxSynchronize(), "500 of 100 KiB, set on the device");
    for (int i = 0; i < 500; i++) cuMemFree(small[i]);
    mark(0, "freed");
}

static void host(char **arguments) {
    start();
    void *at, *own;
    static const unsigned flags[] = {0, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED};
    for (int i = 0; i < 3; i++) {
        STEP(cuMemHostAlloc(&at, GIB, flags[i]), "cuMemHostAlloc(1 GiB), flags %u", flags[i]);
        STEP(cuMemFreeHost(at), "freed");
    }
    own = mmap(NULL, GIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    STEP(cuMemHostRegister(own, GIB, CU_MEMHOSTREGISTER_DEVICEMAP), "cuMemHostRegister(1 GiB)");
    CUdeviceptr there = 0;
    STEP(cuMemHostGetDevicePointer(&there, own, 0), "cuMemHostGetDevicePointer");
    STEP(fill(there, GIB), "a kernel wrote it");
    STEP(cuMemHostUnregister(own), "unregistered");
}

// Memory of mmap, used by a kernel: does it move to the device?
static void pageable(char **arguments) {
    start();
    char *at = mmap(NULL, 256 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(at, 1, 256 * MIB);
    plain("fill");
    mark(0, "256 MiB of ordinary memory");
    CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    STEP(cuMemPrefetchAsync((CUdeviceptr)at, 256 * MIB, device, 0, 0), "prefetch to the device");
    STEP(cuCtxSynchronize(), "synchronized");
    STEP(fill((CUdeviceptr)at, 256 * MIB), "a kernel wrote it");
}

// cuMemAlloc + cuMemFree, with and without many live ones.
static void pair_times(char **arguments) {
    start();
    static const unsigned long long sizes[] = {KIB, MIB, 2 * MIB, 8 * MIB, 64 * MIB};
    static CUdeviceptr small[100000];
    CUdeviceptr at;
    for (int full = 0; full < 2; full++) {
        if (full) {
            double begin = now_ns();
            for (int i = 0; i < 100000; i++) NEED(cuMemAlloc(&small[i], 512));
            field("each_ns", "%.0f", (now_ns() - begin) / 1e5);
            mark(0, "100000 of 512 B");
        }
        for (unsigned s = 0; s < 5; s++) {
            double both[1000], taken[1000];
            int rounds = sizes[s] >= 2 * MIB ? 300 : 1000;
            for (int i = 0; i < rounds; i++) {
                double begin = now_ns();
                NEED(cuMemAlloc(&at, sizes[s]));
                taken[i] = now_ns() - begin;
                NEED(cuMemFree(at));
                both[i] = now_ns() - begin;
            }
            field("alloc_ns", "%.0f", median(taken, rounds));
            field("pair_ns", "%.0f", median(both, rounds));
            say("%llu KiB, %d live", sizes[s] / KIB, full * 100000);
        }
    }
    double begin = now_ns();
    for (int i = 0; i < 100000; i++) cuMemFree(small[i]);
    field("each_ns", "%.0f", (now_ns() - begin) / 1e5);
    mark(0, "all freed");
}
