// Memory that others may keep: descriptors of it, in this process or in another one.
//
//     exports ACTION [ARGUMENT...]: see the end of this file

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "ways.h"

enum { STEP = 8 << 20, MOST = 4096 };

static void begin(void)
{
    int result = start(false);
    printf("start: %d\n", result);
    fflush(stdout);
    if (result)
        exit(0);
}

static void say_free(void)
{
    size_t available = 0, total = 0;
    cu.cuMemGetInfo_v2(&available, &total);
    printf("free: %zu\n", available);
}

// Physical memory that can be exported.
static int make(unsigned long long *handle)
{
    struct physical_properties properties = {.type = 1, .handle_types = 1, .location = {1, device_number}};
    return cu.cuMemCreate(handle, STEP, &properties, 0);
}

// Each takes memory, shows it to others and gives it back; the descriptor, if it is still open.
static int dma_buf(bool closes_first, int *file)
{
    device_pointer at;
    int result = cu.cuMemAlloc_v2(&at, STEP);
    if (result)
        return result;
    result = cu.cuMemGetHandleForAddressRange(file, at, STEP, 1, 0);
    if (closes_first)
        close(*file), *file = -1;
    int freed = cu.cuMemFree_v2(at);
    return result ? result : freed;
}

static int handle(bool closes_first, int *file)
{
    unsigned long long memory;
    int result = make(&memory);
    if (result)
        return result;
    result = cu.cuMemExportToShareableHandle(file, memory, 1, 0);
    if (closes_first)
        close(*file), *file = -1;
    int released = cu.cuMemRelease(memory);
    return result ? result : released;
}

// Opened again by the process itself.
static int reopened(bool closes_first, int *file)
{
    unsigned long long memory, again = 0;
    struct block block = {0};
    int result = make(&memory);
    if (result)
        return result;
    result = cu.cuMemExportToShareableHandle(file, memory, 1, 0);
    if (!result)
        result = cu.cuMemImportFromShareableHandle(&again, (void *)(long)*file, 1);
    if (closes_first)
        close(*file), *file = -1;
    if (!result)
        result = map_physical(again, STEP, &block);
    if (!result)
        result = give_physical(&block);
    cu.cuMemRelease(again);
    cu.cuMemRelease(memory);
    return result;
}

static int of_ipc(bool closes_first, int *file)
{
    (void)closes_first, (void)file;
    device_pointer at;
    struct ipc ipc;
    int result = cu.cuMemAlloc_v2(&at, STEP);
    if (result)
        return result;
    result = cu.cuIpcGetMemHandle(&ipc, at);
    int freed = cu.cuMemFree_v2(at);
    return result ? result : freed;
}

// `closes_first`: the call that maps it fails.
static int into_arrays(bool closes_first, int *file)
{
    (void)file;
    char list[96] = {0};
    struct block block = {0};
    int result = take_handle(STEP, &block);
    if (result)
        return result;
    cu.cuMemMapArrayAsync(closes_first ? NULL : list, 1, NULL);
    return give_handle(&block);
}

static const struct {
    const char *name;
    int (*once)(bool closes_first, int *file);
} kinds[] = {{"dma-buf", dma_buf}, {"handle", handle}, {"reopened", reopened}, {"ipc", of_ipc}, {"arrays", into_arrays}};

// So often with a descriptor that is closed "first", "then" or never ("kept").
static void rounds(const char *kind, const char *when, int most)
{
    begin();
    say_free();
    int done = 0, result = SUCCESS;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        while (strcmp(kind, kinds[i].name) == 0 && done < most) {
            int file = -1;
            result = kinds[i].once(strcmp(when, "first") == 0, &file);
            if (strcmp(when, "then") == 0)
                close(file);
            if (result)
                break;
            done++;
        }
    }
    printf("took: blocks=%d then=%d\n", done, result);
    say_free();
    fflush(stdout);
    wait_for_line();
}

static void send_file(int to, int file)
{
    char control[CMSG_SPACE(sizeof file)] = {0}, byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    *part = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof file), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(part), &file, sizeof file);
    if (sendmsg(to, &message, 0) != 1)
        fail("sendmsg", strerror(errno));
}

// -1 at the end.
static int receive_file(int from)
{
    int file = -1;
    char control[CMSG_SPACE(sizeof file)], byte;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(from, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
        memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
    return file;
}

// In another process: "maps" and unmaps what comes, or "keeps" it, or keeps it and "hides" it.
static void consumer(int socket, const char *what)
{
    int file, result = start(false), done = 0;
    // Room that is charged and not taken: it may not hide what is.
    device_pointer at;
    if (!result && strcmp(what, "hides") == 0)
        result = cu.cuMemAllocManaged(&at, (size_t)20 * STEP, 1);
    while ((file = receive_file(socket)) >= 0) {
        unsigned long long memory = 0;
        struct block block = {0};
        if (!result)
            result = cu.cuMemImportFromShareableHandle(&memory, (void *)(long)file, 1);
        close(file);
        if (strcmp(what, "maps") == 0) {
            if (!result)
                result = map_physical(memory, STEP, &block);
            if (!result)
                result = give_physical(&block);
            cu.cuMemRelease(memory);
        }
        done += !result;
        if (write(socket, &result, sizeof result) != sizeof result)
            break;
    }
    printf("consumed: %d then=%d\n", done, result);
    fflush(stdout);
    _exit(0);
}

static void hands_on(const char *what, int most)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends))
        fail("socketpair", strerror(errno));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        consumer(ends[1], what);
    }
    close(ends[1]);
    begin();
    int done = 0, result = SUCCESS, theirs = SUCCESS;
    for (; done < most && !result && !theirs; done++) {
        unsigned long long memory;
        int file = -1;
        result = make(&memory);
        if (result)
            break;
        result = cu.cuMemExportToShareableHandle(&file, memory, 1, 0);
        send_file(ends[0], file);
        close(file);
        if (read(ends[0], &theirs, sizeof theirs) != sizeof theirs)
            fail("read", strerror(errno));
        cu.cuMemRelease(memory);
    }
    printf("took: blocks=%d then=%d\n", done, result ? result : theirs);
    fflush(stdout);
    wait_for_line();
    close(ends[0]);
    waitpid(child, NULL, 0);
}

// Descriptors of so many blocks are a child's, which has closed the driver's files. This process waits to be killed.
static void leaves(int most)
{
    begin();
    for (int i = 0; i < most; i++) {
        device_pointer at;
        int file;
        if (cu.cuMemAlloc_v2(&at, STEP) || cu.cuMemGetHandleForAddressRange(&file, at, STEP, 1, 0))
            fail("exports", "no memory, or no descriptor");
        if (fcntl(file, F_DUPFD, 512) < 0)
            fail("F_DUPFD", strerror(errno));
        close(file);
    }
    pid_t child = fork();
    if (child == 0) {
        close_range(3, 511, 0);
        while (getchar() != EOF)
            ;
        _exit(0);
    }
    printf("forked: %d\n", child);
    fflush(stdout);
    pause();
}

// A child has closed all files, and this process, with so many blocks, waits to be killed.
static void closes(int most)
{
    begin();
    device_pointer at;
    for (int i = 0; i < most; i++)
        if (cu.cuMemAlloc_v2(&at, STEP))
            fail("closes", "no memory");
    pid_t child = fork();
    if (child == 0) {
        close_range(3, ~0u, 0);
        while (getchar() != EOF)
            ;
        _exit(0);
    }
    printf("forked: %d\n", child);
    fflush(stdout);
    pause();
}

int main(int words, char **word)
{
    const char *action = words > 1 ? word[1] : "";
    reach("dlsym");
    say_library();
    if (strcmp(action, "rounds") == 0 && words > 4)
        rounds(word[2], word[3], atoi(word[4]));
    else if (strcmp(action, "hands-on") == 0 && words > 3)
        hands_on(word[2], atoi(word[3]));
    else if (strcmp(action, "leaves") == 0 && words > 2)
        leaves(atoi(word[2]));
    else if (strcmp(action, "closes") == 0 && words > 2)
        closes(atoi(word[2]));
    else
        fail(action, "no such action");
    return 0;
}
