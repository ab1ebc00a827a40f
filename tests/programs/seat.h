// A seat at the monitor, by hand. The GPU's UUID is in 32 digits.

#ifndef SEAT_H
#define SEAT_H

#include <errno.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "say.h"

// The places of a seat's fields, as words (hook/region/src/seat.rs).
enum { SIZE = 5 * 4096, WAKES = 16, VERSION = 25, CHANNELS = 30, ALL = 31, TOLD = 240 };

// A connection to the monitor; -1 if there is none.
static inline int reach_monitor(void)
{
    struct sockaddr_un at = {AF_UNIX, "/run/softmig/arbiter.sock"};
    int file = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (connect(file, (struct sockaddr *)&at, sizeof(at)) == 0)
        return file;
    close(file);
    return -1;
}

// The connection by which this process has its seat.
static int connection;

// Gives the file of a seat's page; -1 if it was refused.
static inline int ask_for_a_seat(const char *uuid)
{
    unsigned char request[24] = "softmig2";
    for (int byte = 0; byte < 16; byte++) {
        char digits[3] = {uuid[2 * byte], uuid[2 * byte + 1], 0};
        request[8 + byte] = (unsigned char)strtoul(digits, NULL, 16);
    }
    int answer = -1;
    connection = reach_monitor();
    char space[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&answer, sizeof(answer)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    if (connection >= 0 && send(connection, request, sizeof(request), MSG_NOSIGNAL) == sizeof(request) &&
        recvmsg(connection, &message, 0) > 0 && answer == 0 && CMSG_FIRSTHDR(&message) != NULL)
        return *(int *)CMSG_DATA(CMSG_FIRSTHDR(&message));
    close(connection);
    return -1;
}

// The same until there is one, and the page: few of a user's processes may ask at once.
static inline uint32_t *sit_down(const char *uuid)
{
    int file;
    while ((file = ask_for_a_seat(uuid)) < 0)
        usleep(20000);
    return mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

// Tells there of channels that were made through this file; they are others in each round.
static inline void tell(uint32_t *page, int file, uint32_t round)
{
    for (uint32_t at = 0; at < TOLD; at++)
        memcpy(page + ALL + 4 * at, (uint32_t[]){(uint32_t)file, 0xc1d00000 + round, at, round}, 16);
    page[CHANNELS] = TOLD;
    __atomic_fetch_add(page + VERSION, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(page + WAKES, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, page + WAKES, FUTEX_WAKE, 1, NULL, NULL, 0);
}

#endif
