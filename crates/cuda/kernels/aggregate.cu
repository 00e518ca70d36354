// Aggregation over the edges of a block: weighted sums and maxima of rows, and their gradients.
//
// A group of lanes makes some columns of one row: V of them a lane. It reads the row's edges `lanes` at a time, coalesced, hands
// them round by shuffles, and has the rows of four edges on their way at once. Rows of very many edges are listed by the first kernel
// and made by a second, whose blocks share one row's edges.
#include "warp.cuh"

// The coefficients of a weighted sum, apart from a row's own.
struct Coefficients {
    // Where an edge's weight is, if not at the edge's own position; or null.
    const uint32_t* position;
    // By edge, or null: 1.
    const float* of_edge;
    // By row that is read, or null: 1.
    const float* of_source;
};

static __device__ inline float coefficient(const Coefficients& by, uint32_t at, uint32_t row) {
    float weight = 1.0f;
    if (by.of_edge != nullptr) {
        weight = __ldg(by.of_edge + (by.position != nullptr ? __ldg(by.position + at) : at));
    }
    return by.of_source != nullptr ? weight * __ldg(by.of_source + row) : weight;
}

// The weighted sum of V columns of the rows that the edges begin..end name. Lanes that are not `inside` read no rows.
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
            uint32_t rows[4];
            float weights[4];
            for (int i = 0; i < 4; i++) {
                rows[i] = from_lane(group, row, j + i);
                weights[i] = WEIGHTED ? from_lane(group, weight, j + i) : 1.0f;
            }
            if (inside) {
                Values<V> x[4];
                for (int i = 0; i < 4; i++) {
                    x[i] = load<V>(column + rows[i] * cols);
                }
                for (int i = 0; i < 4; i++) {
                    add(sum, weights[i], x[i]);
                }
            }
        }
        for (; j < count; j++) {
            const uint32_t one = from_lane(group, row, j);
            const float its = WEIGHTED ? from_lane(group, weight, j) : 1.0f;
            if (inside) {
                add(sum, its, load<V>(column + one * cols));
            }
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

// What a row's sum is multiplied by, and its own row.
struct Finish {
    // 1: the sum becomes a mean.
    uint32_t mean;
    // Factor of each row's sum, or null.
    const float* of_row;
    // Source row of each row, or null: the row's own number.
    const uint32_t* own_rows;
    // How many rows have an own row.
    uint64_t num_own;
    // Weight of each row's own row; or null: the constant.
    const float* own_weight;
    float own_constant;
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
        const float own = finish.own_weight != nullptr ? __ldg(finish.own_weight + v) : finish.own_constant;
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
                                             float* dst, uint64_t rows, uint32_t lanes, uint32_t long_from,
                                             uint32_t* long_count, uint64_t* long_items) {
    const Group group = group_of(lanes);
    const uint64_t width = (uint64_t)lanes * V;
    const uint64_t chunks = (cols - first + width - 1) / width;
    for (uint64_t item = group.index; item < rows * chunks; item += group.count) {
        const uint64_t v = item / chunks;
        const uint64_t at = first + (item - v * chunks) * width + group.lane * V;
        const uint32_t begin = __ldg(indptr + v);
        const uint32_t end = __ldg(indptr + v + 1);
        if (end - begin >= long_from) {
            if (group.lane == 0) {
                long_items[atomicAdd(long_count, 1u)] = item;
            }
            continue;
        }
        const bool inside = at < cols;
        const Values<V> sum = sum_edges<V>(group, begin, end, indices, by, src + at, cols, inside);
        if (inside) {
            finish_row(finish, v, end - begin, sum, src + at, cols, beta, dst + v * cols + at);
        }
    }
}

// Threads of a block that share the edges of one row.
#define LONG_THREADS 512

// The items that the first kernel listed, a block each. Groups sum runs of the edges, which are added in their order.
template <int V, typename T>
static __device__ inline void aggregate_long(const uint32_t* indptr, const uint32_t* indices, const Coefficients& by,
                                             const Finish& finish, const T* src, uint64_t cols, uint64_t first, float beta,
                                             float* dst, uint32_t lanes, const uint32_t* long_count,
                                             const uint64_t* long_items, float* partial) {
    const Group group = group_of(lanes);
    const uint64_t width = (uint64_t)lanes * V;
    const uint64_t chunks = (cols - first + width - 1) / width;
    const uint32_t groups = LONG_THREADS / lanes;
    const uint32_t mine = threadIdx.x / lanes;
    for (uint32_t i = blockIdx.x; i < *long_count; i += gridDim.x) {
        const uint64_t item = long_items[i];
        const uint64_t v = item / chunks;
        const uint64_t at = first + (item - v * chunks) * width + group.lane * V;
        const uint32_t begin = __ldg(indptr + v);
        const uint32_t end = __ldg(indptr + v + 1);
        const uint32_t run = (end - begin + groups - 1) / groups;
        const uint32_t from = min(end, begin + mine * run);
        const uint32_t to = min(end, from + run);
        const bool inside = at < cols;
        Values<V> sum = sum_edges<V>(group, from, to, indices, by, src + at, cols, inside);
        for (int k = 0; k < V; k++) {
            partial[threadIdx.x * V + k] = sum.at[k];
        }
        __syncthreads();
        if (mine == 0 && inside) {
            for (uint32_t other = 1; other < groups; other++) {
                for (int k = 0; k < V; k++) {
                    sum.at[k] += partial[(other * lanes + group.lane) * V + k];
                }
            }
            finish_row(finish, v, end - begin, sum, src + at, cols, beta, dst + v * cols + at);
        }
        __syncthreads();
    }
}

// The parameters up to `own_constant` are those of Coefficients and Finish; columns `first..cols` of the rows of `dst` are made.
#define AGGREGATE_PARAMETERS(type) \
    const uint32_t *indptr, const uint32_t *indices, const uint32_t *position, const float *of_edge, const float *of_source, \
        uint32_t mean, const float *of_row, const uint32_t *own_rows, uint64_t num_own, const float *own_weight, \
        float own_constant, const type *src, uint64_t cols, uint64_t first, float beta, float *dst, uint32_t lanes
// Rows of fewer than `long_from` edges are made; the others' chunks are listed.
#define AGGREGATE_ROWS(V) \
    const Coefficients by = {position, of_edge, of_source}; \
    const Finish finish = {mean, of_row, own_rows, num_own, own_weight, own_constant}; \
    aggregate_rows<V>(indptr, indices, by, finish, src, cols, first, beta, dst, rows, lanes, long_from, long_count, long_items)
#define ROWS uint64_t rows, uint32_t long_from, uint32_t *long_count, uint64_t *long_items
// What was listed.
#define AGGREGATE_LONG(V) \
    __shared__ float partial[LONG_THREADS * V]; \
    const Coefficients by = {position, of_edge, of_source}; \
    const Finish finish = {mean, of_row, own_rows, num_own, own_weight, own_constant}; \
    aggregate_long<V>(indptr, indices, by, finish, src, cols, first, beta, dst, lanes, long_count, long_items, partial)
#define LISTED const uint32_t *long_count, const uint64_t *long_items

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

// scales[v] = 1 / max(edges of v, 1) where `weight` is null, else 1 / max(the sum of their weights, 1).
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

// The columns before `first` of dst become those of the rows' own rows of src; 0 where a row has none.
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

// Maxima over the edges; arg receives the first winning edge's position, or 2^32 - 1.
template <int V>
static __device__ inline void maximum_rows(const uint32_t* indptr, const uint32_t* indices, const float* src, uint64_t cols,
                                           float* dst, uint32_t* arg, uint64_t rows, uint32_t lanes) {
    const Group group = group_of(lanes);
    const uint64_t width = (uint64_t)lanes * V;
    const uint64_t chunks = (cols + width - 1) / width;
    for (uint64_t item = group.index; item < rows * chunks; item += group.count) {
        const uint64_t v = item / chunks;
        const uint64_t at = (item - v * chunks) * width + group.lane * V;
        const uint32_t begin = __ldg(indptr + v);
        const uint32_t end = __ldg(indptr + v + 1);
        if (at >= cols) {
            continue;
        }
        Values<V> best = zeros<V>();
        uint32_t winner[V];
        for (int i = 0; i < V; i++) {
            winner[i] = 0xffffffffu;
        }
        for (uint32_t first = begin; first < end; first += 4) {
            Values<V> x[4];
            for (uint32_t j = 0; j < 4; j++) {
                const uint32_t e = min(first + j, end - 1);
                x[j] = load<V>(src + (uint64_t)__ldg(indices + e) * cols + at);
            }
            for (uint32_t j = 0; j < 4; j++) {
                for (int i = 0; i < V; i++) {
                    if (winner[i] == 0xffffffffu || x[j].at[i] > best.at[i]) {
                        best.at[i] = x[j].at[i];
                        winner[i] = min(first + j, end - 1);
                    }
                }
            }
        }
        store(dst + v * cols + at, best);
        for (int i = 0; i < V; i++) {
            arg[v * cols + at + i] = winner[i];
        }
    }
}

extern "C" __global__ void aggregate_max(const uint32_t* indptr, const uint32_t* indices, const float* src, uint64_t cols,
                                         float* dst, uint32_t* arg, uint64_t rows, uint32_t lanes) {
    maximum_rows<1>(indptr, indices, src, cols, dst, arg, rows, lanes);
}
extern "C" __global__ void aggregate_max_4(const uint32_t* indptr, const uint32_t* indices, const float* src, uint64_t cols,
                                           float* dst, uint32_t* arg, uint64_t rows, uint32_t lanes) {
    maximum_rows<4>(indptr, indices, src, cols, dst, arg, rows, lanes);
}

// out[u] = the sum of grad[v] over the edges e = (u, v) where they won: the transposed edge runs are `indptr`, `dst` and `edge`.
extern "C" __global__ void aggregate_max_back(const uint32_t* indptr, const uint32_t* dst, const uint32_t* edge,
                                              const uint32_t* arg, const float* grad, uint64_t cols, float* out, uint64_t rows,
                                              uint32_t lanes) {
    const Group group = group_of(lanes);
    const uint64_t chunks = (cols + lanes - 1) / lanes;
    for (uint64_t item = group.index; item < rows * chunks; item += group.count) {
        const uint64_t u = item / chunks;
        const uint64_t at = (item - u * chunks) * lanes + group.lane;
        const uint32_t end = __ldg(indptr + u + 1);
        if (at >= cols) {
            continue;
        }
        float sum = 0.0f;
        for (uint32_t k = __ldg(indptr + u); k < end; k++) {
            const uint64_t from = (uint64_t)__ldg(dst + k) * cols + at;
            if (__ldg(arg + from) == __ldg(edge + k)) {
                sum += __ldg(grad + from);
            }
        }
        out[u * cols + at] = sum;
    }
}
