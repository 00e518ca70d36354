// Dense products in f32, used if the vendor's library is missing.
#include "common.cuh"

// Rows and columns of a block's tile of the result, and length of the sum in shared memory.
#define TILE 64
#define DEPTH 16

// c = beta c + op(a) op(b), all row-major: op(a) is m x k, op(b) k x n; rows are lda, ldb, ldc
// values apart. Blocks of 256 threads compute tiles of 64 x 64, each thread 4 x 4 of it. blockIdx.x
// is the tile's row, blockIdx.y its column, and blockIdx.z the product of a batch, whose matrices
// are stride_a, stride_b and stride_c values apart, times `splits`, plus the part of the sum. With
// several parts, each goes to its own m x n of `partial`, which product_sum adds.
extern "C" __global__ void __launch_bounds__(256) product_tiles(
    uint64_t m, uint64_t n, uint64_t k, const float* a, uint64_t lda, uint32_t transpose_a, uint64_t stride_a, const float* b,
    uint64_t ldb, uint32_t transpose_b, uint64_t stride_b, float beta, float* c, uint64_t ldc, uint64_t stride_c, uint32_t splits,
    float* partial) {
    // an additional row, so that stores of a column go to different banks
    __shared__ float of_a[DEPTH][TILE + 4];
    __shared__ float of_b[DEPTH][TILE + 4];
    const uint32_t batch = blockIdx.z / splits;
    const uint32_t part = blockIdx.z - batch * splits;
    a += batch * stride_a;
    b += batch * stride_b;
    const uint64_t row = (uint64_t)blockIdx.x * TILE;
    const uint64_t col = (uint64_t)blockIdx.y * TILE;
    const uint64_t steps = (k + DEPTH - 1) / DEPTH;
    const uint64_t share = (steps + splits - 1) / splits;
    const uint64_t from = min(steps, part * share) * DEPTH;
    const uint64_t to = min(k, from + share * DEPTH);
    const uint32_t i0 = threadIdx.x / 16 * 4;
    const uint32_t j0 = threadIdx.x % 16 * 4;
    float sum[4][4] = {};
    for (uint64_t l0 = from; l0 < to; l0 += DEPTH) {
        for (uint32_t at = threadIdx.x; at < TILE * DEPTH; at += 256) {
            // adjacent threads read adjacent values of a stored row
            const uint32_t i = transpose_a != 0 ? at % TILE : at / DEPTH;
            const uint32_t l = transpose_a != 0 ? at / TILE : at % DEPTH;
            const uint64_t r = row + i;
            const bool there = r < m && l0 + l < to;
            of_a[l][i] = there ? __ldg(a + (transpose_a != 0 ? (l0 + l) * lda + r : r * lda + l0 + l)) : 0.0f;
        }
        for (uint32_t at = threadIdx.x; at < TILE * DEPTH; at += 256) {
            const uint32_t j = transpose_b != 0 ? at / DEPTH : at % TILE;
            const uint32_t l = transpose_b != 0 ? at % DEPTH : at / TILE;
            const uint64_t r = col + j;
            const bool there = r < n && l0 + l < to;
            of_b[l][j] = there ? __ldg(b + (transpose_b != 0 ? r * ldb + l0 + l : (l0 + l) * ldb + r)) : 0.0f;
        }
        __syncthreads();
        for (uint32_t l = 0; l < DEPTH; l++) {
            float x[4];
            float y[4];
            for (int i = 0; i < 4; i++) {
                x[i] = of_a[l][i0 + i];
                y[i] = of_b[l][j0 + i];
            }
            for (int i = 0; i < 4; i++) {
                for (int j = 0; j < 4; j++) {
                    sum[i][j] += x[i] * y[j];
                }
            }
        }
        __syncthreads();
    }
    if (splits > 1) {
        c = partial + (uint64_t)blockIdx.z * m * n;
        ldc = n;
        beta = 0.0f;
    } else {
        c += batch * stride_c;
    }
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t j = 0; j < 4; j++) {
            const uint64_t r = row + i0 + i;
            const uint64_t s = col + j0 + j;
            if (r < m && s < n) {
                float* at = c + r * ldc + s;
                *at = beta == 0.0f ? sum[i][j] : beta * *at + sum[i][j];
            }
        }
    }
}

// c = beta c + the parts of a sum, in order: `partial` is batch x splits x m x n.
extern "C" __global__ void product_sum(uint64_t m, uint64_t n, uint32_t batch, uint32_t splits, const float* partial, float beta,
                                       float* c, uint64_t ldc, uint64_t stride_c) {
    const uint64_t each = m * n;
    for (uint64_t at = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; at < batch * each;
         at += (uint64_t)gridDim.x * blockDim.x) {
        const uint64_t which = at / each;
        const uint64_t in = at - which * each;
        const float* parts = partial + which * splits * each + in;
        float sum = 0.0f;
        for (uint32_t part = 0; part < splits; part++) {
            sum += __ldg(parts + part * each);
        }
        float* to = c + which * stride_c + in / n * ldc + in % n;
        *to = beta == 0.0f ? sum : beta * *to + sum;
    }
}
