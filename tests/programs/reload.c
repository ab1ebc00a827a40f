// Unloads the driver and NVML and loads them again, as go-nvml does each time it is started and shut down.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "tour.h"

static void nvml_once(void)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_GLOBAL);
    if (!nvml)
        fail("libnvidia-ml.so.1", dlerror());
    int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*shutdown)(void) = (int (*)(void))dlsym(nvml, "nvmlShutdown");
    int (*count)(unsigned *) = (int (*)(unsigned *))dlsym(nvml, "nvmlDeviceGetCount_v2");
    if (!init || !shutdown || !count)
        fail("libnvidia-ml.so.1", "a function is missing");
    unsigned devices = 0;
    printf("nvmlInit: %d\n", init());
    int result = count(&devices);
    printf("nvmlDeviceGetCount: %d %u\n", result, devices);
    printf("nvmlShutdown: %d\n", shutdown());
    printf("dlclose: %d\n", dlclose(nvml));
}

int main(void)
{
    say_library();
    nvml_once();
    nvml_once();
    int result = 0;
    for (int i = 0; i < 3 && result == 0; i++) {
        void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
        if (!cuda)
            fail("libcuda.so.1", dlerror());
        struct driver driver = found_driver(dlsym, cuda);
        result = tour(&driver);
        printf("dlclose: %d\n", dlclose(cuda));
    }
    say_self();
    return result;
}
