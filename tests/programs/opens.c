// Does as its words say: cuda and nvml make the first call there is, gpu opens the first GPU's device and says how that went,
// fork goes on in a child.

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int cuInit(unsigned flags);
int nvmlInit_v2(void);

static void gpu(void)
{
    int file = open("/dev/nvidia0", O_RDWR | O_CLOEXEC);
    puts(file < 0 ? strerror(errno) : "open");
    fflush(stdout);
    if (file >= 0)
        close(file);
}

int main(int count, char **words)
{
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "cuda") == 0)
            cuInit(0);
        else if (strcmp(words[i], "nvml") == 0)
            nvmlInit_v2();
        else if (strcmp(words[i], "gpu") == 0)
            gpu();
        else if (strcmp(words[i], "fork") == 0) {
            pid_t child = fork();
            if (child != 0) {
                int status = 0;
                return waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 1;
            }
        } else
            return 2;
    }
    return 0;
}
