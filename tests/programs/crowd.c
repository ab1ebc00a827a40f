// Many processes of one job at once.
//
//     crowd race COUNT STEP WAY       each takes blocks of STEP bytes until refused, all beginning at the same moment
//     crowd storm COUNT SECONDS SEED  each does in 8 threads whatever comes, and some are killed and replaced meanwhile
//     crowd busy COUNT SECONDS SEED   the same without graphs, and no process is killed
//
// Both say "ready", "full" or "quiet" and wait for a line: then all holds still, and can be counted from outside.

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "ways.h"

enum { MOST = 256, THREADS = 8, BLOCKS = 24 };

// What the processes share; zero at first.
static struct shared {
    atomic_int ready, go, done, stop, quiet, odd;
    atomic_long taken, refused, steps;
} *shared;

static pid_t children[MOST];
static int child_count;

static void say(const char *text)
{
    printf("%s\n", text);
    fflush(stdout);
}

static void until(atomic_int *count, int wanted)
{
    for (int i = 0; atomic_load(count) < wanted; i++) {
        if (i > 60000)
            fail("crowd", "a process is missing");
        usleep(1000);
    }
}

static pid_t start_child(void (*body)(unsigned), unsigned number)
{
    pid_t child = fork();
    if (child == 0) {
        // None outlives the crowd.
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        body(number);
        _exit(0);
    }
    return child;
}

static void kill_child(int place)
{
    kill(children[place], SIGKILL);
    waitpid(children[place], NULL, 0);
}

// Notes an answer that is neither success nor a refusal: the first is told.
static void note(int result)
{
    if (result != SUCCESS && result != OUT_OF_MEMORY) {
        int none = 0;
        atomic_compare_exchange_strong(&shared->odd, &none, result);
    }
}

// The race.
static const struct way *race_way;
static size_t race_step;

static void racer(unsigned number)
{
    static struct block block;
    (void)number;
    note(start(race_way->old));
    atomic_fetch_add(&shared->ready, 1);
    while (!atomic_load(&shared->go))
        sched_yield();
    int result;
    while ((result = race_way->take(race_step, &block)) == SUCCESS)
        atomic_fetch_add(&shared->taken, 1);
    note(result);
    // A process that is refused asks once more: a refusal stays one while no process gives memory back.
    atomic_fetch_add(&shared->refused, result == OUT_OF_MEMORY);
    atomic_fetch_add(&shared->done, 1);
    pause();
}

static void race(void)
{
    for (int i = 0; i < child_count; i++)
        children[i] = start_child(racer, (unsigned)i);
    until(&shared->ready, child_count);
    say("ready");
    wait_for_line();
    atomic_store(&shared->go, 1);
    until(&shared->done, child_count);
    printf("full: blocks=%ld refused=%ld odd=%d\n", atomic_load(&shared->taken),
           atomic_load(&shared->refused), atomic_load(&shared->odd));
    fflush(stdout);
    wait_for_line();
}

// The storm.
static unsigned random_number(unsigned *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

// From one byte to 64 MiB, small ones as often as large ones.
static size_t random_size(unsigned *state)
{
    size_t size = (size_t)1 << (random_number(state) % 27);
    return size + random_number(state) % size;
}

struct held {
    const struct way *way;
    struct block block;
};

// Ways that need whole rows or layers are asked for enough of them.
static size_t least(const struct way *way)
{
    return strstr(way->name, "3D") ? 256 << 10 : strstr(way->name, "Array") || strstr(way->name, "Pitch") ? 8192 : 1;
}

// How many of the ways are used.
static int storm_ways = WAYS_FOR_THREADS;

static void *storm_thread(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    struct held held[BLOCKS] = {0};
    if (cu.cuCtxSetCurrent(main_context) != SUCCESS)
        return NULL;
    while (!atomic_load(&shared->stop)) {
        struct held *one = &held[random_number(&state) % BLOCKS];
        int result;
        if (one->way) {
            result = one->way->give(&one->block);
            one->way = NULL;
        } else {
            const struct way *way = &ways[random_number(&state) % (unsigned)storm_ways];
            size_t size = random_size(&state);
            one->block = (struct block){0};
            result = way->take(size < least(way) ? least(way) : size, &one->block);
            one->way = result ? NULL : way;
            atomic_fetch_add(result ? &shared->refused : &shared->taken, 1);
        }
        note(result);
        size_t free_bytes, total;
        note(cu.cuMemGetInfo_v2(&free_bytes, &total));
        atomic_fetch_add(&shared->steps, 1);
        // Without it, so many threads would keep all other processes of this machine from running.
        usleep(random_number(&state) % 4000);
    }
    // Pools give back by themselves, which is noticed at the next look.
    size_t free_bytes, total;
    note(cu.cuMemGetInfo_v2(&free_bytes, &total));
    atomic_fetch_add(&shared->quiet, 1);
    pause();
    return NULL;
}

static void stormer(unsigned seed)
{
    pthread_t threads[THREADS];
    // There may be no room for a context at this moment.
    int result;
    while ((result = start(false)) == OUT_OF_MEMORY && !atomic_load(&shared->stop))
        usleep(5000);
    note(result);
    for (unsigned i = 0; i < THREADS && !result; i++) {
        if (pthread_create(&threads[i], NULL, storm_thread, (void *)(uintptr_t)(seed * 31 + i)) != 0)
            fail("pthread_create", "no thread");
    }
    if (result)
        atomic_fetch_add(&shared->quiet, THREADS);
    pause();
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void storm(double seconds, unsigned seed, bool kills)
{
    if (!kills)
        storm_ways = WAYS_WITHOUT_GRAPHS;
    unsigned state = seed;
    int killed = 0;
    for (int i = 0; i < child_count; i++)
        children[i] = start_child(stormer, random_number(&state));
    double end = now() + seconds;
    while (now() < end) {
        usleep(1000 * (random_number(&state) % 150));
        if (!kills)
            continue;
        int place = (int)(random_number(&state) % (unsigned)child_count);
        kill_child(place);
        children[place] = start_child(stormer, random_number(&state));
        killed++;
    }
    atomic_store(&shared->stop, 1);
    until(&shared->quiet, child_count * THREADS);
    printf("quiet: steps=%ld taken=%ld refused=%ld killed=%d odd=%d\n", atomic_load(&shared->steps),
           atomic_load(&shared->taken), atomic_load(&shared->refused), killed, atomic_load(&shared->odd));
    fflush(stdout);
    wait_for_line();
}

int main(int words, char **word)
{
    if (words < 5)
        fail(word[0], "race or storm, how many, and what?");
    reach("linked");
    say_library();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    child_count = atoi(word[2]);
    if (shared == MAP_FAILED || child_count > MOST)
        fail("crowd", "too many");
    if (strcmp(word[1], "race") == 0) {
        race_step = strtoull(word[3], NULL, 0);
        race_way = way_named(word[4]);
        race();
    } else {
        storm(atof(word[3]), (unsigned)atoi(word[4]), strcmp(word[1], "storm") == 0);
    }
    for (int i = 0; i < child_count; i++)
        kill_child(i);
    say("over");
    return 0;
}
