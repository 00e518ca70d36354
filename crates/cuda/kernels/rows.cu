// Rows and elements: gathers, scaled copies, sums of products, sparse rows.
#include "warp.cuh"

// dst[i] = src[ids[i]]: a group of lanes copies four rows at a time.
template <int V, typename T>
static __device__ inline void gather(const T* src, uint64_t cols, const uint32_t* ids, uint64_t rows, float* dst,
                                     uint32_t lanes) {
    const Group group = group_of(lanes);
    for (uint64_t first = 4 * group.index; first < rows; first += 4 * group.count) {
        uint64_t row[4];
        for (int i = 0; i < 4; i++) {
            row[i] = __ldg(ids + min(first + i, rows - 1));
        }
        for (uint64_t c = group.lane * V; c < cols; c += (uint64_t)lanes * V) {
            Values<V> x[4];
            for (int i = 0; i < 4; i++) {
                x[i] = load<V>(src + row[i] * cols + c);
            }
            for (int i = 0; i < 4; i++) {
                if (first + i < rows) {
                    store(dst + (first + i) * cols + c, x[i]);
                }
            }
        }
    }
}

extern "C" __global__ void gather_f32(const float* src, uint64_t cols, const uint32_t* ids, uint64_t rows, float* dst,
                           uint32_t lanes) {
    gather<1>(src, cols, ids, rows, dst, lanes);
}
extern "C" __global__ void gather_f32_4(const float* src, uint64_t cols, const uint32_t* ids, uint64_t rows, float* dst,
                           uint32_t lanes) {
    gather<4>(src, cols, ids, rows, dst, lanes);
}
extern "C" __global__ void gather_f16(const Half* src, uint64_t cols, const uint32_t* ids, uint64_t rows, float* dst,
                           uint32_t lanes) {
    gather<1>(src, cols, ids, rows, dst, lanes);
}
extern "C" __global__ void gather_f16_4(const Half* src, uint64_t cols, const uint32_t* ids, uint64_t rows, float* dst,
                           uint32_t lanes) {
    gather<4>(src, cols, ids, rows, dst, lanes);
}
extern "C" __global__ void gather_bf16(const Bfloat* src, uint64_t cols, const uint32_t* ids, uint64_t rows, float* dst,
                           uint32_t lanes) {
    gather<1>(src, cols, ids, rows, dst, lanes);
}
extern "C" __global__ void gather_bf16_4(const Bfloat* src, uint64_t cols, const uint32_t* ids, uint64_t rows, float* dst,
                           uint32_t lanes) {
    gather<4>(src, cols, ids, rows, dst, lanes);
}

// Replaces each of `count` elements x by change(x, its position); four at a time, then the rest one
// by one. Addresses are multiples of 16 bytes if `wide`.
template <typename F>
static __device__ inline void each(float* x, uint64_t count, uint32_t wide, F change) {
    const uint64_t thread = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    const uint64_t vectors = wide != 0 ? count / 4 : 0;
    for (uint64_t i = thread; i < vectors; i += threads) {
        Values<4> values = read<4>(x + 4 * i);
        change(values, 4 * i);
        store(x + 4 * i, values);
    }
    for (uint64_t i = 4 * vectors + thread; i < count; i += threads) {
        Values<1> value = read<1>(x + i);
        change(value, i);
        store(x + i, value);
    }
}

struct Scale {
    float alpha;
    template <int V> __device__ void operator()(Values<V>& x, uint64_t) const {
        for (int i = 0; i < V; i++) {
            x.at[i] *= alpha;
        }
    }
};

struct Add {
    float alpha;
    const float* other;
    template <int V> __device__ void operator()(Values<V>& x, uint64_t at) const { add(x, alpha, load<V>(other + at)); }
};

// x = alpha x
extern "C" __global__ void scale_values(float alpha, float* x, uint64_t count, uint32_t wide, const uint64_t* late) {
    each(x, count, wide, Scale{late_float(late, 0, alpha)});
}

// y = y + alpha x
extern "C" __global__ void add_values(float alpha, const float* x, float* y, uint64_t count, uint32_t wide) {
    each(y, count, wide, Add{alpha, x});
}

// sums[block] = the sum of the block's share of x * y.
extern "C" __global__ void dot_values(const float* x, const float* y, uint64_t count, double* sums) {
    __shared__ double room[32];
    double sum = 0.0;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        sum += (double)__ldg(x + i) * (double)__ldg(y + i);
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

// Sum of `count` values, returned to thread 0 of the single block.
static __device__ inline double sum_values(const double* values, uint64_t count, double* room) {
    double sum = 0.0;
    for (uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
        sum += values[i];
    }
    return block_sum(sum, room);
}

// total = factor * the sum of `count` values, plus the old value if `onto`. One block.
extern "C" __global__ void total_of(const double* values, uint64_t count, float factor, uint32_t onto, double* total) {
    __shared__ double room[32];
    const double sum = sum_values(values, count, room);
    if (threadIdx.x == 0) {
        *total = (onto != 0 ? *total : 0.0) + (double)factor * sum;
    }
}

// out += the sum of `count` values. One block.
extern "C" __global__ void add_total(const double* values, uint64_t count, float* out) {
    __shared__ double room[32];
    const double sum = sum_values(values, count, room);
    if (threadIdx.x == 0) {
        *out += (float)sum;
    }
}

// dst[i, columns[k]] += alpha values[k] over the stored values k of row i, whose columns are
// distinct.
extern "C" __global__ void add_sparse(const uint64_t* indptr, const uint32_t* columns, const float* values, float alpha,
                                      uint64_t rows, uint64_t cols, float* dst) {
    const Group group = group_of(32);
    for (uint64_t i = group.index; i < rows; i += group.count) {
        const uint64_t end = __ldg(indptr + i + 1);
        for (uint64_t k = __ldg(indptr + i) + group.lane; k < end; k += 32) {
            dst[i * cols + __ldg(columns + k)] += alpha * __ldg(values + k);
        }
    }
}
