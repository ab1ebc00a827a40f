// What sharing out a GPU's time rests on: what events cost and tell, how soon a waiting thread wakes, what is lost when
// another process goes on.
//
//     compute_facts NAME [ARGUMENT...]     one experiment; prints a line of JSON for each step
//
// Each experiment wants a process of its own: compute_facts.py runs them. No CUDA runtime: only the driver's calls.
#include "compute/common.h"

#include <dirent.h>

#include "compute_facts/calls.c"

#include "compute_facts/times.c"

#include "compute_facts/fills.c"

#include "compute_facts/overlap.c"

#include "compute_facts/threads.c"

#include "compute_facts/both.c"

#include "compute_facts/handover.c"

#include "compute_facts/early.c"

#include "compute_facts/copies.c"

#include "compute_facts/ending.c"

static const struct experiment {
    const char *name;
    void (*run)(char **arguments);
} experiments[] = {
    {"costs", costs},
    {"thread_without_context", thread_without_context},
    {"in_a_capture", in_a_capture},
    {"isolated", isolated},
    {"pair", pair},
    {"fills", fills},
    {"waking", waking},
    {"host_waking", host_waking},
    {"programmatic", programmatic},
    {"threads", threads},
    {"handover", handover},
    {"early", early},
    {"copies", copies},
    {"copy_between", copy_between},
    {"ending", ending},
};

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned i = 0; i < sizeof experiments / sizeof *experiments; i++) {
        if (count < 2) printf("%s\n", experiments[i].name);
        else if (!strcmp(words[1], experiments[i].name)) {
            experiments[i].run(words + 2);
            return 0;
        }
    }
    return count < 2 ? 0 : 2;
}
