// Many threads make the first CUDA call at the same moment, and some of them end before the others begin.

#include <pthread.h>
#include <stdatomic.h>

#include "tour.h"

enum { THREADS = 64, ROUNDS = 200 };

static pthread_barrier_t start;
static struct driver driver;
static atomic_int failures;

static void *work(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&start);
    int count = 0, failed = driver.init(0);
    failed |= driver.count(&count);
    void *context = NULL;
    failed |= driver.retain(&context, 0);
    failed |= driver.set_current(context);
    for (int i = 0; i < ROUNDS; i++) {
        device_pointer at = 0;
        int device = -1;
        failed |= driver.alloc(&at, 4096);
        failed |= driver.current(&device);
        failed |= driver.free(at);
    }
    failed |= driver.release(0);
    atomic_fetch_add(&failures, failed != 0);
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
