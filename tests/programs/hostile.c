// What a user can do to the monitor without root, each until it is ended.
//
//     hostile UUID lists COUNT    as many processes with a seat, each of which tells of other channels each 20 ms
//     hostile UUID connects       connections without pause, some of them silent
//     hostile UUID descriptors    files that are opened and closed without pause, in a process that tells of channels through them
//     hostile UUID file           a file of a file system of its own, named like the driver's, which keeps waiting who closes it
//     hostile UUID exec           processes that stay in the call that makes them another program, since that file system does not answer
//
// And what a neighbour notices of it:
//
//     hostile UUID asks SECONDS   asks for a seat five times a second, and says how long that takes

#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <sys/mount.h>

#include "seat.h"

static const char *uuid;

static void must(int is_so, const char *what)
{
    if (is_so)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void several(int count)
{
    while (--count > 0 && fork() > 0)
        ;
}

// Tells of channels that were made through this file, each 20 ms of others.
static void tell_through(const char *path, int flags)
{
    uint32_t *page = sit_down(uuid);
    int file = open(path, flags);
    must(file >= 0, path);
    for (uint32_t round = 1;; round++) {
        tell(page, file, round);
        usleep(20000);
    }
}

static void lists(int count)
{
    several(count);
    tell_through("/dev/nvidiactl", O_PATH);
}

static void connects(void)
{
    enum { PROCESSES = 8, SILENT = 64 };
    several(PROCESSES);
    int silent[SILENT] = {0};
    for (int at = 0;; at = (at + 1) % SILENT) {
        if (silent[at] > 0)
            close(silent[at]);
        silent[at] = reach_monitor();
        int page = ask_for_a_seat(uuid);
        if (page >= 0) {
            close(page);
            close(connection);
        }
    }
}

static void descriptors(void)
{
    enum { PROCESSES = 4, FILES = 500 };
    several(PROCESSES);
    uint32_t *page = sit_down(uuid);
    int files[FILES];
    for (uint32_t round = 1;; round++) {
        for (int at = 0; at < FILES; at++)
            files[at] = open(at % 2 ? "/dev/nvidiactl" : "/dev/null", at % 4 == 1 ? O_RDWR : O_PATH);
        tell(page, files[round % FILES], round);
        for (int at = 0; at < FILES; at++)
            close(files[at]);
    }
}

// A file system in which each name is a file of a page, which can be opened and read. What is written there, and who closes it,
// gets no answer.
static void *serve(void *given)
{
    static char in[1 << 17];
    int device = *(int *)given;
    for (;;) {
        if (read(device, in, sizeof(in)) < 40)
            return NULL;
        const struct fuse_in_header *ask = (void *)in;
        struct {
            struct fuse_out_header head;
            union {
                struct fuse_init_out init;
                struct fuse_entry_out entry;
                struct fuse_attr_out attr;
                struct fuse_open_out open;
                char page[4096];
            };
        } out = {.head = {.unique = ask->unique}};
        size_t length = 0;
        struct fuse_attr file = {.ino = 2, .size = 4096, .mode = S_IFREG | 0777, .nlink = 1, .uid = getuid(), .gid = getgid()};
        switch (ask->opcode) {
        case FUSE_FORGET:
        case FUSE_RELEASE:
        case FUSE_FLUSH:
        case FUSE_WRITE:
        case FUSE_INTERRUPT:
            continue;
        case FUSE_INIT:
            out.init = (struct fuse_init_out){.major = 7, .minor = 31, .max_write = 65536};
            length = sizeof(out.init);
            break;
        case FUSE_LOOKUP:
            out.entry = (struct fuse_entry_out){.nodeid = 2, .attr = file};
            length = sizeof(out.entry);
            break;
        case FUSE_GETATTR:
            out.attr.attr = file;
            if (ask->nodeid == 1)
                out.attr.attr.mode = S_IFDIR | 0755;
            length = sizeof(out.attr);
            break;
        case FUSE_OPEN:
            length = sizeof(out.open);
            break;
        case FUSE_READ:
            length = sizeof(out.page);
            break;
        default:
            out.head.error = -ENOSYS;
        }
        out.head.len = (uint32_t)(sizeof(out.head) + length);
        if (write(device, &out, out.head.len) < 0)
            return NULL;
    }
}

static void write_line(const char *path, const char *text)
{
    int file = open(path, O_WRONLY);
    must(file >= 0 && write(file, text, strlen(text)) > 0, path);
    close(file);
}

// Mounts it in this process alone. Another process serves it, which lives on when this one is stuck.
static void mount_files(void)
{
    char text[128];
    unsigned uid = getuid(), gid = getgid();
    must(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0, "a user namespace");
    snprintf(text, sizeof(text), "%u %u 1", uid, uid);
    write_line("/proc/self/uid_map", text);
    write_line("/proc/self/setgroups", "deny");
    snprintf(text, sizeof(text), "%u %u 1", gid, gid);
    write_line("/proc/self/gid_map", text);
    int device = open("/dev/fuse", O_RDWR);
    must(device >= 0, "/dev/fuse");
    snprintf(text, sizeof(text), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", device, uid, gid);
    must(mount("files", "/mnt", "fuse", MS_NOSUID | MS_NODEV, text) == 0, "a mount");
    if (fork() == 0) {
        serve(&device);
        _exit(0);
    }
    close(device);
}

static void own_file(void)
{
    mount_files();
    tell_through("/mnt/nvidiactl", O_RDONLY);
}

static void stuck_exec(void)
{
    enum { PROCESSES = 8 };
    mount_files();
    several(PROCESSES);
    uint32_t *page = sit_down(uuid);
    int file = open("/mnt/page", O_RDWR);
    must(file >= 0, "/mnt/page");
    char *dirty = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    must(dirty != MAP_FAILED, "/mnt/page");
    close(file);
    tell(page, open("/dev/nvidiactl", O_PATH), 1);
    dirty[0] = 1;
    execl("/bin/sleep", "sleep", "infinity", NULL);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void asks(int seconds)
{
    enum { EACH_US = 200000, MOST = 1000 };
    double times[MOST], most = 0, sum = 0;
    int asked = 0, refused = 0;
    for (double end = now() + seconds; now() < end && asked < MOST; asked++) {
        double begun = now();
        int file = ask_for_a_seat(uuid);
        times[asked] = now() - begun;
        refused += file < 0;
        if (file >= 0) {
            close(file);
            close(connection);
        }
        most = times[asked] > most ? times[asked] : most;
        sum += times[asked];
        usleep(EACH_US);
    }
    printf("asked: %d times, %d refused, %.1f ms on average, %.1f ms at most\n", asked, refused, 1000 * sum / asked, 1000 * most);
}

int main(int count, char **words)
{
    if (count < 3 || strlen(words[1]) != 32)
        return 2;
    uuid = words[1];
    const char *way = words[2];
    if (strcmp(way, "lists") == 0 && count > 3)
        lists(atoi(words[3]));
    if (strcmp(way, "connects") == 0)
        connects();
    if (strcmp(way, "descriptors") == 0)
        descriptors();
    if (strcmp(way, "file") == 0)
        own_file();
    if (strcmp(way, "exec") == 0)
        stuck_exec();
    if (strcmp(way, "asks") == 0 && count > 3)
        asks(atoi(words[3]));
    return 0;
}
