// Looks the driver's functions up with dlvsym. What it finds in a library without versions is the loader's business.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "tour.h"

// By a version if there is one of that name, else as all programs do.
static void *with_a_version(void *from, const char *name)
{
    void *found = dlvsym(from, name, "libcuda.so.1");
    void *plain = dlsym(from, name);
    printf("%s, libcuda.so.1: %s\n", name, !found ? "not found" : found == plain ? "as by dlsym" : "another than by dlsym");
    return found ? found : plain;
}

int main(void)
{
    say_library();
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda)
        fail("libcuda.so.1", dlerror());
    // libc's functions have versions, and the one that is asked for has to be the one that is got.
    printf("getpid, GLIBC_2.2.5: %s\n", dlvsym(RTLD_DEFAULT, "getpid", "GLIBC_2.2.5") ? "found" : "not found");
    printf("getpid, GLIBC_9.9: %s\n", dlvsym(RTLD_DEFAULT, "getpid", "GLIBC_9.9") ? "found" : "not found");
    printf("dlsym, GLIBC_2.2.5: %s\n", dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5") ? "found" : "not found");
    struct driver driver = found_driver(with_a_version, cuda);
    int result = tour(&driver);
    say_self();
    return result;
}
