// Reaches every function of the hook's table in all the ways that programs have, and says which library each way ends
// in. rows.h is made from hook/bindings/rows.txt: one ROW(name) a line.
//
// Prints `WAY NAME LIBRARY SYMBOL`; the caller compares runs with and without the hook.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ROW(name) extern char name[] __attribute__((weak));
#include "rows.h"
#undef ROW

static const struct { const char *name; void *linked; } rows[] = {
#define ROW(name) { #name, name },
#include "rows.h"
#undef ROW
};

static void say(const char *way, const char *name, void *address) {
    Dl_info info;
    const char *library = "-", *symbol = "-";
    if (address && dladdr(address, &info)) {
        const char *slash = strrchr(info.dli_fname, '/');
        library = slash ? slash + 1 : info.dli_fname;
        symbol = info.dli_sname ? info.dli_sname : "?";
    }
    printf("%s %s %s %s\n", way, name, library, symbol);
}

// A name without its version: what cuGetProcAddress takes.
static void base_of(const char *name, char *base) {
    strcpy(base, name);
    char *end = strstr(base, "_pts");
    if (end) *end = 0;
    for (int v = 2; v <= 4; v++) {
        char suffix[4] = { '_', 'v', (char)('0' + v), 0 };
        size_t length = strlen(base);
        if (length > 3 && !strcmp(base + length - 3, suffix)) base[length - 3] = 0;
    }
}

int main(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!cuda || !nvml) { fprintf(stderr, "%s\n", dlerror()); return 1; }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int result = init(0);
    if (result) { fprintf(stderr, "cuInit: %d\n", result); return 1; }
    typedef int first(const char *, void **, int, uint64_t);
    typedef int second(const char *, void **, int, uint64_t, int *);
    first *get1 = (first *)dlsym(cuda, "cuGetProcAddress");
    second *get2 = (second *)dlsym(cuda, "cuGetProcAddress_v2");
    static const int versions[] = { 2000, 3020, 4000, 6050, 7000, 10010, 11000, 11020, 11030, 11040, 12000, 12050, 12080, 13000 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *name = rows[i].name;
        void *library = strncmp(name, "nvml", 4) ? cuda : nvml;
        say("linked", name, rows[i].linked);
        say("dlsym", name, dlsym(library, name));
        say("default", name, dlsym(RTLD_DEFAULT, name));
        // The driver's libraries give each symbol their own name as its version, if any.
        say("dlvsym", name, dlvsym(library, name, library == cuda ? "libcuda.so.1" : "libnvidia-ml.so.1"));
        if (library != cuda) continue;
        char base[64];
        base_of(name, base);
        for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
            for (uint64_t flags = 0; flags < 3; flags++) {
                char way[32];
                void *address = NULL;
                int status = 0;
                int got = get1 ? get1(base, &address, versions[v], flags) : -1;
                snprintf(way, sizeof way, "first:%d:%d:%d", versions[v], (int)flags, got);
                say(way, base, address);
                address = NULL;
                got = get2 ? get2(base, &address, versions[v], flags, &status) : -1;
                snprintf(way, sizeof way, "second:%d:%d:%d:%d", versions[v], (int)flags, got, status);
                say(way, base, address);
            }
        }
    }
    return 0;
}
