// List of the long rows. See long_rows.cuh.
#include "long_rows.cuh"

// Appends the rows of `from` edges or more to a list, initially of length 0.
extern "C" __global__ void list_long_rows(const uint32_t* indptr, uint64_t rows, uint32_t from, uint32_t* count, uint32_t* list) {
    const uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t v = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; v < rows; v += threads) {
        if (__ldg(indptr + v + 1) - __ldg(indptr + v) >= from) {
            list[atomicAdd(count, 1u)] = (uint32_t)v;
        }
    }
}
