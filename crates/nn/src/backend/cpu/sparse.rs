//! Sparse rows: their products with a dense matrix, and conversions to dense rows.
//!
//! `X W` sums the rows of `W` named by the columns of a row of `X`, weighted by its values: an
//! aggregation over a block whose destinations are the rows and whose sources are the columns.
//! `X^T Y` is the same over the transposed lists. Both cost `2 nnz O` operations, where a dense
//! product costs `2 R F O`.

use super::{
    parallel::{self, Rows, Runs},
    sum::{ByEdge, Sum, Weight},
};
use crate::{
    View,
    backend::{
        Side, mask_hash,
        ops::{Add, DropStored, Gather, Gemm},
    },
    matrix::Sparse,
};

/// Values by column, restricted to the first `rows` rows.
#[derive(Clone, Copy)]
struct Prefix<'a> {
    values: &'a [f32],
    position: &'a [u32],
    rows: usize,
}

impl Weight for Prefix<'_> {
    #[inline(always)]
    fn of(&self, e: usize, _: usize, _: usize, _: usize) -> f32 {
        self.values[self.position[e] as usize]
    }

    #[inline(always)]
    fn is_beyond(&self, u: usize) -> bool {
        u >= self.rows
    }
}

fn rows(x: View) -> Sparse {
    x.sparse().expect("rows are gathered from a table before a product")
}

/// Product whose first factor is sparse.
pub(super) fn product(op: Gemm) {
    let Gemm { a: (x, side_a), b: (b, side_b), beta, c } = op;
    assert_eq!(side_b, Side::Plain, "sparse rows are multiplied by an untransposed matrix");
    let (sparse, cols) = (rows(x), c.num_cols());
    match side_a {
        Side::Plain => {
            let weight = ByEdge(sparse.values);
            Sum::weighted(sparse.indptr, sparse.indices, weight, b.host(), cols, beta).run(c.host());
        }
        Side::Transposed => {
            let t = sparse.transposed;
            assert_eq!(t.indptr.len(), x.num_cols() + 1, "sparse rows must be transposed first");
            assert_eq!(sparse.first, 0, "a transpose covers the first rows");
            let weight = Prefix { values: sparse.values, position: &t.edge, rows: x.num_rows() };
            Sum::weighted(&t.indptr, &t.dst, weight, b.host(), cols, beta).run(c.host());
        }
    }
}

/// Gathers sparse rows as dense rows, zeros included.
pub(super) fn gather(op: Gather) {
    let Gather { src: x, ids, dst: out } = op;
    let width = out.num_cols();
    parallel::rows(ids.len(), width, Rows { data: out.host(), width }, |range, out| {
        out.data.fill(0.0);
        for (&v, out) in ids[range].iter().zip(out.data.chunks_exact_mut(width.max(1))) {
            let (columns, values) = x.sparse_row(v as usize).expect("rows are sparse");
            columns.iter().zip(values).for_each(|(&j, &value)| out[j as usize] = value);
        }
    });
}

pub(super) fn add(op: Add) {
    let Add { alpha, x, y } = op;
    let width = y.num_cols();
    parallel::rows(x.num_rows(), width, Rows { data: y.host(), width }, |range, y| {
        for (i, y) in range.zip(y.data.chunks_exact_mut(width.max(1))) {
            let (columns, values) = x.sparse_row(i).expect("rows are sparse");
            columns.iter().zip(values).for_each(|(&j, &value)| y[j as usize] += alpha * value);
        }
    });
}

pub(super) fn drop_stored(op: DropStored) {
    let DropStored { x, dropout, out } = op;
    let Sparse { indptr, .. } = rows(x);
    let (scale, threshold) = (dropout.scale(), dropout.threshold());
    parallel::runs(indptr, 1, Runs { data: out.host(), indptr, width: 1 }, |range, out| {
        let mut out = out.data.iter_mut();
        for i in range {
            let (columns, values) = x.sparse_row(i).expect("rows are sparse");
            let key = dropout.row_key(i);
            for ((&j, &value), out) in columns.iter().zip(values).zip(&mut out) {
                *out = if mask_hash(key, j) < threshold { 0.0 } else { value * scale };
            }
        }
    });
}
