// Two processes: one takes device memory, until it has so much or is refused, and lets the other use it. Then the one
// that took it is killed.
//
//     shares WAY COUNT     WAY is ipc, ipc-old, descriptor or pool
//
// Each says how many blocks it has, and holds them: the maker until it is killed, the user until stdin ends.

#include <errno.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "ways.h"

enum { STEP = 4 << 20, MOST = 1024, DESCRIPTOR = 1 };

static const char *way;

// What the maker tells of one block; a descriptor goes beside it.
struct parcel {
    struct ipc data;
    // No block is in it: this was the end.
    bool is_end;
};

static void hand_over(int socket, const struct parcel *parcel, int descriptor)
{
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec text = {(void *)parcel, sizeof *parcel};
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1};
    if (descriptor >= 0) {
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        struct cmsghdr *control = CMSG_FIRSTHDR(&message);
        control->cmsg_level = SOL_SOCKET;
        control->cmsg_type = SCM_RIGHTS;
        control->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(control), &descriptor, sizeof descriptor);
    }
    if (sendmsg(socket, &message, 0) != sizeof *parcel)
        fail("sendmsg", strerror(errno));
}

static int receive(int socket, struct parcel *parcel)
{
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec text = {parcel, sizeof *parcel};
    struct msghdr message = {
        .msg_iov = &text, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(socket, &message, 0) != sizeof *parcel)
        fail("recvmsg", "the maker is gone");
    int descriptor = -1;
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    if (control)
        memcpy(&descriptor, CMSG_DATA(control), sizeof descriptor);
    return descriptor;
}

static void begin(void)
{
    int result = start(false);
    if (result)
        fail("start", "no context");
}

static void *shared_pool(void)
{
    struct pool_properties properties = {.type = 1, .handle_types = DESCRIPTOR, .location = {1, device_number}};
    void *pool = NULL;
    if (cu.cuMemPoolCreate(&pool, &properties) != SUCCESS)
        fail("cuMemPoolCreate", "no pool");
    return pool;
}

static int share_by_descriptor(struct block *block, int *descriptor)
{
    struct physical_properties properties = {
        .type = 1, .handle_types = DESCRIPTOR, .location = {1, device_number}};
    int result = cu.cuMemCreate(&block->handle, STEP, &properties, 0);
    if (result)
        return result;
    result = cu.cuMemExportToShareableHandle(descriptor, block->handle, DESCRIPTOR, 0);
    // Mapped, it lives without its handle.
    if (!result)
        result = map_physical(block->handle, STEP, block);
    if (!result)
        result = cu.cuMemRelease(block->handle);
    if (result)
        fail("descriptor", "not shared");
    return result;
}

static void make(int socket, int count)
{
    begin();
    void *pool = NULL;
    struct parcel parcel = {.is_end = false};
    if (strcmp(way, "pool") == 0) {
        int descriptor = -1;
        pool = shared_pool();
        if (cu.cuMemPoolExportToShareableHandle(&descriptor, pool, DESCRIPTOR, 0) != SUCCESS)
            fail("cuMemPoolExportToShareableHandle", "not shared");
        hand_over(socket, &parcel, descriptor);
    }
    int made = 0;
    while (made < count) {
        struct block block = {0};
        int result = SUCCESS, told = SUCCESS, descriptor = -1;
        if (strcmp(way, "descriptor") == 0) {
            result = share_by_descriptor(&block, &descriptor);
        } else if (pool) {
            result = cu.cuMemAllocFromPoolAsync(&block.at, STEP, pool, NULL);
            told = result ? SUCCESS : cu.cuMemPoolExportPointer(&parcel.data, block.at);
        } else {
            result = cu.cuMemAlloc_v2(&block.at, STEP);
            told = result ? SUCCESS : cu.cuIpcGetMemHandle(&parcel.data, block.at);
        }
        if (result == OUT_OF_MEMORY)
            break;
        if (result || told)
            fail(way, "no memory to share");
        hand_over(socket, &parcel, descriptor);
        made++;
        if (descriptor >= 0)
            close(descriptor);
    }
    parcel.is_end = true;
    hand_over(socket, &parcel, -1);
    printf("made: blocks=%d\n", made);
    fflush(stdout);
    pause();
}

static int open_one(struct parcel *parcel, int descriptor, void *pool, struct block *block)
{
    if (pool)
        return cu.cuMemPoolImportPointer(&block->at, pool, &parcel->data);
    if (strcmp(way, "ipc") == 0)
        return cu.cuIpcOpenMemHandle_v2(&block->at, parcel->data, 1);
    if (strcmp(way, "ipc-old") == 0)
        return cu.cuIpcOpenMemHandle(&block->at, parcel->data, 1);
    unsigned long long handle = 0;
    int result = cu.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor, DESCRIPTOR);
    close(descriptor);
    if (result)
        return result;
    result = map_physical(handle, STEP, block);
    int released = cu.cuMemRelease(handle);
    return result ? result : released;
}

static int close_one(struct block *block, void *pool)
{
    if (pool)
        return cu.cuMemFreeAsync(block->at, NULL);
    if (strncmp(way, "ipc", 3) == 0)
        return cu.cuIpcCloseMemHandle(block->at);
    return give_physical(block);
}

static void use(int socket)
{
    static struct block blocks[MOST];
    begin();
    void *pool = NULL;
    struct parcel parcel = {.is_end = false};
    if (strcmp(way, "pool") == 0) {
        int descriptor = receive(socket, &parcel);
        if (cu.cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)descriptor, DESCRIPTOR, 0) != SUCCESS)
            fail("cuMemPoolImportFromShareableHandle", "no pool");
        close(descriptor);
    }
    int opened = 0, result = SUCCESS;
    for (;;) {
        int descriptor = receive(socket, &parcel);
        if (parcel.is_end)
            break;
        // Once refused, the rest is not tried: its descriptors are let go.
        if (!result)
            result = open_one(&parcel, descriptor, pool, &blocks[opened]);
        else if (descriptor >= 0)
            close(descriptor);
        opened += !result;
    }
    // A refusal is when accounts are compared with what the driver says, which counts these blocks for the maker.
    device_pointer at = 0;
    int more = cu.cuMemAlloc_v2(&at, (size_t)STEP << 12);
    printf("opened: blocks=%d then=%d more=%d\n", opened, result, more);
    fflush(stdout);
    // Until the maker is gone.
    while (recv(socket, &parcel, sizeof parcel, 0) > 0)
        ;
    printf("alone: blocks=%d\n", opened);
    fflush(stdout);
    int letter;
    while ((letter = getchar()) != '\n' && letter != EOF)
        ;
    result = SUCCESS;
    while (opened > 0 && !result)
        result = close_one(&blocks[--opened], pool);
    printf("closed: %d\n", result);
    fflush(stdout);
    while (getchar() != EOF)
        ;
}

int main(int words, char **word)
{
    if (words < 3)
        fail(word[0], "what way, and how many?");
    way = word[1];
    reach("linked");
    say_library();
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0)
        fail("socketpair", strerror(errno));
    pid_t user = fork();
    if (user == 0) {
        close(sockets[0]);
        use(sockets[1]);
        return 0;
    }
    close(sockets[1]);
    make(sockets[0], atoi(word[2]));
    return 0;
}
