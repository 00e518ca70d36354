//! Count of the work that reuse saves and adds, on the first super-batch. A run computes exactly if
//! reuse does not pay.
//!
//! # Algorithm
//!
//! The first super-batch is drawn with and without reuse, and the work of its bottom blocks is
//! counted in bytes moved, the unit of [`graphmill_nn::cost`]. Reuse saves the rows and edges that
//! batches do not compute, forward and backward. It adds
//!
//! - the rows that are made, with their projections on the directions of `--hot-rank`;
//! - for each reused row, a copy from the table and the terms of the correction and its gradient;
//! - for each requested row and each node of the graph, the selection of the hot nodes.
//!
//! Reuse pays if it saves more than a multiple of what it adds ([`ReuseWork::pays`]). The counts
//! do not depend on times. They depend on the options and the dataset and, without `--hot-ratio`,
//! on the free memory, which limits the hot rows; with it, a run decides the same on every machine.
//!
//! Each of several ranks counts its shares of the batches and the rows that it makes, and feature
//! rows and reused rows that it receives from other ranks. The sums over ranks decide, so all ranks
//! decide the same.
//!
//! # Source
//!
//! None. NeutronOrch (Ai et al., VLDB 2024) reuses rows whatever the widths of a layer.
//!
//! # Cost
//!
//! A super-batch is drawn without its bottom blocks, [`COUNTED`] batches are drawn with and
//! without reuse, and the edges of up to [`CHUNK_LEN`] hot nodes are drawn.
//!
//! # Memory
//!
//! The upper blocks of the super-batch, and a workspace per thread.
//!
//! # Deviations
//!
//! Sparse features are counted as dense ones, and rows on the disk as rows in memory. A byte from
//! another rank counts as a byte of memory, the least that it can take.

use graphmill_core::NodeId;
use graphmill_distributed::numbers::{of_words, to_words};
use graphmill_loader::{Sampled, Seeds, Workspace};
use graphmill_nn::{
    ProductOrder,
    cost::{BlockShape, product},
    model::Model,
};

use super::{
    HotQueue, Lookahead, ReusePlan, ReuseWork, RowExchange, RowShape,
    plan::workspaces,
    row_maker::CHUNK_LEN,
    work::{DRAW_BYTES, NODE_BYTES, REQUEST_BYTES},
};
use crate::{
    Result,
    stage::{DrawAhead, Loader, RowAccess},
};

/// Number of batches whose bottom blocks are drawn; those of the other batches are alike.
const COUNTED: usize = 4;

/// The bottom layer of a run.
struct Bottom<'m> {
    model: &'m Model,
    order: ProductOrder,
    /// Width of the feature rows that the extract stage copies; 0 if they are read in place.
    gathered: usize,
    /// Bytes of a feature row from another rank.
    row_bytes: u64,
}

impl Bottom<'_> {
    /// Work of drawing and computing a block, in bytes moved.
    fn work(&self, block: BottomBlock, trains: bool) -> f64 {
        let BottomBlock { shape, remote } = block;
        let copied = 8.0 * (shape.src * self.gathered) as f64 + (remote as u64 * self.row_bytes) as f64;
        self.model.bottom_cost(self.order, shape, trains) + DRAW_BYTES * shape.edges as f64 + copied
    }

    /// Mean work of training on one of these blocks.
    fn mean(&self, blocks: &[BottomBlock]) -> f64 {
        blocks.iter().map(|&block| self.work(block, true)).sum::<f64>() / blocks.len().max(1) as f64
    }
}

/// Sizes of a bottom block.
#[derive(Clone, Copy, Debug, Default)]
struct BottomBlock {
    shape: BlockShape,
    /// Number of its sources whose feature rows other ranks have.
    remote: usize,
}

impl BottomBlock {
    /// Sizes of the bottom block of a batch on a graph of `nodes` nodes.
    fn new(drawn: &Sampled, nodes: usize, exchange: Option<&dyn RowExchange>) -> Self {
        let remote = exchange.map_or(0, |exchange| {
            // aggregates of nodes follow all nodes
            let maker = |&v: &NodeId| exchange.maker((v as usize % nodes) as NodeId);
            drawn.input_nodes.iter().filter(|&v| maker(v) != exchange.rank()).count()
        });
        Self { shape: BlockShape::from(&drawn.blocks[0]), remote }
    }
}

/// Counts of a super-batch.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// Number of its batches.
    batches: u64,
    /// Number of nodes of the graph.
    nodes: usize,
    /// Rows that its batches request and could reuse, and those that they reuse.
    requested: u64,
    reused: u64,
    /// Bottom blocks of the first batches without reuse.
    exact: Vec<BottomBlock>,
    /// The same blocks without the reused rows.
    left: Vec<BottomBlock>,
    /// Number of the rows of the table, and of those that this rank makes.
    table: usize,
    hot: usize,
    /// Block of some of the rows that this rank makes.
    made: BottomBlock,
}

/// Counts the work of the first super-batch of `plan`, in a run of `model`; on one of several
/// ranks, that of this rank. All ranks call this at the same time.
///
/// # Errors
/// A hop cannot be drawn, or a rank did not take part.
pub fn count(
    plan: &ReusePlan,
    loader: &Loader,
    model: &Model,
    exchange: Option<&dyn RowExchange>,
) -> Result<ReuseWork> {
    let bottom = Bottom {
        model,
        order: plan.orders[0],
        gathered: if loader.rows == RowAccess::InTable { 0 } else { loader.feature.dim() },
        row_bytes: loader.feature.row_bytes(),
    };
    Ok(Counts::new(plan, loader, exchange)?.work(&bottom, &plan.shape))
}

impl dyn RowExchange + '_ {
    /// Sum of the work of all ranks; `None` if a rank does not know its own.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn sum_work(&self, own: Option<ReuseWork>) -> Result<Option<ReuseWork>> {
        let words = own.map(|ReuseWork { bottom, saved, added }| to_words([bottom, saved, added]));
        let of_rank = |words: &Vec<u32>| {
            let mut numbers = of_words(words);
            Some(ReuseWork { bottom: numbers.next()?, saved: numbers.next()?, added: numbers.next()? })
        };
        let all = self.gather(&words.unwrap_or_default())?;
        Ok(all.iter().map(of_rank).sum())
    }
}

impl Counts {
    /// Draws the first super-batch of a run.
    fn new(plan: &ReusePlan, loader: &Loader, exchange: Option<&dyn RowExchange>) -> Result<Self> {
        // blocks that count their distinct sources
        let rows = RowAccess::Gathered;
        let loader = &Loader { rows, transposed: 0, ahead: None, ..loader.clone() };
        let (nodes, batches) = (loader.graph.num_nodes(), plan.batches_from(loader, 0));
        let mut order = Vec::new();
        loader.first(0, batches.end, &mut order);
        let (mut ahead, mut queue) = (Lookahead::default(), HotQueue::default());
        let (drawn, to) = ((0, batches.clone()), (&mut ahead, &mut queue));
        plan.draw_over(exchange, loader, &order, drawn, to, &mut workspaces(loader))?;
        ahead.count_reused();
        let (requested, reused) = ahead.counts(batches.clone());
        let makes = |v: &NodeId| exchange.is_none_or(|exchange| exchange.maker(*v) == exchange.rank());
        let own: Vec<NodeId> = queue.nodes().iter().copied().filter(makes).collect();

        let mut space = Workspace::new(nodes);
        space.set_parallel(true);
        let block = |drawn: &Sampled| BottomBlock::new(drawn, nodes, exchange);
        let (table, hot) = (queue.nodes().len(), own.len());
        let mut counts =
            Self { batches: batches.end, nodes, requested, reused, table, hot, ..Self::default() };
        for number in batches.take(COUNTED) {
            let seeds = loader.pick(0, &order, number, Seeds::default())?;
            counts.exact.push(block(&loader.sample(0, &mut space, seeds)?));
            let left = ahead.complete(loader, &order, number, &mut space, Seeds::default())?;
            counts.left.push(block(&left));
        }
        if hot > 0 {
            let every = hot.div_ceil(CHUNK_LEN);
            let mut upper = Seeds::default().into_upper(1);
            upper.destinations.extend(own.iter().step_by(every));
            counts.made = block(&loader.sample_bottom(0, &mut space, upper)?);
        }
        Ok(counts)
    }

    /// Work of a batch whose reused rows have this shape.
    fn work(&self, bottom: &Bottom, rows: &RowShape) -> ReuseWork {
        let [width, rank] = [rows.width as f64, rows.rank() as f64];
        let kept = rows.kept.iter().sum::<usize>() as f64;
        // widths of the aggregates that are projected
        let projected = rows.basis.iter().map(|of| of.num_cols()).sum::<usize>() as f64;
        // the gradient of a product is a product of the same size
        let passes = if rows.learns { 2.0 } else { 1.0 };

        let [table, hot, reused] = [self.table as f64, self.hot as f64, self.reused as f64];
        let stored = 4.0 * (width + rank + kept);
        let share = hot / self.made.shape.dst.max(1) as f64;
        let project = product(hot, projected, rank) + product(hot, rank, width) + 8.0 * hot * projected;
        // rows that other ranks make are received, and written as those that this rank makes
        let make = share * bottom.work(self.made, false) + project + (2.0 * table - hot) * stored;
        let read = reused * (stored + 4.0 * width) + passes * product(reused, rank, width);
        let through_kept = product(reused, kept, width);
        let select = REQUEST_BYTES * self.requested as f64 + NODE_BYTES * self.nodes as f64;
        // the directions of the weights, once a batch
        let directions = passes * product(rank, projected, width);
        let added = (make + read + through_kept + select) / self.batches.max(1) as f64 + directions;

        let exact = bottom.mean(&self.exact);
        let saved = (exact - bottom.mean(&self.left)).max(0.0);
        ReuseWork { bottom: exact as u64, saved: saved as u64, added: added as u64 }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use graphmill_core::Matrix;
    use graphmill_nn::ModelConfig;

    use super::*;

    /// Counts of super-batches of 8 batches on a graph of 60,000 nodes and a degree of 40, of a GCN
    /// with 3 layers and fanout 25,10,5: a batch computes the rows of nearly all nodes, and nine
    /// tenths of those that it may reuse are reused.
    fn counts() -> Counts {
        Counts {
            batches: 8,
            nodes: 60_000,
            requested: 8 * 40_000,
            reused: 8 * 36_250,
            exact: vec![block(57_000, 60_000, 285_000)],
            left: vec![block(20_750, 58_000, 103_750)],
            table: 55_000,
            hot: 55_000,
            made: block(16_384, 45_000, 81_920),
        }
    }

    fn block(dst: usize, src: usize, edges: usize) -> BottomBlock {
        BottomBlock { shape: BlockShape { dst, src, edges }, remote: 0 }
    }

    /// Work of these counts with this number of features and directions.
    fn work(counts: &Counts, features: usize, rank: usize) -> ReuseWork {
        let config = ModelConfig { model: "gcn".into(), layers: 3, ..ModelConfig::default() };
        let model = Model::new(&config, features, 20, 1).unwrap();
        let (order, row_bytes) = (ProductOrder::AggregateFirst, 4 * features as u64);
        let bottom = Bottom { model: &model, order, gathered: 0, row_bytes };
        let basis = if rank > 0 { vec![Matrix::zeros(rank, features)] } else { Vec::new() };
        let rows = RowShape { width: 256, kept: Vec::new(), basis: Arc::new(basis), learns: rank > 0 };
        counts.work(&bottom, &rows)
    }

    #[test]
    fn reuse_pays_with_wide_features_alone() {
        let counts = counts();
        let ratio = |features| {
            let work = work(&counts, features, 16);
            work.saved as f64 / work.added as f64
        };
        let [narrow, middle, wide] = [32, 100, 600].map(ratio);
        assert!(narrow > 0.8 && narrow < 1.3, "{narrow}");
        assert!(middle > 1.8 && middle < 3.0, "{middle}");
        assert!(wide > 4.0 && wide < 8.0, "{wide}");
        assert!(!work(&counts, 32, 16).pays() && work(&counts, 600, 16).pays());
        let of = work(&counts, 600, 16);
        assert!(of.saved < of.bottom, "{of}");
    }

    #[test]
    fn every_part_of_the_added_work_counts() {
        let counts = counts();
        let base = work(&counts, 600, 16);
        assert!(work(&counts, 600, 0).added < base.added, "directions");
        let more = |change: fn(&mut Counts)| {
            let mut counts = counts.clone();
            change(&mut counts);
            work(&counts, 600, 16).added
        };
        assert!(more(|of| (of.table, of.hot) = (56_000, 56_000)) > base.added, "rows that are made");
        assert!(more(|of| of.table += 1000) > base.added, "rows of other ranks");
        assert!(more(|of| of.made.remote += 1000) > base.added, "features of other ranks");
        assert!(more(|of| of.reused += 1000) > base.added, "rows that are read");
        assert!(more(|of| of.requested += 1000) > base.added, "rows that are requested");
        assert!(more(|of| of.nodes *= 10) > base.added, "nodes");
        // the same rows, made for twice the batches
        assert!(
            more(|of| (of.batches, of.requested, of.reused) = (16, 16 * 40_000, 16 * 36_250)) < base.added
        );
    }

    #[test]
    fn feature_rows_of_other_ranks_are_saved() {
        let (mut far, near) = (counts(), work(&counts(), 600, 16));
        (far.exact[0].remote, far.left[0].remote) = (40_000, 30_000);
        let of = work(&far, 600, 16);
        assert!((of.saved - near.saved).abs_diff(10_000 * 2400) <= 1, "{of} {near}");
        assert_eq!(of.added, near.added);
    }

    /// A rank of several that each have these words.
    struct Alike(usize);

    impl RowExchange for Alike {
        fn rank(&self) -> usize {
            0
        }

        fn maker(&self, node: NodeId) -> usize {
            node as usize % self.0
        }

        fn gather(&self, words: &[u32]) -> Result<Vec<Vec<u32>>> {
            Ok(vec![words.to_vec(); self.0])
        }
    }

    #[test]
    fn ranks_decide_by_the_sum_of_their_counts() {
        let ranks: &dyn RowExchange = &Alike(3);
        let own = ReuseWork { bottom: 1 << 40, saved: 5, added: 2 };
        let sum = ReuseWork { bottom: 3 << 40, saved: 15, added: 6 };
        assert_eq!(ranks.sum_work(Some(own)).unwrap(), Some(sum));
        assert_eq!(ranks.sum_work(None).unwrap(), None);
    }

    #[test]
    fn nothing_to_reuse_does_not_pay() {
        let counts = Counts { reused: 0, table: 0, hot: 0, left: counts().exact, ..counts() };
        let of = work(&counts, 600, 16);
        assert!(of.saved == 0 && of.added > 0 && !of.pays(), "{of}");
        assert!(!work(&Counts::default(), 600, 16).pays());
    }
}
