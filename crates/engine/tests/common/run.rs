//! Direct runs of a strategy with stages that fail or are slow.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    time::Duration,
};

use graphmill_core::keyed;
use graphmill_data::{
    Dataset,
    generate::{GenerateOptions, generate},
};
use graphmill_engine::{
    Error, TrainConfig, build,
    learner::Learner,
    memory::MemoryPlacement,
    stage::{Loader, RowAccess},
    strategy::{Chosen, CompletedBatch, Epoch, Flow, StrategyContext},
    timeline::Timeline,
};
use graphmill_loader::{Feature, MiniBatch, Workspace};
use graphmill_nn::{Param, backend::Cpu, cost::BlockShape, model::Model};
use rayon::ThreadPool;

use super::common::{Fault, FaultyFeature, FaultyOptimizer, FaultySampler, Kind};

pub(crate) const BATCHES: u64 = 13;
pub(crate) const BATCH: usize = 8;
pub(crate) const EPOCHS: u64 = 2;
/// Learning rate of all updates.
const LR: f64 = 0.01;

/// Time limit of a run, even on a busy machine.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Graph with `BATCHES` batches of training nodes.
pub(crate) fn data() -> Dataset {
    let options =
        GenerateOptions { nodes: 1200, degree: Some(6.0), classes: 3, dim: 6, ..GenerateOptions::default() };
    let mut data = generate("sbm", &options).unwrap();
    data.split.train = data.split.train[..BATCHES as usize * BATCH - 3].to_vec().into();
    data
}

/// Hash of the bits of all parameters.
fn bits(model: &Model) -> u64 {
    let mut key = 0;
    model.visit(&mut |_, param| {
        for x in param.value.view().host() {
            key = keyed::key(&[key, x.to_bits().into()]);
        }
    });
    key
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The error, or the message of a panic.
    pub(crate) end: Result<(), Result<Error, String>>,
    /// Recorded batches, numbered over all epochs.
    pub(crate) recorded: Vec<u64>,
    /// Hash of the model after each update.
    pub(crate) updates: Vec<u64>,
    /// Hash of the final model.
    pub(crate) bits: u64,
    pub(crate) is_whole: bool,
    pub(crate) finite: bool,
    pub(crate) staleness: u64,
}

/// Calls `work` with stages that have the fault.
fn with_stages<R>(
    data: &Dataset,
    config: &TrainConfig,
    fault: &Arc<Fault>,
    work: impl for<'a> FnOnce(&Loader<'a>, &mut Learner<'a>, StrategyContext<'a>) -> R,
) -> R {
    let model = build::model(config, data).unwrap();
    let (feature, _) = build::features(config, data, MemoryPlacement::Mapped).unwrap();
    let orders = model
        .orders(&[BlockShape { dst: 20, src: 60, edges: 60 }, BlockShape { dst: 8, src: 20, edges: 20 }]);
    let sampler = FaultySampler { inner: build::sampler(config, data).unwrap(), fault: fault.clone() };
    let feature: Arc<dyn Feature> =
        Arc::new(FaultyFeature { inner: Arc::new(feature), fault: fault.clone() });
    let order = build::order(config, data).unwrap();
    let loader = Loader {
        graph: &data.graph,
        train: &data.split.train,
        links: None,
        seed: config.seed,
        batch_size: config.batch_size,
        max_batches: 0,
        order: &*order,
        sampler: &sampler,
        feature: &*feature,
        rows: RowAccess::Gathered,
        transposed: !0,
        symmetric: build::symmetric(&model, data),
        aggregation: model.aggregation(),
        own: None,
        labels: None,
        ahead: None,
    };
    assert_eq!(loader.num_batches(), BATCHES);
    let inner = build::optimizer(config).unwrap();
    let optimizer = Box::new(FaultyOptimizer { inner, fault: fault.clone() });
    let backend = Cpu::default();
    let mut learner = Learner::new(&backend, model, optimizer, &data.labels, orders, config);
    work(&loader, &mut learner, StrategyContext::new(config, data, &sampler, &*order, &feature))
}

/// Runs `EPOCHS` epochs with the fault.
fn run(data: &Dataset, config: &TrainConfig, fault: &Arc<Fault>) -> Outcome {
    with_stages(data, config, fault, |loader, learner, setting| {
        run_epochs(config, fault, (loader, learner), setting)
    })
}

/// Hash of the model after each update of `EPOCHS` epochs, in which the gradient of batch `k` of an
/// epoch is that of the parameters after `k - staleness` of its updates: one batch after the other,
/// without a strategy.
pub(crate) fn stale_updates(data: &Dataset, config: &TrainConfig, staleness: u64) -> Vec<u64> {
    let fault = Arc::new(Fault::new(Kind::None, 0, 0, BATCHES, 1));
    with_stages(data, config, &fault, |loader, learner, _| {
        let (mut updates, mut seeds) = (Vec::new(), Vec::new());
        let mut space = Workspace::new(data.num_nodes());
        for epoch in 0..EPOCHS {
            loader.order(epoch, &mut seeds);
            let mut versions = vec![learner.model.clone()];
            for number in 0..BATCHES {
                let drawn = loader.draw(&seeds, epoch, number, &mut space, MiniBatch::default()).unwrap();
                let batch = loader.extract(drawn).unwrap();
                let mut stale = versions[number.saturating_sub(staleness) as usize].clone();
                let loss = learner.context.gradient(&mut stale, batch.batch(), epoch * BATCHES + number);
                let (mut params, mut index) = (Vec::new(), 0);
                stale.visit(&mut |_, param| params.push(param.clone()));
                learner.model.visit_mut(&mut |_, param| {
                    let of: &Param = &params[index];
                    let values = if param.trainable { &mut param.grad } else { &mut param.value };
                    *values = if of.trainable { of.grad.clone() } else { of.value.clone() };
                    index += 1;
                });
                learner.update(loss, LR);
                versions.push(learner.model.clone());
                updates.push(bits(&learner.model));
            }
        }
        updates
    })
}

/// Runs `EPOCHS` epochs of the strategy that the options name.
fn run_epochs<'a>(
    config: &TrainConfig,
    fault: &Fault,
    (loader, learner): (&Loader<'a>, &mut Learner<'a>),
    setting: StrategyContext<'a>,
) -> Outcome {
    let mut strategy = Chosen::find(config).unwrap().make(setting).unwrap();
    let timeline = Timeline::begin();
    timeline.keep_slices();
    let (mut recorded, mut updates, mut seeds) = (Vec::new(), Vec::new(), Vec::new());
    let mut end = Ok(());
    for number in 0..EPOCHS {
        loader.order(number, &mut seeds);
        timeline.begin_epoch(number);
        let mut after = |learner: &Learner, done: &[CompletedBatch]| {
            for done in done {
                let strikes = number == fault.epoch && done.batch.seeds.number == fault.batch;
                if !done.outcome.loss.is_finite() || (strikes && fault.kind == Kind::RecordError) {
                    return Err(Error::usage(fault.message()));
                }
                assert!(!(strikes && fault.kind == Kind::RecordPanic), "{}", fault.message());
                recorded.push(number * BATCHES + done.batch.seeds.number);
            }
            updates.push(bits(&learner.model));
            Ok(Flow::Continue)
        };
        let epoch = Epoch {
            number,
            order: &seeds,
            from: 0,
            to: BATCHES,
            loader,
            learner: &mut *learner,
            lr: &|_| LR,
            after: &mut after,
            timeline: &timeline,
        };
        match catch_unwind(AssertUnwindSafe(|| strategy.run(epoch))) {
            Ok(Ok(flow)) => assert_eq!(flow, Flow::Continue),
            Ok(Err(error)) => end = Err(Ok(error)),
            Err(panic) => end = Err(Err(panic.downcast_ref::<String>().cloned().unwrap_or_default())),
        }
        if end.is_err() {
            break;
        }
    }
    let mut finite = true;
    learner.model.visit(&mut |_, param| finite &= param.value.view().host().iter().all(|x| x.is_finite()));
    let (is_whole, staleness) = (learner.is_whole, learner.staleness);
    Outcome { end, recorded, updates, bits: bits(&learner.model), is_whole, finite, staleness }
}

/// Runs `EPOCHS` epochs on the threads of `pool`; panics after [`TIME_LIMIT`].
pub(crate) fn watched(
    data: &Arc<Dataset>,
    pool: &Arc<ThreadPool>,
    config: &TrainConfig,
    fault: Arc<Fault>,
    what: &str,
) -> Outcome {
    let (data, pool, config) = (data.clone(), pool.clone(), config.clone());
    let (sender, receiver) = mpsc::channel();
    let runner = std::thread::spawn(move || {
        let _ = sender.send(pool.install(|| run(&data, &config, &fault)));
    });
    let outcome = receiver.recv_timeout(TIME_LIMIT);
    assert!(
        !matches!(outcome, Err(mpsc::RecvTimeoutError::Timeout)),
        "{what}: the run has not ended after {TIME_LIMIT:?}"
    );
    let ended = runner.join();
    assert!(ended.is_ok(), "{what}: {:?}", ended.unwrap_err().downcast_ref::<String>());
    outcome.unwrap()
}
