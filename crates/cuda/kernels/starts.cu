// Edge range of each destination: the number of its draws, and those of all destinations before it,
// in one pass.
#include "common.cuh"
#include "lookback.cuh"
#include "topology.cuh"

// Destinations of a tile, and of each of its eight warps.
#define STARTS_TILE 1024
#define STARTS_EACH 128

// indptr[i]: the edges of the nodes before nodes[i], of sizes[0] nodes; indptr[sizes[0]] and
// sizes[1]: all edges. If `counted`, indptr initially holds the number of edges of each node.
// Blocks of 256 threads; `dealt` and a word for each tile after it are 0. Sums beyond 32 bits wrap
// in indptr.
extern "C" __global__ void sample_starts(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, uint32_t fanout, uint32_t mode,
                                         uint32_t counted, uint32_t* indptr, uint64_t* sizes, uint64_t* dealt) {
    __shared__ uint64_t room[2];
    __shared__ uint64_t warps[STARTS_TILE / STARTS_EACH];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint64_t rows = sizes[0];
    for (;;) {
        const uint64_t tile = deal_tile(dealt, room);
        if (tile > 0 && tile * STARTS_TILE >= rows) {
            break;
        }
        const uint64_t first = tile * STARTS_TILE + warp * STARTS_EACH + lane;
        uint32_t own[4];
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            const uint64_t i = first + 32 * j;
            own[j] = 0;
            if (i < rows) {
                own[j] = counted != 0 ? indptr[i] : edges_of(row_of(shards, parts, nodes[i]), fanout, mode);
            }
        }
        uint64_t before_own[4], in_warp = 0;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            uint64_t sum = own[j];
            for (uint32_t step = 1; step < 32; step *= 2) {
                const uint64_t below = __shfl_up_sync(ALL_LANES, sum, step);
                sum += lane >= step ? below : 0;
            }
            before_own[j] = in_warp + sum - own[j];
            in_warp += __shfl_sync(ALL_LANES, sum, 31);
        }
        if (lane == 0) {
            warps[warp] = in_warp;
        }
        __syncthreads();
        uint64_t before_warp = 0, in_tile = 0;
        for (uint32_t w = 0; w < STARTS_TILE / STARTS_EACH; w++) {
            before_warp += w < warp ? warps[w] : 0;
            in_tile += warps[w];
        }
        const uint64_t before = sum_before(dealt + 1, tile, in_tile, room + 1);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            if (first + 32 * j < rows) {
                indptr[first + 32 * j] = (uint32_t)(before + before_warp + before_own[j]);
            }
        }
        if (threadIdx.x == 0 && (tile + 1) * STARTS_TILE >= rows) {
            indptr[rows] = (uint32_t)(before + in_tile);
            sizes[1] = before + in_tile;
        }
    }
}
