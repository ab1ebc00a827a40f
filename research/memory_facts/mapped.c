// Memory by cuMemCreate: what it takes from its making to its last release.

static CUmemAllocationProp mapped_property(CUmemLocationType where, CUmemAllocationHandleType handles) {
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = handles, .location = {.type = where}};
}

static CUresult mapped_access(CUdeviceptr at, unsigned long long bytes) {
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(at, bytes, &access, 1);
}

static void mapped_life(char **arguments) {
    start();
    CUmemAllocationProp property = mapped_property(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at, twice;
    STEP(cuMemCreate(&handle, 64 * MIB, &property, 0), "cuMemCreate(64 MiB)");
    STEP(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0), "cuMemAddressReserve");
    STEP(cuMemMap(at, 64 * MIB, 0, handle, 0), "cuMemMap");
    STEP(mapped_access(at, 64 * MIB), "cuMemSetAccess");
    STEP(cuMemsetD8(at, 1, 64 * MIB), "set");
    STEP(cuMemRelease(handle), "cuMemRelease while mapped");
    STEP(cuMemUnmap(at, 64 * MIB), "cuMemUnmap");
    STEP(cuMemAddressFree(at, 64 * MIB), "cuMemAddressFree");
    NEED(cuMemCreate(&handle, 64 * MIB, &property, 0));
    NEED(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0));
    NEED(cuMemAddressReserve(&twice, 64 * MIB, 0, 0, 0));
    mark(0, "another of 64 MiB");
    STEP(cuMemMap(at, 64 * MIB, 0, handle, 0), "mapped");
    STEP(cuMemMap(twice, 64 * MIB, 0, handle, 0), "mapped a second time");
    STEP(mapped_access(at, 64 * MIB), "access");
    STEP(mapped_access(twice, 64 * MIB), "access, second");
    STEP(cuMemRelease(handle), "released");
    STEP(cuMemUnmap(at, 64 * MIB), "first unmapped");
    STEP(cuMemUnmap(twice, 64 * MIB), "second unmapped");
    static const unsigned long long sizes[] = {1, MIB, 2 * MIB, 3 * MIB, 4 * MIB, 33 * MIB};
    for (int i = 0; i < 6; i++) {
        CUresult result = cuMemCreate(&handle, sizes[i], &property, 0);
        mark(result, "cuMemCreate(%llu KiB)", sizes[i] / KIB);
        if (!result) STEP(cuMemRelease(handle), "released, never mapped");
    }
    STEP(cuMemAddressReserve(&at, 1ull << 40, 0, 0, 0), "cuMemAddressReserve(1 TiB)");
}

// What another handle of the same memory keeps alive.
static void mapped_handle(char **arguments) {
    start();
    CUmemAllocationProp property = mapped_property(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_NONE), read;
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr at;
    NEED(cuMemCreate(&handle, 64 * MIB, &property, 0));
    NEED(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0));
    NEED(cuMemMap(at, 64 * MIB, 0, handle, 0));
    mark(0, "64 MiB mapped");
    CUresult result = cuMemRetainAllocationHandle(&again, (void *)(at + MIB));
    field("same", "%d", again == handle);
    mark(result, "cuMemRetainAllocationHandle");
    result = cuMemGetAllocationPropertiesFromHandle(&read, handle);
    field("location", "[%d,%d]", read.location.type, read.location.id);
    mark(result, "cuMemGetAllocationPropertiesFromHandle");
    STEP(cuMemUnmap(at, 64 * MIB), "unmapped");
    STEP(cuMemRelease(handle), "first release");
    STEP(cuMemRelease(again), "second release");
    STEP(cuMemRelease(again), "third release");
    // Half a mapping.
    NEED(cuMemCreate(&handle, 64 * MIB, &property, 0));
    NEED(cuMemCreate(&again, 32 * MIB, &property, 0));
    NEED(cuMemMap(at, 32 * MIB, 0, again, 0));
    mark(0, "two, of 64 and 32 MiB");
    STEP(cuMemUnmap(at, 16 * MIB), "cuMemUnmap of half");
    STEP(cuMemUnmap(at, 32 * MIB), "cuMemUnmap of all");
    STEP(cuMemMap(at, 32 * MIB, 32 * MIB, handle, 0), "cuMemMap of a part, with an offset");
    STEP(cuMemMap(at, 32 * MIB, 0, handle, 0), "cuMemMap of a part");
}

static void mapped_fd(char **arguments) {
    start();
    CUmemAllocationProp property = mapped_property(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle handle, imported;
    CUdeviceptr at;
    int fd = -1;
    list_all = 1;
    NEED(cuMemCreate(&handle, 64 * MIB, &property, 0));
    NEED(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0));
    NEED(cuMemMap(at, 64 * MIB, 0, handle, 0));
    NEED(mapped_access(at, 64 * MIB));
    mark(0, "64 MiB that can be exported, mapped");
    STEP(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "exported");
    STEP(cuMemRelease(handle), "released");
    STEP(cuMemUnmap(at, 64 * MIB), "unmapped: only the descriptor is left");
    STEP(cuMemImportFromShareableHandle(&imported, (void *)(long)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), "imported by itself");
    STEP(cuMemMap(at, 64 * MIB, 0, imported, 0), "mapped");
    STEP(cuMemRelease(imported), "released");
    close(fd);
    mark(0, "descriptor closed");
    STEP(cuMemUnmap(at, 64 * MIB), "unmapped");
    // Imported while the own handle lives: is it the same handle, is it counted twice?
    NEED(cuMemCreate(&handle, 64 * MIB, &property, 0));
    NEED(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    mark(0, "another of 64 MiB, exported");
    CUresult result = cuMemImportFromShareableHandle(&imported, (void *)(long)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    field("same", "%d", imported == handle);
    mark(result, "imported too");
    STEP(cuMemRelease(handle), "first handle released");
    STEP(cuMemRelease(imported), "second handle released: only the descriptor is left");
    // A descriptor that outlives the context and the process's use of the driver.
    STEP(cuDevicePrimaryCtxReset(0), "cuDevicePrimaryCtxReset, the descriptor open");
    STEP(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease, the descriptor open");
    close(fd);
    mark(0, "descriptor closed");
}

static void mapped_host(char **arguments) {
    start();
    static const CUmemLocationType where[] = {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT};
    for (int i = 0; i < 3; i++) {
        CUmemAllocationProp property = mapped_property(where[i], CU_MEM_HANDLE_TYPE_NONE);
        CUmemGenericAllocationHandle handle;
        CUdeviceptr at;
        CUresult result = cuMemCreate(&handle, 64 * MIB, &property, 0);
        mark(result, "cuMemCreate(64 MiB), location type %d", where[i]);
        if (result) continue;
        NEED(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0));
        STEP(cuMemMap(at, 64 * MIB, 0, handle, 0), "mapped");
        STEP(mapped_access(at, 64 * MIB), "access for the device");
        STEP(fill(at, 64 * MIB), "a kernel wrote it");
        STEP(cuMemUnmap(at, 64 * MIB), "unmapped");
        STEP(cuMemRelease(handle), "released");
    }
}

// cuMemCreate wants no context: does it work without any, and what does NVML say of the process then?
static void mapped_no_context(char **arguments) {
    nvml_open();
    list_all = 1;
    NEED(cuInit(0));
    mark(0, "cuInit");
    CUmemAllocationProp property = mapped_property(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    int fd = -1;
    STEP(cuMemCreate(&handle, 64 * MIB, &property, 0), "cuMemCreate(64 MiB) without any context");
    STEP(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0), "cuMemAddressReserve");
    STEP(cuMemMap(at, 64 * MIB, 0, handle, 0), "cuMemMap");
    STEP(mapped_access(at, 64 * MIB), "cuMemSetAccess");
    STEP(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "exported");
    STEP(cuMemUnmap(at, 64 * MIB), "unmapped");
    STEP(cuMemRelease(handle), "released, the descriptor open");
    close(fd);
    mark(0, "descriptor closed");
    CUmemoryPool pool;
    STEP(cuDeviceGetDefaultMemPool(&pool, 0), "cuDeviceGetDefaultMemPool without a context");
    CUmemPoolProps made = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    STEP(cuMemPoolCreate(&pool, &made), "cuMemPoolCreate without a context");
    STEP(cuMemAllocFromPoolAsync(&at, MIB, pool, 0), "cuMemAllocFromPoolAsync without a context");
    STEP(cuMemAlloc(&at, MIB), "cuMemAlloc without a context");
}

// What a descriptor of a range of addresses keeps.
static void dma_buf_of(CUdeviceptr at, size_t bytes, const char *what, CUresult (*give_back)(CUdeviceptr, size_t), size_t all) {
    int fd = -1;
    CUresult result = cuMemGetHandleForAddressRange(&fd, at, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    field("fd", "%d", fd);
    mark(result, "%s: cuMemGetHandleForAddressRange of %zu MiB", what, bytes / (size_t)MIB);
    STEP(give_back(at, all), "given back");
    usleep(50000);
    mark(0, "50 ms later");
    if (fd < 0) return;
    close(fd);
    mark(0, "descriptor closed");
}

static CUresult dma_buf_free(CUdeviceptr at, size_t bytes) { return cuMemFree(at); }
static CUresult dma_buf_unmap(CUdeviceptr at, size_t bytes) { return cuMemUnmap(at, bytes); }

static void dma_buf(char **arguments) {
    start();
    list_all = 1;
    int supported = -1;
    cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0);
    field("supported", "%d", supported);
    mark(0, "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED");
    CUdeviceptr at;
    NEED(cuMemAlloc(&at, 64 * MIB));
    mark(0, "cuMemAlloc(64 MiB)");
    dma_buf_of(at, 64 * MIB, "all of it", dma_buf_free, 64 * MIB);
    NEED(cuMemAlloc(&at, 64 * MIB));
    mark(0, "cuMemAlloc(64 MiB)");
    dma_buf_of(at, 2 * MIB, "a part", dma_buf_free, 64 * MIB);
    CUmemAllocationProp property = mapped_property(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle handle;
    NEED(cuMemCreate(&handle, 64 * MIB, &property, 0));
    NEED(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0));
    NEED(cuMemMap(at, 64 * MIB, 0, handle, 0));
    NEED(mapped_access(at, 64 * MIB));
    NEED(cuMemRelease(handle));
    mark(0, "64 MiB mapped, the handle released");
    dma_buf_of(at, 64 * MIB, "mapped memory", dma_buf_unmap, 64 * MIB);
}
