// When does CUDA read CUDA_MPS_PIPE_DIRECTORY, and when does it open its files?
//
//     variable WHEN DIRECTORY SECONDS
//
// WHEN is init (the variable is there in cuInit alone), context (only while the context is made) or never: then it has what its
// environment has. It prints what is open after each step, and stays for SECONDS.
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char **before;

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void put(const char *directory) {
    size_t count = 0;
    static char word[512];
    snprintf(word, sizeof word, "CUDA_MPS_PIPE_DIRECTORY=%s", directory);
    while (environ[count]) count++;
    char **with = calloc(count + 2, sizeof *with);
    memcpy(with, environ, count * sizeof *with);
    with[count] = word;
    before = environ;
    environ = with;
}

static void show(const char *step, double ms) {
    printf("%s %.1f ms:", step, ms);
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *one; (one = readdir(folder));) {
        char path[300], to[300];
        snprintf(path, sizeof path, "/proc/self/fd/%s", one->d_name);
        ssize_t length = readlink(path, to, sizeof to - 1);
        if (length < 0) continue;
        to[length] = 0;
        // A socket's number says nothing.
        to[strcspn(to, ":")] = 0;
        if (strstr(to, "nvidia") || strstr(to, "socket") || strstr(to, "mps")) printf(" %s", to);
    }
    closedir(folder);
    printf("\n");
    fflush(stdout);
}

int main(int count, char **words) {
    if (count < 4) return 2;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) return 3;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
    void *context;
    double begun = now_ms();
    if (!strcmp(words[1], "init")) put(words[2]);
    printf("cuInit: %d\n", init(0));
    if (!strcmp(words[1], "init")) environ = before;
    show("after cuInit", now_ms() - begun);
    begun = now_ms();
    if (!strcmp(words[1], "context")) put(words[2]);
    printf("cuDevicePrimaryCtxRetain: %d\n", retain(&context, 0));
    if (!strcmp(words[1], "context")) environ = before;
    show("with a context", now_ms() - begun);
    sleep(atoi(words[3]));
    return 0;
}
