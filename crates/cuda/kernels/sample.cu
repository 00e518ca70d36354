// In-neighbours drawn by destinations: the same as those of graphmill_loader::sampler, draw by
// draw. A draw is a word of the keyed stream of its destination, indexed by the draw's number, so
// that every lane computes its own.
#include "common.cuh"
#include "keyed.cuh"
#include "table.cuh"
#include "topology.cuh"

// A batch's sizes are on the device: in the following kernels, sizes[0] is the number of
// destinations and sizes[1] the number of edges. If there is a table, sources are inserted into it
// and become slots (table.cuh).
// All neighbours, in order. One thread per edge, so rows of any length cost the same per edge.
extern "C" __global__ void sample_copy(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, const uint64_t* sizes,
                                       const uint32_t* indptr, TABLE, uint32_t* out) {
    const Table table = TABLE_OF;
    const uint64_t rows = sizes[0], edges = sizes[1];
    for (uint64_t e = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; e < edges; e += (uint64_t)gridDim.x * blockDim.x) {
        const uint32_t i = row_of_edge(indptr, rows, (uint32_t)e);
        put_source(table, out, e, __ldg(row_of(shards, parts, nodes[i]).list + (e - indptr[i])));
    }
}

// Up to 32 neighbours without replacement: `group` lanes per row (a power of two, at least
// `fanout`), one lane per draw. Floyd's algorithm: a draw that repeats an earlier one is replaced
// by the number of its turn, which cannot have been drawn before; the turns are processed in order,
// in registers.
extern "C" __global__ void sample_few(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, const uint64_t* sizes,
                                      const uint32_t* indptr, uint32_t fanout, uint32_t group, uint64_t key, TABLE, uint32_t* out) {
    const Table table = TABLE_OF;
    const uint64_t rows = sizes[0];
    const uint32_t lane = threadIdx.x % group;
    // the lanes of this group before this one
    const uint32_t shift = threadIdx.x % 32 - lane;
    const uint32_t before = ((1u << lane) - 1) << shift;
    const uint64_t groups = (uint64_t)gridDim.x * blockDim.x / group;
    const uint64_t first = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / group;
    // whole warps continue together
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
            put_source(table, out, (uint64_t)indptr[i] + lane, __ldg(row.list + own));
        }
    }
}

// As sample_few, for any fanout: one warp per row, 32 draws at a time, which look for earlier ones
// in a table of the warp: `slots` words (a power of two, at least twice the fanout) of `tables`, 0
// if empty and otherwise one more than an offset.
extern "C" __global__ void sample_many(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, const uint64_t* sizes,
                                       const uint32_t* indptr, uint32_t fanout, uint64_t key, uint32_t* tables, uint32_t slots, TABLE,
                                       uint32_t* out) {
    const Table of_batch = TABLE_OF;
    const uint64_t rows = sizes[0];
    const uint32_t lane = threadIdx.x % 32, last = slots - 1;
    const uint64_t warps = (uint64_t)gridDim.x * blockDim.x / 32;
    const uint64_t warp = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / 32;
    uint32_t* table = tables + warp * slots;
    for (uint64_t i = warp; i < rows; i += warps) {
        const uint32_t v = nodes[i];
        const Row row = row_of(shards, parts, v);
        const uint64_t to = indptr[i];
        if (row.length <= fanout) {
            for (uint32_t e = lane; e < row.length; e += 32) {
                put_source(of_batch, out, to + e, __ldg(row.list + e));
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
                for (uint32_t slot = (uint32_t)keyed_mix(own) & last; table[slot] != 0; slot = (slot + 1) & last) {
                    if (table[slot] == own + 1) {
                        own = turn;
                        break;
                    }
                }
            }
            for (uint32_t next = 1; next < 32; next++) {
                const uint32_t draw = __shfl_sync(ALL_LANES, own, next);
                const uint32_t same = __ballot_sync(ALL_LANES, here && own == draw);
                // a draw that was replaced already does not belong to a lower lane
                if (lane == next && (same & ((1u << lane) - 1)) != 0) {
                    own = turn;
                }
            }
            if (here) {
                uint32_t slot = (uint32_t)keyed_mix(own) & last;
                while (atomicCAS(table + slot, 0u, own + 1) != 0) {
                    slot = (slot + 1) & last;
                }
                put_source(of_batch, out, to + first + lane, __ldg(row.list + own));
            }
            __syncwarp();
        }
    }
}

// With replacement: one thread per draw. Rows have `fanout` edges, or 0.
extern "C" __global__ void sample_again(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, const uint64_t* sizes,
                                        const uint32_t* indptr, uint32_t fanout, uint32_t mode, uint64_t key, TABLE, uint32_t* out) {
    const Table table = TABLE_OF;
    const uint64_t draws = sizes[0] * fanout;
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
            // the upper half of the product is the cell, the lower half the position in it
            const uint32_t place = (uint32_t)((word * row.length) >> 32);
            const uint2 cell = __ldg(row.cells + offset);
            offset = place < cell.x ? offset : cell.y;
        }
        put_source(table, out, (uint64_t)to + draw, __ldg(row.list + offset));
    }
}

// Weights of the symmetric normalization: the destinations' own, and those of their edges.
// `degrees` are the nodes' in-degrees, if they are not those of the graph. If `known`, the edges'
// weights already give the number of neighbours that each represents.
extern "C" __global__ void sample_weights(const uint64_t* shards, uint32_t parts, const uint32_t* nodes, const uint64_t* sizes,
                                          const uint32_t* indptr, TABLE, const uint32_t* indices, const float* inv_sqrt,
                                          const uint32_t* degrees, uint32_t known, float* own_weights, float* weights) {
    const Table table = TABLE_OF;
    const uint64_t rows = sizes[0], edges = sizes[1];
    const uint64_t thread = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x, threads = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = thread; i < rows; i += threads) {
        const float own = __ldg(inv_sqrt + nodes[i]);
        own_weights[i] = __fmul_rn(own, own);
    }
    for (uint64_t e = thread; e < edges; e += threads) {
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
        weights[e] = __fmul_rn(stands_for, __ldg(inv_sqrt + source_id(table, indices[e])));
    }
}

// Writes to host memory: `count` sizes, and the nodes, whose number is sizes[last].
extern "C" __global__ void sample_sizes(const uint64_t* sizes, uint64_t count, uint64_t last, const uint32_t* nodes, uint64_t* sizes_to,
                                       uint32_t* nodes_to) {
    const uint64_t thread = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x, threads = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = thread; i < count; i += threads) {
        sizes_to[i] = sizes[i];
    }
    for (uint64_t i = thread; i < sizes[last]; i += threads) {
        nodes_to[i] = nodes[i];
    }
}
