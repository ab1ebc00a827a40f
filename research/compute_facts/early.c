// What becomes of the end of one process's turn, and of the beginning of another's, where the other launches before the first
// one's work is done: `handover ahead` shows most turns, and this the few.

// A turn of the first process is some kernels of this length, one of the second a single one.
enum { TURN_KERNELS = 3, TURNS = 100 };
#define KERNEL_US 1000.0
// A turn that is longer by more had another's work in it.
#define CUT_US 300.0

// Of one turn of the second process, on the GPU's clock: when it launched, and when it saw that its first event was reached.
struct beginning { double launched, reached, elapsed_us; };

// A turn of each; the second launches so long before the first is done, or afterwards where that is less than nothing.
static struct beginning one_turn(const struct side *side, double left_us, CUevent first, CUevent second, double offset, uint32_t *generation, uint32_t *seed) {
    struct beginning told = {0};
    int count = side->who ? 1 : TURN_KERNELS;
    float ms;
    meet(++*generation);
    if (side->who == 0) {
        // The driver's slices go on by themselves: each turn begins somewhere else in them.
        *seed = *seed * 1664525 + 1013904223;
        busy_ns((*seed >> 8) / 16777216.0 * 5e6);
        atomic_store(&both->start, (uint64_t)now_ns() + 200000);
    }
    meet(++*generation);
    double start = atomic_load(&both->start) + (side->who ? (TURN_KERNELS * KERNEL_US + 10 - left_us) * 1e3 : 0);
    while (now_ns() < start) ;
    told.launched = now_ns() + offset;
    NEED(cuEventRecord(first, side->stream));
    for (int i = 0; i < count; i++) NEED(launch(side->work, full_grid, rounds_for(KERNEL_US, side->rate), side->log, side->stream));
    NEED(cuEventRecord(second, side->stream));
    while (cuEventQuery(first) == CUDA_ERROR_NOT_READY) ;
    told.reached = now_ns() + offset;
    NEED(cuStreamSynchronize(side->stream));
    NEED(cuEventElapsedTime(&ms, first, second));
    told.elapsed_us = ms * 1e3;
    return told;
}

static double median(double *values, long count) {
    sort(values, count);
    return part(values, count, 0.5);
}

// By the logs of both, what events told, and what was seen of the second one's first event.
static void say_turns(double left_us, const struct beginning *seconds) {
    static double left[TURNS], longer[TURNS], by_events[TURNS], both_us[TURNS], both_cut_us[TURNS], reached_us[TURNS], before_us[TURNS], too_long_us[TURNS];
    long cut = 0, uncut = 0, before = 0;
    for (int i = 0; i < TURNS; i++) {
        const struct stamp *a = both->stamps[0] + i * TURN_KERNELS, *b = both->stamps[1] + i;
        double begin = a->begin, end = a[TURN_KERNELS - 1].end, expected_us = TURN_KERNELS * KERNEL_US;
        double all_us = ((b->end > end ? b->end : end) - begin) / 1e3;
        left[i] = (begin - seconds[i].launched) / 1e3 + expected_us;
        if ((end - begin) / 1e3 > expected_us + CUT_US) {
            longer[cut] = (end - begin) / 1e3 - expected_us;
            by_events[cut] = both->told[i] - expected_us;
            both_cut_us[cut++] = all_us;
            continue;
        }
        both_us[uncut] = all_us;
        reached_us[uncut] = (seconds[i].reached - seconds[i].launched) / 1e3;
        before_us[uncut] = (end - seconds[i].reached) / 1e3;
        before += before_us[uncut] > 0;
        too_long_us[uncut++] = seconds[i].elapsed_us - (b->end - b->begin) / 1e3;
    }
    printf("{\"at\":\"%d kernels of %.0f us; a second process records an event and launches one %.0f us before they are done\",\"turns\":%d,\"left_us\":%.1f,\"both_us\":%.1f,\"cut\":{\"turns\":%ld,\"of_all\":%.3f,\"longer_us\":%.1f,\"longer_by_events_us\":%.1f,\"both_us\":%.1f},",
        TURN_KERNELS, KERNEL_US, left_us, TURNS, median(left, TURNS), median(both_us, uncut), cut, cut / (double)TURNS, median(longer, cut), median(by_events, cut), median(both_cut_us, cut));
    printf("\"event\":{\"turns\":%ld,\"before_the_others_end\":%ld,\"so_long_before_us\":%.1f,\"after_it_was_recorded_us\":%.1f,\"between_events_too_long_us\":%.1f}}\n",
        uncut, before, median(before_us, uncut), median(reached_us, uncut), median(too_long_us, uncut));
}

static void early(char **arguments) {
    (void)arguments;
    // The first is the control: nothing runs any more.
    static const double lefts[] = {-500, 300, 700, 1500};
    static struct beginning beginnings[TURNS];
    struct side side = begin_both();
    CUevent first, second;
    uint32_t generation = 0, seed = 1;
    // The first process waits meanwhile.
    double offset = side.who ? gpu_less_host(side.log) : 0;
    NEED(cuEventCreate(&first, 0));
    NEED(cuEventCreate(&second, 0));
    for (unsigned way = 0; way < sizeof lefts / sizeof *lefts; way++) {
        for (int i = 0; i < TURNS; i++) {
            beginnings[i] = one_turn(&side, lefts[way], first, second, offset, &generation, &seed);
            if (side.who == 0) both->told[i] = beginnings[i].elapsed_us;
        }
        bring(side.who, side.log);
        meet(++generation);
        if (side.who) say_turns(lefts[way], beginnings);
        meet(++generation);
    }
    end_both(&side);
}
