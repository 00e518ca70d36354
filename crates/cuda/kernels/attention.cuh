// The entries of an attention over a block: a destination's edges and then itself, entry E + v, whose source is its own row. Matrices of
// entries are (E + D) x heads.
#pragma once

#include "columns.cuh"

// The edges of a block and its destinations' own rows; or those of its transpose.
struct Edges {
    // Edge run of each row.
    const uint32_t* indptr;
    // Row at the other end of each edge.
    const uint32_t* indices;
    // Entry of each edge, or null: its position.
    const uint32_t* entry;
    // Row at the other end of a row's own entry, or null: the row's number.
    const uint32_t* own_rows;
    // E.
    uint64_t count;
    // How many rows have an own entry.
    uint64_t num_own;
};

// One row's run of entries, its own one last.
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

// The number of an entry, and the row at its other end.
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
