// Ways by which memory is taken that has no address: contexts, their limits, code.

#ifndef WAYS_MORE_H
#define WAYS_MORE_H

// The program goes on in the context that it had.
static int made(int result)
{
    if (!result)
        cu.cuCtxPopCurrent_v2(NULL);
    return result;
}

static int take_context_v1(size_t bytes, struct block *block)
{
    (void)bytes;
    return made(cu.cuCtxCreate(&block->one, 0, device_number));
}

static int take_context_v2(size_t bytes, struct block *block)
{
    (void)bytes;
    return made(cu.cuCtxCreate_v2(&block->one, 0, device_number));
}

static int take_context_v3(size_t bytes, struct block *block)
{
    (void)bytes;
    return made(cu.cuCtxCreate_v3(&block->one, NULL, 0, 0, device_number));
}

static int take_context_v4(size_t bytes, struct block *block)
{
    (void)bytes;
    struct context_parameters parameters = {0};
    return made(cu.cuCtxCreate_v4(&block->one, &parameters, 0, device_number));
}

static int give_context(struct block *block)
{
    return cu.cuCtxDestroy_v2(block->one);
}

static int take_green(size_t bytes, struct block *block)
{
    static void *description;
    (void)bytes;
    if (!description) {
        // Room for what the header makes of it.
        char resource[256] = {0};
        int result = cu.cuDeviceGetDevResource(device_number, resource, 1);
        if (!result)
            result = cu.cuDevResourceGenerateDesc(&description, resource, 1);
        if (result)
            return result;
    }
    return cu.cuGreenCtxCreate(&block->one, description, device_number, 1);
}

static int give_green(struct block *block)
{
    return cu.cuGreenCtxDestroy(block->one);
}

// A larger stack for each thread that the device can have.
enum { STACK_LIMIT = 0, STACK_AT_FIRST = 1024, STACK_STEP = 64 };

static size_t stack_steps;

static int set_stack(size_t steps)
{
    int result = cu.cuCtxSetLimit(STACK_LIMIT, STACK_AT_FIRST + STACK_STEP * steps);
    if (!result)
        stack_steps = steps;
    return result;
}

static int take_stack(size_t bytes, struct block *block)
{
    (void)bytes, (void)block;
    return set_stack(stack_steps + 1);
}

static int give_stack(struct block *block)
{
    (void)block;
    return set_stack(stack_steps - 1);
}

// Code with one variable of that size, as the fake driver reads it: see tests/fake-driver/cuda/src/image.rs.
struct image {
    char text[64];
};

static struct image image(size_t bytes)
{
    struct image image;
    snprintf(image.text, sizeof image.text, "global table %zu\ncode 512\n", bytes - 512);
    return image;
}

static int take_module(size_t bytes, struct block *block)
{
    return cu.cuModuleLoadData(&block->one, image(bytes).text);
}

static int take_module_ex(size_t bytes, struct block *block)
{
    return cu.cuModuleLoadDataEx(&block->one, image(bytes).text, 0, NULL, NULL);
}

static int take_module_fat(size_t bytes, struct block *block)
{
    return cu.cuModuleLoadFatBinary(&block->one, image(bytes).text);
}

static int take_module_file(size_t bytes, struct block *block)
{
    char path[] = "/tmp/takes-XXXXXX";
    int file = mkstemp(path);
    struct image text = image(bytes);
    if (file < 0 || write(file, text.text, strlen(text.text)) < 0)
        fail(path, "cannot be written");
    close(file);
    int result = cu.cuModuleLoad(&block->one, path);
    unlink(path);
    return result;
}

static int give_module(struct block *block)
{
    return cu.cuModuleUnload(block->one);
}

// A library's code is loaded when something of it is first asked for.
static int take_library(size_t bytes, struct block *block)
{
    device_pointer at = 0;
    size_t size = 0;
    int result = cu.cuLibraryLoadData(&block->one, image(bytes).text, NULL, NULL, 0, NULL, NULL, 0);
    if (result)
        return result;
    result = cu.cuLibraryGetGlobal(&at, &size, block->one, "table");
    if (result)
        cu.cuLibraryUnload(block->one);
    return result;
}

static int give_library(struct block *block)
{
    return cu.cuLibraryUnload(block->one);
}

// A library whose module is asked for, from a file.
static int take_library_file(size_t bytes, struct block *block)
{
    char path[] = "/tmp/takes-XXXXXX";
    int file = mkstemp(path);
    struct image text = image(bytes);
    if (file < 0 || write(file, text.text, strlen(text.text)) < 0)
        fail(path, "cannot be written");
    close(file);
    int result = cu.cuLibraryLoadFromFile(&block->one, path, NULL, NULL, 0, NULL, NULL, 0);
    unlink(path);
    if (result)
        return result;
    result = cu.cuLibraryGetModule(&block->two, block->one);
    if (result)
        cu.cuLibraryUnload(block->one);
    return result;
}

// Streams keep what they took when they are destroyed.
static int take_stream(size_t bytes, struct block *block)
{
    (void)bytes;
    return cu.cuStreamCreate(&block->one, 1);
}

static int take_stream_with_priority(size_t bytes, struct block *block)
{
    (void)bytes;
    return cu.cuStreamCreateWithPriority(&block->one, 1, 0);
}

static int give_stream(struct block *block)
{
    return cu.cuStreamDestroy_v2(block->one);
}

// From a pool that is made the device's.
static int set_own_pool(void)
{
    static bool is_set;
    int result = is_set ? SUCCESS : cu.cuDeviceSetMemPool(device_number, own_pool);
    is_set = true;
    return result;
}

static int take_from_set_pool(size_t bytes, struct block *block)
{
    int result = set_own_pool();
    return result ? result : cu.cuMemAllocAsync(&block->at, bytes, NULL);
}

// A mapping's handle is asked for anew, and keeps the memory when everything else is gone.
static int take_retained(size_t bytes, struct block *block)
{
    int result = take_physical(bytes, block);
    if (result)
        return result;
    result = cu.cuMemRetainAllocationHandle(&block->handle, (void *)(uintptr_t)block->at);
    int unmapped = give_physical(block);
    return result ? result : unmapped;
}

// A descriptor keeps the memory when the program has given everything else back.
static int take_with_descriptor(size_t bytes, struct block *block)
{
    struct physical_properties properties = {.type = 1, .handle_types = 1, .location = {1, device_number}};
    int descriptor = -1;
    bytes = (bytes + PIECE - 1) / PIECE * PIECE;
    int result = cu.cuMemCreate(&block->handle, bytes, &properties, 0);
    if (result)
        return result;
    result = cu.cuMemExportToShareableHandle(&descriptor, block->handle, 1, 0);
    int released = cu.cuMemRelease(block->handle);
    block->handle = (unsigned)descriptor;
    return result ? result : released;
}

static int take_with_dma_buf(size_t bytes, struct block *block)
{
    int descriptor = -1;
    int result = take_physical(bytes, block);
    if (result)
        return result;
    result = cu.cuMemGetHandleForAddressRange(&descriptor, block->at, block->bytes, 1, 0);
    int unmapped = give_physical(block);
    block->handle = (unsigned)descriptor;
    return result ? result : unmapped;
}

static int give_descriptor(struct block *block)
{
    return close((int)block->handle);
}

#endif
