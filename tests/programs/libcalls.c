// Has syscall(2) in the place of libc's, as a library may that wants to know what a program asks of the kernel.

#include <errno.h>

long syscall(long number, long a, long b, long c, long d, long e, long f)
{
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = e;
    register long sixth __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    if ((unsigned long)result > -4096UL) {
        errno = -result;
        return -1;
    }
    return result;
}
