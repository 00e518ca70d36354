// Sums over edges of functions of the sources' rows and the edges' rows (GINE, edge gates), and
// their gradients. Rows of edges may be null if there are none.
#include "edge_sum.cuh"

// ---------------------------------------------------------------- rows of edges

// out[v, c] = the sum over v's entries of values[entry, c], plus the old value if `onto`
#define ROWS_PARAMETERS EDGES, const float *values, uint32_t onto, float *out, uint64_t cols, uint32_t lanes
#define ROWS_TERM [=](Entry entry, uint64_t, uint64_t c) { return __ldg(values + entry.at * cols + c); }

extern "C" __global__ void sum_edge_rows(ROWS_PARAMETERS, uint64_t rows, uint32_t long_from) {
    SUM_ROWS(onto, out, ROWS_TERM);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) sum_edge_rows_long(ROWS_PARAMETERS, LISTED) {
    SUM_ROWS_LONG(onto, out, ROWS_TERM);
}

// ---------------------------------------------------------------- rectified sums

// out[v, c] = the sum over v's edges of relu(x[u, c] + edge[e, c])
#define RELU_PARAMETERS EDGES, const float *x, const float *edge, float *out, uint64_t cols, uint32_t lanes
#define RELU_TERM \
    [=](Entry entry, uint64_t, uint64_t c) { \
        return fmaxf(__ldg(x + entry.row * cols + c) + __ldg(edge + entry.at * cols + c), 0.0f); \
    }

extern "C" __global__ void relu_sum(RELU_PARAMETERS, uint64_t rows, uint32_t long_from) { SUM_ROWS(0, out, RELU_TERM); }
extern "C" __global__ void __launch_bounds__(LONG_THREADS) relu_sum_long(RELU_PARAMETERS, LISTED) {
    SUM_ROWS_LONG(0, out, RELU_TERM);
}

// edge_grad[e, c] = grad[v, c] where the edge's term is positive
#define RELU_BACK_PARAMETERS \
    EDGES, const float *x, const float *edge, const float *grad, float *edge_grad, uint64_t cols, uint32_t lanes
#define RELU_BACK_TERM \
    [=](Entry entry, uint64_t v, uint64_t c) { \
        const float z = __ldg(x + entry.row * cols + c) + __ldg(edge + entry.at * cols + c); \
        edge_grad[entry.at * cols + c] = z > 0.0f ? __ldg(grad + v * cols + c) : 0.0f; \
        return 0.0f; \
    }

extern "C" __global__ void relu_sum_back(RELU_BACK_PARAMETERS, uint64_t rows, uint32_t long_from) {
    SUM_ROWS(0, nullptr, RELU_BACK_TERM);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) relu_sum_back_long(RELU_BACK_PARAMETERS, LISTED) {
    SUM_ROWS_LONG(0, nullptr, RELU_BACK_TERM);
}

// ---------------------------------------------------------------- gated sums

// Gate and gated value of an edge in one column.
struct GatedValue {
    float gate;
    float value;
};

#define GATED EDGES, const float *target, const float *source, const float *value, const float *edge_gate, const float *edge_value
#define GATED_AT(entry, v, c) gated_at(target, source, value, edge_gate, edge_value, cols, entry, v, c)

static __device__ inline GatedValue gated_at(const float* target, const float* source, const float* value, const float* edge_gate,
                                             const float* edge_value, uint64_t cols, Entry entry, uint64_t v, uint64_t c) {
    float z = __ldg(target + v * cols + c) + __ldg(source + entry.row * cols + c);
    float of_value = __ldg(value + entry.row * cols + c);
    if (edge_gate != nullptr) {
        z += __ldg(edge_gate + entry.at * cols + c);
        of_value += __ldg(edge_value + entry.at * cols + c);
    }
    return {1.0f / (1.0f + expf(-z)), of_value};
}

// out[v, c] = the sum over v's edges of gate times value
#define GATED_PARAMETERS GATED, float *out, uint64_t cols, uint32_t lanes
#define GATED_TERM \
    [=](Entry entry, uint64_t v, uint64_t c) { \
        const GatedValue of = GATED_AT(entry, v, c); \
        return of.gate * of.value; \
    }

extern "C" __global__ void gated_sum(GATED_PARAMETERS, uint64_t rows, uint32_t long_from) { SUM_ROWS(0, out, GATED_TERM); }
extern "C" __global__ void __launch_bounds__(LONG_THREADS) gated_sum_long(GATED_PARAMETERS, LISTED) {
    SUM_ROWS_LONG(0, out, GATED_TERM);
}

// Gradients of each edge's gate and value; those of a row's gates are summed into target_grad.
#define GATED_BACK_PARAMETERS \
    GATED, const float *grad, float *gate_grad, float *value_grad, float *target_grad, uint64_t cols, uint32_t lanes
#define GATED_BACK_TERM \
    [=](Entry entry, uint64_t v, uint64_t c) { \
        const GatedValue of = GATED_AT(entry, v, c); \
        const float g = __ldg(grad + v * cols + c); \
        const float of_gate = g * of.value * of.gate * (1.0f - of.gate); \
        gate_grad[entry.at * cols + c] = of_gate; \
        value_grad[entry.at * cols + c] = g * of.gate; \
        return of_gate; \
    }

extern "C" __global__ void gated_sum_back(GATED_BACK_PARAMETERS, uint64_t rows, uint32_t long_from) {
    SUM_ROWS(0, target_grad, GATED_BACK_TERM);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) gated_sum_back_long(GATED_BACK_PARAMETERS, LISTED) {
    SUM_ROWS_LONG(0, target_grad, GATED_BACK_TERM);
}
