//! Choice of the multiplication order in `A X W`.
//!
//! # Algorithm
//!
//! The order is chosen per layer from the sizes of its block: both orders are costed, forward and
//! backward, and the cheaper one wins. Aggregation is bound by memory and multiplication by
//! arithmetic, so the machine's balance converts both to one unit, bytes:
//!
//! ```text
//! gemm(m, k, n)    = 2 m k n / FLOPS_PER_BYTE
//! gather(e, r, w)  = e (4 w + 4) + 4 r w          e rows of w values read, r rows written
//!
//!                     aggregate first                    transform first
//! forward             gather(E, D, F) + gemm(D, F, O)    gemm(S, F, O) + gather(E, D, O)
//! weights' gradient   gemm(F, D, O)                      gather(E, S, O) + gemm(F, S, O)
//! input's gradient    gemm(D, O, F) + gather(E, S, F)    gemm(S, O, F)
//! transposing         TRANSPOSE_BYTES (S + E), if the    TRANSPOSE_BYTES (S + E)
//!                     input's gradient is requested
//! ```
//!
//! Work that both orders share (own rows, bias) is left out.
//!
//! # Source
//!
//! Zeng et al., *Accurate, Efficient and Scalable Training of Graph Neural Networks*, JPDC 2021,
//! section 6.1, which counts the multiplications of a square subgraph.
//!
//! # Cost
//!
//! O(1) per layer and order.
//!
//! # Deviations
//!
//! Blocks are rectangular here, which changes the answer: transforming first multiplies all `S`
//! sources, while aggregating first multiplies only the `D` destinations. Costs are bytes moved
//! instead of multiplications.

#![forbid(unsafe_code)]

use graphmill_core::Block;

/// Factor of `A X W` that is multiplied first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductOrder {
    /// `(A X) W`: aggregate the input rows, then transform the few destinations.
    AggregateFirst,
    /// `A (X W)`: transform all source rows, then aggregate the narrower rows.
    TransformFirst,
}

/// Floating-point operations of a matrix product in the time in which aggregation moves a byte. On
/// the measured machine, one core multiplies at 205 GFLOP/s and aggregates at 31 GB/s.
const FLOPS_PER_BYTE: f64 = 7.0;

/// Bytes moved per edge and per source by the counting sort that transposes a block: each edge is
/// counted, placed and written (24 bytes, in random order), and each source's cursor is summed and
/// advanced.
const TRANSPOSE_BYTES: f64 = 24.0;

/// Sizes of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockShape {
    /// Destinations, `D`.
    pub dst: usize,
    /// Distinct sources, `S`, even if the block is global.
    pub src: usize,
    /// Edges, `E`.
    pub edges: usize,
}

impl From<&Block> for BlockShape {
    /// Sizes of a local block. (A global block does not store its number of distinct sources.)
    fn from(block: &Block) -> Self {
        Self { dst: block.num_dst, src: block.num_src, edges: block.num_edges() }
    }
}

/// Results that a pass computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The output only.
    Inference,
    /// The output and the weights' gradients.
    BottomLayer,
    /// The output and all gradients.
    InnerLayer,
}

/// Cost of a product of matrices, `rows x F` times `F x O` with `F = in_dim` and `O = out_dim`, in
/// bytes moved.
pub fn product(rows: f64, in_dim: f64, out_dim: f64) -> f64 {
    2.0 * rows * in_dim * out_dim / FLOPS_PER_BYTE
}

/// Cost of a layer of widths `F = in_dim` and `O = out_dim` in the given order, in bytes moved.
///
/// ```
/// use graphmill_nn::{ProductOrder, cost::{BlockShape, Purpose, cost}};
/// let shape = BlockShape { dst: 1_000, src: 10_000, edges: 10_000 };
/// let first = cost(ProductOrder::AggregateFirst, shape, 100, 256, Purpose::BottomLayer);
/// assert!(first < cost(ProductOrder::TransformFirst, shape, 100, 256, Purpose::BottomLayer));
/// ```
pub fn cost(order: ProductOrder, shape: BlockShape, in_dim: usize, out_dim: usize, purpose: Purpose) -> f64 {
    let [d, s, e] = [shape.dst as f64, shape.src as f64, shape.edges as f64];
    let [f, o] = [in_dim as f64, out_dim as f64];
    let gemm = |rows: f64| product(rows, f, o);
    let gather = |rows: f64, width: f64| e * (4.0 * width + 4.0) + 4.0 * rows * width;
    let transposing = TRANSPOSE_BYTES * (s + e);
    let (forward, weights, input) = match order {
        ProductOrder::AggregateFirst => {
            (gather(d, f) + gemm(d), gemm(d), gemm(d) + gather(s, f) + transposing)
        }
        ProductOrder::TransformFirst => {
            (gemm(s) + gather(d, o), gather(s, o) + gemm(s) + transposing, gemm(s))
        }
    };
    total([forward, weights, input], purpose)
}

/// Cost of graph attention ([`crate::layer::Gat`]), in bytes moved. An attention matrix has an
/// entry per edge and one per destination, for each of `H = heads` heads of `C = head_dim` columns:
///
/// ```text
///                     aggregate first                    transform first
/// forward             gather(E, H D, F) + H dots         gather(E, D, H C) + 2 S H C
/// weights' gradient   gather(E, H D, F) + H dots         gather(E, D, H C) + gather(E, S, H C) + 6 S H C
/// input's gradient    gather(H E, S, F)
/// ```
///
/// The products of [`cost()`] come on top. `H dots` are a row's dot products with each head's
/// vector, and the sums computed beside them.
pub fn attention(
    order: ProductOrder,
    shape: BlockShape,
    in_dim: usize,
    heads: usize,
    head_dim: usize,
    purpose: Purpose,
) -> f64 {
    let [d, s] = [shape.dst as f64, shape.src as f64];
    let e = shape.edges as f64 + d;
    let [f, h, o] = [in_dim as f64, heads as f64, (heads * head_dim) as f64];
    let gemm = |rows: f64| product(rows, f, o);
    let gather = |entries: f64, rows: f64, width: f64| entries * (4.0 * width + 4.0) + 4.0 * rows * width;
    let transposing = TRANSPOSE_BYTES * (s + e);
    let dots = 4.0 * e * h * f / FLOPS_PER_BYTE;
    let (forward, weights, input) = match order {
        ProductOrder::AggregateFirst => {
            let once = gather(e, h * d, f) + dots + gemm(d);
            (once, once + gemm(d), gather(h * e, s, f) + transposing)
        }
        ProductOrder::TransformFirst => {
            let forward = gemm(s) + gather(e, d, o) + 8.0 * s * o;
            let weights = gather(e, d, o) + gather(e, s, o) + 24.0 * s * o + gemm(s) + transposing;
            (forward, weights, gemm(s))
        }
    };
    total([forward, weights, input], purpose)
}

/// Sum of the costs (forward, weights' gradients, input's gradient) that the purpose includes.
fn total([forward, weights, input]: [f64; 3], purpose: Purpose) -> f64 {
    match purpose {
        Purpose::Inference => forward,
        Purpose::BottomLayer => forward + weights,
        Purpose::InnerLayer => forward + weights + input,
    }
}

/// Cheapest of the orders that a layer supports; the first among equals.
///
/// # Panics
/// `orders` is empty.
pub fn cheapest(orders: &[ProductOrder], cost: impl Fn(ProductOrder) -> f64) -> ProductOrder {
    *orders
        .iter()
        .min_by(|a, b| cost(**a).total_cmp(&cost(**b)))
        .expect("a layer supports at least one order")
}

#[cfg(test)]
mod tests {
    use ProductOrder::{AggregateFirst, TransformFirst};

    use super::*;

    fn choose(
        orders: &[ProductOrder],
        shape: BlockShape,
        in_dim: usize,
        out_dim: usize,
        purpose: Purpose,
    ) -> ProductOrder {
        cheapest(orders, |order| cost(order, shape, in_dim, out_dim, purpose))
    }

    const BOTH: &[ProductOrder] = &[AggregateFirst, TransformFirst];
    const PURPOSES: [Purpose; 3] = [Purpose::Inference, Purpose::BottomLayer, Purpose::InnerLayer];

    #[test]
    fn square_blocks_aggregate_the_narrower_rows() {
        // The paper's rule (section 6.1): aggregate first if f1 < f2, else transform first.
        let square = BlockShape { dst: 8_000, src: 8_000, edges: 120_000 };
        for purpose in [Purpose::Inference, Purpose::InnerLayer] {
            assert_eq!(choose(BOTH, square, 100, 256, purpose), AggregateFirst);
            assert_eq!(choose(BOTH, square, 602, 128, purpose), TransformFirst);
            assert_eq!(choose(BOTH, square, 256, 47, purpose), TransformFirst);
        }
        // Without the input's gradient, aggregating first aggregates once instead of twice, so
        // transforming first pays only below half the width.
        assert_eq!(choose(BOTH, square, 256, 200, Purpose::BottomLayer), AggregateFirst);
        assert_eq!(choose(BOTH, square, 256, 100, Purpose::BottomLayer), TransformFirst);
    }

    #[test]
    fn sampled_blocks_with_many_sources_aggregate_first() {
        // A sampled bottom block: few sources have more than one edge.
        let tree = BlockShape { dst: 20_000, src: 180_000, edges: 200_000 };
        for purpose in PURPOSES {
            for (f, o) in [(100, 256), (256, 256), (602, 256), (602, 128)] {
                assert_eq!(choose(BOTH, tree, f, o, purpose), AggregateFirst, "{f} to {o}, {purpose:?}");
            }
        }
    }

    #[test]
    fn attention_aggregates_first_on_sampled_trees() {
        let of = |shape, [f, heads, width]: [usize; 3], purpose| {
            cheapest(BOTH, |order| attention(order, shape, f, heads, width, purpose))
        };
        let tree = BlockShape { dst: 11_000, src: 70_000, edges: 95_000 };
        assert_eq!(of(tree, [100, 4, 64], Purpose::BottomLayer), AggregateFirst);
        assert_eq!(of(tree, [256, 1, 47], Purpose::InnerLayer), AggregateFirst);
        // over all neighbours, the transformed rows are read once for all heads
        let whole = BlockShape { dst: 1_000_000, src: 1_000_000, edges: 100_000_000 };
        assert_eq!(of(whole, [1000, 8, 8], Purpose::Inference), TransformFirst);
        assert_eq!(of(whole, [256, 1, 47], Purpose::Inference), TransformFirst);
    }

    #[test]
    fn dense_blocks_choose_by_width_alone() {
        let dense = BlockShape { dst: 1_000, src: 1_000, edges: 1_000_000 };
        for purpose in [Purpose::Inference, Purpose::InnerLayer] {
            assert_eq!(choose(BOTH, dense, 256, 255, purpose), TransformFirst);
            assert_eq!(choose(BOTH, dense, 255, 256, purpose), AggregateFirst);
        }
    }

    #[test]
    fn edgeless_blocks_cost_only_their_products() {
        let no_edges = BlockShape { dst: 10, src: 1_000, edges: 0 };
        for purpose in PURPOSES {
            assert_eq!(choose(BOTH, no_edges, 64, 64, purpose), AggregateFirst);
        }
        let empty = BlockShape { dst: 0, src: 0, edges: 0 };
        for order in BOTH {
            assert_eq!(cost(*order, empty, 64, 64, Purpose::InnerLayer), 0.0);
        }
        assert_eq!(choose(BOTH, empty, 64, 64, Purpose::Inference), AggregateFirst);
    }

    #[test]
    fn a_single_supported_order_is_chosen() {
        let tree = BlockShape { dst: 1, src: 1_000, edges: 1_000 };
        assert_eq!(choose(&[TransformFirst], tree, 64, 64, Purpose::InnerLayer), TransformFirst);
    }

    #[test]
    fn shape_of_a_local_block_counts_its_nodes_and_edges() {
        let block = Block { num_dst: 1, num_src: 3, indices: vec![1, 2], ..Block::default() };
        assert_eq!(BlockShape::from(&block), BlockShape { dst: 1, src: 3, edges: 2 });
    }
}
