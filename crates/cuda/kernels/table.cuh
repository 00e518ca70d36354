// A hash table of a batch's nodes: global ids to local ones. An entry is an id (upper half) and what its local id is, or, of nodes that the hop at
// work has drawn for the first time, PENDING and the number of an edge: the smallest of those that drew it, which no order of threads changes. One read
// finds both, and what is known is always smaller. Where the table is dense an id is its own slot.
#pragma once

#include "keyed.cuh"

// What an empty slot holds: no node has the largest id.
#define EMPTY 0xffffffffffffffffull
#define PENDING 0x80000000u

struct Table {
    // Null where ids stay global.
    uint64_t* entries;
    // Slots less one, a power of two less one.
    uint32_t mask;
    uint32_t dense;
};
#define TABLE uint64_t *entries, uint32_t mask, uint32_t dense
#define TABLE_OF {entries, mask, dense}

// Puts an id with what is known of it into the table; its slot. The table has room.
__device__ inline uint32_t put(const Table& table, uint32_t id, uint32_t known) {
    const uint64_t entry = (uint64_t)id << 32 | known;
    uint32_t slot = table.dense != 0 ? id : (uint32_t)keyed_mix(id) & table.mask;
    for (;;) {
        uint64_t* at = table.entries + slot;
        uint64_t found = *at;
        if (found == EMPTY) {
            found = atomicCAS(at, EMPTY, entry);
            if (found == EMPTY) {
                return slot;
            }
        }
        if (found >> 32 == id) {
            // most ids that come again were put before
            if (entry < found) {
                atomicMin(at, entry);
            }
            return slot;
        }
        slot = (slot + 1) & table.mask;
    }
}

// Writes the source of edge e: its slot, or its id.
__device__ inline void put_source(const Table& table, uint32_t* out, uint64_t e, uint32_t id) {
    out[e] = table.entries != 0 ? put(table, id, PENDING | (uint32_t)e) : id;
}

// The id of a source that was written so.
__device__ inline uint32_t source_id(const Table& table, uint32_t source) {
    return table.entries != 0 ? (uint32_t)(table.entries[source] >> 32) : source;
}
