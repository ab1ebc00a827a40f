// Gets the driver as a statically linked CUDA runtime does: one dlsym, then everything through cuGetProcAddress.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "tour.h"

static get_proc_address_v1 *old_get;
static get_proc_address_v2 *get;
static uint64_t flags;

// cuGetProcAddress wants the name without the suffix, and picks the suffix by the version.
static void *ask(void *from, const char *name)
{
    (void)from;
    char base[64];
    snprintf(base, sizeof base, "%s", name);
    char *suffix = strstr(base, "_v2");
    if (suffix)
        *suffix = '\0';
    void *found = NULL;
    int status = -1;
    int result = get ? get(base, &found, 12000, flags, &status) : old_get(base, &found, 11030, flags);
    printf("cuGetProcAddress %s: %d %d\n", base, result, status);
    return found;
}

// What a runtime asks and does not get.
static void refused(const char *name, int version)
{
    void *found = &found;
    int status = -1;
    int result = get(name, &found, version, flags, &status);
    printf("cuGetProcAddress %s %d: %d %d %s\n", name, version, result, status, found ? "an address" : "none");
}

int main(int count, char **words)
{
    say_library();
    // `per-thread` asks for the streams that each thread has for itself, `v1` for the old way to ask.
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "per-thread") == 0)
            flags = PER_THREAD_STREAM;
        else if (strcmp(words[i], "legacy") == 0)
            flags = LEGACY_STREAM;
    }
    int v1 = count > 1 && strcmp(words[1], "v1") == 0;
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!cuda)
        fail("libcuda.so.1", dlerror());
    old_get = (get_proc_address_v1 *)dlsym(cuda, "cuGetProcAddress");
    if (!v1)
        get = (get_proc_address_v2 *)dlsym(cuda, "cuGetProcAddress_v2");
    if (!old_get || (!v1 && !get))
        fail("cuGetProcAddress", "not found");

    if (get) {
        // The runtime asks for the function itself too, and for every other by its answer.
        void *again = NULL;
        int status = -1;
        int result = get("cuGetProcAddress", &again, 12000, flags, &status);
        printf("cuGetProcAddress of itself: %d %d %s\n", result, status, again == (void *)get ? "the same" : "another");
        if (again)
            get = (get_proc_address_v2 *)again;
        refused("cuNoSuchThing", 12000);
        refused("cuMemAllocAsync", 3020);
        refused("cuMemAlloc", 12000);
        refused("cuLaunchKernel", 12000);
    }
    struct driver driver = found_driver(ask, NULL);
    int result = tour(&driver);
    say_self();
    return result;
}
