// Put in by LD_PRELOAD: sees which channel groups (TSG) and channels libcuda makes, and steers them when asked.
//
// libcuda reaches the kernel driver through libc's ioctl. This library stands in front of it and notes the handles. A thread
// of its own then answers requests on the socket that CHANNELS_SOCKET names. The program itself knows nothing of this.
#include "rm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NVA06C_CTRL_CMD_GPFIFO_SCHEDULE 0xa06c0101
#define NVA06C_CTRL_CMD_SET_TIMESLICE 0xa06c0103
#define NVA06C_CTRL_CMD_GET_TIMESLICE 0xa06c0104

// The long form of an allocation: with the rights that are asked for.
struct rm_alloc_rights { uint32_t client, parent, object, class; uint64_t parameters, rights; uint32_t size, flags, status; };

// What channels_facts.py sends and gets.
enum { LIST, SET_TIMESLICE, SCHEDULE, DISABLE, GET_TIMESLICE, GET_ANOTHERS, SET_ANOTHERS };
struct request { uint32_t what, client, group, reserved; uint64_t value; };
struct answer { uint32_t status, count; double us; uint32_t client, group, clients[64], channels[64]; };

// A handle is used with the file that made it. The programs here use the driver from one thread, so nothing is locked.
struct object { int file; uint32_t client, parent, handle; };
static struct object group, subdevice, channels[64];
static uint32_t channel_count;
static int (*real_ioctl)(int, unsigned long, ...);

static uint32_t control(struct object at, uint32_t command, void *parameters, uint32_t size) {
    struct rm_control call = {at.client, at.handle, command, 0, (uintptr_t)parameters, size, 0};
    return real_ioctl(at.file, RM_CONTROL, &call) ? ~0u : call.status;
}

static struct answer answered(struct request request) {
    struct answer answer = {.client = group.client, .group = group.handle};
    // The channels of the context's group. A process has others, for copies and for the driver's own use.
    for (uint32_t i = 0; i < channel_count; i++) {
        if (channels[i].parent != group.handle) continue;
        answer.clients[answer.count] = channels[i].client;
        answer.channels[answer.count++] = channels[i].handle;
    }
    double begun = now_us();
    if (request.what == SET_TIMESLICE) answer.status = control(group, NVA06C_CTRL_CMD_SET_TIMESLICE, &request.value, sizeof request.value);
    if (request.what == GET_TIMESLICE) {
        uint64_t slice = 0;
        answer.status = control(group, NVA06C_CTRL_CMD_GET_TIMESLICE, &slice, sizeof slice);
        // It is what was set.
        if (slice != request.value) answer.status = ~0u;
    }
    // Another process's group, by this process's file.
    struct object anothers = {group.file, request.client, 0, request.group};
    if (request.what == GET_ANOTHERS) answer.status = control(anothers, NVA06C_CTRL_CMD_GET_TIMESLICE, &request.value, sizeof request.value);
    if (request.what == SET_ANOTHERS) answer.status = control(anothers, NVA06C_CTRL_CMD_SET_TIMESLICE, &request.value, sizeof request.value);
    if (request.what == SCHEDULE) {
        uint8_t enable[3] = {request.value, 0, 0};
        answer.status = control(group, NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, enable, sizeof enable);
    }
    if (request.what == DISABLE) {
        struct disable_channels all = {.disable = request.value, .count = answer.count};
        memcpy(all.clients, answer.clients, sizeof all.clients);
        memcpy(all.channels, answer.channels, sizeof all.channels);
        answer.status = control(subdevice, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, &all, sizeof all);
    }
    answer.us = now_us() - begun;
    return answer;
}

static void *serve(void *unused) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct request request;
    int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), process = getpid();
    strncpy(address.sun_path, getenv("CHANNELS_SOCKET"), sizeof address.sun_path - 1);
    if (connect(connection, (void *)&address, sizeof address)) return unused;
    send(connection, &process, sizeof process, 0);
    while (recv(connection, &request, sizeof request, 0) == sizeof request) {
        struct answer answer = answered(request);
        send(connection, &answer, sizeof answer, 0);
    }
    return unused;
}

static void serve_group(struct object its) {
    pthread_t thread;
    // The first group is the one that is steered.
    if (group.handle) return;
    group = its;
    if (getenv("CHANNELS_SOCKET")) pthread_create(&thread, NULL, serve, NULL);
}

static void note_object(struct object object, uint32_t class) {
    if (class == NV20_SUBDEVICE_0 && !subdevice.handle) subdevice = object;
    // The classes *_CHANNEL_GPFIFO_* of all generations end in 6f.
    if (class > 0x9000 && (class & 0xff) == 0x6f && channel_count < 64) channels[channel_count++] = object;
    // The classes *_COMPUTE_* end in c0. Clients of MPS set no time slice: their group is that of a channel which computes.
    for (uint32_t i = 0; class > 0x9000 && (class & 0xff) == 0xc0 && i < channel_count; i++)
        if (channels[i].client == object.client && channels[i].handle == object.parent) serve_group((struct object){object.file, object.client, 0, channels[i].parent});
}

int ioctl(int file, unsigned long request, ...) {
    va_list more;
    va_start(more, request);
    void *parameters = va_arg(more, void *);
    va_end(more);
    if (!real_ioctl) real_ioctl = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    int result = real_ioctl(file, request, parameters);
    if (result || _IOC_TYPE(request) != NV_IOCTL_MAGIC) return result;
    if (_IOC_NR(request) == NV_ESC_RM_ALLOC) {
        struct rm_alloc *made = parameters;
        uint32_t status = _IOC_SIZE(request) == sizeof(struct rm_alloc_rights) ? ((struct rm_alloc_rights *)parameters)->status : made->status;
        if (!status) note_object((struct object){file, made->client, made->parent, made->object}, made->class);
    }
    // libcuda sets the time slice of each context's group once.
    struct rm_control *call = parameters;
    if (_IOC_NR(request) == NV_ESC_RM_CONTROL && call->command == NVA06C_CTRL_CMD_SET_TIMESLICE) serve_group((struct object){file, call->client, 0, call->object});
    return result;
}
