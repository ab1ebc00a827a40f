// A program that ends with work queued, told how by a line on standard input.
//
//     mortal MEMORY [FILL [MS [MIB]]]
//
// MEMORY is where its kernels write: device, pool (cudaMallocAsync), vmm (cuMemCreate), mapped (pages of the host) or managed. Each of
// its 150 kernels takes 20 ms, or MS. It has MIB of it, or 64. FILL is how many blocks a kernel has for each processor: 2 unless it
// says otherwise. It says `up`, reads how it is to end, and does: exit, _exit, crash (an address that it has not), abort, throw (an exception ends it), reset
// (cudaDeviceReset, then exit), fork (a child stays for 3 s, and it ends), exec (it becomes another program), fault (an illegal
// address on the GPU). At any other word it waits for a signal.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <csignal>
#include <cstring>
#include <execinfo.h>
#include <stdexcept>
#include <string>
#include <unistd.h>

static const double ROUNDS_PER_US = 88.1;
#define NEED(call) do { int r_ = (int)(call); if (r_) { printf("%s: %d\n", #call, r_); fflush(stdout); _exit(3); } } while (0)

__global__ void spin(long rounds, float *out, long words) {
    float x = threadIdx.x;
    long thread = blockIdx.x * (long)blockDim.x + threadIdx.x;
    for (long i = 0; i < rounds; i++) {
        x = x * 1.0000001f + 0.5f;
        // Seldom, so that it is not the memory that is full.
        if (i % 65536 == 0) out[(thread * 4099 + i) % words] = x;
    }
}

__global__ void wrong(int *where) { *where = 1; }

// A crash that nobody asked for.
static void say_where(int signal) {
    void *calls[64];
    printf("signal %d\n", signal);
    fflush(stdout);
    backtrace_symbols_fd(calls, backtrace(calls, 64), 1);
    _exit(6);
}

static void *memory(const char *kind, size_t bytes) {
    void *at = nullptr;
    if (!strcmp(kind, "device")) NEED(cudaMalloc(&at, bytes));
    if (!strcmp(kind, "pool")) NEED(cudaMallocAsync(&at, bytes, 0));
    if (!strcmp(kind, "mapped")) NEED(cudaHostAlloc(&at, bytes, cudaHostAllocMapped));
    if (!strcmp(kind, "managed")) NEED(cudaMallocManaged(&at, bytes));
    if (!strcmp(kind, "vmm")) {
        CUmemAllocationProp property = {};
        property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        property.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
        CUmemGenericAllocationHandle handle;
        CUdeviceptr address;
        CUmemAccessDesc access = {property.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        NEED(cuMemCreate(&handle, bytes, &property, 0));
        NEED(cuMemAddressReserve(&address, bytes, 0, 0, 0));
        NEED(cuMemMap(address, bytes, 0, handle, 0));
        NEED(cuMemSetAccess(address, bytes, &access, 1));
        at = (void *)address;
    }
    return at;
}

int main(int count, char **words) {
    for (int one : {SIGSEGV, SIGBUS, SIGILL, SIGABRT}) signal(one, say_where);
    int processors, fill = count > 2 ? atoi(words[2]) : 2, ms = count > 3 ? atoi(words[3]) : 20;
    NEED(cudaSetDevice(0));
    NEED(cudaFree(0));
    NEED(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    size_t bytes = (size_t)(count > 4 ? atoi(words[4]) : 64) << 20;
    float *out = (float *)memory(words[1], bytes);
    spin<<<1, 32>>>(10, out, bytes / 4);
    NEED(cudaDeviceSynchronize());
    for (int i = 0; i < 150; i++) spin<<<processors * fill, 256>>>(ms * 1000 * ROUNDS_PER_US, out, bytes / 4);
    printf("up\n");
    fflush(stdout);
    char line[64] = "";
    if (!fgets(line, sizeof line, stdin)) return 4;
    std::string how(line, strcspn(line, "\n"));
    for (int one : {SIGSEGV, SIGBUS, SIGILL, SIGABRT}) signal(one, SIG_DFL);
    if (how == "exit") exit(0);
    if (how == "_exit") _exit(0);
    if (how == "crash") *(volatile int *)0 = 1;
    if (how == "abort") abort();
    if (how == "throw") throw std::runtime_error("ended by an exception");
    if (how == "reset") { cudaDeviceReset(); return 0; }
    if (how == "fork") { if (!fork()) sleep(3); _exit(0); }
    if (how == "exec") execl("/bin/true", "true", nullptr);
    if (how == "fault") {
        cudaStream_t stream;
        NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        wrong<<<1, 1, 0, stream>>>((int *)0x10);
        printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
        return 5;
    }
    sleep(60);
}
