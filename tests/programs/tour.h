// One tour through the driver: what every client does with it once it has the functions, however it got them.

#ifndef TOUR_H
#define TOUR_H

#include "driver.h"
#include "say.h"

// Says what each call gave. 0, or the first call's error: without a device there is nothing more to see.
static inline int tour(const struct driver *driver)
{
    int version = 0, count = 0, device = -1, current = -1;
    size_t bytes = 0, free_bytes = 0, total_bytes = 0;
    char name[64] = "";
    void *context = NULL;
    device_pointer at = 0;

    int result = driver->init(0);
    printf("cuInit: %d\n", result);
    fflush(stdout);
    if (result != 0)
        return result;
    result = driver->version(&version);
    printf("cuDriverGetVersion: %d %d\n", result, version);
    result = driver->count(&count);
    printf("cuDeviceGetCount: %d %d\n", result, count);
    result = driver->device(&device, 0);
    printf("cuDeviceGet: %d %d\n", result, device);
    result = driver->name(name, sizeof name, device);
    printf("cuDeviceGetName: %d %s\n", result, name);
    result = driver->total(&bytes, device);
    printf("cuDeviceTotalMem: %d\nfigure total: %zu\n", result, bytes);
    // No such device: the driver's own answer to a mistake has to come through.
    printf("cuDeviceGet, not there: %d\n", driver->device(&device, 99));
    device = 0;
    printf("cuMemGetInfo, no context: %d\n", driver->info(&free_bytes, &total_bytes));
    printf("cuDevicePrimaryCtxRetain: %d\n", driver->retain(&context, device));
    printf("cuCtxSetCurrent: %d\n", driver->set_current(context));
    result = driver->current(&current);
    printf("cuCtxGetDevice: %d %d\n", result, current);
    printf("cuMemAlloc: %d\n", driver->alloc(&at, 64 << 20));
    result = driver->info(&free_bytes, &total_bytes);
    printf("cuMemGetInfo: %d\nfigure free: %zu\nfigure total: %zu\n", result, free_bytes, total_bytes);
    printf("cuMemFree: %d\n", driver->free(at));
    printf("cuMemFree, not ours: %d\n", driver->free(at + 4096));
    printf("cuMemAlloc, nothing: %d\n", driver->alloc(&at, 0));
    printf("cuCtxSetCurrent, none: %d\n", driver->set_current(NULL));
    printf("cuDevicePrimaryCtxRelease: %d\n", driver->release(device));
    fflush(stdout);
    return 0;
}

// The functions that the program is linked against.
static inline struct driver linked_driver(void)
{
    return (struct driver){
#define LINKED(symbol, member, arguments) .member = symbol,
        DRIVER_FUNCTIONS(LINKED)
#undef LINKED
    };
}

// The functions as `look_up(from, name)` finds them; ends the program where one is missing.
static inline struct driver found_driver(void *(*look_up)(void *from, const char *name), void *from)
{
    struct driver driver;
    struct {
        const char *name;
        void **at;
    } wanted[] = {
#define FOUND(symbol, member, arguments) {#symbol, (void **)&driver.member},
        DRIVER_FUNCTIONS(FOUND)
#undef FOUND
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].at = look_up(from, wanted[i].name);
        if (!*wanted[i].at)
            fail(wanted[i].name, "not found");
    }
    return driver;
}

#endif
