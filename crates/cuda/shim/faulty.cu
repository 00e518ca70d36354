// Kernels with the faults that the shim must report. Only the shim compiles them.
#include "common.cuh"

// The first half of a block's threads exits before the barrier.
extern "C" __global__ void faulty_barrier() {
    if (threadIdx.x < blockDim.x / 2) {
        return;
    }
    __syncthreads();
}

// Half of a warp waits for the block, the other half for the warp.
extern "C" __global__ void faulty_mixture() {
    if (threadIdx.x % 32 < 16) {
        __syncthreads();
    } else {
        __syncwarp();
    }
}

// The mask names lanes that have exited.
extern "C" __global__ void faulty_shuffle(uint32_t* words) {
    if (threadIdx.x % 2 == 1) {
        return;
    }
    words[threadIdx.x] = __shfl_sync(ALL_LANES, threadIdx.x, 0);
}

// Reads the word after this number of words.
extern "C" __global__ void faulty_read(const uint32_t* words, uint32_t count, uint32_t* found) {
    found[0] = words[count];
}

// Writes beyond its dynamic shared memory.
extern "C" __global__ void faulty_shared() {
    extern __shared__ unsigned char dynamic_shared[];
    dynamic_shared[blockDim.x + threadIdx.x] = 1;
}

// Reads this index of an array of 8 words in static shared memory.
extern "C" __global__ void faulty_index(uint32_t at, uint32_t* found) {
    __shared__ uint32_t words[8];
    words[threadIdx.x % 8] = at;
    __syncthreads();
    found[0] = words[at];
}

// Reads four values at an address that is not a multiple of 16 bytes.
extern "C" __global__ void faulty_alignment(const float* values, float* sum) {
    const float4 four = *(const float4*)(values + 1);
    sum[0] = four.x + four.y + four.z + four.w;
}

// The result depends on the order of threads: the last writer wins.
extern "C" __global__ void faulty_race(uint32_t* word) { word[0] = blockIdx.x * blockDim.x + threadIdx.x; }

// Uses more local memory than the shim gives a thread.
extern "C" __global__ void faulty_stack(uint32_t* found) {
    volatile uint32_t mine[1 << 16];
    for (uint32_t at = 0; at < 1 << 16; at++) {
        mine[at] = at;
    }
    found[0] = mine[found[0]];
}
