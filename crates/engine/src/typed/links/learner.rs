//! The train stage of links on several types: embeddings of the seeds, scores of their pairs, one
//! update.

use std::sync::Arc;

use graphmill_core::{NodeId, block::Aggregation, keyed::key};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    link::{LinkBatch, NegativeLists},
    typed::TypedExtracted,
};
use graphmill_nn::{
    Backend, Matrix, Param, Pass,
    link::{
        decoder::{self, Decoder, DecoderConfig},
        loss,
    },
    optim::{Optimizer, SparseAdam},
    typed::{TypedActivations, TypedModel, TypedModelConfig, TypedStep},
};

use super::{
    super::{
        batches::{HeldRows, StepModel, StepModels},
        build,
        clip::{clip, end_batch, merge},
        learner::{dropout_key, optimizer_of_rows},
        ranks::{
            JoinedRows, RowGradients, RowOwners, exchange, fetch_rows, learned_types, own_nodes, update_rows,
        },
        rounds::RoundLearner,
    },
    task::TypedLinks,
};
use crate::{
    Error, Result, TrainConfig,
    build::{by_flag, optimizer, processor},
    config::{embedding::EmbeddingOptions, link::LinkOptions, link_task::loss_name},
    learner::BatchShare,
    link::step::{LinkObjective, LinkScratch},
    record::BatchOutcome,
    versions::{Parameters, PastVersions},
};

/// Part of the key of the decoder's initial values, and of its passes.
const DECODER: u64 = 0x6465_636f_6465;

/// Encoder and decoder of a run.
pub(super) struct LinkModel {
    /// Embeddings of nodes from their neighbours.
    pub(super) encoder: TypedModel,
    /// Scores of pairs of embeddings.
    pub(super) decoder: Box<dyn Decoder>,
}

impl LinkModel {
    /// Creates the model of a configuration with its initial values.
    ///
    /// # Errors
    /// An unknown name, impossible numbers, or a decoder that does not know the relations.
    pub(super) fn new(config: &TrainConfig, of: &TypedLinks) -> Result<Self> {
        Self::of_rows(config, of, None)
    }

    /// The model with the learned rows of these nodes of each type, or with those of all nodes.
    ///
    /// # Errors
    /// As [`LinkModel::new`].
    fn of_rows(config: &TrainConfig, of: &TypedLinks, own_nodes: Option<Arc<[Vec<NodeId>]>>) -> Result<Self> {
        let (links, options): (LinkOptions, EmbeddingOptions) = (config.own.get(), config.own.get());
        let name = &links.decoder;
        let kind = decoder::TABLE.find(name).map_err(Error::name)?.make;
        let relations = of.edges.relations.len();
        if relations > 1 && !kind.knows_relations {
            let known = decoder::TABLE.iter().filter(|entry| entry.make.knows_relations);
            let known = known.map(|entry| entry.name).collect::<Vec<_>>().join(", ");
            return Err(Error::usage(format!(
                "--decoder {name}: it scores edges of all {relations} relations alike; use one of {known}, \
                 or choose one relation with --task"
            )));
        }
        let decoder = (kind.make)(&DecoderConfig {
            dim: config.hidden,
            relations,
            hidden: links.decoder_hidden,
            gamma: options.gamma as f32,
            norm: options.distance_norm,
            key: key(&[config.seed, DECODER]),
            graph: of.structure.as_ref(),
        })
        .map_err(by_flag)?;
        let (schema, dims) = (of.inputs.graph.schema(), of.inputs.feature_dims());
        build::check_learned_rows(config, &of.inputs, own_nodes.as_deref())?;
        let of_model = build::model_config(config, &of.inputs);
        let of_model = TypedModelConfig { head_layers: 0, own_nodes, ..of_model };
        let encoder = TypedModel::new(&of_model, schema, &dims, None, config.seed).map_err(by_flag)?;
        Ok(Self { encoder, decoder })
    }
}

impl Parameters for LinkModel {
    fn each(&self, see: &mut dyn FnMut(&Param)) {
        self.encoder.visit(&mut |_, param| see(param));
        self.decoder.visit(&mut |param| see(param));
    }

    fn each_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.encoder.visit_mut(&mut |_, param| see(param));
        self.decoder.visit_mut(see);
    }
}

/// Model, optimisers and scratch memory.
pub(super) struct LinkLearner<'a> {
    pub(super) model: LinkModel,
    /// Optimiser of the dense parameters of the encoder, then of the decoder.
    pub(super) optimizer: Box<dyn Optimizer>,
    /// Optimiser of learned rows.
    pub(super) sparse: SparseAdam,
    /// Lists of hard negatives by the ranking of the last epoch, if the run draws them.
    pub(super) hard: Option<Arc<NegativeLists>>,
    /// Number of updates so far, on which dropout depends.
    pub(super) step: u64,
    /// Number of this rank, on which dropout depends, if several train together.
    rank: Option<usize>,
    /// True if the model is that of the last update, false while an update is incomplete.
    pub(super) is_whole: bool,
    objective: LinkObjective,
    weight_decay: f32,
    /// Maximum norm of the gradient; 0 for no limit.
    limit: f32,
    seed: u64,
    backend: &'a dyn Backend,
    acts: TypedActivations,
    scratch: LinkScratch,
    /// Embeddings of the seeds, those of one type after those of another, and their gradients.
    rows: [Matrix; 2],
    /// Earlier versions of the parameters, if gradients of devices are stale.
    pub(super) past: PastVersions,
    /// The ranks that train together, if there are several.
    pub(super) over: Option<RowOwners>,
    /// Learned rows of all ranks, while a checkpoint is written.
    pub(super) joined: Option<JoinedRows>,
}

impl<'a> LinkLearner<'a> {
    /// Creates the learner of a run before its first update, alone or `over` ranks.
    ///
    /// # Errors
    /// An option of the model, the optimiser or the loss is impossible.
    pub(super) fn new(config: &TrainConfig, of: &TypedLinks, over: Option<RowOwners>) -> Result<Self> {
        let owners = over.as_ref().map(|over| &over.owners[..]);
        let rank = over.as_ref().map(|over| over.ranks.rank());
        Ok(Self { over: over.clone(), ..Self::of_owners(config, of, owners)?.of_rank(rank) })
    }

    /// The same learner with the dropout masks of this rank.
    pub(super) fn of_rank(self, rank: Option<usize>) -> Self {
        Self { rank, ..self }
    }

    /// The learner of a rank with the learned rows of the nodes that it owns, which does not sum
    /// gradients; without `owners`, that of a run of one process.
    ///
    /// # Errors
    /// As [`LinkLearner::new`].
    fn of_owners(
        config: &TrainConfig,
        of: &TypedLinks,
        owners: Option<&[Arc<NodeOwnership>]>,
    ) -> Result<Self> {
        Self::of_rows(config, of, owners.map(|owners| own_nodes(owners, &of.inputs.feature_dims())))
    }

    /// The learner of another device before its first batch, which computes gradients. It has no
    /// learned rows: a batch brings those of its nodes.
    ///
    /// # Errors
    /// As [`LinkLearner::new`].
    pub(super) fn replica(config: &TrainConfig, of: &TypedLinks) -> Result<Self> {
        let none: Vec<Vec<NodeId>> = vec![Vec::new(); of.inputs.graph.schema().num_types()];
        Self::of_rows(config, of, Some(none.into()))
    }

    /// The learner with the learned rows of these nodes of each type, or with those of all nodes.
    fn of_rows(config: &TrainConfig, of: &TypedLinks, nodes: Option<Arc<[Vec<NodeId>]>>) -> Result<Self> {
        let candidates = of.edges.relations.iter().map(|relation| relation.candidates[1].len());
        let (least, most) = (candidates.clone().min().unwrap_or(0), candidates.max().unwrap_or(0));
        let name = loss_name(config);
        if loss::TABLE.get(name).is_some_and(|row| row.make.corrects_draws) && least != most {
            return Err(Error::usage(format!(
                "--loss {name}: it corrects scores for the number of candidates, which the relations do not \
                 share; choose one with --task, or use --loss info-nce"
            )));
        }
        let model = LinkModel::of_rows(config, of, nodes)?;
        Ok(Self {
            sparse: optimizer_of_rows(&model.encoder)?,
            model,
            optimizer: optimizer(config)?,
            hard: None,
            step: 0,
            rank: None,
            is_whole: true,
            objective: LinkObjective::new(config, most)?,
            weight_decay: config.weight_decay as f32,
            limit: config.clip as f32,
            seed: config.seed,
            backend: processor(config),
            acts: TypedActivations::default(),
            scratch: LinkScratch::default(),
            rows: Default::default(),
            past: PastVersions::default(),
            over: None,
            joined: None,
        })
    }

    /// The same learner, whose encoder, decoder and dense updates run on `backend`. The loss, which
    /// reads a score of each pair, runs on the processor.
    pub(super) fn on(self, backend: &'a dyn Backend) -> Self {
        Self { backend, ..self }
    }

    fn learn(&mut self, batch: &TypedExtracted, lr: f64, all: Option<usize>) -> Result<BatchOutcome> {
        let (backend, positives) = (self.backend, links_of(batch)?.positives);
        let own = self.gradient(batch)?;
        // before the update, so that a failed pass changes no parameter
        backend.check()?;
        let nodes = &batch.sampled.input_nodes;
        let (loss, seeds, rows) = match &self.over {
            None => match own {
                Some(loss) => (loss, positives, None),
                None => return Ok(BatchOutcome { loss: 0.0, grad_norm: None, seeds: 0 }),
            },
            Some(over) => {
                let has_gradient = own.is_some_and(f64::is_finite);
                self.is_whole = false;
                if !has_gradient {
                    self.model.each_mut(&mut |param| param.zero_grad(backend));
                }
                let learned = learned_types(&self.model.encoder);
                let loss = own.unwrap_or_default();
                let share = BatchShare { loss, seeds: positives, nodes: positives, global: all };
                let acts = has_gradient.then_some(&self.acts);
                let summed = exchange(over, (&mut self.model, &learned), share, (nodes, acts))?;
                let (loss, seeds, rows) = summed.unwrap_or_default();
                (loss, seeds, Some(rows))
            }
        };
        end_batch(self, (lr, nodes), (loss, seeds), rows)
    }

    /// Computes the gradient of the mean loss of the pairs of a batch. Returns the loss, or `None`
    /// without pairs; the gradient is meaningless if it is not finite.
    ///
    /// # Errors
    /// The batch does not fit the model.
    fn gradient(&mut self, batch: &TypedExtracted) -> Result<Option<f64>> {
        let links = links_of(batch)?;
        if links.positives == 0 {
            return Ok(None);
        }
        let backend = self.backend;
        let Self { model: LinkModel { encoder, decoder }, acts, scratch, .. } = self;
        let seeds = &batch.sampled.seeds;
        let pass = Pass { backend, training: true, key: dropout_key(self.seed, self.step, self.rank) };
        let step = TypedStep {
            blocks: &batch.sampled.blocks,
            features: &batch.features,
            edges: &batch.edges,
            nodes: &batch.sampled.input_nodes,
            num_targets: 0,
            reused: &[],
        };
        encoder.forward(&pass, &step, acts)?;
        let [rows, grad] = &mut self.rows;
        let width = gather_seeds(backend, acts, &seeds.nodes, rows);
        grad.resize(rows.num_rows(), width);
        decoder.visit_mut(&mut |param| param.zero_grad(backend));
        let of_pairs = (rows.view(), grad.view_mut());
        // nodes of several types have no common numbers, and no decoder reads their graph
        let numbers = match &seeds.nodes[..] {
            [of_one_type] => &of_one_type[..],
            _ => &[],
        };
        let links = (links, numbers);
        let loss = scratch.gradient(&self.objective, &mut **decoder, &pass.part(DECODER), links, of_pairs);
        if !loss.is_finite() {
            return Ok(Some(loss));
        }
        scatter_seeds(backend, acts, &seeds.nodes, grad);
        encoder.zero_grad(backend);
        // a backward pass changes running statistics
        self.is_whole = false;
        encoder.backward(&pass, &step, acts);
        Ok(Some(loss))
    }
}

/// Pairs of a batch.
///
/// # Errors
/// It has none, because its seeds are not ends of edges.
fn links_of(batch: &TypedExtracted) -> Result<&LinkBatch> {
    let links = batch.sampled.seeds.links.as_deref();
    links.ok_or_else(|| graphmill_core::Error::invalid("a batch of links without pairs").into())
}

impl RoundLearner for LinkLearner<'_> {
    fn encoder(&self) -> &TypedModel {
        &self.model.encoder
    }

    fn encoder_mut(&mut self) -> &mut TypedModel {
        &mut self.model.encoder
    }

    fn dense(&self) -> &dyn Parameters {
        &self.model
    }

    fn dense_mut(&mut self) -> &mut dyn Parameters {
        &mut self.model
    }

    fn past(&self) -> &PastVersions {
        &self.past
    }

    fn num_seeds(&self, batch: &TypedExtracted) -> usize {
        links_of(batch).map_or(0, |links| links.positives)
    }

    fn weight(&self, batch: &TypedExtracted) -> usize {
        self.num_seeds(batch)
    }

    fn batch_gradient(&mut self, batch: &TypedExtracted) -> Result<Option<f64>> {
        self.gradient(batch)
    }

    fn train(&mut self, batch: &mut TypedExtracted, lr: f64, all: Option<usize>) -> Result<BatchOutcome> {
        fetch_rows(self.over.as_ref(), (&self.model.encoder, self.backend), batch)?;
        // on a thread of the pool, so that no operation has to wake one
        let outcome = rayon::scope(|_| self.learn(batch, lr, all))?;
        self.backend.check()?;
        Ok(outcome)
    }

    fn activations(&self) -> &TypedActivations {
        &self.acts
    }

    fn set_whole(&mut self, is_whole: bool) {
        self.is_whole = is_whole;
    }

    fn clips(&self) -> bool {
        self.limit > 0.0
    }

    fn clip(&mut self, rows: &mut [RowGradients]) -> Result<Option<f64>> {
        if !self.clips() {
            return Ok(None);
        }
        merge(&mut self.model.encoder, rows);
        clip(self.limit, (&mut self.model, self.backend), rows, self.over.as_ref()).map(Some)
    }

    fn update(&mut self, lr: f64, nodes: &[Vec<NodeId>], rows: Option<&[RowGradients]>) -> Result<()> {
        self.optimizer.begin(lr as f32);
        self.sparse.begin(lr as f32);
        let (optimizer, decay, mut index) = (&mut self.optimizer, self.weight_decay, 0);
        let backend = self.backend;
        self.model.each_mut(&mut |param| {
            optimizer.update(backend, index, param, decay);
            index += 1;
        });
        update_rows(&mut self.model.encoder, &mut self.sparse, rows, (nodes, &self.acts))?;
        self.step += 1;
        self.is_whole = true;
        Ok(())
    }
}

impl StepModel for LinkLearner<'_> {
    fn aggregation(&self) -> Aggregation {
        self.model.encoder.aggregation()
    }

    fn step(&mut self, batch: &mut TypedExtracted, lr: f64) -> Result<()> {
        // the share of a rank may have no positives, and has no gradient then
        let positives = batch.sampled.seeds.links.as_deref().map_or(0, |links| links.positives);
        if positives == 0 { Ok(()) } else { self.train(batch, lr, Some(positives)).map(drop) }
    }
}

impl StepModels for TypedLinks {
    fn model<'m>(
        &'m self,
        config: &TrainConfig,
        held: HeldRows,
        backend: &'m dyn Backend,
    ) -> Result<Box<dyn StepModel + 'm>> {
        let learner = match held {
            HeldRows::OfBatch => LinkLearner::replica(config, self)?,
            held => LinkLearner::of_owners(config, self, held.owners())?,
        };
        Ok(Box::new(learner.on(backend)))
    }
}

/// Copies the embeddings of the seeds, those of one type after those of another. Returns their
/// width.
fn gather_seeds(
    backend: &dyn Backend,
    acts: &TypedActivations,
    seeds: &[Vec<u32>],
    rows: &mut Matrix,
) -> usize {
    let with_seeds = || seeds.iter().enumerate().filter(|(_, nodes)| !nodes.is_empty());
    let width = with_seeds().map(|(t, _)| acts.rows(t).num_cols()).max().unwrap_or(0);
    rows.resize(seeds.iter().map(Vec::len).sum(), width);
    let mut first = 0;
    for (t, nodes) in with_seeds() {
        backend.copy(acts.rows(t).rows(0..nodes.len()), rows.rows_mut(first..first + nodes.len()));
        first += nodes.len();
    }
    width
}

/// Writes the gradients of the seeds' embeddings, the inverse of [`gather_seeds`].
fn scatter_seeds(backend: &dyn Backend, acts: &mut TypedActivations, seeds: &[Vec<u32>], grad: &Matrix) {
    let mut first = 0;
    for (t, nodes) in seeds.iter().enumerate().filter(|(_, nodes)| !nodes.is_empty()) {
        let from = grad.view().rows(first..first + nodes.len());
        backend.copy(from, acts.rows_grad(t).rows(0..nodes.len()));
        first += nodes.len();
    }
}
