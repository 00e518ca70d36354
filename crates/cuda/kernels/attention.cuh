// Entries of an attention matrix over a block: a destination's edges, then its own entry E + v,
// whose source is its own row. Matrices of entries are (E + D) x heads.
#pragma once

#include "columns.cuh"
#include "long_rows.cuh"

// Edges of a block and its destinations' own rows; or those of its transpose.
struct Edges {
    // Edge range of each row.
    const uint32_t* indptr;
    // Row at the other end of each edge.
    const uint32_t* indices;
    // Entry of each edge, or null if it is the edge's position.
    const uint32_t* entry;
    // Row at the other end of a row's own entry, or null if it has the same number.
    const uint32_t* own_rows;
    // Number of edges, E.
    uint64_t count;
    // Number of rows with an own entry.
    uint64_t num_own;
};

// Range of one row's entries, with its own entry last.
struct Entries {
    uint32_t begin;
    uint32_t edges;
    uint32_t all;
};

static __device__ inline Entries entries_of(const Edges& edges, uint64_t v) {
    Entries run;
    run.begin = __ldg(edges.indptr + v);
    run.edges = __ldg(edges.indptr + v + 1) - run.begin;
    run.all = run.edges + (v < edges.num_own ? 1 : 0);
    return run;
}

// Number of an entry, and the row at its other end.
struct Entry {
    uint64_t at;
    uint64_t row;
};

static __device__ inline Entry entry_at(const Edges& edges, const Entries& run, uint64_t v, uint32_t j) {
    if (j < run.edges) {
        const uint32_t k = run.begin + j;
        return {edges.entry != nullptr ? __ldg(edges.entry + k) : k, __ldg(edges.indices + k)};
    }
    return {edges.count + v, edges.own_rows != nullptr ? __ldg(edges.own_rows + v) : v};
}

#define EDGES \
    const uint32_t *indptr, const uint32_t *indices, const uint32_t *entry, const uint32_t *own_rows, uint64_t num_edges, \
        uint64_t num_own
#define EDGES_OF {indptr, indices, entry, own_rows, num_edges, num_own}

// ------------------------------------ teams: a group of lanes, or a block for a long row

static __device__ inline float team_sum(const Group& group, float value) { return group_sum(group, value); }
static __device__ inline float team_max(const Group& group, float value) { return group_max(group, value); }

// A block of LONG_THREADS as a team.
struct Whole {
    uint32_t lane;
    uint32_t lanes;
    // One value per warp, shared by the block.
    float* room;
};

// The values of all warps, in the lanes of every warp; `nothing` beyond them.
static __device__ inline float from_warps(const Whole& team, const Group& warp, float value, float nothing) {
    __syncthreads();
    if (warp.lane == 0) {
        team.room[team.lane / 32] = value;
    }
    __syncthreads();
    return warp.lane < LONG_THREADS / 32 ? team.room[warp.lane] : nothing;
}

// Sum of the block's values, in one fixed order; every thread receives it.
static __device__ inline float team_sum(const Whole& team, float value) {
    const Group warp = group_of(32);
    return group_sum(warp, from_warps(team, warp, group_sum(warp, value), 0.0f));
}
static __device__ inline float team_max(const Whole& team, float value) {
    const Group warp = group_of(32);
    return group_max(warp, from_warps(team, warp, group_max(warp, value), __uint_as_float(0xff800000u)));
}

// Every head of the rows of fewer than `long_from` edges, one group of lanes each.
template <typename F>
static __device__ inline void each_short(const Edges& edges, uint64_t rows, uint32_t heads, uint32_t long_from, uint32_t lanes, F make) {
    const Group group = group_of(lanes);
    for (uint64_t item = group.index; item < rows * heads; item += group.count) {
        const uint64_t v = item / heads;
        if (entries_of(edges, v).edges < long_from) {
            make(group, v, (uint32_t)(item - v * heads));
        }
    }
}

// Every head of the listed long rows, one block each.
template <typename F>
static __device__ inline void each_long(LISTED, uint32_t heads, float* room, F make) {
    const Whole block = {threadIdx.x, LONG_THREADS, room};
    for (uint64_t item = blockIdx.x; item < (uint64_t)*long_count * heads; item += gridDim.x) {
        make(block, long_rows[item / heads], (uint32_t)(item % heads));
    }
}
