// Ways by which graphs take memory: explicitly, within other graphs, captured; made ready and started in every form.

#ifndef WAYS_GRAPH_H
#define WAYS_GRAPH_H

static int give_graph(struct block *block)
{
    int freed = block->at ? cu.cuMemFree_v2(block->at) : SUCCESS;
    int ready = block->two ? cu.cuGraphExecDestroy(block->two) : SUCCESS;
    int graph = cu.cuGraphDestroy(block->one);
    return freed ? freed : ready ? ready : graph;
}

// How a graph is made ready and started.
enum form {
    WITH_FLAGS,
    PER_THREAD,
    WITH_LOG,
    WITH_LOG_V2,
    WITH_PARAMETERS,
    WITH_PARAMETERS_PTSZ,
    UPLOADED,
    UPLOADED_PTSZ,
};

enum { UPLOAD_FLAG = 2 };

static int make_ready(enum form form, void **ready, void *graph, void *stream)
{
    struct ready_parameters parameters = {.flags = UPLOAD_FLAG, .stream = stream};
    void *error = NULL;
    char log[64];
    switch (form) {
    case WITH_LOG:
        return cu.cuGraphInstantiate(ready, graph, &error, log, sizeof log);
    case WITH_LOG_V2:
        return cu.cuGraphInstantiate_v2(ready, graph, &error, log, sizeof log);
    case WITH_PARAMETERS:
        return cu.cuGraphInstantiateWithParams(ready, graph, &parameters);
    case WITH_PARAMETERS_PTSZ:
        return cu.cuGraphInstantiateWithParams_ptsz(ready, graph, &parameters);
    default:
        return cu.cuGraphInstantiateWithFlags(ready, graph, 0);
    }
}

// Runs a graph whose memory stays when it has run. Uploads of several graphs share their memory, so those run as well.
static int run_graph(enum form form, int result, device_pointer at, struct block *block)
{
    void *stream = NULL;
    if (!result)
        result = stream_of_thread(&stream);
    if (!result)
        result = make_ready(form, &block->two, block->one, stream);
    if (!result && form == UPLOADED)
        result = cu.cuGraphUpload(block->two, stream);
    if (!result && form == UPLOADED_PTSZ)
        result = cu.cuGraphUpload_ptsz(block->two, NULL);
    if (!result)
        result = form == PER_THREAD ? cu.cuGraphLaunch_ptsz(block->two, NULL) : cu.cuGraphLaunch(block->two, stream);
    block->at = result ? 0 : at;
    if (result && block->one)
        give_graph(block);
    return result;
}

static struct memory_node memory_node(size_t bytes)
{
    return (struct memory_node){.pool = {.type = 1, .location = {1, device_number}}, .bytes = bytes};
}

enum { CHILD_GRAPH = 4, MEMORY_NODE = 10, OWNERSHIP_MOVE = 1, RELAXED = 2 };

static int take_graph_in(enum form form, size_t bytes, struct block *block)
{
    struct memory_node asked = memory_node(bytes);
    void *node = NULL;
    int result = cu.cuGraphCreate(&block->one, 0);
    if (!result)
        result = cu.cuGraphAddMemAllocNode(&node, block->one, NULL, 0, &asked);
    return run_graph(form, result, asked.at, block);
}

#define GRAPH_IN(name, form)                              \
    static int name(size_t bytes, struct block *block)    \
    {                                                     \
        return take_graph_in(form, bytes, block);         \
    }

GRAPH_IN(take_graph, WITH_FLAGS)
GRAPH_IN(take_graph_per_thread, PER_THREAD)
GRAPH_IN(take_graph_with_log, WITH_LOG)
GRAPH_IN(take_graph_with_log_v2, WITH_LOG_V2)
GRAPH_IN(take_graph_with_parameters, WITH_PARAMETERS)
GRAPH_IN(take_graph_with_parameters_ptsz, WITH_PARAMETERS_PTSZ)
GRAPH_IN(take_uploaded_graph, UPLOADED)
GRAPH_IN(take_uploaded_graph_ptsz, UPLOADED_PTSZ)

static int add_node(int version, void *graph, struct graph_node *asked)
{
    void *node = NULL;
    switch (version) {
    case 1:
        return cu.cuGraphAddNode(&node, graph, NULL, 0, asked);
    case 2:
        return cu.cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, asked);
    default:
        return cu.cuGraphAddNode_v3(&node, graph, NULL, NULL, 0, asked);
    }
}

static int take_graph_of(int version, size_t bytes, struct block *block)
{
    struct graph_node asked = {.type = MEMORY_NODE, .memory = memory_node(bytes)};
    int result = cu.cuGraphCreate(&block->one, 0);
    if (!result)
        result = add_node(version, block->one, &asked);
    return run_graph(WITH_FLAGS, result, asked.memory.at, block);
}

static int take_graph_v1(size_t bytes, struct block *block)
{
    return take_graph_of(1, bytes, block);
}

static int take_graph_v2(size_t bytes, struct block *block)
{
    return take_graph_of(2, bytes, block);
}

static int take_graph_v3(size_t bytes, struct block *block)
{
    return take_graph_of(3, bytes, block);
}

static int take_child_graph(size_t bytes, struct block *block)
{
    struct memory_node asked = memory_node(bytes);
    void *child = NULL, *node = NULL;
    int result = cu.cuGraphCreate(&child, 0);
    if (!result)
        result = cu.cuGraphAddMemAllocNode(&node, child, NULL, 0, &asked);
    if (!result)
        result = cu.cuGraphCreate(&block->one, 0);
    struct graph_node within = {.type = CHILD_GRAPH, .child = {child, OWNERSHIP_MOVE}};
    if (!result)
        result = add_node(2, block->one, &within);
    return run_graph(WITH_FLAGS, result, asked.at, block);
}

static int take_captured(size_t bytes, struct block *block)
{
    void *stream = NULL;
    device_pointer at = 0;
    int result = stream_of_thread(&stream);
    if (!result)
        result = cu.cuStreamBeginCapture_v2(stream, RELAXED);
    if (result)
        return result;
    result = cu.cuMemAllocAsync(&at, bytes, stream);
    int ended = cu.cuStreamEndCapture(stream, &block->one);
    return run_graph(WITH_FLAGS, result ? result : ended, at, block);
}

#endif
