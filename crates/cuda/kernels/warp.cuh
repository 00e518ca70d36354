// Shared code of the operations' kernels: groups of lanes that work on one row, vectors of values,
// and sums in a fixed order.
#pragma once

#include "common.cuh"

// Elements of tables of 16-bit floats.
struct Half {
    unsigned short bits;
};
struct Bfloat {
    unsigned short bits;
};

// 4 values of a row, or 1.
template <int V> struct Values {
    float at[V];
};

static __device__ inline float value_of(float x) { return x; }
static __device__ inline float value_of(Half x) { return from_half(x.bits); }
static __device__ inline float value_of(Bfloat x) { return from_bf16(x.bits); }

// Loads V values that are constant while the kernel runs. Addresses are multiples of V elements.
template <int V> static __device__ inline Values<V> load(const float* from) {
    Values<V> x;
    if constexpr (V == 4) {
        const float4 y = __ldg((const float4*)from);
        x.at[0] = y.x, x.at[1] = y.y, x.at[2] = y.z, x.at[3] = y.w;
    } else {
        x.at[0] = __ldg(from);
    }
    return x;
}
template <int V, typename T> static __device__ inline Values<V> load_short(const T* from) {
    Values<V> x;
    if constexpr (V == 4) {
        const ushort4 y = __ldg((const ushort4*)from);
        x.at[0] = value_of(T{y.x}), x.at[1] = value_of(T{y.y});
        x.at[2] = value_of(T{y.z}), x.at[3] = value_of(T{y.w});
    } else {
        x.at[0] = value_of(T{__ldg(&from->bits)});
    }
    return x;
}
template <int V> static __device__ inline Values<V> load(const Half* from) { return load_short<V>(from); }
template <int V> static __device__ inline Values<V> load(const Bfloat* from) { return load_short<V>(from); }

// Loads V values of memory that the kernel also writes.
template <int V> static __device__ inline Values<V> read(const float* from) {
    Values<V> x;
    if constexpr (V == 4) {
        const float4 y = *(const float4*)from;
        x.at[0] = y.x, x.at[1] = y.y, x.at[2] = y.z, x.at[3] = y.w;
    } else {
        x.at[0] = *from;
    }
    return x;
}

template <int V> static __device__ inline void store(float* to, const Values<V>& x) {
    if constexpr (V == 4) {
        *(float4*)to = make_float4(x.at[0], x.at[1], x.at[2], x.at[3]);
    } else {
        *to = x.at[0];
    }
}

template <int V> static __device__ inline Values<V> zeros() {
    Values<V> x;
    for (int i = 0; i < V; i++) {
        x.at[i] = 0.0f;
    }
    return x;
}

// sum += weight * x
template <int V> static __device__ inline void add(Values<V>& sum, float weight, const Values<V>& x) {
    for (int i = 0; i < V; i++) {
        sum.at[i] += weight * x.at[i];
    }
}

// Lanes of a warp, a power of two of them, that work together.
struct Group {
    // Number of lanes.
    uint32_t lanes;
    // Index of this lane in the group.
    uint32_t lane;
    // Mask of the group's lanes in the warp.
    uint32_t mask;
    // Index of the group in the grid.
    uint64_t index;
    // Number of groups in the grid.
    uint64_t count;
};

static __device__ inline Group group_of(uint32_t lanes) {
    const uint32_t in_warp = threadIdx.x % 32;
    const uint32_t first = in_warp & ~(lanes - 1);
    Group group;
    group.lanes = lanes;
    group.lane = in_warp - first;
    group.mask = lanes == 32 ? ALL_LANES : ((1u << lanes) - 1) << first;
    group.index = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / lanes;
    group.count = (uint64_t)gridDim.x * blockDim.x / lanes;
    return group;
}

// Sum of the group's values, in one fixed order; every lane receives it.
template <typename T> static __device__ inline T group_sum(const Group& group, T value) {
    for (uint32_t step = group.lanes / 2; step > 0; step /= 2) {
        value += __shfl_xor_sync(group.mask, value, (int)step, 32);
    }
    return value;
}

static __device__ inline float group_max(const Group& group, float value) {
    for (uint32_t step = group.lanes / 2; step > 0; step /= 2) {
        value = fmaxf(value, __shfl_xor_sync(group.mask, value, (int)step, 32));
    }
    return value;
}

static __device__ inline float from_lane(const Group& group, float value, uint32_t lane) {
    return __shfl_sync(group.mask, value, (int)lane, (int)group.lanes);
}
static __device__ inline uint32_t from_lane(const Group& group, uint32_t value, uint32_t lane) {
    return __shfl_sync(group.mask, value, (int)lane, (int)group.lanes);
}

// Sum of the block's values, in one fixed order, returned to thread 0. All threads must call it: at
// most 1024, in whole warps. `room` is scratch shared by the block.
static __device__ inline double block_sum(double value, double* room) {
    Group warp = group_of(32);
    value = group_sum(warp, value);
    __syncthreads();
    if (warp.lane == 0) {
        room[threadIdx.x / 32] = value;
    }
    __syncthreads();
    double sum = 0.0;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < blockDim.x / 32; i++) {
            sum += room[i];
        }
    }
    return sum;
}

// Inverted dropout, as in graphmill_nn::backend::Dropout. The threshold is 0 without dropout.
struct Mask {
    uint64_t key;
    uint32_t threshold;
    float scale;
};

static __device__ inline uint32_t row_key(uint64_t key, uint64_t row) {
    uint64_t z = key ^ row * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    z = z ^ z >> 31;
    return (uint32_t)(z >> 32);
}

static __device__ inline uint32_t mask_hash(uint32_t row_key, uint32_t column) {
    uint32_t x = row_key ^ column * 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// beta * old + x, without reading the old value if beta is 0.
template <int V> static __device__ inline void store_onto(float* to, float beta, Values<V> x) {
    if (beta != 0.0f) {
        add(x, beta, read<V>(to));
    }
    store(to, x);
}
