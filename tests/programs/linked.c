// A program that is linked against libcuda, as every sample of the driver API is.

#include "tour.h"

int main(void)
{
    struct driver driver = linked_driver();
    say_library();
    int result = tour(&driver);
    say_self();
    return result;
}
