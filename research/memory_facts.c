// What the driver takes of the GPU for each way of getting device memory, as NVML and cuMemGetInfo tell it.
//
//     memory_facts NAME [ARGUMENT...]     one experiment; prints a line of JSON for each step
//     memory_facts                        the names
//
// Each experiment wants a process of its own: memory_facts.py runs them. No CUDA runtime: only the driver's calls.
#define _GNU_SOURCE
#include <cuda.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define PIECE (2 * MIB)

#include "../bench/gpu/memory/see.h"

#include "../bench/gpu/memory/ptx.h"

#include "memory_facts/contexts.c"

#include "memory_facts/linear.c"

#include "memory_facts/pools.c"

#include "memory_facts/capture.c"

#include "memory_facts/mapped.c"

#include "memory_facts/shared.c"

#include "memory_facts/arrays.c"

#include "memory_facts/graphs.c"

#include "memory_facts/limits.c"

#include "memory_facts/modules.c"

#include "memory_facts/others.c"

#include "memory_facts/death.c"

#include "memory_facts/costs.c"

#include "memory_facts/nobody.c"

#include "memory_facts/names.c"

static const struct experiment {
    const char *name;
    void (*run)(char **arguments);
} experiments[] = {
    {"about", about},
    {"context_primary", context_primary},
    {"context_more", context_more},
    {"context_green", context_green},
    {"context_streams", context_streams},
    {"linear_sizes", linear_sizes},
    {"linear_keep", linear_keep},
    {"linear_random", linear_random},
    {"linear_trace", linear_trace},
    {"pitch", pitch},
    {"managed", managed},
    {"managed_sizes", managed_sizes},
    {"host", host},
    {"pageable", pageable},
    {"pair_times", pair_times},
    {"pool_default", pool_default},
    {"pool_pressure", pool_pressure},
    {"pool_growth", pool_growth},
    {"pool_steps", pool_steps},
    {"pool_random", pool_random},
    {"pool_made", pool_made},
    {"pool_gone", pool_gone},
    {"pool_costs", pool_costs},
    {"capture", capture},
    {"mapped_life", mapped_life},
    {"mapped_handle", mapped_handle},
    {"mapped_fd", mapped_fd},
    {"dma_buf", dma_buf},
    {"mapped_host", mapped_host},
    {"mapped_no_context", mapped_no_context},
    {"shared", shared},
    {"importer", importer},
    {"arrays", arrays},
    {"arrays_many", arrays_many},
    {"mipmaps", mipmaps},
    {"graph_nodes", graph_nodes},
    {"graph_captured", graph_captured},
    {"graph_two", graph_two},
    {"graph_kept", graph_kept},
    {"graph_no_room", graph_no_room},
    {"graph_large", graph_large},
    {"limit_heap", limit_heap},
    {"limit_others", limit_others},
    {"limit_stack", limit_stack},
    {"local_frames", local_frames},
    {"local_graph", local_graph},
    {"module_global", module_global},
    {"library_global", library_global},
    {"module_managed", module_managed},
    {"library_managed", library_managed},
    {"managed_small", managed_small},
    {"opencl", opencl},
    {"vulkan", vulkan},
    {"video", video},
    {"death", death},
    {"victim", victim},
    {"cost_nvml", cost_nvml},
    {"idle_context", idle_context},
    {"seen_from", seen_from},
    {"fork", fork_only},
    {"ipc_names", ipc_names},
    {"attributes", attributes},
    {"nobody", nobody},
    {"nobody_tiles", nobody_tiles},
    {"nobody_forked", nobody_forked},
    {"nobody_other", nobody_other},
};

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned i = 0; i < sizeof experiments / sizeof *experiments; i++) {
        if (count < 2) printf("%s\n", experiments[i].name);
        else if (!strcmp(words[1], experiments[i].name)) {
            experiments[i].run(words + 2);
            return 0;
        }
    }
    return count < 2 ? 0 : 2;
}
