// Edges of a block by source, with destinations ascending within each: a stable radix sort of the
// edges by their sources, eight bits per pass. Stability makes the result unique: within a tile,
// edges are ordered by warp, by groups of 32, and by lane.
#include "common.cuh"
#include "lookback.cuh"
#include "scan.cuh"
#include "topology.cuh"

#define DIGITS 256
// Edges of a tile, and of each of its eight warps.
#define SORT_TILE 2048
#define SORT_EACH 256

// counts[256 pass + d]: the number of keys with digit d in that pass, added to the old value.
// sizes[1]: the number of edges.
extern "C" __global__ void transpose_count(const uint32_t* keys, const uint64_t* sizes, uint32_t passes, uint64_t* counts) {
    __shared__ uint32_t own[4][DIGITS];
    const uint64_t edges = sizes[1];
    for (uint32_t pass = 0; pass < passes; pass++) {
        own[pass][threadIdx.x] = 0;
    }
    __syncthreads();
    for (uint64_t at = blockIdx.x * (uint64_t)DIGITS + threadIdx.x; at < edges; at += (uint64_t)gridDim.x * DIGITS) {
        const uint32_t key = keys[at];
        for (uint32_t pass = 0; pass < passes; pass++) {
            atomicAdd(&own[pass][(key >> 8 * pass) % DIGITS], 1u);
        }
    }
    __syncthreads();
    for (uint32_t pass = 0; pass < passes; pass++) {
        if (own[pass][threadIdx.x] != 0) {
            atomicAdd(counts + DIGITS * pass + threadIdx.x, (uint64_t)own[pass][threadIdx.x]);
        }
    }
}

// One pass: moves keys and values to their positions, given by `counts` of the pass' digits and by
// the counts of earlier tiles. Without `values`, a key's value is its position; if `dst` is not
// null, in the last pass, it receives the destinations of the values, which are edges. `dealt` and
// a word for each digit of each tile after it are 0.
extern "C" __global__ void transpose_place(const uint32_t* keys, const uint32_t* values, const uint64_t* sizes, uint32_t shift,
                                           const uint64_t* counts, uint64_t* dealt, uint32_t* keys_to, uint32_t* values_to,
                                           const uint32_t* indptr, uint32_t* dst) {
    __shared__ uint32_t next[8][DIGITS];
    __shared__ uint64_t room, warps[33];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint64_t rows = sizes[0], edges = sizes[1];
    for (;;) {
        const uint64_t tile = deal_tile(dealt, &room);
        if (tile * SORT_TILE >= edges) {
            break;
        }
        for (uint32_t w = 0; w < 8; w++) {
            next[w][threadIdx.x] = 0;
        }
        __syncthreads();
        const uint64_t first = tile * SORT_TILE + warp * SORT_EACH + lane;
        for (uint32_t i = 0; i < SORT_EACH; i += 32) {
            if (first + i < edges) {
                atomicAdd(&next[warp][(keys[first + i] >> shift) % DIGITS], 1u);
            }
        }
        __syncthreads();
        // for this thread's digit: the counts of this tile, and of all tiles before
        uint64_t own = 0, before = 0;
        for (uint32_t w = 0; w < 8; w++) {
            own += next[w][threadIdx.x];
        }
        uint64_t* word = dealt + 1 + tile * DIGITS + threadIdx.x;
        if (tile == 0) {
            uint64_t all;
            before = block_before(counts[threadIdx.x], warps, &all);
            atomicExch(word, LOOK_ALL | (before + own));
        } else {
            before = sum_before_alone(word, DIGITS, own);
        }
        uint32_t running = (uint32_t)before;
        for (uint32_t w = 0; w < 8; w++) {
            const uint32_t here = next[w][threadIdx.x];
            next[w][threadIdx.x] = running;
            running += here;
        }
        __syncthreads();
        for (uint32_t i = 0; i < SORT_EACH; i += 32) {
            const uint64_t at = first + i;
            const bool here = at < edges;
            const uint32_t key = here ? keys[at] : 0;
            const uint32_t digit = (key >> shift) % DIGITS;
            // lanes with the same digit
            uint32_t same = __ballot_sync(ALL_LANES, here);
            if (same == 0) {
                break;
            }
            for (uint32_t bit = 1; bit < DIGITS; bit *= 2) {
                const uint32_t set = __ballot_sync(ALL_LANES, (digit & bit) != 0);
                same &= (digit & bit) != 0 ? set : ~set;
            }
            const uint32_t lower = __popc(same & ((1u << lane) - 1));
            uint32_t to = 0;
            if (here) {
                to = next[warp][digit] + lower;
            }
            __syncwarp();
            if (here && lower == 0) {
                next[warp][digit] += __popc(same);
            }
            __syncwarp();
            if (here) {
                const uint32_t value = values != 0 ? values[at] : (uint32_t)at;
                keys_to[to] = key;
                values_to[to] = value;
                if (dst != 0) {
                    dst[to] = row_of_edge(indptr, rows, value);
                }
            }
        }
    }
}

// starts[u]: the first of the sorted keys that is at least u, for u up to sizes[2]. sizes[1]: the
// number of keys.
extern "C" __global__ void transpose_starts(const uint32_t* keys, const uint64_t* sizes, uint32_t* starts) {
    const uint64_t edges = sizes[1], sources = sizes[2];
    for (uint64_t u = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; u <= sources; u += (uint64_t)gridDim.x * blockDim.x) {
        uint64_t low = 0, high = edges;
        while (low < high) {
            const uint64_t middle = (low + high) / 2;
            if (keys[middle] < u) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        starts[u] = (uint32_t)low;
    }
}
