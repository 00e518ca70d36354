// Sums over all tiles before one, while other blocks compute theirs: a decoupled look-back (Merrill
// and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016). Blocks take
// tiles in order, so earlier tiles are done or are being computed by running blocks, and no order
// of blocks can deadlock. The tiles' words and the counter of taken tiles are initially 0.
#pragma once

// Kind of sum in a tile's word: its own, or that of all tiles up to it.
#define LOOK_OWN (1ull << 62)
#define LOOK_ALL (2ull << 62)
#define LOOK_SUM (LOOK_OWN - 1)

// Takes the next tile for the whole block. `room` is shared scratch. All threads must call it.
__device__ inline uint64_t deal_tile(uint64_t* dealt, uint64_t* room) {
    __syncthreads();
    if (threadIdx.x == 0) {
        *room = atomicAdd(dealt, (uint64_t)1);
    }
    __syncthreads();
    return *room;
}

// Waits until a word that another block writes is not 0.
__device__ inline uint64_t look_at(const uint64_t* word) {
    uint64_t found;
    do {
        found = *(const volatile uint64_t*)word;
    } while (found == 0);
    return found;
}

// Sum of all tiles before this one, whose own sum is `sum`. `words` has a word per tile; `room` is
// shared scratch. All threads must call it, and receive the sum.
__device__ inline uint64_t sum_before(uint64_t* words, uint64_t tile, uint64_t sum, uint64_t* room) {
    if (threadIdx.x < 32) {
        const uint32_t lane = threadIdx.x;
        uint64_t before = 0;
        if (lane == 0) {
            atomicExch(words + tile, (tile == 0 ? LOOK_ALL : LOOK_OWN) | sum);
        }
        // 32 tiles at a time, the nearest first, up to a tile with the sum of all before it
        for (uint64_t end = tile; end > 0;) {
            const uint64_t word = end > lane ? look_at(words + (end - 1 - lane)) : LOOK_ALL;
            const uint32_t know = __ballot_sync(ALL_LANES, (word & LOOK_ALL) != 0);
            const uint32_t last = know == 0 ? 31 : (uint32_t)__ffs((int)know) - 1;
            uint64_t own = lane <= last ? word & LOOK_SUM : 0;
            for (uint32_t step = 16; step > 0; step /= 2) {
                own += __shfl_xor_sync(ALL_LANES, own, (int)step);
            }
            before += own;
            end = know != 0 ? 0 : end - 32;
        }
        if (lane == 0) {
            if (tile > 0) {
                atomicExch(words + tile, LOOK_ALL | (before + sum));
            }
            *room = before;
        }
    }
    __syncthreads();
    return *room;
}

// Sum of all tiles before this one, which is not the first, computed by each thread separately:
// words of tiles are `stride` apart, and `word` is this tile's own. Writes the result plus its own
// sum to that word.
__device__ inline uint64_t sum_before_alone(uint64_t* word, uint64_t stride, uint64_t sum) {
    atomicExch(word, LOOK_OWN | sum);
    uint64_t before = 0;
    for (const uint64_t* at = word - stride;; at -= stride) {
        const uint64_t found = look_at(at);
        before += found & LOOK_SUM;
        if ((found & LOOK_ALL) != 0) {
            break;
        }
    }
    atomicExch(word, LOOK_ALL | (before + sum));
    return before;
}
