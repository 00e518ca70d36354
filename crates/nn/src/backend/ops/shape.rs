//! Assertions shared by the checks of operations.

use graphmill_core::Block;

use crate::{
    View,
    backend::{AggregationWeights, EdgeWeight, OwnWeight},
};

/// Number of rows and columns.
pub fn of(x: View) -> (usize, usize) {
    (x.num_rows(), x.num_cols())
}

/// Asserts that both matrices have the same shape.
pub fn same(x: View, y: View) {
    assert_eq!(of(x), of(y), "shapes differ");
}

/// Asserts that the matrix is one row of `cols`.
pub fn row(x: View, cols: usize) {
    assert_eq!(of(x), (1, cols), "shape of a single row");
}

/// Asserts that the matrix is one row with column `at`.
pub(super) fn column(x: View, at: usize) {
    row(x, x.num_cols());
    assert!(at < x.num_cols(), "column {at} of {}", x.num_cols());
}

/// Width of each of `heads` heads in `cols` columns.
pub fn head_width(cols: usize, heads: usize) -> usize {
    assert!(heads > 0 && cols.is_multiple_of(heads), "{cols} columns do not make {heads} heads");
    cols / heads
}

/// Asserts that the arrays of a block match its sizes. The sampler guarantees the values of
/// `indices`, and kernels check them where they read. If the arrays are only on a device, its
/// backend checks their lengths.
pub(super) fn block(b: &Block) {
    if b.drawn_on_device().is_some() {
        return;
    }
    assert_eq!(b.indptr.len(), b.num_dst + 1, "a block's indptr");
    assert_eq!(b.indptr[b.num_dst] as usize, b.num_edges(), "a block's last indptr");
    if let Some(ids) = &b.dst_ids {
        assert_eq!(ids.len(), b.num_dst, "a block's dst_ids");
    }
}

/// Asserts that every destination has an own row among the sources. A slice of a
/// [`graphmill_core::typed::TypedBlock`] has none.
pub(super) fn prefix(b: &Block) {
    assert!(b.dst_ids.is_some() || b.num_dst <= b.num_src, "destinations are a prefix of the sources");
}

/// Asserts that the block is local and transposed.
pub(super) fn local(b: &Block) {
    block(b);
    assert!(b.dst_ids.is_none() && b.is_transposed(), "a gradient requires a local, transposed block");
    let (t, sources) = (&b.transposed, b.num_grad_src());
    let has_destinations = b.grad_src.is_none() || b.num_dst <= sources;
    assert!(has_destinations && sources <= b.num_src, "sources that receive a gradient");
    if b.drawn_on_device().is_some() {
        return;
    }
    let edges = t.indptr[sources] as usize;
    assert_eq!((t.dst.len(), t.edge.len()), (edges, edges), "a block's transpose");
    assert!(if sources == b.num_src { edges == b.num_edges() } else { edges <= b.num_edges() });
}

/// Asserts that the block has the weights.
pub(super) fn weights(b: &Block, weights: AggregationWeights) {
    let is_on_host = b.drawn_on_device().is_none();
    if is_on_host && matches!(weights.edge, EdgeWeight::Stored | EdgeWeight::Normalized) {
        assert_eq!(b.edge_weight.len(), b.num_edges(), "a block's edge weights");
    }
    if !matches!(weights.own, OwnWeight::None) {
        prefix(b);
    }
    match weights.own {
        OwnWeight::None | OwnWeight::Constant(_) => (),
        OwnWeight::OnePlus(x) => row(x, 1),
        OwnWeight::Stored if is_on_host => {
            assert_eq!(b.self_weight.len(), b.num_dst, "a block's self weights");
        }
        OwnWeight::Stored => (),
    }
}

/// Asserts that `grad` is as wide as the sources' rows `x`, with one row per source that receives a
/// gradient.
pub(super) fn source_grad(b: &Block, x: View, grad: View) {
    assert_eq!(of(grad), (b.num_grad_src(), x.num_cols()), "gradient of the sources");
}

/// Asserts one value per head for each entry of an attention matrix: edges, then destinations.
pub(super) fn entries(b: &Block, heads: usize, x: View) {
    assert_eq!(of(x), (b.num_edges() + b.num_dst, heads), "entries of an attention");
}
