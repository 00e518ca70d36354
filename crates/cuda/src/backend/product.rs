//! Dense products by the vendor's library if available, else by our tiled kernel. Sparse factors
//! are converted to dense ones.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_core::View;
use graphmill_nn::backend::{
    Side,
    ops::{Gemm, HeadGemm},
};

use super::{rows, work::Work};
use crate::{
    Buffer, Result,
    driver::{Address, Arithmetic, Product},
    kernels::{self, In, Out},
};

/// Rows and columns of a block's tile.
const TILE: usize = 64;
/// Number of blocks that occupy a large device, independent of the device so that results are too.
const BLOCKS: usize = 512;
/// Minimum number of terms per block if a sum is split.
const DEPTH: usize = 256;

/// Factor on the device: its address, and its buffer if it was created for the product.
struct Factor {
    at: Address,
    _made: Option<Buffer<f32>>,
}

fn factor(work: &Work, x: View) -> Result<Factor> {
    if !x.is_sparse() {
        return Ok(Factor { at: work.read(x)?.address(), _made: None });
    }
    let made = rows::dense(work, x)?;
    Ok(Factor { at: made.address(), _made: Some(made) })
}

pub(super) fn gemm(work: &Work, arithmetic: Arithmetic, op: Gemm) -> Result<()> {
    let Gemm { a, b, beta, c } = op;
    head_gemm(work, arithmetic, HeadGemm { heads: 1, a, b, beta, c })
}

pub(super) fn head_gemm(work: &Work, arithmetic: Arithmetic, op: HeadGemm) -> Result<()> {
    let [m, n, k] = op.size();
    let HeadGemm { heads, a: (a, side_a), b: (b, side_b), beta, c } = op;
    let (lda, ldb, ldc) = (a.num_cols(), b.num_cols(), c.num_cols());
    // products of sparse factors stay in f32
    let arithmetic = if a.is_sparse() { Arithmetic::F32 } else { arithmetic };
    let (a, b) = (factor(work, a)?, factor(work, b)?);
    let product = Product {
        m,
        n,
        k,
        a: a.at,
        lda,
        transpose_a: side_a == Side::Transposed,
        b: b.at,
        ldb,
        transpose_b: side_b == Side::Transposed,
        beta,
        c: work.place(c, beta != 0.0)?.address(),
        ldc,
        batch: heads,
        strides: [lda / heads, ldb / heads, n],
        arithmetic,
    };
    if m == 0 || n == 0 {
        return Ok(());
    }
    // SAFETY: the shapes were checked
    let done = k > 0 && unsafe { work.queue.device().driver().product(&product, work.queue.stream())? };
    if done { Ok(()) } else { tiles(work, &product) }
}

/// Computes the product with our own kernel.
fn tiles(work: &Work, product: &Product) -> Result<()> {
    let &Product { m, n, k, a, lda, b, ldb, beta, c, ldc, batch, strides, .. } = product;
    let (across, down) = (n.div_ceil(TILE), m.div_ceil(TILE));
    let splits = (BLOCKS / (across * down * batch)).min(k / DEPTH).max(1);
    let mut partial = (splits > 1).then(|| work.scratch(splits * batch * m * n)).transpose()?;
    let partial = partial.as_mut().map(Buffer::write);
    let [stride_a, stride_b, stride_c] = strides;
    let (c, in_parts) = (Out::at(c), splits as u32);
    let kernel = kernels::ProductTiles {
        m,
        n,
        k,
        a: In::at(a),
        lda,
        transpose_a: product.transpose_a,
        stride_a,
        b: In::at(b),
        ldb,
        transpose_b: product.transpose_b,
        stride_b,
        beta,
        c,
        ldc,
        stride_c,
        splits: in_parts,
        partial,
    };
    // SAFETY: the caller checked the shapes, and `partial` holds every part of the sums
    unsafe { work.blocks([down, across, batch * splits], &kernel)? };
    let Some(partial) = partial else { return Ok(()) };
    let (partial, of_batch) = (partial.into(), batch as u32);
    let kernel =
        kernels::ProductSum { m, n, batch: of_batch, splits: in_parts, partial, beta, c, ldc, stride_c };
    // SAFETY: as above
    unsafe { work.queue.run(batch * m * n, &kernel) }
}
