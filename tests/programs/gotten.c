// A program whose dlsym is a preloaded library's. Everything must still be found, and no lookup may go in circles.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "tour.h"

int main(void)
{
    say_library();
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda)
        fail("libcuda.so.1", dlerror());
    struct driver driver = found_driver(dlsym, cuda);
    int (*asked)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "getter_asked");
    if (!asked)
        fail("getter_asked", "the other dlsym is not in the process");
    printf("names that the other dlsym passed on: %d\n", asked());
    int result = tour(&driver);
    say_self();
    return result;
}
