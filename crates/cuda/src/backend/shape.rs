//! The shapes that every operation asserts before it starts, as the other backends do: a mismatch is a bug in
//! a layer. A block's arrays may be on the device alone, so their lengths are taken there; the values of
//! `indices` are the sampler's promise.

use graphmill_core::{Block, View};
use graphmill_nn::backend::{AggregationWeights, EdgeWeight, OwnWeight};

use crate::block::{Resident, ResidentTransposed};

/// Rows and columns.
pub(super) fn of(x: View) -> (usize, usize) {
    (x.num_rows(), x.num_cols())
}

/// Both have the same shape.
pub(super) fn same(x: View, y: View) {
    assert_eq!(of(x), of(y), "shapes differ");
}

/// One row of `cols`.
pub(super) fn row(x: View, cols: usize) {
    assert_eq!(of(x), (1, cols), "one row wanted");
}

/// The width of a head.
pub(super) fn width(cols: usize, heads: usize) -> usize {
    assert!(heads > 0 && cols.is_multiple_of(heads), "{cols} columns do not make {heads} heads");
    cols / heads
}

/// The arrays agree with the block's sizes.
pub(super) fn block(b: &Block, on_device: &Resident) {
    assert_eq!(on_device.num_dst, b.num_dst, "a block's destinations on the device");
    let local = on_device.dst_ids.is_none();
    assert!(!local || b.num_dst <= b.num_src, "destinations are a prefix of the sources");
}

/// The transpose of a block, which is local and has one.
pub(super) fn local<'a>(b: &Block, on_device: &'a Resident) -> &'a ResidentTransposed {
    block(b, on_device);
    let sources = b.num_grad_src();
    let back = on_device.transposed.as_ref().filter(|_| on_device.dst_ids.is_none());
    let back = back.expect("a gradient needs a local, transposed block");
    assert_eq!(back.num_src, sources, "a block's transpose");
    assert!(b.num_dst <= sources && sources <= b.num_src, "sources that want a gradient");
    back
}

/// `grad` is as wide as the sources' rows `x`, one row for each source that wants it.
pub(super) fn source_grad(b: &Block, x: View, grad: View) {
    assert_eq!(of(grad), (b.num_grad_src(), x.num_cols()), "gradient of the sources");
}

/// The block has the weights that are asked for.
pub(super) fn weights(on_device: &Resident, weighting: AggregationWeights) {
    if matches!(weighting.edge, EdgeWeight::Stored | EdgeWeight::Normalised) && on_device.num_edges > 0 {
        assert!(on_device.edge_weight.is_some(), "a block's edge weights");
    }
    match weighting.own {
        OwnWeight::None | OwnWeight::Constant(_) => (),
        OwnWeight::OnePlus(x) => row(x, 1),
        OwnWeight::Stored => {
            assert!(on_device.self_weight.is_some() || on_device.num_dst == 0, "a block's self weights");
        }
    }
}

/// Sources, and a result of one row per destination.
pub(super) fn aggregate(b: &Block, src: View, dst: View) {
    assert_eq!(src.num_rows(), b.num_src, "sources of an aggregation");
    assert_eq!(of(dst), (b.num_dst, src.num_cols()), "result of an aggregation");
}

/// A gradient of the destinations, and that of the sources.
pub(super) fn aggregate_transposed(b: &Block, dst_grad: View, src_grad: View) {
    assert_eq!(dst_grad.num_rows(), b.num_dst, "destinations of an aggregation's gradient");
    source_grad(b, dst_grad, src_grad);
}

/// One value per entry of an attention and head.
pub(super) fn entries(on_device: &Resident, heads: usize, x: View) {
    let entries = on_device.num_edges + on_device.num_dst;
    assert_eq!(of(x), (entries, heads), "entries of an attention");
}

/// The number of heads of an attention over input rows: its weights, and its result.
pub(super) fn attend_input(b: &Block, cols: usize, weights: [View; 2], out: View) -> usize {
    let [source, target] = weights;
    let heads = source.num_cols();
    same(source, target);
    assert_eq!(cols, source.num_rows(), "sources of an attention");
    assert_eq!(of(out), (b.num_dst, heads * cols), "result of an attention");
    heads
}

/// Statistics of a batch norm, and its rows.
pub(super) fn columns_norm(x: View, gamma: View, beta: View, stats: View, out: View) {
    row(gamma, x.num_cols());
    row(beta, x.num_cols());
    assert_eq!(of(stats), (2, x.num_cols()), "statistics of a batch norm");
    same(x, out);
}

/// Statistics of a layer norm, and its rows.
pub(super) fn rows_norm(x: View, gamma: View, beta: View, stats: View, out: View) {
    row(gamma, x.num_cols());
    row(beta, x.num_cols());
    assert_eq!(of(stats), (x.num_rows(), 2), "statistics of a layer norm");
    same(x, out);
}

/// Rows and their lengths.
pub(super) fn l2_norm(x: View, norms: View, out: View) {
    assert_eq!(of(norms), (x.num_rows(), 1), "norms");
    same(x, out);
}
