// Bias, activation and dropout after a product, and their gradients; column sums.
#include "columns.cuh"

// Numbers of graphmill_nn::backend::Activation.
#define IDENTITY 0
#define RELU 1
#define ELU 2
#define LEAKY_RELU 3

static __device__ inline float activate(uint32_t activation, float x) {
    // this form preserves NaN
    if (activation == IDENTITY || x > 0.0f) {
        return x;
    }
    if (activation == RELU) {
        return x <= 0.0f ? 0.0f : x;
    }
    return activation == ELU ? expm1f(x) : 0.01f * x;
}

// Derivative at output y.
static __device__ inline float slope_at(uint32_t activation, float y) {
    if (activation == IDENTITY || y > 0.0f) {
        return 1.0f;
    }
    if (activation == RELU) {
        return 0.0f;
    }
    return activation == ELU ? y + 1.0f : 0.01f;
}

// x = dropout(activation(x + bias)); bias may be null.
template <int V>
static __device__ inline void epilogue(float* x, uint64_t rows, uint64_t cols, const float* bias, uint32_t activation,
                                       const Mask& mask, uint32_t lanes) {
    const Group group = group_of(lanes);
    for (uint64_t r = group.index; r < rows; r += group.count) {
        const uint32_t key = mask.threshold != 0 ? row_key(mask.key, r) : 0;
        for (uint64_t c = group.lane * V; c < cols; c += (uint64_t)lanes * V) {
            Values<V> y = read<V>(x + r * cols + c);
            if (bias != nullptr) {
                add(y, 1.0f, load<V>(bias + c));
            }
            for (int i = 0; i < V; i++) {
                y.at[i] = activate(activation, y.at[i]);
                if (mask.threshold != 0) {
                    const bool dropped = mask_hash(key, (uint32_t)(c + i)) < mask.threshold;
                    y.at[i] = dropped ? 0.0f : y.at[i] * mask.scale;
                }
            }
            store(x + r * cols + c, y);
        }
    }
}

extern "C" __global__ void epilogue_forward(float* x, uint64_t rows, uint64_t cols, const float* bias, uint32_t activation,
                                            uint64_t key, uint32_t threshold, float scale, uint32_t lanes,
                                            const uint64_t* late) {
    epilogue<1>(x, rows, cols, bias, activation, Mask{late_word(late, 0, key), threshold, scale}, lanes);
}
extern "C" __global__ void epilogue_forward_4(float* x, uint64_t rows, uint64_t cols, const float* bias, uint32_t activation,
                                              uint64_t key, uint32_t threshold, float scale, uint32_t lanes,
                                              const uint64_t* late) {
    epilogue<4>(x, rows, cols, bias, activation, Mask{late_word(late, 0, key), threshold, scale}, lanes);
}

// Gradient of the element at (r, c), for a row with that key.
static __device__ inline float gradient_at(float grad, float y, uint32_t activation, const Mask& mask, uint32_t key, uint64_t c) {
    if (mask.threshold == 0) {
        return grad * slope_at(activation, y);
    }
    const bool dropped = mask_hash(key, (uint32_t)c) < mask.threshold;
    return dropped ? 0.0f : grad * mask.scale * slope_at(activation, y / mask.scale);
}

template <int V>
static __device__ inline void epilogue_back(const float* y, float* grad, uint64_t rows, uint64_t cols, uint32_t activation,
                                            const Mask& mask, uint32_t lanes) {
    const Group group = group_of(lanes);
    for (uint64_t r = group.index; r < rows; r += group.count) {
        const uint32_t key = mask.threshold != 0 ? row_key(mask.key, r) : 0;
        for (uint64_t c = group.lane * V; c < cols; c += (uint64_t)lanes * V) {
            const uint64_t at = r * cols + c;
            Values<V> g = read<V>(grad + at);
            const Values<V> output = load<V>(y + at);
            for (int i = 0; i < V; i++) {
                g.at[i] = gradient_at(g.at[i], output.at[i], activation, mask, key, c + i);
            }
            store(grad + at, g);
        }
    }
}

extern "C" __global__ void epilogue_backward(const float* y, float* grad, uint64_t rows, uint64_t cols, uint32_t activation,
                                             uint64_t key, uint32_t threshold, float scale, uint32_t lanes,
                                             const uint64_t* late) {
    epilogue_back<1>(y, grad, rows, cols, activation, Mask{late_word(late, 0, key), threshold, scale}, lanes);
}
extern "C" __global__ void epilogue_backward_4(const float* y, float* grad, uint64_t rows, uint64_t cols, uint32_t activation,
                                               uint64_t key, uint32_t threshold, float scale, uint32_t lanes,
                                               const uint64_t* late) {
    epilogue_back<4>(y, grad, rows, cols, activation, Mask{late_word(late, 0, key), threshold, scale}, lanes);
}

// The same, with the first stage of the result's column sums.
extern "C" __global__ void epilogue_backward_sums(const float* y, float* grad, uint64_t rows, uint64_t cols, uint32_t activation,
                                                  uint64_t key, uint32_t threshold, float scale, double* partial,
                                                  const uint64_t* late) {
    key = late_word(late, 0, key);
    const Mask mask = {key, threshold, scale};
    sum_columns<1>(rows, cols, partial, [=](uint64_t r, uint64_t c, double* sums) {
        const uint32_t of_row = threshold != 0 ? row_key(key, r) : 0;
        const uint64_t at = r * cols + c;
        const float g = gradient_at(grad[at], __ldg(y + at), activation, mask, of_row, c);
        grad[at] = g;
        sums[0] += (double)g;
    });
}

// Distribution P(X <= x) and density at x of a standard normal X: Abramowitz and Stegun, Handbook of
// mathematical functions, 26.2.17.
struct Normal {
    float below;
    float density;
};

static __device__ inline Normal normal_at(float x) {
    const float t = 1.0f / (1.0f + 0.2316419f * fabsf(x));
    const float series = (((1.3302745f * t - 1.8212559f) * t + 1.7814779f) * t - 0.35656378f) * t + 0.31938153f;
    const float density = 0.3989423f * expf(-0.5f * x * x);
    const float tail = series * t * density;
    return {x > 0.0f ? 1.0f - tail : tail, density};
}

// out = x P(X <= x)
extern "C" __global__ void gelu_forward(const float* x, uint64_t count, float* out) {
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        const float value = __ldg(x + i);
        out[i] = value * normal_at(value).below;
    }
}

// Gradient from the input x, in place.
extern "C" __global__ void gelu_backward(const float* x, uint64_t count, float* grad) {
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        const float value = __ldg(x + i);
        const Normal normal = normal_at(value);
        grad[i] *= normal.below + value * normal.density;
    }
}

// First stage of the column sums of x.
extern "C" __global__ void columns_values(const float* x, uint64_t rows, uint64_t cols, double* partial) {
    sum_columns<1>(rows, cols, partial,
                   [=](uint64_t r, uint64_t c, double* sums) { sums[0] += (double)__ldg(x + r * cols + c); });
}

// Second stage, of `runs` sums of `width` columns each: the sums of the first `cols` columns,
// divided by `count`, go to `out`, the others to `rest`; if `keeps`, they are added to the old
// values. Blocks of 256 threads, of 32 columns.
extern "C" __global__ void columns_total(const double* partial, uint64_t runs, uint64_t width, uint64_t cols, uint64_t count,
                                         uint32_t keeps, float* out, float* rest) {
    __shared__ double room[COLUMN_WARPS][COLUMNS];
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = threadIdx.x / 32;
    const uint64_t column = (uint64_t)blockIdx.x * COLUMNS + lane;
    double sum = 0.0;
    if (column < width) {
#pragma unroll 4
        for (uint64_t run = warp; run < runs; run += COLUMN_WARPS) {
            sum += __ldg(partial + run * width + column);
        }
    }
    room[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && column < width) {
        double total = 0.0;
        for (int w = 0; w < COLUMN_WARPS; w++) {
            total += room[w][lane];
        }
        float* to = column < cols ? out + column : rest + (column - cols);
        total /= (double)count;
        *to = (float)(keeps != 0 ? (double)*to + total : total);
    }
}
