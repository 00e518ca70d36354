//! The choice of the factor of `A X W` to multiply first.
//!
//! The order is chosen per layer from the sizes of its block (Zeng et al., *Accurate, Efficient and
//! Scalable Training of Graph Neural Networks*, JPDC 2021, section 6.1, which counts the
//! multiplications of a square subgraph, forward and backward). Here blocks are rectangular, which
//! changes the answer: transforming first multiplies all `S` sources where aggregating first
//! multiplies the `D` destinations only. And aggregation is bound by memory, not by arithmetic, so
//! the two are brought to one unit, bytes, by the machine's balance:
//!
//! ```text
//! gemm(m, k, n)    = 2 m k n / FLOPS_PER_BYTE
//! gather(e, r, w)  = e (4 w + 4) + 4 r w          e rows of w values read, r rows written
//!
//!                     aggregate first                    transform first
//! forward             gather(E, D, F) + gemm(D, F, O)    gemm(S, F, O) + gather(E, D, O)
//! weights' gradient   gemm(F, D, O)                      gather(E, S, O) + gemm(F, S, O)
//! input's gradient    gemm(D, O, F) + gather(E, S, F)    gemm(S, O, F)
//! transposing         TRANSPOSE (S + E), if the          TRANSPOSE (S + E)
//!                     input's gradient is wanted
//! ```
//!
//! What both orders do alike (own rows, bias) is left out.

use graphmill_core::Block;

/// The factor of `A X W` that is multiplied first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductOrder {
    /// `(A X) W`: aggregate the input rows, then transform the few destinations.
    AggregateFirst,
    /// `A (X W)`: transform all source rows, then aggregate the narrower rows.
    TransformFirst,
}

/// Floating-point operations of a matrix product in the time in which aggregation moves a byte: on
/// the machine measured one core multiplies at 205 GFLOP/s and aggregates at 31 GB/s.
const FLOPS_PER_BYTE: f64 = 7.0;

/// Bytes moved per edge and per source by the counting sort that transposes a block: an edge is
/// counted, placed and written (24 bytes, in random order), a source's cursor is summed up and
/// moved.
const TRANSPOSE: f64 = 24.0;

/// The sizes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// `D`.
    pub dst: usize,
    /// `S`: distinct sources, also where the block is global.
    pub src: usize,
    /// `E`.
    pub edges: usize,
}

impl From<&Block> for BlockShape {
    /// The sizes of a local block. (A global one does not know how many distinct sources it has.)
    fn from(block: &Block) -> Self {
        Self { dst: block.num_dst, src: block.num_src, edges: block.num_edges() }
    }
}

/// What is to be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Forward only.
    Inference,
    /// Forward and the weights' gradients.
    BottomLayer,
    /// Forward and all gradients.
    InnerLayer,
}

/// The cost of a layer `F = in_dim` to `O = out_dim` in this order, in bytes moved.
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
    let gemm = |rows: f64| 2.0 * rows * f * o / FLOPS_PER_BYTE;
    let gather = |rows: f64, width: f64| e * (4.0 * width + 4.0) + 4.0 * rows * width;
    let transposing = TRANSPOSE * (s + e);
    let (forward, weights, input) = match order {
        ProductOrder::AggregateFirst => {
            (gather(d, f) + gemm(d), gemm(d), gemm(d) + gather(s, f) + transposing)
        }
        ProductOrder::TransformFirst => {
            (gemm(s) + gather(d, o), gather(s, o) + gemm(s) + transposing, gemm(s))
        }
    };
    sum([forward, weights, input], purpose)
}

/// The same for graph attention ([`crate::layer::Gat`]), whose entries are the edges and the
/// destinations themselves, with `H = heads` of `C = head_dim` columns each:
///
/// ```text
///                     aggregate first                    transform first
/// forward             gather(E, H D, F) + H dots         gather(E, D, H C) + 2 S H C
/// weights' gradient   gather(E, H D, F) + H dots         gather(E, D, H C) + gather(E, S, H C) + 6 S H C
/// input's gradient    gather(H E, S, F)
/// ```
///
/// and the products, as above. `H dots` are a row's with every head's vector, and the sums beside
/// them.
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
    let gemm = |rows: f64| 2.0 * rows * f * o / FLOPS_PER_BYTE;
    let gather = |entries: f64, rows: f64, width: f64| entries * (4.0 * width + 4.0) + 4.0 * rows * width;
    let transposing = TRANSPOSE * (s + e);
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
    sum([forward, weights, input], purpose)
}

/// What the purpose needs of (forward, weights' gradients, input's gradient).
fn sum([forward, weights, input]: [f64; 3], purpose: Purpose) -> f64 {
    match purpose {
        Purpose::Inference => forward,
        Purpose::BottomLayer => forward + weights,
        Purpose::InnerLayer => forward + weights + input,
    }
}

/// The cheapest of the orders a layer knows; the first of equals.
///
/// # Panics
/// It knows none.
pub fn cheapest(orders: &[ProductOrder], cost: impl Fn(ProductOrder) -> f64) -> ProductOrder {
    *orders.iter().min_by(|a, b| cost(**a).total_cmp(&cost(**b))).expect("a layer knows an order")
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
    fn on_a_square_block_the_narrower_rows_are_aggregated() {
        // The rule of the paper's section 6.1: f1 < f2, aggregate first; else transform first.
        let square = BlockShape { dst: 8_000, src: 8_000, edges: 120_000 };
        for purpose in [Purpose::Inference, Purpose::InnerLayer] {
            assert_eq!(choose(BOTH, square, 100, 256, purpose), AggregateFirst);
            assert_eq!(choose(BOTH, square, 602, 128, purpose), TransformFirst);
            assert_eq!(choose(BOTH, square, 256, 47, purpose), TransformFirst);
        }
        // Without the input's gradient, aggregating first aggregates once instead of twice: only
        // rows less than half as wide pay for the second.
        assert_eq!(choose(BOTH, square, 256, 200, Purpose::BottomLayer), AggregateFirst);
        assert_eq!(choose(BOTH, square, 256, 100, Purpose::BottomLayer), TransformFirst);
    }

    #[test]
    fn with_many_sources_for_each_destination_the_destinations_are_transformed() {
        // A sampled bottom block: a source feeds hardly more than one edge.
        let tree = BlockShape { dst: 20_000, src: 180_000, edges: 200_000 };
        for purpose in PURPOSES {
            for (f, o) in [(100, 256), (256, 256), (602, 256), (602, 128)] {
                assert_eq!(choose(BOTH, tree, f, o, purpose), AggregateFirst, "{f} to {o}, {purpose:?}");
            }
        }
    }

    #[test]
    fn attention_aggregates_first_on_a_sampled_tree() {
        let of = |shape, [f, heads, width]: [usize; 3], purpose| {
            cheapest(BOTH, |order| attention(order, shape, f, heads, width, purpose))
        };
        let tree = BlockShape { dst: 11_000, src: 70_000, edges: 95_000 };
        assert_eq!(of(tree, [100, 4, 64], Purpose::BottomLayer), AggregateFirst);
        assert_eq!(of(tree, [256, 1, 47], Purpose::InnerLayer), AggregateFirst);
        // over all neighbours the transformed rows are read once for all heads
        let whole = BlockShape { dst: 1_000_000, src: 1_000_000, edges: 100_000_000 };
        assert_eq!(of(whole, [1000, 8, 8], Purpose::Inference), TransformFirst);
        assert_eq!(of(whole, [256, 1, 47], Purpose::Inference), TransformFirst);
    }

    #[test]
    fn in_the_limit_of_dense_blocks_only_the_width_counts() {
        let dense = BlockShape { dst: 1_000, src: 1_000, edges: 1_000_000 };
        for purpose in [Purpose::Inference, Purpose::InnerLayer] {
            assert_eq!(choose(BOTH, dense, 256, 255, purpose), TransformFirst);
            assert_eq!(choose(BOTH, dense, 255, 256, purpose), AggregateFirst);
        }
    }

    #[test]
    fn no_edges_cost_the_products_alone_and_nothing_costs_nothing() {
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
    fn a_layer_that_knows_one_order_gets_it() {
        let tree = BlockShape { dst: 1, src: 1_000, edges: 1_000 };
        assert_eq!(choose(&[TransformFirst], tree, 64, 64, Purpose::InnerLayer), TransformFirst);
    }

    #[test]
    fn the_shape_of_a_block() {
        let block = Block { num_dst: 1, num_src: 3, indices: vec![1, 2], ..Block::default() };
        assert_eq!(BlockShape::from(&block), BlockShape { dst: 1, src: 3, edges: 2 });
    }
}
