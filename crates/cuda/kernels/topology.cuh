// Rows of a graph as read by the sampling kernels: in the device's memory, in that of its peers, or
// in host memory. Kernels see addresses only.
#pragma once

// Addresses per part.
#define TOPOLOGY_ADDRESSES 3

// Row of a node: its in-neighbours, and their alias cells (threshold, other) if there are alias
// tables.
struct Row {
    const uint32_t* list;
    const uint2* cells;
    uint64_t length;
};

// Node v is row v / parts of part v mod parts. `shards` holds, for each part, the addresses of its
// row starts (u64), its lists and its cells.
__device__ inline Row row_of(const uint64_t* shards, uint32_t parts, uint32_t v) {
    uint32_t part = 0;
    if (parts > 1) {
        part = v % parts;
        v /= parts;
    }
    const uint64_t* shard = shards + TOPOLOGY_ADDRESSES * part;
    const uint64_t* starts = (const uint64_t*)__ldg(shard);
    const uint64_t start = __ldg(starts + v);
    const uint64_t end = __ldg(starts + v + 1);
    Row row;
    row.list = (const uint32_t*)__ldg(shard + 1) + start;
    const uint64_t cells = __ldg(shard + 2);
    row.cells = cells == 0 ? (const uint2*)0 : (const uint2*)cells + start;
    row.length = end - start;
    return row;
}

// Destination of edge e: the last of `rows` whose range starts at or before it.
__device__ inline uint32_t row_of_edge(const uint32_t* indptr, uint64_t rows, uint32_t e) {
    uint64_t low = 0, high = rows;
    while (high - low > 1) {
        const uint64_t middle = (low + high) / 2;
        if (__ldg(indptr + middle) <= e) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (uint32_t)low;
}

// Methods of counting edges.
#define DISTINCT 0
#define AGAIN 1
#define BY_ALIAS 2
// Fanout that draws all neighbours.
#define TAKES_ALL 0xffffffffu
// `other` in the cells of rows in which no neighbour can be drawn.
#define NOTHING 0xffffffffu

// Number of edges of a row.
__device__ inline uint32_t edges_of(Row row, uint32_t fanout, uint32_t mode) {
    if (mode == DISTINCT || fanout == TAKES_ALL) {
        return row.length < fanout ? (uint32_t)row.length : fanout;
    }
    if (row.length == 0 || (mode == BY_ALIAS && __ldg(&row.cells->y) == NOTHING)) {
        return 0;
    }
    return fanout;
}
