//! Rows and elements.

use graphmill_core::{View, ViewMut, matrix::TableType};
use graphmill_nn::backend::{
    Matrices, mask_hash,
    ops::{Add, AddDot, DropStored, Gather, shape},
};

use super::work::{Work, lanes, wide};
use crate::{Buffer, Result, arguments, device::Late, driver::Address};

/// Rows that a group of lanes moves at a time.
const ROWS: usize = 4;
/// Blocks of a sum over all values, at most: it depends on no device, and so does the sum.
const SUMS: usize = 512;

pub(super) fn gather(work: &Work, op: Gather) -> Result<()> {
    let Gather { src, ids, dst } = op;
    if src.is_sparse() {
        return densify(work, src, ids.iter().map(|&v| v as usize), dst);
    }
    let (rows, cols) = (ids.len(), src.num_cols());
    assert!(ids.iter().all(|&v| (v as usize) < src.num_rows()), "a row beyond the {}", src.num_rows());
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

/// `dst` becomes these sparse rows, with their zeros.
fn densify(work: &Work, x: View, rows: impl Iterator<Item = usize>, mut dst: ViewMut) -> Result<()> {
    fill(work, 0.0, dst.reborrow())?;
    let cols = x.num_cols();
    add_rows(work, 1.0, x, rows, cols, work.change(dst)?)
}

/// `dst[i] += alpha x[rows[i]]` of sparse rows.
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
        let (of_row, stored) = x.sparse_row(i).expect("sparse rows");
        columns.extend_from_slice(of_row);
        values.extend_from_slice(stored);
        indptr.push(columns.len() as u64);
    }
    let count = indptr.len() - 1;
    let [indptr, columns, values] =
        [work.queue.upload(&indptr)?, work.queue.upload(&columns)?, work.queue.upload(&values)?];
    let arguments =
        arguments![indptr.address(), columns.address(), values.address(), alpha, count, cols, dst];
    // SAFETY: columns of sparse rows are below `cols`, and the caller has as many rows there
    unsafe { work.groups("add_sparse", count, 32, arguments) }
}

/// Sparse rows as dense ones in memory of the device.
pub(super) fn dense(work: &Work, x: View) -> Result<Buffer> {
    let (rows, cols) = shape::of(x);
    let buffer = work.scratch::<f32>(rows * cols)?;
    // SAFETY: it is as large
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

/// `y = y + alpha x` of so many values.
pub(super) fn add_values(work: &Work, alpha: f32, x: Address, y: Address, count: usize) -> Result<()> {
    let wide = u32::from(wide(0, &[(x, 4), (y, 4)]));
    // SAFETY: the caller has as many values in both
    unsafe { work.queue.run("add_values", count.div_ceil(4), arguments![alpha, x, y, count, wide]) }
}

/// In host memory: the stored values are there, and the operations that read the result read it
/// there.
pub(super) fn drop_stored(op: DropStored) {
    let DropStored { x, dropout, out } = op;
    let (threshold, scale) = (dropout.threshold(), dropout.scale());
    let mut out = out.host().iter_mut();
    for r in 0..x.num_rows() {
        let (columns, values) = x.sparse_row(r).expect("sparse rows");
        let key = dropout.row_key(r);
        for ((&c, &value), out) in columns.iter().zip(values).zip(&mut out) {
            *out = if mask_hash(key, c) < threshold { 0.0 } else { value * scale };
        }
    }
}

pub(super) fn fill(work: &Work, value: f32, x: ViewMut) -> Result<()> {
    let count = x.num_rows() * x.num_cols();
    let x = work.write(x)?;
    // SAFETY: as many values are there
    unsafe { work.fill(x, value, count) }
}

pub(super) fn scale(work: &Work, alpha: f32, x: ViewMut) -> Result<()> {
    let count = x.num_rows() * x.num_cols();
    let x = work.change(x)?;
    scale_values(work, alpha, x, count)
}

/// `x = alpha x` of so many values.
pub(super) fn scale_values(work: &Work, alpha: f32, x: Address, count: usize) -> Result<()> {
    let wide = u32::from(wide(0, &[(x, 4)]));
    // SAFETY: the caller has as many values there
    unsafe { work.queue.run("scale_values", count.div_ceil(4), arguments![Late(alpha), x, count, wide]) }
}

pub(super) fn copy(work: &Work, src: View, dst: ViewMut) -> Result<()> {
    shape::same(src, dst.as_view());
    let bytes = 4 * src.num_rows() * src.num_cols();
    let (from, to) = (work.read(src)?, work.write(dst)?);
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: both are as large
    unsafe { work.queue.device().driver().copy(from, to, bytes, work.queue.stream()) }
}

pub(super) fn dot(work: &Work, x: View, y: View) -> Result<f64> {
    let (sums, blocks) = dot_sums(work, x, y)?;
    number(&total(work, &sums, blocks, 1.0)?)
}

/// The sums, one a block of threads, that make a dot, and how many.
fn dot_sums(work: &Work, x: View, y: View) -> Result<(Buffer, usize)> {
    shape::same(x, y);
    let count = x.num_rows() * x.num_cols();
    let blocks = count.div_ceil(1024).min(SUMS);
    let sums = work.scratch::<f64>(blocks)?;
    let arguments = arguments![work.read(x)?, work.read(y)?, count, sums.address()];
    // SAFETY: both have as many values, and there is a sum for each block
    unsafe { work.blocks("dot_values", [blocks, 1, 1], arguments)? };
    Ok((sums, blocks))
}

pub(super) fn add_dot(work: &Work, op: AddDot) -> Result<()> {
    let AddDot { x, y, out } = op;
    let (sums, blocks) = dot_sums(work, x, y)?;
    let arguments = arguments![sums.address(), blocks, work.change(out)?];
    // SAFETY: as many sums are there, and one value
    unsafe { work.blocks("add_total", [1; 3], arguments) }
}

pub(super) fn squares(work: &Work, matrices: &mut Matrices) -> Result<f64> {
    let squares = work.scratch::<f64>(1)?;
    // SAFETY: one f64 is there, which is 0 where both of its halves are
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

/// The sum of so many values, times a factor: an f64 on the device.
pub(super) fn total(work: &Work, values: &Buffer, count: usize, factor: f32) -> Result<Buffer> {
    let total = work.scratch::<f64>(1)?;
    total_at(work, values, count, factor, false, total.address())?;
    Ok(total)
}

/// The same, at an address; added to what is there if `onto`.
fn total_at(work: &Work, values: &Buffer, count: usize, factor: f32, onto: bool, at: Address) -> Result<()> {
    let arguments = arguments![values.address(), count, factor, u32::from(onto), at];
    // SAFETY: the callers have as many values there, and one f64
    unsafe { work.blocks("total_of", [1; 3], arguments) }
}

/// A number of the device. Waits for it.
pub(super) fn number(of: &Buffer) -> Result<f64> {
    let mut result = [0.0f64];
    of.download(&mut result)?;
    Ok(result[0])
}
