//! Scores of a model of links: its metric on the edges that validate and test, and the loss of the
//! former.

use graphmill_core::NodeId;
use graphmill_loader::{
    BatchKey, Seeds,
    link::{Exclude, LinkSource},
};
use graphmill_nn::{Matrix, Pass, backend::Cpu, model::Model};

use crate::{
    Result, TrainConfig, build,
    config::link::LinkOptions,
    link::{
        LinkEvaluation, LinkTask, Scored,
        step::{LinkObjective, LinkScratch},
    },
};

/// Edges whose loss is computed at once.
const CHUNK: usize = 1 << 14;
/// Epoch in the key of the negatives of validation: no epoch of training has it.
const VALIDATION: u64 = u64::MAX;

/// Scores a model of links.
pub(crate) struct LinkScorer<'a> {
    pub(crate) task: &'a LinkTask,
    pub(crate) valid: LinkEvaluation,
    pub(crate) test: LinkEvaluation,
    /// All nodes.
    pub(crate) nodes: Vec<NodeId>,
    /// Edges that validate, with negatives.
    source: LinkSource,
    objective: LinkObjective,
    seed: u64,
    backend: Cpu,
    scratch: LinkScratch,
}

impl<'a> LinkScorer<'a> {
    /// Scorer of a run.
    ///
    /// # Errors
    /// The graph has too few pairs without an edge to compare edges with.
    pub(crate) fn new(config: &TrainConfig, task: &'a LinkTask) -> Result<Self> {
        let options: LinkOptions = config.own.get();
        let valid = task.evaluation(config, "valid")?;
        let mut source = LinkSource::new(valid.edges(), task.known.clone(), "uniform")?;
        source.num_negatives = options.num_negatives;
        source.corrupt = options.ends(task.undirected);
        source.exclude = Exclude::Nothing;
        Ok(Self {
            task,
            valid,
            test: task.evaluation(config, "test")?,
            nodes: (0..task.data.num_nodes() as NodeId).collect(),
            source,
            objective: LinkObjective::new(config, task.data.num_nodes())?,
            seed: config.seed,
            backend: Cpu { precision: build::precision(config) },
            scratch: LinkScratch::default(),
        })
    }

    /// Value of the metric on the edges that test or validate, by the embeddings of all nodes.
    pub(crate) fn score(&self, model: &Model, is_test: bool, embeddings: &Matrix) -> Option<f64> {
        let pass = Pass { backend: &self.backend, training: false, key: 0 };
        let scored = Scored { decoder: model.decoder()?, pass, embeddings: embeddings.view() };
        let edges = if is_test { &self.test } else { &self.valid };
        edges.score(&scored, &self.task.known, &self.task.metric)
    }

    /// Mean loss of the edges that validate, against negatives that are the same in every epoch.
    ///
    /// # Errors
    /// An edge has no negative.
    pub(crate) fn loss(&mut self, model: &Model, embeddings: &Matrix) -> Result<f64> {
        let Some(decoder) = model.decoder() else { return Ok(0.0) };
        let pass = Pass { backend: &self.backend, training: false, key: 0 };
        let (mut sum, mut memory, mut rows) = (0.0, Seeds::default(), Matrix::default());
        let numbers: Vec<NodeId> = (0..self.source.edges.len() as NodeId).collect();
        for (batch, numbers) in (0..).zip(numbers.chunks(CHUNK)) {
            let key = BatchKey { seed: self.seed, epoch: VALIDATION, batch };
            memory = self.source.fill(key, numbers, memory)?;
            let Some(links) = &memory.links else { continue };
            rows.resize(memory.nodes.len(), embeddings.num_cols());
            let gather = graphmill_nn::backend::ops::Gather {
                src: embeddings.view(),
                ids: &memory.nodes,
                dst: rows.view_mut(),
            };
            gather.run(&self.backend);
            let loss = self.scratch.loss(&self.objective, decoder, &pass, links, rows.view());
            sum += loss * numbers.len() as f64;
        }
        Ok(sum / numbers.len().max(1) as f64)
    }
}
