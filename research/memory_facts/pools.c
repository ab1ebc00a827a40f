// Stream-ordered allocation: what pools hold, when they grow and when they give back.

static unsigned long long pool_value(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    return cuMemPoolGetAttribute(pool, attribute, &value) ? ~0ull : value;
}

static void pool_fields(CUmemoryPool pool) {
    field("reserved", "%llu", pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    field("in_use", "%llu", pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
}

#define POOL_STEP(pool, call, ...) do { CUresult p_ = (call); pool_fields(pool); mark(p_, __VA_ARGS__); } while (0)

static CUresult pool_threshold(CUmemoryPool pool, unsigned long long bytes) {
    cuuint64_t value = bytes;
    return cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
}

static CUmemoryPool pool_make(unsigned long long most, CUmemAllocationHandleType handles) {
    CUmemPoolProps property = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = handles, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .maxSize = most};
    CUmemoryPool pool;
    NEED(cuMemPoolCreate(&pool, &property));
    return pool;
}

static void pool_default(char **arguments) {
    start();
    static const unsigned long long sizes[] = {KIB, MIB, 20 * MIB, 40 * MIB, 100 * MIB};
    CUmemoryPool pool;
    CUstream stream;
    STEP(cuDeviceGetDefaultMemPool(&pool, 0), "cuDeviceGetDefaultMemPool");
    STEP(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
    for (int keep = 0; keep < 2; keep++) {
        POOL_STEP(pool, pool_threshold(pool, keep ? ~0ull : 0), "release threshold %s", keep ? "2^64-1" : "0");
        CUdeviceptr at[5];
        for (int i = 0; i < 5; i++) {
            CUresult result = cuMemAllocAsync(&at[i], sizes[i], stream);
            field("modulo", "%llu", at[i] % PIECE);
            POOL_STEP(pool, result, "%llu KiB", sizes[i] / KIB);
        }
        POOL_STEP(pool, cuStreamSynchronize(stream), "synchronized");
        for (int i = 0; i < 5; i++) POOL_STEP(pool, cuMemFreeAsync(at[i], stream), "freed %llu KiB", sizes[i] / KIB);
        POOL_STEP(pool, cuStreamSynchronize(stream), "stream synchronized");
        POOL_STEP(pool, cuMemAllocAsync(&at[0], 50 * MIB, stream), "50 MiB");
        POOL_STEP(pool, cuMemFreeAsync(at[0], stream), "freed");
        POOL_STEP(pool, cuCtxSynchronize(), "context synchronized");
        POOL_STEP(pool, cuMemAllocAsync(&at[0], KIB, stream), "1 KiB");
        POOL_STEP(pool, cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo(0) with 1 KiB in use");
        POOL_STEP(pool, cuMemFree(at[0]), "cuMemFree of it");
        POOL_STEP(pool, cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo(0)");
    }
    // Freed but not yet reached by the stream: does trimming wait, or leave it?
    CUdeviceptr waiting;
    NEED(cuMemAllocAsync(&waiting, 64 * MIB, stream));
    launch(plain("spin"), 300000000, 0, stream);
    POOL_STEP(pool, cuMemFreeAsync(waiting, stream), "64 MiB freed behind a kernel that runs");
    double begin = now_ns();
    CUresult result = cuMemPoolTrimTo(pool, 0);
    field("ms", "%.1f", (now_ns() - begin) / 1e6);
    POOL_STEP(pool, result, "cuMemPoolTrimTo(0) meanwhile");
    POOL_STEP(pool, cuStreamSynchronize(stream), "synchronized");
    POOL_STEP(pool, cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo(0)");
    // Does a plain allocation that fails take back what a pool keeps?
    size_t available, total;
    NEED(cuMemAllocAsync(&waiting, 4 * GIB, stream));
    NEED(cuMemFreeAsync(waiting, stream));
    POOL_STEP(pool, cuStreamSynchronize(stream), "4 GiB freed and kept by the pool");
    cuMemGetInfo(&available, &total);
    CUdeviceptr most;
    POOL_STEP(pool, cuMemAlloc(&most, available + 2 * GIB), "cuMemAlloc of 2 GiB more than is free");
}

// Who gives back kept memory when another call needs it, and what each call answers where there is none.
static void pool_pressure(char **arguments) {
    start();
    CUmemoryPool pool;
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    pool_threshold(pool, ~0ull);
    CUdeviceptr at, filler;
    size_t available, total;
    for (int way = 0; way < 5; way++) {
        pool_threshold(pool, ~0ull);
        NEED(cuMemAllocAsync(&at, 4 * GIB, 0));
        NEED(cuMemFreeAsync(at, 0));
        POOL_STEP(pool, cuCtxSynchronize(), "4 GiB kept by the pool");
        cuMemGetInfo(&available, &total);
        NEED(cuMemAlloc(&filler, (available - 100 * MIB) / PIECE * PIECE));
        POOL_STEP(pool, 0, "all but 100 MiB taken");
        double begin = now_ns();
        CUresult result = 0;
        CUmemGenericAllocationHandle handle = 0;
        CUarray array = NULL;
        CUmemoryPool other = NULL;
        CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        CUDA_ARRAY_DESCRIPTOR description = {.Width = 16384, .Height = 16384, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
        static const char *names[] = {"cuMemAlloc(2 GiB)", "cuMemCreate(2 GiB)", "cuArrayCreate(4 GiB)", "cuMemAllocFromPoolAsync(2 GiB), another pool", "cuCtxSetLimit(STACK_SIZE, 8 KiB)"};
        at = 0;
        if (way == 0) result = cuMemAlloc(&at, 2 * GIB);
        if (way == 1) result = cuMemCreate(&handle, 2 * GIB, &property, 0);
        if (way == 2) result = cuArrayCreate(&array, &description);
        if (way == 3) other = pool_make(0, CU_MEM_HANDLE_TYPE_NONE), result = cuMemAllocFromPoolAsync(&at, 2 * GIB, other, 0);
        if (way == 4) result = cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192);
        field("ms", "%.2f", (now_ns() - begin) / 1e6);
        POOL_STEP(pool, result, "%s", names[way]);
        CUdeviceptr none;
        if (way == 4) POOL_STEP(pool, pool_threshold(pool, 0), "release threshold 0");
        POOL_STEP(pool, cuMemAllocAsync(&none, 8 * GIB, 0), "cuMemAllocAsync(8 GiB), no room");
        POOL_STEP(pool, cuCtxSynchronize(), "synchronized");
        STEP(cuMemAllocManaged(&none, 8 * GIB, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged(8 GiB), no room, not touched");
        STEP(cuMemFree(none), "freed");
        if (at) cuMemFree(at);
        if (handle) cuMemRelease(handle);
        if (array) cuArrayDestroy(array);
        cuMemFree(filler);
        cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024);
        cuCtxSynchronize();
        if (other) cuMemPoolDestroy(other);
        begin = now_ns();
        cuMemPoolTrimTo(pool, 0);
        field("ms", "%.2f", (now_ns() - begin) / 1e6);
        POOL_STEP(pool, 0, "trimmed");
    }
}

// A fresh pool for each size: what the first allocation makes it hold.
static void pool_growth(char **arguments) {
    start();
    static const double mib[] = {0.0001, 1, 2, 3, 31, 31.5, 32, 32.0001, 33, 34, 35, 48, 63, 64, 64.0001, 65, 66, 67, 96, 97, 98, 100, 127, 128, 129, 255, 256, 257, 500, 1000, 1001, 1023.5, 1024, 1025, 3000, 4097};
    for (unsigned i = 0; i < sizeof mib / sizeof *mib; i++) {
        CUmemoryPool pool = pool_make(0, CU_MEM_HANDLE_TYPE_NONE);
        CUdeviceptr at = 0;
        unsigned long long bytes = mib[i] * MIB;
        long long before = nvml_own();
        CUresult result = cuMemAllocFromPoolAsync(&at, bytes, pool, 0);
        field("r", "%d", result);
        field("asked", "%llu", bytes);
        pool_fields(pool);
        field("taken", "%lld", nvml_own() - before);
        field("modulo_32mib", "%llu", at % (32 * MIB));
        cuMemFreeAsync(at, 0);
        cuCtxSynchronize();
        field("after_free", "%llu", pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
        cuMemPoolDestroy(pool);
        field("left", "%lld", nvml_own() - before);
        say("%g MiB", mib[i]);
    }
}

// Pools that grow allocation by allocation: the steps.
static void pool_steps(char **arguments) {
    start();
    static const unsigned long long sizes[] = {512, 100 * KIB, MIB, 3 * MIB, 10 * MIB, 20 * MIB, 33 * MIB, 60 * MIB, 100 * MIB};
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        CUmemoryPool pool = pool_make(0, CU_MEM_HANDLE_TYPE_NONE);
        pool_threshold(pool, ~0ull);
        long long before = nvml_own();
        unsigned long long reserved = 0;
        static CUdeviceptr at[4000];
        int count = sizes[s] < MIB ? 4000 : sizes[s] < 20 * MIB ? 100 : 30, disagree = 0;
        char steps[8192] = "";
        for (int i = 0; i < count; i++) {
            NEED(cuMemAllocFromPoolAsync(&at[i], sizes[s], pool, 0));
            unsigned long long holds = pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
            if (holds == reserved) continue;
            if (strlen(steps) < 8000) sprintf(steps + strlen(steps), "%s[%d,%llu]", *steps ? "," : "", i + 1, holds / MIB);
            reserved = holds;
            disagree += nvml_own() - before != (long long)reserved;
        }
        field("reserved_mib_at", "[%s]", steps);
        field("in_use", "%llu", pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
        field("nvml_disagrees", "%d", disagree);
        say("%d times %llu KiB", count, sizes[s] / KIB);
        for (int i = 0; i < count; i++) cuMemFreeAsync(at[i], 0);
        cuCtxSynchronize();
        field("kept", "%llu", pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
        cuMemPoolTrimTo(pool, 1);
        field("trimmed_to_1", "%llu", pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
        cuMemPoolDestroy(pool);
        field("left", "%lld", nvml_own() - before);
        say("all freed");
    }
}

// Random sizes in random order. Arguments: seed, threshold in MiB (-1: no end), most in MiB.
static void pool_random(char **arguments) {
    start();
    seed += 977 * strtoull(arguments[0], NULL, 10);
    long long threshold = atoll(arguments[1]);
    double most = atof(arguments[2]) * MIB;
    CUmemoryPool pool;
    CUstream stream[2];
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    NEED(cuStreamCreate(&stream[0], CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&stream[1], CU_STREAM_NON_BLOCKING));
    pool_threshold(pool, threshold < 0 ? ~0ull : threshold * MIB);
    cuCtxSynchronize();
    long long base = nvml_own(), worst = 0, worst_free = 0, base_free = cuda_free();
    int looks = 0, equal = 0, pages_equal = 0, crossing = 0;
    for (int call = 1; call <= 4000 || live_count; call++) {
        if (call <= 4000 && live_bytes < 12 * GIB && random_unit() < (call < 2500 ? 0.6 : 0.45)) {
            unsigned long long bytes = random_size(1, most);
            NEED(cuMemAllocAsync(&live[live_count].at, bytes, stream[call % 2]));
            live[live_count].bytes = bytes;
            pages(live[live_count].at, bytes, 1);
            crossing += bytes < PIECE && live[live_count].at / PIECE != (live[live_count].at + bytes - 1) / PIECE;
            live_bytes += bytes;
            live_count++;
        } else if (live_count) {
            int at = random_unit() * live_count;
            NEED(cuMemFreeAsync(live[at].at, stream[random_unit() < 0.5]));
            pages(live[at].at, live[at].bytes, -1);
            live_bytes -= live[at].bytes;
            live[at] = live[--live_count];
        }
        if (call % 50 && live_count) continue;
        if (call % 200 == 0) cuCtxSynchronize();
        long long reserved = pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        long long taken = nvml_own() - base, taken_free = base_free - cuda_free();
        if (llabs(taken - reserved) > llabs(worst)) worst = taken - reserved;
        if (llabs(taken_free - reserved) > llabs(worst_free)) worst_free = taken_free - reserved;
        looks++;
        equal += taken == reserved;
        pages_equal += page_count * (long long)PIECE == reserved;
        if (looks % 12 == 1 || !live_count) {
            field("live", "%d", live_count);
            field("asked", "%llu", live_bytes);
            field("pages", "%lld", page_count * (long long)PIECE);
            pool_fields(pool);
            field("nvml_less_reserved", "%lld", taken - reserved);
            say("after %d calls", call);
        }
    }
    cuCtxSynchronize();
    pool_fields(pool);
    field("looks", "%d", looks);
    field("equal", "%d", equal);
    field("pages_equal", "%d", pages_equal);
    field("worst", "%lld", worst);
    field("worst_free", "%lld", worst_free);
    field("crossing", "%d", crossing);
    say("random, threshold %lld MiB, up to %s MiB", threshold, arguments[2]);
    POOL_STEP(pool, cuMemPoolTrimTo(pool, 0), "trimmed");
}

static void pool_answers(CUmemoryPool pool, const char *when) {
    unsigned long long value = 0;
    CUdeviceptr at;
    field("asked", "%d", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    field("reserved", "%llu", value);
    field("allocates", "%d", cuMemAllocFromPoolAsync(&at, MIB, pool, 0));
    field("trims", "%d", cuMemPoolTrimTo(pool, 0));
    say("%s", when);
}

// What a pool's handle is good for when its context is gone, and when it is destroyed itself. The last question may end the process.
static void pool_gone(char **arguments) {
    start();
    CUmemoryPool pool = pool_make(0, CU_MEM_HANDLE_TYPE_NONE);
    CUdeviceptr at;
    CUcontext context;
    NEED(cuMemAllocFromPoolAsync(&at, MIB, pool, 0));
    pool_answers(pool, "a pool");
    NEED(cuDevicePrimaryCtxReset(0));
    pool_answers(pool, "its context is reset");
    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cuCtxSetCurrent(context));
    pool_answers(pool, "in a new context");
    NEED(cuMemPoolDestroy(pool));
    pool_answers(pool, "destroyed in use");
    pool = pool_make(0, CU_MEM_HANDLE_TYPE_NONE);
    NEED(cuMemPoolDestroy(pool));
    pool_answers(pool, "another, destroyed");
    // Other things take its place in the host's memory.
    for (int i = 0; i < 60000; i++) memset(malloc(16 + i % 3000), 0xff, 16 + i % 3000);
    field("destroyed_again", "%d", cuMemPoolDestroy(pool));
    say("with other things in its place");
    pool_answers(pool, "and asked");
}

static void pool_made(char **arguments) {
    start();
    static const unsigned long long bounds[] = {0, 1, 2 * MIB, 33 * MIB, 64 * MIB, 100 * MIB};
    for (unsigned b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        CUmemPoolProps property = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .maxSize = bounds[b]};
        CUmemoryPool pool = NULL;
        STEP(cuMemPoolCreate(&pool, &property), "cuMemPoolCreate, at most %llu KiB", bounds[b] / KIB);
        if (!pool) continue;
        CUdeviceptr at[5] = {0};
        for (int i = 0; i < 5; i++) POOL_STEP(pool, cuMemAllocFromPoolAsync(&at[i], i ? 30 * MIB : KIB, pool, 0), "%s", i ? "30 MiB" : "1 KiB");
        // Destroyed while in use.
        STEP(cuMemPoolDestroy(pool), "cuMemPoolDestroy with all in use");
        for (int i = 0; i < 5; i++) if (at[i]) cuMemFreeAsync(at[i], 0);
        STEP(cuCtxSynchronize(), "freed and synchronized");
    }
    CUmemPoolProps there = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_HOST}};
    CUmemoryPool pool = NULL;
    CUdeviceptr at;
    STEP(cuMemPoolCreate(&pool, &there), "a pool of host memory");
    if (pool) {
        POOL_STEP(pool, cuMemAllocFromPoolAsync(&at, 100 * MIB, pool, 0), "100 MiB");
        STEP(cuCtxSynchronize(), "synchronized");
    }
    // The current pool of a device: what cuMemAllocAsync takes from.
    pool = pool_make(0, CU_MEM_HANDLE_TYPE_NONE);
    CUmemoryPool usual, current;
    STEP(cuDeviceSetMemPool(0, pool), "cuDeviceSetMemPool");
    STEP(cuMemAllocAsync(&at, 10 * MIB, 0), "cuMemAllocAsync");
    cuDeviceGetDefaultMemPool(&usual, 0);
    cuDeviceGetMemPool(&current, 0);
    field("default", "%llu", pool_value(usual, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    field("current_is_own", "%d", current == pool);
    POOL_STEP(pool, 0, "the pool set");
    CUmemoryPool of = NULL;
    CUresult result = cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at);
    field("r", "%d", result);
    field("right", "%d", of == pool);
    say("CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE");
    // No context: does a pool work, and where is the memory then?
    STEP(cuCtxSetCurrent(NULL), "no context current");
    STEP(cuMemAllocFromPoolAsync(&at, 10 * MIB, pool, 0), "cuMemAllocFromPoolAsync without a context");
    unsigned long long value;
    field("r", "%d", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    say("cuMemPoolGetAttribute without a context");
}
