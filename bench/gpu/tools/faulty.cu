// A program with faults that a tool finds: faulty WHAT, where WHAT is bounds, race, unset, api, leak or right.
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

__global__ void bounds(int *data, int count) { data[threadIdx.x + count - 16] = 1; }

__global__ void race(int *out) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    sum += threadIdx.x;
    __syncthreads();
    *out = sum;
}

__global__ void unset(const int *data, int *out) { out[threadIdx.x] = data[threadIdx.x] + 1; }

__global__ void right(int *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x; }

int main(int words, char **word) {
    const char *what = words > 1 ? word[1] : "right";
    int *data, *out, host = -1;
    cudaMalloc(&data, 1024 * sizeof *data);
    cudaMalloc(&out, 1 << 20);
    if (!strcmp(what, "bounds")) bounds<<<1, 32>>>(data, 1024);
    if (!strcmp(what, "race")) race<<<1, 64>>>(out);
    if (!strcmp(what, "unset")) unset<<<1, 32>>>(data, out);
    if (!strcmp(what, "api")) cudaMemcpy(&host, NULL, sizeof host, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 3; i++) right<<<64, 64>>>(out);
    cudaDeviceSynchronize();
    cudaMemcpy(&host, out + 5, sizeof host, cudaMemcpyDeviceToHost);
    printf("value %d, last %s\n", host, cudaGetErrorName(cudaGetLastError()));
    if (strcmp(what, "leak")) {
        cudaFree(data);
        cudaFree(out);
    }
    cudaDeviceReset();
    return 0;
}
