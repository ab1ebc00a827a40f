// Has functions of its own with names that the loader and the driver have too, as programs that cache what the loader
// says of loaded objects do: each lookup must come to the program's, and each look behind them to what was there.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>

#include "say.h"

typedef int visit(struct dl_phdr_info *, size_t, void *);

int cuInit(unsigned flags)
{
    return 4711 + (int)flags;
}

// glibc's unwinder calls this one.
int dl_iterate_phdr(visit *each, void *data)
{
    static int (*original)(visit *, void *);
    if (!original)
        original = (int (*)(visit *, void *))dlsym(RTLD_NEXT, "dl_iterate_phdr");
    return original(each, data);
}

static int count(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info, (void)size;
    ++*(int *)data;
    return 0;
}

// A library that lies below the addresses that it was linked for.
int far_away(void);

// The manual's way to tell a symbol that is not there from one that is null.
static void say_found(void *library, const char *name)
{
    dlerror();
    void *found = dlsym(library, name);
    const char *error = dlerror();
    printf("%s: %s, %s\n", name, found ? "found" : "not found", error ? "an error" : "no error");
}

int main(void)
{
    say_library();
    printf("far away: %d\n", far_away());
    int objects = 0;
    dl_iterate_phdr(count, &objects);
    printf("objects: %s\n", objects > 2 ? "several" : "few");
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(RTLD_DEFAULT, "cuInit");
    printf("by the default scope: %d\n", init ? init(0) : -1);
    void *self = dlopen(NULL, RTLD_NOW);
    init = (int (*)(unsigned))dlsym(self, "cuInit");
    printf("by the program's handle: %d\n", init ? init(1) : -1);
    say_found(self, "cuInit");
    say_found(self, "nvmlInit_v2");
    say_found(RTLD_DEFAULT, "cuMemAlloc_v2");
    say_found(RTLD_NEXT, "cuMemAlloc_v2");
    void *library = dlopen("/opt/programs/libprivate.so", RTLD_NOW);
    if (!library)
        fail("libprivate.so", dlerror());
    say_found(library, "cuMemAlloc_v2");
    say_self();
    return 0;
}
