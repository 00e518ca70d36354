// Exclusive prefix sums of 32-bit counts, of any length, in place: sums of tiles, their prefix
// sums, and the tiles themselves. Blocks never wait for each other, so any order of blocks is
// valid.
#include "common.cuh"
#include "scan.cuh"

// Values per thread, and per tile of 256 threads.
#define SCAN_EACH 8
#define SCAN_TILE 2048

// tiles[t]: the sum of tile t.
extern "C" __global__ void scan_sums(const uint32_t* values, uint64_t count, uint64_t* tiles) {
    __shared__ uint64_t warps[33];
    for (uint64_t tile = blockIdx.x; tile * SCAN_TILE < count; tile += gridDim.x) {
        uint64_t sum = 0, total;
        for (uint32_t i = 0; i < SCAN_EACH; i++) {
            const uint64_t at = tile * SCAN_TILE + i * 256 + threadIdx.x;
            sum += at < count ? values[at] : 0;
        }
        block_before(sum, warps, &total);
        if (threadIdx.x == 0) {
            tiles[tile] = total;
        }
    }
}

// Replaces the sums by the sums before each; total[0]: the sum of all. One block.
extern "C" __global__ void __launch_bounds__(1024) scan_tiles(uint64_t* tiles, uint64_t count, uint64_t* total) {
    __shared__ uint64_t warps[33];
    uint64_t before = 0;
    for (uint64_t first = 0; first < count; first += blockDim.x) {
        const uint64_t at = first + threadIdx.x;
        uint64_t all;
        const uint64_t own = block_before(at < count ? tiles[at] : 0, warps, &all);
        if (at < count) {
            tiles[at] = before + own;
        }
        before += all;
    }
    if (threadIdx.x == 0) {
        total[0] = before;
    }
}

// Replaces the values by the sums before each; values[count]: the sum of all.
extern "C" __global__ void scan_values(uint32_t* values, uint64_t count, const uint64_t* tiles, const uint64_t* total) {
    __shared__ uint64_t warps[33];
    for (uint64_t tile = blockIdx.x; tile * SCAN_TILE < count; tile += gridDim.x) {
        const uint64_t first = tile * SCAN_TILE + threadIdx.x * SCAN_EACH;
        uint32_t own[SCAN_EACH];
        uint64_t sum = 0, all;
#pragma unroll
        for (uint32_t i = 0; i < SCAN_EACH; i++) {
            own[i] = first + i < count ? values[first + i] : 0;
            sum += own[i];
        }
        uint64_t before = tiles[tile] + block_before(sum, warps, &all);
#pragma unroll
        for (uint32_t i = 0; i < SCAN_EACH; i++) {
            if (first + i < count) {
                values[first + i] = (uint32_t)before;
            }
            before += own[i];
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        values[count] = (uint32_t)total[0];
    }
}
