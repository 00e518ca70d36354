//! Copies and element-by-element combinations.

use graphmill_graph::NodeId;

use super::{
    aggregate::{Sum, Unit},
    level::{Isa, kernel, prefetch},
    parallel::{self, Rows},
};
use crate::{View, ViewMut, backend::shape};

/// Calls `f` with the first index and the values of pieces of `data`, in parallel; `inputs` is how many
/// values are read for each.
pub(super) fn elements(data: &mut [f32], inputs: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    parallel::rows(data.len(), 1 + inputs, Rows { data, width: 1 }, |range, part| f(range.start, part.data));
}

pub(super) fn gather(src: View, ids: &[NodeId], dst: ViewMut) {
    shape::gather(src, ids, &dst);
    let (cols, src) = (src.num_cols(), src.host());
    if cols == 0 {
        return;
    }
    let ahead = Sum::<Unit>::ahead(src, cols);
    parallel::rows(ids.len(), cols, Rows { data: dst.host(), width: cols }, |range, out| {
        for (i, out) in range.zip(out.data.chunks_exact_mut(cols)) {
            if ahead != 0
                && let Some(&next) = ids.get(i + ahead)
            {
                prefetch(src, next as usize * cols, cols);
            }
            out.copy_from_slice(&src[ids[i] as usize * cols..][..cols]);
        }
    });
}

pub(super) fn add(alpha: f32, x: View, y: ViewMut) {
    shape::same(x, y.as_view());
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

kernel! {
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
