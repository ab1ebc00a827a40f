// A program with gcc's AddressSanitizer, which wants to be the first library of all and says so.

#include "say.h"

int main(void)
{
    say_library();
    char *block = malloc(100);
    strcpy(block, "memory that is watched");
    printf("%s\n", block);
    free(block);
    return 0;
}
