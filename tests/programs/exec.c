// Uses the driver, then runs itself anew: by fork and exec, by vfork and exec, by posix_spawn, by exec in its own place.

#define _GNU_SOURCE
#include <spawn.h>
#include <sys/wait.h>

#include "tour.h"

static void wait_for(pid_t child, const char *which)
{
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        fail(which, "no child");
    printf("%s: %d\n", which, status);
    fflush(stdout);
}

int main(int count, char **words)
{
    extern char **environ;
    struct driver driver = linked_driver();
    say_library();
    int result = tour(&driver);
    if (count > 1) {
        say_self();
        return result;
    }
    char *again[] = {words[0], "again", NULL};

    pid_t child = fork();
    if (child == 0) {
        execv("/proc/self/exe", again);
        _exit(1);
    }
    wait_for(child, "fork and exec");

    child = vfork();
    if (child == 0) {
        execv("/proc/self/exe", again);
        _exit(1);
    }
    wait_for(child, "vfork and exec");

    if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, again, environ) != 0)
        fail("posix_spawn", "no child");
    wait_for(child, "posix_spawn");

    // With nothing in the environment: whose process it is does not depend on it.
    child = fork();
    if (child == 0) {
        execve("/proc/self/exe", again, (char *[]){NULL});
        _exit(1);
    }
    wait_for(child, "an empty environment");

    execv("/proc/self/exe", again);
    fail("execv", "came back");
}
