// Built statically, as a static-pie, with musl, and with musl statically: no preloaded library is in any of them.

#include <pthread.h>
#include <sys/wait.h>

#include "say.h"

static void *work(void *unused)
{
    return unused;
}

int main(void)
{
    say_library();
    pthread_t thread;
    printf("thread: %d\n", pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL));
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    int status = -1;
    waitpid(child, &status, 0);
    printf("child: %d\n", status);
    // What such a program starts is within reach again.
    if (getenv("AND_THEN")) {
        fflush(stdout);
        execl(getenv("AND_THEN"), getenv("AND_THEN"), (char *)NULL);
        fail(getenv("AND_THEN"), "not started");
    }
    say_self();
    return 0;
}
