// Loads libcuda and looks its functions up, as most programs do that run with and without a GPU.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "tour.h"

int main(void)
{
    say_library();
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda) {
        printf("no driver\n");
        return 0;
    }
    struct driver driver = found_driver(dlsym, cuda);

    // What is not there stays so, and dlerror says it in the loader's own words, once.
    dlerror();
    printf("cuNoSuchThing: %s\n", dlsym(cuda, "cuNoSuchThing") ? "found" : "not found");
    printf("dlerror: %s\n", dlerror());
    printf("dlerror again: %s\n", dlerror() ? "something" : "nothing");
    printf("getpid in libcuda: %s\n", dlsym(cuda, "getpid") == (void *)getpid ? "libc's own" : "another");

    int result = tour(&driver);
    say_self();
    return result;
}
