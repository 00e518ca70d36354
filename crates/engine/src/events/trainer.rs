//! A training run on a stream of events, by the loop of [`crate::batchwise`], with batches in the
//! order of their times.

use std::{ops::Range, time::Instant};

use graphmill_core::NodeId;
use graphmill_data::typed::TypedDataset;
use graphmill_loader::BatchKey;
use graphmill_nn::metric::{classes::ClassReport, diagnostics::Diagnostics};

use super::{
    evaluation::{Evaluation, batch_size, training_sample},
    learner::{BatchScratch, EventLearner, training_rows},
    scored::{EventMetric, ScoredPart, metric},
    stream::EventStream,
};
use crate::{
    Result, RunContext, TrainConfig,
    batchwise::{self, BatchRun, Completed, Part, Scored, Session},
    bottom,
    config::{SelectBy, Work},
    record::{DatasetRecord, EpochTotals, Stages, Summary, Traffic},
    run::notices::emulated,
    strategy::{Flow, attempt},
    timeline::Stage,
    verification::FeatureFiles,
};

/// Reason for which `--eval-every auto` is refused.
pub(super) const UNCOUNTED: &str = "a score of events also passes over the memory of nodes and the \
                         histories of pairs, whose work is not counted in rows and edges";

/// Trains a model of events on a task on edges with times, and evaluates it. Runs on the current
/// rayon pool.
///
/// Writes the same records as [`crate::train`] into [`RunContext::run`]; seeds are events. The
/// observer gets all events but [`Observer::model`](crate::observer::Observer::model).
///
/// # Errors
/// As for [`crate::train`]; the dataset has no such task, or it is not split by time.
pub fn train(config: &TrainConfig, data: &TypedDataset, context: RunContext) -> Result<Summary> {
    let began = Instant::now();
    bottom::refuse(
        config,
        &format!("--model {} does not use it: it learns a stream of events", config.model),
    )?;
    config.eval_every.refuse_auto(UNCOUNTED)?;
    let unverified = FeatureFiles::of_types(data).prepare(config)?;
    unverified.iter().for_each(|note| context.observer.note(note));
    let stream = EventStream::new(config, data, Some(&context.directory()))?;
    let metric = metric(config, &stream)?;
    let learner = EventLearner::new(config, &stream)?;
    context.observer.note(match (&stream.files, &learner.memory) {
        (None, _) => "features of nodes and events: the host holds all; batches in the order of time",
        (_, None) => "neighbours and features: in files; batches in the order of time",
        (_, Some(_)) => "memory, neighbours and features: in files; batches in the order of time",
    });
    stream.notes.iter().for_each(|note| context.observer.note(note));
    emulated(config).into_iter().for_each(|note| context.observer.note(note));
    context.observer.note(&format!(
        "{} nodes, {} events learn; {} validate, {} test",
        stream.num_nodes,
        stream.learned.len(),
        stream.parts[1].len(),
        stream.parts[2].len()
    ));
    let run = EventRun {
        config,
        data,
        stream: &stream,
        batch_size: batch_size(config, &stream),
        metric,
        evaluation: Evaluation::new(config, &stream, &learner.model)?,
        scratch: BatchScratch::new(config, &stream)?,
        last: None,
    };
    batchwise::train(config, run, learner, context, began).map(|(summary, _)| summary)
}

/// A run on a stream of events.
struct EventRun<'a> {
    config: &'a TrainConfig,
    data: &'a TypedDataset,
    stream: &'a EventStream,
    batch_size: usize,
    metric: EventMetric,
    evaluation: Evaluation<'a>,
    scratch: BatchScratch<'a>,
    /// The part that was scored last, of classes or values.
    last: Option<ScoredPart>,
}

impl<'a> BatchRun for EventRun<'a> {
    type Learner = EventLearner<'a>;

    fn data(&self) -> &TypedDataset {
        self.data
    }

    fn dataset(&self) -> DatasetRecord {
        self.stream.record(self.data)
    }

    fn task(&self) -> &str {
        &self.stream.task
    }

    fn num_seeds(&self) -> usize {
        self.stream.learned.len()
    }

    fn num_batches(&self) -> u64 {
        self.num_seeds().div_ceil(self.batch_size) as u64
    }

    fn metric(&self) -> String {
        self.metric.name()
    }

    /// Events are always in the order of their times.
    fn order(&self, _epoch: u64, order: &mut Vec<NodeId>) {
        order.clear();
        order.extend_from_slice(&self.stream.learned);
    }

    fn train(
        &mut self,
        session: &mut Session<EventLearner<'a>>,
        order: &[NodeId],
        batches: Range<u64>,
    ) -> Result<Flow> {
        let (timeline, epoch) = (session.meter().timeline(), session.epoch());
        let track = timeline.track("main");
        let (mut trained, mut flow) = (batches.start, Flow::Continue);
        for number in batches.clone() {
            let mut spent = Stages::default();
            let from = number as usize * self.batch_size;
            let events = &order[from..order.len().min(from + self.batch_size)];

            let clock = Instant::now();
            let of = BatchKey { seed: self.config.seed, epoch, batch: number };
            let (stream, scratch) = (self.stream, &mut self.scratch);
            attempt(Stage::Sample, number, || {
                training_rows(stream, of, events, &mut scratch.rows)?;
                scratch.draw(of, true)
            })?;
            spent.sample = timeline.done(track, Stage::Sample, number, clock);

            let clock = Instant::now();
            let (lr, learner, scratch) = (session.lr(number), session.learner(), &self.scratch);
            let train = || learner.train(events, &scratch.rows, &scratch.near, lr);
            let outcome = attempt(Stage::Train, number, train)?;
            stream.release();
            spent.train = timeline.done(track, Stage::Train, number, clock);

            let done = Completed { number, outcome, traffic: Traffic::default(), spent };
            (trained, flow) = (number + 1, session.complete(done, |_, _| {})?);
            if flow == Flow::Stop {
                break;
            }
        }
        if trained == batches.end {
            session.learner().forget()?;
        }
        Ok(flow)
    }

    fn num_scored(&self, part: Part) -> usize {
        match part {
            Part::Train => training_sample(self.stream).len(),
            Part::Valid | Part::Test => self.stream.parts[1 + part as usize].len(),
        }
    }

    fn score(&mut self, learner: &mut EventLearner<'a>, part: Part) -> Result<Option<Scored>> {
        let (evaluation, model, stream) = (&mut self.evaluation, &learner.model, self.stream);
        let scored = rayon::scope(|_| {
            if part == Part::Train {
                return evaluation.score_training(model);
            }
            let part = 1 + part as usize;
            evaluation.begin(model)?;
            (1..part).try_for_each(|earlier| evaluation.skip(model, stream.parts[earlier].clone()))?;
            evaluation.score(model, part)
        })?;
        self.evaluation.release();
        let (score, loss) = (scored.score(stream, &self.metric), scored.loss);
        stream.release();
        self.last = Some(scored);
        Ok(score.map(|score| {
            let judged = match self.config.select_by {
                SelectBy::Loss => -loss,
                SelectBy::Score if self.metric.is_error() => -score,
                SelectBy::Score => score,
            };
            Scored { score, loss, judged }
        }))
    }

    fn work(&self, _: &EventLearner<'a>, _: &EpochTotals) -> Result<[Work; 2]> {
        self.config.eval_every.refuse_auto(UNCOUNTED)?;
        Ok(Default::default())
    }

    fn by_class(&self) -> Option<ClassReport> {
        self.last.as_ref()?.by_class(self.stream)
    }

    fn diagnosed(&self) -> &'static [&'static str] {
        self.stream.targets.as_ref().map_or(&[], |targets| targets.diagnosed())
    }

    fn diagnostics(&self, part: &str) -> Option<Diagnostics> {
        self.last.as_ref()?.diagnostics(self.stream, part)
    }
}
