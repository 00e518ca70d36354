//! Copies and elementwise combinations.

use graphmill_core::NodeId;

use super::{
    level::{Isa, kernel},
    parallel::{self, Rows},
    simd::Element,
    source::Source,
    sum::ahead,
};
use crate::{
    View, ViewMut,
    backend::ops::{Add, Gather, shape},
    matrix::Table,
};

/// Calls `f` in parallel with ranges of `data`, given by their first index and values; `inputs` is
/// the number of values read per element.
pub(super) fn elements(data: &mut [f32], inputs: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    parallel::rows(data.len(), 1 + inputs, Rows { data, width: 1 }, |range, part| f(range.start, part.data));
}

pub(super) fn gather(op: Gather) {
    let Gather { src, ids, dst } = op;
    if let Some(slots) = src.slots() {
        return gather_of(slots, ids, dst);
    }
    match src.table() {
        Table::F32(table) => gather_of(table, ids, dst),
        Table::F16(table) => gather_of(table, ids, dst),
        Table::Bf16(table) => gather_of(table, ids, dst),
    }
}

fn gather_of<R: Source>(src: R, ids: &[NodeId], dst: ViewMut) {
    let cols = dst.num_cols();
    if cols == 0 {
        return;
    }
    let isa = Isa::current();
    parallel::rows(ids.len(), cols, Rows { data: dst.host(), width: cols }, |range, out| {
        gather_rows(isa, src, cols, &ids[range.start..], out.data);
    });
}

pub(super) fn add(op: Add) {
    let Add { alpha, x, y } = op;
    let (isa, x) = (Isa::current(), x.host());
    elements(y.host(), 1, |first, y| add_elements(isa, alpha, &x[first..first + y.len()], y));
}

pub(super) fn scale(alpha: f32, x: ViewMut) {
    let isa = Isa::current();
    elements(x.host(), 0, |_, x| scale_elements(isa, alpha, x));
}

pub(super) fn copy(src: View, dst: ViewMut) {
    shape::same(src, dst.as_view());
    let src = src.host();
    elements(dst.host(), 0, |first, dst| dst.copy_from_slice(&src[first..first + dst.len()]));
}

/// Adds the rows of `x` to those of `out` with the numbers `ids`, in their order.
pub(crate) fn add_rows(ids: &[NodeId], x: View, out: ViewMut) {
    let cols = out.num_cols();
    assert_eq!(shape::of(x), (ids.len(), cols), "rows to add");
    if cols > 0 {
        add_listed(Isa::current(), ids, cols, x.host(), out.host());
    }
}

/// Adds the rows of `x` with the numbers `ids` to those of `out`.
pub(crate) fn add_gathered(ids: &[NodeId], x: View, out: ViewMut) {
    let cols = out.num_cols();
    assert_eq!(shape::of(out.as_view()), (ids.len(), x.num_cols()), "sums of gathered rows");
    let (isa, x, out) = (Isa::current(), x.host(), Rows { data: out.host(), width: cols });
    parallel::rows(ids.len(), cols, out, |range, out| add_numbered(isa, &ids[range], cols, x, out.data));
}

kernel! {
    /// Adds the rows of `x` with the numbers `ids` to those of `out`, of `cols` values.
    fn add_numbered[](s: S, ids: &[NodeId], cols: usize, x: &[f32], out: &mut [f32]) {
        for (&id, out) in ids.iter().zip(out.chunks_exact_mut(cols.max(1))) {
            let x = &x[id as usize * cols..][..cols];
            let mut c = 0;
            while c < cols {
                s.store(out, c, s.add(s.load(out, c), s.load(x, c)));
                c += S::LANES;
            }
        }
    }

    /// Adds rows of `cols` values to those of `out` with the numbers `ids`.
    fn add_listed[](s: S, ids: &[NodeId], cols: usize, x: &[f32], out: &mut [f32]) {
        for (&id, x) in ids.iter().zip(x.chunks_exact(cols)) {
            let out = &mut out[id as usize * cols..][..cols];
            let mut c = 0;
            while c < cols {
                s.store(out, c, s.add(s.load(out, c), s.load(x, c)));
                c += S::LANES;
            }
        }
    }

    /// Gathers the rows of the first `ids`, as many as `out` has rows.
    fn gather_rows[R: Source](s: S, src: R, cols: usize, ids: &[NodeId], out: &mut [f32]) {
        let ahead = ahead(src, cols);
        for (i, out) in out.chunks_exact_mut(cols).enumerate() {
            if ahead != 0
                && let Some(&next) = ids.get(i + ahead)
            {
                src.prefetch(next as usize, cols);
            }
            let row = src.part(ids[i] as usize, cols, 0, cols);
            let mut c = 0;
            while c + S::LANES <= cols {
                s.store(out, c, R::Value::load_full(s, &row[c..]));
                c += S::LANES;
            }
            if c < cols {
                s.store_part(&mut out[c..], R::Value::load(s, &row[c..]));
            }
        }
    }

    fn add_elements[](s: S, alpha: f32, x: &[f32], y: &mut [f32]) {
        let mut c = 0;
        while c < y.len() {
            let sum = s.mul_add(s.splat(alpha), s.load(x, c), s.load(y, c));
            s.store(y, c, sum);
            c += S::LANES;
        }
    }

    fn scale_elements[](s: S, alpha: f32, x: &mut [f32]) {
        let mut c = 0;
        while c < x.len() {
            let scaled = s.mul(s.splat(alpha), s.load(x, c));
            s.store(x, c, scaled);
            c += S::LANES;
        }
    }
}
