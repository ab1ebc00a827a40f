// A driver whose functions have a version, so that dlvsym finds them by it. Nothing stands behind it.

#include "driver.h"

#define GPU_BYTES ((size_t)8 << 30)

static __thread void *context;

int cuInit(unsigned flags)
{
    return flags ? 1 : 0;
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = 0;
    return ordinal == 0 ? 0 : 101;
}

int cuDeviceGetName(char *name, int length, int device)
{
    for (int i = 0; i < length; i++)
        name[i] = i < length - 1 && i < 8 ? "Versions"[i] : '\0';
    return device;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = GPU_BYTES;
    return device;
}

int cuDevicePrimaryCtxRetain(void **made, int device)
{
    *made = &context;
    return device;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    return device;
}

int cuCtxSetCurrent(void *wanted)
{
    context = wanted;
    return 0;
}

int cuCtxGetDevice(int *device)
{
    *device = 0;
    return context ? 0 : 201;
}

int cuMemGetInfo_v2(size_t *free, size_t *total)
{
    *free = *total = GPU_BYTES;
    return context ? 0 : 201;
}

int cuMemAlloc_v2(device_pointer *at, size_t bytes)
{
    *at = 0x7f0000000000;
    return bytes ? 0 : 1;
}

int cuMemFree_v2(device_pointer at)
{
    return at == 0x7f0000000000 ? 0 : 1;
}
