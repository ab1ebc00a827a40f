// How the clients say what they got: plain lines, the same in every run of the same program.

#ifndef SAY_H
#define SAY_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Whether the library is in this process. A test takes these lines out before it compares, and wants at least one.
static inline void say_library(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096];
    int mapped = 0;
    while (maps && fgets(line, sizeof line, maps))
        mapped |= strstr(line, "/libsoftmig.so") != NULL;
    if (maps)
        fclose(maps);
    printf("libsoftmig: %s\n", mapped ? "mapped" : "not mapped");
    // Before a fork: what is still in the buffer would be said twice.
    fflush(stdout);
}

// Until the test says that it may go on, or has gone.
static inline void wait_for_line(void)
{
    int letter;
    while ((letter = getchar()) != '\n' && letter != EOF)
        ;
}

// The names in a folder, but for descriptors of the fake driver's own, which a driver keeps that is not unloaded.
static inline int entries(const char *folder)
{
    const char *node = getenv("FAKE_GPU_NODE");
    DIR *dir = opendir(folder);
    int count = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char target[4096] = "";
        if (readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1) < 0)
            target[0] = 0;
        bool is_drivers = strcmp(target, node ? node : "/run/fake-gpu/node") == 0;
        count += entry->d_name[0] != '.' && !is_drivers;
    }
    if (dir)
        closedir(dir);
    return count;
}

// Waits for the kernel to forget threads that ended: it wakes who joins one before it takes it off the list. One that
// lives on is still there a second later, and is said.
static inline void wait_for_ended_threads(void)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < 1000 && entries("/proc/self/task") > 1; i++)
        nanosleep(&moment, NULL);
}

// What a library could have changed behind the program's back.
static inline void say_self(void)
{
    extern char **environ;
    wait_for_ended_threads();
    static const char *const keys[] = {"Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs"};
    FILE *status = fopen("/proc/self/status", "re");
    char line[4096];
    while (status && fgets(line, sizeof line, status)) {
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            if (strncmp(line, keys[i], strlen(keys[i])) == 0)
                printf("self %s", line);
        }
    }
    if (status)
        fclose(status);
    int variables = 0;
    while (environ[variables])
        variables++;
    printf("self descriptors: %d\nself variables: %d\n", entries("/proc/self/fd"), variables);
    fflush(stdout);
}

// Ends the program over something that a test has to be told.
static inline void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why ? why : "no reason given");
    exit(1);
}

#endif
