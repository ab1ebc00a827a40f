// work KIND COUNTER: kernels of a known length, by the protocol of protocol.py.
//
// busy100us, busy1ms and busy200ms spin, 64, 64 and 2 ahead; quarter200us has a quarter of their threads; sync20us waits for each; bandwidth reads and
// writes 4 GiB, 4 ahead. cell37ms is a notebook: five cells a second by the clock, one after the other. It adds to COUNTER.lat as server.py does.
#include <cuda_runtime.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call) do { cudaError_t said = (call); if (said != cudaSuccess) { fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(said)); exit(1); } } while (0)

enum { COUNT, READY, GO, STOP, PARKED, ENDED };

struct Kind { const char *name; double us; int ahead; uint64_t period_ns; bool quarter; };
static const Kind KINDS[] = {{"busy100us", 100, 64}, {"busy1ms", 1000, 64}, {"quarter200us", 200, 64, 0, true}, {"busy200ms", 200000, 2}, {"sync20us", 20, 1}, {"bandwidth", 0, 4}, {"cell37ms", 37000, 1, 200000000}};

static const int BLOCKS = 132 * 8, THREADS = 256;
// Rounds of the loop in a microsecond, on an H200 with all its blocks.
static const double ROUNDS = 88.1;
static const size_t BYTES = 4ull << 30;

__global__ void spin(long rounds, float *out)
{
    float x = threadIdx.x;
    for (long at = 0; at < rounds; at++)
        x = x * 1.0000001f + 0.5f;
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

__global__ void stream_through(float4 *data, size_t count)
{
    for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at < count; at += (size_t)gridDim.x * blockDim.x) {
        float4 x = data[at];
        x.x = x.x * 0.5f + 1; x.y = x.y * 0.5f + 1; x.z = x.z * 0.5f + 1; x.w = x.w * 0.5f + 1;
        data[at] = x;
    }
}

static uint64_t now()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t get(volatile uint64_t *page, int word) { return __atomic_load_n(page + word, __ATOMIC_ACQUIRE); }
static void set(volatile uint64_t *page, int word, uint64_t value) { __atomic_store_n(page + word, value, __ATOMIC_RELEASE); }

static void done(volatile uint64_t *page)
{
    set(page, ENDED, now());
    set(page, COUNT, get(page, COUNT) + 1);
}

int main(int words, char **word)
{
    const Kind *kind = nullptr;
    for (const Kind &one : KINDS)
        if (words == 3 && !strcmp(one.name, word[1]))
            kind = &one;
    int file = kind ? open(word[2], O_RDWR) : -1;
    if (file < 0) {
        fprintf(stderr, "work KIND COUNTER\n");
        return 2;
    }
    void *mapped = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        return 2;
    volatile uint64_t *page = (volatile uint64_t *)mapped;

    bool streams = kind->us == 0;
    long rounds = (long)(kind->us * ROUNDS);
    void *data;
    size_t bytes = streams ? BYTES : BLOCKS * THREADS * sizeof(float);
    cudaStream_t stream;
    CHECK(cudaMalloc(&data, bytes));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemsetAsync(data, 0, bytes, stream));
    cudaEvent_t ends[64];
    for (int at = 0; at < kind->ahead; at++)
        CHECK(cudaEventCreateWithFlags(&ends[at], cudaEventDisableTiming));
    auto launch = [&](long length) {
        if (streams)
            stream_through<<<BLOCKS, THREADS, 0, stream>>>((float4 *)data, BYTES / sizeof(float4));
        else
            spin<<<kind->quarter ? BLOCKS / 4 : BLOCKS, THREADS, 0, stream>>>(length, (float *)data);
        CHECK(cudaGetLastError());
    };
    // Loads the kernel.
    launch(100);
    CHECK(cudaStreamSynchronize(stream));

    char latencies[4096];
    snprintf(latencies, sizeof latencies, "%s.lat", word[2]);
    // When the next cell comes.
    uint64_t due = 0;
    // Launched, and seen to have ended.
    uint64_t begun = 0, ended = 0;
    auto see = [&] { CHECK(cudaEventSynchronize(ends[ended % kind->ahead])); ended++; done(page); };
    for (bool first = true; !get(page, STOP); first = false) {
        if (first || !get(page, GO)) {
            while (ended < begun)
                see();
            set(page, PARKED, 1);
            set(page, READY, 1);
            while (!get(page, GO) && !get(page, STOP))
                usleep(2000);
            set(page, PARKED, 0);
            if (get(page, STOP))
                break;
            due = now() + kind->period_ns;
        }
        while (kind->period_ns && now() < due)
            usleep(200);
        if (begun - ended == (uint64_t)kind->ahead)
            see();
        launch(rounds);
        CHECK(cudaEventRecord(ends[begun++ % kind->ahead], stream));
        if (kind->ahead == 1)
            see();
        if (kind->period_ns) {
            uint64_t took[] = {due, now() - due};
            FILE *kept = fopen(latencies, "ab");
            if (!kept || fwrite(took, sizeof took, 1, kept) != 1)
                return 2;
            fclose(kept);
            due += kind->period_ns;
        }
    }
    while (ended < begun)
        see();
    return 0;
}
