// Launches kernels of a millisecond until it is killed, and claims channels of another process: it makes the calls by which
// libcuda makes channels, with handles that another one has. The fake driver's kernel answers all of them with 0.
//
//     claims CLIENT GROUP CHANNEL...

#include "pace.h"

#include <fcntl.h>
#include <sys/ioctl.h>

static const unsigned long CONTROL = 0xc020462a, ALLOCATE = 0xc020462b;
enum { CHANNEL = 0xc86f, AHEAD = 20 };

static void ask(int file, unsigned long request, const unsigned words[4])
{
    unsigned all[8] = {words[0], words[1], words[2], words[3]};
    if (ioctl(file, request, all) != 0)
        fail("ioctl", "no answer");
}

static unsigned number(const char *text)
{
    return (unsigned)strtoul(text, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    reach("linked");
    must("cuInit", cu.cuInit(0));
    use_gpu(0);
    void *kernel = kernel_of_length(1000000), *stream = new_stream();
    must("cuLaunchKernel", launch(kernel, stream));
    int file = open("/dev/nvidiactl", O_PATH | O_CLOEXEC);
    unsigned client = number(argv[1]), group = number(argv[2]);
    for (int at = 3; at < argc; at++)
        ask(file, ALLOCATE, (unsigned[]){client, group, number(argv[at]), CHANNEL});
    ask(file, CONTROL, (unsigned[]){client, group, 0xa06c0103, 0});
    for (;;) {
        for (int count = 0; count < AHEAD; count++)
            must("cuLaunchKernel", launch(kernel, stream));
        must("cuStreamSynchronize", cu.cuStreamSynchronize(stream));
    }
}
