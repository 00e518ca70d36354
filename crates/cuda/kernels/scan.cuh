// Prefix sums over a block.
#pragma once

// Sum before each thread's value in a block of up to 1024 threads; `total` receives the sum of all.
// All threads must call it; `warps` is shared scratch of 33 values.
__device__ inline uint64_t block_before(uint64_t value, uint64_t* warps, uint64_t* total) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, count = (blockDim.x + 31) / 32;
    uint64_t sum = value;
    for (uint32_t step = 1; step < 32; step *= 2) {
        const uint64_t before = __shfl_up_sync(ALL_LANES, sum, step);
        sum += lane >= step ? before : 0;
    }
    if (lane == 31) {
        warps[warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        uint64_t running = 0;
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t here = warps[i];
            warps[i] = running;
            running += here;
        }
        warps[32] = running;
    }
    __syncthreads();
    const uint64_t before = warps[warp] + sum - value;
    *total = warps[32];
    // the next call may write at once
    __syncthreads();
    return before;
}
