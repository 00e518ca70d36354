//! Costs of a run on a stream of events on this machine, by real steps on some of its batches.
//!
//! # Algorithm
//!
//! The draws, reads, products and updates of a batch are timed one after the other, as a run
//! computes them, on batches in equal distances of the stream, or on all of a short one. Before a
//! batch, the first event of each node so far is pushed to the memory, so that as many nodes have
//! messages as in a run. A round times all these batches, those of the memory for scores, and some
//! of validation. A batch takes the median of a few rounds, and an epoch as many batches as it has.
//!
//! # Source
//!
//! This project's. The parts of a batch are those of Rossi et al., *Temporal graph networks for
//! deep learning on dynamic graphs*, 2020, section 3.2.
//!
//! # Cost
//!
//! O(V H + E) for each round, and about as many batches as two seconds of each part take.
//!
//! # Memory
//!
//! That of a run.

use std::{path::Path, time::Instant};

use graphmill_data::typed::TypedDataset;
use serde::Serialize;

use super::{
    evaluation::batch_size,
    steps::{EventSteps, scored_of},
    stream::EventStream,
    trainer::UNCOUNTED,
};
use crate::{
    Error, Result, TrainConfig, batchwise::BatchLearner, bottom, build::processor,
    checkpoint::tensors::TensorRef, tiers::on_processor, verification::FeatureFiles,
};

/// Factor for the matrices of other batches, which may be larger.
const MARGIN: f64 = 1.1;
/// Batches of training and of validation that are measured in order.
const IN_ORDER: [usize; 2] = [5, 2];
/// Least and largest number of places of the stream at which batches are measured.
const PLACES: [usize; 2] = [2, 8];
/// Seconds of a round that training and validation may take each, if there are many batches.
const OF_ROUND: f64 = 2.0;
/// Least and largest number of rounds, and the seconds after which no other begins.
const ROUNDS: ([usize; 2], f64) = ([3, 7], 3.0);

/// Numbers of a stream and its batches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventSizes {
    /// Name of the task.
    pub task: String,
    /// Nodes of both ends.
    pub nodes: usize,
    /// Training, validation and test events.
    pub events: [usize; 3],
    /// Training events that are learned.
    pub learned: usize,
    /// Validation events that are scored.
    pub scored: usize,
    /// Events of a batch.
    pub batch_size: usize,
    /// Batches of an epoch.
    pub batches: usize,
}

/// Seconds of the parts of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EventSeconds {
    /// Draws of negatives and of the earlier neighbours of each row.
    pub draw: f64,
    /// Reads of the features and times of drawn events, and of the memory and features of nodes.
    pub read: f64,
    /// Forward and backward pass.
    pub compute: f64,
    /// Update of the model and of the memory, which is also cleared once.
    pub update: f64,
    /// Memory after the training events, which a score computes again.
    pub replay: f64,
    /// Scores of the validation events.
    pub score: f64,
}

impl EventSeconds {
    /// Seconds of training.
    pub fn train(&self) -> f64 {
        self.draw + self.read + self.compute + self.update
    }

    /// Seconds of the score of validation.
    pub fn validate(&self) -> f64 {
        self.replay + self.score
    }
}

/// A part of the memory of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryPart {
    /// Name of the part.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
}

/// Costs of a run on a stream.
pub struct EventCosts<'a> {
    config: &'a TrainConfig,
    stream: EventStream,
    batch_size: usize,
    counted: Counted,
}

/// Counts of a few steps.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Bytes of their matrices, parameters and moments, without the memory of nodes.
    step: u64,
    /// Bytes of a checkpoint between epochs, and of the memory of nodes that one within an epoch
    /// also has.
    checkpoint: [u64; 2],
    /// Seconds of a training batch and of one of validation.
    seconds: [f64; 2],
}

impl<'a> EventCosts<'a> {
    /// Opens the stream of a configuration as a run does, and counts the bytes of a few steps. Rows
    /// that exceed `--host-budget` are in files without names in the directory `dir`.
    ///
    /// # Errors
    /// As for [`train`](super::train).
    pub fn new(config: &'a TrainConfig, data: &TypedDataset, dir: &Path) -> Result<Self> {
        bottom::refuse(
            config,
            &format!("--model {} does not use it: it learns a stream of events", config.model),
        )?;
        config.eval_every.refuse_auto(UNCOUNTED)?;
        FeatureFiles::of_types(data).prepare(config)?;
        let stream = EventStream::new(config, data, Some(dir))?;
        let batch_size = batch_size(config, &stream);
        let mut costs = Self { config, stream, batch_size, counted: Counted::default() };
        costs.counted = on_processor(processor(config), |meter| costs.counted_steps(meter.most))?;
        Ok(costs)
    }

    /// Numbers of the stream and its batches.
    pub fn sizes(&self) -> EventSizes {
        let (stream, eval_nodes) = (&self.stream, self.config.eval_nodes);
        let valid = stream.parts[1].len();
        EventSizes {
            task: stream.task.clone(),
            nodes: stream.num_nodes,
            events: stream.parts.clone().map(|part| part.len()),
            learned: stream.learned.len(),
            scored: if eval_nodes == 0 { valid } else { valid.min(eval_nodes) },
            batch_size: self.batch_size,
            batches: self.num_batches(),
        }
    }

    /// Parts of the memory of a run, the largest first; of rows in files those of the budget.
    pub fn memory(&self) -> Vec<MemoryPart> {
        let of = |name: &str, bytes: usize| MemoryPart { name: name.into(), bytes: bytes as u64 };
        let stream = &self.stream;
        let rows = stream.sizes.parts(self.config);
        let mut parts = match &stream.files {
            None => rows.map(|(name, bytes)| of(name, bytes)).to_vec(),
            Some(files) => vec![of("rows within --host-budget", files.budget)],
        };
        let listed = if stream.files.is_some() { 0 } else { self.list_bytes() };
        // a run copies the order of the events for each epoch
        let order = size_of_val(&stream.learned[..]) + stream.is_new.len();
        parts.push(of("order and lists of destinations", listed + order));
        parts.push(of("a step, parameters and optimizer", self.counted.step as usize));
        parts.retain(|part| part.bytes > 0);
        parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        parts
    }

    /// Bytes of the learned events, of destinations, and of the lists that events are ranked
    /// against.
    fn list_bytes(&self) -> usize {
        let stream = &self.stream;
        let known: usize = stream.destinations.iter().map(|nodes| size_of_val(&nodes[..])).sum();
        let lists = stream.given.iter().flatten();
        let given: usize =
            lists.map(|lists| size_of_val(&lists.starts[..]) + size_of_val(&lists.nodes[..])).sum();
        size_of_val(&stream.learned[..]) + known + given
    }

    /// Bytes of the files of rows that exceed `--host-budget`, if there are some.
    pub fn file_bytes(&self) -> Option<u64> {
        let rows = self.stream.sizes.parts(self.config);
        let all = rows.iter().fold(self.list_bytes(), |sum, (_, bytes)| sum.saturating_add(*bytes));
        self.stream.files.as_ref().map(|_| all as u64)
    }

    /// Bytes of the tensors of a checkpoint at the end of an epoch, and within one.
    pub fn checkpoint_bytes(&self) -> [u64; 2] {
        let [between, memory] = self.counted.checkpoint;
        [between, between + memory]
    }

    /// Measures the parts of an epoch on this number of threads.
    ///
    /// # Errors
    /// As for [`train`](super::train); or the system refuses the threads.
    pub fn seconds(&self, threads: usize) -> Result<EventSeconds> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|e| {
            Error::usage(format!("--threads {threads}: the system refuses them: {e}; use fewer"))
        })?;
        pool.install(|| self.measure())
    }

    fn num_batches(&self) -> usize {
        self.stream.learned.len().div_ceil(self.batch_size)
    }

    /// Events of a training batch.
    fn batch(&self, number: usize) -> &[u32] {
        let (learned, from) = (&self.stream.learned, number * self.batch_size);
        &learned[from..learned.len().min(from + self.batch_size)]
    }

    /// Counts the bytes of the steps on the last batches, whose nodes have the most neighbours.
    fn counted_steps(&self, most: &dyn Fn() -> u64) -> Result<Counted> {
        let (mut steps, mut counted) = (self.steps()?, Counted::default());
        let count = self.num_batches();
        let (last, mut blocks) = (count.saturating_sub(2), 0);
        steps.skip_to(last * self.batch_size)?;
        for number in last..count {
            // the first step builds what the others only read
            counted.seconds[0] = steps.train((number, self.batch(number)))?.iter().sum();
            blocks = blocks.max(steps.block_bytes());
        }
        let [valid, chosen] = steps.evaluation.chosen(1);
        // a batch that has chosen events
        let is_scored = |batch: &&[u32]| !scored_of(&chosen, batch).is_empty();
        if let Some(batch) = valid.chunks(self.batch_size).find(is_scored) {
            counted.seconds[1] = steps.score(batch, &chosen, &mut Vec::new())?;
        }
        let matrices = most().saturating_sub(steps.memory_bytes()) + blocks;
        let bytes = |of: &[TensorRef]| of.iter().map(|(_, _, x)| size_of_val(*x) as u64).sum::<u64>();
        let mut checkpoint = [0; 2];
        steps.learner.save(&mut |saved| {
            // the last model and the best one
            checkpoint = [2 * bytes(saved.params) + bytes(saved.moments), bytes(saved.history)];
            Ok(())
        })?;
        Ok(Counted { step: (MARGIN * matrices as f64) as u64, checkpoint, ..counted })
    }

    fn steps(&self) -> Result<EventSteps<'_>> {
        EventSteps::new(self.config, &self.stream, self.batch_size)
    }

    /// Seconds of the parts of an epoch on the current pool.
    fn measure(&self) -> Result<EventSeconds> {
        let (mut steps, count, size) = (self.steps()?, self.num_batches(), self.batch_size);
        let [valid, chosen] = steps.evaluation.chosen(1);
        let valid: Vec<&[u32]> = valid.chunks(size).collect();
        let [of_training, of_valid] = [
            places(count, IN_ORDER[0], self.counted.seconds[0]),
            places(valid.len(), IN_ORDER[1], self.counted.seconds[1]),
        ];
        let (mut training, mut scoring, mut whole) =
            (Rounds::new(of_training.len()), Rounds::new(of_valid.len()), Rounds::new(1));
        let ([least, most], seconds) = ROUNDS;
        let clock = Instant::now();
        for round in 1..=most {
            let [forget, clear] = steps.begin()?;
            for (at, &number) in of_training.iter().enumerate() {
                steps.skip_to(number * size)?;
                training.add(at, steps.train((number, self.batch(number)))?);
            }
            let (mut events, mut scores) = (Vec::new(), Vec::new());
            for (at, &number) in of_valid.iter().enumerate() {
                steps.skip_to(self.stream.learned.len() + number * size)?;
                events.extend_from_slice(scored_of(&chosen, valid[number]));
                scoring.add(at, [steps.score(valid[number], &chosen, &mut scores)?]);
            }
            let share = chosen.len() as f64 / events.len().max(1) as f64;
            whole.add(0, [forget, clear, share * steps.judge(events, scores)]);
            if round >= least && clock.elapsed().as_secs_f64() >= seconds {
                break;
            }
        }
        let [draw, read, compute, update, replay] =
            training.of_all(self.stream.learned.len() as f64 / size as f64, count);
        let [score] = scoring.of_all(self.stream.parts[1].len() as f64 / size as f64, valid.len());
        let [forget, clear, judge] = whole.of_all(1.0, 1);
        let all = EventSeconds {
            draw,
            read,
            compute,
            update: update + forget,
            replay: replay + clear,
            score: score + judge,
        };
        Ok(if valid.is_empty() { EventSeconds { replay: 0.0, score: 0.0, ..all } } else { all })
    }
}

/// Numbers of the batches that are measured, ascending: all `count` if they are few, else some in
/// order at places in equal distances, as many as [`OF_ROUND`] allows if one takes `seconds`.
fn places(count: usize, in_order: usize, seconds: f64) -> Vec<usize> {
    let most = (OF_ROUND / (in_order as f64 * seconds.max(1e-9))) as usize;
    let places = most.clamp(PLACES[0], PLACES[1]);
    if count <= places * in_order {
        return (0..count).collect();
    }
    let first = |place: usize| (2 * place + 1) * count / (2 * places) - in_order / 2;
    (0..places).flat_map(|place| (0..in_order).map(move |i| first(place).min(count - in_order) + i)).collect()
}

/// Seconds of `N` parts of some batches, in each round.
struct Rounds<const N: usize>(Vec<[Vec<f64>; N]>);

impl<const N: usize> Rounds<N> {
    fn new(batches: usize) -> Self {
        Self((0..batches).map(|_| std::array::from_fn(|_| Vec::new())).collect())
    }

    fn add(&mut self, at: usize, seconds: [f64; N]) {
        self.0[at].iter_mut().zip(seconds).for_each(|(of, seconds)| of.push(seconds));
    }

    /// Seconds of all `count` batches, which are as long as `full` whole ones: the sum of the
    /// medians of all of them, or the mean of some for each.
    fn of_all(mut self, full: f64, count: usize) -> [f64; N] {
        let (measured, mut sums) = (self.0.len(), [0.0; N]);
        for of_batch in &mut self.0 {
            sums.iter_mut().zip(of_batch).for_each(|(sum, of)| *sum += median(of));
        }
        let share = if measured == count { 1.0 } else { full / measured.max(1) as f64 };
        sums.map(|sum| share * sum)
    }
}

/// Median of some numbers, the lower one of two; 0 of none.
fn median(of: &mut [f64]) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_measured_in_equal_distances_unless_they_are_few() {
        assert_eq!(places(7, 5, 0.01), (0..7).collect::<Vec<_>>());
        assert_eq!(places(0, 5, 0.01), Vec::<usize>::new());
        let found = places(1000, 5, 0.01);
        assert_eq!((found.len(), &found[..6]), (40, &[60, 61, 62, 63, 64, 185][..]));
        assert!(found.is_sorted() && found.last().is_some_and(|&last| last < 1000));
        // slow batches are fewer
        assert_eq!(places(1000, 5, 9.0).len(), 10);
        for count in 0..200 {
            let found = places(count, 5, 0.01);
            assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{count}: {found:?}");
            assert!(found.iter().all(|&number| number < count), "{count}: {found:?}");
        }
    }

    #[test]
    fn an_epoch_is_the_sum_of_its_batches_or_their_mean_for_each() {
        let mut all = Rounds::new(2);
        for (at, seconds) in [(0, 1.0), (0, 9.0), (0, 2.0), (1, 3.0)] {
            all.add(at, [seconds, 1.0]);
        }
        assert_eq!(all.of_all(1.5, 2), [5.0, 2.0]);
        let mut some = Rounds::new(2);
        some.add(0, [1.0]);
        some.add(1, [3.0]);
        // 9 whole batches and a half
        assert_eq!(some.of_all(9.5, 10), [19.0]);
        assert_eq!(Rounds::<1>::new(0).of_all(0.0, 0), [0.0]);
    }
}
