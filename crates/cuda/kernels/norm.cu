// Normalization of columns (batch norm) and of rows (layer norm, L2).
#include "columns.cuh"

// First stage of the sums of (x - mean)^2 of each column.
extern "C" __global__ void columns_squares(const float* x, uint64_t rows, uint64_t cols, const float* mean, double* partial) {
    sum_columns<1>(rows, cols, partial, [=](uint64_t r, uint64_t c, double* sums) {
        const double gap = (double)__ldg(x + r * cols + c) - (double)__ldg(mean + c);
        sums[0] += gap * gap;
    });
}

// First stage of the column sums of grad, and of grad times normalized x; stats is 2 x cols.
extern "C" __global__ void batch_norm_sums(const float* x, const float* grad, uint64_t rows, uint64_t cols, const float* stats,
                                           float eps, double* partial) {
    sum_columns<2>(rows, cols, partial, [=](uint64_t r, uint64_t c, double* sums) {
        const double g = (double)__ldg(grad + r * cols + c);
        const float inverse = 1.0f / sqrtf(__ldg(stats + cols + c) + eps);
        sums[0] += g;
        sums[1] += g * (double)((__ldg(x + r * cols + c) - __ldg(stats + c)) * inverse);
    });
}

// out = gamma (x - mean) / sqrt(variance + eps) + beta
extern "C" __global__ void batch_norm_apply(const float* x, uint64_t rows, uint64_t cols, const float* gamma, const float* beta,
                                            float eps, const float* stats, float* out, uint32_t lanes) {
    const Group group = group_of(lanes);
    for (uint64_t r = group.index; r < rows; r += group.count) {
        for (uint64_t c = group.lane; c < cols; c += lanes) {
            const float slope = __ldg(gamma + c) / sqrtf(__ldg(stats + cols + c) + eps);
            out[r * cols + c] = slope * (__ldg(x + r * cols + c) - __ldg(stats + c)) + __ldg(beta + c);
        }
    }
}

// The gradient, in place; sums is 2 x cols, from batch_norm_sums.
extern "C" __global__ void batch_norm_back(const float* x, uint64_t rows, uint64_t cols, const float* gamma, float eps,
                                           const float* stats, const float* sums, float* grad, uint32_t lanes) {
    const Group group = group_of(lanes);
    const float share = 1.0f / (float)rows;
    for (uint64_t r = group.index; r < rows; r += group.count) {
        for (uint64_t c = group.lane; c < cols; c += lanes) {
            const float inverse = 1.0f / sqrtf(__ldg(stats + cols + c) + eps);
            const float hat = (__ldg(x + r * cols + c) - __ldg(stats + c)) * inverse;
            const float common = (__ldg(sums + c) + hat * __ldg(sums + cols + c)) * share;
            grad[r * cols + c] = __ldg(gamma + c) * inverse * (grad[r * cols + c] - common);
        }
    }
}

// Normalizes each row; its mean and variance go to stats.
extern "C" __global__ void layer_norm_forward(const float* x, uint64_t rows, uint64_t cols, const float* gamma, const float* beta,
                                              float eps, float* stats, float* out) {
    const Group group = group_of(32);
    const float share = 1.0f / (float)cols;
    for (uint64_t r = group.index; r < rows; r += group.count) {
        const float* row = x + r * cols;
        float sum = 0.0f;
        for (uint64_t c = group.lane; c < cols; c += 32) {
            sum += __ldg(row + c);
        }
        const float mean = group_sum(group, sum) * share;
        float squares = 0.0f;
        for (uint64_t c = group.lane; c < cols; c += 32) {
            const float gap = __ldg(row + c) - mean;
            squares += gap * gap;
        }
        const float variance = group_sum(group, squares) * share;
        const float inverse = 1.0f / sqrtf(variance + eps);
        for (uint64_t c = group.lane; c < cols; c += 32) {
            out[r * cols + c] = __ldg(gamma + c) * (__ldg(row + c) - mean) * inverse + __ldg(beta + c);
        }
        if (group.lane == 0) {
            stats[2 * r] = mean;
            stats[2 * r + 1] = variance;
        }
    }
}

// First stage of the column sums of grad, and of grad times the normalized row; stats is rows x 2.
extern "C" __global__ void layer_norm_sums(const float* x, const float* grad, uint64_t rows, uint64_t cols, const float* stats,
                                           float eps, double* partial) {
    sum_columns<2>(rows, cols, partial, [=](uint64_t r, uint64_t c, double* sums) {
        const double g = (double)__ldg(grad + r * cols + c);
        const float inverse = 1.0f / sqrtf(__ldg(stats + 2 * r + 1) + eps);
        sums[0] += g;
        sums[1] += g * (double)((__ldg(x + r * cols + c) - __ldg(stats + 2 * r)) * inverse);
    });
}

// Gradient of each row, in place.
extern "C" __global__ void layer_norm_back(const float* x, uint64_t rows, uint64_t cols, const float* gamma, float eps,
                                           const float* stats, float* grad) {
    const Group group = group_of(32);
    const float share = 1.0f / (float)cols;
    for (uint64_t r = group.index; r < rows; r += group.count) {
        const float mean = __ldg(stats + 2 * r);
        const float inverse = 1.0f / sqrtf(__ldg(stats + 2 * r + 1) + eps);
        float sum = 0.0f;
        float dot = 0.0f;
        for (uint64_t c = group.lane; c < cols; c += 32) {
            const float scaled = grad[r * cols + c] * __ldg(gamma + c);
            sum += scaled;
            dot += scaled * ((__ldg(x + r * cols + c) - mean) * inverse);
        }
        sum = group_sum(group, sum);
        dot = group_sum(group, dot);
        for (uint64_t c = group.lane; c < cols; c += 32) {
            const float hat = (__ldg(x + r * cols + c) - mean) * inverse;
            const float scaled = grad[r * cols + c] * __ldg(gamma + c);
            grad[r * cols + c] = inverse * (scaled - (sum + hat * dot) * share);
        }
    }
}

// Divides each row by its length, which goes to norms.
extern "C" __global__ void l2_norm_forward(const float* x, uint64_t rows, uint64_t cols, float* norms, float* out) {
    const Group group = group_of(32);
    for (uint64_t r = group.index; r < rows; r += group.count) {
        float squares = 0.0f;
        for (uint64_t c = group.lane; c < cols; c += 32) {
            const float value = __ldg(x + r * cols + c);
            squares += value * value;
        }
        const float norm = sqrtf(group_sum(group, squares));
        const float inverse = 1.0f / fmaxf(norm, 1e-12f);
        for (uint64_t c = group.lane; c < cols; c += 32) {
            out[r * cols + c] = __ldg(x + r * cols + c) * inverse;
        }
        if (group.lane == 0) {
            norms[r] = norm;
        }
    }
}

// Gradient from the output y, in place.
extern "C" __global__ void l2_norm_back(const float* y, uint64_t rows, uint64_t cols, const float* norms, float* grad) {
    const Group group = group_of(32);
    for (uint64_t r = group.index; r < rows; r += group.count) {
        const float norm = __ldg(norms + r);
        const float inverse = norm > 1e-12f ? 1.0f / norm : 0.0f;
        float dot = 0.0f;
        for (uint64_t c = group.lane; c < cols; c += 32) {
            dot += grad[r * cols + c] * __ldg(y + r * cols + c);
        }
        dot = group_sum(group, dot);
        for (uint64_t c = group.lane; c < cols; c += 32) {
            grad[r * cols + c] = inverse * (grad[r * cols + c] - dot * __ldg(y + r * cols + c));
        }
    }
}
