// Losses with their gradients, softmax and sigmoid.
#include "warp.cuh"

static __device__ inline float row_max(const Group& group, const float* row, uint64_t cols) {
    float largest = __uint_as_float(0xff800000u);
    for (uint64_t c = group.lane; c < cols; c += group.lanes) {
        largest = fmaxf(largest, row[c]);
    }
    return group_max(group, largest);
}

// losses[block] = the sum over the block's rows of weight[r] * -log softmax(logits[r])[label[r]];
// grad is the gradient of `scale` times it. A null `weight` means 1. Rows of label -1 are ignored.
extern "C" __global__ void softmax_loss(const float* logits, uint64_t rows, uint64_t cols, const int32_t* label,
                                        const float* weight, float scale, float* grad, double* losses) {
    __shared__ double room[32];
    const Group group = group_of(32);
    double loss = 0.0;
    for (uint64_t r = group.index; r < rows; r += group.count) {
        const float* row = logits + r * cols;
        float* to = grad + r * cols;
        const int32_t hit = __ldg(label + r);
        if (hit < 0) {
            for (uint64_t c = group.lane; c < cols; c += 32) {
                to[c] = 0.0f;
            }
            continue;
        }
        const float largest = row_max(group, row, cols);
        float sum = 0.0f;
        for (uint64_t c = group.lane; c < cols; c += 32) {
            sum += expf(__ldg(row + c) - largest);
        }
        sum = group_sum(group, sum);
        const float its = weight != nullptr ? __ldg(weight + r) : 1.0f;
        const float factor = its * scale;
        const float inverse = factor / sum;
        for (uint64_t c = group.lane; c < cols; c += 32) {
            const float p = expf(__ldg(row + c) - largest) * inverse;
            to[c] = c == (uint64_t)hit ? p - factor : p;
        }
        if (group.lane == 0) {
            loss += (double)its * ((double)logf(sum) + ((double)largest - (double)__ldg(row + hit)));
        }
    }
    loss = block_sum(loss, room);
    if (threadIdx.x == 0) {
        losses[blockIdx.x] = loss;
    }
}

// 1 / (1 + e^-x), and e^-|x|.
static __device__ inline float logistic(float x, float* small) {
    *small = expf(-fabsf(x));
    const float above = 1.0f / (1.0f + *small);
    return x > 0.0f ? above : *small * above;
}

// losses[block] = the sum over the block's rows of weight[r] * (log(1 + e^x) - t x); grad is the
// gradient of `scale` times it.
extern "C" __global__ void sigmoid_loss(const float* logits, uint64_t rows, uint64_t cols, const uint8_t* target,
                                        const float* weight, float scale, float* grad, double* losses) {
    __shared__ double room[32];
    const Group group = group_of(32);
    double loss = 0.0;
    for (uint64_t r = group.index; r < rows; r += group.count) {
        const float its = weight != nullptr ? __ldg(weight + r) : 1.0f;
        for (uint64_t c = group.lane; c < cols; c += 32) {
            const float x = __ldg(logits + r * cols + c);
            const float t = (float)__ldg(target + r * cols + c);
            float small;
            const float p = logistic(x, &small);
            loss += (double)its * (double)(fmaxf(x, 0.0f) + log1pf(small) - t * x);
            grad[r * cols + c] = its * scale * (p - t);
        }
    }
    loss = block_sum(loss, room);
    if (threadIdx.x == 0) {
        losses[blockIdx.x] = loss;
    }
}

// Softmax of each row, in place.
extern "C" __global__ void softmax_rows(float* x, uint64_t rows, uint64_t cols) {
    const Group group = group_of(32);
    for (uint64_t r = group.index; r < rows; r += group.count) {
        float* row = x + r * cols;
        const float largest = row_max(group, row, cols);
        float sum = 0.0f;
        for (uint64_t c = group.lane; c < cols; c += 32) {
            const float e = expf(row[c] - largest);
            row[c] = e;
            sum += e;
        }
        const float inverse = 1.0f / group_sum(group, sum);
        for (uint64_t c = group.lane; c < cols; c += 32) {
            row[c] *= inverse;
        }
    }
}

// 1 / (1 + e^-x), in place.
extern "C" __global__ void sigmoid_values(float* x, uint64_t count) {
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        float small;
        x[i] = logistic(x[i], &small);
    }
}
