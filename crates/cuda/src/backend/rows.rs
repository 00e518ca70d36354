//! Rows and elements.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_core::{View, ViewMut};
use graphmill_nn::backend::{
    Matrices, mask_hash,
    ops::{Add, AddDot, DropStored, Gather, shape},
};

use super::work::{Work, lanes, wide};
use crate::{
    Buffer, Result,
    kernels::{self, In, Late, Out},
};

/// Rows that a group of lanes copies at a time.
const ROWS: usize = 4;
/// Maximum number of blocks of a sum over all values: independent of the device, so that the sum is
/// too.
const SUMS: usize = 512;

pub(super) fn gather(work: &Work, op: Gather) -> Result<()> {
    let Gather { src, ids, dst } = op;
    if src.is_sparse() {
        return densify(work, src, ids.iter().map(|&v| v as usize), dst);
    }
    let (rows, cols) = (ids.len(), src.num_cols());
    assert!(
        ids.iter().all(|&v| (v as usize) < src.num_rows()),
        "a row id is beyond the table's {} rows",
        src.num_rows()
    );
    let src = work.table(src)?;
    let ids = work.queue.upload(ids)?;
    let dst = work.write(dst)?;
    let wide = wide(cols, &[src.is_wide(), dst.is_wide()]);
    let lanes = lanes(cols, wide.vector());
    let kernel = kernels::Gather { src, cols, ids: ids.read(), rows, dst, lanes, wide };
    // SAFETY: shapes and rows were checked above
    unsafe { work.groups(rows.div_ceil(ROWS), lanes, &kernel) }
}

/// Writes these sparse rows to `dst` as dense rows.
fn densify(work: &Work, x: View, rows: impl Iterator<Item = usize>, mut dst: ViewMut) -> Result<()> {
    fill(work, 0.0, dst.reborrow())?;
    let cols = x.num_cols();
    add_rows(work, 1.0, x, rows, cols, work.change(dst)?)
}

/// Computes `dst[i] += alpha x[rows[i]]` for sparse rows.
fn add_rows(
    work: &Work,
    alpha: f32,
    x: View,
    rows: impl Iterator<Item = usize>,
    cols: usize,
    dst: Out<f32>,
) -> Result<()> {
    let (mut indptr, mut columns, mut values) = (vec![0u64], Vec::new(), Vec::new());
    for i in rows {
        let (of_row, stored) = x.sparse_row(i).expect("rows are sparse");
        columns.extend_from_slice(of_row);
        values.extend_from_slice(stored);
        indptr.push(columns.len() as u64);
    }
    let count = indptr.len() - 1;
    let (indptr, columns) = (work.queue.upload(&indptr)?, work.queue.upload(&columns)?);
    let values = work.queue.upload(&values)?;
    let (indptr, columns, values) = (indptr.read(), columns.read(), values.read());
    let kernel = kernels::AddSparse { indptr, columns, values, alpha, rows: count, cols, dst };
    // SAFETY: columns of sparse rows are below `cols`, and the caller ensures that many rows at
    // `dst`
    unsafe { work.groups(count, 32, &kernel) }
}

/// Copies sparse rows to the device as dense rows.
pub(super) fn dense(work: &Work, x: View) -> Result<Buffer<f32>> {
    let (rows, cols) = shape::of(x);
    let mut buffer = work.scratch::<f32>(rows * cols)?;
    // SAFETY: the buffer has this size
    unsafe { work.fill(buffer.address(), 0.0, rows * cols)? };
    add_rows(work, 1.0, x, 0..rows, cols, buffer.write())?;
    Ok(buffer)
}

pub(super) fn add(work: &Work, op: Add) -> Result<()> {
    let Add { alpha, x, y } = op;
    let (rows, cols) = shape::of(x);
    if x.is_sparse() {
        let y = work.change(y)?;
        return add_rows(work, alpha, x, 0..rows, cols, y);
    }
    let (x, y) = (work.read(x)?, work.change(y)?);
    add_values(work, alpha, x, y, rows * cols)
}

/// Computes `y = y + alpha x` for `count` values.
pub(super) fn add_values(work: &Work, alpha: f32, x: In<f32>, y: Out<f32>, count: usize) -> Result<()> {
    let kernel = kernels::AddValues { alpha, x, y, count, wide: x.is_wide() && y.is_wide() };
    // SAFETY: the caller ensures that many values in both
    unsafe { work.queue.run(count.div_ceil(4), &kernel) }
}

/// Runs in host memory, because the stored values and the operations that read the result are
/// there.
pub(super) fn drop_stored(op: DropStored) {
    let DropStored { x, dropout, out } = op;
    let (threshold, scale) = (dropout.threshold(), dropout.scale());
    let mut out = out.host().iter_mut();
    for r in 0..x.num_rows() {
        let (columns, values) = x.sparse_row(r).expect("rows are sparse");
        let key = dropout.row_key(r);
        for ((&c, &value), out) in columns.iter().zip(values).zip(&mut out) {
            *out = if mask_hash(key, c) < threshold { 0.0 } else { value * scale };
        }
    }
}

pub(super) fn fill(work: &Work, value: f32, x: ViewMut) -> Result<()> {
    let count = x.num_rows() * x.num_cols();
    let x = work.write(x)?;
    // SAFETY: the view has this many values
    unsafe { work.fill(x.address(), value, count) }
}

pub(super) fn scale(work: &Work, alpha: f32, x: ViewMut) -> Result<()> {
    let count = x.num_rows() * x.num_cols();
    let x = work.change(x)?;
    scale_values(work, alpha, x, count)
}

/// Computes `x = alpha x` for `count` values.
pub(super) fn scale_values(work: &Work, alpha: f32, x: Out<f32>, count: usize) -> Result<()> {
    let kernel = kernels::ScaleValues { alpha: Late(alpha), x, count, wide: x.is_wide() };
    // SAFETY: the caller ensures that many values
    unsafe { work.queue.run(count.div_ceil(4), &kernel) }
}

pub(super) fn copy(work: &Work, src: View, dst: ViewMut) -> Result<()> {
    shape::same(src, dst.as_view());
    copy_values(work, work.read(src)?, work.write(dst)?, src.num_rows() * src.num_cols())
}

/// Copies `count` values.
pub(super) fn copy_values(work: &Work, from: In<f32>, to: Out<f32>, count: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    // SAFETY: the caller ensures that many values in both
    unsafe { work.queue.device().driver().copy(from.address(), to.address(), 4 * count, work.queue.stream()) }
}

pub(super) fn dot(work: &Work, x: View, y: View) -> Result<f64> {
    let (sums, blocks) = dot_sums(work, x, y)?;
    number(&total(work, &sums, blocks, 1.0)?)
}

/// Partial sums of a dot product, one per block of threads, and their number.
pub(super) fn dot_sums(work: &Work, x: View, y: View) -> Result<(Buffer<f64>, usize)> {
    shape::same(x, y);
    let count = x.num_rows() * x.num_cols();
    let blocks = count.div_ceil(1024).min(SUMS);
    let mut sums = work.scratch::<f64>(blocks)?;
    let kernel = kernels::DotValues { x: work.read(x)?, y: work.read(y)?, count, sums: sums.write() };
    // SAFETY: both have equally many values, and there is one sum per block
    unsafe { work.blocks([blocks, 1, 1], &kernel)? };
    Ok((sums, blocks))
}

pub(super) fn add_dot(work: &Work, op: AddDot) -> Result<()> {
    let AddDot { x, y, out, at } = op;
    let (sums, blocks) = dot_sums(work, x, y)?;
    let kernel = kernels::AddTotal { values: sums.read(), count: blocks, out: work.change(out)?.offset(at) };
    // SAFETY: that many sums are there, and one value
    unsafe { work.blocks([1; 3], &kernel) }
}

pub(super) fn squares(work: &Work, matrices: &mut Matrices) -> Result<f64> {
    let mut squares = work.scratch::<f64>(1)?;
    // SAFETY: one f64 is there, which is 0 if both of its halves are
    unsafe { work.fill(squares.address(), 0.0, 2)? };
    let onto = squares.write();
    let mut result = Ok(());
    matrices(&mut |x| {
        let add = || {
            let (sums, blocks) = dot_sums(work, x, x)?;
            total_at(work, &sums, blocks, 1.0, true, onto)
        };
        if result.is_ok() {
            result = add();
        }
    });
    result?;
    number(&squares)
}

/// Sum of `count` values times a factor: an f64 on the device.
pub(super) fn total(work: &Work, values: &Buffer<f64>, count: usize, factor: f32) -> Result<Buffer<f64>> {
    let mut total = work.scratch::<f64>(1)?;
    total_at(work, values, count, factor, false, total.write())?;
    Ok(total)
}

/// Writes that sum to `total`; added to the old value if `onto`.
fn total_at(
    work: &Work,
    values: &Buffer<f64>,
    count: usize,
    factor: f32,
    onto: bool,
    total: Out<f64>,
) -> Result<()> {
    let kernel = kernels::TotalOf { values: values.read(), count, factor, onto, total };
    // SAFETY: the callers ensure that many values, and one f64
    unsafe { work.blocks([1; 3], &kernel) }
}

/// Reads a number from the device, and waits for it.
pub(super) fn number(of: &Buffer<f64>) -> Result<f64> {
    let mut result = [0.0f64];
    of.download(&mut result)?;
    Ok(result[0])
}
