// Work whose amount is known, and how much of it the GPU finished when.
//
//     work
//
// Reads lines from stdin and answers each with a line of JSON:
//
//     calibrate                                        how many rounds of a kernel make a microsecond
//     run MODE ROUNDS ESTIMATE_US SECONDS START [N...] kernels of so many rounds, from START (ns of CLOCK_MONOTONIC; 0: now)
//     cost                                             what launching nothing takes
//
// MODE: launch, ex, cooperative (kernels one after the other); graph (N kernels each); streams (N streams of kernels that
// fill the GPU); narrow (N streams of kernels that fill an Nth of it); sync (waits after every N kernels); duty (N ns of
// period: work at its beginning, if the last is done); think (N ns of pause after each); memset (N MiB each).
//
// Work is counted where it is done: each kernel adds the time of its end to a log on the GPU.
#include "common.h"

#include <dirent.h>

#include "cost.h"

// The most stamps that a run may leave.
#define MOST_STAMPS (8ull << 20)
#define MOST_STREAMS 8
// The thread that looks after turns.
#define HELPER "softmig-turns"
// How far ahead a program may be, as real ones are: by so much work, but by no more launches and no less than two.
#define AHEAD_US 50000.0
#define AHEAD_LAUNCHES 1000
// Batches of that.
#define BATCHES 4
#define WINDOW_NS 20e6
#define MOST_WINDOWS 4096
#define MOST_STEPS 1000000
// What comes before is not counted as steady.
#define SETTLE_MS 500.0

enum mode { LAUNCH, EX, COOPERATIVE, GRAPH, STREAMS, NARROW, SYNC, DUTY, THINK, MEMSET, MODES };
static const char *const mode_names[MODES] = {"launch", "ex", "cooperative", "graph", "streams", "narrow", "sync", "duty", "think", "memset"};

static struct {
    enum mode mode;
    uint64_t rounds;
    double estimate_us, seconds, start;
    long n;
    int streams, grid;
    CUstream stream[MOST_STREAMS];
    CUfunction work;
    CUdeviceptr log, target;
    CUgraphExec exec;
    // How many kernels one launch is.
    long kernels;
} run;

static double steps[MOST_STEPS];

// Stretches of the GPU's time without a gap.
#define MOST_STRETCHES 20000
// Kernels of one process that follow each other have less between them.
#define GAP_NS 60000

// What the host saw end, and when: for work that leaves no stamps.
static struct { double at; long done; } seen[MOST_STEPS];
static long seen_count;

static void see(long done) {
    if (seen_count >= MOST_STEPS) return;
    seen[seen_count].at = now_ns();
    seen[seen_count++].done = done;
}

static void launch_one(long number) {
    CUstream stream = run.stream[number % run.streams];
    uint64_t place = number % run.streams;
    void *words[] = {&run.rounds, &run.log, &place};
    switch (run.mode) {
    case EX: {
        CUlaunchConfig config = {.gridDimX = run.grid, .gridDimY = 1, .gridDimZ = 1, .blockDimX = THREADS, .blockDimY = 1, .blockDimZ = 1, .hStream = stream};
        NEED(cuLaunchKernelEx(&config, run.work, words, NULL));
        break;
    }
    case COOPERATIVE: NEED(cuLaunchCooperativeKernel(run.work, run.grid, 1, 1, THREADS, 1, 1, 0, stream, words)); break;
    case GRAPH: NEED(cuGraphLaunch(run.exec, stream)); break;
    case MEMSET: NEED(cuMemsetD8Async(run.target, number, run.n << 20, stream)); break;
    default: NEED(cuLaunchKernel(run.work, run.grid, 1, 1, THREADS, 1, 1, 0, stream, words, NULL));
    }
}

// A graph as a program gets it: what was captured.
static void capture_graph(void) {
    CUgraph graph;
    NEED(cuStreamBeginCapture(run.stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (long i = 0; i < run.n; i++) NEED(launch(run.work, run.grid, run.rounds, run.log, run.stream[0]));
    NEED(cuStreamEndCapture(run.stream[0], &graph));
    NEED(cuGraphInstantiateWithFlags(&run.exec, graph, 0));
    NEED(cuGraphUpload(run.exec, run.stream[0]));
    NEED(cuGraphDestroy(graph));
}

// CPU time of the thread that launches, and of the library's own, with its switches.
struct spent { double launcher, helper; long helper_switches; };

// The driver has threads of its own, which are not counted. `schedstat`: nanoseconds at work, waiting, and how often.
static void helper_now(struct spent *spent) {
    DIR *tasks = opendir("/proc/self/task");
    char path[64], name[32];
    if (!tasks) return;
    for (struct dirent *task; (task = readdir(tasks));) {
        unsigned long worked = 0, waited = 0, times = 0;
        snprintf(path, sizeof path, "/proc/self/task/%.16s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        bool is_helper = file && fgets(name, sizeof name, file) && !strcmp(name, HELPER "\n");
        if (file) fclose(file);
        if (!is_helper) continue;
        snprintf(path, sizeof path, "/proc/self/task/%.16s/schedstat", task->d_name);
        file = fopen(path, "r");
        if (file && fscanf(file, "%lu %lu %lu", &worked, &waited, &times) == 3) {
            spent->helper += worked;
            spent->helper_switches += times;
        }
        if (file) fclose(file);
    }
    closedir(tasks);
}

static struct spent spent_now(void) {
    struct spent spent = {.launcher = clock_ns(CLOCK_THREAD_CPUTIME_ID)};
    helper_now(&spent);
    return spent;
}

// Launches, never further ahead than a program would be, until the time is over. Returns how many were launched.
static long launch_on(double end, long *step_count) {
    CUevent events[MOST_STREAMS][BATCHES];
    for (int s = 0; s < run.streams; s++)
        for (int b = 0; b < BATCHES; b++) NEED(cuEventCreate(&events[s][b], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    // Launches on each stream.
    long ahead = AHEAD_US / run.estimate_us / run.streams, launched = 0, most = AHEAD_LAUNCHES / (run.mode == GRAPH ? 10 : run.streams);
    if (ahead > most) ahead = most;
    int slots = ahead >= BATCHES ? BATCHES : 2;
    long batch = ahead / slots > 0 ? ahead / slots : 1;
    long done[BATCHES] = {0};
    bool waits = run.mode == SYNC || run.mode == DUTY || run.mode == THINK;
    double next = now_ns();
    long b = 0;
    for (; now_ns() < end; b++) {
        if (waits) {
            double begun = now_ns();
            for (long i = 0; i < (run.mode == SYNC ? run.n : 1); i++) launch_one(launched++);
            NEED(cuStreamSynchronize(run.stream[0]));
            if (*step_count < MOST_STEPS) steps[(*step_count)++] = now_ns() - begun;
            see(launched);
            if (run.mode == THINK) sleep_until(now_ns() + run.n);
            if (run.mode == DUTY) {
                // A step that took longer than the period loses those that it missed.
                do next += run.n; while (next < now_ns());
                sleep_until(next);
            }
            continue;
        }
        int slot = b % slots;
        if (b >= slots) {
            for (int s = 0; s < run.streams; s++) NEED(cuEventSynchronize(events[s][slot]));
            see(done[slot]);
        }
        for (long i = 0; i < batch * run.streams; i++) {
            launch_one(launched++);
            // Long ones, or a launch that the limiter holds: the time is looked at between them.
            if (run.estimate_us > 1000 && now_ns() >= end) break;
        }
        for (int s = 0; s < run.streams; s++) NEED(cuEventRecord(events[s][slot], run.stream[s]));
        done[slot] = launched;
    }
    // The last batches end too: a limiter holds launches back, so that they may have for long.
    for (long last = b > slots ? b - slots : 0; last < b && run.mode == MEMSET; last++) {
        NEED(cuEventSynchronize(events[0][last % slots]));
        see(done[last % slots]);
    }
    for (int s = 0; s < run.streams; s++)
        for (int b = 0; b < BATCHES; b++) NEED(cuEventDestroy(events[s][b]));
    return launched;
}

// When kernels ended, in ns since the start: how many in each window, and of those after it settled the first and last.
static struct { double *windows; long count, all, steady; double first, steady_first, steady_last, last, gap, gap_at; } ends;

static void add_end(double after, double kernels) {
    if (after < 0 || after >= ends.count * WINDOW_NS) return;
    if (!ends.all || after < ends.first) ends.first = after;
    // Stamps are nearly in order: what is early by a little makes no gap.
    if (ends.all && after - ends.last > ends.gap) {
        ends.gap = after - ends.last;
        ends.gap_at = ends.last;
    }
    if (after > ends.last) ends.last = after;
    ends.all += kernels;
    ends.windows[(long)(after / WINDOW_NS)] += kernels;
    if (after < SETTLE_MS * 1e6) return;
    if (!ends.steady || after < ends.steady_first) ends.steady_first = after;
    if (!ends.steady || after > ends.steady_last) ends.steady_last = after;
    ends.steady += kernels;
}

// From the stamps; without any, evenly between the times at which the host saw some end.
static void count_ends(const struct log *log, double offset) {
    uint64_t stamps = log->count < log->mask + 1 ? log->count : log->mask + 1;
    for (uint64_t i = 0; i < stamps; i++) add_end(log->stamps[i].end - offset - run.start, 1);
    for (long i = 0, before = 0; i < seen_count && !stamps; i++) {
        double begun = i ? seen[i - 1].at : run.start;
        long n = (seen[i].done - before) * run.kernels;
        for (long k = 1; k <= n; k++) add_end(begun + (seen[i].at - begun) * k / n - run.start, 1);
        before = seen[i].done;
    }
}

// Who else was at work between them can be told with the same from all processes: the clock is the GPU's.
static void print_stretches(const struct log *log) {
    uint64_t stamps = log->count < log->mask + 1 ? log->count : log->mask + 1, begun = 0, ended = 0;
    int count = 0;
    printf("\"stretches\":[");
    for (uint64_t i = 0; i <= stamps; i++) {
        if (i < stamps && ended && log->stamps[i].begin < ended + GAP_NS) {
            if (log->stamps[i].end > ended) ended = log->stamps[i].end;
            continue;
        }
        if (ended && count < MOST_STRETCHES) printf("%s[%lu,%lu]", count++ ? "," : "", begun, ended);
        if (i < stamps) {
            begun = log->stamps[i].begin;
            ended = log->stamps[i].end;
        }
    }
    printf("],");
}

static void run_work(void) {
    static double windows[MOST_WINDOWS];
    uint64_t bytes;
    long step_count = 0;
    memset(&ends, 0, sizeof ends);
    memset(windows, 0, sizeof windows);
    seen_count = 0;
    ends.windows = windows;
    ends.count = run.seconds * 1e9 / WINDOW_NS;
    if (ends.count > MOST_WINDOWS) ends.count = MOST_WINDOWS;
    double stamps = (run.seconds + 1) * 1.5e6 / run.estimate_us * run.kernels + 65536;
    run.streams = run.mode == STREAMS || run.mode == NARROW ? run.n : 1;
    // Kernels that fill a part of the GPU are quicker, since their blocks have the processors to themselves.
    if (run.mode == NARROW) stamps *= 2 * run.n;
    run.grid = run.mode == NARROW ? full_grid / run.n : full_grid;
    run.work = function("work");
    // A log that is full begins anew: only its last stamps would count then, and the log does not tell which those are.
    run.log = new_log(stamps < MOST_STAMPS ? stamps : MOST_STAMPS, &bytes);
    for (int s = 0; s < run.streams; s++) NEED(cuStreamCreate(&run.stream[s], CU_STREAM_NON_BLOCKING));
    if (run.mode == MEMSET) NEED(cuMemAlloc(&run.target, run.n << 20));
    if (run.mode == GRAPH) capture_graph();
    double offset = gpu_less_host(run.log);
    printf("{\"ready\":1}\n");
    fflush(stdout);
    // Others may still have to get ready: the start comes when all are.
    if (run.start < 0) {
        char line[64];
        if (!fgets(line, sizeof line, stdin)) _exit(5);
        run.start = atof(line);
    }
    if (run.start < now_ns()) run.start = now_ns();
    sleep_until(run.start);
    struct spent before = spent_now();
    long launched = launch_on(run.start + run.seconds * 1e9, &step_count);
    double stopped = now_ns();
    struct spent after = spent_now();
    NEED(cuCtxSynchronize());
    double drained = now_ns();
    struct log *log = malloc(bytes);
    if (!log) _exit(4);
    NEED(cuMemcpyDtoH(log, run.log, bytes));
    count_ends(log, offset);
    printf("{\"mode\":\"%s\",\"n\":%ld,\"estimate_us\":%g,\"seconds\":%g,\"launched\":%ld,\"finished\":%ld,\"by\":\"%s\",\"first_ms\":%.3f,\"steady\":[%ld,%.3f,%.3f],\"longest_gap_ms\":[%.2f,%.1f],\"stopped_ms\":%.1f,\"drained_ms\":%.1f,", mode_names[run.mode], run.n, run.estimate_us, run.seconds,
        launched * run.kernels, ends.all, log->count ? "stamps" : "host", ends.first / 1e6, ends.steady, ends.steady_first / 1e6, ends.steady_last / 1e6, ends.gap / 1e6, ends.gap_at / 1e6, (stopped - run.start) / 1e6, (drained - run.start) / 1e6);
    sort(steps, step_count);
    if (step_count) printf("\"step_us\":{\"n\":%ld,\"p10\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"most\":%.1f},", step_count, part(steps, step_count, 0.1) / 1e3, part(steps, step_count, 0.5) / 1e3, part(steps, step_count, 0.9) / 1e3, part(steps, step_count, 0.99) / 1e3, part(steps, step_count, 1) / 1e3);
    print_stretches(log);
    printf("\"cpu\":{\"launcher_s\":%.4f,\"helper_s\":%.5f,\"helper_switches\":%ld},\"window_ms\":%g,\"windows\":[", (after.launcher - before.launcher) / 1e9, (after.helper - before.helper) / 1e9, after.helper_switches - before.helper_switches, WINDOW_NS / 1e6);
    for (long i = 0; i < ends.count; i++) printf("%s%.0f", i ? "," : "", ends.windows[i]);
    printf("]}\n");
    free(log);
    if (run.mode == GRAPH) NEED(cuGraphExecDestroy(run.exec));
    if (run.mode == MEMSET) NEED(cuMemFree(run.target));
    for (int s = 0; s < run.streams; s++) NEED(cuStreamDestroy(run.stream[s]));
    NEED(cuMemFree(run.log));
}

// Rounds for a microsecond; and a kernel of a millisecond by its events and by its stamps, which have to agree.
static void calibrate(void) {
    double rate = rounds_per_us();
    uint64_t bytes;
    float ms;
    CUevent first, second;
    struct { struct log head; struct stamp stamp; } seen;
    CUdeviceptr log = new_log(64, &bytes);
    NEED(cuEventCreate(&first, 0));
    NEED(cuEventCreate(&second, 0));
    // Behind another, so that no time of the host's is in it.
    NEED(launch(function("work"), full_grid, 1000 * rate, 0, 0));
    NEED(cuEventRecord(first, 0));
    NEED(launch(function("work"), full_grid, 1000 * rate, log, 0));
    NEED(cuEventRecord(second, 0));
    NEED(cuEventSynchronize(second));
    NEED(cuEventElapsedTime(&ms, first, second));
    NEED(cuMemcpyDtoH(&seen, log, sizeof seen));
    printf("{\"rounds_per_us\":%.6f,\"blocks\":%d,\"by_events_us\":%.1f,\"by_stamps_us\":%.1f}\n", rate, full_grid, ms * 1e3, (seen.stamp.end - seen.stamp.begin) / 1e3);
    NEED(cuEventDestroy(first));
    NEED(cuEventDestroy(second));
    NEED(cuMemFree(log));
}

int main(void) {
    char line[256], mode[32];
    begin();
    printf("{\"begun\":%d}\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        memset(&run, 0, sizeof run);
        run.n = run.kernels = 1;
        if (!strncmp(line, "calibrate", 9)) calibrate();
        else if (!strncmp(line, "cost", 4)) cost();
        else if (sscanf(line, "run %31s %lu %lf %lf %lf %ld", mode, &run.rounds, &run.estimate_us, &run.seconds, &run.start, &run.n) >= 5) {
            for (run.mode = 0; run.mode < MODES && strcmp(mode, mode_names[run.mode]); run.mode++) ;
            if (run.mode == MODES || run.n < 1 || ((run.mode == STREAMS || run.mode == NARROW) && run.n > MOST_STREAMS)) {
                printf("{\"error\":\"no such mode\"}\n");
            } else {
                if (run.mode == GRAPH) run.kernels = run.n;
                run_work();
            }
        } else printf("{\"error\":\"not understood\"}\n");
        fflush(stdout);
    }
    return 0;
}
