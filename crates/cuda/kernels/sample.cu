// The in-neighbours that destinations draw: the same as graphmill_loader::sampler's, draw by draw. A draw is a word of the keyed stream of its
// destination, whose number in that stream is the draw's, so that every lane makes its own.
#include "common.cuh"
#include "keyed.cuh"
#include "scan.cuh"
#include "topology.cuh"

// How edges are counted.
#define DISTINCT 0
#define AGAIN 1
#define BY_ALIAS 2
// The fanout that takes all.
#define TAKES_ALL 0xffffffffu
// `other` of the cells of rows in which nothing can be drawn.
#define NOTHING 0xffffffffu

// How many edges a row gets.
__device__ inline uint32_t edges_of(Row row, uint32_t fanout, uint32_t mode) {
    if (mode == DISTINCT || fanout == TAKES_ALL) {
        return row.length < fanout ? (uint32_t)row.length : fanout;
    }
    if (row.length == 0 || (mode == BY_ALIAS && __ldg(&row.cells->y) == NOTHING)) {
        return 0;
    }
    return fanout;
}

// Adds to total[0] the edges that the first count[0] of `nodes` will have.
extern "C" __global__ void sample_total(const uint64_t* shards, uint32_t parts, const uint32_t* nodes,
                                        const uint64_t* count, uint32_t fanout, uint32_t mode, uint64_t* total) {
    __shared__ uint64_t warps[33];
    const uint64_t rows = count[0];
    uint64_t sum = 0, all;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < rows; i += (uint64_t)gridDim.x * blockDim.x) {
        sum += edges_of(row_of(shards, parts, nodes[i]), fanout, mode);
    }
    block_before(sum, warps, &all);
    if (threadIdx.x == 0 && all != 0) {
        atomicAdd(total, all);
    }
}

// counts[i]: the edges of nodes[i].
extern "C" __global__ void sample_count(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, uint64_t rows,
                                        uint32_t fanout, uint32_t mode, uint32_t* counts) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < rows; i += (uint64_t)gridDim.x * blockDim.x) {
        counts[i] = edges_of(row_of(shards, parts, nodes[i]), fanout, mode);
    }
}

// All neighbours, in order. A thread an edge: rows of any length cost alike.
extern "C" __global__ void sample_copy(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, uint64_t rows,
                                       const uint32_t* indptr, uint64_t edges, uint32_t* out) {
    for (uint64_t e = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; e < edges; e += (uint64_t)gridDim.x * blockDim.x) {
        const uint32_t i = row_of_edge(indptr, rows, (uint32_t)e);
        out[e] = row_of(shards, parts, nodes[i]).list[e - indptr[i]];
    }
}

// Up to 32 neighbours without replacement: `group` lanes a row (a power of two, `fanout` at least), a lane a draw. Floyd's choice: a draw that
// came before is replaced by its turn's own number, which cannot have come before; the turns are taken one after the other, in registers.
extern "C" __global__ void sample_few(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, uint64_t rows,
                                      const uint32_t* indptr, uint32_t fanout, uint32_t group, uint64_t key, uint32_t* out) {
    const uint32_t lane = threadIdx.x % group;
    // the lanes of this group before this one
    const uint32_t shift = threadIdx.x % 32 - lane;
    const uint32_t before = ((1u << lane) - 1) << shift;
    const uint64_t groups = (uint64_t)gridDim.x * blockDim.x / group;
    const uint64_t first = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / group;
    // whole warps go on together
    const uint64_t rounds = (rows + groups - 1) / groups;
    for (uint64_t round = 0; round < rounds; round++) {
        const uint64_t i = first + round * groups;
        const bool here = i < rows;
        Row row;
        row.list = (const uint32_t*)0;
        row.length = 0;
        uint32_t v = 0;
        if (here) {
            v = nodes[i];
            row = row_of(shards, parts, v);
        }
        const bool drawn = row.length > fanout;
        uint32_t own = lane, turn = 0;
        if (drawn && lane < fanout) {
            turn = (uint32_t)(row.length - fanout) + lane;
            own = (uint32_t)keyed_below(keyed_node(key, v), lane, (uint64_t)turn + 1);
        }
        if (__any_sync(ALL_LANES, drawn)) {
            for (uint32_t next = 1; next < fanout; next++) {
                const uint32_t draw = __shfl_sync(ALL_LANES, own, next, group);
                const uint32_t same = __ballot_sync(ALL_LANES, drawn && own == draw);
                if (drawn && lane == next && (same & before) != 0) {
                    own = turn;
                }
            }
        }
        if (here && lane < (drawn ? fanout : (uint32_t)row.length)) {
            out[indptr[i] + lane] = __ldg(row.list + own);
        }
    }
}

// As sample_few for any fanout: a warp a row, 32 draws at a time, which look for earlier ones in a table of the warp's own: `slots` words (a power
// of two, twice the fanout at least) of `tables`, 0 where nothing is and one more than an offset otherwise.
extern "C" __global__ void sample_many(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, uint64_t rows,
                                       const uint32_t* indptr, uint32_t fanout, uint64_t key, uint32_t* tables, uint32_t slots,
                                       uint32_t* out) {
    const uint32_t lane = threadIdx.x % 32, mask = slots - 1;
    const uint64_t warps = (uint64_t)gridDim.x * blockDim.x / 32;
    const uint64_t warp = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / 32;
    uint32_t* table = tables + warp * slots;
    for (uint64_t i = warp; i < rows; i += warps) {
        const uint32_t v = nodes[i];
        const Row row = row_of(shards, parts, v);
        uint32_t* to = out + indptr[i];
        if (row.length <= fanout) {
            for (uint32_t e = lane; e < row.length; e += 32) {
                to[e] = __ldg(row.list + e);
            }
            continue;
        }
        for (uint32_t slot = lane; slot < slots; slot += 32) {
            table[slot] = 0;
        }
        __syncwarp();
        const uint64_t node = keyed_node(key, v);
        const uint32_t start = (uint32_t)(row.length - fanout);
        for (uint32_t first = 0; first < fanout; first += 32) {
            const bool here = first + lane < fanout;
            const uint32_t turn = start + first + lane;
            uint32_t own = 0;
            if (here) {
                own = (uint32_t)keyed_below(node, first + lane, (uint64_t)turn + 1);
                for (uint32_t slot = (uint32_t)keyed_mix(own) & mask; table[slot] != 0; slot = (slot + 1) & mask) {
                    if (table[slot] == own + 1) {
                        own = turn;
                        break;
                    }
                }
            }
            for (uint32_t next = 1; next < 32; next++) {
                const uint32_t draw = __shfl_sync(ALL_LANES, own, next);
                const uint32_t same = __ballot_sync(ALL_LANES, here && own == draw);
                // a draw that was replaced already is no lower lane's
                if (lane == next && (same & ((1u << lane) - 1)) != 0) {
                    own = turn;
                }
            }
            if (here) {
                uint32_t slot = (uint32_t)keyed_mix(own) & mask;
                while (atomicCAS(table + slot, 0u, own + 1) != 0) {
                    slot = (slot + 1) & mask;
                }
                to[first + lane] = __ldg(row.list + own);
            }
            __syncwarp();
        }
    }
}

// With replacement: a thread a draw. Rows have `fanout` edges, or none.
extern "C" __global__ void sample_again(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, uint64_t rows,
                                        const uint32_t* indptr, uint32_t fanout, uint32_t mode, uint64_t key, uint32_t* out) {
    const uint64_t draws = rows * fanout;
    for (uint64_t at = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; at < draws; at += (uint64_t)gridDim.x * blockDim.x) {
        const uint64_t i = at / fanout;
        const uint32_t draw = (uint32_t)(at % fanout);
        const uint32_t to = indptr[i];
        if (to == indptr[i + 1]) {
            continue;
        }
        const uint32_t v = nodes[i];
        const Row row = row_of(shards, parts, v);
        const uint64_t word = keyed_word(keyed_node(key, v), draw);
        uint32_t offset = (uint32_t)__umul64hi(word, row.length);
        if (mode == BY_ALIAS) {
            // the upper half of the product is the cell, the lower one the place within it
            const uint32_t place = (uint32_t)((word * row.length) >> 32);
            const uint2 cell = __ldg(row.cells + offset);
            offset = place < cell.x ? offset : cell.y;
        }
        out[to + draw] = __ldg(row.list + offset);
    }
}

// The symmetric normalisation's own weights.
extern "C" __global__ void sample_own_weights(const uint32_t* nodes, uint64_t rows, const float* inv_sqrt, float* weights) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < rows; i += (uint64_t)gridDim.x * blockDim.x) {
        const float own = __ldg(inv_sqrt + nodes[i]);
        weights[i] = __fmul_rn(own, own);
    }
}

// And its edges', whose sources are global ids. `degrees` are the nodes' in-degrees, where they are not the graph's own. Where `known`, the weights
// say already how many neighbours each edge stands for.
extern "C" __global__ void sample_edge_weights(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, uint64_t rows,
                                               const uint32_t* indptr, const uint32_t* indices, uint64_t edges,
                                               const float* inv_sqrt, const uint32_t* degrees, uint32_t known,
                                               float* weights) {
    for (uint64_t e = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; e < edges; e += (uint64_t)gridDim.x * blockDim.x) {
        const uint32_t i = row_of_edge(indptr, rows, (uint32_t)e);
        const uint32_t v = nodes[i];
        const float own = __ldg(inv_sqrt + v);
        float stands_for;
        if (known != 0) {
            stands_for = __fmul_rn(own, weights[e]);
        } else {
            const float degree = degrees != 0 ? (float)degrees[v] : (float)row_of(shards, parts, v).length;
            stands_for = __fmul_rn(own, __fdiv_rn(degree, (float)(indptr[i + 1] - indptr[i])));
        }
        weights[e] = __fmul_rn(stands_for, __ldg(inv_sqrt + indices[e]));
    }
}
