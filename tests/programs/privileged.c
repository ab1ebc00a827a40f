// A set-uid and a set-gid helper, by the modes that it is installed with: the loader distrusts its environment.

#include <sys/auxv.h>

#include "tour.h"

int main(int count, char **words)
{
    say_library();
    printf("secure: %lu\n", getauxval(AT_SECURE));
    printf("user %s, group %s\n", getuid() == geteuid() ? "its own" : "another", getgid() == getegid() ? "its own" : "another");
    // What the caller says of limits is not for a privileged program's ears.
    printf("variable: %s\n", getenv("CUDA_DEVICE_MEMORY_LIMIT") ? "there" : "not there");
    if (count > 1 && strcmp(words[1], "quiet") == 0)
        return 0;
    struct driver driver = linked_driver();
    int result = tour(&driver);
    say_self();
    return result;
}
