// Dynamic cache of feature rows. Per batch, rows are looked up, hits are copied, and misses are
// assigned slots in the order of their positions and read from the host once: to the result and to
// their slots. The results do not depend on the order of threads.
//
// slot_of[v] is the slot of row v or MISS; during a batch, for a missing row, CLAIM and the first
// position in the batch that requests it.
#include "common.cuh"
#include "stored.cuh"

#define MISS 0xffffffffu
#define CLAIM 0x80000000u

// found[i]: the slot of ids[i] or MISS. Marks hit slots as used, if `used` is not null.
extern "C" __global__ void cache_look_up(const uint32_t* ids, uint64_t count, uint32_t* slot_of, uint32_t* used, uint32_t* found) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        const uint32_t v = ids[i];
        uint32_t slot = slot_of[v];
        if (slot < CLAIM) {
            if (used != 0) {
                used[slot] = 1;
            }
        } else {
            atomicMin(slot_of + v, CLAIM | (uint32_t)i);
            slot = MISS;
        }
        found[i] = slot;
    }
}

// first[i]: 1 if position i is the first that requests a missing row. hits[0] grows by the number
// of found positions.
extern "C" __global__ void cache_first(const uint32_t* ids, uint64_t count, const uint32_t* slot_of, const uint32_t* found,
                                       uint32_t* first, uint64_t* hits) {
    __shared__ uint32_t here;
    if (threadIdx.x == 0) {
        here = 0;
    }
    __syncthreads();
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        const bool missing = found[i] == MISS;
        first[i] = missing && slot_of[ids[i]] == (CLAIM | (uint32_t)i) ? 1 : 0;
        if (!missing) {
            atomicAdd(&here, 1u);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0 && here != 0) {
        atomicAdd(hits, (uint64_t)here);
    }
}

// free[q]: 1 if the q-th slot from the hand on is not in use.
extern "C" __global__ void cache_unused(const uint32_t* used, uint64_t slots, const uint32_t* hand, uint32_t* free) {
    for (uint64_t q = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; q < slots; q += (uint64_t)gridDim.x * blockDim.x) {
        free[q] = used[(hand[0] + q) % slots] == 0 ? 1 : 0;
    }
}

// Slots in the order in which the hand takes them: those not in use, then, in its second round,
// those in use. `before` are the prefix sums of cache_unused, and `missing` is the number of rows
// to admit. The hand clears the use flags that it passes. hand[1]: its final position.
extern "C" __global__ void cache_victims(uint32_t* used, uint64_t slots, const uint32_t* before, const uint32_t* missing,
                                         uint32_t* hand, uint32_t* victims) {
    const uint64_t unused = before[slots];
    const uint64_t wanted = missing[0] < slots ? missing[0] : slots;
    for (uint64_t q = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; q < slots; q += (uint64_t)gridDim.x * blockDim.x) {
        const uint32_t slot = (uint32_t)((hand[0] + q) % slots);
        const bool free = before[q + 1] != before[q];
        const uint64_t turn = free ? before[q] : unused + q - before[q];
        if (turn < wanted) {
            victims[turn] = slot;
            if (turn + 1 == wanted) {
                hand[1] = slot + 1 == slots ? 0 : slot + 1;
            }
        }
        // the hand passes a slot if more slots are needed than it has found before
        if (!free && before[q] < wanted) {
            used[slot] = 0;
        }
    }
    if (wanted == 0 && blockIdx.x == 0 && threadIdx.x == 0) {
        hand[1] = hand[0];
    }
}

// Assigns slots to the missing rows: `before` are the prefix sums of cache_first. If `round`, the
// slots are taken in turn; of more rows than slots, the last ones stay, and hand[1] is the next
// slot. Otherwise the first rows get the `victims`. to[i]: the slot that position i fills, or MISS.
extern "C" __global__ void cache_admit(const uint32_t* ids, uint64_t count, const uint32_t* before, uint64_t slots,
                                       uint32_t round, const uint32_t* victims, uint32_t* slot_of, uint32_t* holder, uint32_t* hand, uint32_t* to) {
    const uint64_t missing = before[count];
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        uint32_t slot = MISS;
        if (before[i + 1] != before[i]) {
            const uint64_t turn = before[i];
            if (round != 0 && turn + slots >= missing) {
                slot = (uint32_t)((hand[0] + turn) % slots);
            } else if (round == 0 && turn < slots) {
                slot = victims[turn];
            }
            if (slot != MISS) {
                const uint32_t former = holder[slot];
                if (former != MISS) {
                    slot_of[former] = MISS;
                }
                holder[slot] = ids[i];
            }
            slot_of[ids[i]] = slot;
        }
        to[i] = slot;
    }
    if (round != 0 && slots != 0 && blockIdx.x == 0 && threadIdx.x == 0) {
        hand[1] = (uint32_t)((hand[0] + missing) % slots);
    }
}

// out (count x dim): the found rows. A warp copies 32 rows, `group` lanes per row.
extern "C" __global__ void cache_hits(const uint32_t* found, uint64_t count, const unsigned char* rows, uint64_t row_bytes,
                                      uint32_t unit, uint32_t group, uint32_t kind, uint64_t dim, float* out) {
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    const uint64_t lane = threadIdx.x % 32;
    for (uint64_t first = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x - lane; first < count; first += step) {
        const uint32_t slot = first + lane < count ? found[first + lane] : MISS;
        const uint64_t from = slot == MISS ? 0 : (uint64_t)rows + slot * row_bytes;
        rows_copy(from, 0, row_bytes, unit, group, out + first * dim, dim, kind);
    }
}

// out: the rows that were not found, which also fill their slots. The hand moves to its final
// position.
extern "C" __global__ void cache_misses(const uint32_t* ids, const uint32_t* found, const uint32_t* to, uint64_t count,
                                        const unsigned char* host, unsigned char* rows, uint64_t row_bytes, uint32_t unit,
                                        uint32_t group, uint32_t kind, uint64_t dim, float* out, uint32_t* hand) {
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    const uint64_t lane = threadIdx.x % 32;
    for (uint64_t first = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x - lane; first < count; first += step) {
        const uint64_t i = first + lane;
        uint64_t from = 0, keep = 0;
        if (i < count && found[i] == MISS) {
            from = (uint64_t)host + ids[i] * row_bytes;
            keep = to[i] == MISS ? 0 : (uint64_t)rows + to[i] * row_bytes;
        }
        rows_copy(from, keep, row_bytes, unit, group, out + first * dim, dim, kind);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        hand[0] = hand[1];
    }
}
