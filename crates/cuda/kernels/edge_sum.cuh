// Sums over a row's entries of a function of the entry and the column: a group of lanes has a lane
// per column, and the groups of a block share the entries of a long row.
#pragma once

#include "attention.cuh"

// Sum over v's entries from..to of term(entry, v, column).
template <typename Term>
static __device__ inline float sum_of_entries(const Edges& edges, const Entries& run, uint64_t v, uint32_t from, uint32_t to,
                                              uint64_t c, Term term) {
    float sum = 0.0f;
    for (uint32_t j = from; j < to; j++) {
        sum += term(entry_at(edges, run, v, j), v, c);
    }
    return sum;
}

// out[at] = sum, plus the old value if `onto`; nothing if `out` is null.
static __device__ inline void put_sum(float* out, uint64_t at, uint32_t onto, float sum) {
    if (out != nullptr) {
        out[at] = onto != 0 ? out[at] + sum : sum;
    }
}

// The rows of fewer than `long_from` edges.
template <typename Term>
static __device__ inline void sum_rows(const Edges& edges, uint64_t cols, uint32_t onto, float* out, uint32_t lanes, uint64_t rows,
                                       uint32_t long_from, Term term) {
    const Group group = group_of(lanes);
    const uint64_t chunks = (cols + lanes - 1) / lanes;
    for (uint64_t item = group.index; item < rows * chunks; item += group.count) {
        const uint64_t v = item / chunks;
        const uint64_t c = (item - v * chunks) * lanes + group.lane;
        const Entries run = entries_of(edges, v);
        if (c < cols && run.edges < long_from) {
            put_sum(out, v * cols + c, onto, sum_of_entries(edges, run, v, 0, run.all, c, term));
        }
    }
}

// The long rows; `room` has a value for each thread.
template <typename Term>
static __device__ inline void sum_rows_long(const Edges& edges, uint64_t cols, uint32_t onto, float* out, uint32_t lanes, LISTED,
                                            float* room, Term term) {
    const Group group = group_of(lanes);
    const uint64_t chunks = (cols + lanes - 1) / lanes;
    for (uint64_t item = blockIdx.x; item < *long_count * chunks; item += gridDim.x) {
        const uint64_t v = long_rows[item / chunks];
        const uint64_t c = item % chunks * lanes + group.lane;
        const Entries run = entries_of(edges, v);
        const Share share = share_of_group(group, 0, run.all);
        Values<1> sum = zeros<1>();
        if (c < cols) {
            sum.at[0] = sum_of_entries(edges, run, v, share.from, share.to, c, term);
        }
        sum = sum_of_groups(group, sum, room);
        if (threadIdx.x < lanes && c < cols) {
            put_sum(out, v * cols + c, onto, sum.at[0]);
        }
    }
}

// Parameters between those of the edges and those of the rows: `cols` and `lanes` last.
#define SUM_ROWS(onto, out, term) \
    const Edges edges = EDGES_OF; \
    sum_rows(edges, cols, onto, out, lanes, rows, long_from, term)
#define SUM_ROWS_LONG(onto, out, term) \
    __shared__ float room[LONG_THREADS]; \
    const Edges edges = EDGES_OF; \
    sum_rows_long(edges, cols, onto, out, lanes, long_count, long_rows, room, term)
