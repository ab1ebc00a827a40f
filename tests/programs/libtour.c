// The tour as a library, for Python's ctypes and for Java: a native method needs no more of Java's headers than this.

#include "tour.h"

int tour_linked(void)
{
    struct driver driver = linked_driver();
    int result = tour(&driver);
    fflush(stdout);
    return result;
}

int Java_Tour_linked(void *environment, void *class)
{
    (void)environment;
    (void)class;
    return tour_linked();
}
