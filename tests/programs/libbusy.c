// A library as none may be in every process: it opens a file, changes the umask and a signal. Tests must notice.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

__attribute__((constructor)) static void work(void)
{
    open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    umask(077);
    signal(SIGUSR2, SIG_IGN);
}
