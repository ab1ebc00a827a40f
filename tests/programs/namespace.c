// Loads the driver into a namespace of its own with dlmopen, where no preloaded library is: the driver's own answers.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "tour.h"

int main(void)
{
    say_library();
    void *cuda = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    if (!cuda)
        fail("libcuda.so.1", dlerror());
    struct driver driver = found_driver(dlsym, cuda);
    int result = tour(&driver);
    say_self();
    return result;
}
