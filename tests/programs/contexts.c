// Makes a context and ends it, again and again until it is killed. It launches nothing.
//
//     contexts MILLISECONDS      for how long each is there

#include "pace.h"

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    double time = strtod(argv[1], NULL) / 1000;
    reach("cuGetProcAddress_v2");
    must("cuInit", cu.cuInit(0));
    for (;;) {
        void *context = NULL;
        must("cuCtxCreate", cu.cuCtxCreate_v2(&context, 0, 0));
        rest(time);
        must("cuCtxDestroy", cu.cuCtxDestroy_v2(context));
    }
}
