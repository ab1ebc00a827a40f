// Looks at all processes of GPU 0 by NVML, again and again, and keeps the most that it saw.
//
// On stdin: `r` forgets the most, `q` says it; both look once more first and answer with a line of JSON.
#include "common.h"
#include <poll.h>

#define MOST 1024
static struct { unsigned pid; unsigned long long most, now; } seen[MOST];
static unsigned count;
static unsigned long long most_together, together, device_now, device_most;
static long looks;
static double slowest_ms, last_look;

static void look(void) {
    static struct nvml_process list[MOST];
    unsigned found = MOST;
    double begin = now_ns();
    if (last_look && (begin - last_look) / 1e6 > slowest_ms) slowest_ms = (begin - last_look) / 1e6;
    last_look = begin;
    if (nvml.compute(nvml.device, &found, list)) return;
    device_now = nvml_used();
    if (device_now > device_most) device_most = device_now;
    for (unsigned i = 0; i < count; i++) seen[i].now = 0;
    together = 0;
    for (unsigned f = 0; f < found; f++) {
        unsigned i = 0;
        while (i < count && seen[i].pid != list[f].pid) i++;
        if (i == MOST) continue;
        if (i == count) { seen[count].pid = list[f].pid; seen[count++].most = 0; }
        // A process that is about to go has no figure.
        seen[i].now = list[f].used == ~0ull ? 0 : list[f].used;
        if (seen[i].now > seen[i].most) seen[i].most = seen[i].now;
        together += seen[i].now;
    }
    if (together > most_together) most_together = together;
    looks++;
}

int main(void) {
    nvml_open();
    for (;;) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        if (poll(&input, 1, 0) > 0) {
            char word[8] = "";
            if (!fgets(word, sizeof word, stdin)) return 0;
            look();
            printf("{\"looks\":%ld,\"longest_gap_ms\":%.2f,\"together\":%llu,\"most_together\":%llu,\"device\":%llu,\"most_device\":%llu,\"pids\":{", looks, slowest_ms, together, most_together, device_now, device_most);
            for (unsigned i = 0; i < count; i++) printf("%s\"%u\":[%llu,%llu]", i ? "," : "", seen[i].pid, seen[i].now, seen[i].most);
            printf("}}\n");
            fflush(stdout);
            if (*word == 'r') {
                count = 0;
                looks = 0;
                most_together = device_most = 0;
                slowest_ms = 0;
            }
        } else usleep(500);
        look();
    }
}
