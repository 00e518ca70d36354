// Counter-based random numbers: the streams of graphmill_core::keyed, to the bit. A stream is
// stateless: word i of a key is a function of both.
#pragma once

#define KEYED_GOLDEN 0x9e3779b97f4a7c15ull

// Finalizer of SplitMix64.
__device__ inline uint64_t keyed_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// Key of a node's draws under a hop's key.
__device__ inline uint64_t keyed_node(uint64_t key, uint32_t node) {
    return keyed_mix(key ^ (uint64_t)node * KEYED_GOLDEN);
}

// Word `i` of a key's stream, from 0.
__device__ inline uint64_t keyed_word(uint64_t key, uint64_t i) {
    return keyed_mix(key + (i + 1) * KEYED_GOLDEN);
}

// Word `i` as a number in 0..n.
__device__ inline uint64_t keyed_below(uint64_t key, uint64_t i, uint64_t n) {
    return __umul64hi(keyed_word(key, i), n);
}
