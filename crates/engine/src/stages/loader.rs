//! Read-only stages of a minibatch: `order` picks seeds, `sample` draws blocks, and `extract`
//! gathers feature rows.
//!
//! A strategy runs them inline or on workers; any number of threads share one [`Loader`]. The last
//! stage, `train`, updates the model ([`crate::learner`]).

use std::sync::Arc;

use graphmill_core::{Graph, NodeId, block::Aggregation};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    BatchKey, BlockLayout, Extracted, Feature, MiniBatch, MinibatchSampler, Sampled, Seeds, Upper, Workspace,
    link::LinkSource,
    order::SeedOrder,
    sampler::{BatchRequest, SplitSampler},
    weights::SymmetricWeights,
};

use crate::{Error, Result, label_inputs::LabelColumns};

/// Error of a sampler: wrong usage if the batch is too large for a block, else the failure of a
/// device or of another rank.
pub(crate) fn draw_error(error: graphmill_core::Error) -> Error {
    match error {
        graphmill_core::Error::Invalid(message) => {
            Error::usage(format!("--batch-size or --fanout: {message}"))
        }
        error => error.into(),
    }
}

/// Drawn batch: a new one, or that of an earlier epoch if its draw would be the same.
///
/// [`Loader::draw`] returns one of [`Sampled`], and [`Loader::extract`] turns it into one of
/// [`Extracted`].
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a box would be allocated for every batch")]
pub enum Drawn<S = Sampled> {
    /// Batch with new blocks, or without feature rows.
    New(S),
    /// Batch of the previous draw with its feature rows: the sampler is not random, and the seeds
    /// are the same.
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

    /// Returns the batch.
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

/// Batches whose upper blocks are drawn ahead.
///
/// ```
/// use std::sync::Arc;
/// use graphmill_engine::{reuse::Lookahead, stage::DrawAhead};
///
/// // strategies that reuse rows draw batches this way
/// fn ahead(batches: Lookahead) -> Arc<dyn DrawAhead> {
///     Arc::new(batches)
/// }
/// ```
pub trait DrawAhead: Send + Sync {
    /// Draws the bottom block of batch `number`, without the destinations whose rows are read
    /// instead of computed.
    ///
    /// # Errors
    /// A block has more edges than its index type allows, or the sampler does not draw blocks
    /// separately.
    fn complete(
        &self,
        loader: &Loader,
        order: &[NodeId],
        number: u64,
        workspace: &mut Workspace,
        memory: Seeds,
    ) -> Result<Sampled>;

    /// Bytes that a complete batch adds to [`Sampled::bytes`] on its way to a trainer.
    fn extra_bytes(&self, number: u64) -> u64;
}

/// Place from which the bottom layer reads the feature rows of a batch.
///
/// All draw the same neighbours and sum the same rows. A run by slot has the bits and the traffic
/// of one that gathers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowAccess {
    /// A copy of the rows of the input nodes, made by the extract stage.
    #[default]
    Gathered,
    /// The table of all rows: the bottom block is global, and nothing is copied.
    InTable,
    /// A static cache in host memory, with the batch's other rows behind it
    /// ([`Sampled::extract_by_slot`]). Rows of a tier without such a cache are gathered.
    BySlot,
}

/// Read-only stages of a run, shared by all workers.
#[derive(Clone)]
pub struct Loader<'a> {
    /// The graph to sample (in-neighbours).
    pub graph: &'a Graph,
    /// The training nodes, or the numbers of the edges to learn.
    pub train: &'a [NodeId],
    /// Edges to learn, in a run on links; their ends and those of their negatives are the seeds.
    pub links: Option<&'a LinkSource>,
    /// The run's seed.
    pub seed: u64,
    /// Seeds per batch, at least 1.
    pub batch_size: usize,
    /// Largest number of batches per epoch; 0 for no limit.
    pub max_batches: usize,
    /// The order of the seeds.
    pub order: &'a dyn SeedOrder,
    /// The sampler.
    pub sampler: &'a dyn MinibatchSampler,
    /// The feature rows.
    pub feature: &'a dyn Feature,
    /// Place from which the bottom layer reads feature rows.
    pub rows: RowAccess,
    /// Blocks that the backward pass needs transposed: bit `l` for block `l`.
    pub transposed: u64,
    /// Weights of symmetric normalisation, if the model uses them.
    pub symmetric: Option<Arc<SymmetricWeights>>,
    /// Aggregation of neighbours' rows by the model's layers.
    pub aggregation: Aggregation,
    /// Nodes of this rank, if ranks share a batch: each rank takes the seeds that it owns, or the
    /// edges to learn whose sources it owns, with their negatives.
    pub own: Option<Arc<NodeOwnership>>,
    /// Labels that follow the feature rows, if the run has some.
    pub labels: Option<LabelColumns>,
    /// Batches whose upper blocks were drawn ahead, if a strategy does that.
    pub ahead: Option<Arc<dyn DrawAhead>>,
}

impl Loader<'_> {
    /// Number of batches per epoch.
    pub fn num_batches(&self) -> u64 {
        let all = || self.train.len().div_ceil(self.batch_size) as u64;
        let batches = self.sampler.properties().subgraphs.unwrap_or_else(all);
        if self.max_batches == 0 { batches } else { batches.min(self.max_batches as u64) }
    }

    /// Number of seeds per epoch; an estimate for subgraphs.
    pub fn num_seeds(&self) -> usize {
        self.train.len().min((self.num_batches() as usize).saturating_mul(self.batch_size))
    }

    /// Stage 1: writes the order of the training nodes of this epoch's batches to `out`. If one
    /// batch holds all of them, they are not shuffled, so that the batch can be reused in every
    /// epoch ([`Loader::draw`]).
    pub fn order(&self, epoch: u64, out: &mut Vec<NodeId>) {
        self.first(epoch, self.num_batches(), out);
    }

    /// Stage 1 for the first `batches` of an epoch.
    pub fn first(&self, epoch: u64, batches: u64, out: &mut Vec<NodeId>) {
        if self.sampler.properties().subgraphs.is_some() {
            return out.clear(); // subgraph samplers draw their seeds
        }
        if self.train.len() <= self.batch_size {
            out.clear();
            out.extend_from_slice(self.train);
        } else {
            let seeds = (batches as usize).saturating_mul(self.batch_size);
            self.order.first(epoch, seeds, out);
        }
    }

    /// Batch `number`'s seeds among `order`.
    fn seeds<'o>(&self, order: &'o [NodeId], number: u64) -> &'o [NodeId] {
        let start = (number as usize * self.batch_size).min(order.len());
        &order[start..(start + self.batch_size).min(order.len())]
    }

    /// Stage 1 for one batch: takes the seeds of batch `number` from `order`, into the memory of
    /// another batch.
    ///
    /// # Errors
    /// An edge to learn has no negative.
    pub fn pick(&self, epoch: u64, order: &[NodeId], number: u64, mut memory: Seeds) -> Result<Seeds> {
        let seeds = self.seeds(order, number);
        memory.epoch = epoch;
        if let Some(links) = self.links {
            let key = BatchKey { seed: self.seed, epoch, batch: number };
            let mut batch = links.fill(key, seeds, memory)?;
            if let (Some(book), Some(pairs)) = (&self.own, &mut batch.links) {
                batch.global_size = Some(pairs.positives);
                pairs.retain(&mut batch.nodes, |i, source| book.takes(i, source));
            }
            return Ok(batch);
        }
        Ok(match &self.own {
            None => memory.refill(number, seeds.iter().copied()),
            Some(book) => {
                let own = own_seeds(book, seeds);
                let mut own = memory.refill(number, own);
                // ranks that draw subgraphs share no batch
                own.global_size = (!seeds.is_empty()).then_some(seeds.len());
                own
            }
        })
    }

    /// Returns true if these are the seeds that [`Loader::pick`] takes.
    fn has_picked(&self, order: &[NodeId], number: u64, found: &Seeds) -> bool {
        if self.links.is_some() || self.labels.is_some() {
            return false; // every epoch draws other negatives, and shows other labels
        }
        let seeds = self.seeds(order, number);
        match &self.own {
            None => found.nodes == seeds,
            Some(book) => {
                found.global_size == Some(seeds.len())
                    && own_seeds(book, seeds).eq(found.nodes.iter().copied())
            }
        }
    }

    /// The request for a batch of that number.
    fn request(&self, epoch: u64, batch: u64) -> BatchRequest<'_> {
        let layout = BlockLayout {
            fused: self.rows == RowAccess::InTable,
            transposed: self.transposed,
            symmetric: self.symmetric.as_deref(),
            aggregation: self.aggregation,
        };
        BatchRequest { graph: self.graph, key: BatchKey { seed: self.seed, epoch, batch }, layout }
    }

    /// Stage 2: draws the blocks of a batch.
    ///
    /// # Errors
    /// A block has more edges than its index type allows, or a device or another rank fails.
    pub fn sample(&self, epoch: u64, workspace: &mut Workspace, seeds: Seeds) -> Result<Sampled> {
        self.sampler.sample(&self.request(epoch, seeds.number), workspace, seeds).map_err(draw_error)
    }

    fn split(&self) -> Result<&dyn SplitSampler> {
        self.sampler.split().ok_or_else(|| {
            Error::usage(
                "--sampler: this sampler draws all blocks at once, and the strategy draws the bottom block \
                 separately; use a sampler that draws hop by hop, such as neighbor",
            )
        })
    }

    /// Stage 2 without the bottom block.
    ///
    /// # Errors
    /// As [`Loader::sample`].
    pub fn sample_upper(&self, epoch: u64, workspace: &mut Workspace, seeds: Seeds) -> Result<Upper> {
        let request = self.request(epoch, seeds.number);
        self.split()?.sample_upper(&request, workspace, seeds).map_err(draw_error)
    }

    /// Rest of stage 2: draws the bottom block for the destinations of `upper`.
    ///
    /// # Errors
    /// As [`Loader::sample`].
    pub fn sample_bottom(&self, epoch: u64, workspace: &mut Workspace, upper: Upper) -> Result<Sampled> {
        let request = self.request(epoch, upper.seeds.number);
        let mut batch = self.split()?.sample_bottom(&request, workspace, upper).map_err(draw_error)?;
        if self.transposed & 2 != 0
            && let Some(block) = batch.blocks.get_mut(1).filter(|block| !block.is_transposed())
        {
            workspace.transpose(block);
        }
        Ok(batch)
    }

    /// Stages 1 and 2, in the memory of another batch. Returns `batch` itself if this loader has
    /// drawn it, its seeds are the same, and the sampler is not random.
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
            // slots are those of rows that the batch no longer has
            MiniBatch::Sampled(mut batch) if is_same(&batch.seeds) && !batch.is_by_slot() => {
                batch.seeds.number = number;
                Ok(Drawn::New(batch))
            }
            batch => {
                let seeds = self.pick(epoch, order, number, batch.recycle())?;
                self.sample(epoch, workspace, seeds).map(Drawn::New)
            }
        }
    }

    /// Stage 3: gathers the feature rows of the input nodes, unless the batch already holds them.
    /// With [`RowAccess::InTable`] it only counts the rows that the bottom layer will read, and
    /// with [`RowAccess::BySlot`] it copies only the rows that the cache lacks.
    ///
    /// # Errors
    /// A tier cannot be read.
    pub fn extract(&self, batch: Drawn) -> Result<Drawn<Extracted>> {
        self.extract_from(self.feature, batch)
    }

    /// [`Loader::extract`] from other rows, such as those of a device.
    ///
    /// # Errors
    /// As [`Loader::extract`].
    pub fn extract_from(&self, feature: &dyn Feature, batch: Drawn) -> Result<Drawn<Extracted>> {
        let batch = match batch {
            Drawn::New(batch) => batch,
            Drawn::Again(batch) => return Ok(Drawn::Again(batch)),
        };
        let mut batch = match self.rows {
            RowAccess::Gathered | RowAccess::InTable => batch.extract(feature)?,
            RowAccess::BySlot => batch.extract_by_slot(feature)?,
        };
        if let Some(labels) = &self.labels {
            labels.append_to_batch(&mut batch);
        }
        Ok(Drawn::New(batch))
    }

    /// Bytes of a sampled batch on its way to a trainer.
    pub fn bytes(&self, batch: &Sampled) -> u64 {
        let extra = self.ahead.as_ref().map_or(0, |ahead| ahead.extra_bytes(batch.seeds.number));
        batch.bytes() + extra
    }
}

/// The seeds of a batch on which this rank trains.
fn own_seeds<'s>(book: &'s NodeOwnership, seeds: &'s [NodeId]) -> impl Iterator<Item = NodeId> + 's {
    seeds.iter().enumerate().filter(|&(i, &v)| book.takes(i, v)).map(|(_, &v)| v)
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
    fn batches_are_reused_only_if_the_draw_would_be_equal() {
        // every node is a neighbour of every node, including itself
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
                links: None,
                seed: 1,
                batch_size,
                max_batches: 0,
                order: &order,
                sampler: &sampler,
                feature: &feature,
                rows: RowAccess::Gathered,
                transposed: 0,
                symmetric: None,
                aggregation: Aggregation::Mean,
                own: None,
                labels: None,
                ahead: None,
            };
            let (mut workspace, mut held, mut order) = (Workspace::new(8), MiniBatch::default(), Vec::new());
            for epoch in 0..4 {
                loader.order(epoch, &mut order);
                let drawn = loader.draw(&order, epoch, 0, &mut workspace, held).unwrap();
                // the batch of epoch 1 is returned without its rows
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
                    // marks the block; a new draw would clear it
                    block.edge_weight.push(1.0);
                }
                held = if epoch == 1 { batch.sampled.into() } else { batch.into() };
            }
        }
    }

    #[test]
    fn max_batches_truncates_the_epoch() {
        let feature = Host::new(&Features::f32(1, vec![0.0; 8]));
        let graph = Graph::new(vec![0; 9].into(), vec![].into()).unwrap();
        let sampler = HopStack::new(Neighbor::new([1]).unwrap());
        let order = Random::new(&[0, 1, 2, 3, 4, 5, 6], 1);
        let with = |max_batches, batch_size| Loader {
            graph: &graph,
            train: &[0, 1, 2, 3, 4, 5, 6],
            links: None,
            seed: 1,
            batch_size,
            max_batches,
            order: &order,
            sampler: &sampler,
            feature: &feature,
            rows: RowAccess::Gathered,
            transposed: 0,
            symmetric: None,
            aggregation: Aggregation::Mean,
            own: None,
            labels: None,
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
        assert_eq!(all[..3], one, "a single batch out of several is the first of the shuffled epoch");
    }
}
