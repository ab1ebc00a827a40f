// Reads the GPU's log of context switches (FECS) through the kernel driver's event buffer, and disables channels. As root.
//
// A shared library for channels_facts.py, for the first GPU that this machine has.
#include "rm.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#define NV_ESC_RM_MAP_MEMORY 0x4e
#define MOST_GPUS 32
#define NV01_ROOT_CLIENT 0x41
#define NV01_DEVICE_0 0x80
#define NV_EVENT_BUFFER 0x90cd
#define NV01_MEMORY_DEVICELESS 0x90ce
#define NVOS32_ATTR_COHERENCY_CACHED (1u << 29)
#define NVOS32_ATTR2_PROTECTION_USER_READ_ONLY (1u << 22)
#define NVOS33_FLAGS_ACCESS_READ_ONLY 1
#define NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2 0x20801238
#define NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_SIMPLE 1
#define NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS 0x90cd0101
#define NV_EVENT_BUFFER_FLAG_OVERFLOW_POLICY_KEEP_OLDEST 1
#define NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET 0x90cd0102
#define NV_EVENT_BUFFER_CTRL_CMD_FLUSH 0x90cd0104

struct rm_map { uint32_t client, device, memory; uint64_t offset, length, address; uint32_t status, flags; int file; };
struct device { uint32_t number, handles[3], flags; uint64_t spaces[3]; uint32_t mode; };
struct memory { uint32_t unused[6], attributes, attributes2, more[4]; uint64_t range[2], size, rest[4]; uint32_t last[5]; };
struct event_buffer {
    uint64_t addresses[2]; uint32_t record_size, record_count; uint64_t data; uint32_t data_size, threshold; uint64_t notify;
    uint32_t data_threshold, subdevice, flags, header_memory, record_memory, data_memory;
};
struct fecs_bind { uint32_t buffer, record_size, level, filter; uint8_t all_users; uint32_t reason; };
struct enable_events { uint8_t enable; uint32_t flags; };

// The driver writes these two; `put` is where its next record goes. The first 8 bytes of a record tell its kind, the others
// are the switch: channels_facts.py takes them apart.
struct header { uint32_t get, put; uint64_t count, dropped; };
struct record { uint64_t kind; uint8_t change[24]; };

// Handles of our own choice.
enum { DEVICE = 0x50000001, SUBDEVICE, HEADER, RECORDS, BUFFER };

static int driver;
static uint32_t client, capacity, next;
static const volatile struct header *header;
static const struct record *records;

static uint32_t control(uint32_t object, uint32_t command, void *parameters, uint32_t size) {
    struct rm_control call = {client, object, command, 0, (uintptr_t)parameters, size, 0};
    return ioctl(driver, RM_CONTROL, &call) ? ~0u : call.status;
}

static uint32_t new_object(uint32_t parent, uint32_t handle, uint32_t class, void *parameters, uint32_t size) {
    struct rm_alloc call = {client, parent, handle, class, (uintptr_t)parameters, size, 0};
    int failed = ioctl(driver, RM_ALLOC, &call);
    if (!client) client = call.object;
    return failed ? ~0u : call.status;
}

// Memory that the driver writes and this process reads.
static const void *new_memory(uint32_t handle, uint64_t size) {
    struct memory wanted = {.size = size, .attributes = NVOS32_ATTR_COHERENCY_CACHED, .attributes2 = NVOS32_ATTR2_PROTECTION_USER_READ_ONLY};
    if (new_object(client, handle, NV01_MEMORY_DEVICELESS, &wanted, sizeof wanted)) return NULL;
    // Each mapping wants a file of its own, which stays open.
    struct rm_map map = {client, client, handle, 0, size, 0, 0, NVOS33_FLAGS_ACCESS_READ_ONLY, open("/dev/nvidiactl", O_RDWR | O_CLOEXEC)};
    if (ioctl(driver, _IOWR(NV_IOCTL_MAGIC, NV_ESC_RM_MAP_MEMORY, struct rm_map), &map) || map.status) return NULL;
    void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, map.file, 0);
    return at == MAP_FAILED ? NULL : at;
}

// Opens the GPU, for `channels_disable`. 0, or the number of the step that failed.
int gpu_open(void) {
    struct device device = {0};
    uint32_t first_subdevice = 0;
    driver = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
    if (driver < 0) return 1;
    // These stay open: the driver lets a GPU be used only by whoever has its file.
    for (int number = 0; number < MOST_GPUS; number++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/nvidia%d", number);
        open(path, O_RDWR | O_CLOEXEC);
    }
    if (new_object(0, 0, NV01_ROOT_CLIENT, NULL, 0)) return 2;
    while (new_object(client, DEVICE, NV01_DEVICE_0, &device, sizeof device))
        if (++device.number == MOST_GPUS) return 3;
    return new_object(DEVICE, SUBDEVICE, NV20_SUBDEVICE_0, &first_subdevice, sizeof first_subdevice) ? 4 : 0;
}

// The same, and begins the log, with room for so many records.
int switches_open(uint32_t count) {
    int failed = gpu_open();
    if (failed) return failed;
    header = new_memory(HEADER, 4096);
    records = new_memory(RECORDS, ((uint64_t)count * sizeof *records + 4095) & ~4095ull);
    if (!header || !records) return 5;
    struct event_buffer buffer = {.record_size = sizeof *records, .record_count = count, .subdevice = SUBDEVICE, .header_memory = HEADER, .record_memory = RECORDS};
    if (new_object(client, BUFFER, NV_EVENT_BUFFER, &buffer, sizeof buffer)) return 6;
    struct fecs_bind bind = {BUFFER, sizeof *records, NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_SIMPLE, 0, 1, 0};
    if (control(SUBDEVICE, NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2, &bind, sizeof bind)) return 7;
    struct enable_events enable = {1, NV_EVENT_BUFFER_FLAG_OVERFLOW_POLICY_KEEP_OLDEST};
    if (control(BUFFER, NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS, &enable, sizeof enable)) return 8;
    capacity = count;
    return 0;
}

// Takes what is new, 24 bytes each, and tells how long the flush took: the call that makes the driver read the GPU's log.
int switches_read(uint8_t *into, int most, double *flush_us, uint64_t *dropped) {
    int count = 0;
    double begun = now_us();
    uint32_t status = control(BUFFER, NV_EVENT_BUFFER_CTRL_CMD_FLUSH, NULL, 0);
    *flush_us = now_us() - begun;
    if (status) return -1;
    for (uint32_t put = header->put; next != put && count < most; next = next + 1 == capacity ? 0 : next + 1)
        memcpy(into + count++ * sizeof records->change, records[next].change, sizeof records->change);
    // The call below sets it to zero.
    *dropped = header->dropped;
    // Only this makes room for more.
    uint32_t read[2] = {next, 0};
    if (count) control(BUFFER, NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET, read, sizeof read);
    return count;
}

// Disables channels of any process or enables them, each by its client and its handle. `only` lets what runs go on.
uint32_t channels_disable(uint32_t count, const uint32_t *clients, const uint32_t *channels, int disable, int only, double *us) {
    struct disable_channels all = {.disable = disable, .count = count, .only_scheduling = only};
    if (count > NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES) return ~0u;
    memcpy(all.clients, clients, count * sizeof *clients);
    memcpy(all.channels, channels, count * sizeof *channels);
    double begun = now_us();
    uint32_t status = control(SUBDEVICE, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, &all, sizeof all);
    *us = now_us() - begun;
    return status;
}
