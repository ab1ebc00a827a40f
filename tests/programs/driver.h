// What the clients know of the CUDA driver: our own declarations, so that no header of NVIDIA's is needed.

#ifndef DRIVER_H
#define DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned long long device_pointer;

// Each function that a tour needs: the name to look up, the name in the struct, its arguments.
#define DRIVER_FUNCTIONS(FUNCTION)                                                     \
    FUNCTION(cuInit, init, (unsigned flags))                                           \
    FUNCTION(cuDriverGetVersion, version, (int *version))                              \
    FUNCTION(cuDeviceGetCount, count, (int *count))                                    \
    FUNCTION(cuDeviceGet, device, (int *device, int ordinal))                          \
    FUNCTION(cuDeviceGetName, name, (char *name, int length, int device))              \
    FUNCTION(cuDeviceTotalMem_v2, total, (size_t *bytes, int device))                  \
    FUNCTION(cuDevicePrimaryCtxRetain, retain, (void **context, int device))           \
    FUNCTION(cuDevicePrimaryCtxRelease_v2, release, (int device))                      \
    FUNCTION(cuCtxSetCurrent, set_current, (void *context))                            \
    FUNCTION(cuCtxGetDevice, current, (int *device))                                   \
    FUNCTION(cuMemGetInfo_v2, info, (size_t *free, size_t *total))                     \
    FUNCTION(cuMemAlloc_v2, alloc, (device_pointer *at, size_t bytes))                 \
    FUNCTION(cuMemFree_v2, free, (device_pointer at))

#define AS_EXTERN(symbol, member, arguments) extern int symbol arguments;
DRIVER_FUNCTIONS(AS_EXTERN)
#undef AS_EXTERN

// The same functions as a program has them that looked them up.
struct driver {
#define AS_MEMBER(symbol, member, arguments) int(*member) arguments;
    DRIVER_FUNCTIONS(AS_MEMBER)
#undef AS_MEMBER
};

// cuGetProcAddress and cuGetProcAddress_v2, which every CUDA runtime gets by dlsym.
typedef int get_proc_address_v1(const char *name, void **found, int version, uint64_t flags);
typedef int get_proc_address_v2(const char *name, void **found, int version, uint64_t flags, int *status);

enum {
    NO_DEVICE = 100,
    LEGACY_STREAM = 1 << 0,
    PER_THREAD_STREAM = 1 << 1,
};

#endif
