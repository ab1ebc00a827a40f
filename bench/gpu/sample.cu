// A CUDA program of the ordinary kind, linked with the static or the shared runtime: memory in the ways that the
// runtime offers, kernels, a stream, a graph. Prints what it computed, and on lines with `time` how fast.
#include <cstdio>
#include <cuda_runtime.h>
#include <time.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s: %s\n", #call, cudaGetErrorString(e)); return 1; } } while (0)

__global__ void fill(float *data, int count, float value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) data[i] = value + i % 7;
}

__global__ void nothing() {}

static double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main() {
    const int count = 1 << 20;
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    printf("device %s, %zu bytes, %d multiprocessors\n", properties.name, properties.totalGlobalMem, properties.multiProcessorCount);
    size_t unused, total;
    CHECK(cudaMemGetInfo(&unused, &total));
    printf("total %zu\n", total);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    float *plain, *managed, *async, *pitched, host[8];
    size_t pitch;
    CHECK(cudaMalloc(&plain, count * sizeof(float)));
    CHECK(cudaMallocManaged(&managed, count * sizeof(float)));
    CHECK(cudaMallocAsync(&async, count * sizeof(float), stream));
    CHECK(cudaMallocPitch(&pitched, &pitch, 1000, 100));
    printf("pitch %zu\n", pitch);
    float *all[] = { plain, managed, async };
    for (float *data : all) {
        fill<<<count / 256, 256, 0, stream>>>(data, count, 3.f);
        CHECK(cudaMemcpyAsync(host, data + 1000, sizeof host, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        printf("values %g %g %g\n", host[0], host[3], host[7]);
    }
    cudaGraph_t graph;
    cudaGraphExec_t launch;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 10; i++) fill<<<count / 256, 256, 0, stream>>>(plain, count, (float)i);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&launch, graph, 0));
    CHECK(cudaGraphLaunch(launch, stream));
    CHECK(cudaMemcpyAsync(host, plain, sizeof host, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("graph %g %g\n", host[0], host[6]);
    void *too_much = nullptr;
    printf("too much: %s\n", cudaGetErrorName(cudaMalloc(&too_much, (size_t)1 << 50)));
    cudaGetLastError();
    CHECK(cudaFreeAsync(async, stream));

    const int launches = 200000, pairs = 200000;
    for (int i = 0; i < 1000; i++) nothing<<<1, 1, 0, stream>>>();
    CHECK(cudaStreamSynchronize(stream));
    double start = now();
    for (int i = 0; i < launches; i++) nothing<<<1, 1, 0, stream>>>();
    CHECK(cudaStreamSynchronize(stream));
    printf("time launch_ns %.1f\n", (now() - start) / launches * 1e9);
    void *block;
    start = now();
    for (int i = 0; i < pairs; i++) { CHECK(cudaMallocAsync(&block, 4096, stream)); CHECK(cudaFreeAsync(block, stream)); }
    CHECK(cudaStreamSynchronize(stream));
    printf("time async_pair_ns %.1f\n", (now() - start) / pairs * 1e9);
    start = now();
    for (int i = 0; i < 2000; i++) { CHECK(cudaMalloc(&block, 1 << 20)); CHECK(cudaFree(block)); }
    printf("time malloc_pair_ns %.1f\n", (now() - start) / 2000 * 1e9);
    return 0;
}
