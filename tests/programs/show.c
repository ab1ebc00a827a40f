// Takes a seat at the monitor for show, tells nothing there, and becomes another program, which has that seat.
//
//     show UUID PROGRAM WORD...

#include "seat.h"

int main(int count, char **words)
{
    if (count < 3 || strlen(words[1]) != 32)
        return 2;
    if (ask_for_a_seat(words[1]) < 0)
        return 1;
    execv(words[2], words + 2);
    return 1;
}
