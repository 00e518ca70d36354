//! Steps of a run on some batches of a stream, each part of which is timed.

use std::{sync::Arc, time::Instant};

use graphmill_core::Matrix;
use graphmill_loader::BatchKey;
use graphmill_nn::temporal::NodeMemory;

use super::{
    evaluation::Evaluation,
    learner::{BatchScratch, EventLearner, training_rows},
    scored::{EventMetric, metric},
    stream::EventStream,
};
use crate::{Result, TrainConfig};

/// Learner and evaluation of a run that skips batches.
pub(super) struct EventSteps<'a> {
    config: &'a TrainConfig,
    stream: &'a EventStream,
    batch_size: usize,
    pub(super) learner: EventLearner<'a>,
    pub(super) evaluation: Evaluation<'a>,
    scratch: BatchScratch<'a>,
    metric: EventMetric,
    /// Nodes that have messages.
    is_known: Vec<bool>,
    /// Number of the events so far, those of training that are learned and then those of
    /// validation.
    next: usize,
}

impl<'a> EventSteps<'a> {
    /// Creates the steps before the first batch.
    ///
    /// # Errors
    /// An option is invalid, or the disk has too little space.
    pub(super) fn new(config: &'a TrainConfig, stream: &'a EventStream, batch_size: usize) -> Result<Self> {
        let learner = EventLearner::new(config, stream)?;
        Ok(Self {
            config,
            stream,
            batch_size,
            evaluation: Evaluation::new(config, stream, &learner.model)?,
            learner,
            scratch: BatchScratch::new(config, stream)?,
            metric: metric(config, stream)?,
            is_known: vec![false; stream.num_nodes],
            next: 0,
        })
    }

    /// Begins an epoch again; returns the seconds in which the memories of training and of scores
    /// are cleared.
    ///
    /// # Errors
    /// The disk has too little space.
    pub(super) fn begin(&mut self) -> Result<[f64; 2]> {
        self.is_known.fill(false);
        self.next = 0;
        let clock = Instant::now();
        self.learner.forget()?;
        let forget = clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        self.evaluation.forget()?;
        Ok([forget, clock.elapsed().as_secs_f64()])
    }

    /// Continues before the event with this number: nodes get messages of their first events.
    ///
    /// # Errors
    /// None in practice: nodes are those of the stream.
    pub(super) fn skip_to(&mut self, event: usize) -> Result<()> {
        if self.learner.memory.is_none() {
            return Ok(());
        }
        let (learned, valid) = (&self.stream.learned, self.stream.parts[1].start);
        let mut first = Vec::new();
        for at in self.next..event {
            let later = || (valid + at - learned.len()) as u32;
            let e = learned.get(at).copied().unwrap_or_else(later);
            if mark(&mut self.is_known, self.stream, e) {
                first.push(e);
            }
        }
        self.next = self.next.max(event);
        for events in first.chunks(self.batch_size) {
            self.learner.push(events)?;
            self.evaluation.push(events)?;
            self.stream.release();
        }
        Ok(())
    }

    /// Trains on a batch and computes the memory for scores after it; returns the seconds of its
    /// draws, reads, products and updates, and of that memory.
    ///
    /// # Errors
    /// As for [`train`](super::train).
    pub(super) fn train(&mut self, (number, events): (usize, &[u32])) -> Result<[f64; 5]> {
        let of = BatchKey { seed: self.config.seed, epoch: 0, batch: number as u64 };
        let Self { stream, scratch, learner, evaluation, .. } = self;
        let (mut seconds, mut clock) = ([0.0; 5], Instant::now());
        let mut lap = |part: usize| {
            seconds[part] = clock.elapsed().as_secs_f64();
            clock = Instant::now();
        };
        training_rows(stream, of, events, &mut scratch.rows)?;
        scratch.sampling.sample(&scratch.rows, of, true, &mut scratch.near)?;
        lap(0);
        scratch.sampling.read(true, &mut scratch.near);
        learner.read(&scratch.rows, &scratch.near)?;
        lap(1);
        let outcome = learner.compute(events, &scratch.rows, &scratch.near);
        lap(2);
        if outcome.loss.is_finite() {
            learner.update(events, self.config.lr)?;
        }
        stream.release();
        lap(3);
        evaluation.advance(&learner.model, events)?;
        lap(4);
        self.pass(events);
        Ok(seconds)
    }

    /// Scores those of a batch of validation that are `chosen` and adds their scores to `out`;
    /// returns the seconds, with those of the memory after the batch.
    ///
    /// # Errors
    /// As for [`Evaluation::score`].
    pub(super) fn score(&mut self, batch: &[u32], chosen: &[u32], out: &mut Vec<f32>) -> Result<f64> {
        let (is_ranked, model, clock) = (self.stream.targets.is_none(), &self.learner.model, Instant::now());
        self.evaluation.score_batch(model, (1, batch), (scored_of(chosen, batch), is_ranked), out)?;
        self.evaluation.advance(model, batch)?;
        let seconds = clock.elapsed().as_secs_f64();
        self.pass(batch);
        Ok(seconds)
    }

    /// Seconds in which the metric is computed from the scores of some validation events.
    pub(super) fn judge(&self, events: Vec<u32>, scores: Vec<f32>) -> f64 {
        let clock = Instant::now();
        let starts = self.evaluation.starts(1, &events);
        let scored = self.evaluation.scored(events, starts, scores);
        std::hint::black_box(scored.score(self.stream, &self.metric));
        clock.elapsed().as_secs_f64()
    }

    /// Bytes of the blocks of the last training batch.
    pub(super) fn block_bytes(&self) -> u64 {
        self.scratch.near.batch.as_ref().map_or(0, |batch| batch.sampled.bytes())
    }

    /// Bytes of the rows and messages of both memories of nodes, if they are in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let of = |table: &Matrix| (size_of::<f32>() * table.num_rows() * table.num_cols()) as u64;
        let memories = self.learner.memory.iter().chain(self.evaluation.memory().map(Arc::as_ref));
        let tables = memories.filter(|memory| !memory.is_in_file()).flat_map(NodeMemory::tables);
        tables.map(of).sum()
    }

    /// Notes that the memory has the events of a batch.
    fn pass(&mut self, events: &[u32]) {
        self.next += events.len();
        events.iter().for_each(|&e| _ = mark(&mut self.is_known, self.stream, e));
    }
}

/// Marks the ends of an event; returns true if one was not known.
fn mark(is_known: &mut [bool], stream: &EventStream, e: u32) -> bool {
    let ends = [stream.events.source(), stream.events.destination()].map(|ends| ends[e as usize] as usize);
    let is_first = ends.iter().any(|&v| !is_known[v]);
    ends.into_iter().for_each(|v| is_known[v] = true);
    is_first
}

/// Events among `chosen`, ascending, that are in a batch.
pub(super) fn scored_of<'c>(chosen: &'c [u32], batch: &[u32]) -> &'c [u32] {
    let [first, last] = [batch.first(), batch.last()].map(|e| e.copied().unwrap_or_default());
    let start = chosen.partition_point(|&e| e < first);
    let end = chosen.partition_point(|&e| e <= last);
    &chosen[start..end.max(start)]
}
