// Has signals of its own before the first CUDA call, and a timer that interrupts every call: none may go astray.

#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "tour.h"

static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
    (void)signal;
    alarms++;
}

int main(void)
{
    struct driver driver = linked_driver();
    say_library();
    umask(027);
    signal(SIGPIPE, SIG_IGN);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 500}, {0, 500}}, NULL);

    int result = driver.init(0);
    void *context = NULL;
    result |= driver.retain(&context, 0);
    result |= driver.set_current(context);
    int failed = 0;
    while (alarms < 100) {
        device_pointer at = 0;
        failed += driver.alloc(&at, 4096) != 0;
        failed += driver.free(at) != 0;
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    printf("cuInit and a context: %d\ncalls that failed under signals: %d\n", result, failed);
    result |= tour(&driver);
    say_self();
    return result;
}
