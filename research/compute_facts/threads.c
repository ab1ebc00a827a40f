// How often the threads wake that CUDA makes for itself in a process.

enum { THREADS_MOST = 64 };

static struct counted { int id; char name[32]; long waits; } counted[2][THREADS_MOST];

// How often each of this process's threads has waited so far: each of these ends with it waking.
static int count_waits(struct counted *into) {
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    if (!folder) exit(4);
    for (struct dirent *entry; count < THREADS_MOST && (entry = readdir(folder));) {
        char path[300], line[200];
        struct counted *one = into + count;
        if (!(one->id = atoi(entry->d_name))) continue;
        snprintf(path, sizeof path, "/proc/self/task/%d/status", one->id);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        while (fgets(line, sizeof line, file)) {
            if (!strncmp(line, "Name:", 5)) sscanf(line + 5, "%31s", one->name);
            sscanf(line, "voluntary_ctxt_switches: %ld", &one->waits);
        }
        fclose(file);
        count++;
    }
    closedir(folder);
    return count;
}

// While this thread sleeps, which does not count.
static void count_wakes(const char *when, double seconds) {
    int before = count_waits(counted[0]);
    double since = now_ns(), all = 0;
    sleep_until(since + seconds * 1e9);
    int now = count_waits(counted[1]);
    seconds = (now_ns() - since) / 1e9;
    printf("{\"at\":\"threads that wake, %s\",\"seconds\":%.2f,\"threads\":[", when, seconds);
    for (int i = 0, told = 0; i < now; i++) {
        const struct counted *one = counted[1] + i, *then = NULL;
        if (one->id == getpid()) continue;
        for (int k = 0; k < before; k++) if (counted[0][k].id == one->id) then = counted[0] + k;
        double each = (one->waits - (then ? then->waits : 0)) / seconds;
        all += each;
        printf("%s{\"name\":\"%s\",\"wakes_each_second\":%.1f}", told++ ? "," : "", one->name, each);
    }
    printf("],\"wakes_each_second\":%.1f}\n", all);
}

static void threads(char **arguments) {
    (void)arguments;
    CUstream stream;
    count_wakes("before the driver is there", 0.5);
    begin();
    CUfunction spin = function("spin");
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    // What comes with the first use is over then.
    NEED(launch(spin, 1, 1000, 0, stream));
    NEED(cuStreamSynchronize(stream));
    busy_ns(50e6);
    count_wakes("with a context that nothing uses", 2);
    NEED(launch(spin, 1, 1200000000, 0, stream));
    count_wakes("while a kernel runs", 1);
    NEED(cuStreamSynchronize(stream));
}
