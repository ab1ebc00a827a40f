// How long cuInit takes, and one cheap call of the driver that the hook has in its table.
#include <cuda.h>
#include <stdio.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(void) {
    double start = now();
    CUresult result = cuInit(0);
    printf("time init_ns %.0f\n", now() - start);
    if (result) { printf("cuInit: %d\n", result); return 1; }
    CUcontext context;
    CUdevice device;
    if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    const int count = 20000000;
    double best = 1e18;
    for (int round = 0; round < 5; round++) {
        start = now();
        for (int i = 0; i < count; i++) cuCtxGetDevice(&device);
        double each = (now() - start) / count;
        if (each < best) best = each;
    }
    printf("time get_device_ns %.3f\n", best);
    printf("device %d\n", device);
    return 0;
}
