//! A training run of a table of embeddings, from its first epoch to its summary: the loop of
//! [`crate::trainer`] for batches of queries.
//!
//! The result of a run is a function of its configuration, its dataset and its position, so a run
//! that is killed and resumed ends with the same bits as an uninterrupted one.

use std::time::Instant;

use graphmill_core::{End, NodeId, memory};
use graphmill_data::typed::TypedDataset;
use graphmill_loader::{
    BatchKey,
    order::{SeedOrder, random::Random},
};
use graphmill_nn::{backend::Cpu, link::table::QueryBatch};

use super::{
    batch::{Batches, ends},
    edges::LinkEdges,
    learner::TableLearner,
    position::TablePosition,
    ranking::Ranking,
};
use crate::{
    Error, Result, RunContext, TrainConfig,
    build::schedule,
    link::LinkMetric,
    observer::{Observer, Progress, Start},
    record::{
        BatchOutcome, Best, EpochRecord, MachineRecord, Origin, Stages, Summary, TestScore, Traffic,
        TypedOrigin, ValidationScore,
    },
    run::Meter,
    strategy::attempt,
    timeline::Stage,
};

/// Metric of a run whose tasks name none.
const DEFAULT_METRIC: &str = "mrr";

/// Trains a table of embeddings on the link tasks of a dataset and evaluates it. Runs on the
/// current rayon pool.
///
/// Writes the same records as [`crate::train`] into [`RunContext::run`]; seeds are edges. The
/// observer gets all events but [`Observer::model`].
///
/// # Errors
/// As for [`crate::train`]; the dataset has no link task, or the decoder does not fit it.
pub fn train(config: &TrainConfig, data: &TypedDataset, context: RunContext) -> Result<Summary> {
    let began = Instant::now();
    let edges = LinkEdges::new(data, &config.task)?;
    let metric = metric(config, &edges)?;
    let learner = TableLearner::new(config, &edges)?;
    let numbers: Vec<NodeId> = (0..edges.parts[0].len() as NodeId).collect();
    context.observer.note(&format!(
        "{} rows and {} relations learn {} edges; {} validate, {} test",
        edges.num_rows(),
        edges.relations.len(),
        edges.parts[0].len(),
        edges.parts[1].len(),
        edges.parts[2].len()
    ));
    let mut trainer = Trainer {
        config,
        edges: &edges,
        batches: Batches::new(config, &edges)?,
        order: Random::new(&numbers, config.seed),
        batch_size: if config.batch_size == 0 { numbers.len() } else { config.batch_size },
        ends: ends(config, &edges),
        metric,
        position: TablePosition::new(
            config,
            edges.record(data),
            learner,
            schedule(config)?,
            context.run,
            began,
        ),
        queries: QueryBatch::default(),
        meter: Meter::new(config.epochs),
        observer: context.observer,
        stop: context.stop,
    };
    let outcome = trainer.run(data, context.resume);
    let ended = trainer.observer.end(outcome.as_ref());
    // the error of the run itself comes first
    let summary = outcome?;
    ended?;
    Ok(summary)
}

/// The metric of the run: that of the configuration, else of the tasks.
pub(super) fn metric(config: &TrainConfig, edges: &LinkEdges) -> Result<LinkMetric> {
    let own = edges.metric.as_deref().filter(|name| LinkMetric::find(name).is_ok_and(|m| !m.is_pooled()));
    let name = match config.metric.as_str() {
        "auto" => own.unwrap_or(DEFAULT_METRIC),
        given => given,
    };
    let metric = LinkMetric::find(name)?;
    if metric.is_pooled() {
        let message = "it compares edges with pairs without an edge, and tables rank all candidates; use \
                       --metric mrr, hits@10, recall@20 or ndcg@20";
        return Err(Error::usage(format!("--metric {name}: {message}")));
    }
    Ok(metric)
}

/// Run in progress.
struct Trainer<'a, 'o> {
    config: &'a TrainConfig,
    edges: &'a LinkEdges,
    batches: Batches<'a>,
    order: Random<'a>,
    batch_size: usize,
    /// Ends that are queries of single edges.
    ends: Vec<End>,
    metric: LinkMetric,
    /// The model and everything else that a checkpoint holds.
    position: TablePosition<'a>,
    /// Queries of a batch; their memory is reused.
    queries: QueryBatch,
    meter: Meter,
    observer: &'o mut dyn Observer,
    /// Returns true once the run is asked to stop.
    stop: &'o (dyn Fn() -> bool + Sync),
}

/// Decision after a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Continue,
    Stop,
}

impl Trainer<'_, '_> {
    /// Trains from the first epoch, or from the checkpoint, to the summary.
    fn run(&mut self, data: &TypedDataset, resume: bool) -> Result<Summary> {
        self.prepare(data, resume)?;
        while !self.position.is_done(self.config.epochs) {
            let flow = self.train()?;
            let record = self.score()?;
            self.record(record, flow)?;
        }
        self.finish()
    }

    /// Continues from the checkpoint if the run resumes, and writes the origin of the run once its
    /// options and dataset are known to be valid.
    fn prepare(&mut self, data: &TypedDataset, resume: bool) -> Result<()> {
        if resume {
            self.position.resume(self.observer)?;
        }
        if let Some(run) = self.position.checkpoints.run() {
            let types = TypedOrigin::new(data, &self.edges.task);
            let origin = Origin::of_types(self.config, &self.position.state.dataset, types)?;
            origin.write(run)?;
            run.write_config(&origin.config(self.config))?;
        }
        let state = &self.position.state;
        self.observer.start(&Start {
            epochs: self.config.epochs,
            batches: self.num_batches(),
            seeds: self.edges.parts[0].len(),
            from: (state.epoch, state.batch),
            metric: self.metric.name(),
            parameters: self.position.learner.model.num_params(),
            earlier: self.position.records.clone(),
            timeline: self.meter.timeline(),
        })
    }

    /// Number of batches of an epoch.
    fn num_batches(&self) -> u64 {
        let all = self.edges.parts[0].len().div_ceil(self.batch_size);
        if self.config.max_batches == 0 { all as u64 } else { all.min(self.config.max_batches) as u64 }
    }

    /// Trains on the batches of the current epoch, from the first or from the checkpoint's.
    fn train(&mut self) -> Result<Flow> {
        let state = &mut self.position.state;
        let epoch = state.epoch as u64;
        self.meter.begin_epoch(epoch, state.sums.seconds);
        let clock = Instant::now();
        let mut order = Vec::new();
        self.order.order(epoch, &mut order);
        state.sums.stages.order += clock.elapsed().as_secs_f64();
        self.meter.span("order", clock);
        let (from, size) = (state.batch, self.batch_size);
        for batch in from..self.num_batches() {
            let seeds = &order[batch as usize * size..order.len().min((batch as usize + 1) * size)];
            let trained = self.train_batch(batch, seeds);
            if trained.is_err() {
                self.position.rescue(self.observer);
            }
            trained?;
            if self.after_batch()? == Flow::Stop {
                self.position.state.sums.seconds = self.meter.end_batches();
                let batches = self.num_batches();
                let is_in_epoch = self.position.state.batch < batches;
                return if is_in_epoch { Err(self.position.interrupted(batches)) } else { Ok(Flow::Stop) };
            }
        }
        self.position.state.sums.seconds = self.meter.end_batches();
        Ok(Flow::Continue)
    }

    /// Draws the negatives of a batch, trains on it, and counts it.
    fn train_batch(&mut self, number: u64, numbers: &[NodeId]) -> Result<()> {
        let (timeline, mut spent) = (self.meter.timeline(), Stages::default());
        let track = timeline.track("main");
        let epoch = self.position.state.epoch as u64;

        let clock = Instant::now();
        let of = BatchKey { seed: self.config.seed, epoch, batch: number };
        let (batches, queries) = (&self.batches, &mut self.queries);
        attempt(Stage::Sample, number, || rayon::scope(|_| batches.fill(of, numbers, queries)))?;
        spent.sample = timeline.done(track, Stage::Sample, number, clock);

        let clock = Instant::now();
        let lr = self.position.schedule.lr(epoch as u32, number as usize, self.num_batches() as usize);
        let (learner, queries) = (&mut self.position.learner, &self.queries);
        let outcome = attempt(Stage::Train, number, || Ok(learner.train(queries, lr, numbers.len())))?;
        spent.train = timeline.done(track, Stage::Train, number, clock);
        self.count(number + 1, outcome, spent)
    }

    /// Adds a batch to the totals of the epoch.
    fn count(&mut self, number: u64, outcome: BatchOutcome, spent: Stages) -> Result<()> {
        let state = &mut self.position.state;
        if !outcome.loss.is_finite() {
            return Err(Error::Diverged { epoch: state.epoch + 1, batch: number, loss: outcome.loss });
        }
        state.sums.add_counts(outcome, Traffic::default(), &spent);
        state.sums.seconds = self.meter.seconds();
        (state.batch, state.step) = (number, self.position.learner.step);
        Ok(())
    }

    /// Reports a batch, and writes a checkpoint if one is due.
    fn after_batch(&mut self) -> Result<Flow> {
        let state = &self.position.state;
        self.meter.sample_memory(state.sums.seconds);
        self.observer.batch(&Progress {
            epoch: state.epoch,
            batches: state.batch,
            seeds: state.sums.seeds,
            loss: state.sums.mean_loss(),
            seconds: self.meter.seconds_here(),
        })?;
        let is_stopping = (self.stop)();
        let every = self.config.checkpoint_batches as u64;
        let is_due = every > 0 && state.batch.is_multiple_of(every)
            || self.position.checkpoints.seconds_since_save() >= self.config.checkpoint_seconds;
        // after the last batch the checkpoint of the epoch follows
        if is_stopping || is_due && state.batch < self.num_batches() {
            let clock = Instant::now();
            self.position.save()?;
            self.meter.span("checkpoint", clock);
        }
        Ok(if is_stopping { Flow::Stop } else { Flow::Continue })
    }

    /// Scores the epoch if it is selected, takes the model if it is the best so far, and makes the
    /// record.
    fn score(&mut self) -> Result<EpochRecord> {
        let clock = Instant::now();
        let (scored, is_best) = self.judge()?;
        if is_best {
            self.position.keep_best(scored.map(|valid| valid.score))?;
        }
        self.meter.span("score", clock);
        let state = &self.position.state;
        let (epoch, batches) = (state.epoch, self.num_batches());
        let lr = self.position.schedule.lr(epoch as u32, batches as usize - 1, batches as usize);
        let seconds = clock.elapsed().as_secs_f64();
        let record = state.sums.record(epoch + 1, scored, lr, seconds, false);
        Ok(self.meter.complete(record))
    }

    /// Score of the current epoch, if `--eval-every` selects it and the score is defined, and
    /// whether the model is the best so far. Without validation edges the newest model is the best.
    fn judge(&mut self) -> Result<(Option<ValidationScore>, bool)> {
        let done = self.position.state.epoch + 1;
        let is_turn = done.is_multiple_of(self.config.eval_every) || done == self.config.epochs;
        let edges = self.edges.parts[1].len();
        if !is_turn || edges == 0 {
            return Ok((None, edges == 0));
        }
        self.observer.evaluate(edges);
        let Some(score) = self.score_of(1) else {
            let best = self.position.state.best;
            return Ok((None, best.is_none_or(|best| best.valid_score.is_none())));
        };
        let is_best = self.position.observe(score, f64::NAN);
        Ok((Some(ValidationScore { score, loss: f64::NAN }), is_best))
    }

    /// Score of the model on a part of the split; `None` if it is not defined.
    fn score_of(&mut self, part: usize) -> Option<f64> {
        let model = &mut self.position.learner.model;
        rayon::scope(|_| {
            model.embeddings(&Cpu::default());
            let ranking = Ranking {
                edges: self.edges,
                decoder: &*model.decoder,
                embeddings: model.last_embeddings(),
                ends: &self.ends,
                max: self.config.eval_nodes,
            };
            let (scores, _) = ranking.scores(part, std::slice::from_ref(&self.metric));
            scores.get(&self.metric.name()).copied()
        })
    }

    /// Records the epoch, advances to the next, and writes a checkpoint if one is due.
    fn record(&mut self, record: EpochRecord, flow: Flow) -> Result<()> {
        let epochs = self.config.epochs;
        self.position.end_epoch(record, self.observer)?;
        let is_due = self.position.checkpoints.is_due_after_epoch();
        if is_due || self.position.is_done(epochs) || flow == Flow::Stop {
            let clock = Instant::now();
            self.position.save()?;
            self.meter.span("checkpoint", clock);
        }
        if flow == Flow::Stop && self.position.state.epoch < epochs {
            return Err(self.position.interrupted(self.num_batches()));
        }
        Ok(())
    }

    /// Scores the best model on the test edges, and writes the summary.
    fn finish(&mut self) -> Result<Summary> {
        self.position.restore_best()?;
        let mut test = TestScore { metric: self.metric.name(), score: None };
        let edges = self.edges.parts[2].len();
        if edges > 0 {
            self.observer.evaluate(edges);
            let clock = Instant::now();
            test.score = self.score_of(2);
            self.meter.span("test", clock);
        }
        let state = &self.position.state;
        let summary = Summary {
            graphmill: env!("CARGO_PKG_VERSION").to_string(),
            dataset: state.dataset.clone(),
            config: self.config.to_json(),
            best: state.best.unwrap_or(Best { epoch: 0, valid_score: None }),
            test,
            machine: Some(MachineRecord::here()),
            peak_rss_bytes: memory::peak().unwrap_or(0),
            seconds: self.position.checkpoints.seconds(),
            epochs: std::mem::take(&mut self.position.records),
            ..Summary::default()
        };
        if let Some(run) = self.position.checkpoints.run() {
            run.write_summary(&summary)?;
        }
        Ok(summary)
    }
}
