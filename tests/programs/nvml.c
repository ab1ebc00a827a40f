// Asks NVML what nvidia-smi and monitors ask, linked against it.

#include "say.h"

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct utilization {
    unsigned gpu, memory;
};
int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetName(void *device, char *name, unsigned length);
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *processes);
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *utilization);

int main(void)
{
    say_library();
    unsigned count = 0;
    int result = nvmlInit_v2();
    printf("nvmlInit: %d\n", result);
    if (result != 0)
        return 0;
    result = nvmlDeviceGetCount_v2(&count);
    printf("nvmlDeviceGetCount: %d %u\n", result, count);
    for (unsigned i = 0; i < count; i++) {
        void *device = NULL;
        char name[96] = "", uuid[96] = "";
        struct memory memory = {0};
        // The version of a struct: its size, and above that its number.
        struct memory_v2 memory_v2 = {.version = sizeof memory_v2 | 2 << 24};
        struct utilization utilization = {0};
        unsigned processes = 0;
        printf("nvmlDeviceGetHandleByIndex: %d\n", nvmlDeviceGetHandleByIndex_v2(i, &device));
        result = nvmlDeviceGetName(device, name, sizeof name);
        printf("nvmlDeviceGetName: %d %s\n", result, name);
        result = nvmlDeviceGetUUID(device, uuid, sizeof uuid);
        printf("nvmlDeviceGetUUID: %d %s\n", result, uuid);
        result = nvmlDeviceGetMemoryInfo(device, &memory);
        printf("nvmlDeviceGetMemoryInfo: %d\nfigure total: %llu\nfigure used: %llu\n", result, memory.total, memory.used);
        result = nvmlDeviceGetMemoryInfo_v2(device, &memory_v2);
        printf("nvmlDeviceGetMemoryInfo_v2: %d\nfigure total: %llu\nfigure reserved: %llu\nfigure used: %llu\n", result,
               memory_v2.total, memory_v2.reserved, memory_v2.used);
        result = nvmlDeviceGetComputeRunningProcesses_v3(device, &processes, NULL);
        printf("nvmlDeviceGetComputeRunningProcesses: %d %u\n", result, processes);
        printf("nvmlDeviceGetUtilizationRates: %d\n", nvmlDeviceGetUtilizationRates(device, &utilization));
    }
    printf("nvmlShutdown: %d\n", nvmlShutdown());
    say_self();
    return 0;
}
