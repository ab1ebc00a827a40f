// Says in one line whose limits hold for it: what cuInit gives, and whether a second copy of the driver gives memory,
// which it does not where limits hold. Loads the driver itself, so that it runs where there is little else.
//
//     whose                 looks once
//     whose without-files   looks while it can open no file, and again when it can
//     whose until FILE      looks, waits for the file, and looks again
//     whose from FILE       looks, the second copy being this file
//     whose without-main    looks when the first thread has ended

#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/resource.h>

#include "say.h"

static int is_library(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size, (void)unused;
    return strstr(object->dlpi_name, "/libsoftmig.so") != NULL;
}

static void *cuda, *copy;

static void look(void)
{
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int result = init ? init(0) : -1;
    // After cuInit: only then it is known what is on the process's GPUs.
    int (*alloc)(void *, size_t) = (int (*)(void *, size_t))dlsym(copy, "cuMemAlloc_v2");
    if (!init || !alloc)
        fail("libcuda.so.1", "a function is missing");
    uint64_t at = 0;
    // One write, so that no other process's line comes between.
    printf("whose: library=%d cuInit=%d copy=%d\n", dl_iterate_phdr(is_library, NULL), result, alloc(&at, 1));
    fflush(stdout);
}

static void *look_alone(void *main_thread)
{
    (void)main_thread;
    char state = 'R', path[] = "/proc/self/stat";
    while (state != 'Z') {
        FILE *stat = fopen(path, "r");
        if (!stat || fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
            fail(path, "no state");
        fclose(stat);
        usleep(1000);
    }
    look();
    exit(0);
}

int main(int count, char **words)
{
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    const char *how = count > 1 ? words[1] : "";
    if (strcmp(how, "from") == 0 && count > 2)
        copy = dlopen(words[2], RTLD_NOW);
    else
        copy = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    if (!cuda || !copy)
        fail("libcuda.so.1", dlerror());
    if (strcmp(how, "without-files") == 0) {
        struct rlimit before, none;
        getrlimit(RLIMIT_NOFILE, &before);
        // Standard input, output and error are open already.
        none = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
        setrlimit(RLIMIT_NOFILE, &none);
        look();
        setrlimit(RLIMIT_NOFILE, &before);
    }
    if (strcmp(how, "without-main") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, look_alone, NULL);
        pthread_exit(NULL);
    }
    look();
    if (strcmp(how, "until") == 0 && count > 2) {
        while (access(words[2], F_OK) != 0)
            usleep(10000);
        look();
    }
    return 0;
}
