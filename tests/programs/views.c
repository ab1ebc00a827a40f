// Says what a program is told of the GPUs: how much memory they have, and who uses them.
//
//     views look [PID...]        asks NVML alone, also for what it keeps of these processes
//     views both [PID...]        the same with a context of CUDA's, and once more when it holds 64 MiB
//     views hold MIB [busy]      holds so much of the first GPU, busy or not, until it is killed
//     views bursts MIB           holds it for 820 ms of each second

#include <stddef.h>
#include <stdint.h>

#include "say.h"

enum { MIB = 1 << 20, ROOM = 64, SUCCESS = 0 };

// CUDA.
int cuInit(unsigned flags);
int cuCtxCreate(void **context, unsigned flags, int device);
int cuCtxDestroy_v2(void *context);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(uint64_t *at, size_t bytes);
int cuMemFree_v2(uint64_t at);
int cuMemGetInfo(unsigned *free, unsigned *total);
int cuMemGetInfo_v2(size_t *free, size_t *total);
int cuDeviceTotalMem(unsigned *bytes, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuLaunchKernel(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *stream,
                   void **parameters, void **extra);

// NVML.
struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct process_v1 {
    unsigned pid;
    unsigned long long used;
};
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
struct detail {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected;
};
struct details {
    unsigned version, mode, count;
    struct detail *entries;
};
struct sample {
    unsigned pid;
    unsigned long long time;
    unsigned sm, memory, encoder, decoder;
};
struct information {
    unsigned long long time;
    unsigned pid, sm, memory, encoder, decoder, jpeg, ofa;
};
struct information_list {
    unsigned version, count;
    unsigned long long after;
    struct information *entries;
};
struct utilization {
    unsigned gpu, memory;
};
// nvmlAccountingStats_t.
struct account {
    unsigned gpu, memory;
    unsigned long long peak, time, start;
    unsigned running, reserved[5];
};
int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory);
int nvmlDeviceGetRunningProcessDetailList(void *device, struct details *list);
int nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned *count, unsigned long long after);
int nvmlDeviceGetProcessesUtilizationInfo(void *device, struct information_list *list);
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *utilization);
int nvmlDeviceGetAccountingPids(void *device, unsigned *count, unsigned *pids);
int nvmlDeviceGetAccountingStats(void *device, unsigned pid, struct account *stats);

// Each list of processes: its function and the struct that it fills.
#define LISTS(LIST)                                      \
    LIST(nvmlDeviceGetComputeRunningProcesses, process_v1)    \
    LIST(nvmlDeviceGetComputeRunningProcesses_v2, process)    \
    LIST(nvmlDeviceGetComputeRunningProcesses_v3, process)    \
    LIST(nvmlDeviceGetGraphicsRunningProcesses, process_v1)   \
    LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, process)   \
    LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, process)   \
    LIST(nvmlDeviceGetMPSComputeRunningProcesses, process_v1) \
    LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, process) \
    LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, process)
#define AS_EXTERN(name, kind) int name(void *device, unsigned *count, struct kind *entries);
LISTS(AS_EXTERN)
#undef AS_EXTERN

#define VERSION(type, number) ((unsigned)sizeof(type) | (number) << 24)

// Before a call: an entry that was not written is still full of this.
enum { UNTOUCHED = 0xaa };

static unsigned gpu;
static const char *when = "";

// Begins the line of a call on the current GPU.
static void begin(const char *name, const char *how, int result)
{
    printf("%s%u %s%s: %d", when, gpu, name, how, result);
}

// Ends a line with a list in room for so many: each process, and a figure of it cut to 32 bits.
static void end(const void *entries, size_t size, size_t pid_at, size_t used_at, unsigned count, unsigned room, int result)
{
    const unsigned char *entry = entries;
    printf(" %u", count);
    for (unsigned i = 0; i < room; i++, entry += size) {
        unsigned pid, used;
        int touched = 0;
        for (size_t byte = 0; byte < size; byte++)
            touched |= entry[byte] != UNTOUCHED;
        memcpy(&pid, entry + pid_at, sizeof pid);
        memcpy(&used, entry + used_at, sizeof used);
        if (result == SUCCESS && i < count)
            printf(" %u=%u", pid, used);
        else if (touched)
            printf(" touched");
    }
    printf("\n");
}

// The rooms that a program may make: none, to hear how much it needs; too little; enough.
static const struct {
    const char *how;
    unsigned room;
} rooms[] = {{" none", 0}, {" one", 1}, {"", ROOM}};

#define LIST(name, kind)                                                                                          \
    for (size_t i = 0; i < 3; i++) {                                                                              \
        struct kind entries[ROOM];                                                                                \
        unsigned count = rooms[i].room;                                                                           \
        memset(entries, UNTOUCHED, sizeof entries);                                                               \
        int result = name(device, &count, rooms[i].room ? entries : NULL);                                        \
        begin(#name, rooms[i].how, result);                                                                       \
        end(entries, sizeof *entries, offsetof(struct kind, pid), offsetof(struct kind, used), count, ROOM, result); \
    }                                                                                                             \
    begin(#name, " nowhere", name(device, NULL, NULL));                                                           \
    printf("\n");

static void look_at_processes(void *device)
{
    LISTS(LIST)
    for (unsigned mode = 0; mode < 4; mode++) {
        for (size_t i = 0; i < 3; i++) {
            struct detail entries[ROOM];
            struct details list = {VERSION(struct details, 1), mode, rooms[i].room, rooms[i].room ? entries : NULL};
            char name[64];
            memset(entries, UNTOUCHED, sizeof entries);
            snprintf(name, sizeof name, "nvmlDeviceGetRunningProcessDetailList mode %u", mode);
            int result = nvmlDeviceGetRunningProcessDetailList(device, &list);
            begin(name, rooms[i].how, result);
            end(entries, sizeof *entries, offsetof(struct detail, pid), offsetof(struct detail, used), list.count, ROOM,
                result);
        }
    }
    struct details unknown = {VERSION(struct details, 9), 0, 0, NULL};
    begin("nvmlDeviceGetRunningProcessDetailList", " unknown", nvmlDeviceGetRunningProcessDetailList(device, &unknown));
    printf("\n");
}

static void look_at_work(void *device)
{
    for (size_t i = 0; i < 3; i++) {
        struct sample samples[ROOM];
        unsigned count = rooms[i].room;
        memset(samples, UNTOUCHED, sizeof samples);
        int result = nvmlDeviceGetProcessUtilization(device, count ? samples : NULL, &count, 0);
        begin("nvmlDeviceGetProcessUtilization", rooms[i].how, result);
        end(samples, sizeof *samples, offsetof(struct sample, pid), offsetof(struct sample, sm), count, ROOM, result);

        struct information entries[ROOM];
        unsigned room = rooms[i].room;
        struct information_list list = {VERSION(struct information_list, 1), room, 0, room ? entries : NULL};
        memset(entries, UNTOUCHED, sizeof entries);
        result = nvmlDeviceGetProcessesUtilizationInfo(device, &list);
        begin("nvmlDeviceGetProcessesUtilizationInfo", rooms[i].how, result);
        end(entries, sizeof *entries, offsetof(struct information, pid), offsetof(struct information, sm), list.count,
            ROOM, result);
    }
    struct information_list unknown = {VERSION(struct information_list, 9), 0, 0, NULL};
    begin("nvmlDeviceGetProcessesUtilizationInfo", " unknown", nvmlDeviceGetProcessesUtilizationInfo(device, &unknown));
    printf("\n");
    struct utilization utilization = {0};
    begin("nvmlDeviceGetUtilizationRates", "", nvmlDeviceGetUtilizationRates(device, &utilization));
    printf(" %u %u\n", utilization.gpu, utilization.memory);
}

static void look_at_accounts(void *device, char **pids)
{
    for (size_t i = 0; i < 3; i++) {
        unsigned entries[ROOM];
        unsigned count = rooms[i].room;
        memset(entries, UNTOUCHED, sizeof entries);
        int result = nvmlDeviceGetAccountingPids(device, &count, count ? entries : NULL);
        begin("nvmlDeviceGetAccountingPids", rooms[i].how, result);
        end(entries, sizeof *entries, 0, 0, count, ROOM, result);
    }
    for (; *pids; pids++) {
        struct account account = {0};
        int result = nvmlDeviceGetAccountingStats(device, (unsigned)strtoul(*pids, NULL, 10), &account);
        begin("nvmlDeviceGetAccountingStats ", *pids, result);
        printf(" %llu\n", account.peak);
    }
}

static void look_at_memory(void *device)
{
    struct memory memory = {0};
    begin("nvmlDeviceGetMemoryInfo", "", nvmlDeviceGetMemoryInfo(device, &memory));
    printf(" %llu %llu %llu\n", memory.total, memory.used, memory.free);
    struct memory_v2 memory_v2 = {.version = VERSION(struct memory_v2, 2)};
    begin("nvmlDeviceGetMemoryInfo_v2", "", nvmlDeviceGetMemoryInfo_v2(device, &memory_v2));
    printf(" %llu %llu %llu %llu\n", memory_v2.total, memory_v2.used, memory_v2.free, memory_v2.reserved);
    struct memory_v2 unknown = {.version = VERSION(struct memory_v2, 9)};
    begin("nvmlDeviceGetMemoryInfo_v2", " unknown", nvmlDeviceGetMemoryInfo_v2(device, &unknown));
    printf(" %llu\n", unknown.total);
    begin("nvmlDeviceGetMemoryInfo", " nowhere", nvmlDeviceGetMemoryInfo(device, NULL));
    printf("\n");
}

// Calls `look` with each GPU that NVML has.
static void each_gpu(void (*look)(void *device))
{
    unsigned count = 0;
    if (nvmlInit_v2() != SUCCESS || nvmlDeviceGetCount_v2(&count) != SUCCESS)
        fail("NVML", "no GPUs");
    for (gpu = 0; gpu < count; gpu++) {
        void *device = NULL;
        if (nvmlDeviceGetHandleByIndex_v2(gpu, &device) != SUCCESS)
            fail("NVML", "no such GPU");
        look(device);
    }
    gpu = 0;
}

static char **accounts;

static void look_at_all(void *device)
{
    look_at_memory(device);
    look_at_processes(device);
    look_at_work(device);
    look_at_accounts(device, accounts);
}

static void look_at_cuda(void)
{
    size_t free_bytes = 0, total = 0, all = 0;
    begin("cuMemGetInfo_v2", "", cuMemGetInfo_v2(&free_bytes, &total));
    printf(" %zu %zu\n", free_bytes, total);
    begin("cuDeviceTotalMem_v2", "", cuDeviceTotalMem_v2(&all, 0));
    printf(" %zu\n", all);
    unsigned all_v1 = 0;
    begin("cuDeviceTotalMem", "", cuDeviceTotalMem(&all_v1, 0));
    printf(" %u\n", all_v1);
}

static void begin_cuda(void)
{
    void *context = NULL;
    if (cuInit(0) != SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != SUCCESS || cuCtxSetCurrent(context) != SUCCESS)
        fail("CUDA", "no GPU");
}

static void take(size_t mib)
{
    uint64_t at;
    int result = cuMemAlloc_v2(&at, mib * MIB);
    if (result != SUCCESS) {
        printf("cuMemAlloc_v2: %d\n", result);
        exit(1);
    }
}

// Only programs of old, with contexts of old, count in 32 bits.
static void look_at_old_cuda(void)
{
    void *context = NULL;
    unsigned free_bytes = 0, total = 0;
    if (cuCtxCreate(&context, 0, 0) != SUCCESS)
        fail("cuCtxCreate", "no context");
    begin("cuMemGetInfo", "", cuMemGetInfo(&free_bytes, &total));
    printf(" %u %u\n", free_bytes, total);
    cuCtxDestroy_v2(context);
}

static void hold(size_t mib, int busy)
{
    void *module = NULL, *kernel = NULL;
    begin_cuda();
    take(mib);
    // An hour of work at once.
    if (busy && (cuModuleLoadData(&module, "kernel busy 3600000000000\ncode 4096\n") != SUCCESS ||
                 cuModuleGetFunction(&kernel, module, "busy") != SUCCESS ||
                 cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != SUCCESS))
        fail("CUDA", "no work");
    printf("holds: %d\n", getpid());
    fflush(stdout);
    for (;;)
        pause();
}

static void bursts(size_t mib)
{
    uint64_t at = 0;
    begin_cuda();
    for (;;) {
        if (cuMemAlloc_v2(&at, mib * MIB) != SUCCESS)
            fail("CUDA", "no memory");
        usleep(820000);
        if (cuMemFree_v2(at) != SUCCESS)
            fail("CUDA", "memory that stays");
        usleep(180000);
    }
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    if (strcmp(what, "hold") == 0 && count > 2)
        hold(strtoul(words[2], NULL, 10), count > 3);
    if (strcmp(what, "bursts") == 0 && count > 2)
        bursts(strtoul(words[2], NULL, 10));
    accounts = words + 2;
    say_library();
    if (strcmp(what, "both") == 0) {
        begin_cuda();
        look_at_cuda();
        each_gpu(look_at_all);
        take(64);
        when = "later ";
        look_at_cuda();
        each_gpu(look_at_memory);
        look_at_old_cuda();
    } else if (strcmp(what, "look") == 0) {
        each_gpu(look_at_all);
    } else {
        fail(what, "not what this program does");
    }
    return 0;
}
