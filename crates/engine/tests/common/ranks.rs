//! Ranks that are threads of a test.

use std::{path::Path, sync::Arc, time::Duration};

use graphmill_core::{keyed, progress};
use graphmill_data::{
    Dataset,
    generate::{GenerateOptions, generate},
    partition::{Description, PartitionBook, PartitionDir, write},
};
use graphmill_distributed::{Messenger, MessengerOptions, local, transport::local::Local};
use graphmill_engine::{
    RunContext, TrainConfig, config::Fanout, observer::Quiet, record::Summary, train, trainer::over_ranks,
};
use graphmill_loader::order::proximity::searches;

pub(crate) const PARTS: u16 = 4;

pub(crate) fn data() -> Dataset {
    let options =
        GenerateOptions { nodes: 900, degree: Some(9.0), classes: 4, dim: 12, ..GenerateOptions::default() };
    generate("sbm", &options).unwrap()
}

/// Partition of the dataset, by a hash of the nodes.
pub(crate) fn partitioned(data: &Dataset, dir: &Path) -> PartitionDir {
    let of = (0..data.num_nodes() as u64).map(|v| (keyed::key(&[v]) % u64::from(PARTS)) as u16).collect();
    partitioned_by(data, of, dir)
}

/// Partition of the dataset, by these parts of the nodes.
pub(crate) fn partitioned_by(data: &Dataset, of: Vec<u16>, dir: &Path) -> PartitionDir {
    let book = PartitionBook::new(PARTS, of).unwrap();
    let searches = searches(&data.graph, &data.split.train, 0, &progress::Quiet).unwrap();
    let what = Description { method: "hash", searches: &searches, ..Description::default() };
    write(data, &book, &what, dir, &progress::Quiet).unwrap()
}

pub(crate) fn config() -> TrainConfig {
    TrainConfig {
        hidden: 16,
        layers: 2,
        fanout: Fanout(vec![5, 4]),
        batch_size: 100,
        epochs: 3,
        lr: 0.01,
        dropout: 0.0,
        fused: "off".parse().unwrap(),
        ..TrainConfig::default()
    }
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Runs ranks as threads, each with its own pool.
pub(crate) fn on_ranks<T: Send>(
    size: usize,
    patience: Duration,
    run: impl Fn(usize, Arc<Messenger>) -> T + Sync,
) -> Vec<T> {
    let run = &run;
    std::thread::scope(|scope| {
        let start = |(rank, end): (usize, Local)| {
            scope.spawn(move || {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
                let options = MessengerOptions { patience, ..MessengerOptions::default() };
                let post = Messenger::start(options, move || Ok(end)).unwrap();
                pool.install(|| run(rank, post))
            })
        };
        let ranks: Vec<_> = local(size).into_iter().enumerate().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Summaries of all ranks.
pub(crate) fn over_ranks(config: &TrainConfig, dir: &PartitionDir, size: usize) -> Vec<Summary> {
    let one = |_, post| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        over_ranks::train(config, dir, post, context).unwrap()
    };
    on_ranks(size, PATIENCE, one)
}

pub(crate) fn alone(config: &TrainConfig, data: &Dataset) -> Summary {
    train(config, data, RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false })
        .unwrap()
}

pub(crate) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 2e-4 * (1.0 + b.abs())
}

pub(crate) fn assert_alike(one: &Summary, many: &[Summary], what: &str) {
    for summary in many {
        assert_eq!(one.epochs.len(), summary.epochs.len());
        for (a, b) in one.epochs.iter().zip(&summary.epochs) {
            assert!(close(b.loss, a.loss), "{what}: loss {} and {}", b.loss, a.loss);
            let (x, y) = (a.valid_loss.unwrap(), b.valid_loss.unwrap());
            assert!(close(y, x), "{what}: validation loss {y} and {x}");
            assert_eq!((a.seeds, a.epoch), (b.seeds, b.epoch));
        }
        let bits = |s: &Summary| s.epochs.iter().map(|e| e.loss.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(summary), bits(&many[0]), "{what}: ranks report different losses");
        assert!((summary.test.score.unwrap() - one.test.score.unwrap()).abs() < 0.02, "{what}");
    }
}
