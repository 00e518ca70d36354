// Aggregation over the edges of a block: weighted sums and maxima of rows, and their gradients.
//
// A group of lanes computes some columns of one row, V columns per lane. It reads the row's edges
// `lanes` at a time, coalesced, distributes them by shuffles, and loads the rows of four edges
// concurrently. Rows of many edges are left to a second kernel, whose blocks share one row's edges
// (long_rows.cuh).
#include "long_rows.cuh"

// Coefficients of a weighted sum, except those of own rows.
struct Coefficients {
    // Position of each edge's weight, or null if it is the edge's own position.
    const uint32_t* position;
    // Weight by edge, or null for 1.
    const float* of_edge;
    // Weight by source row, or null for 1.
    const float* of_source;
};

static __device__ inline float coefficient(const Coefficients& by, uint32_t at, uint32_t row) {
    float weight = 1.0f;
    if (by.of_edge != nullptr) {
        weight = __ldg(by.of_edge + (by.position != nullptr ? __ldg(by.position + at) : at));
    }
    return by.of_source != nullptr ? weight * __ldg(by.of_source + row) : weight;
}

// Adds the rows of four edges, from the lanes' j-th on, to a sum, with four concurrent loads. With
// `LAST`, only edges below `count` are added; beyond them, the last row is loaded again and not
// added.
template <int V, bool WEIGHTED, bool LAST, typename T>
static __device__ inline void sum_round(const Group& group, Values<V>& sum, uint32_t row, float weight, uint32_t j, uint32_t count,
                                        const T* column, uint64_t cols, bool inside) {
    uint32_t rows[4];
    float weights[4];
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t at = LAST ? min(j + i, count - 1) : j + i;
        rows[i] = from_lane(group, row, at);
        weights[i] = WEIGHTED ? from_lane(group, weight, at) : 1.0f;
    }
    if (inside) {
        Values<V> x[4];
        for (uint32_t i = 0; i < 4; i++) {
            x[i] = load<V>(column + rows[i] * cols);
        }
        for (uint32_t i = 0; i < 4; i++) {
            if (!LAST || j + i < count) {
                add(sum, weights[i], x[i]);
            }
        }
    }
}

// Weighted sum of V columns of the rows named by the edges begin..end. Lanes that are not `inside`
// do not read rows.
template <int V, bool WEIGHTED, typename T>
static __device__ inline Values<V> sum_edges(const Group& group, uint32_t begin, uint32_t end, const uint32_t* indices,
                                             const Coefficients& by, const T* column, uint64_t cols, bool inside) {
    Values<V> sum = zeros<V>();
    for (uint32_t first = begin; first < end; first += group.lanes) {
        const uint32_t at = first + group.lane;
        const uint32_t row = at < end ? __ldg(indices + at) : 0;
        const float weight = WEIGHTED && at < end ? coefficient(by, at, row) : 1.0f;
        const uint32_t count = min(group.lanes, end - first);
        uint32_t j = 0;
        for (; j + 4 <= count; j += 4) {
            sum_round<V, WEIGHTED, false>(group, sum, row, weight, j, count, column, cols, inside);
        }
        if (j < count) {
            sum_round<V, WEIGHTED, true>(group, sum, row, weight, j, count, column, cols, inside);
        }
    }
    return sum;
}

template <int V, typename T>
static __device__ inline Values<V> sum_edges(const Group& group, uint32_t begin, uint32_t end, const uint32_t* indices,
                                             const Coefficients& by, const T* column, uint64_t cols, bool inside) {
    if (by.of_edge != nullptr || by.of_source != nullptr) {
        return sum_edges<V, true>(group, begin, end, indices, by, column, cols, inside);
    }
    return sum_edges<V, false>(group, begin, end, indices, by, column, cols, inside);
}

// Factor of a row's sum, and its own row.
struct Finish {
    // 1 if the sum becomes a mean.
    uint32_t mean;
    // Factor of each row's sum, or null.
    const float* of_row;
    // Source row of each row, or null if it has the same number.
    const uint32_t* own_rows;
    // Number of rows with an own row.
    uint64_t num_own;
    // Weight of each row's own row; if null, the constant plus the value at `own_shared`, if that
    // is not null.
    const float* own_weight;
    float own_constant;
    const float* own_shared;
};

template <int V, typename T>
static __device__ inline void finish_row(const Finish& finish, uint64_t v, uint32_t edges, Values<V> sum, const T* column,
                                         uint64_t cols, float beta, float* to) {
    float scale = finish.mean != 0 && edges > 0 ? 1.0f / (float)edges : 1.0f;
    if (finish.of_row != nullptr) {
        scale *= __ldg(finish.of_row + v);
    }
    for (int i = 0; i < V; i++) {
        sum.at[i] *= scale;
    }
    if (v < finish.num_own) {
        float own = finish.own_weight != nullptr ? __ldg(finish.own_weight + v) : finish.own_constant;
        if (finish.own_shared != nullptr) {
            own += __ldg(finish.own_shared);
        }
        if (own != 0.0f) {
            const uint64_t row = finish.own_rows != nullptr ? __ldg(finish.own_rows + v) : v;
            add(sum, own, load<V>(column + row * cols));
        }
    }
    store_onto(to, beta, sum);
}

template <int V, typename T>
static __device__ inline void aggregate_rows(const uint32_t* indptr, const uint32_t* indices, const Coefficients& by,
                                             const Finish& finish, const T* src, uint64_t cols, uint64_t first, float beta,
                                             float* dst, uint32_t lanes, uint64_t rows, uint32_t long_from) {
    const Group group = group_of(lanes);
    const uint64_t width = (uint64_t)lanes * V;
    const uint64_t chunks = (cols - first + width - 1) / width;
    for (uint64_t item = group.index; item < rows * chunks; item += group.count) {
        const uint64_t v = item / chunks;
        const uint64_t at = first + (item - v * chunks) * width + group.lane * V;
        const uint32_t begin = __ldg(indptr + v);
        const uint32_t end = __ldg(indptr + v + 1);
        if (end - begin >= long_from) {
            continue;
        }
        const bool inside = at < cols;
        const Values<V> sum = sum_edges<V>(group, begin, end, indices, by, src + at, cols, inside);
        if (inside) {
            finish_row(finish, v, end - begin, sum, src + at, cols, beta, dst + v * cols + at);
        }
    }
}

// The long rows: groups sum runs of the edges, which are added in order.
template <int V, typename T>
static __device__ inline void aggregate_long(const uint32_t* indptr, const uint32_t* indices, const Coefficients& by,
                                             const Finish& finish, const T* src, uint64_t cols, uint64_t first, float beta,
                                             float* dst, uint32_t lanes, LISTED, float* room) {
    const Group group = group_of(lanes);
    const uint64_t width = (uint64_t)lanes * V;
    const uint64_t chunks = (cols - first + width - 1) / width;
    for (uint64_t item = blockIdx.x; item < *long_count * chunks; item += gridDim.x) {
        const uint64_t v = long_rows[item / chunks];
        const uint64_t at = first + item % chunks * width + group.lane * V;
        const uint32_t begin = __ldg(indptr + v);
        const uint32_t end = __ldg(indptr + v + 1);
        const Share share = share_of_group(group, begin, end);
        const bool inside = at < cols;
        Values<V> sum = sum_edges<V>(group, share.from, share.to, indices, by, src + at, cols, inside);
        sum = sum_of_groups(group, sum, room);
        if (threadIdx.x < lanes && inside) {
            finish_row(finish, v, end - begin, sum, src + at, cols, beta, dst + v * cols + at);
        }
    }
}

// The parameters up to `own_shared` are those of Coefficients and Finish; computes columns
// `first..cols` of the rows of `dst`.
#define AGGREGATE_PARAMETERS(type) \
    const uint32_t *indptr, const uint32_t *indices, const uint32_t *position, const float *of_edge, const float *of_source, \
        uint32_t mean, const float *of_row, const uint32_t *own_rows, uint64_t num_own, const float *own_weight, \
        float own_constant, const float *own_shared, const type *src, uint64_t cols, uint64_t first, float beta, float *dst, uint32_t lanes
// Rows of fewer than `long_from` edges.
#define AGGREGATE_ROWS(V) \
    const Coefficients by = {position, of_edge, of_source}; \
    const Finish finish = {mean, of_row, own_rows, num_own, own_weight, own_constant, own_shared}; \
    aggregate_rows<V>(indptr, indices, by, finish, src, cols, first, beta, dst, lanes, rows, long_from)
#define ROWS uint64_t rows, uint32_t long_from
// The long rows.
#define AGGREGATE_LONG(V) \
    __shared__ float room[LONG_THREADS * V]; \
    const Coefficients by = {position, of_edge, of_source}; \
    const Finish finish = {mean, of_row, own_rows, num_own, own_weight, own_constant, own_shared}; \
    aggregate_long<V>(indptr, indices, by, finish, src, cols, first, beta, dst, lanes, long_count, long_rows, room)

extern "C" __global__ void aggregate_f32(AGGREGATE_PARAMETERS(float), ROWS) {
    AGGREGATE_ROWS(1);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) aggregate_f32_long(AGGREGATE_PARAMETERS(float), LISTED) {
    AGGREGATE_LONG(1);
}
extern "C" __global__ void aggregate_f32_4(AGGREGATE_PARAMETERS(float), ROWS) {
    AGGREGATE_ROWS(4);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) aggregate_f32_4_long(AGGREGATE_PARAMETERS(float), LISTED) {
    AGGREGATE_LONG(4);
}
extern "C" __global__ void aggregate_f16(AGGREGATE_PARAMETERS(Half), ROWS) {
    AGGREGATE_ROWS(1);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) aggregate_f16_long(AGGREGATE_PARAMETERS(Half), LISTED) {
    AGGREGATE_LONG(1);
}
extern "C" __global__ void aggregate_f16_4(AGGREGATE_PARAMETERS(Half), ROWS) {
    AGGREGATE_ROWS(4);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) aggregate_f16_4_long(AGGREGATE_PARAMETERS(Half), LISTED) {
    AGGREGATE_LONG(4);
}
extern "C" __global__ void aggregate_bf16(AGGREGATE_PARAMETERS(Bfloat), ROWS) {
    AGGREGATE_ROWS(1);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) aggregate_bf16_long(AGGREGATE_PARAMETERS(Bfloat), LISTED) {
    AGGREGATE_LONG(1);
}
extern "C" __global__ void aggregate_bf16_4(AGGREGATE_PARAMETERS(Bfloat), ROWS) {
    AGGREGATE_ROWS(4);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) aggregate_bf16_4_long(AGGREGATE_PARAMETERS(Bfloat), LISTED) {
    AGGREGATE_LONG(4);
}

// scales[v] = 1 / max(edges of v, 1) if `weight` is null, else 1 / max(the sum of their weights,
// 1).
extern "C" __global__ void aggregate_scales(const uint32_t* indptr, const float* weight, uint64_t rows, uint32_t lanes,
                                            float* scales) {
    const Group group = group_of(lanes);
    for (uint64_t v = group.index; v < rows; v += group.count) {
        const uint32_t begin = __ldg(indptr + v);
        const uint32_t end = __ldg(indptr + v + 1);
        float sum = 0.0f;
        for (uint32_t e = begin + group.lane; weight != nullptr && e < end; e += lanes) {
            sum += __ldg(weight + e);
        }
        sum = group_sum(group, sum);
        if (group.lane == 0) {
            scales[v] = 1.0f / (weight != nullptr ? fmaxf(sum, 1.0f) : (float)max(end - begin, 1u));
        }
    }
}

// Copies the columns before `first` from the rows' own rows in src to dst; 0 for rows without an
// own row.
extern "C" __global__ void aggregate_keep(const uint32_t* own_rows, uint64_t num_own, const float* src, uint64_t cols,
                                          uint64_t first, float* dst, uint64_t rows) {
    const Group group = group_of(32);
    for (uint64_t v = group.index; v < rows; v += group.count) {
        const uint64_t row = own_rows != nullptr ? __ldg(own_rows + v) : v;
        for (uint64_t c = group.lane; c < first; c += 32) {
            dst[v * cols + c] = v < num_own ? __ldg(src + row * cols + c) : 0.0f;
        }
    }
}

// Maxima of V columns of rows, and the edges that attain them.
template <int V> struct Maximum {
    Values<V> best;
    uint32_t winner[V];
};

// Maxima over the edges from..to and the edge `begin`, which comes first: the first among equals.
template <int V>
static __device__ inline Maximum<V> maximum_of(const uint32_t* indices, const float* column, uint64_t cols, uint32_t begin,
                                               uint32_t from, uint32_t to) {
    Maximum<V> most;
    most.best = load<V>(column + (uint64_t)__ldg(indices + begin) * cols);
    for (int i = 0; i < V; i++) {
        most.winner[i] = begin;
    }
    for (uint32_t first = from; first < to; first += 4) {
        // beyond the last edge, that edge is read again and cannot exceed itself
        Values<V> x[4];
        for (uint32_t j = 0; j < 4; j++) {
            x[j] = load<V>(column + (uint64_t)__ldg(indices + min(first + j, to - 1)) * cols);
        }
        for (uint32_t j = 0; j < 4; j++) {
            for (int i = 0; i < V; i++) {
                if (x[j].at[i] > most.best.at[i]) {
                    most.best.at[i] = x[j].at[i];
                    most.winner[i] = min(first + j, to - 1);
                }
            }
        }
    }
    return most;
}

template <int V> static __device__ inline void store_maximum(float* dst, uint32_t* arg, const Maximum<V>& most) {
    store(dst, most.best);
    for (int i = 0; i < V; i++) {
        arg[i] = most.winner[i];
    }
}

// Maxima over the edges; arg receives the position of the first edge that attains each, or 2^32 -
// 1. Skips rows of `long_from` edges or more.
template <int V>
static __device__ inline void maximum_rows(const uint32_t* indptr, const uint32_t* indices, const float* src, uint64_t cols,
                                           float* dst, uint32_t* arg, uint32_t lanes, uint64_t rows, uint32_t long_from) {
    const Group group = group_of(lanes);
    const uint64_t width = (uint64_t)lanes * V;
    const uint64_t chunks = (cols + width - 1) / width;
    for (uint64_t item = group.index; item < rows * chunks; item += group.count) {
        const uint64_t v = item / chunks;
        const uint64_t at = (item - v * chunks) * width + group.lane * V;
        const uint32_t begin = __ldg(indptr + v);
        const uint32_t end = __ldg(indptr + v + 1);
        if (at >= cols || end - begin >= long_from) {
            continue;
        }
        Maximum<V> most;
        if (begin < end) {
            most = maximum_of<V>(indices, src + at, cols, begin, begin, end);
        } else {
            most.best = zeros<V>();
            for (int i = 0; i < V; i++) {
                most.winner[i] = 0xffffffffu;
            }
        }
        store_maximum(dst + v * cols + at, arg + v * cols + at, most);
    }
}

// The long rows.
template <int V>
static __device__ inline void maximum_long(const uint32_t* indptr, const uint32_t* indices, const float* src, uint64_t cols,
                                           float* dst, uint32_t* arg, uint32_t lanes, LISTED, Maximum<V>* room) {
    const Group group = group_of(lanes);
    const uint64_t width = (uint64_t)lanes * V;
    const uint64_t chunks = (cols + width - 1) / width;
    for (uint64_t item = blockIdx.x; item < *long_count * chunks; item += gridDim.x) {
        const uint64_t v = long_rows[item / chunks];
        const uint64_t at = item % chunks * width + group.lane * V;
        const uint32_t begin = __ldg(indptr + v);
        const Share share = share_of_group(group, begin, __ldg(indptr + v + 1));
        Maximum<V> most;
        if (at < cols) {
            most = maximum_of<V>(indices, src + at, cols, begin, share.from, share.to);
            room[threadIdx.x] = most;
        }
        __syncthreads();
        if (threadIdx.x < lanes && at < cols) {
            for (uint32_t other = threadIdx.x + lanes; other < LONG_THREADS; other += lanes) {
                for (int i = 0; i < V; i++) {
                    if (room[other].best.at[i] > most.best.at[i]) {
                        most.best.at[i] = room[other].best.at[i];
                        most.winner[i] = room[other].winner[i];
                    }
                }
            }
            store_maximum(dst + v * cols + at, arg + v * cols + at, most);
        }
        __syncthreads();
    }
}

#define MAXIMUM_PARAMETERS \
    const uint32_t *indptr, const uint32_t *indices, const float *src, uint64_t cols, float *dst, uint32_t *arg, uint32_t lanes

extern "C" __global__ void aggregate_max(MAXIMUM_PARAMETERS, uint64_t rows, uint32_t long_from) {
    maximum_rows<1>(indptr, indices, src, cols, dst, arg, lanes, rows, long_from);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) aggregate_max_long(MAXIMUM_PARAMETERS, LISTED) {
    __shared__ Maximum<1> room[LONG_THREADS];
    maximum_long<1>(indptr, indices, src, cols, dst, arg, lanes, long_count, long_rows, room);
}
extern "C" __global__ void aggregate_max_4(MAXIMUM_PARAMETERS, uint64_t rows, uint32_t long_from) {
    maximum_rows<4>(indptr, indices, src, cols, dst, arg, lanes, rows, long_from);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) aggregate_max_4_long(MAXIMUM_PARAMETERS, LISTED) {
    __shared__ Maximum<4> room[LONG_THREADS];
    maximum_long<4>(indptr, indices, src, cols, dst, arg, lanes, long_count, long_rows, room);
}

// Sum of grad[v] over the transposed edges from..to that attained the maximum, for one column.
static __device__ inline float sum_of_won(const uint32_t* dst, const uint32_t* edge, const uint32_t* arg, const float* grad,
                                          uint64_t cols, uint64_t at, uint32_t from, uint32_t to) {
    float sum = 0.0f;
    for (uint32_t first = from; first < to; first += 4) {
        uint64_t place[4];
        bool won[4];
        float gain[4];
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t k = min(first + j, to - 1);
            place[j] = (uint64_t)__ldg(dst + k) * cols + at;
            won[j] = __ldg(arg + place[j]) == __ldg(edge + k) && first + j < to;
        }
        for (uint32_t j = 0; j < 4; j++) {
            gain[j] = won[j] ? __ldg(grad + place[j]) : 0.0f;
        }
        for (uint32_t j = 0; j < 4; j++) {
            if (won[j]) {
                sum += gain[j];
            }
        }
    }
    return sum;
}

#define MAXIMUM_BACK_PARAMETERS \
    const uint32_t *indptr, const uint32_t *dst, const uint32_t *edge, const uint32_t *arg, const float *grad, uint64_t cols, \
        float *out, uint32_t lanes

// out[u] = the sum of grad[v] over the edges e = (u, v) that attained the maximum; the transposed
// edge runs are `indptr`, `dst` and `edge`. Skips rows of `long_from` edges or more.
extern "C" __global__ void aggregate_max_back(MAXIMUM_BACK_PARAMETERS, uint64_t rows, uint32_t long_from) {
    const Group group = group_of(lanes);
    const uint64_t chunks = (cols + lanes - 1) / lanes;
    for (uint64_t item = group.index; item < rows * chunks; item += group.count) {
        const uint64_t u = item / chunks;
        const uint64_t at = (item - u * chunks) * lanes + group.lane;
        const uint32_t begin = __ldg(indptr + u);
        const uint32_t end = __ldg(indptr + u + 1);
        if (at < cols && end - begin < long_from) {
            out[u * cols + at] = sum_of_won(dst, edge, arg, grad, cols, at, begin, end);
        }
    }
}

// The long rows.
extern "C" __global__ void __launch_bounds__(LONG_THREADS) aggregate_max_back_long(MAXIMUM_BACK_PARAMETERS, LISTED) {
    __shared__ float room[LONG_THREADS];
    const Group group = group_of(lanes);
    const uint64_t chunks = (cols + lanes - 1) / lanes;
    for (uint64_t item = blockIdx.x; item < *long_count * chunks; item += gridDim.x) {
        const uint64_t u = long_rows[item / chunks];
        const uint64_t at = item % chunks * lanes + group.lane;
        const Share share = share_of_group(group, __ldg(indptr + u), __ldg(indptr + u + 1));
        Values<1> sum = zeros<1>();
        if (at < cols) {
            sum.at[0] = sum_of_won(dst, edge, arg, grad, cols, at, share.from, share.to);
        }
        sum = sum_of_groups(group, sum, room);
        if (threadIdx.x < lanes && at < cols) {
            out[u * cols + at] = sum.at[0];
        }
    }
}
