// Looks for the driver among all that is loaded before it loads it, as code does that wants to know whether it must.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "tour.h"

int main(void)
{
    say_library();
    // With the library in the process the first look succeeds; what is found has to be as good as the driver's own.
    void *from = RTLD_DEFAULT;
    if (!dlsym(from, "cuInit"))
        from = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!from) {
        printf("no driver\n");
        return 0;
    }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(from, "cuInit");
    int result = init(0);
    if (result == NO_DEVICE) {
        printf("no driver\n");
        return 0;
    }
    printf("cuInit: %d\n", result);
    // Not every function is interposed, so the rest is where it always was.
    if (from == RTLD_DEFAULT)
        from = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    struct driver driver = found_driver(dlsym, from);
    result = tour(&driver);
    say_self();
    return result;
}
