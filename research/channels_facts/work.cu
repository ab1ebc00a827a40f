// A program whose kernels fill the GPU and count themselves.
//
//     work KIND KERNEL_US AHEAD FILE PAUSE_US     until it is told to stop
//
// `queue` launches ahead, at most AHEAD kernels, and pauses after each launch. `sync` waits for each kernel, then pauses. Each
// thread of each kernel adds one to a word of its own; at the end each word must be the number of launches.
#include <cuda_runtime.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <vector>

// FILE. channels_facts.py reads it while the program runs.
struct seen { volatile uint64_t done, launched, ready, stop; };

// Rounds of `spin` in a microsecond, where 8 blocks of 256 threads share each processor: measured on an H200.
static const double ROUNDS_PER_US = 88.1;
static const int THREADS = 256;

#define NEED(call) do { cudaError_t r_ = (call); if (r_) { printf("%s: %s\n", #call, cudaGetErrorString(r_)); exit(3); } } while (0)

__global__ void spin(long rounds, float *out, unsigned *runs) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    float x = threadIdx.x;
    for (long i = 0; i < rounds; i++) x = x * 1.0000001f + 0.5f;
    out[thread] = x;
    runs[thread]++;
}

static double now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int count, char **words) {
    if (count < 6) return 2;
    bool queue = !strcmp(words[1], "queue");
    long rounds = atof(words[2]) * ROUNDS_PER_US, ahead = atol(words[3]), launches = 0;
    double pause_ns = atof(words[5]) * 1e3;
    int file = open(words[4], O_RDWR), processors;
    seen *shared = (seen *)mmap(nullptr, sizeof(seen), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) return 2;
    NEED(cudaSetDeviceFlags(cudaDeviceScheduleSpin));
    NEED(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    int blocks = processors * 8, threads = blocks * THREADS;
    float *out;
    unsigned *runs;
    cudaStream_t stream;
    std::vector<cudaEvent_t> events(ahead + 1);
    NEED(cudaMalloc(&out, threads * sizeof *out));
    NEED(cudaMalloc(&runs, threads * sizeof *runs));
    NEED(cudaStreamCreate(&stream));
    for (auto &event : events) NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    // What comes with the first launch is over then.
    spin<<<blocks, THREADS, 0, stream>>>(100, out, runs);
    NEED(cudaDeviceSynchronize());
    NEED(cudaMemset(runs, 0, threads * sizeof *runs));
    shared->ready = 1;
    while (!shared->stop) {
        spin<<<blocks, THREADS, 0, stream>>>(rounds, out, runs);
        shared->launched = ++launches;
        if (queue) {
            NEED(cudaEventRecord(events[launches % (ahead + 1)], stream));
            if (launches > ahead) {
                NEED(cudaEventSynchronize(events[(launches - ahead) % (ahead + 1)]));
                shared->done = launches - ahead;
            }
        } else {
            NEED(cudaStreamSynchronize(stream));
            shared->done = launches;
        }
        for (double end = now_ns() + pause_ns; now_ns() < end;) ;
    }
    std::vector<unsigned> all(threads);
    long wrong = 0;
    NEED(cudaDeviceSynchronize());
    NEED(cudaMemcpy(all.data(), runs, threads * sizeof *runs, cudaMemcpyDeviceToHost));
    for (unsigned one : all) wrong += one != launches;
    printf("{\"launched\": %ld, \"wrong_threads\": %ld}\n", launches, wrong);
    return wrong != 0;
}
