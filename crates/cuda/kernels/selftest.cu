// Kernels that test their execution by a driver or by the host shim.
#include "common.cuh"
#include "lookback.cuh"

// Sum of the values of a warp's lanes, in one fixed order, returned to lane 0.
__device__ inline float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) {
        value += __shfl_down_sync(ALL_LANES, value, step);
    }
    return value;
}

// sums[block] = the sum of the block's share of `count` values. Blocks of a multiple of 32 threads,
// at most 1024.
extern "C" __global__ void selftest_sum(const float* values, uint64_t count, float* sums) {
    __shared__ float of_warps[32];
    float sum = 0.0f;
    for (uint64_t at = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; at < count;
         at += (uint64_t)gridDim.x * blockDim.x) {
        sum += values[at];
    }
    sum = warp_sum(sum);
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = threadIdx.x / 32;
    if (lane == 0) {
        of_warps[warp] = sum;
    }
    __syncthreads();
    if (warp == 0) {
        sum = warp_sum(lane < blockDim.x / 32 ? of_warps[lane] : 0.0f);
        if (lane == 0) {
            sums[blockIdx.x] = sum;
        }
    }
}

// sums[i] = values[0] + .. + values[i], within each warp's 32 values. Blocks of a multiple of 32
// threads.
extern "C" __global__ void selftest_warp_scan(const uint32_t* values, uint32_t count, uint32_t* sums) {
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t first = blockIdx.x * blockDim.x; first < count; first += gridDim.x * blockDim.x) {
        const uint32_t at = first + threadIdx.x;
        uint32_t sum = at < count ? values[at] : 0;
        for (uint32_t step = 1; step < 32; step *= 2) {
            const uint32_t below = __shfl_sync(ALL_LANES, sum, (int)(lane >= step ? lane - step : lane));
            sum += lane >= step ? below : 0;
        }
        if (at < count) {
            sums[at] = sum;
        }
    }
}

// Reverses each block's words in dynamic shared memory of blockDim.x words. `words` holds gridDim.x *
// blockDim.x.
extern "C" __global__ void selftest_reverse(uint32_t* words) {
    extern __shared__ unsigned char dynamic_shared[];
    uint32_t* block = (uint32_t*)dynamic_shared;
    uint32_t* mine = words + (uint64_t)blockIdx.x * blockDim.x;
    block[threadIdx.x] = mine[threadIdx.x];
    __syncthreads();
    mine[threadIdx.x] = block[blockDim.x - 1 - threadIdx.x];
}

// counts[0] += the number of odd words, counts[1] the same by ballots; counts[2] and counts[3]: the
// minimum and maximum of the words.
extern "C" __global__ void selftest_count(const uint32_t* words, uint32_t count, uint64_t* counts) {
    for (uint32_t first = blockIdx.x * blockDim.x; first < count; first += gridDim.x * blockDim.x) {
        const uint32_t at = first + threadIdx.x;
        const uint32_t word = at < count ? __ldg(words + at) : 0;
        const unsigned odd = __ballot_sync(ALL_LANES, word % 2);
        if (threadIdx.x % 32 == 0 && odd != 0) {
            atomicAdd(counts + 1, (uint64_t)__popc(odd));
        }
        if (at < count) {
            atomicAdd(counts, (uint64_t)(word % 2));
            atomicMin(counts + 2, (uint64_t)word);
            atomicMax(counts + 3, (uint64_t)word);
        }
    }
}

// halves[i], and their values converted back; the same for bf16.
extern "C" __global__ void selftest_floats(const float* values, uint32_t count, uint16_t* halves,
                                           float* of_halves, uint16_t* bf16s, float* of_bf16s) {
    for (uint32_t at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x) {
        halves[at] = to_half(values[at]);
        of_halves[at] = from_half(halves[at]);
        bf16s[at] = to_bf16(values[at]);
        of_bf16s[at] = from_bf16(bf16s[at]);
    }
}

// before[0] and before[1]: the sum of the tiles before `tile`, whose own sum is `sum`, as computed
// by a block and by a thread. `words` and `others` hold those of the earlier tiles, followed by 0.
extern "C" __global__ void selftest_look_back(uint64_t* words, uint64_t* others, uint64_t tile, uint64_t sum, uint64_t* before) {
    __shared__ uint64_t room;
    const uint64_t found = sum_before(words, tile, sum, &room);
    if (threadIdx.x == 0) {
        before[0] = found;
        before[1] = tile == 0 ? 0 : sum_before_alone(others + tile, 1, sum);
    }
}
