// Many threads make the first CUDA call at the same moment, and some of them end before the others begin.

#include <pthread.h>
#include <stdatomic.h>

#include "tour.h"

enum { THREADS = 64, ROUNDS = 200 };

static pthread_barrier_t start;
static struct driver driver;
static atomic_int failures;

// Says the first call of a thread that failed: one in thousands has to be found out at once.
static void check(const char **failed, const char *call, int result)
{
    if (result == 0 || *failed != NULL)
        return;
    *failed = call;
    fprintf(stderr, "%s: %d\n", call, result);
}

static void *work(void *unused)
{
    (void)unused;
    const char *failed = NULL;
    pthread_barrier_wait(&start);
    int count = 0;
    check(&failed, "cuInit", driver.init(0));
    check(&failed, "cuDeviceGetCount", driver.count(&count));
    void *context = NULL;
    check(&failed, "cuDevicePrimaryCtxRetain", driver.retain(&context, 0));
    check(&failed, "cuCtxSetCurrent", driver.set_current(context));
    for (int i = 0; i < ROUNDS; i++) {
        device_pointer at = 0;
        int device = -1;
        check(&failed, "cuMemAlloc", driver.alloc(&at, 4096));
        check(&failed, "cuCtxGetDevice", driver.current(&device));
        check(&failed, "cuMemFree", driver.free(at));
    }
    check(&failed, "cuDevicePrimaryCtxRelease", driver.release(0));
    atomic_fetch_add(&failures, failed != NULL);
    return NULL;
}

int main(void)
{
    driver = linked_driver();
    say_library();
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, NULL) != 0)
            fail("pthread_create", "no thread");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("threads that met an error: %d of %d\n", atomic_load(&failures), THREADS);
    int result = tour(&driver);
    say_self();
    return result;
}
