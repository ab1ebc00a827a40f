// Forks before the first CUDA call and after it. The child of the second has no CUDA, and must not disturb its parent.

#define _DEFAULT_SOURCE

#include <sys/wait.h>

#include "tour.h"

static void wait_for(pid_t child, const char *which)
{
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        fail(which, "no child");
    printf("%s: %s %d\n", which, WIFEXITED(status) ? "exited" : "was killed",
           WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    fflush(stdout);
}

int main(void)
{
    struct driver driver = linked_driver();
    say_library();

    pid_t child = fork();
    if (child == 0) {
        say_library();
        exit(tour(&driver));
    }
    wait_for(child, "the child before");

    int result = tour(&driver);
    child = fork();
    if (child == 0) {
        // As libraries do that were loaded by the parent: nothing but an end.
        say_self();
        exit(0);
    }
    wait_for(child, "the child after");
    child = fork();
    if (child == 0)
        _exit(7);
    wait_for(child, "the child in a hurry");
    child = vfork();
    if (child == 0)
        _exit(8);
    wait_for(child, "the child on our stack");

    // The parent's own is untouched.
    result |= tour(&driver);
    say_self();
    return result;
}
