//! A training run from its first epoch to its summary. Read this file first.
//!
//! ```text
//!   every epoch:  order ─► strategy { sample ─► extract ─► train } per batch ─► evaluate ─► record, checkpoint
//! ```
//!
//! What a run computes is a function of its configuration, its dataset and the place it has
//! reached ([`Place`]), which is why a run that was killed and resumed ends with the same bits as
//! one that was not: the checkpoint holds the model, the optimiser's state and the place, and nothing
//! else matters.

use std::time::Instant;

use graphmill_graph::{Dataset, Labels, NodeId, table};
use graphmill_loader::{MiniBatch, Workspace};
use graphmill_nn::{
    Matrix,
    backend::Cpu,
    cost::BlockShape,
    metric::{Input, Metric, Truth},
    model::Model,
    schedule::{self, EarlyStop, Patience},
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, RunDir, TrainConfig,
    best::BestModel,
    build,
    checkpoint::{self, Checkpoint},
    evaluate::{Inference, Output},
    learner::{BatchOutcome, Learner},
    observer::{Observer, Progress, Start},
    record::{Best, EpochRecord, Stages, Summary, TestScore},
    stage::Loader,
    strategy::{self, Epoch, Flow},
    sums::{Sums, Valid},
};

/// Least seconds between the checkpoints that are written because an epoch has ended: epochs of milliseconds
/// are repeated faster than they are saved.
const EPOCH_CHECKPOINT_SECONDS: f64 = 1.0;

/// Where a run stands. With the model and the optimiser's state it is all that a checkpoint holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Place {
    /// The epoch in hand, from 0.
    pub epoch: usize,
    /// Batches done in it.
    pub batch: u64,
    /// Updates made in all.
    pub step: u64,
    /// What the epoch in hand has added up so far.
    pub sums: Sums,
    /// The best epoch so far.
    pub best: Option<Best>,
    /// Early stopping's memory.
    pub patience: Patience,
    /// The schedule's memory.
    pub schedule: schedule::State,
    /// Seconds the run has taken.
    pub seconds: f64,
    /// The largest staleness of any embedding used.
    pub staleness: u64,
}

/// What a run is given besides its configuration and dataset.
pub struct Job<'j> {
    /// Where it records itself; nowhere if there is none.
    pub run: Option<&'j RunDir>,
    /// Whether to go on from the checkpoint in there.
    pub resume: bool,
    /// Who watches.
    pub observer: &'j mut dyn Observer,
    /// Asked after every batch: whether to stop.
    pub stop: &'j dyn Fn() -> bool,
}

/// Trains a model and evaluates it. Runs on the current rayon pool.
///
/// # Errors
/// An option that is unknown or impossible, a dataset that cannot be trained on, a loss that is not
/// finite, a run directory that cannot be written, or [`Error::Interrupted`] with a valid checkpoint
/// behind it.
pub fn train(config: &TrainConfig, data: &Dataset, job: Job) -> Result<Summary> {
    let Job { run, resume, observer, stop } = job;
    let clock = Instant::now();
    config.validate()?;
    let metric = build::metric(config, data)?;
    let sampler = build::sampler(config)?;
    let order = build::order(config)?;
    let strategy = table::find("strategy", strategy::TABLE, &config.strategy).map_err(Error::name)?;
    let mut optimizer = build::optimizer(config)?;
    let mut schedule = build::schedule(config)?;
    let mut model = build::model(config, data)?;
    if data.split.train.is_empty() {
        let mend = "it has no training nodes: import it with --split, for example --split random:0.6,0.2,0.2";
        return Err(Error::dataset(&data.name, mend));
    }

    // ------------------------------------------------------------------ what outlives an epoch
    let backend = Cpu;
    let graph = data.graph.to_huge_pages()?;
    let (feature, table) = build::features(data)?;
    let symmetric = build::symmetric(&model, data);
    let batch_size = match config.batch_size {
        0 => data.split.train.len(),
        size => size,
    };
    let mut loader = Loader {
        graph: &graph,
        train: &data.split.train,
        seed: config.seed,
        batch_size,
        order,
        sampler,
        feature: &feature,
        fused: false,
        transposed: 0,
        symmetric,
    };
    let orders = plan(config, &model, &mut loader)?;
    let mut place = Place::default();
    let mut records: Vec<EpochRecord> = Vec::new();
    let mut best_model = BestModel::default();
    if resume && let Some(run) = run {
        match Checkpoint::<Place>::load(&run.checkpoint())? {
            Some(saved) => {
                saved.restore(&mut model, &mut *optimizer)?;
                place = saved.state;
                schedule.set_state(place.schedule);
                records = run.keep_epochs(place.epoch)?;
            }
            None => {
                observer.note("there is no checkpoint yet: starting from the beginning");
                run.keep_epochs(0)?;
            }
        }
    }
    let mut early = EarlyStop::new(u32::try_from(config.patience).unwrap_or(u32::MAX));
    early.state = place.patience;
    let before = place.seconds;
    let parameters = model.num_params();
    let mut learner = Learner::new(&backend, model, optimizer, &data.labels, orders, config);
    learner.table = loader.fused.then(|| table.clone());
    learner.step = place.step;
    let mut strategy = (strategy.make)(graph.num_nodes());
    let symmetric = loader.symmetric.as_ref();
    let mut inference = Inference::new(&graph, &table, symmetric, &backend, config.eval_chunk);
    let batches = loader.num_batches();
    // from here on there is a run: what could be wrong with the options and the dataset has been seen
    if let Some(run) = run {
        run.write_config(config)?;
    }
    observer.start(&Start {
        epochs: config.epochs,
        batches,
        seeds: loader.train.len(),
        from: (place.epoch, place.batch),
        metric: metric.name.to_string(),
        parameters,
    });

    // ------------------------------------------------------------------ the epochs
    let mut order_of_epoch: Vec<NodeId> = Vec::new();
    let mut saved_at = Instant::now();
    let mut logits = Matrix::default();
    while place.epoch < config.epochs && !(config.patience > 0 && early.stops()) {
        let epoch = place.epoch;
        let began = Instant::now();
        let earlier = place.sums.seconds;
        loader.order(epoch as u64, &mut order_of_epoch);
        place.sums.stages.order += began.elapsed().as_secs_f64();

        let rate = schedule;
        let from = place.batch;
        let lr = |batch: u64| rate.lr(epoch as u32, batch as usize, batches as usize);
        let mut after = |learner: &Learner, batch: &MiniBatch, outcome: BatchOutcome, spent: &Stages| {
            place.sums.add(batch, outcome, spent);
            if !outcome.loss.is_finite() {
                return Err(Error::Diverged {
                    epoch: epoch + 1,
                    batch: batch.number + 1,
                    loss: outcome.loss,
                });
            }
            place.batch = batch.number + 1;
            place.step = learner.step;
            observer.batch(&Progress {
                epoch,
                batches: place.batch,
                seeds: place.sums.seeds,
                loss: place.sums.mean_loss(),
            });
            let stopping = stop();
            let many = config.checkpoint_batches as u64;
            let due = (many > 0 && place.batch.is_multiple_of(many))
                || saved_at.elapsed().as_secs_f64() >= config.checkpoint_seconds;
            if let Some(run) = run
                && (stopping || due)
                && (stopping || place.batch < batches)
            {
                place.sums.seconds = earlier + began.elapsed().as_secs_f64();
                place.seconds = before + clock.elapsed().as_secs_f64();
                best_model.save(run)?;
                checkpoint::save(&run.checkpoint(), &learner.model, &*learner.optimizer, &place)?;
                saved_at = Instant::now();
            }
            Ok(if stopping { Flow::Stop } else { Flow::Continue })
        };
        let flow = strategy.run(Epoch {
            number: epoch as u64,
            order: &order_of_epoch,
            from,
            loader: &loader,
            learner: &mut learner,
            lr: &lr,
            after: &mut after,
        })?;
        if flow == Flow::Stop && place.batch < batches {
            return Err(Error::Interrupted { epoch: epoch + 1, batch: place.batch, saved: run.is_some() });
        }
        place.sums.seconds = earlier + began.elapsed().as_secs_f64();

        // -------------------------------------------------------------- scores, records, checkpoint
        let clock_eval = Instant::now();
        let last = epoch + 1 == config.epochs;
        let valid = &data.split.valid;
        let mut scored = None;
        // without validation nodes, or while their score is not defined, the newest model is the best there is
        let mut better = valid.is_empty();
        if !valid.is_empty() && ((epoch + 1).is_multiple_of(config.eval_every) || last) {
            observer.evaluate(valid.len());
            inference.run(&learner.model, valid, Output::Logits, &mut logits);
            if let Some(score) = score(metric.make, &logits, data, valid) {
                let loss = learner.loss(&logits, valid);
                let judged = if config.select == "loss" { -loss } else { score };
                schedule.observe(judged);
                better = early.observe(judged, loss);
                scored = Some(Valid { score, loss });
            } else {
                better = place.best.is_none_or(|best| best.valid_score.is_none());
            }
        }
        if better {
            place.best = Some(Best { epoch: epoch + 1, valid_score: scored.map(|valid| valid.score) });
            best_model.keep(&learner.model);
        }
        let lr_now = lr(batches - 1);
        let record = place.sums.record(epoch + 1, scored, lr_now, clock_eval.elapsed().as_secs_f64());
        observer.epoch(&record);
        place = Place {
            epoch: epoch + 1,
            batch: 0,
            sums: Sums::default(),
            patience: early.state,
            schedule: schedule.state(),
            seconds: before + clock.elapsed().as_secs_f64(),
            ..place
        };
        if let Some(run) = run {
            run.append_epoch(&record)?;
            let ends = last || flow == Flow::Stop || (config.patience > 0 && early.stops());
            let due = saved_at.elapsed().as_secs_f64() >= EPOCH_CHECKPOINT_SECONDS;
            if due || ends {
                best_model.save(run)?;
                checkpoint::save(&run.checkpoint(), &learner.model, &*learner.optimizer, &place)?;
                saved_at = Instant::now();
            }
        }
        records.push(record);
        if flow == Flow::Stop && !last {
            return Err(Error::Interrupted { epoch: epoch + 1, batch: batches, saved: run.is_some() });
        }
    }

    // ------------------------------------------------------------------ the best model's test score
    if let Some(run) = run {
        best_model.save(run)?;
    }
    if place.best.is_some() {
        best_model.restore(run, &mut learner.model)?;
    }
    let test = &data.split.test;
    let mut test_score = None;
    if !test.is_empty() {
        observer.evaluate(test.len());
        inference.run(&learner.model, test, Output::Logits, &mut logits);
        test_score = score(metric.make, &logits, data, test);
    }
    let summary = Summary::new(
        config,
        data,
        records,
        place.best.unwrap_or(Best { epoch: 0, valid_score: None }),
        TestScore { metric: metric.name.to_string(), score: test_score },
        before + clock.elapsed().as_secs_f64(),
    );
    if let Some(run) = run {
        run.write_summary(&summary)?;
    }
    Ok(summary)
}

/// Decides what holds for the whole run from the first batch's sizes: the order of the products, which blocks
/// the backward pass wants transposed, and whether the bottom layer reads the feature table in place.
fn plan(config: &TrainConfig, model: &Model, loader: &mut Loader) -> Result<Vec<graphmill_nn::Order>> {
    let mut batch = MiniBatch::default();
    let mut order = Vec::new();
    loader.order(0, &mut order);
    loader.pick(&order, 0, &mut batch);
    let mut workspace = Workspace::new(loader.graph.num_nodes());
    loader.sample(0, &mut workspace, &mut batch)?;
    let shapes: Vec<BlockShape> = batch.blocks.iter().map(BlockShape::from).collect();
    let orders = model.orders(&shapes);
    let possible = model.can_read_table(&orders);
    if config.fused == "on" && !possible {
        return Err(Error::usage(
            "--fused on: this model's bottom layer transforms the feature rows before it aggregates them, so it cannot \
             read them in place; use --fused auto",
        ));
    }
    loader.fused = possible && config.fused != "off";
    loader.transposed =
        (0..orders.len()).filter(|&l| model.needs_transposed(&orders, l)).fold(0, |bits, l| bits | 1 << l);
    Ok(orders)
}

/// The score of `nodes`' logits.
pub(crate) fn score(metric: Metric, logits: &Matrix, data: &Dataset, nodes: &[NodeId]) -> Option<f64> {
    let truth = match &data.labels {
        Labels::Single { class, .. } => Truth::Single(class),
        Labels::Multi { member, .. } => Truth::Multi(member),
    };
    metric(&Input::new(logits.view().host(), data.labels.classes(), truth).against(nodes))
}

#[cfg(test)]
mod tests {
    use graphmill_graph::{EdgeOptions, Features, Split, build as graph};

    use super::*;
    use crate::{config::Fanout, observer::Quiet};

    #[test]
    fn the_newest_model_is_the_best_while_no_score_is_defined() {
        let data = Dataset {
            name: "four".into(),
            graph: graph(4, &[0, 1, 2], &[1, 2, 3], EdgeOptions::UNDIRECTED).unwrap(),
            features: Features::f32(1, vec![0.0, 1.0, 0.5, 0.25]),
            labels: Labels::Single { class: vec![0, 1, 1, 0].into(), classes: 2 },
            // a single class among the validation nodes: there is no area under the curve
            split: Split { train: vec![0, 1].into(), valid: vec![2].into(), test: vec![3].into() },
            metric: Some("roc-auc".into()),
        };
        let config = TrainConfig { epochs: 3, layers: 1, fanout: Fanout(vec![-1]), ..TrainConfig::default() };
        let job = Job { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        let best = train(&config, &data, job).unwrap().best;
        assert_eq!((best.epoch, best.valid_score), (3, None));
    }
}
