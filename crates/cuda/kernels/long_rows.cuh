// Rows of many edges: `list_long_rows` lists them, an operation's first kernel leaves them out, and its second gives each a block of
// threads, whose groups share the edges. Results do not depend on the order of the list.
#pragma once

#include "warp.cuh"

// Threads of a block that shares a row.
#define LONG_THREADS 512

// What was listed; the last parameters of the second kernels.
#define LISTED const uint32_t *long_count, const uint32_t *long_rows

// A run of edges.
struct Share {
    uint32_t from;
    uint32_t to;
};

// Which of the block's groups this one is.
static __device__ inline uint32_t group_in_block(const Group& group) { return threadIdx.x / group.lanes; }

// The group's part of the edges begin..end.
static __device__ inline Share share_of_group(const Group& group, uint32_t begin, uint32_t end) {
    const uint32_t groups = LONG_THREADS / group.lanes;
    const uint32_t run = (end - begin + groups - 1) / groups;
    const uint32_t from = (uint32_t)min((uint64_t)end, begin + (uint64_t)group_in_block(group) * run);
    return {from, min(end, from + run)};
}

// The sum of the groups' values, in the groups' order, which the first group has. All threads of the block come here; `room` has place
// for V values of each.
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
