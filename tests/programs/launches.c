// What kernels take when they are launched, by every function that launches one: room for the stacks of all threads that
// the GPU can have at once. And code that waits for its first use.
//
//     launches FRAME      launches a kernel with a frame of so many bytes a thread, in each way, and says what came of it
//     launches code MIB   looks things up in a library with so much code, in each way
//     launches anew FRAME launches a library's kernel, and again in the context that comes after a reset, with a full slice

#include "ways.h"

struct kernel {
    void *module, *function;
};

static char text[256];

// A module with a kernel of this frame; a new one each time, so that the library does not know it.
static struct kernel kernel_of(unsigned long frame)
{
    struct kernel kernel = {0};
    snprintf(text, sizeof text, "kernel deep 1000 local %lu\ncode 512\n", frame);
    if (cu.cuModuleLoadData(&kernel.module, text) != SUCCESS)
        fail("cuModuleLoadData", "no module");
    if (cu.cuModuleGetFunction(&kernel.function, kernel.module, "deep") != SUCCESS)
        fail("cuModuleGetFunction", "no kernel");
    return kernel;
}

static const struct launch how = {.grid = {1, 1, 1}, .block = {32, 1, 1}};

static int by_launch(void *function)
{
    return cu.cuLaunch(function);
}

static int by_grid(void *function)
{
    return cu.cuLaunchGrid(function, 1, 1);
}

static int by_grid_async(void *function)
{
    return cu.cuLaunchGridAsync(function, 1, 1, NULL);
}

static int by_kernel(void *function)
{
    return cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}

static int by_kernel_ptsz(void *function)
{
    return cu.cuLaunchKernel_ptsz(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}

static int by_kernel_ex(void *function)
{
    return cu.cuLaunchKernelEx(&how, function, NULL, NULL);
}

static int by_kernel_ex_ptsz(void *function)
{
    return cu.cuLaunchKernelEx_ptsz(&how, function, NULL, NULL);
}

static int by_cooperative(void *function)
{
    return cu.cuLaunchCooperativeKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL);
}

static int by_cooperative_ptsz(void *function)
{
    return cu.cuLaunchCooperativeKernel_ptsz(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL);
}

static int by_cooperative_there(void *function)
{
    void *stream = NULL;
    int result = stream_of_thread(&stream);
    struct launch_there there = {function, {1, 1, 1}, {32, 1, 1}, 0, stream, NULL};
    return result ? result : cu.cuLaunchCooperativeKernelMultiDevice(&there, 1, 0);
}

// In a graph, which is made ready in one form and runs.
static int in_graph(enum form form, void *function)
{
    struct kernel_node asked = {.function = function, .grid = {1, 1, 1}, .block = {32, 1, 1}};
    struct block block = {0};
    void *node = NULL;
    int result = cu.cuGraphCreate(&block.one, 0);
    if (!result)
        result = cu.cuGraphAddKernelNode_v2(&node, block.one, NULL, 0, &asked);
    result = run_graph(form, result, 0, &block);
    return result ? result : give_graph(&block);
}

static int by_graph(void *function)
{
    return in_graph(WITH_FLAGS, function);
}

static int by_graph_with_log(void *function)
{
    return in_graph(WITH_LOG, function);
}

static int by_graph_with_log_v2(void *function)
{
    return in_graph(WITH_LOG_V2, function);
}

static int by_graph_with_parameters(void *function)
{
    return in_graph(WITH_PARAMETERS, function);
}

static int by_graph_with_parameters_ptsz(void *function)
{
    return in_graph(WITH_PARAMETERS_PTSZ, function);
}

static const struct {
    const char *name;
    int (*launch)(void *function);
} launches[] = {
    {"cuLaunch", by_launch},
    {"cuLaunchGrid", by_grid},
    {"cuLaunchGridAsync", by_grid_async},
    {"cuLaunchKernel", by_kernel},
    {"cuLaunchKernel_ptsz", by_kernel_ptsz},
    {"cuLaunchKernelEx", by_kernel_ex},
    {"cuLaunchKernelEx_ptsz", by_kernel_ex_ptsz},
    {"cuLaunchCooperativeKernel", by_cooperative},
    {"cuLaunchCooperativeKernel_ptsz", by_cooperative_ptsz},
    {"cuLaunchCooperativeKernelMultiDevice", by_cooperative_there},
    {"cuGraphInstantiateWithFlags", by_graph},
    {"cuGraphInstantiate", by_graph_with_log},
    {"cuGraphInstantiate_v2", by_graph_with_log_v2},
    {"cuGraphInstantiateWithParams", by_graph_with_parameters},
    {"cuGraphInstantiateWithParams_ptsz", by_graph_with_parameters_ptsz},
};

static void launch_all(unsigned long frame)
{
    for (size_t i = 0; i < sizeof launches / sizeof *launches; i++) {
        struct kernel flat = kernel_of(0), deep = kernel_of(frame);
        int first = launches[i].launch(flat.function);
        int second = launches[i].launch(deep.function);
        // A refused kernel takes nothing with it: the next launch goes well.
        int third = launches[i].launch(flat.function);
        printf("launch %s: flat=%d deep=%d flat_again=%d\n", launches[i].name, first, second, third);
        cu.cuModuleUnload(flat.module);
        cu.cuModuleUnload(deep.module);
    }
}

// Code waits for its first use, and is loaded by whatever asks for something in it.
static void look_up_all(unsigned long mib)
{
    static const char *const ways[] = {"cuModuleGetFunction", "cuLibraryGetModule", "cuLibraryGetGlobal",
                                       "cuKernelGetFunction", "cuFuncLoad"};
    snprintf(text, sizeof text, "kernel step 1000\nglobal table 512\ncode %lu\n", mib << 20);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        void *module = NULL, *library = NULL, *kernel = NULL, *function = NULL;
        device_pointer at = 0;
        size_t bytes = 0;
        int loaded = i == 0 ? cu.cuModuleLoadData(&module, text)
                            : cu.cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0);
        int result = i >= 3 ? cu.cuLibraryGetKernel(&kernel, library, "step") : loaded;
        if (!result)
            result = i == 0   ? cu.cuModuleGetFunction(&function, module, "step")
                     : i == 1 ? cu.cuLibraryGetModule(&module, library)
                     : i == 2 ? cu.cuLibraryGetGlobal(&at, &bytes, library, "table")
                     : i == 3 ? cu.cuKernelGetFunction(&function, kernel)
                              : cu.cuFuncLoad(kernel);
        printf("code %s: loaded=%d used=%d\n", ways[i], loaded, result);
        printf("code, unloaded: %d\n", i == 0 ? cu.cuModuleUnload(module) : cu.cuLibraryUnload(library));
    }
}

// A library's kernel outlives the context that it was launched in, and the next one has the same handle.
static void launch_anew(unsigned long frame)
{
    void *library = NULL, *kernel = NULL;
    device_pointer block = 0;
    snprintf(text, sizeof text, "kernel deep 1000 local %lu\ncode 512\n", frame);
    if (cu.cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0) != SUCCESS)
        fail("cuLibraryLoadData", "no library");
    if (cu.cuLibraryGetKernel(&kernel, library, "deep") != SUCCESS)
        fail("cuLibraryGetKernel", "no kernel");
    int first = by_kernel(kernel);
    int reset = cu.cuDevicePrimaryCtxReset_v2(device_number);
    int made = cu.cuDevicePrimaryCtxRetain(&main_context, device_number);
    made = made ? made : cu.cuCtxSetCurrent(main_context);
    int blocks = 0;
    while (cu.cuMemAlloc_v2(&block, 64 << 20) == SUCCESS)
        blocks++;
    printf("anew: first=%d reset=%d made=%d blocks=%d again=%d\n", first, reset, made, blocks, by_kernel(kernel));
}

int main(int words, char **word)
{
    if (words < 2)
        fail(word[0], "what frame?");
    reach("linked");
    say_library();
    int result = start(false);
    printf("start: %d\n", result);
    if (result)
        return 0;
    if (strcmp(word[1], "code") == 0 && words > 2)
        look_up_all(strtoul(word[2], NULL, 0));
    else if (strcmp(word[1], "anew") == 0 && words > 2)
        launch_anew(strtoul(word[2], NULL, 0));
    else
        launch_all(strtoul(word[1], NULL, 0));
    printf("over\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
