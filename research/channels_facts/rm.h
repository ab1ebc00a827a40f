// What preload.c and switches.c ask the kernel driver for.
//
// Constants have the names of NVIDIA's open kernel modules. Structures have the fields that are used here, and room for others.
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#define NV_IOCTL_MAGIC 'F'
#define NV_ESC_RM_CONTROL 0x2a
#define NV_ESC_RM_ALLOC 0x2b
#define NV20_SUBDEVICE_0 0x2080
#define NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS 0x2080110b
#define NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES 64

struct rm_control { uint32_t client, object, command, flags; uint64_t parameters; uint32_t size, status; };
struct rm_alloc { uint32_t client, parent, object, class; uint64_t parameters; uint32_t size, status; };
struct disable_channels {
    uint8_t disable; uint32_t count; uint8_t only_scheduling, rewind; uint64_t event;
    uint32_t clients[NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES], channels[NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES];
};

#define RM_CONTROL _IOWR(NV_IOCTL_MAGIC, NV_ESC_RM_CONTROL, struct rm_control)
#define RM_ALLOC _IOWR(NV_IOCTL_MAGIC, NV_ESC_RM_ALLOC, struct rm_alloc)

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
