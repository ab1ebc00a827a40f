// Asks another library for names that the driver has too: each must be answered with that library's own.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "tour.h"

static void own(void *library, const char *name)
{
    int (*function)(void *, unsigned long) = (int (*)(void *, unsigned long))dlsym(library, name);
    if (function)
        printf("%s: %d\n", name, function(NULL, 0));
    else
        printf("%s: not found\n", name);
    function = (int (*)(void *, unsigned long))dlvsym(library, name, "1.0");
    if (function)
        printf("%s by dlvsym: %d\n", name, function(NULL, 0));
    else
        printf("%s by dlvsym: not found\n", name);
}

int main(void)
{
    say_library();
    void *library = dlopen("/opt/programs/libprivate.so", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail("libprivate.so", dlerror());
    own(library, "cuPrivateThing");
    own(library, "cuMemAlloc_v2");
    own(library, "nvmlInit_v2");
    // A name that this library lacks is not there, also if another library has it.
    own(library, "cuInit");
    // After the driver is there the answers are the same.
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda)
        fail("libcuda.so.1", dlerror());
    struct driver driver = found_driver(dlsym, cuda);
    int result = tour(&driver);
    own(library, "cuPrivateThing");
    own(library, "cuMemAlloc_v2");
    own(library, "nvmlInit_v2");
    own(library, "cuInit");
    say_self();
    return result;
}
