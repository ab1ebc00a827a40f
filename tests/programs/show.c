// Takes a seat at the monitor for show, tells it nothing there, and becomes another program, which has that seat.
//
//     show UUID PROGRAM WORD...      the GPU's UUID in 32 digits

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "say.h"

static void take_a_seat(const char *uuid)
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
    // The page stays open.
}

int main(int count, char **words)
{
    if (count < 3 || strlen(words[1]) != 32)
        return 2;
    take_a_seat(words[1]);
    execv(words[2], words + 2);
    return 1;
}
