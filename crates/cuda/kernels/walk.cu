// PinSAGE's neighbourhoods: the nodes that short random walks visit most, with their numbers of
// visits. The walks are those of graphmill_loader::sampler::random_walk.
#include "common.cuh"
#include "keyed.cuh"
#include "table.cuh"
#include "topology.cuh"

// Mark of a visit that did not reach a node.
#define NOBODY 0xffffffffu

// Weights that the layers derive from visits.
#define VISITS 0
#define SHARES 1
#define DEGREE_SHARES 2

// The up to `width` most visited nodes of each destination's walks, lower ids first among equals,
// and their visits: at i * width of `nodes_to` and `visits_to`, and their number in counts[i]. One
// warp per destination, of sizes[0]; dynamic shared memory of 8 bytes for each of a warp's visits.
// `restart` holds the bits of a double.
extern "C" __global__ void walk_draw(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, const uint64_t* sizes, uint32_t walks,
                                     uint32_t length, uint64_t restart, uint64_t key, uint32_t width, uint32_t* nodes_to,
                                     uint32_t* visits_to, uint32_t* counts) {
    extern __shared__ unsigned char dynamic_shared[];
    const uint64_t rows = sizes[0];
    const uint32_t lane = threadIdx.x % 32, all = walks * length;
    uint32_t* visited = (uint32_t*)dynamic_shared + 2 * all * (threadIdx.x / 32);
    // the number of visits at a node's first visit, 0 at the others
    uint32_t* times = visited + all;
    const double ends = __longlong_as_double((long long)restart);
    const uint64_t warps = (uint64_t)gridDim.x * blockDim.x / 32;
    for (uint64_t i = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / 32; i < rows; i += warps) {
        const uint64_t node = keyed_node(key, nodes[i]);
        for (uint32_t walk = lane; walk < walks; walk += 32) {
            const uint64_t stream = keyed_mix(node ^ walk);
            uint32_t at = nodes[i];
            bool goes = true;
            for (uint32_t step = 0; step < length; step++) {
                uint32_t to = NOBODY;
                if (goes) {
                    const Row row = row_of(shards, parts, at);
                    goes = row.length > 0;
                    if (goes) {
                        to = __ldg(row.list + keyed_below(stream, 2 * step, row.length));
                        at = to;
                        const double uniform = (double)(keyed_word(stream, 2 * step + 1) >> 11) * 0x1p-53;
                        goes = uniform >= ends;
                    }
                }
                visited[walk * length + step] = to;
            }
        }
        __syncwarp();
        for (uint32_t p = lane; p < all; p += 32) {
            uint32_t same = 0;
            bool first = visited[p] != NOBODY;
            for (uint32_t q = 0; q < all; q++) {
                if (visited[q] == visited[p]) {
                    same++;
                    first = first && q >= p;
                }
            }
            times[p] = first ? same : 0;
        }
        __syncwarp();
        uint32_t found = 0;
        for (uint32_t p = lane; p < all; p += 32) {
            if (times[p] == 0) {
                continue;
            }
            found++;
            uint32_t rank = 0;
            for (uint32_t q = 0; q < all; q++) {
                rank += times[q] > times[p] || (times[q] == times[p] && visited[q] < visited[p]) ? 1 : 0;
            }
            if (rank < width) {
                nodes_to[i * width + rank] = visited[p];
                visits_to[i * width + rank] = times[p];
            }
        }
        for (uint32_t step = 16; step > 0; step /= 2) {
            found += __shfl_xor_sync(ALL_LANES, found, step);
        }
        if (lane == 0) {
            counts[i] = found < width ? found : width;
        }
        __syncwarp();
    }
}

// Edges and their weights, row after row. One thread per entry of a destination.
extern "C" __global__ void walk_edges(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, const uint64_t* sizes,
                                      const uint32_t* indptr, uint32_t width, const uint32_t* nodes_from,
                                      const uint32_t* visits_from, uint32_t makes, TABLE, uint32_t* indices, float* weights) {
    const Table table = TABLE_OF;
    const uint64_t all = sizes[0] * width;
    for (uint64_t at = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; at < all; at += (uint64_t)gridDim.x * blockDim.x) {
        const uint64_t i = at / width;
        const uint32_t own = (uint32_t)(at % width), first = indptr[i], count = indptr[i + 1] - first;
        if (own >= count) {
            continue;
        }
        // whole numbers: exact in any order
        uint32_t sum = 0;
        for (uint32_t e = 0; e < count; e++) {
            sum += visits_from[i * width + e];
        }
        float factor = 1.0f;
        if (makes != VISITS) {
            const float share = makes == SHARES ? 1.0f : (float)row_of(shards, parts, nodes[i]).length;
            factor = __fdiv_rn(share, (float)sum);
        }
        put_source(table, indices, (uint64_t)first + own, nodes_from[at]);
        weights[first + own] = __fmul_rn((float)visits_from[at], factor);
    }
}
