// Closes every descriptor but the first three, as daemons and job launchers do: before CUDA, after it, and in between.

#define _GNU_SOURCE

#include "tour.h"

int main(void)
{
    struct driver driver = linked_driver();
    say_library();
    closefrom(3);
    int result = tour(&driver);
    // Descriptors of the driver's own are gone too then, so only calls that need none of them may follow.
    closefrom(3);
    int device = -1;
    void *context = NULL;
    printf("cuDevicePrimaryCtxRetain: %d\n", driver.retain(&context, 0));
    printf("cuCtxSetCurrent: %d\n", driver.set_current(context));
    int answer = driver.current(&device);
    printf("cuCtxGetDevice: %d %d\n", answer, device);
    device_pointer at = 0;
    printf("cuMemAlloc: %d\n", driver.alloc(&at, 4096));
    printf("cuMemFree: %d\n", driver.free(at));
    // A descriptor that the program opens now is its own, whatever number it gets.
    FILE *own = fopen("/etc/passwd", "re");
    for (int i = 0; i < 16; i++)
        driver.current(&device);
    char line[256];
    printf("its own file: %s\n", own && fgets(line, sizeof line, own) ? "still open" : "lost");
    if (own)
        fclose(own);
    say_self();
    return result;
}
