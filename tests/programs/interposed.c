// A linked program with a second interposer in it: preloaded before libsoftmig, or among its own libraries after it.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "tour.h"

int main(void)
{
    struct driver driver = linked_driver();
    say_library();
    int result = tour(&driver);
    int (*seen)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "interposer_seen");
    if (!seen)
        fail("interposer_seen", "the second interposer is not in the process");
    printf("the interposer saw: %d\n", seen());
    say_self();
    return result;
}
