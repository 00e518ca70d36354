// Rows of many edges: `list_long_rows` lists them, an operation's first kernel skips them, and its
// second kernel assigns a block of threads to each, whose groups share the edges. Results do not
// depend on the order of the list.
#pragma once

#include "warp.cuh"

// Threads of a block that shares a row.
#define LONG_THREADS 512

// The list; the last parameters of the second kernels.
#define LISTED const uint32_t *long_count, const uint32_t *long_rows

// A range of edges.
struct Share {
    uint32_t from;
    uint32_t to;
};

// Index of the group within the block.
static __device__ inline uint32_t group_in_block(const Group& group) { return threadIdx.x / group.lanes; }

// The group's part of the edges begin..end.
static __device__ inline Share share_of_group(const Group& group, uint32_t begin, uint32_t end) {
    const uint32_t groups = LONG_THREADS / group.lanes;
    const uint32_t run = (end - begin + groups - 1) / groups;
    const uint32_t from = (uint32_t)min((uint64_t)end, begin + (uint64_t)group_in_block(group) * run);
    return {from, min(end, from + run)};
}

// Sum of the groups' values, in the groups' order, returned to the first group. All threads of the
// block must call it; `room` is scratch for V values of each group.
template <int V> static __device__ inline Values<V> sum_of_groups(const Group& group, Values<V> sum, float* room) {
    __syncthreads();
    for (int k = 0; k < V; k++) {
        room[threadIdx.x * V + k] = sum.at[k];
    }
    __syncthreads();
    if (threadIdx.x < group.lanes) {
        for (uint32_t other = threadIdx.x + group.lanes; other < LONG_THREADS; other += group.lanes) {
            for (int k = 0; k < V; k++) {
                sum.at[k] += room[other * V + k];
            }
        }
    }
    return sum;
}
