//! Rows and elements.

use super::{at, set};
use crate::{
    View, ViewMut,
    backend::{
        dropped,
        ops::{Add, DropStored, Gather, shape},
    },
};

pub(super) fn gather(op: Gather) {
    let Gather { src, ids, dst } = op;
    set(dst, |r, c, _| at(src, ids[r] as usize, c));
}

pub(super) fn add(op: Add) {
    let Add { alpha, x, y } = op;
    set(y, |r, c, old| f64::from(old) + f64::from(alpha) * at(x, r, c));
}

pub(super) fn drop_stored(op: DropStored) {
    let DropStored { x, dropout, out } = op;
    let out = out.host();
    let mut k = 0;
    for r in 0..x.num_rows() {
        let (columns, values) = x.sparse_row(r).expect("rows are sparse");
        for (&c, &value) in columns.iter().zip(values) {
            out[k] = if dropped(dropout, r, c as usize) { 0.0 } else { value * dropout.scale() };
            k += 1;
        }
    }
}

pub(super) fn fill(value: f32, x: ViewMut) {
    set(x, |_, _, _| f64::from(value));
}

pub(super) fn scale(alpha: f32, x: ViewMut) {
    set(x, |_, _, old| f64::from(alpha) * f64::from(old));
}

pub(super) fn copy(src: View, dst: ViewMut) {
    shape::same(src, dst.as_view());
    dst.host().copy_from_slice(src.host());
}

pub(super) fn add_column_sums(x: View, out: ViewMut) {
    shape::row(out.as_view(), x.num_cols());
    set(out, |_, c, old| f64::from(old) + (0..x.num_rows()).map(|r| at(x, r, c)).sum::<f64>());
}

pub(super) fn dot(x: View, y: View) -> f64 {
    shape::same(x, y);
    x.host().iter().zip(y.host()).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
}
