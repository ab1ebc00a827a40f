// Built with -fsanitize=thread: its runtime takes over much of libc, and looks for the originals before main.

#include <dlfcn.h>
#include <pthread.h>

#include "say.h"

static void *work(void *argument)
{
    return argument;
}

int main(void)
{
    say_library();
    pthread_t thread;
    int given = 1;
    void *result = NULL;
    if (pthread_create(&thread, NULL, work, &given) || pthread_join(thread, &result))
        fail("a thread", "cannot be had");
    printf("thread: %s\n", result == &given ? "done" : "lost");
    printf("malloc: %s\n", dlsym(RTLD_DEFAULT, "malloc") ? "found" : "not found");
    return 0;
}
