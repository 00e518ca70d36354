//! Dense products by cuBLAS.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{
    collections::HashMap,
    ffi::{CStr, c_void},
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::cublas::sys::{
    self, cublasComputeType_t, cublasGemmAlgo_t, cublasHandle_t, cublasOperation_t, cublasStatus_t,
    cudaDataType,
};

use super::{super::Product, library};
use crate::{
    Result,
    driver::{Address, Arithmetic, Stream},
};

/// Library handle of one stream, with the workspace of its products: products of different streams
/// do not share a workspace, so every run gives the same results.
#[derive(Debug)]
struct Handle {
    handle: cublasHandle_t,
    memory: Address,
}

// SAFETY: the library allows any thread to use a handle, one at a time; each is behind a lock.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle was created and is not used again.
        unsafe { sys::cublasDestroy_v2(self.handle) };
    }
}

/// Handles of a device, by stream.
#[derive(Debug, Default)]
pub(super) struct Blas {
    handles: Mutex<HashMap<u64, Arc<Mutex<Handle>>>>,
}

/// The failed call of the library, and its message.
pub(super) type Failure = (&'static str, String);

fn check(call: &'static str, status: cublasStatus_t) -> std::result::Result<(), Failure> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    // SAFETY: the symbol was found before any call; the text belongs to the library and stays
    // valid.
    let words = unsafe {
        let words = sys::cublasGetStatusString(status);
        if words.is_null() { None } else { Some(CStr::from_ptr(words).to_string_lossy().into_owned()) }
    };
    Err((call, words.unwrap_or_else(|| format!("status {}", status as u32))))
}

/// A product with exchanged factors. Row-major matrices are the transposed ones of a library with
/// column-major order, so it computes `c' = op(b)' op(a)'` in the same memory.
#[derive(Debug, PartialEq, Eq)]
struct Exchanged {
    rows: i32,
    columns: i32,
    inner: i32,
    leading: [i32; 3],
    batch: i32,
}

impl Exchanged {
    /// Returns `None` if a number exceeds the library's range.
    fn new(product: &Product) -> Option<Self> {
        let int = |size: usize| i32::try_from(size).ok();
        Some(Self {
            rows: int(product.n)?,
            columns: int(product.m)?,
            inner: int(product.k)?,
            leading: [int(product.ldb)?, int(product.lda)?, int(product.ldc)?],
            batch: int(product.batch)?,
        })
    }
}

fn is_empty(product: &Product) -> bool {
    product.m == 0 || product.n == 0 || product.batch == 0
}

/// Sizes of the product for the library, or `None` if it is not available or does not support such
/// sizes.
fn sizes(product: &Product) -> Option<Exchanged> {
    Exchanged::new(product).filter(|_| product.k > 0 && library::has_blas())
}

/// Returns true if [`Blas::multiply`] supports this product.
pub(super) fn takes(product: &Product) -> bool {
    is_empty(product) || sizes(product).is_some()
}

impl Blas {
    /// Computes the product on a stream of the current context. Returns false if the library is not
    /// available or does not support such sizes. `allocate` allocates the workspace of a new
    /// stream, of `workspace` bytes.
    ///
    /// # Errors
    /// Errors of the library, converted by `fail`.
    ///
    /// # Safety
    /// The device's context is current; addresses are valid for these sizes.
    pub(super) unsafe fn multiply(
        &self,
        product: &Product,
        stream: Stream,
        workspace: usize,
        allocate: impl FnOnce(usize) -> Result<Address>,
        fail: impl Fn(Failure) -> crate::Error,
    ) -> Result<bool> {
        if is_empty(product) {
            return Ok(true);
        }
        let Some(sizes) = sizes(product) else { return Ok(false) };
        let handle = self.handle(stream, workspace, allocate, &fail)?;
        let handle = handle.lock().unwrap_or_else(PoisonError::into_inner);
        let operation = |transpose| {
            if transpose { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N }
        };
        let compute = match product.arithmetic {
            Arithmetic::F32 => cublasComputeType_t::CUBLAS_COMPUTE_32F,
            Arithmetic::Tf32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            Arithmetic::Bf16 => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_16BF,
        };
        let (alpha, beta) = (1.0_f32, product.beta);
        let (alpha, beta): (*const c_void, *const c_void) =
            ((&raw const alpha).cast(), (&raw const beta).cast());
        let (a, b, c) =
            (product.a.0 as *const c_void, product.b.0 as *const c_void, product.c.0 as *mut c_void);
        let (float, algorithm) = (cudaDataType::CUDA_R_32F, cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT);
        let (operation_b, operation_a) = (operation(product.transpose_b), operation(product.transpose_a));
        let Exchanged { rows, columns, inner, leading: [ldb, lda, ldc], batch } = sizes;
        let failed = if batch == 1 {
            // SAFETY: the symbols were found; handle and context belong to this device, scalars are
            // host memory that outlives the call, and the caller guarantees the matrices.
            let status = unsafe {
                sys::cublasGemmEx(
                    handle.handle,
                    operation_b,
                    operation_a,
                    rows,
                    columns,
                    inner,
                    alpha,
                    b,
                    float,
                    ldb,
                    a,
                    float,
                    lda,
                    beta,
                    c,
                    float,
                    ldc,
                    compute,
                    algorithm,
                )
            };
            check("cublasGemmEx", status)
        } else {
            let [stride_a, stride_b, stride_c] = product.strides.map(|stride| stride as i64);
            // SAFETY: as above.
            let status = unsafe {
                sys::cublasGemmStridedBatchedEx(
                    handle.handle,
                    operation_b,
                    operation_a,
                    rows,
                    columns,
                    inner,
                    alpha,
                    b,
                    float,
                    ldb,
                    stride_b,
                    a,
                    float,
                    lda,
                    stride_a,
                    beta,
                    c,
                    float,
                    ldc,
                    stride_c,
                    batch,
                    compute,
                    algorithm,
                )
            };
            check("cublasGemmStridedBatchedEx", status)
        };
        failed.map(|()| true).map_err(fail)
    }

    /// Handle of a stream, created on first use.
    fn handle(
        &self,
        stream: Stream,
        workspace: usize,
        allocate: impl FnOnce(usize) -> Result<Address>,
        fail: &impl Fn(Failure) -> crate::Error,
    ) -> Result<Arc<Mutex<Handle>>> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = handles.get(&stream.0) {
            return Ok(handle.clone());
        }
        let mut made = ptr::null_mut();
        // SAFETY: the symbol was found, and the handle outlives the call.
        check("cublasCreate", unsafe { sys::cublasCreate_v2(&raw mut made) }).map_err(fail)?;
        let mut handle = Handle { handle: made, memory: Address(0) };
        handle.memory = allocate(workspace)?;
        let (stream_handle, memory) = (stream.0 as sys::cudaStream_t, handle.memory.0 as *mut c_void);
        // SAFETY: the symbols were found; the stream and the workspace belong to the device and
        // stay valid. Setting the stream resets the workspace, so it comes first.
        let (streamed, worked) = unsafe {
            (
                sys::cublasSetStream_v2(made, stream_handle),
                sys::cublasSetWorkspace_v2(made, memory, workspace),
            )
        };
        check("cublasSetStream", streamed).map_err(fail)?;
        check("cublasSetWorkspace", worked).map_err(fail)?;
        let handle = Arc::new(Mutex::new(handle));
        handles.insert(stream.0, handle.clone());
        Ok(handle)
    }

    /// Destroys a stream's handle and returns the address of its workspace, if any. The context
    /// must be current and the stream's work done.
    pub(super) fn forget(&self, stream: Stream) -> Option<Address> {
        let handle = self.handles.lock().unwrap_or_else(PoisonError::into_inner).remove(&stream.0)?;
        let memory = handle.lock().unwrap_or_else(PoisonError::into_inner).memory;
        Some(memory)
    }

    /// Destroys all handles and returns the addresses of their workspaces.
    pub(super) fn clear(&self) -> Vec<Address> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = |(_, handle): (u64, Arc<Mutex<Handle>>)| {
            handle.lock().unwrap_or_else(PoisonError::into_inner).memory
        };
        handles.drain().map(memory).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Exchanged, Product};
    use crate::driver::{Address, Arithmetic};

    #[test]
    fn row_major_products_exchange_their_factors() {
        let product = Product {
            m: 2,
            n: 3,
            k: 4,
            a: Address(0),
            lda: 5,
            transpose_a: false,
            b: Address(0),
            ldb: 6,
            transpose_b: true,
            beta: 0.0,
            c: Address(0),
            ldc: 7,
            batch: 1,
            strides: [0; 3],
            arithmetic: Arithmetic::F32,
        };
        let expected = Exchanged { rows: 3, columns: 2, inner: 4, leading: [6, 5, 7], batch: 1 };
        assert_eq!(Exchanged::new(&product), Some(expected));
        assert_eq!(Exchanged::new(&Product { m: 1 << 31, ..product }), None);
    }
}
