//! The stages of a minibatch's way, each written once and run inline or by workers as the strategy
//! says: `order` picks seeds, `sample` draws blocks, `extract` gathers feature rows (all three
//! here, read-only and shared by any number of threads), `train` updates the model
//! ([`crate::learner`]).

use std::sync::Arc;

use graphmill_core::{Graph, NodeId, block::Aggregation};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    BatchKey, BlockLayout, Extracted, Feature, MiniBatch, MinibatchSampler, Sampled, Seeds, Upper, Workspace,
    order::SeedOrder,
    sampler::{BatchRequest, SplitSampler},
    weights::SymmetricWeights,
};

use crate::{Error, Result};

/// What a sampler says: of a batch that no block can hold, wrong usage; else what failed, a device
/// or another rank.
pub(crate) fn not_drawn(error: graphmill_core::Error) -> Error {
    match error {
        graphmill_core::Error::Invalid(message) => {
            Error::usage(format!("--batch-size or --fanout: {message}"))
        }
        error => error.into(),
    }
}

/// A batch that was drawn, or one of an earlier epoch that would be drawn the same.
///
/// [`Loader::draw`] gives one of [`Sampled`], and [`Loader::extract`] makes it one of
/// [`Extracted`].
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a box would be allocated for every batch")]
pub enum Drawn<S = Sampled> {
    /// A batch with new blocks, or whose feature rows were given away.
    New(S),
    /// The batch of the draw before with its feature rows: nothing is random, and the seeds are the
    /// same.
    Again(Extracted),
}

impl Drawn {
    /// The sampled batch.
    pub fn sampled(&self) -> &Sampled {
        match self {
            Self::New(batch) => batch,
            Self::Again(batch) => &batch.sampled,
        }
    }
}

impl Drawn<Extracted> {
    /// The batch.
    pub fn batch(&self) -> &Extracted {
        let (Self::New(batch) | Self::Again(batch)) = self;
        batch
    }

    /// The batch, whether new or not.
    pub fn into_batch(self) -> Extracted {
        let (Self::New(batch) | Self::Again(batch)) = self;
        batch
    }
}

impl<S: Into<MiniBatch>> From<Drawn<S>> for MiniBatch {
    fn from(drawn: Drawn<S>) -> Self {
        match drawn {
            Drawn::New(batch) => batch.into(),
            Drawn::Again(batch) => batch.into(),
        }
    }
}

/// Batches whose upper blocks were drawn ahead.
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
    /// Draws the bottom block of batch `number`, without the destinations whose rows are read
    /// instead of computed.
    ///
    /// # Errors
    /// A block has more edges than fit; wrong usage.
    fn complete(
        &self,
        loader: &Loader,
        order: &[NodeId],
        number: u64,
        workspace: &mut Workspace,
        memory: Seeds,
    ) -> Result<Sampled>;

    /// Bytes that go to a trainer with a batch that is complete, beside [`Sampled::bytes`].
    fn extra_bytes(&self, number: u64) -> u64;
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
    pub order: &'a dyn SeedOrder,
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
    /// Which nodes are this rank's, where a batch is shared among ranks: it takes the seeds that
    /// are its own.
    pub own: Option<Arc<NodeOwnership>>,
    /// Batches whose upper blocks were drawn ahead, if a strategy does that.
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

    /// Stage 1: this epoch's order of the training nodes. Where one batch holds them all there is
    /// nothing to shuffle but the rows of that batch; they are left as they are, so that what was
    /// sampled can be kept ([`Loader::draw`]).
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

    /// Stage 1, for one batch: takes batch `number`'s seeds from `order`, in the memory of another
    /// batch.
    pub fn pick(&self, order: &[NodeId], number: u64, memory: Seeds) -> Seeds {
        let seeds = self.seeds(order, number);
        match &self.own {
            None => memory.refill(number, seeds.iter().copied()),
            Some(book) => {
                let own = seeds.iter().copied().filter(|&v| book.is_own(v));
                let mut own = memory.refill(number, own);
                // ranks that draw subgraphs share no batch
                own.global_size = (!seeds.is_empty()).then_some(seeds.len());
                own
            }
        }
    }

    /// Whether these are the seeds that [`Loader::pick`] takes.
    fn has_picked(&self, order: &[NodeId], number: u64, found: &Seeds) -> bool {
        let seeds = self.seeds(order, number);
        match &self.own {
            None => found.nodes == seeds,
            Some(book) => {
                found.global_size == Some(seeds.len())
                    && seeds.iter().filter(|&&v| book.is_own(v)).eq(&found.nodes)
            }
        }
    }

    /// The request for a batch of that number.
    fn request(&self, epoch: u64, batch: u64) -> BatchRequest<'_> {
        let layout = BlockLayout {
            fused: self.fused,
            transposed: self.transposed,
            symmetric: self.symmetric.as_deref(),
            aggregation: self.aggregation,
        };
        BatchRequest { graph: self.graph, key: BatchKey { seed: self.seed, epoch, batch }, layout }
    }

    /// Stage 2: draws the blocks of a batch.
    ///
    /// # Errors
    /// A block has more edges than fit; wrong usage.
    pub fn sample(&self, epoch: u64, workspace: &mut Workspace, seeds: Seeds) -> Result<Sampled> {
        self.sampler.sample(&self.request(epoch, seeds.number), workspace, seeds).map_err(not_drawn)
    }

    fn split(&self) -> Result<&dyn SplitSampler> {
        self.sampler.split().ok_or_else(|| {
            Error::usage("this sampler draws all blocks at once, and the strategy needs the bottom one apart")
        })
    }

    /// Stage 2 but for the bottom block.
    ///
    /// # Errors
    /// As [`Loader::sample`].
    pub fn sample_upper(&self, epoch: u64, workspace: &mut Workspace, seeds: Seeds) -> Result<Upper> {
        let request = self.request(epoch, seeds.number);
        self.split()?.sample_upper(&request, workspace, seeds).map_err(not_drawn)
    }

    /// The rest of stage 2, for the destinations that `upper` has.
    ///
    /// # Errors
    /// As [`Loader::sample`].
    pub fn sample_bottom(&self, epoch: u64, workspace: &mut Workspace, upper: Upper) -> Result<Sampled> {
        let request = self.request(epoch, upper.seeds.number);
        let mut batch = self.split()?.sample_bottom(&request, workspace, upper).map_err(not_drawn)?;
        if self.transposed & 2 != 0
            && let Some(block) = batch.blocks.get_mut(1).filter(|block| !block.is_transposed())
        {
            workspace.transpose(block);
        }
        Ok(batch)
    }

    /// Stages 1 and 2 for a batch that this loader drew before, or in the memory of any: if nothing
    /// is random and the seeds are the same, the blocks are those that the batch holds already.
    ///
    /// # Errors
    /// As [`Loader::sample`].
    pub fn draw(
        &self,
        order: &[NodeId],
        epoch: u64,
        number: u64,
        workspace: &mut Workspace,
        batch: MiniBatch,
    ) -> Result<Drawn> {
        if let Some(ahead) = &self.ahead {
            return ahead.complete(self, order, number, workspace, batch.recycle()).map(Drawn::New);
        }
        let is_random = self.sampler.properties().is_random;
        let is_same = |seeds: &Seeds| !is_random && self.has_picked(order, number, seeds);
        match batch {
            MiniBatch::Extracted(mut batch) if is_same(&batch.sampled.seeds) => {
                batch.sampled.seeds.number = number;
                Ok(Drawn::Again(batch))
            }
            MiniBatch::Sampled(mut batch) if is_same(&batch.seeds) => {
                batch.seeds.number = number;
                Ok(Drawn::New(batch))
            }
            batch => {
                let seeds = self.pick(order, number, batch.recycle());
                self.sample(epoch, workspace, seeds).map(Drawn::New)
            }
        }
    }

    /// Stage 3: gathers the feature rows of the input nodes, unless the batch holds them already.
    /// On the fast path nothing is gathered, and the rows that the bottom layer will read are
    /// counted.
    ///
    /// # Errors
    /// A tier cannot be read.
    pub fn extract(&self, batch: Drawn) -> Result<Drawn<Extracted>> {
        self.extract_from(self.feature, batch)
    }

    /// [`Loader::extract`] from the rows of a device.
    ///
    /// # Errors
    /// As [`Loader::extract`].
    pub fn extract_from(&self, feature: &dyn Feature, batch: Drawn) -> Result<Drawn<Extracted>> {
        Ok(match batch {
            Drawn::New(batch) => Drawn::New(batch.extract(feature)?),
            Drawn::Again(batch) => Drawn::Again(batch),
        })
    }

    /// Bytes of a sampled batch on its way to a trainer.
    pub fn bytes(&self, batch: &Sampled) -> u64 {
        let extra = self.ahead.as_ref().map_or(0, |ahead| ahead.extra_bytes(batch.seeds.number));
        batch.bytes() + extra
    }
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
            let (mut workspace, mut held, mut order) = (Workspace::new(8), MiniBatch::default(), Vec::new());
            for epoch in 0..4 {
                loader.order(epoch, &mut order);
                let drawn = loader.draw(&order, epoch, 0, &mut workspace, held).unwrap();
                // the rows of epoch 1 are given away
                assert_eq!(matches!(drawn, Drawn::Again(_)), kept && [1, 3].contains(&epoch));
                let mut batch = loader.extract(drawn).unwrap().into_batch();
                let blocks = &mut batch.sampled.blocks;
                assert_eq!(blocks[0].edge_weight.is_empty(), epoch == 0 || !kept);
                let fresh =
                    loader.draw(&order, epoch, 0, &mut Workspace::new(8), MiniBatch::default()).unwrap();
                let fresh = fresh.sampled();
                assert_eq!(batch.sampled.input_nodes, fresh.input_nodes);
                for (block, fresh) in blocks.iter_mut().zip(&fresh.blocks) {
                    assert_eq!((&block.indptr, &block.indices), (&fresh.indptr, &fresh.indices));
                    // a mark that sampling would remove
                    block.edge_weight.push(1.0);
                }
                held = if epoch == 1 { batch.sampled.into() } else { batch.into() };
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
