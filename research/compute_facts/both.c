// Two processes that use the GPU one after the other, or at the same time.

enum { MOST = 40000 };

// Between the two processes; the logs are copied into it at the end.
struct between {
    _Atomic uint32_t turn, ready;
    _Atomic uint64_t start;
    // What the first tells the second.
    double told[1000];
    uint64_t counts[2];
    struct stamp stamps[2][MOST];
};

static struct between *both;

static void wait_turn(uint32_t turn, bool sleep) {
    uint32_t seen;
    while ((seen = atomic_load(&both->turn)) < turn)
        if (sleep) syscall(SYS_futex, &both->turn, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void give_turn(uint32_t turn) {
    atomic_store(&both->turn, turn);
    syscall(SYS_futex, &both->turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

// Both are there.
static void meet(uint32_t generation) {
    atomic_fetch_add(&both->ready, 1);
    while (atomic_load(&both->ready) < 2 * generation) ;
}

static void bring(int who, CUdeviceptr log) {
    static char buffer[sizeof(struct log) + MOST * sizeof(struct stamp)];
    struct log *head = (struct log *)buffer;
    NEED(cuMemcpyDtoH(buffer, log, sizeof buffer));
    both->counts[who] = head->count < MOST ? head->count : MOST;
    memcpy(both->stamps[who], head->stamps, both->counts[who] * sizeof(struct stamp));
    empty_log(log);
}

// One of the two.
struct side {
    int who;
    CUfunction work;
    CUstream stream;
    CUdeviceptr log;
    double rate;
};

static struct side begin_both(void) {
    both = mmap(NULL, sizeof *both, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (both == MAP_FAILED) exit(4);
    // Before either has a driver: after a fork there is none.
    struct side side = {.who = fork() ? 0 : 1};
    uint64_t bytes;
    begin();
    // One after the other, or each measures what the other leaves.
    wait_turn(side.who, true);
    side.rate = rounds_per_us();
    give_turn(side.who + 1);
    wait_turn(2, true);
    side.work = function("work");
    side.log = new_log(MOST, &bytes);
    NEED(cuStreamCreate(&side.stream, CU_STREAM_NON_BLOCKING));
    return side;
}

static void end_both(const struct side *side) {
    fflush(stdout);
    if (side->who) _exit(0);
    wait(NULL);
}
