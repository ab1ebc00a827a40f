// How much longer starting /bin/true takes with the library: the ways in turns, each started the same number of times.
//
// exec LIBRARY EMPTY: without, with the library or with an empty one in LD_PRELOAD, and with each in the file that is
// /etc/ld.so.preload here, which the caller has to have mounted for this process alone (`unshare --mount`), empty.
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 3000, WAYS = 5 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int order(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return difference < 0 ? -1 : difference > 0;
}

static void write_preload(const char *text) {
    int file = open("/etc/ld.so.preload", O_WRONLY | O_TRUNC);
    if (file < 0 || write(file, text, strlen(text)) < 0) { perror("/etc/ld.so.preload"); exit(1); }
    close(file);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    static const char *names[WAYS] = { "without", "ld_preload", "ld_so_preload", "empty_ld_preload", "empty_ld_so_preload" };
    static double times[WAYS][ROUNDS], more[WAYS][ROUNDS];
    char variable[2][512], line[2][512];
    for (int i = 0; i < 2; i++) {
        snprintf(variable[i], sizeof *variable, "LD_PRELOAD=%s", argv[1 + i]);
        snprintf(line[i], sizeof *line, "%s\n", argv[1 + i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int way = 0; way < WAYS; way++) {
            int which = way > 2;
            char *environment[] = { way == 1 || way == 3 ? variable[which] : NULL, NULL };
            char *words[] = { "/bin/true", NULL };
            write_preload(way == 2 || way == 4 ? line[which] : "");
            pid_t pid;
            int status;
            double start = now();
            if (posix_spawn(&pid, words[0], NULL, NULL, words, environment)) return 1;
            waitpid(pid, &status, 0);
            times[way][round] = now() - start;
            if (status) { fprintf(stderr, "%s: status %d\n", names[way], status); return 1; }
            more[way][round] = times[way][round] - times[0][round];
        }
    }
    write_preload("");
    for (int way = 0; way < WAYS; way++) {
        qsort(times[way], ROUNDS, sizeof(double), order);
        qsort(more[way], ROUNDS, sizeof(double), order);
        printf("time exec_%s_us %.2f\ntime exec_%s_more_us %.2f\n", names[way], times[way][ROUNDS / 2], names[way], more[way][ROUNDS / 2]);
    }
    return 0;
}
