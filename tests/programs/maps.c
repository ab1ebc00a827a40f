// Says whether the library is in it, and no more: what others start to see where they are.

#include "say.h"

int main(void)
{
    say_library();
    return 0;
}
