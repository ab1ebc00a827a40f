// Takes device memory in one way until the driver says no, and says what it got.
//
//     takes WAY STEP fill [HOW]        takes blocks of STEP bytes until refused, gives all back, and does it again
//     takes WAY STEP hold COUNT        takes so many, or with 0 as many as there are, and holds them until stdin ends
//     takes WAY STEP until COUNT FILE  the same until the file is there
//
// WAY is one of ways.h; HOW is how it finds the driver's functions (calls.h); DEVICE is a variable of the environment.

#include "ways.h"

static struct block *blocks;
static size_t count, room;

// Takes blocks until there are `most`, and returns what the driver said last.
static int take_all(const struct way *way, size_t step, size_t most)
{
    int result = SUCCESS;
    while (!result && count < most) {
        if (count == room) {
            room = room ? 2 * room : 1024;
            blocks = realloc(blocks, room * sizeof *blocks);
            if (!blocks)
                fail("realloc", "no memory");
        }
        blocks[count] = (struct block){0};
        result = way->take(step, &blocks[count]);
        count += result == SUCCESS;
    }
    return result;
}

static int give_all(const struct way *way)
{
    int worst = SUCCESS;
    while (count > 0) {
        int result = way->give(&blocks[--count]);
        worst = result ? result : worst;
    }
    return worst;
}

static void say_info(const char *when)
{
    size_t free_bytes = 0, total_bytes = 0;
    int result = cu.cuMemGetInfo_v2(&free_bytes, &total_bytes);
    printf("%s: cuMemGetInfo=%d free=%zu total=%zu\n", when, result, free_bytes, total_bytes);
    fflush(stdout);
}

static void say_taken(const char *when, int then)
{
    printf("%s: blocks=%zu then=%d\n", when, count, then);
    fflush(stdout);
}

static void fill(const struct way *way, size_t step)
{
    say_info("before");
    say_taken("took", take_all(way, step, SIZE_MAX));
    say_info("full");
    printf("gave: %d\n", give_all(way));
    printf("waited: %d\n", cu.cuCtxSynchronize());
    say_info("after");
    say_taken("again", take_all(way, step, SIZE_MAX));
}

int main(int words, char **word)
{
    if (words < 4)
        fail(word[0], "which way, in which steps, to do what?");
    const struct way *way = way_named(word[1]);
    size_t step = strtoull(word[2], NULL, 0);
    const char *action = word[3], *more = words > 4 ? word[4] : NULL;
    bool fills = strcmp(action, "fill") == 0;
    const char *device = getenv("DEVICE");
    device_number = device ? atoi(device) : 0;
    reach(fills && more ? more : "linked");
    say_library();
    int result = start(way->old);
    printf("start: %d\n", result);
    if (result) {
        fflush(stdout);
    } else if (fills) {
        fill(way, step);
    } else {
        size_t most = more ? strtoull(more, NULL, 0) : 0;
        say_taken("took", take_all(way, step, most ? most : SIZE_MAX));
        say_info("holding");
    }
    if (strcmp(action, "hold") == 0) {
        while (getchar() != EOF)
            ;
    } else if (strcmp(action, "until") == 0 && words > 5) {
        while (access(word[5], F_OK) != 0)
            usleep(5000);
    }
    return 0;
}
