// Takes seats at the monitor for show. The GPU's UUID is in 32 digits.
//
//     show UUID PROGRAM WORD...      tells nothing there, and becomes another program, which has that seat
//     show UUID tells COUNT          as many processes, each of which tells of 240 other channels each 20 ms

#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

// The places of a seat's fields, as words (hook/region/src/seat.rs).
enum { SIZE = 5 * 4096, WAKES = 16, VERSION = 25, CHANNELS = 30, ALL = 31, TOLD = 240 };

#include "say.h"

// Gives the file of its page.
static int take_a_seat(const char *uuid)
{
    struct sockaddr_un at = {AF_UNIX, "/run/softmig/arbiter.sock"};
    unsigned char request[24] = "softmig2";
    for (int byte = 0; byte < 16; byte++) {
        char digits[3] = {uuid[2 * byte], uuid[2 * byte + 1], 0};
        request[8 + byte] = (unsigned char)strtoul(digits, NULL, 16);
    }
    int answer = -1, socket_file = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    char space[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&answer, sizeof(answer)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    if (connect(socket_file, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        send(socket_file, request, sizeof(request), 0) != sizeof(request) || recvmsg(socket_file, &message, 0) <= 0 ||
        answer != 0 || CMSG_FIRSTHDR(&message) == NULL)
        fail("a seat", "refused");
    return *(int *)CMSG_DATA(CMSG_FIRSTHDR(&message));
}

static void tell(const char *uuid)
{
    uint32_t *page = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, take_a_seat(uuid), 0);
    int file = open("/dev/nvidiactl", O_PATH);
    if (page == MAP_FAILED || file < 0)
        fail("a seat", "no page");
    for (uint32_t round = 1;; round++) {
        for (uint32_t at = 0; at < TOLD; at++)
            memcpy(page + ALL + 4 * at, (uint32_t[]){(uint32_t)file, 0xc1d00000 + round, at, round}, 16);
        page[CHANNELS] = TOLD;
        __atomic_fetch_add(page + VERSION, 1, __ATOMIC_SEQ_CST);
        __atomic_fetch_add(page + WAKES, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, page + WAKES, FUTEX_WAKE, 1, NULL, NULL, 0);
        usleep(20000);
    }
}

int main(int count, char **words)
{
    if (count < 3 || strlen(words[1]) != 32)
        return 2;
    if (strcmp(words[2], "tells") == 0 && count > 3) {
        for (int left = atoi(words[3]); left > 1 && fork() > 0; left--)
            ;
        tell(words[1]);
    }
    take_a_seat(words[1]);
    execv(words[2], words + 2);
    return 1;
}
