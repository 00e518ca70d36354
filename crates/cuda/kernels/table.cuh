// Hash table of a batch's nodes, from global to local ids. An entry is an id (upper half) and its
// local id, or, for a node first drawn by the current hop, PENDING and the number of an edge: the
// smallest of those that drew it, which does not depend on the order of threads. One read returns
// both, and a known local id is always smaller. If the table is dense, an id is its own slot.
#pragma once

#include "keyed.cuh"

// Content of an empty slot: no node has the largest id.
#define EMPTY 0xffffffffffffffffull
#define PENDING 0x80000000u

struct Table {
    // Null if ids remain global.
    uint64_t* entries;
    // Number of slots minus one; slots are a power of two.
    uint32_t mask;
    uint32_t dense;
};
#define TABLE uint64_t *entries, uint32_t mask, uint32_t dense
#define TABLE_OF {entries, mask, dense}

// Inserts an id with its local id, if known, and returns its slot. The table must not be full.
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
            // most repeated ids were inserted before
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

// Id of a source written in this way.
__device__ inline uint32_t source_id(const Table& table, uint32_t source) {
    return table.entries != 0 ? (uint32_t)(table.entries[source] >> 32) : source;
}
