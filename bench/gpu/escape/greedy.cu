// A program that takes more than a slice: greedy FILE MIB SECONDS kernels|copies|nothing
//
// Takes device memory in pieces of 512 MiB until it has MIB or is refused, then keeps the GPU busy. FILE gets a line each
// 20 ms: the time (CLOCK_MONOTONIC, in seconds), the MiB that it holds, and how often its work has ended. A piece that
// passes a limit has a line of its own at once.
#include <cuda_runtime.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const size_t MIB = 1 << 20, PIECE = 512;

__global__ void spin(long long cycles) {
    long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
}

static double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void say(int file, const char *word, size_t held, long done) {
    char line[128];
    int length = snprintf(line, sizeof line, "%.4f %s %zu %ld\n", now(), word, held, done);
    if (write(file, line, length) != length) exit(3);
}

int main(int count, char **words) {
    if (count != 5) return 2;
    int file = open(words[1], O_WRONLY | O_CREAT | O_APPEND, 0644);
    size_t wanted = strtoul(words[2], 0, 10), held = 0;
    double seconds = atof(words[3]);
    say(file, "starts", 0, 0);
    cudaError_t refused = cudaFree(0);
    if (refused != cudaSuccess) {
        say(file, cudaGetErrorName(refused), 0, 0);
        return 1;
    }
    say(file, "context", 0, 0);
    void *first = 0;
    while (held < wanted) {
        void *piece;
        refused = cudaMalloc(&piece, PIECE * MIB);
        if (refused != cudaSuccess) {
            say(file, cudaGetErrorName(refused), held, 0);
            break;
        }
        if (!first) first = piece;
        held += PIECE;
        say(file, "holds", held, 0);
    }
    cudaGetLastError();
    void *host = 0;
    bool copies = !strcmp(words[4], "copies"), idle = !strcmp(words[4], "nothing");
    if (copies) cudaMallocHost(&host, PIECE * MIB);
    double begin = now(), next = begin;
    long done = 0;
    say(file, "works", held, 0);
    while (now() < begin + seconds) {
        if (idle) usleep(20000);
        else if (copies) cudaMemcpyAsync(host, first, PIECE * MIB, cudaMemcpyDeviceToHost);
        else for (int ahead = 0; ahead < 4; ahead++) spin<<<1, 32>>>(4000000);
        if (cudaDeviceSynchronize() != cudaSuccess) {
            say(file, "failed", held, done);
            return 1;
        }
        done++;
        if (now() >= next) {
            say(file, "at", held, done);
            next = now() + 0.02;
        }
    }
    say(file, "ends", held, done);
    return 0;
}
