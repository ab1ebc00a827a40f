// Asks for each function in all four ways and says whether it got one function or several.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "tour.h"

int main(void)
{
    say_library();
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda)
        fail("libcuda.so.1", dlerror());
    get_proc_address_v2 *get = (get_proc_address_v2 *)dlsym(cuda, "cuGetProcAddress_v2");
    if (!get)
        fail("cuGetProcAddress_v2", "not found");
    struct {
        const char *name;
        void *linked;
    } functions[] = {
#define BOTH(symbol, member, arguments) {#symbol, (void *)symbol},
        DRIVER_FUNCTIONS(BOTH)
#undef BOTH
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        char base[64];
        snprintf(base, sizeof base, "%s", functions[i].name);
        char *suffix = strstr(base, "_v2");
        if (suffix)
            *suffix = '\0';
        void *asked = NULL;
        int status = -1;
        get(base, &asked, 12000, 0, &status);
        void *by_handle = dlsym(cuda, functions[i].name);
        void *by_default = dlsym(RTLD_DEFAULT, functions[i].name);
        void *by_version = dlvsym(cuda, functions[i].name, "1.0");
        printf("%s: dlsym %s, RTLD_DEFAULT %s, dlvsym %s, cuGetProcAddress %s\n", functions[i].name,
               by_handle == functions[i].linked ? "same" : "other", by_default == functions[i].linked ? "same" : "other",
               by_version == functions[i].linked ? "same" : "other", asked == functions[i].linked ? "same" : "other");
    }
    return 0;
}
