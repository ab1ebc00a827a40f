// A program whose malloc and pthread_create are a preloaded library's, which finds the next ones by RTLD_NEXT.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

#include "tour.h"

static void *work(void *driver)
{
    char *block = malloc(1 << 16);
    memset(block, 1, 1 << 16);
    free(block);
    return (void *)(long)tour(driver);
}

int main(void)
{
    say_library();
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda)
        fail("libcuda.so.1", dlerror());
    struct driver driver = found_driver(dlsym, cuda);
    pthread_t thread;
    void *result = NULL;
    if (pthread_create(&thread, NULL, work, &driver) != 0 || pthread_join(thread, &result) != 0)
        fail("pthread_create", "no thread");
    int (*threads)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "allocator_threads");
    if (!threads)
        fail("allocator_threads", "the allocator is not in the process");
    printf("threads that the allocator knows of: %d\n", threads());
    say_self();
    return (int)(long)result;
}
