//! Scores of a model of links: its metric on the edges that validate and test, and the loss of the
//! former.

use graphmill_core::{End, NodeId};
use graphmill_loader::{
    BatchKey, Seeds,
    link::{Corrupt, Exclude, LinkSource, NegativeLists},
};
use graphmill_nn::{Matrix, Pass, backend::Cpu, model::Model};

use crate::{
    Result, TrainConfig, build,
    config::{Work, link::LinkOptions},
    distributed::Ranks,
    link::{
        LinkEvaluation, LinkTask, Numbering, QueryShare, Scored,
        evaluate::end_of,
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
    /// Nodes whose embeddings scores and losses read, if they are not those of all nodes.
    few: Option<Numbering>,
    /// Edges that validate, with negatives.
    source: LinkSource,
    objective: LinkObjective,
    options: LinkOptions,
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
            few: None,
            source,
            objective: LinkObjective::new(config, task.data.num_nodes())?,
            options,
            seed: config.seed,
            backend: Cpu { precision: build::precision(config) },
            scratch: LinkScratch::default(),
        })
    }

    /// The same scorer, which reads the embeddings of the ends of edges and of their negatives
    /// alone, unless edges are ranked among all nodes.
    ///
    /// # Errors
    /// An edge has no negative.
    pub(crate) fn with_few(mut self) -> Result<Self> {
        let (Some(mut nodes), Some(of_test)) = (self.valid.nodes(), self.test.nodes()) else {
            return Ok(self);
        };
        nodes.extend(of_test);
        let mut memory = Seeds::default();
        for batch in 0..self.num_batches() {
            memory = self.seeds(batch, memory)?;
            nodes.extend_from_slice(&memory.nodes);
        }
        let few = Numbering::new(nodes);
        (self.valid, self.test) = (self.valid.numbered(&few), self.test.numbered(&few));
        Ok(Self { few: Some(few), ..self })
    }

    /// Nodes whose embeddings scores and losses read, in this order.
    pub(crate) fn read(&self) -> &[NodeId] {
        self.few.as_ref().map_or(&self.nodes, Numbering::nodes)
    }

    /// Number of batches of the edges that validate.
    fn num_batches(&self) -> u64 {
        self.source.edges.len().div_ceil(CHUNK) as u64
    }

    /// Edges of a batch that validate, with negatives that are the same in every epoch.
    fn seeds(&self, batch: u64, memory: Seeds) -> Result<Seeds> {
        let start = batch as usize * CHUNK;
        let end = self.source.edges.len().min(start + CHUNK);
        let numbers: Vec<NodeId> = (start as NodeId..end as NodeId).collect();
        Ok(self.source.fill(BatchKey { seed: self.seed, epoch: VALIDATION, batch }, &numbers, memory)?)
    }

    /// Value of the metric on the edges that test or validate, by the embeddings of
    /// [`LinkScorer::read`]. Ranks divide the work of rankings.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn score(
        &self,
        model: &Model,
        is_test: bool,
        embeddings: &Matrix,
        ranks: Option<&Ranks>,
    ) -> Result<Option<f64>> {
        let Some(decoder) = model.decoder() else { return Ok(None) };
        let pass = Pass { backend: &self.backend, training: false, key: 0 };
        let scored = Scored { decoder, pass, embeddings: embeddings.view() };
        let edges = if is_test { &self.test } else { &self.valid };
        let (known, metric) = (&self.task.known, &self.task.metric);
        let Some(ranks) = ranks else { return Ok(edges.score(&scored, known, metric)) };
        let gather = |own: &[Vec<f64>]| ranks.gather_lists(own);
        let share = QueryShare { number: ranks.rank(), of: ranks.size(), gather: &gather };
        edges.score_by_share(&scored, known, metric, &share)
    }

    /// Work of scoring the pairs of [`LinkScorer::score`] on the edges that validate, by all ranks,
    /// and of [`LinkScorer::loss`].
    pub(crate) fn work(&self, model: &Model) -> Work {
        let Some(decoder) = model.decoder() else { return Work::default() };
        let of_loss = self.source.edges.len() * (1 + self.source.num_negatives);
        let scored = self.valid.num_pairs(&self.task.metric, self.task.data.num_nodes());
        Work::of_pairs(decoder, scored + of_loss as u64)
    }

    /// Replaces the lists of hard negatives by the best non-edges of each node, by the embeddings
    /// of all nodes. Edges that training does not know are non-edges.
    pub(crate) fn rank_negatives(&self, model: &Model, lists: &NegativeLists, embeddings: &Matrix) {
        let Some(decoder) = model.decoder() else { return };
        let pass = Pass { backend: &self.backend, training: false, key: 0 };
        let scored = Scored { decoder, pass, embeddings: embeddings.view() };
        let ends: &[End] = match self.options.ends(self.task.undirected) {
            Corrupt::Destination => &[End::Destination],
            Corrupt::Source => &[End::Source],
            Corrupt::Both => &[End::Destination, End::Source],
        };
        for &end in ends {
            let mut fixed = self.nodes.clone();
            if self.task.walks.is_none() {
                fixed = self.task.train.iter().map(|&edge| end_of(edge, end.other())).collect();
                fixed.sort_unstable();
                fixed.dedup();
            }
            let known = Some(&*self.task.known_to_training);
            let best = scored.top(&fixed, end, known, self.options.hard_candidates);
            let ids = |best: Vec<(NodeId, f32)>| best.into_iter().map(|(node, _)| node).collect();
            lists.replace(end, fixed.into_iter().zip(best).map(|(node, best)| (0, node, ids(best))));
        }
    }

    /// Mean loss of the edges that validate, by the embeddings of [`LinkScorer::read`].
    ///
    /// # Errors
    /// An edge has no negative.
    pub(crate) fn loss(&mut self, model: &Model, embeddings: &Matrix) -> Result<f64> {
        let Some(decoder) = model.decoder() else { return Ok(0.0) };
        let pass = Pass { backend: &self.backend, training: false, key: 0 };
        let (mut sum, mut memory, mut rows) = (0.0, Seeds::default(), Matrix::default());
        for batch in 0..self.num_batches() {
            memory = self.seeds(batch, memory)?;
            let Some(links) = &memory.links else { continue };
            if let Some(few) = &self.few {
                memory.nodes.iter_mut().for_each(|node| *node = few.of(*node));
            }
            rows.resize(memory.nodes.len(), embeddings.num_cols());
            let gather = graphmill_nn::backend::ops::Gather {
                src: embeddings.view(),
                ids: &memory.nodes,
                dst: rows.view_mut(),
            };
            gather.run(&self.backend);
            let of = (&**links, &memory.nodes[..]);
            let loss = self.scratch.loss(&self.objective, decoder, &pass, of, rows.view());
            sum += loss * links.positives as f64;
        }
        Ok(sum / self.source.edges.len().max(1) as f64)
    }
}
