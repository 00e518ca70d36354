// Products with learned factors, which kernels read where the parameters are.
#include "warp.cuh"

// y[i] += (plus + *factor) x[i]
extern "C" __global__ void add_times(const float* factor, float plus, const float* x, float* y, uint64_t count) {
    const float times = plus + __ldg(factor);
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        y[i] += times * __ldg(x + i);
    }
}

// out[r, c] = factors[head of c] x[r, c], plus the old value if `onto`; heads have `width` of the
// `cols` columns.
extern "C" __global__ void scale_heads(const float* factors, const float* x, uint64_t count, uint64_t cols, uint64_t width,
                                       uint32_t onto, float* out) {
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        const float scaled = __ldg(factors + i % cols / width) * __ldg(x + i);
        out[i] = onto != 0 ? out[i] + scaled : scaled;
    }
}

// out[h] += the sum of x[r, c] y[r, c] over the rows and the columns of head h. A block per head.
extern "C" __global__ void add_head_dots(const float* x, const float* y, uint64_t rows, uint64_t cols, uint64_t width,
                                         float* out) {
    __shared__ double room[32];
    double sum = 0.0;
    for (uint64_t i = threadIdx.x; i < rows * width; i += blockDim.x) {
        const uint64_t at = i / width * cols + blockIdx.x * width + i % width;
        sum += (double)__ldg(x + at) * (double)__ldg(y + at);
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) {
        out[blockIdx.x] += (float)sum;
    }
}

// Share of the new rows.
static __device__ inline float share_of(const float* skip) { return 1.0f / (1.0f + expf(-__ldg(skip))); }

// y = share y + (1 - share) x
extern "C" __global__ void skip_forward(const float* skip, const float* x, uint64_t count, float* y) {
    const float share = share_of(skip);
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        y[i] = share * y[i] + (1.0f - share) * __ldg(x + i);
    }
}

// x_grad += (1 - share) grad, and grad = share grad
extern "C" __global__ void skip_backward(const float* skip, uint64_t count, float* grad, float* x_grad) {
    const float share = share_of(skip);
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        x_grad[i] += (1.0f - share) * grad[i];
        grad[i] *= share;
    }
}

// out += share (1 - share) (the sum of `count` values of `with` - that of `without`). One block.
extern "C" __global__ void add_skip_grad(const float* skip, const double* with, const double* without, uint64_t count, float* out) {
    __shared__ double room[32];
    double sum = 0.0;
    for (uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
        sum += with[i] - without[i];
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) {
        const float share = share_of(skip);
        *out += (float)((double)(share * (1.0f - share)) * sum);
    }
}
