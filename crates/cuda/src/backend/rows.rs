//! Rows and elements.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_core::{View, ViewMut, matrix::TableType};
use graphmill_nn::backend::{
    Matrices, mask_hash,
    ops::{Add, AddDot, DropStored, Gather, shape},
};

use super::work::{Work, lanes, wide};
use crate::{Buffer, Result, arguments, device::Late, driver::Address};

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
    let (kind, from) = work.table(src)?;
    let ids = work.queue.upload(ids)?;
    let to = work.write(dst)?;
    let (vector, name) = match (kind, wide(cols, &[(from, kind.width()), (to, 4)])) {
        (TableType::F32, false) => (1, "gather_f32"),
        (TableType::F32, true) => (4, "gather_f32_4"),
        (TableType::F16, false) => (1, "gather_f16"),
        (TableType::F16, true) => (4, "gather_f16_4"),
        (TableType::Bf16, false) => (1, "gather_bf16"),
        (TableType::Bf16, true) => (4, "gather_bf16_4"),
    };
    let lanes = lanes(cols, vector);
    let arguments = arguments![from, cols, ids.address(), rows, to, lanes];
    // SAFETY: shapes and rows were checked above
    unsafe { work.groups(name, rows.div_ceil(ROWS), lanes, arguments) }
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
    dst: Address,
) -> Result<()> {
    let (mut indptr, mut columns, mut values) = (vec![0u64], Vec::new(), Vec::new());
    for i in rows {
        let (of_row, stored) = x.sparse_row(i).expect("rows are sparse");
        columns.extend_from_slice(of_row);
        values.extend_from_slice(stored);
        indptr.push(columns.len() as u64);
    }
    let count = indptr.len() - 1;
    let [indptr, columns, values] =
        [work.queue.upload(&indptr)?, work.queue.upload(&columns)?, work.queue.upload(&values)?];
    let arguments =
        arguments![indptr.address(), columns.address(), values.address(), alpha, count, cols, dst];
    // SAFETY: columns of sparse rows are below `cols`, and the caller ensures that many rows at
    // `dst`
    unsafe { work.groups("add_sparse", count, 32, arguments) }
}

/// Copies sparse rows to the device as dense rows.
pub(super) fn dense(work: &Work, x: View) -> Result<Buffer> {
    let (rows, cols) = shape::of(x);
    let buffer = work.scratch::<f32>(rows * cols)?;
    // SAFETY: the buffer has this size
    unsafe { work.fill(buffer.address(), 0.0, rows * cols)? };
    add_rows(work, 1.0, x, 0..rows, cols, buffer.address())?;
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
pub(super) fn add_values(work: &Work, alpha: f32, x: Address, y: Address, count: usize) -> Result<()> {
    let wide = u32::from(wide(0, &[(x, 4), (y, 4)]));
    // SAFETY: the caller ensures that many values in both
    unsafe { work.queue.run("add_values", count.div_ceil(4), arguments![alpha, x, y, count, wide]) }
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
    unsafe { work.fill(x, value, count) }
}

pub(super) fn scale(work: &Work, alpha: f32, x: ViewMut) -> Result<()> {
    let count = x.num_rows() * x.num_cols();
    let x = work.change(x)?;
    scale_values(work, alpha, x, count)
}

/// Computes `x = alpha x` for `count` values.
pub(super) fn scale_values(work: &Work, alpha: f32, x: Address, count: usize) -> Result<()> {
    let wide = u32::from(wide(0, &[(x, 4)]));
    // SAFETY: the caller ensures that many values
    unsafe { work.queue.run("scale_values", count.div_ceil(4), arguments![Late(alpha), x, count, wide]) }
}

pub(super) fn copy(work: &Work, src: View, dst: ViewMut) -> Result<()> {
    shape::same(src, dst.as_view());
    copy_values(work, work.read(src)?, work.write(dst)?, src.num_rows() * src.num_cols())
}

/// Copies `count` values.
pub(super) fn copy_values(work: &Work, from: Address, to: Address, count: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    // SAFETY: the caller ensures that many values in both
    unsafe { work.queue.device().driver().copy(from, to, 4 * count, work.queue.stream()) }
}

pub(super) fn dot(work: &Work, x: View, y: View) -> Result<f64> {
    let (sums, blocks) = dot_sums(work, x, y)?;
    number(&total(work, &sums, blocks, 1.0)?)
}

/// Partial sums of a dot product, one per block of threads, and their number.
pub(super) fn dot_sums(work: &Work, x: View, y: View) -> Result<(Buffer, usize)> {
    shape::same(x, y);
    let count = x.num_rows() * x.num_cols();
    let blocks = count.div_ceil(1024).min(SUMS);
    let sums = work.scratch::<f64>(blocks)?;
    let arguments = arguments![work.read(x)?, work.read(y)?, count, sums.address()];
    // SAFETY: both have equally many values, and there is one sum per block
    unsafe { work.blocks("dot_values", [blocks, 1, 1], arguments)? };
    Ok((sums, blocks))
}

pub(super) fn add_dot(work: &Work, op: AddDot) -> Result<()> {
    let AddDot { x, y, out, at } = op;
    let (sums, blocks) = dot_sums(work, x, y)?;
    let arguments = arguments![sums.address(), blocks, work.change(out)?.offset(4 * at)];
    // SAFETY: that many sums are there, and one value
    unsafe { work.blocks("add_total", [1; 3], arguments) }
}

pub(super) fn squares(work: &Work, matrices: &mut Matrices) -> Result<f64> {
    let squares = work.scratch::<f64>(1)?;
    // SAFETY: one f64 is there, which is 0 if both of its halves are
    unsafe { work.fill(squares.address(), 0.0, 2)? };
    let mut result = Ok(());
    matrices(&mut |x| {
        let add = || {
            let (sums, blocks) = dot_sums(work, x, x)?;
            total_at(work, &sums, blocks, 1.0, true, squares.address())
        };
        if result.is_ok() {
            result = add();
        }
    });
    result?;
    number(&squares)
}

/// Sum of `count` values times a factor: an f64 on the device.
pub(super) fn total(work: &Work, values: &Buffer, count: usize, factor: f32) -> Result<Buffer> {
    let total = work.scratch::<f64>(1)?;
    total_at(work, values, count, factor, false, total.address())?;
    Ok(total)
}

/// Writes that sum to an address; added to the old value if `onto`.
fn total_at(work: &Work, values: &Buffer, count: usize, factor: f32, onto: bool, at: Address) -> Result<()> {
    let arguments = arguments![values.address(), count, factor, u32::from(onto), at];
    // SAFETY: the callers ensure that many values, and one f64
    unsafe { work.blocks("total_of", [1; 3], arguments) }
}

/// Reads a number from the device, and waits for it.
pub(super) fn number(of: &Buffer) -> Result<f64> {
    let mut result = [0.0f64];
    of.download(&mut result)?;
    Ok(result[0])
}
