// Attention over input rows, which all heads share: tables of f32 and of 16-bit floats. See
// attention.cuh for entries.
#include "attention.cuh"

// Heads whose sums a lane holds in registers.
#define HEADS 4

// out[entry, h] = x[row] . weight(v, ., h) + start(v, h): a warp computes the entries of one
// destination.
template <typename T, typename Weight, typename Start>
static __device__ inline void entry_dots(const Edges& edges, const T* x, uint64_t cols, uint32_t heads, uint64_t rows, float* out,
                                         Weight weight, Start start) {
    const Group group = group_of(32);
    for (uint64_t v = group.index; v < rows; v += group.count) {
        const Entries run = entries_of(edges, v);
        for (uint32_t h0 = 0; h0 < heads; h0 += HEADS) {
            const uint32_t count = min((uint32_t)HEADS, heads - h0);
            float from[HEADS] = {};
            start(group, v, h0, count, from);
            for (uint32_t j = 0; j < run.all; j++) {
                const Entry entry = entry_at(edges, run, v, j);
                float sums[HEADS] = {};
                for (uint64_t c = group.lane; c < cols; c += 32) {
                    const float value = load<1>(x + entry.row * cols + c).at[0];
                    for (uint32_t i = 0; i < HEADS; i++) {
                        sums[i] += i < count ? value * weight(v, c, h0 + i) : 0.0f;
                    }
                }
                for (uint32_t i = 0; i < HEADS; i++) {
                    if (i < count) {
                        const float sum = group_sum(group, sums[i]);
                        if (group.lane == 0) {
                            out[entry.at * heads + h0 + i] = sum + from[i];
                        }
                    }
                }
            }
        }
    }
}

// score[entry, h] = x[row] . source[., h] + x[own row] . target[., h]
template <typename T>
static __device__ inline void input_scores(const Edges& edges, const T* x, uint64_t cols, const float* source,
                                           const float* target, uint32_t heads, uint64_t rows, float* score) {
    entry_dots(
        edges, x, cols, heads, rows, score,
        [=](uint64_t, uint64_t c, uint32_t h) { return __ldg(source + c * heads + h); },
        [=](const Group& group, uint64_t v, uint32_t h0, uint32_t count, float* from) {
            const uint64_t own = edges.own_rows != nullptr ? __ldg(edges.own_rows + v) : v;
            for (uint64_t c = group.lane; c < cols; c += 32) {
                const float value = load<1>(x + own * cols + c).at[0];
                for (uint32_t i = 0; i < HEADS; i++) {
                    from[i] += i < count ? value * __ldg(target + c * heads + h0 + i) : 0.0f;
                }
            }
            for (uint32_t i = 0; i < HEADS; i++) {
                from[i] = group_sum(group, from[i]);
            }
        });
}

// out[entry, h] = grad[v, head h] . x[row]
template <typename T>
static __device__ inline void input_dots(const Edges& edges, const T* x, uint64_t cols, const float* grad, uint32_t heads,
                                         uint64_t rows, float* out) {
    entry_dots(
        edges, x, cols, heads, rows, out,
        [=](uint64_t v, uint64_t c, uint32_t h) { return __ldg(grad + (v * heads + h) * cols + c); },
        [](const Group&, uint64_t, uint32_t, uint32_t, float*) {});
}

// sums[i] = the sum over v's entries from..to of used[entry, h0 + i] x[row, c] of V columns, for
// `count` heads.
template <int V, typename T>
static __device__ inline void sum_input_rows(const Edges& edges, const Entries& run, uint64_t v, uint32_t from, uint32_t to, const T* x,
                                             uint64_t cols, uint64_t c, const float* used, uint32_t heads, uint32_t h0,
                                             uint32_t count, Values<V> (&sums)[HEADS]) {
#pragma unroll 4
    for (uint32_t j = from; j < to; j++) {
        const Entry entry = entry_at(edges, run, v, j);
        const Values<V> values = load<V>(x + entry.row * cols + c);
        for (uint32_t i = 0; i < HEADS; i++) {
            if (i < count) {
                add(sums[i], __ldg(used + entry.at * heads + h0 + i), values);
            }
        }
    }
}

// out[v, h, c] = the sum over v's entries of used[entry, h] x[row, c]
template <int V, typename T>
static __device__ inline void input_rows(const Edges& edges, const T* x, uint64_t cols, const float* used, uint32_t heads,
                                         float* out, uint32_t lanes, uint64_t rows, uint32_t long_from) {
    const Group group = group_of(lanes);
    const uint64_t chunk = (uint64_t)lanes * V;
    const uint64_t chunks = (cols + chunk - 1) / chunk;
    for (uint64_t item = group.index; item < rows * chunks; item += group.count) {
        const uint64_t v = item / chunks;
        const uint64_t c = (item - v * chunks) * chunk + group.lane * V;
        const Entries run = entries_of(edges, v);
        if (c >= cols || run.edges >= long_from) {
            continue;
        }
        for (uint32_t h0 = 0; h0 < heads; h0 += HEADS) {
            const uint32_t count = min((uint32_t)HEADS, heads - h0);
            Values<V> sums[HEADS] = {};
            sum_input_rows<V>(edges, run, v, 0, run.all, x, cols, c, used, heads, h0, count, sums);
            for (uint32_t i = 0; i < HEADS; i++) {
                if (i < count) {
                    store(out + (v * heads + h0 + i) * cols + c, sums[i]);
                }
            }
        }
    }
}

// The long rows.
template <int V, typename T>
static __device__ inline void input_rows_long(const Edges& edges, const T* x, uint64_t cols, const float* used, uint32_t heads,
                                              float* out, uint32_t lanes, LISTED, float* room) {
    const Group group = group_of(lanes);
    const uint64_t chunk = (uint64_t)lanes * V;
    const uint64_t chunks = (cols + chunk - 1) / chunk;
    for (uint64_t item = blockIdx.x; item < *long_count * chunks; item += gridDim.x) {
        const uint64_t v = long_rows[item / chunks];
        const uint64_t c = item % chunks * chunk + group.lane * V;
        const Entries run = entries_of(edges, v);
        const Share share = share_of_group(group, 0, run.all);
        for (uint32_t h0 = 0; h0 < heads; h0 += HEADS) {
            const uint32_t count = min((uint32_t)HEADS, heads - h0);
            Values<V> sums[HEADS] = {};
            if (c < cols) {
                sum_input_rows<V>(edges, run, v, share.from, share.to, x, cols, c, used, heads, h0, count, sums);
            }
            for (uint32_t i = 0; i < HEADS; i++) {
                if (i < count) {
                    const Values<V> sum = sum_of_groups(group, sums[i], room);
                    if (threadIdx.x < lanes && c < cols) {
                        store(out + (v * heads + h0 + i) * cols + c, sum);
                    }
                }
            }
        }
    }
}

#define ROWS_PARAMETERS(type) \
    EDGES, const type *x, uint64_t cols, const float *used, uint32_t heads, float *out, uint32_t lanes

// First stage of the gradients of `source` and `target`: partial[run] holds both, one after the
// other, by c and h. Blocks of 256 threads, of 32 columns (x), a run of destinations (y) and HEADS
// heads (z).
template <typename T>
static __device__ inline void input_weight_sums(const Edges& edges, const T* x, uint64_t cols, const float* score_grad,
                                                uint32_t heads, uint64_t rows, double* partial,
                                                double (&room)[COLUMN_WARPS][2 * HEADS][COLUMNS]) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = threadIdx.x / 32;
    const uint64_t c = (uint64_t)blockIdx.x * COLUMNS + lane;
    const uint32_t h0 = blockIdx.z * HEADS;
    const uint32_t count = min((uint32_t)HEADS, heads - h0);
    const Run rows_of = run_of_block(rows);
    double sums[2 * HEADS] = {};
    for (uint64_t v = rows_of.from + warp; c < cols && v < rows_of.to; v += COLUMN_WARPS) {
        const Entries run = entries_of(edges, v);
        const uint64_t own = edges.own_rows != nullptr ? __ldg(edges.own_rows + v) : v;
        const double mine = (double)load<1>(x + own * cols + c).at[0];
        for (uint32_t j = 0; j < run.all; j++) {
            const Entry entry = entry_at(edges, run, v, j);
            const double value = (double)load<1>(x + entry.row * cols + c).at[0];
            for (uint32_t i = 0; i < HEADS; i++) {
                const double g = i < count ? (double)__ldg(score_grad + entry.at * heads + h0 + i) : 0.0;
                sums[i] += g * value;
                sums[HEADS + i] += g * mine;
            }
        }
    }
    for (int i = 0; i < 2 * HEADS; i++) {
        room[warp][i][lane] = sums[i];
    }
    __syncthreads();
    for (uint32_t i = warp; i < 2 * HEADS; i += COLUMN_WARPS) {
        const uint32_t h = i % HEADS;
        if (c < cols && h < count) {
            double sum = 0.0;
            for (int w = 0; w < COLUMN_WARPS; w++) {
                sum += room[w][i][lane];
            }
            partial[(2 * blockIdx.y + i / HEADS) * cols * heads + c * heads + h0 + h] = sum;
        }
    }
}

extern "C" __global__ void input_scores_f32(EDGES, const float* x, uint64_t cols, const float* source, const float* target,
                                 uint32_t heads, uint64_t rows, float* score) {
    const Edges edges = EDGES_OF;
    input_scores(edges, x, cols, source, target, heads, rows, score);
}
extern "C" __global__ void input_dots_f32(EDGES, const float* x, uint64_t cols, const float* grad, uint32_t heads, uint64_t rows,
                               float* out) {
    const Edges edges = EDGES_OF;
    input_dots(edges, x, cols, grad, heads, rows, out);
}
extern "C" __global__ void input_rows_f32(ROWS_PARAMETERS(float), uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    input_rows<1>(edges, x, cols, used, heads, out, lanes, rows, long_from);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) input_rows_f32_long(ROWS_PARAMETERS(float), LISTED) {
    __shared__ float room[LONG_THREADS];
    const Edges edges = EDGES_OF;
    input_rows_long<1>(edges, x, cols, used, heads, out, lanes, long_count, long_rows, room);
}
extern "C" __global__ void input_rows_f32_4(ROWS_PARAMETERS(float), uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    input_rows<4>(edges, x, cols, used, heads, out, lanes, rows, long_from);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) input_rows_f32_4_long(ROWS_PARAMETERS(float), LISTED) {
    __shared__ float room[LONG_THREADS * 4];
    const Edges edges = EDGES_OF;
    input_rows_long<4>(edges, x, cols, used, heads, out, lanes, long_count, long_rows, room);
}
extern "C" __global__ void input_weight_sums_f32(EDGES, const float* x, uint64_t cols, const float* score_grad, uint32_t heads,
                                      uint64_t rows, double* partial) {
    __shared__ double room[COLUMN_WARPS][2 * HEADS][COLUMNS];
    const Edges edges = EDGES_OF;
    input_weight_sums(edges, x, cols, score_grad, heads, rows, partial, room);
}

extern "C" __global__ void input_scores_f16(EDGES, const Half* x, uint64_t cols, const float* source, const float* target,
                                 uint32_t heads, uint64_t rows, float* score) {
    const Edges edges = EDGES_OF;
    input_scores(edges, x, cols, source, target, heads, rows, score);
}
extern "C" __global__ void input_dots_f16(EDGES, const Half* x, uint64_t cols, const float* grad, uint32_t heads, uint64_t rows,
                               float* out) {
    const Edges edges = EDGES_OF;
    input_dots(edges, x, cols, grad, heads, rows, out);
}
extern "C" __global__ void input_rows_f16(ROWS_PARAMETERS(Half), uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    input_rows<1>(edges, x, cols, used, heads, out, lanes, rows, long_from);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) input_rows_f16_long(ROWS_PARAMETERS(Half), LISTED) {
    __shared__ float room[LONG_THREADS];
    const Edges edges = EDGES_OF;
    input_rows_long<1>(edges, x, cols, used, heads, out, lanes, long_count, long_rows, room);
}
extern "C" __global__ void input_rows_f16_4(ROWS_PARAMETERS(Half), uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    input_rows<4>(edges, x, cols, used, heads, out, lanes, rows, long_from);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) input_rows_f16_4_long(ROWS_PARAMETERS(Half), LISTED) {
    __shared__ float room[LONG_THREADS * 4];
    const Edges edges = EDGES_OF;
    input_rows_long<4>(edges, x, cols, used, heads, out, lanes, long_count, long_rows, room);
}
extern "C" __global__ void input_weight_sums_f16(EDGES, const Half* x, uint64_t cols, const float* score_grad, uint32_t heads,
                                      uint64_t rows, double* partial) {
    __shared__ double room[COLUMN_WARPS][2 * HEADS][COLUMNS];
    const Edges edges = EDGES_OF;
    input_weight_sums(edges, x, cols, score_grad, heads, rows, partial, room);
}

extern "C" __global__ void input_scores_bf16(EDGES, const Bfloat* x, uint64_t cols, const float* source, const float* target,
                                 uint32_t heads, uint64_t rows, float* score) {
    const Edges edges = EDGES_OF;
    input_scores(edges, x, cols, source, target, heads, rows, score);
}
extern "C" __global__ void input_dots_bf16(EDGES, const Bfloat* x, uint64_t cols, const float* grad, uint32_t heads, uint64_t rows,
                               float* out) {
    const Edges edges = EDGES_OF;
    input_dots(edges, x, cols, grad, heads, rows, out);
}
extern "C" __global__ void input_rows_bf16(ROWS_PARAMETERS(Bfloat), uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    input_rows<1>(edges, x, cols, used, heads, out, lanes, rows, long_from);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) input_rows_bf16_long(ROWS_PARAMETERS(Bfloat), LISTED) {
    __shared__ float room[LONG_THREADS];
    const Edges edges = EDGES_OF;
    input_rows_long<1>(edges, x, cols, used, heads, out, lanes, long_count, long_rows, room);
}
extern "C" __global__ void input_rows_bf16_4(ROWS_PARAMETERS(Bfloat), uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    input_rows<4>(edges, x, cols, used, heads, out, lanes, rows, long_from);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) input_rows_bf16_4_long(ROWS_PARAMETERS(Bfloat), LISTED) {
    __shared__ float room[LONG_THREADS * 4];
    const Edges edges = EDGES_OF;
    input_rows_long<4>(edges, x, cols, used, heads, out, lanes, long_count, long_rows, room);
}
extern "C" __global__ void input_weight_sums_bf16(EDGES, const Bfloat* x, uint64_t cols, const float* score_grad, uint32_t heads,
                                      uint64_t rows, double* partial) {
    __shared__ double room[COLUMN_WARPS][2 * HEADS][COLUMNS];
    const Edges edges = EDGES_OF;
    input_weight_sums(edges, x, cols, score_grad, heads, rows, partial, room);
}

#define BACK_PARAMETERS \
    EDGES, const float *used, uint32_t heads, const float *grad, uint64_t cols, const float *by_source, const float *source, \
        const float *by_target, const float *target, float *x_grad, uint32_t lanes

// Sum over u's entries from..to and the heads of used[entry, h] grad[v, h, c].
static __device__ inline float sum_of_used(const Edges& edges, const Entries& run, uint64_t u, uint32_t from, uint32_t to,
                                           const float* used, uint32_t heads, const float* grad, uint64_t cols, uint64_t c) {
    float sum = 0.0f;
#pragma unroll 4
    for (uint32_t j = from; j < to; j++) {
        const Entry entry = entry_at(edges, run, u, j);
        for (uint32_t h = 0; h < heads; h++) {
            sum += __ldg(used + entry.at * heads + h) * __ldg(grad + (entry.row * heads + h) * cols + c);
        }
    }
    return sum;
}

// Contribution to column c of the gradients of u's scores, summed by source and by destination (the
// first num_own rows): times the weights of the scores.
static __device__ inline float of_scores(uint64_t u, uint64_t num_own, uint32_t heads, uint64_t c, const float* by_source,
                                         const float* source, const float* by_target, const float* target) {
    float sum = 0.0f;
    for (uint32_t h = 0; h < heads; h++) {
        sum += __ldg(by_source + u * heads + h) * __ldg(source + c * heads + h);
        if (u < num_own) {
            sum += __ldg(by_target + u * heads + h) * __ldg(target + c * heads + h);
        }
    }
    return sum;
}

// x_grad[u, c] over the transposed edges: the sum of both terms.
extern "C" __global__ void input_back(BACK_PARAMETERS, uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    const Group group = group_of(lanes);
    const uint64_t chunks = (cols + lanes - 1) / lanes;
    for (uint64_t item = group.index; item < rows * chunks; item += group.count) {
        const uint64_t u = item / chunks;
        const uint64_t c = (item - u * chunks) * lanes + group.lane;
        const Entries run = entries_of(edges, u);
        if (c < cols && run.edges < long_from) {
            const float sum = sum_of_used(edges, run, u, 0, run.all, used, heads, grad, cols, c);
            x_grad[u * cols + c] = sum + of_scores(u, num_own, heads, c, by_source, source, by_target, target);
        }
    }
}

// The long rows.
extern "C" __global__ void __launch_bounds__(LONG_THREADS) input_back_long(BACK_PARAMETERS, LISTED) {
    __shared__ float room[LONG_THREADS];
    const Edges edges = EDGES_OF;
    const Group group = group_of(lanes);
    const uint64_t chunks = (cols + lanes - 1) / lanes;
    for (uint64_t item = blockIdx.x; item < *long_count * chunks; item += gridDim.x) {
        const uint64_t u = long_rows[item / chunks];
        const uint64_t c = item % chunks * lanes + group.lane;
        const Entries run = entries_of(edges, u);
        const Share share = share_of_group(group, 0, run.all);
        Values<1> sum = zeros<1>();
        if (c < cols) {
            sum.at[0] = sum_of_used(edges, run, u, share.from, share.to, used, heads, grad, cols, c);
        }
        sum = sum_of_groups(group, sum, room);
        if (threadIdx.x < lanes && c < cols) {
            x_grad[u * cols + c] = sum.at[0] + of_scores(u, num_own, heads, c, by_source, source, by_target, target);
        }
    }
}
