//! The stages of a minibatch's way, each written once and run inline or by workers as the strategy
//! says: `order` picks seeds, `sample` draws blocks, `extract` gathers feature rows (all three here,
//! read-only and shared by any number of threads), `train` updates the model ([`crate::learner`]).

use std::sync::Arc;

use graphmill_core::{
    Graph, NodeId,
    block::{Aggregation, OnDevice},
};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    BatchKey, BlockLayout, Feature, MiniBatch, MinibatchSampler, Traffic, Workspace,
    feature::TierTraffic,
    order::Order,
    sampler::{BatchPart, BatchRequest},
    weights::SymmetricWeights,
};

use crate::{Error, Result};

/// What a sampler says: of a batch that no block can hold, wrong usage; else what failed, a device or another rank.
pub(crate) fn not_drawn(error: graphmill_core::Error) -> Error {
    match error {
        graphmill_core::Error::Invalid(message) => {
            Error::usage(format!("--batch-size or --fanout: {message}"))
        }
        error => error.into(),
    }
}

/// Batches that are drawn ahead but for their bottom blocks.
///
/// ```
/// use std::sync::Arc;
/// use graphmill_engine::{reuse::Ahead, stage::DrawAhead};
///
/// // the strategies that reuse rows draw batches this way
/// fn ahead(batches: Ahead) -> Arc<dyn DrawAhead> {
///     Arc::new(batches)
/// }
/// ```
pub trait DrawAhead: Send + Sync {
    /// Completes batch `number`: its part above the bottom was drawn ahead, its bottom block is drawn now, for the rows that are
    /// not reused.
    ///
    /// # Errors
    /// A block has more edges than fit; wrong usage.
    fn complete(
        &self,
        loader: &Loader,
        order: &[NodeId],
        number: u64,
        workspace: &mut Workspace,
        batch: &mut MiniBatch,
    ) -> Result<()>;
}

/// The read-only stages. One value serves every worker.
#[derive(Clone)]
pub struct Loader<'a> {
    /// The graph to sample (in-neighbours).
    pub graph: &'a Graph,
    /// The nodes that train.
    pub train: &'a [NodeId],
    /// The run's seed.
    pub seed: u64,
    /// Seeds per batch, at least 1.
    pub batch_size: usize,
    /// Batches of an epoch at most; 0 for all.
    pub max_batches: usize,
    /// The ordering.
    pub order: &'a dyn Order,
    /// The sampler.
    pub sampler: &'a dyn MinibatchSampler,
    /// The feature rows.
    pub feature: &'a dyn Feature,
    /// Whether the bottom layer reads the feature table in place.
    pub fused: bool,
    /// Which blocks the backward pass wants transposed, a bit each.
    pub transposed: u64,
    /// Degrees, where the model wants symmetric weights.
    pub symmetric: Option<Arc<SymmetricWeights>>,
    /// What the model's layers make of neighbours' rows.
    pub aggregation: Aggregation,
    /// Which nodes are this rank's, where a batch is shared among ranks: it takes the seeds that are its own.
    pub own: Option<Arc<NodeOwnership>>,
    /// Batches that are drawn but for their bottom blocks, and which rows of those are reused.
    pub ahead: Option<Arc<dyn DrawAhead>>,
}

impl Loader<'_> {
    /// How many batches an epoch has.
    pub fn num_batches(&self) -> u64 {
        let all = || self.train.len().div_ceil(self.batch_size) as u64;
        let batches = self.sampler.properties().subgraphs.unwrap_or_else(all);
        if self.max_batches == 0 { batches } else { batches.min(self.max_batches as u64) }
    }

    /// How many seeds an epoch has; with subgraphs, about how many.
    pub fn num_seeds(&self) -> usize {
        self.train.len().min((self.num_batches() as usize).saturating_mul(self.batch_size))
    }

    /// Stage 1: this epoch's order of the training nodes. Where one batch holds them all there is nothing to shuffle but
    /// the rows of that batch; they are left as they are, so that what was sampled can be kept ([`Loader::draw`]).
    pub fn order(&self, epoch: u64, out: &mut Vec<NodeId>) {
        if self.sampler.properties().subgraphs.is_some() {
            return out.clear(); // they pick their seeds by themselves
        }
        if self.train.len() <= self.batch_size {
            out.clear();
            out.extend_from_slice(self.train);
        } else {
            self.order.order(epoch, out);
        }
    }

    /// Batch `number`'s seeds among `order`.
    fn seeds<'o>(&self, order: &'o [NodeId], number: u64) -> &'o [NodeId] {
        let start = (number as usize * self.batch_size).min(order.len());
        &order[start..(start + self.batch_size).min(order.len())]
    }

    /// Stage 1, for one batch: takes batch `number`'s seeds from `order`.
    pub fn pick(&self, order: &[NodeId], number: u64, batch: &mut MiniBatch) {
        batch.number = number;
        let seeds = self.seeds(order, number);
        batch.seeds.clear();
        match &self.own {
            Some(book) => {
                batch.whole = seeds.len();
                batch.seeds.extend(seeds.iter().filter(|&&v| book.is_own(v)));
            }
            None => batch.seeds.extend_from_slice(seeds),
        }
    }

    /// Stage 2: draws the blocks of a batch.
    ///
    /// # Errors
    /// A block has more edges than fit; wrong usage.
    pub fn sample(&self, epoch: u64, workspace: &mut Workspace, batch: &mut MiniBatch) -> Result<()> {
        batch.extracted = false;
        batch.marks.clear();
        batch.reused.clear();
        forget_devices(batch);
        self.draw_part(BatchPart::Whole, epoch, workspace, batch)
    }

    /// Draws a part of the blocks of batch `batch.number`.
    fn draw_part(
        &self,
        part: BatchPart,
        epoch: u64,
        workspace: &mut Workspace,
        batch: &mut MiniBatch,
    ) -> Result<()> {
        let layout = BlockLayout {
            fused: self.fused,
            transposed: self.transposed,
            symmetric: self.symmetric.as_deref(),
            aggregation: self.aggregation,
        };
        let key = BatchKey { seed: self.seed, epoch, batch: batch.number };
        let request = BatchRequest { graph: self.graph, key, layout, part };
        self.sampler.sample(&request, workspace, batch).map_err(not_drawn)
    }

    /// Stage 2 but for the bottom block ([`BatchPart::Upper`]).
    ///
    /// # Errors
    /// As [`Loader::sample`].
    pub fn sample_upper_blocks(
        &self,
        epoch: u64,
        workspace: &mut Workspace,
        batch: &mut MiniBatch,
    ) -> Result<()> {
        forget_devices(batch);
        self.draw_part(BatchPart::Upper, epoch, workspace, batch)
    }

    /// The rest of stage 2, for the destinations in `batch.input_nodes` ([`BatchPart::Bottom`]), with the draws of batch
    /// `batch.number`.
    ///
    /// # Errors
    /// As [`Loader::sample`].
    pub fn sample_input_block(
        &self,
        epoch: u64,
        workspace: &mut Workspace,
        batch: &mut MiniBatch,
    ) -> Result<()> {
        batch.extracted = false;
        batch.marks.clear();
        forget_devices(batch);
        self.draw_part(BatchPart::Bottom, epoch, workspace, batch)?;
        if self.transposed & 2 != 0 && batch.blocks.len() > 1 && !batch.blocks[1].is_transposed() {
            workspace.transpose(&mut batch.blocks[1]);
        }
        Ok(())
    }

    /// Stages 1 and 2 for a batch that this loader sampled before, or for a new one: where nothing is drawn at
    /// random and the seeds are the same, the blocks are those that the batch holds already.
    ///
    /// # Errors
    /// As [`Loader::sample`].
    pub fn draw(
        &self,
        order: &[NodeId],
        epoch: u64,
        number: u64,
        workspace: &mut Workspace,
        batch: &mut MiniBatch,
    ) -> Result<()> {
        if let Some(ahead) = &self.ahead {
            return ahead.complete(self, order, number, workspace, batch);
        }
        let seeds = self.seeds(order, number);
        let same = match &self.own {
            None => batch.seeds == seeds,
            Some(book) => {
                batch.whole == seeds.len() && seeds.iter().filter(|&&v| book.is_own(v)).eq(&batch.seeds)
            }
        };
        let holds = !batch.blocks.is_empty() && same;
        batch.kept = holds && !self.sampler.properties().is_random;
        if batch.kept {
            batch.number = number;
            return Ok(());
        }
        self.pick(order, number, batch);
        self.sample(epoch, workspace, batch)
    }

    /// Stage 3: gathers the feature rows of the input nodes, unless the batch holds them still. On the fast path nothing is
    /// gathered, and what the bottom layer will read is counted.
    ///
    /// # Errors
    /// A tier cannot be read.
    pub fn extract(&self, batch: &mut MiniBatch) -> Result<()> {
        self.extract_from(self.feature, batch)
    }

    /// [`Loader::extract`] from the rows of a device.
    ///
    /// # Errors
    /// As [`Loader::extract`].
    pub fn extract_from(&self, feature: &dyn Feature, batch: &mut MiniBatch) -> Result<()> {
        if batch.extracted {
            return Ok(());
        }
        let dim = feature.dim();
        if batch.is_fused() {
            let rows = (batch.blocks[0].num_edges() + batch.blocks[0].num_dst) as u64;
            batch.features.resize(0, dim);
            let host = TierTraffic { rows, bytes: rows * feature.row_bytes(), nanos: 0 };
            batch.traffic = Traffic { host, ..Traffic::default() };
            batch.extracted = true;
            return Ok(());
        }
        let MiniBatch { input_nodes, input_on_device, marks, features, .. } = batch;
        let can = feature.capabilities();
        batch.traffic = match (can.device, input_on_device, can.marked) {
            (Some(device), Some(on_device), _) => {
                device.gather_on_device(input_nodes, on_device, features)?
            }
            (_, _, Some(marked)) => marked.gather_marked(input_nodes, marks, features)?,
            _ => feature.gather(input_nodes, features)?,
        };
        if let Some(device) = can.device {
            device.place_blocks(&batch.blocks)?;
        }
        if batch.features.is_sparse() {
            // for the gradient of what multiplies them
            batch.features.transpose_sparse();
        }
        batch.extracted = true;
        Ok(())
    }
}

/// What devices hold of a batch's blocks is of the batch before.
fn forget_devices(batch: &mut MiniBatch) {
    batch.blocks.iter_mut().for_each(|block| block.device = OnDevice::default());
    batch.input_on_device = None;
}

#[cfg(test)]
mod tests {
    use graphmill_core::{Features, Graph};
    use graphmill_loader::{
        feature::Host,
        order::random::Random,
        sampler::{HopStack, neighbor::Neighbor},
    };

    use super::*;

    #[test]
    fn only_what_would_be_sampled_alike_is_kept() {
        // everyone hears from everyone, itself included
        let graph = Graph::new(
            (0..=8).map(|v| v * 8).collect::<Vec<u64>>().into(),
            (0..64).map(|e| e % 8).collect::<Vec<u32>>().into(),
        );
        let graph = graph.unwrap();
        let feature = Host::new(&Features::f32(1, vec![0.0; 8]));
        for (fanout, batch_size, kept) in [([-1, -1], 6, true), ([-1, 2], 6, false), ([-1, -1], 3, false)] {
            let sampler = HopStack::new(Neighbor::new(fanout).unwrap());
            let order = Random::new(&[5, 1, 3, 0, 2, 7], 1);
            let loader = Loader {
                graph: &graph,
                train: &[5, 1, 3, 0, 2, 7],
                seed: 1,
                batch_size,
                max_batches: 0,
                order: &order,
                sampler: &sampler,
                feature: &feature,
                fused: false,
                transposed: 0,
                symmetric: None,
                aggregation: Aggregation::Mean,
                own: None,
                ahead: None,
            };
            let (mut workspace, mut batch, mut order) = (Workspace::new(8), MiniBatch::default(), Vec::new());
            for epoch in 0..3 {
                loader.order(epoch, &mut order);
                loader.draw(&order, epoch, 0, &mut workspace, &mut batch).unwrap();
                assert_eq!(batch.blocks[0].edge_weight.is_empty(), epoch == 0 || !kept);
                let mut fresh = MiniBatch::default();
                loader.draw(&order, epoch, 0, &mut Workspace::new(8), &mut fresh).unwrap();
                assert_eq!(batch.input_nodes, fresh.input_nodes);
                for (block, fresh) in batch.blocks.iter_mut().zip(&fresh.blocks) {
                    assert_eq!((&block.indptr, &block.indices), (&fresh.indptr, &fresh.indices));
                    // a mark that sampling would remove
                    block.edge_weight.push(1.0);
                }
            }
        }
    }

    #[test]
    fn a_bounded_epoch_is_the_beginning_of_the_whole_one() {
        let feature = Host::new(&Features::f32(1, vec![0.0; 8]));
        let graph = Graph::new(vec![0; 9].into(), vec![].into()).unwrap();
        let sampler = HopStack::new(Neighbor::new([1]).unwrap());
        let order = Random::new(&[0, 1, 2, 3, 4, 5, 6], 1);
        let with = |max_batches, batch_size| Loader {
            graph: &graph,
            train: &[0, 1, 2, 3, 4, 5, 6],
            seed: 1,
            batch_size,
            max_batches,
            order: &order,
            sampler: &sampler,
            feature: &feature,
            fused: false,
            transposed: 0,
            symmetric: None,
            aggregation: Aggregation::Mean,
            own: None,
            ahead: None,
        };
        let counts = |max_batches, batch_size| {
            let loader = with(max_batches, batch_size);
            (loader.num_batches(), loader.num_seeds())
        };
        assert_eq!(
            [counts(0, 3), counts(3, 3), counts(2, 3), counts(9, 3)],
            [(3, 7), (3, 7), (2, 6), (3, 7)]
        );
        let (mut all, mut one) = (Vec::new(), Vec::new());
        with(0, 3).order(4, &mut all);
        with(1, 3).order(4, &mut one);
        assert_eq!(all, one, "a single batch of several is shuffled too");
    }
}
