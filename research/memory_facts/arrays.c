// CUDA arrays: how much more than width x height x depth x bytes they take, and what they share.

struct array_asked { size_t width, height, depth; CUarray_format format; unsigned channels, flags; const char *name; };

static unsigned array_element(const struct array_asked *asked) {
    return asked->channels * (asked->format == CU_AD_FORMAT_FLOAT ? 4 : asked->format == CU_AD_FORMAT_HALF ? 2 : 1);
}

static unsigned long long array_bytes(const struct array_asked *asked) {
    return array_element(asked) * asked->width * (asked->height ? asked->height : 1) * (asked->depth ? asked->depth : 1);
}

static CUresult array_make(CUarray *array, const struct array_asked *asked) {
    CUDA_ARRAY3D_DESCRIPTOR description = {.Width = asked->width, .Height = asked->height, .Depth = asked->depth, .Format = asked->format, .NumChannels = asked->channels, .Flags = asked->flags};
    return cuArray3DCreate(array, &description);
}

// What an array would need, asked of one that is never given memory.
static unsigned long long array_required(const struct array_asked *asked) {
    struct array_asked twin = *asked;
    twin.flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
    CUarray array;
    CUDA_ARRAY_MEMORY_REQUIREMENTS required = {0};
    if (array_make(&array, &twin)) return 0;
    cuArrayGetMemoryRequirements(&required, array, 0);
    cuArrayDestroy(array);
    return required.size;
}

#define F CU_AD_FORMAT_FLOAT
#define H CU_AD_FORMAT_HALF
#define B CU_AD_FORMAT_UNSIGNED_INT8
static const struct array_asked array_list[] = {
    {64, 0, 0, F, 1, 0, "1D"}, {16384, 0, 0, F, 4, 0, "1D"},
    {1, 1, 0, B, 1, 0, "2D"}, {64, 64, 0, F, 1, 0, "2D"}, {100, 100, 0, F, 1, 0, "2D"}, {513, 511, 0, B, 1, 0, "2D"},
    {1000, 1000, 0, F, 1, 0, "2D"}, {1024, 1024, 0, F, 1, 0, "2D"}, {1024, 1025, 0, F, 1, 0, "2D"}, {1025, 1024, 0, F, 1, 0, "2D"},
    {1024, 1024, 0, F, 1, CUDA_ARRAY3D_SURFACE_LDST, "2D, surface"}, {1024, 1024, 0, F, 1, CUDA_ARRAY3D_TEXTURE_GATHER, "2D, gather"},
    {1920, 1080, 0, B, 4, 0, "2D"}, {2000, 3, 0, F, 4, 0, "2D"}, {3, 20000, 0, F, 4, 0, "2D"}, {1, 60000, 0, F, 1, 0, "2D"}, {30000, 1, 0, F, 4, 0, "2D"},
    {4096, 4096, 0, F, 4, 0, "2D"}, {5000, 5000, 0, F, 1, 0, "2D"}, {5001, 3333, 0, H, 1, 0, "2D"},
    {16, 16, 16, F, 1, 0, "3D"}, {100, 100, 100, F, 1, 0, "3D"}, {256, 256, 256, F, 1, 0, "3D"}, {256, 256, 256, F, 1, CUDA_ARRAY3D_SURFACE_LDST, "3D, surface"},
    {257, 257, 257, F, 1, 0, "3D"}, {1000, 10, 10, F, 4, 0, "3D"}, {3, 3, 3000, B, 1, 0, "3D"},
    {64, 64, 10, F, 1, CUDA_ARRAY3D_LAYERED, "layered"}, {1000, 1000, 7, F, 1, CUDA_ARRAY3D_LAYERED, "layered"}, {1000, 0, 7, F, 1, CUDA_ARRAY3D_LAYERED, "1D layered"},
    {256, 256, 6, F, 1, CUDA_ARRAY3D_CUBEMAP, "cubemap"}, {300, 300, 12, F, 4, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED, "cubemap, layered"},
    {4096, 4096, 0, F, 4, CUDA_ARRAY3D_SPARSE, "2D, sparse"}, {256, 256, 256, F, 1, CUDA_ARRAY3D_SPARSE, "3D, sparse"},
    {4096, 4096, 0, F, 4, CUDA_ARRAY3D_DEFERRED_MAPPING, "2D, deferred"}, {5000, 5000, 0, F, 1, CUDA_ARRAY3D_DEFERRED_MAPPING, "2D, deferred"},
    {257, 257, 257, F, 1, CUDA_ARRAY3D_DEFERRED_MAPPING, "3D, deferred"}, {64, 64, 0, F, 1, CUDA_ARRAY3D_DEFERRED_MAPPING, "2D, deferred"},
};
#undef F
#undef H
#undef B
#define ARRAY_LIST (sizeof array_list / sizeof *array_list)

// Each alone; then a second while the first lives.
static void arrays(char **arguments) {
    start();
    for (unsigned i = 0; i < ARRAY_LIST; i++) {
        const struct array_asked *asked = &array_list[i];
        CUarray one = NULL, two = NULL;
        long long before = nvml_own();
        CUresult result = array_make(&one, asked);
        long long first = nvml_own();
        CUDA_ARRAY_MEMORY_REQUIREMENTS required = {0};
        CUresult asking = one ? cuArrayGetMemoryRequirements(&required, one, 0) : CUDA_ERROR_UNKNOWN;
        field("r", "%d", result);
        field("bytes", "%llu", array_bytes(asked));
        field("taken", "%lld", first - before);
        field("requirements", "[%d,%zu,%zu]", asking, required.size, required.alignment);
        field("twin_requires", "%llu", array_required(asked));
        if (!result) {
            array_make(&two, asked);
            field("second", "%lld", nvml_own() - first);
            if (two) cuArrayDestroy(two);
            cuArrayDestroy(one);
        }
        field("left", "%lld", nvml_own() - before);
        say("%s %zux%zux%zu, %u B", asked->name, asked->width, asked->height, asked->depth, array_element(asked));
    }
    CUDA_ARRAY_DESCRIPTOR plain_array = {.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    STEP(cuArrayCreate(&array, &plain_array), "cuArrayCreate 1024x1024 float");
    STEP(cuArrayDestroy(array), "destroyed");
    // What is mapped into a deferred one is the memory of cuMemCreate.
    CUDA_ARRAY3D_DESCRIPTOR deferred = {.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = CUDA_ARRAY3D_DEFERRED_MAPPING};
    CUDA_ARRAY_MEMORY_REQUIREMENTS required;
    if (cuArray3DCreate(&array, &deferred) || cuArrayGetMemoryRequirements(&required, array, 0)) return;
    CUmemAllocationProp property = mapped_property(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_NONE);
    property.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
    CUmemGenericAllocationHandle handle;
    STEP(cuMemCreate(&handle, (required.size + PIECE - 1) / PIECE * PIECE, &property, 0), "cuMemCreate for a deferred array");
    CUarrayMapInfo map = {.resourceType = CU_RESOURCE_TYPE_ARRAY, .resource = {.array = array}, .memOperationType = CU_MEM_OPERATION_TYPE_MAP, .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC, .memHandle = {.memHandle = handle}, .deviceBitMask = 1};
    STEP(cuMemMapArrayAsync(&map, 1, 0), "cuMemMapArrayAsync");
    STEP(cuMemRelease(handle), "handle released");
    STEP(cuArrayDestroy(array), "array destroyed");
    STEP(cuCtxSynchronize(), "synchronized");
}

// Many small ones, with and without plain allocations between them: do they share pieces, and when are pieces given back?
static void arrays_many(char **arguments) {
    start();
    static CUarray made[2000];
    static const struct array_asked kinds[] = {
        {64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0, "64x64 float"}, {1, 1, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, "1x1 byte"},
        {300, 300, 0, CU_AD_FORMAT_FLOAT, 1, 0, "300x300 float"}, {1000, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0, "1000 float"},
        {700, 700, 0, CU_AD_FORMAT_FLOAT, 1, 0, "700x700 float"},
    };
    for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int count = k == 4 ? 100 : 1000;
        long long before = nvml_own();
        for (int i = 0; i < count; i++) NEED(array_make(&made[i], &kinds[k]));
        field("bytes_each", "%llu", array_bytes(&kinds[k]));
        field("taken_each", "%.1f", (double)(nvml_own() - before) / count);
        mark(0, "%d of %s", count, kinds[k].name);
        for (int i = 0; i < count; i++) cuArrayDestroy(made[i]);
        mark(0, "destroyed");
    }
    CUdeviceptr small, other;
    STEP(cuMemAlloc(&small, 512), "cuMemAlloc(512)");
    STEP(array_make(&made[0], &kinds[0]), "a small array");
    STEP(array_make(&made[1], &kinds[0]), "another");
    STEP(cuMemAlloc(&other, 512), "cuMemAlloc(512)");
    STEP(cuMemFree(small), "freed");
    STEP(cuMemFree(other), "freed: only arrays are left");
    STEP(cuArrayDestroy(made[0]), "destroyed");
    STEP(cuArrayDestroy(made[1]), "destroyed");
    // Random ones: taken against two simple rules.
    for (int large = 0; large < 2; large++) {
        unsigned long long bytes = 0, rounded = 0, required = 0;
        long long before = nvml_own(), worst = 0;
        int count = 0, more = 0;
        for (int i = 0; i < 500; i++) {
            struct array_asked asked = {random_size(large ? 300 : 1, 3000), random_size(large ? 300 : 1, 3000), 0, CU_AD_FORMAT_FLOAT, 1, 0, ""};
            unsigned long long each = (array_required(&asked) + PIECE - 1) / PIECE * PIECE;
            long long held = nvml_own();
            if (array_make(&made[count], &asked)) continue;
            // Was it ever more than its own requirement, rounded up?
            held = nvml_own() - held - (long long)each;
            more += held > 0;
            if (held > worst) worst = held;
            count++;
            bytes += array_bytes(&asked);
            rounded += (array_bytes(&asked) + PIECE - 1) / PIECE * PIECE;
            required += each;
        }
        field("bytes", "%llu", bytes);
        field("rounded_to_2mib", "%llu", rounded);
        field("required_rounded", "%llu", required);
        field("took_more", "%d", more);
        field("worst", "%lld", worst);
        field("taken", "%lld", nvml_own() - before);
        mark(0, "%d random ones", count);
        for (int i = 0; i < count; i++) cuArrayDestroy(made[i]);
        mark(0, "destroyed");
    }
    TIME("a twin made, asked and destroyed", 1, array_required(&kinds[0]) == 0);
    CUarray again;
    TIME("a small array made and destroyed", 1, array_make(&again, &kinds[0]) || cuArrayDestroy(again));
    // How the small ones are placed: the size from which each takes pieces of its own.
    for (unsigned side = 64; side <= 1024; side += 64) {
        struct array_asked asked = {side, side, 0, CU_AD_FORMAT_FLOAT, 1, 0, ""};
        long long before = nvml_own();
        for (int i = 0; i < 40; i++) NEED(array_make(&made[i], &asked));
        field("bytes", "%llu", array_bytes(&asked));
        field("required", "%llu", array_required(&asked));
        field("taken_each", "%lld", (nvml_own() - before) / 40);
        say("40 of %ux%u float", side, side);
        for (int i = 0; i < 40; i++) cuArrayDestroy(made[i]);
    }
}

static void mipmaps(char **arguments) {
    start();
    static const struct array_asked list[] = {
        {64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0, "2D"}, {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0, "2D"}, {4096, 4096, 0, CU_AD_FORMAT_FLOAT, 4, 0, "2D"},
        {1000, 1000, 0, CU_AD_FORMAT_FLOAT, 1, 0, "2D"}, {256, 256, 256, CU_AD_FORMAT_FLOAT, 1, 0, "3D"}, {512, 512, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP, "cubemap"},
        {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE, "2D, sparse"}, {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_DEFERRED_MAPPING, "2D, deferred"},
    };
    for (unsigned i = 0; i < sizeof list / sizeof *list; i++)
        for (unsigned levels = 1; levels <= 7; levels += 3) {
            CUDA_ARRAY3D_DESCRIPTOR description = {.Width = list[i].width, .Height = list[i].height, .Depth = list[i].depth, .Format = list[i].format, .NumChannels = list[i].channels, .Flags = list[i].flags};
            CUmipmappedArray one = NULL, two = NULL;
            CUarray level = NULL;
            long long before = nvml_own();
            CUresult result = cuMipmappedArrayCreate(&one, &description, levels);
            long long first = nvml_own();
            CUDA_ARRAY_MEMORY_REQUIREMENTS required = {0};
            CUresult asking = one ? cuMipmappedArrayGetMemoryRequirements(&required, one, 0) : CUDA_ERROR_UNKNOWN;
            unsigned long long bytes = 0;
            for (unsigned l = 0; l < levels; l++) {
                struct array_asked part = list[i];
                part.width = part.width >> l ? part.width >> l : 1;
                part.height = part.height >> l ? part.height >> l : 1;
                if (!(part.flags & CUDA_ARRAY3D_CUBEMAP)) part.depth = part.depth >> l;
                bytes += array_bytes(&part);
            }
            field("r", "%d", result);
            field("bytes", "%llu", bytes);
            field("taken", "%lld", first - before);
            field("requirements", "[%d,%zu,%zu]", asking, required.size, required.alignment);
            if (!result) {
                cuMipmappedArrayCreate(&two, &description, levels);
                field("second", "%lld", nvml_own() - first);
                first = nvml_own();
                field("level_r", "%d", cuMipmappedArrayGetLevel(&level, one, levels - 1));
                field("level_takes", "%lld", nvml_own() - first);
                if (two) cuMipmappedArrayDestroy(two);
                cuMipmappedArrayDestroy(one);
            }
            field("left", "%lld", nvml_own() - before);
            say("%s %zux%zux%zu, %u B, %u levels", list[i].name, list[i].width, list[i].height, list[i].depth, array_element(&list[i]), levels);
        }
}
