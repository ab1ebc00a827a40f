// A preloaded library that replaces dlsym itself, as some profilers and overlays do, and passes every question on.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

static int asked;

void *dlsym(void *handle, const char *name)
{
    static void *(*next)(void *, const char *);
    // What comes next may be libsoftmig's dlsym or the C library's: either has to answer to the version it has there.
    if (!next)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    asked += strncmp(name, "cu", 2) == 0;
    return next(handle, name);
}

// How many names of the driver were asked for, for the program that asks.
int getter_asked(void)
{
    return asked;
}
