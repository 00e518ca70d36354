// Updates of parameters.
#include "warp.cuh"

// Adam, or AdamW if `decoupled`, on `count` values.
extern "C" __global__ void adam_update(const float* grad, float* m, float* v, float* value, uint64_t count, float lr, float beta1,
                                       float beta2, float eps, float decay, uint32_t decoupled, float correction1,
                                       float correction2, const uint64_t* late) {
    lr = late_float(late, 0, lr);
    correction1 = late_float(late, 1, correction1);
    correction2 = late_float(late, 2, correction2);
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        float x = value[i];
        float g = __ldg(grad + i);
        if (decoupled != 0) {
            x -= lr * decay * x;
        } else {
            g += decay * x;
        }
        const float first = beta1 * m[i] + (1.0f - beta1) * g;
        const float second = beta2 * v[i] + (1.0f - beta2) * g * g;
        m[i] = first;
        v[i] = second;
        value[i] = x - lr * (first / correction1) / (sqrtf(second / correction2) + eps);
    }
}

// SGD with momentum, in Nesterov's form if `nesterov`, on `count` values.
extern "C" __global__ void sgd_update(const float* grad, float* velocity, float* value, uint64_t count, float lr, float momentum,
                                      uint32_t nesterov, float decay, const uint64_t* late) {
    lr = late_float(late, 0, lr);
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        const float x = value[i];
        const float g = __ldg(grad + i) + decay * x;
        const float speed = momentum * velocity[i] + g;
        velocity[i] = speed;
        value[i] = x - lr * (nesterov != 0 ? g + momentum * speed : speed);
    }
}
