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
use graphmill_loader::Feature;
use graphmill_nn::{backend::Cpu, cost::BlockShape, model::Model};
use rayon::ThreadPool;

use super::common::{Fault, FaultyFeature, FaultyOptimizer, FaultySampler, Kind};

pub(crate) const BATCHES: u64 = 13;
pub(crate) const BATCH: usize = 8;
pub(crate) const EPOCHS: u64 = 2;

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

/// Runs `EPOCHS` epochs with the fault.
fn run(data: &Dataset, config: &TrainConfig, fault: Arc<Fault>) -> Outcome {
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
    let setting = StrategyContext::new(config, data, &sampler, &*order, &feature);
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
            loader: &loader,
            learner: &mut learner,
            lr: &|_| 0.01,
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
        let _ = sender.send(pool.install(|| run(&data, &config, fault)));
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
