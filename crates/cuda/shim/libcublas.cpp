// Stand-in for cuBLAS, for tests of its callers: products of column-major matrices.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace {

enum Status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7 };

struct Handle {
    void* stream = nullptr;
    void* workspace = nullptr;
};

const float& at(const float* matrix, bool transposed, int64_t leading, int64_t row, int64_t column) {
    return transposed ? matrix[column + row * leading] : matrix[row + column * leading];
}

// Returns true if the driver's stand-in is capturing the stream, and has stored this work.
bool is_kept(void* stream, std::function<int()> work) {
    using Keep = bool (*)(void*, std::function<int()>*);
    static void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    static const Keep keep = driver == nullptr ? nullptr : (Keep)dlsym(driver, "stand_in_keep");
    return keep != nullptr && keep(stream, &work);
}

}  // namespace

extern "C" {

int cublasCreate_v2(Handle** handle) {
    *handle = new Handle;
    return SUCCESS;
}
int cublasDestroy_v2(Handle* handle) {
    delete handle;
    return SUCCESS;
}
int cublasSetStream_v2(Handle* handle, void* stream) {
    *handle = {stream, nullptr};
    return SUCCESS;
}
int cublasSetWorkspace_v2(Handle* handle, void* workspace, size_t bytes) {
    handle->workspace = workspace;
    return bytes % 256 == 0 ? SUCCESS : INVALID_VALUE;
}
const char* cublasGetStatusString(int status) {
    return status == INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_NOT_INITIALIZED";
}
int cublasGemmStridedBatchedEx(Handle* handle, int transpose_a, int transpose_b, int m, int n, int k,
                               const void* alpha, const void* a, int type_a, int lda, long long stride_a,
                               const void* b, int type_b, int ldb, long long stride_b, const void* beta,
                               void* c, int type_c, int ldc, long long stride_c, int batch, int compute,
                               int algorithm) {
    if (handle->stream == nullptr || handle->workspace == nullptr) {
        return NOT_INITIALIZED;
    }
    const bool types =
        type_a == 0 && type_b == 0 && type_c == 0 && (compute == 68 || compute == 75 || compute == 77);
    const bool sizes = lda >= (transpose_a ? k : m) && ldb >= (transpose_b ? n : k) && ldc >= m;
    if (!types || !sizes || algorithm != -1) {
        return INVALID_VALUE;
    }
    // scalars are in host memory, and read now
    const float by = *(const float*)alpha, keep = *(const float*)beta;
    const auto multiply = [=] {
        for (int64_t one = 0; one < batch; one++) {
            const float* of_a = (const float*)a + one * stride_a;
            const float* of_b = (const float*)b + one * stride_b;
            float* of_c = (float*)c + one * stride_c;
            for (int64_t row = 0; row < m; row++) {
                for (int64_t column = 0; column < n; column++) {
                    float sum = 0.0f;
                    for (int64_t i = 0; i < k; i++) {
                        sum += at(of_a, transpose_a, lda, row, i) * at(of_b, transpose_b, ldb, i, column);
                    }
                    float& value = of_c[row + column * ldc];
                    value = by * sum + (keep == 0.0f ? 0.0f : keep * value);
                }
            }
        }
        return SUCCESS;
    };
    return is_kept(handle->stream, multiply) ? SUCCESS : multiply();
}
int cublasGemmEx(Handle* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha,
                 const void* a, int type_a, int lda, const void* b, int type_b, int ldb, const void* beta,
                 void* c, int type_c, int ldc, int compute, int algorithm) {
    return cublasGemmStridedBatchedEx(handle, transpose_a, transpose_b, m, n, k, alpha, a, type_a, lda, 0, b,
                                      type_b, ldb, 0, beta, c, type_c, ldc, 0, 1, compute, algorithm);
}

}  // extern "C"
