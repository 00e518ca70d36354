// Unique nodes in first-seen order: global ids to local ones. The nodes so far have the positions 0..n, and the edges those behind them; a table keeps
// the smallest position of every id, which no order of threads changes. The first edges of new ids are counted, and say their numbers.
//
// An entry of the table is an id (upper half) and a position: one read finds both. Where the table is dense an id is its own slot.
#include "common.cuh"
#include "keyed.cuh"

// What an empty slot holds: no node has the largest id.
#define EMPTY 0xffffffffffffffffull

// Puts an id with a position into the table; its slot. The table has room.
__device__ inline uint32_t put(uint64_t* table, uint32_t mask, uint32_t dense, uint32_t id, uint32_t position) {
    const uint64_t entry = (uint64_t)id << 32 | position;
    uint32_t slot = dense != 0 ? id : (uint32_t)keyed_mix(id) & mask;
    for (;;) {
        uint64_t found = table[slot];
        if (found == EMPTY) {
            found = atomicCAS(table + slot, EMPTY, entry);
            if (found == EMPTY) {
                return slot;
            }
        }
        if (found >> 32 == id) {
            // most ids that come again were put by an earlier position
            if (entry < found) {
                atomicMin(table + slot, entry);
            }
            return slot;
        }
        slot = (slot + 1) & mask;
    }
}

// Puts the nodes so far and the edges' sources, which become slots.
extern "C" __global__ void relabel_put(uint64_t* table, uint32_t mask, uint32_t dense, const uint32_t* nodes, uint64_t count,
                                       uint32_t* indices, uint64_t edges) {
    const uint64_t all = count + edges;
    for (uint64_t at = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; at < all; at += (uint64_t)gridDim.x * blockDim.x) {
        if (at < count) {
            put(table, mask, dense, nodes[at], (uint32_t)at);
        } else {
            indices[at - count] = put(table, mask, dense, indices[at - count], (uint32_t)at);
        }
    }
}

// first[e]: 1 where edge e is the first place of its source, else 0.
extern "C" __global__ void relabel_first(const uint64_t* table, uint64_t count, const uint32_t* slots, uint64_t edges,
                                         uint32_t* first) {
    for (uint64_t e = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; e < edges; e += (uint64_t)gridDim.x * blockDim.x) {
        first[e] = (uint32_t)table[slots[e]] == (uint32_t)(count + e) ? 1 : 0;
    }
}

// Slots become local ids, and new nodes are written behind the `count` so far; before[e]: how many came before edge e, and before[edges] all.
// all[0]: how many nodes there are now.
extern "C" __global__ void relabel_number(const uint64_t* table, uint64_t count, uint32_t* indices, uint64_t edges,
                                          const uint32_t* before, uint32_t* nodes, uint64_t* all) {
    for (uint64_t e = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; e < edges; e += (uint64_t)gridDim.x * blockDim.x) {
        const uint64_t entry = table[indices[e]];
        const uint32_t position = (uint32_t)entry;
        uint32_t local = position;
        if (position >= count) {
            local = (uint32_t)count + before[position - count];
            if (position == (uint32_t)(count + e)) {
                nodes[local] = (uint32_t)(entry >> 32);
            }
        }
        indices[e] = local;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        all[0] = count + before[edges];
    }
}
