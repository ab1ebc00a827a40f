// The CUDA runtime's ways to device memory, linked statically or shared: takes steps until refused, gives all back, twice.
//
//     runtime WAY STEP_BYTES MOST_BYTES
//     runtime reset              what cudaDeviceReset gives back
//     runtime first              the time of the first allocation after the context was made
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <string>
#include <time.h>
#include <vector>

static double now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void phase(const std::string &text) {
    char answer[16];
    printf("{\"phase\":%s}\n", text.c_str());
    fflush(stdout);
    if (!fgets(answer, sizeof answer, stdin)) exit(5);
}

__global__ void nothing() {}

static cudaStream_t stream;
static cudaMemPool_t pool;

static cudaError_t take(const std::string &way, size_t step, void **at) {
    if (way == "cudaMalloc") return cudaMalloc(at, step);
    if (way == "cudaMallocManaged") return cudaMallocManaged(at, step);
    if (way == "cudaMallocAsync") return cudaMallocAsync(at, step, stream);
    size_t pitch;
    if (way == "cudaMallocPitch") return cudaMallocPitch(at, &pitch, 8192, step / 8192);
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    if (way == "cudaMalloc3DArray") return cudaMalloc3DArray((cudaArray_t *)at, &format, make_cudaExtent(128, 128, step / 65536));
    if (way == "cudaMallocMipmappedArray") return cudaMallocMipmappedArray((cudaMipmappedArray_t *)at, &format, make_cudaExtent(1536, step / 8192, 0), 6);
    if (way == "cudaMallocFromPoolAsync") {
        if (!pool) {
            cudaMemPoolProps what = {};
            what.allocType = cudaMemAllocationTypePinned;
            what.location.type = cudaMemLocationTypeDevice;
            cudaError_t made = cudaMemPoolCreate(&pool, &what);
            if (made) return made;
        }
        return cudaMallocFromPoolAsync(at, step, pool, stream);
    }
    exit(2);
}

static cudaError_t give(const std::string &way, void *at) {
    if (way == "cudaMalloc3DArray") return cudaFreeArray((cudaArray_t)at);
    if (way == "cudaMallocMipmappedArray") return cudaFreeMipmappedArray((cudaMipmappedArray_t)at);
    if (way == "cudaMallocAsync" || way == "cudaMallocFromPoolAsync") return cudaFreeAsync(at, stream);
    return cudaFree(at);
}

static int reset() {
    for (int round = 1; round <= 3; round++) {
        void *at;
        size_t available = 0, total = 0;
        cudaError_t first = cudaMalloc(&at, (size_t)3 << 30);
        nothing<<<1, 1>>>();
        cudaError_t ran = cudaDeviceSynchronize();
        phase("\"reset " + std::to_string(round) + ", 3 GiB\",\"code\":" + std::to_string(first) + ",\"kernel\":" + std::to_string(ran));
        cudaError_t done = cudaDeviceReset();
        phase("\"reset " + std::to_string(round) + ", reset\",\"code\":" + std::to_string(done));
        cudaMemGetInfo(&available, &total);
        phase("\"reset " + std::to_string(round) + ", cudaMemGetInfo\",\"free\":" + std::to_string(available) + ",\"total\":" + std::to_string(total));
    }
    return 0;
}

int main(int words, char **word) {
    std::string way = words > 1 ? word[1] : "";
    if (way == "reset") return reset();
    if (cudaFree(nullptr)) return 1;
    if (way == "first") {
        void *at;
        double start = now_ns();
        if (cudaMalloc(&at, 1 << 20)) return 1;
        printf("time runtime_first_ns %.0f\n", now_ns() - start);
        return 0;
    }
    if (words != 4) return 2;
    size_t step = strtoull(word[2], nullptr, 10), most = strtoull(word[3], nullptr, 10);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    nothing<<<1, 1, 0, stream>>>();
    cudaStreamSynchronize(stream);
    phase("\"context\"");
    for (int round = 1; round <= 2; round++) {
        std::vector<void *> held;
        cudaError_t result = cudaSuccess, given = cudaSuccess;
        void *at;
        double start = now_ns();
        while (held.size() * step < most && !(result = take(way, step, &at))) held.push_back(at);
        double took = now_ns() - start;
        cudaGetLastError();
        nothing<<<1, 1, 0, stream>>>();
        cudaError_t kernel = cudaStreamSynchronize(stream);
        size_t available = 0, total = 0;
        cudaMemGetInfo(&available, &total);
        char text[300];
        snprintf(text, sizeof text, "\"full %d\",\"got\":%zu,\"code\":%d,\"kernel\":%d,\"seconds\":%.3f,\"free\":%zu,\"total\":%zu", round, held.size() * step, result, kernel, took / 1e9, available, total);
        phase(text);
        for (void *one : held) { cudaError_t freed = give(way, one); given = given ? given : freed; }
        cudaStreamSynchronize(stream);
        phase("\"empty " + std::to_string(round) + "\",\"given\":" + std::to_string(given));
    }
    return 0;
}
