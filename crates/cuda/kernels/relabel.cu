// Unique nodes in order of first occurrence: slots of the batch's table (table.cuh) become local
// ids. The first edges of new nodes are numbered in order, in one pass over the edges: other edges
// wait for the number of the first.
#include "common.cuh"
#include "lookback.cuh"
#include "table.cuh"

// Edges of a tile, and of each of its eight warps.
#define NUMBER_TILE 2048
#define NUMBER_EACH 256

// Inserts the first `count` nodes of a batch, whose local ids are their positions.
extern "C" __global__ void relabel_nodes(TABLE, const uint32_t* nodes, uint64_t count) {
    const Table table = TABLE_OF;
    for (uint64_t at = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; at < count; at += (uint64_t)gridDim.x * blockDim.x) {
        put(table, nodes[at], (uint32_t)at);
    }
}

// Replaces slots by local ids, and appends new nodes to the existing ones. sizes[0]: the number of
// nodes before; sizes[1]: the number of edges; sizes[2] becomes the number of nodes after. Blocks
// of 256 threads; `dealt` and a word for each tile after it are 0.
extern "C" __global__ void relabel_number(uint64_t* entries, uint32_t* indices, uint32_t* nodes, uint64_t* sizes, uint64_t* dealt) {
    __shared__ uint64_t room[2];
    __shared__ uint32_t warps[NUMBER_TILE / NUMBER_EACH];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, lower = (1u << lane) - 1;
    const uint64_t count = sizes[0], edges = sizes[1];
    for (;;) {
        const uint64_t tile = deal_tile(dealt, room);
        if (tile > 0 && tile * NUMBER_TILE >= edges) {
            break;
        }
        const uint64_t first = tile * NUMBER_TILE + warp * NUMBER_EACH + lane;
        uint32_t slot[8], new_ones[8], in_warp = 0;
        uint64_t entry[8];
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            slot[j] = first + 32 * j < edges ? indices[first + 32 * j] : 0;
        }
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            entry[j] = first + 32 * j < edges ? entries[slot[j]] : 0;
        }
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            const uint64_t e = first + 32 * j;
            new_ones[j] = __ballot_sync(ALL_LANES, e < edges && (uint32_t)entry[j] == (PENDING | (uint32_t)e));
            in_warp += (uint32_t)__popc(new_ones[j]);
        }
        if (lane == 0) {
            warps[warp] = in_warp;
        }
        __syncthreads();
        uint32_t before_warp = 0, in_tile = 0;
        for (uint32_t w = 0; w < NUMBER_TILE / NUMBER_EACH; w++) {
            before_warp += w < warp ? warps[w] : 0;
            in_tile += warps[w];
        }
        const uint64_t before = sum_before(dealt + 1, tile, in_tile, room + 1);
        uint32_t next = (uint32_t)(count + before) + before_warp;
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            if ((new_ones[j] >> lane & 1) != 0) {
                const uint32_t own = next + (uint32_t)__popc(new_ones[j] & lower);
                nodes[own] = (uint32_t)(entry[j] >> 32);
                atomicExch(entries + slot[j], entry[j] >> 32 << 32 | own);
                entry[j] = own;
            }
            next += (uint32_t)__popc(new_ones[j]);
        }
        // the first edges of this tile have their numbers; those of earlier tiles will, whichever
        // block computes them
        __syncthreads();
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            if (first + 32 * j < edges) {
                while ((entry[j] & PENDING) != 0) {
                    entry[j] = *(const volatile uint64_t*)(entries + slot[j]);
                }
                indices[first + 32 * j] = (uint32_t)entry[j];
            }
        }
        if (threadIdx.x == 0 && (tile + 1) * NUMBER_TILE >= edges) {
            sizes[2] = count + before + in_tile;
        }
    }
}
