// Calls each function that gives the GPU work of its own, right after a kernel for which the process has to pay: says of each
// what it returned, and for how many milliseconds it was held back.
//
//     delays

#include "pace.h"

enum { LENGTH = 8000000, BYTES = 4096, WIDTH = 64, HEIGHT = 16 };

// What each takes, in groups that take the same.
enum kind {
    FILL, FILL_IN, FILL_ROWS, FILL_ROWS_IN,
    COPY, COPY_IN,
    PEER, PEER_IN, WITH_ATTRIBUTES, BATCH, BATCH_V2,
    RECTANGLE, RECTANGLE_IN, BOX, BOX_IN, BOX_BATCH, BOX_BATCH_V2, BOX_WITH_ATTRIBUTES,
    ARRAYS, FROM_ARRAY, INTO_ARRAY,
    LAUNCH, GRID, GRID_IN, KERNEL, KERNEL_EX, COOPERATIVE, MULTI_DEVICE, GRAPH,
};

#define TWO(name, suffix, kind) {name, kind}, {name suffix, kind}
#define FILLS(name, now, in) TWO(name "_v2", "_ptds", now), TWO(name "Async", "_ptsz", in)

static const struct {
    const char *name;
    enum kind kind;
} functions[] = {
    {"cuLaunch", LAUNCH},
    {"cuLaunchGrid", GRID},
    {"cuLaunchGridAsync", GRID_IN},
    TWO("cuLaunchKernel", "_ptsz", KERNEL),
    TWO("cuLaunchKernelEx", "_ptsz", KERNEL_EX),
    TWO("cuLaunchCooperativeKernel", "_ptsz", COOPERATIVE),
    {"cuLaunchCooperativeKernelMultiDevice", MULTI_DEVICE},
    TWO("cuGraphLaunch", "_ptsz", GRAPH),
    FILLS("cuMemsetD8", FILL, FILL_IN),
    FILLS("cuMemsetD16", FILL, FILL_IN),
    FILLS("cuMemsetD32", FILL, FILL_IN),
    FILLS("cuMemsetD2D8", FILL_ROWS, FILL_ROWS_IN),
    FILLS("cuMemsetD2D16", FILL_ROWS, FILL_ROWS_IN),
    FILLS("cuMemsetD2D32", FILL_ROWS, FILL_ROWS_IN),
    TWO("cuMemcpy", "_ptds", COPY),
    TWO("cuMemcpyAsync", "_ptsz", COPY_IN),
    TWO("cuMemcpyDtoD_v2", "_ptds", COPY),
    TWO("cuMemcpyDtoDAsync_v2", "_ptsz", COPY_IN),
    TWO("cuMemcpyPeer", "_ptds", PEER),
    TWO("cuMemcpyPeerAsync", "_ptsz", PEER_IN),
    TWO("cuMemcpyWithAttributesAsync", "_ptsz", WITH_ATTRIBUTES),
    TWO("cuMemcpyBatchAsync", "_ptsz", BATCH),
    TWO("cuMemcpyBatchAsync_v2", "_ptsz", BATCH_V2),
    TWO("cuMemcpy2D_v2", "_ptds", RECTANGLE),
    TWO("cuMemcpy2DUnaligned_v2", "_ptds", RECTANGLE),
    TWO("cuMemcpy2DAsync_v2", "_ptsz", RECTANGLE_IN),
    TWO("cuMemcpy3D_v2", "_ptds", BOX),
    TWO("cuMemcpy3DAsync_v2", "_ptsz", BOX_IN),
    TWO("cuMemcpy3DPeer", "_ptds", BOX),
    TWO("cuMemcpy3DPeerAsync", "_ptsz", BOX_IN),
    TWO("cuMemcpy3DBatchAsync", "_ptsz", BOX_BATCH),
    TWO("cuMemcpy3DBatchAsync_v2", "_ptsz", BOX_BATCH_V2),
    TWO("cuMemcpy3DWithAttributesAsync", "_ptsz", BOX_WITH_ATTRIBUTES),
    TWO("cuMemcpyAtoA_v2", "_ptds", ARRAYS),
    TWO("cuMemcpyAtoD_v2", "_ptds", FROM_ARRAY),
    TWO("cuMemcpyDtoA_v2", "_ptds", INTO_ARRAY),
};

static void *kernel, *small, *stream, *context, *array, *graph;
static device_pointer to, from;

// CUDA_MEMCPY2D and CUDA_MEMCPY3D are words: where from (x, y, z, level, kind, host, device, array, context or nothing, pitch,
// height), where to (the same), and how much. The plain one has no z, level, context and height.
enum { DEVICE = 2 };

static int rectangle(void *function, void *in, int has_stream)
{
    size_t asked[16] = {
        [2] = DEVICE, [4] = from, [6] = WIDTH, [9] = DEVICE, [11] = to, [13] = WIDTH, [14] = WIDTH, [15] = HEIGHT,
    };
    return has_stream ? ((int (*)(const void *, void *))function)(asked, in) : ((int (*)(const void *))function)(asked);
}

static int box(void *function, void *in, int has_stream)
{
    size_t asked[25] = {
        [4] = DEVICE,  [6] = from, [9] = WIDTH,  [10] = HEIGHT, [15] = DEVICE, [17] = to,
        [20] = WIDTH, [21] = HEIGHT, [22] = WIDTH, [23] = HEIGHT, [24] = 1,
    };
    return has_stream ? ((int (*)(const void *, void *))function)(asked, in) : ((int (*)(const void *))function)(asked);
}

static int copies(void *f, enum kind kind)
{
    device_pointer targets[] = {to}, sources[] = {from};
    size_t sizes[] = {BYTES}, failed = 0;
    size_t room[64] = {0};
    switch (kind) {
    case FILL:
        return ((int (*)(device_pointer, unsigned, size_t))f)(to, 1, BYTES / 4);
    case FILL_IN:
        return ((int (*)(device_pointer, unsigned, size_t, void *))f)(to, 1, BYTES / 4, stream);
    case FILL_ROWS:
        return ((int (*)(device_pointer, size_t, unsigned, size_t, size_t))f)(to, WIDTH, 1, WIDTH / 4, HEIGHT);
    case FILL_ROWS_IN:
        return ((int (*)(device_pointer, size_t, unsigned, size_t, size_t, void *))f)(to, WIDTH, 1, WIDTH / 4, HEIGHT,
                                                                                      stream);
    case COPY:
        return ((int (*)(device_pointer, device_pointer, size_t))f)(to, from, BYTES);
    case COPY_IN:
        return ((int (*)(device_pointer, device_pointer, size_t, void *))f)(to, from, BYTES, stream);
    case PEER:
        return ((int (*)(device_pointer, void *, device_pointer, void *, size_t))f)(to, context, from, context, BYTES);
    case PEER_IN:
        return ((int (*)(device_pointer, void *, device_pointer, void *, size_t, void *))f)(to, context, from, context,
                                                                                            BYTES, stream);
    case WITH_ATTRIBUTES:
        return ((int (*)(device_pointer, device_pointer, size_t, void *, void *))f)(to, from, BYTES, room, stream);
    case BATCH:
        return ((int (*)(device_pointer *, device_pointer *, size_t *, size_t, void *, size_t *, size_t, size_t *,
                         void *))f)(targets, sources, sizes, 1, room, room, 0, &failed, stream);
    case BATCH_V2:
        return ((int (*)(device_pointer *, device_pointer *, size_t *, size_t, void *, size_t *, size_t, void *))f)(
            targets, sources, sizes, 1, room, room, 0, stream);
    case BOX_BATCH:
        return ((int (*)(size_t, void *, size_t *, unsigned long long, void *))f)(1, room, &failed, 0, stream);
    case BOX_BATCH_V2:
        return ((int (*)(size_t, void *, unsigned long long, void *))f)(1, room, 0, stream);
    case BOX_WITH_ATTRIBUTES:
        return ((int (*)(void *, unsigned long long, void *))f)(room, 0, stream);
    case ARRAYS:
        return ((int (*)(void *, size_t, void *, size_t, size_t))f)(array, 0, array, 0, BYTES);
    case FROM_ARRAY:
        return ((int (*)(device_pointer, void *, size_t, size_t))f)(to, array, 0, BYTES);
    case INTO_ARRAY:
        return ((int (*)(void *, size_t, device_pointer, size_t))f)(array, 0, from, BYTES);
    case RECTANGLE:
    case RECTANGLE_IN:
        return rectangle(f, stream, kind == RECTANGLE_IN);
    case BOX:
    case BOX_IN:
        return box(f, stream, kind == BOX_IN);
    default:
        fail("kind", "no copy");
        return 0;
    }
}

static int call(void *f, enum kind kind)
{
    struct launch how = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .stream = stream};
    struct launch_there there = {small, {1, 1, 1}, {32, 1, 1}, 0, stream, NULL};
    switch (kind) {
    case LAUNCH:
        return ((int (*)(void *))f)(small);
    case GRID:
        return ((int (*)(void *, int, int))f)(small, 1, 1);
    case GRID_IN:
        return ((int (*)(void *, int, int, void *))f)(small, 1, 1, stream);
    case KERNEL:
        return ((int(*) KERNEL_ARGUMENTS)f)(small, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
    case KERNEL_EX:
        return ((int (*)(const struct launch *, void *, void **, void **))f)(&how, small, NULL, NULL);
    case COOPERATIVE:
        return ((int(*) COOPERATIVE_ARGUMENTS)f)(small, 1, 1, 1, 32, 1, 1, 0, stream, NULL);
    case MULTI_DEVICE:
        return ((int (*)(struct launch_there *, unsigned, unsigned))f)(&there, 1, 0);
    case GRAPH:
        return ((int (*)(void *, void *))f)(graph, stream);
    default:
        return copies(f, kind);
    }
}

int main(void)
{
    reach("dlsym");
    must("cuInit", cu.cuInit(0));
    context = use_gpu(0);
    kernel = kernel_of_length(LENGTH);
    small = kernel_of_length(1000);
    stream = new_stream();
    struct array asked = {.width = BYTES / 4, .format = 3, .channels = 1};
    struct kernel_node node = {.function = small, .grid = {1, 1, 1}, .block = {32, 1, 1}};
    void *made = NULL, *inside = NULL;
    must("cuMemAlloc", cu.cuMemAlloc_v2(&to, BYTES));
    must("cuMemAlloc", cu.cuMemAlloc_v2(&from, BYTES));
    must("cuArrayCreate", cu.cuArrayCreate_v2(&array, &asked));
    must("cuGraphCreate", cu.cuGraphCreate(&made, 0));
    must("cuGraphAddKernelNode", cu.cuGraphAddKernelNode_v2(&inside, made, NULL, 0, &node));
    must("cuGraphInstantiate", cu.cuGraphInstantiateWithFlags(&graph, made, 0));
    // What was saved up.
    for (int at = 0; at < 3; at++)
        must("cuLaunchKernel", launch(kernel, stream));
    for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
        const char *name = functions[at].name;
        void *function = look_up_in_library(name, NULL, 0, 0);
        if (!function)
            fail(name, "not there");
        must("cuLaunchKernel", launch(kernel, stream));
        must("cuCtxSynchronize", cu.cuCtxSynchronize());
        double start = now();
        int result = call(function, functions[at].kind);
        printf("%s %d %.0f\n", name, result, (now() - start) * 1000);
        must("cuCtxSynchronize", cu.cuCtxSynchronize());
    }
    return 0;
}
