//! Whole epochs through the trainer after a warm-up epoch: seconds of the epoch and of each stage.
//! `unaccounted` are the seconds outside of stages, for bookkeeping between batches. The run
//! neither evaluates nor saves.
//!
//! Limit: the cost model of [`cost`](super::cost), for the models that it covers.

use graphmill_core::NodeId;
use graphmill_loader::{BatchKey, Seeds, Workspace, sampler::BatchRequest};
use graphmill_nn::cost::BlockShape;

use super::{
    cost::{Rates, Seconds, Size, predict},
    measure::{Bench, Limit},
    time::Times,
};
use crate::{
    Error, Result, RunContext, TrainConfig, build,
    config::Bottom,
    observer::Quiet,
    options,
    record::{EpochRecord, Stages},
    stage::draw_error,
};

/// Number of batches whose sizes are averaged for the cost model.
const BATCHES: usize = 8;

/// Options of a run that the bench reads: all except those of evaluation, limits and files.
pub(super) fn options() -> Vec<&'static str> {
    let not = [
        "start_from",
        "metric",
        "verify",
        "max_batches",
        "epochs",
        "select_by",
        "patience",
        "eval_every",
        "eval_nodes",
        "eval_chunk",
        "shuffle_parts",
        "graph_stores",
        "peer_timeout",
        "checkpoint_batches",
        "checkpoint_seconds",
        "trace",
        "tensorboard",
    ];
    options::names().into_iter().filter(|name| !not.contains(name)).collect()
}

/// Measures all cases.
pub(super) fn run(bench: &mut Bench) -> Result<()> {
    if let Some(dim) = bench.options.dim.filter(|&dim| dim != bench.data.features.dim) {
        let (name, own) = (&bench.data.name, bench.data.features.dim);
        return Err(Error::usage(format!(
            "--dim {dim}: the features of {name} have a width of {own}; leave it out"
        )));
    }
    let config = TrainConfig { epochs: bench.options.repeat + 1, patience: 0, ..bench.options.train.clone() };
    let predicted = predicted(bench, &config)?;
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    let summary = crate::train(&config, bench.data, context)?;
    let epochs = &summary.epochs[1..];

    let batches = bench.data.split.train.len() as f64 / bench.seeds() as f64;
    let of = |stage: fn(&Seconds) -> f64| {
        predicted.map(|seconds| Limit { value: batches * stage(&seconds), of: "cost model", row: None })
    };
    let times =
        |value: &dyn Fn(&EpochRecord) -> f64| Times::new(epochs.iter().map(value).collect::<Vec<f64>>());
    let sum = |stages: &Stages| stages.parts().iter().map(|(_, seconds)| seconds).sum::<f64>();
    let name = format!("{} {} hidden {}", config.model, config.fanout, config.hidden);
    let mut case = |what: &str, value: &dyn Fn(&EpochRecord) -> f64, limit| {
        bench.duration(format!("{name}: {what}"), "s", &times(value), limit);
    };
    case("epoch", &|epoch| epoch.seconds, of(Seconds::sum));
    case("order", &|epoch| epoch.stages.order, None);
    case("sample", &|epoch| epoch.stages.sample, of(|seconds| seconds.sample));
    case("extract", &|epoch| epoch.stages.extract, of(|seconds| seconds.extract));
    case("train", &|epoch| epoch.stages.train, of(|seconds| seconds.train));
    case("all stages", &|epoch| sum(&epoch.stages), None);
    case("unaccounted", &|epoch| epoch.seconds - sum(&epoch.stages), None);
    let limit = of(Seconds::sum).map(|limit| Limit { value: limit.value / batches, ..limit });
    let per_batch = times(&|epoch: &EpochRecord| epoch.seconds / batches);
    bench.duration(format!("{name}: a batch"), "ms", &per_batch, limit);
    Ok(())
}

/// Prediction of the cost model for a batch, from the mean sizes of the first few.
fn predicted(bench: &mut Bench, config: &TrainConfig) -> Result<Option<Seconds>> {
    if config.bottom != Bottom::Sampled {
        return Ok(None); // the model's bottom hop is sampled
    }
    let data = bench.data;
    let model = build::model(config, data)?;
    let sampler = build::sampler(config, data)?;
    if sampler.properties().subgraphs.is_some() {
        return Ok(None); // one block for all layers
    }
    let mut order: Vec<NodeId> = Vec::new();
    build::order(config, bench.data)?.order(0, &mut order);
    let mut workspace = Workspace::new(data.num_nodes());
    let mut memory = Seeds::default();
    let mut sizes = vec![Size::default(); model.num_layers()];
    let mut orders = Vec::new();
    let size = bench.seeds();
    // a shorter last batch is ignored, unless it is the only one
    let batches = (order.len() / size).clamp(1, BATCHES);
    for (number, seeds) in (0..).zip(order.chunks(size).take(batches)) {
        let key = BatchKey { seed: config.seed, epoch: 0, batch: number };
        let seeds = memory.refill(number, seeds.iter().copied());
        let drawn = sampler.sample(&BatchRequest::new(&data.graph, key), &mut workspace, seeds);
        let batch = drawn.map_err(draw_error)?;
        if number == 0 {
            orders = model.orders(&batch.blocks.iter().map(BlockShape::from).collect::<Vec<_>>());
        }
        sizes.iter_mut().zip(&batch.blocks).for_each(|(size, block)| size.add(block, batches));
        memory = batch.recycle();
    }
    let rates = Rates {
        reads: bench.machine.random_reads(data.graph.num_edges()),
        copy: 1e9 * bench.machine.copy()?,
        rows: 1e9 * bench.machine.random_rows(data.features.dim),
        peak: 1e9 * bench.machine.peak(),
    };
    Ok(predict(config, &model, &orders, &sizes, rates))
}
