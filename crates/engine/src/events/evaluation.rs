//! Scores of validation and test events, each against drawn or given destinations.
//!
//! Every event has one random destination as its negative, the same in every run, or the dataset's
//! own (then rankings have metrics too, of every event and with the mean rank of ties, as TGB's).
//! Of tasks with classes or values, each event has its own outputs, and metrics are those of
//! classes or values.
//!
//! Average precision and AUC are those of all events of a part together; those whose names end
//! with `-by-batch` are means over batches, as in published tables. Inductive scores are those of
//! the events with a node that training has not seen.

use std::{ops::Range, sync::Arc};

use graphmill_core::{
    NodeId,
    progress::{Progress, Quiet},
};
use graphmill_loader::BatchKey;
use graphmill_nn::{Matrix, Pass, backend::Cpu, temporal::NodeMemory};

use super::{
    files::MAX_PAIRS,
    learner::{BatchEnds, BatchScratch},
    model::{EventModel, PassState},
    scored::ScoredPart,
    stream::EventStream,
    target::EventTargets,
};
use crate::{
    Result, TrainConfig,
    build::processor,
    inference::{DIAGNOSED_TRAIN_NODES, fixed_sample},
    learner::SeedLabels,
};

/// Epoch in the keys of draws for evaluation.
const EVALUATION: u64 = u64::MAX;
/// Pairs that are scored at once by a model whose rows are those of pairs.
const MAX_OWN_ROWS: usize = 1 << 9;
/// Nodes whose embeddings are computed at once.
const MAX_ROWS: usize = 1 << 12;

/// Scores of a model on one part after the other.
pub(super) struct Evaluation<'a> {
    config: &'a TrainConfig,
    stream: &'a EventStream,
    pub(super) batch_size: usize,
    scratch: BatchScratch<'a>,
    memory: Option<Arc<NodeMemory>>,
    state: PassState,
    ends: BatchEnds,
}

impl<'a> Evaluation<'a> {
    /// Prepares the evaluation of a model of this configuration.
    ///
    /// # Errors
    /// The fanout or an option is invalid, or the disk has too little space.
    pub(super) fn new(config: &'a TrainConfig, stream: &'a EventStream, model: &EventModel) -> Result<Self> {
        Self::seeing(config, stream, model.memory(stream)?.map(Arc::new))
    }

    /// Prepares the evaluation of a model with this memory.
    ///
    /// # Errors
    /// As for [`Evaluation::new`].
    pub(super) fn seeing(
        config: &'a TrainConfig,
        stream: &'a EventStream,
        memory: Option<Arc<NodeMemory>>,
    ) -> Result<Self> {
        Ok(Self {
            config,
            stream,
            batch_size: batch_size(config, stream),
            scratch: BatchScratch::new(config, stream)?,
            memory,
            state: PassState::default(),
            ends: BatchEnds::default(),
        })
    }

    /// The memory of now, if the model has one.
    pub(super) fn memory(&self) -> Option<&Arc<NodeMemory>> {
        self.memory.as_ref()
    }

    /// Takes the rows of a memory in files out of the memory of the process.
    pub(super) fn release(&self) {
        self.memory.iter().for_each(|memory| memory.release());
    }

    /// The memory of now, if the model has one.
    pub(super) fn into_memory(self) -> Option<Arc<NodeMemory>> {
        self.memory
    }

    /// Computes the memory after the training events. Later parts continue from it.
    ///
    /// # Errors
    /// As for [`BatchEnds::advance`].
    pub(super) fn begin(&mut self, model: &EventModel) -> Result<()> {
        let stream = self.stream;
        self.begin_with(model, &stream.learned)
    }

    /// Computes the memory after the events strictly before `time`: those of training that are
    /// learned, then all later ones, in the batches of scores.
    ///
    /// # Errors
    /// As for [`BatchEnds::advance`].
    pub(super) fn begin_at(&mut self, model: &EventModel, time: i64) -> Result<()> {
        let (stream, times) = (self.stream, self.stream.events.time());
        let learned = stream.learned.partition_point(|&e| times[e as usize] < time);
        self.begin_with(model, &stream.learned[..learned])?;
        let end = times.partition_point(|&at| at < time);
        stream.parts[1..].iter().try_for_each(|part| self.skip(model, part.start..part.end.min(end)))
    }

    /// Forgets all events.
    ///
    /// # Errors
    /// The disk has too little space for a memory in files.
    pub(super) fn forget(&mut self) -> Result<()> {
        if let Some(memory) = &mut self.memory {
            Arc::make_mut(memory).clear(self.stream.start())?;
        }
        Ok(())
    }

    /// Stores the messages of these events alone, as if they had just come.
    ///
    /// # Errors
    /// As for [`BatchEnds::push`].
    pub(super) fn push(&mut self, events: &[u32]) -> Result<()> {
        match &mut self.memory {
            Some(memory) => self.ends.push(self.stream, events, Arc::make_mut(memory)),
            None => Ok(()),
        }
    }

    fn begin_with(&mut self, model: &EventModel, learned: &[u32]) -> Result<()> {
        self.forget()?;
        learned.chunks(self.batch_size).try_for_each(|events| self.advance(model, events))
    }

    /// Embeddings of `nodes` at `time` by the memory of now, `N x H`. The draws of a node depend on
    /// it and the seed alone.
    ///
    /// # Errors
    /// A block would have more edges than 32-bit positions can number.
    pub(super) fn embed(
        &mut self,
        model: &EventModel,
        nodes: &[NodeId],
        time: i64,
        out: &mut Matrix,
    ) -> Result<()> {
        let width = model.width();
        out.resize(nodes.len(), width);
        let mut to = out.view_mut().host().chunks_exact_mut(width);
        let pass = Pass { backend: processor(self.config), training: false, key: 0 };
        for chunk in nodes.chunks(MAX_ROWS) {
            let rows = &mut self.scratch.rows;
            rows.clear();
            let places: Vec<NodeId> = chunk.iter().map(|&v| rows.row(v, time)).collect();
            self.scratch.draw(BatchKey { seed: self.config.seed, epoch: EVALUATION, batch: 0 }, false)?;
            let inputs = (&self.scratch.rows, &self.scratch.near);
            model.embed(&pass, self.stream, self.memory.as_deref(), inputs, &mut self.state)?;
            let all = model.embeddings(&self.state).host();
            for (at, to) in places.iter().zip(&mut to) {
                to.copy_from_slice(&all[*at as usize * width..][..width]);
            }
            self.stream.release();
        }
        Ok(())
    }

    /// Adds the scores of the pairs of `source` with `destinations` at `time` to `out`, by the
    /// memory of now. The draws of a node depend on it and the seed alone.
    ///
    /// # Errors
    /// A block would have more edges than 32-bit positions can number.
    pub(super) fn score_pairs(
        &mut self,
        model: &EventModel,
        (source, destinations): (NodeId, &[NodeId]),
        time: i64,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        for chunk in destinations.chunks(max_pairs(model)) {
            self.scratch.rows.clear();
            chunk.iter().for_each(|&v| self.scratch.rows.push(source, v, time));
            self.score_rows(model, 0)?;
            out.extend_from_slice(self.state.scores.view().host());
        }
        Ok(())
    }

    /// Scores of `pairs` at `time`, by the memory of now: those of [`Evaluation::score_pairs`].
    ///
    /// # Errors
    /// As for [`Evaluation::score_pairs`].
    pub(super) fn score_list(
        &mut self,
        model: &EventModel,
        pairs: &[(NodeId, NodeId)],
        time: i64,
    ) -> Result<Vec<f32>> {
        let mut scores = Vec::with_capacity(pairs.len());
        for chunk in pairs.chunks(max_pairs(model)) {
            self.scratch.rows.clear();
            chunk.iter().for_each(|&(u, v)| self.scratch.rows.push(u, v, time));
            self.score_rows(model, 0)?;
            scores.extend_from_slice(self.state.scores.view().host());
        }
        Ok(scores)
    }

    /// Scores the pairs of the scratch, by the draws of batch number `batch`.
    fn score_rows(&mut self, model: &EventModel, batch: u64) -> Result<()> {
        self.scratch.draw(BatchKey { seed: self.config.seed, epoch: EVALUATION, batch }, false)?;
        let pass = Pass { backend: processor(self.config), training: false, key: 0 };
        let inputs = (&self.scratch.rows, &self.scratch.near);
        model.forward(&pass, self.stream, self.memory.as_deref(), inputs, &mut self.state)?;
        self.stream.release();
        Ok(())
    }

    /// Computes the memory after a batch of events, without scoring them.
    ///
    /// # Errors
    /// As for [`BatchEnds::advance`].
    pub(super) fn advance(&mut self, model: &EventModel, events: &[u32]) -> Result<()> {
        let pass = Pass { backend: processor(self.config), training: false, key: 0 };
        match model.updater.as_ref().zip(self.memory.as_mut()) {
            Some((updater, memory)) => {
                self.ends.advance(&pass, self.stream, events, updater, Arc::make_mut(memory))?;
                self.stream.release();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Passes over the events of a range, which begins with a batch, without scoring them.
    ///
    /// # Errors
    /// As for [`BatchEnds::advance`].
    pub(super) fn skip(&mut self, model: &EventModel, part: Range<usize>) -> Result<()> {
        let events: Vec<u32> = part.map(|e| e as u32).collect();
        events.chunks(self.batch_size).try_for_each(|events| self.advance(model, events))
    }

    /// Scores the events of a part (1: validation, 2: test), or a sample of --eval-nodes of them.
    ///
    /// # Errors
    /// A block would have more edges than 32-bit positions can number.
    pub(super) fn score(&mut self, model: &EventModel, part: usize) -> Result<ScoredPart> {
        let is_ranked = self.stream.targets.is_none();
        let [events, chosen] = self.chosen(part);
        let starts = self.starts(part, &chosen);
        let (mut scores, mut next) = (Vec::with_capacity(starts[chosen.len()]), 0);
        for batch in events.chunks(self.batch_size) {
            let count = chosen[next..].partition_point(|e| batch.last().is_some_and(|last| e <= last));
            self.score_batch(model, (part, batch), (&chosen[next..next + count], is_ranked), &mut scores)?;
            next += count;
            self.advance(model, batch)?;
        }
        Ok(self.scored(chosen, starts, scores))
    }

    /// Events of a part, and those that are scored.
    pub(super) fn chosen(&self, part: usize) -> [Vec<u32>; 2] {
        let events: Vec<u32> = self.stream.parts[part].clone().map(|e| e as u32).collect();
        let chosen = fixed_sample(&events, self.config.eval_nodes);
        [events, chosen]
    }

    /// Start of the values of each chosen event of a part, and their number.
    pub(super) fn starts(&self, part: usize, chosen: &[u32]) -> Vec<usize> {
        let mut starts = vec![0];
        for &e in chosen {
            let values = match &self.stream.targets {
                Some(targets) => targets.outputs(),
                None => 1 + self.stream.num_negatives(part, e),
            };
            starts.push(starts[starts.len() - 1] + values);
        }
        starts
    }

    /// Scores a sample of the training events, for diagnostics of their targets.
    ///
    /// # Errors
    /// As for [`Evaluation::score`].
    pub(super) fn score_training(&mut self, model: &EventModel) -> Result<ScoredPart> {
        let chosen = training_sample(self.stream);
        let outputs = self.outputs(model, &chosen, &Quiet)?;
        let width = self.stream.targets.as_deref().map_or(1, EventTargets::outputs);
        let starts = (0..=chosen.len()).map(|at| at * width).collect();
        Ok(self.scored(chosen, starts, outputs))
    }

    /// The scores or outputs of `events`, those of each from its start on.
    pub(super) fn scored(&self, events: Vec<u32>, starts: Vec<usize>, mut scores: Vec<f32>) -> ScoredPart {
        let mut loss = f64::NAN;
        if let Some(targets) = &self.stream.targets {
            let outputs = Matrix::from_slice(events.len(), targets.outputs(), &scores);
            let (mut labels, mut grad) = (SeedLabels::default(), Matrix::default());
            loss = targets.loss(&Cpu::default(), (&events, &mut labels), &outputs, &mut grad);
            scores = targets.undone(outputs).view().host().to_vec();
        }
        ScoredPart { events, batch_size: self.batch_size, starts, scores, loss }
    }

    /// Outputs for the targets of `chosen` events, ascending, `N x C`: those of validation and test
    /// events are the ones that are scored. Training events that are not learned are those of the
    /// batch before them.
    ///
    /// # Errors
    /// As for [`Evaluation::score`]; or `watch` stops the work.
    pub(super) fn outputs(
        &mut self,
        model: &EventModel,
        chosen: &[u32],
        watch: &dyn Progress,
    ) -> Result<Vec<f32>> {
        let stream = self.stream;
        let later: Vec<u32> = (stream.parts[1].start as u32..stream.parts[2].end as u32).collect();
        let (valid, test) = later.split_at(stream.parts[1].len());
        self.begin_with(model, &[])?;
        let (mut out, mut next) = (Vec::new(), 0);
        for (part, events) in [&stream.learned[..], valid, test].into_iter().enumerate() {
            let end = stream.parts[part].end as u32;
            let mut batches = events.chunks(self.batch_size.max(1)).peekable();
            while let Some(batch) = batches.next().filter(|_| next < chosen.len()) {
                watch.check()?;
                let end = batches.peek().and_then(|batch| batch.first()).copied().unwrap_or(end);
                let count = chosen[next..].partition_point(|&e| e < end);
                self.score_batch(model, (part, batch), (&chosen[next..next + count], false), &mut out)?;
                next += count;
                self.advance(model, batch)?;
            }
        }
        Ok(out)
    }

    /// Scores some events of a batch of a part, with their negatives if they are ranked. The draws
    /// of a node at a time depend on the batch, and not on the events that are scored.
    ///
    /// # Errors
    /// As for [`Evaluation::score`].
    pub(super) fn score_batch(
        &mut self,
        model: &EventModel,
        (part, batch): (usize, &[u32]),
        (mut events, is_ranked): (&[u32], bool),
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let key = batch.first().map_or(0, |&e| e.into());
        let (stream, most) = (self.stream, max_pairs(model));
        while !events.is_empty() {
            // as many events as fit, at least one
            let mut pairs = 0;
            let fits = |&e: &u32| {
                pairs += 1 + if is_ranked { stream.num_negatives(part, e) } else { 0 };
                pairs <= most
            };
            let count = events.iter().copied().take_while(fits).count().max(1);
            let (piece, rest) = events.split_at(count);
            self.list_pairs(part, piece, is_ranked)?;
            self.score_rows(model, key)?;
            out.extend_from_slice(self.state.scores.view().host());
            events = rest;
        }
        Ok(())
    }

    /// Lists the pairs of events of a part in the scratch, each followed by its negatives if they
    /// are ranked.
    fn list_pairs(&mut self, part: usize, events: &[u32], is_ranked: bool) -> Result<()> {
        let (stream, rows) = (self.stream, &mut self.scratch.rows);
        rows.clear();
        let fixed = BatchKey { seed: 0, epoch: EVALUATION, batch: 0 };
        for &e in events {
            let e = e as usize;
            let (source, time) = (stream.events.source()[e], stream.events.time()[e]);
            rows.push(source, stream.events.destination()[e], time);
            match &stream.given[part] {
                _ if !is_ranked => {}
                Some(lists) => {
                    let own = lists.list(e - stream.parts[part].start);
                    own.iter().for_each(|&v| rows.push(source, v, time));
                }
                None => {
                    let known = &stream.destinations[1];
                    let drawn = stream.events.negatives(e..e + 1, &(0..known.len() as NodeId), 1, fixed)?;
                    drawn.iter().for_each(|&at| rows.push(source, known[at as usize], time));
                }
            }
        }
        Ok(())
    }
}

/// Training events whose outputs a finished run compares with those of other parts, ascending.
pub(super) fn training_sample(stream: &EventStream) -> Vec<u32> {
    fixed_sample(&stream.learned, DIAGNOSED_TRAIN_NODES)
}

/// Pairs that a model scores at once.
fn max_pairs(model: &EventModel) -> usize {
    if model.is_of_pairs() { MAX_OWN_ROWS } else { MAX_PAIRS }
}

/// Number of events of a batch.
pub(super) fn batch_size(config: &TrainConfig, stream: &EventStream) -> usize {
    if config.batch_size == 0 { stream.learned.len() } else { config.batch_size }
}
