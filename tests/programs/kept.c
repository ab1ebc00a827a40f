// Keeps an address of the driver beyond dlclose. Only with libsoftmig, which pins the driver, is that address still good.

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
    printf("cuInit: %d\n", driver.init(0));
    dlclose(cuda);
    void *still = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    printf("after dlclose: %s\n", still ? "still there" : "gone");
    if (!still)
        return 0;
    int result = tour(&driver);
    return result;
}
