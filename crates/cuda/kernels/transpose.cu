// A block's edges by source, destinations ascending within each: a stable radix sort of the edges by their sources, eight bits a pass. Stable is
// what makes the result one and the same: within a tile a warp's edges come one warp after the other, 32 after 32, and of those lane after lane.
#include "common.cuh"
#include "topology.cuh"

#define DIGITS 256
// Edges of a tile, and of each of its eight warps.
#define SORT_TILE 2048
#define SORT_EACH 256

// counts[d * tiles + t]: the keys of tile t with digit d.
extern "C" __global__ void transpose_count(const uint32_t* keys, uint64_t edges, uint32_t shift, uint64_t tiles,
                                           uint32_t* counts) {
    __shared__ uint32_t own[DIGITS];
    for (uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        own[threadIdx.x] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < SORT_TILE; i += DIGITS) {
            const uint64_t at = tile * SORT_TILE + i;
            if (at < edges) {
                atomicAdd(own + (keys[at] >> shift) % DIGITS, 1u);
            }
        }
        __syncthreads();
        counts[threadIdx.x * tiles + tile] = own[threadIdx.x];
    }
}

// Moves keys and values to where the prefix sums of the counts say. Without `values` a key's value is its place.
extern "C" __global__ void transpose_place(const uint32_t* keys, const uint32_t* values, uint64_t edges, uint32_t shift,
                                           uint64_t tiles, const uint32_t* before, uint32_t* keys_to, uint32_t* values_to) {
    __shared__ uint32_t next[8][DIGITS];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
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
        uint32_t running = before[threadIdx.x * tiles + tile];
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
            // the lanes with the same digit
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
                keys_to[to] = key;
                values_to[to] = values != 0 ? values[at] : (uint32_t)at;
            }
        }
        __syncthreads();
    }
}

// starts[u]: the first of the sorted keys that is u or more, for u up to `sources`.
extern "C" __global__ void transpose_starts(const uint32_t* keys, uint64_t edges, uint64_t sources, uint32_t* starts) {
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

// The destinations of edges.
extern "C" __global__ void transpose_destinations(const uint32_t* edge, uint64_t edges, const uint32_t* indptr, uint64_t rows,
                                                  uint32_t* dst) {
    for (uint64_t at = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; at < edges; at += (uint64_t)gridDim.x * blockDim.x) {
        dst[at] = row_of_edge(indptr, rows, edge[at]);
    }
}
