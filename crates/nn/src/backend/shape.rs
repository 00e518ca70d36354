//! The shapes every backend asserts before it starts: a mismatch is a bug in a layer, and a kernel
//! behind `unsafe` must never see one.

use graphmill_core::{Block, NodeId};

use super::{AggregationWeights, ArgMax, EdgeWeight, OwnWeight, Side};
use crate::{View, ViewMut};

/// Both have the same shape.
pub(crate) fn same(x: View, y: View) {
    assert_eq!((x.num_rows(), x.num_cols()), (y.num_rows(), y.num_cols()), "shapes differ");
}

/// The widths of a head in the three matrices of a product by heads.
pub(crate) fn head_gemm(
    heads: usize,
    a: View,
    side_a: Side,
    b: View,
    side_b: Side,
    c: &ViewMut,
) -> (usize, usize, usize) {
    let widths = (width(a.num_cols(), heads), width(b.num_cols(), heads), width(c.num_cols(), heads));
    let oriented = |x: View, width, side| match side {
        Side::Plain => (x.num_rows(), width),
        Side::Transposed => (width, x.num_rows()),
    };
    let ((m, k), (k2, n)) = (oriented(a, widths.0, side_a), oriented(b, widths.1, side_b));
    assert!(side_a == Side::Plain || side_b == Side::Plain, "at most one factor is transposed");
    assert_eq!(k, k2, "inner dimensions of a product by heads");
    assert_eq!((c.num_rows(), widths.2), (m, n), "result of a product by heads");
    widths
}

/// One row of `cols`.
pub(crate) fn row(x: &View, cols: usize) {
    assert_eq!((x.num_rows(), x.num_cols()), (1, cols), "one row wanted");
}

/// `(m, n, k)` of a product.
pub(crate) fn gemm(a: View, side_a: Side, b: View, side_b: Side, c: &ViewMut) -> (usize, usize, usize) {
    let oriented = |x: View, side| match side {
        Side::Plain => (x.num_rows(), x.num_cols()),
        Side::Transposed => (x.num_cols(), x.num_rows()),
    };
    let ((m, k), (k2, n)) = (oriented(a, side_a), oriented(b, side_b));
    assert!(side_a == Side::Plain || side_b == Side::Plain, "at most one factor is transposed");
    assert_eq!(k, k2, "inner dimensions of a product");
    assert_eq!((c.num_rows(), c.num_cols()), (m, n), "result of a product");
    (m, n, k)
}

/// The vectors of a block agree with its sizes. The values of `indices` are the sampler's promise;
/// kernels check them where they read.
pub(crate) fn block(block: &Block) {
    assert_eq!(block.indptr.len(), block.num_dst + 1, "a block's indptr");
    assert_eq!(block.indptr[block.num_dst] as usize, block.num_edges(), "a block's last indptr");
    match &block.dst_ids {
        Some(ids) => assert_eq!(ids.len(), block.num_dst, "a block's dst_ids"),
        None => assert!(block.num_dst <= block.num_src, "destinations are a prefix of the sources"),
    }
}

/// The block is local and transposed.
pub(crate) fn local(b: &Block) {
    block(b);
    assert!(b.dst_ids.is_none() && b.is_transposed(), "a gradient needs a local, transposed block");
    let (t, sources) = (&b.transposed, b.num_grad_src());
    assert!(b.num_dst <= sources && sources <= b.num_src, "sources that want a gradient");
    let edges = t.indptr[sources] as usize;
    assert_eq!((t.dst.len(), t.edge.len()), (edges, edges), "a block's transpose");
    assert!(if sources == b.num_src { edges == b.num_edges() } else { edges <= b.num_edges() });
}

/// `grad` is as wide as the sources' rows `x`, one row for each source that wants it.
pub(crate) fn source_grad(b: &Block, x: View, grad: View) {
    let wanted = (b.num_grad_src(), x.num_cols());
    assert_eq!((grad.num_rows(), grad.num_cols()), wanted, "gradient of the sources");
}

fn weights(block: &Block, weighting: AggregationWeights) {
    if matches!(weighting.edge, EdgeWeight::Stored | EdgeWeight::Normalised) {
        assert_eq!(block.edge_weight.len(), block.num_edges(), "a block's edge weights");
    }
    match weighting.own {
        OwnWeight::None | OwnWeight::Constant(_) => (),
        OwnWeight::OnePlus(x) => row(&x, 1),
        OwnWeight::Stored => {
            assert_eq!(block.self_weight.len(), block.num_dst, "a block's self weights");
        }
    }
}

pub(crate) fn aggregate(b: &Block, weighting: AggregationWeights, src: View, dst: &ViewMut) {
    block(b);
    weights(b, weighting);
    assert_eq!(src.num_rows(), b.num_src, "sources of an aggregation");
    assert_eq!((dst.num_rows(), dst.num_cols()), (b.num_dst, src.num_cols()), "result of an aggregation");
}

pub(crate) fn aggregate_transposed(
    b: &Block,
    weighting: AggregationWeights,
    dst_grad: View,
    src_grad: &ViewMut,
) {
    local(b);
    weights(b, weighting);
    assert_eq!(dst_grad.num_rows(), b.num_dst, "destinations of an aggregation's gradient");
    source_grad(b, dst_grad, src_grad.as_view());
}

pub(crate) fn hop(first: usize, b: &Block, src: View, dst: &ViewMut) {
    aggregate(b, AggregationWeights::STORED, src, dst);
    assert!(first <= src.num_cols(), "columns that stay");
}

pub(crate) fn hop_transposed(first: usize, b: &Block, dst_grad: View, src_grad: &ViewMut) {
    aggregate_transposed(b, AggregationWeights::STORED, dst_grad, src_grad);
    assert!(first <= dst_grad.num_cols(), "columns that stay");
}

pub(crate) fn aggregate_max_transposed(b: &Block, arg: &ArgMax, dst_grad: View, src_grad: &ViewMut) {
    aggregate_transposed(
        b,
        AggregationWeights { edge: EdgeWeight::One, own: OwnWeight::None },
        dst_grad,
        src_grad,
    );
    let arg = arg.bits();
    assert_eq!((arg.num_rows(), arg.num_cols()), (b.num_dst, dst_grad.num_cols()), "winners of a maximum");
}

/// The width of a head.
pub(crate) fn head_dot(z: View, a: View, heads: usize, out: &View) -> usize {
    row(&a, z.num_cols());
    assert_eq!((out.num_rows(), out.num_cols()), (z.num_rows(), heads), "one value per row and head");
    width(z.num_cols(), heads)
}

/// The number of heads.
pub(crate) fn edge_softmax(b: &Block, source: View, target: View, alpha: View) -> usize {
    block(b);
    same(source, target);
    assert_eq!(source.num_rows(), b.num_src, "sources of an attention");
    assert_eq!(
        (alpha.num_rows(), alpha.num_cols()),
        (b.num_edges() + b.num_dst, source.num_cols()),
        "entries of an attention"
    );
    source.num_cols()
}

/// The width of a head.
pub(crate) fn attend(b: &Block, alpha: View, z: View, out: View) -> usize {
    block(b);
    assert_eq!(alpha.num_rows(), b.num_edges() + b.num_dst, "entries of an attention");
    assert_eq!(z.num_rows(), b.num_src, "sources of an attention");
    assert_eq!((out.num_rows(), out.num_cols()), (b.num_dst, z.num_cols()), "result of an attention");
    width(z.num_cols(), alpha.num_cols())
}

/// The number of heads.
pub(crate) fn attend_input(b: &Block, x: View, weights: [View; 2], entries: [View; 2], out: View) -> usize {
    assert_eq!(x.num_rows(), b.num_src, "sources of an attention");
    attend_rows(b, x, weights, entries, out)
}

/// The number of heads.
pub(crate) fn attend_input_transposed(
    b: &Block,
    x_grad: View,
    weights: [View; 2],
    entries: [View; 2],
    grad: View,
) -> usize {
    local(b);
    source_grad(b, x_grad, x_grad);
    attend_rows(b, x_grad, weights, entries, grad)
}

fn attend_rows(b: &Block, x: View, weights: [View; 2], entries: [View; 2], out: View) -> usize {
    block(b);
    let [source, target] = weights;
    let heads = source.num_cols();
    same(source, target);
    assert_eq!(x.num_cols(), source.num_rows(), "sources of an attention");
    assert_eq!((out.num_rows(), out.num_cols()), (b.num_dst, heads * x.num_cols()), "result of an attention");
    for of_entries in entries {
        let shape = (of_entries.num_rows(), of_entries.num_cols());
        assert_eq!(shape, (b.num_edges() + b.num_dst, heads), "entries of an attention");
    }
    heads
}

/// The width of a head.
pub(crate) fn head_mean(x: View, heads: usize, out: View) -> usize {
    let width = width(x.num_cols(), heads);
    assert_eq!((out.num_rows(), out.num_cols()), (x.num_rows(), width), "mean over heads");
    width
}

/// How many values are stored.
pub(crate) fn drop_stored(x: View, out: &ViewMut) {
    let stored = x.sparse().expect("gathered sparse rows").values.len();
    assert_eq!((out.num_rows(), out.num_cols()), (stored, 1), "one row per stored value");
}

fn width(cols: usize, heads: usize) -> usize {
    assert!(heads > 0 && cols.is_multiple_of(heads), "{cols} columns do not make {heads} heads");
    cols / heads
}

pub(crate) fn gather(src: View, ids: &[NodeId], dst: &ViewMut) {
    assert_eq!((dst.num_rows(), dst.num_cols()), (ids.len(), src.num_cols()), "result of a gather");
}

pub(crate) fn columns_norm(x: View, gamma: View, beta: View, stats: View, out: View) {
    row(&gamma, x.num_cols());
    row(&beta, x.num_cols());
    assert_eq!((stats.num_rows(), stats.num_cols()), (2, x.num_cols()), "statistics of a batch norm");
    same(x, out);
}

pub(crate) fn rows_norm(x: View, gamma: View, beta: View, stats: View, out: View) {
    row(&gamma, x.num_cols());
    row(&beta, x.num_cols());
    assert_eq!((stats.num_rows(), stats.num_cols()), (x.num_rows(), 2), "statistics of a layer norm");
    same(x, out);
}

pub(crate) fn l2_norm(x: View, norms: View, out: View) {
    assert_eq!((norms.num_rows(), norms.num_cols()), (x.num_rows(), 1), "norms");
    same(x, out);
}

fn loss(logits: View, weight: &[f32], grad: &ViewMut) {
    same(logits, grad.as_view());
    assert!(weight.is_empty() || weight.len() == logits.num_rows(), "one loss weight per row");
}

pub(crate) fn softmax_cross_entropy(logits: View, label: &[i32], weight: &[f32], grad: &ViewMut) {
    loss(logits, weight, grad);
    assert_eq!(label.len(), logits.num_rows(), "one label per row");
    let classes = logits.num_cols() as i64;
    assert!(label.iter().all(|&l| i64::from(l) < classes && l >= -1), "a label outside -1..{classes}");
}

pub(crate) fn sigmoid_cross_entropy(logits: View, target: &[u8], weight: &[f32], grad: &ViewMut) {
    loss(logits, weight, grad);
    assert_eq!(target.len(), logits.num_rows() * logits.num_cols(), "one target per logit");
}
