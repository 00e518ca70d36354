//! Several ranks on several types give the losses of one process and the same bits on all ranks,
//! whatever their threads, and stop and resume together.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use graphmill_core::{keyed, progress};
use graphmill_data::{
    TypedDataset,
    generate::{GenerateOptions, generate_typed},
    partition::{Description, PartitionBook, TypedPartitionDir, write_types},
    typed::{Targets, Task},
};
use graphmill_distributed::Messenger;
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    observer::{Observer, Progress, Quiet},
    record::Summary,
    typed::{self, train_over_ranks},
};
use graphmill_loader::Fanout;

use crate::ranks::{PATIENCE, assert_alike, close, on_ranks};
use crate::set::with;

const PARTS: u16 = 4;

/// A dataset whose `topic` nodes have learned rows.
fn data() -> TypedDataset {
    let options = GenerateOptions {
        nodes: 700,
        classes: 4,
        dim: 6,
        p_in: 0.9,
        signal: 1.0,
        ..GenerateOptions::default()
    };
    generate_typed("typed", &options).unwrap()
}

/// Partition of the dataset, by a hash of the global ids.
fn partitioned(data: &TypedDataset, dir: &Path) -> TypedPartitionDir {
    let part = |v: u64| (keyed::key(&[v]) % u64::from(PARTS)) as u16;
    let book = PartitionBook::new(PARTS, (0..data.num_nodes() as u64).map(part).collect::<Vec<_>>());
    let what = Description { method: "hash", ..Description::default() };
    write_types(data, &book.unwrap(), &what, dir, &progress::Quiet).unwrap()
}

fn config(options: &str) -> TrainConfig {
    let config = TrainConfig {
        model: "rsage".into(),
        hidden: 8,
        fanout: Fanout(vec![4, 3]),
        batch_size: 60,
        epochs: 3,
        lr: 0.01,
        dropout: 0.0,
        ..TrainConfig::default()
    };
    let mut config = with(config, options);
    config.derive_options(&["model", "fanout", "layers"]).unwrap();
    config
}

fn alone(config: &TrainConfig, data: &TypedDataset) -> Summary {
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    typed::train(config, data, context).unwrap()
}

fn run(config: &TrainConfig, dir: &TypedPartitionDir, post: Arc<Messenger>) -> Result<Summary> {
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    train_over_ranks(config, dir, post, context)
}

fn over_ranks(config: &TrainConfig, dir: &TypedPartitionDir, size: usize) -> Vec<Summary> {
    on_ranks(size, PATIENCE, |_, post| run(config, dir, post).unwrap())
}

fn losses(summary: &Summary) -> Vec<(u64, Option<u64>)> {
    let bits = |x: Option<f64>| x.map(f64::to_bits);
    summary.epochs.iter().map(|epoch| (epoch.loss.to_bits(), bits(epoch.valid_loss))).collect()
}

#[test]
fn ranks_give_the_losses_of_one_process_for_every_model() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (size, options) in [
        (1, "model=rsage"),
        (2, "model=rgcn"),
        (4, "model=rsage norm=layer strategy=pipelined"),
        (3, "model=rgat heads=2 sampler=labor"),
        (2, "model=hgt heads=2"),
        (3, "model=simple-hgn heads=2 head_layers=2"),
        (2, "model=rsage sampler=full batch_size=0"),
        (4, "model=rgcn batch_size=5"),
    ] {
        let config = config(options);
        let one = alone(&TrainConfig { strategy: "sequential".into(), ..config.clone() }, &data);
        let many = over_ranks(&config, &dir, size);
        assert_alike(&one, &many, options);
        let (epoch, whole) = (&many[0].epochs[1], &one.epochs[1]);
        assert_eq!(epoch.ranks.iter().map(|rank| rank.seeds).sum::<u64>(), whole.seeds, "{options}");
        assert_eq!(epoch.ranks.len(), size, "{options}");
        assert_eq!(epoch.traffic.remote.rows > 0, size > 1, "{options}");
        assert_eq!(many[0].dataset, one.dataset, "{options}");
        // a node that several ranks read counts for each
        for (of_ranks, of_one) in epoch.node_types.iter().zip(&whole.node_types) {
            assert!(of_ranks.name == of_one.name && of_ranks.count >= of_one.count, "{options}");
        }
        assert!(many.iter().all(|rank| rank.epochs[1].edge_types == epoch.edge_types), "{options}");
        if size == 1 {
            assert_eq!(losses(&one), losses(&many[0]), "one rank has the bits of one process");
            assert_eq!((&epoch.node_types, &epoch.edge_types), (&whole.node_types, &whole.edge_types));
        }
    }
}

#[test]
fn values_are_learned_over_ranks() {
    let (mut data, temporary) = (data(), tempfile::tempdir().unwrap());
    let count = data.nodes[0].count;
    let class = Task { split: data.tasks[0].split.clone(), ..Task::new("size", data.tasks[0].on.clone()) };
    let values: Vec<f32> = (0..2 * count).map(|i| (i * 13 % 29) as f32).collect();
    data.tasks.push(Task { targets: Targets::Values { width: 2, values: values.into() }, ..class });
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = config("model=rsage task=size");
    let (one, many) = (alone(&config, &data), over_ranks(&config, &dir, 3));
    for summary in &many {
        assert_eq!(losses(summary), losses(&many[0]));
        let pairs = summary.epochs.iter().zip(&one.epochs);
        assert!({ pairs }.all(|(a, b)| close(a.loss, b.loss)), "{:?}", summary.epochs);
        assert!(close(summary.test.score.unwrap(), one.test.score.unwrap()));
    }
}

#[test]
fn results_do_not_depend_on_the_threads_of_the_ranks() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = config("model=rgat heads=2 dropout=0.3");
    let of_threads = |threads: [usize; 2]| {
        let runs = on_ranks(2, PATIENCE, |rank, post| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads[rank]).build().unwrap();
            pool.install(|| run(&config, &dir, post).unwrap())
        });
        assert_eq!(losses(&runs[0]), losses(&runs[1]));
        losses(&runs[0])
    };
    assert_eq!(of_threads([1, 1]), of_threads([3, 2]));
}

/// Counts batches.
struct Counts(Arc<AtomicU64>);

impl Observer for Counts {
    fn batch(&mut self, _: &Progress) -> Result<()> {
        self.0.fetch_add(1, SeqCst);
        Ok(())
    }
}

/// Runs with a run directory. With `stops`, this rank asks to stop after this number of batches;
/// else the run is resumed.
fn with_directory(
    config: &TrainConfig,
    dir: &TypedPartitionDir,
    size: usize,
    out: &Path,
    stops: Option<(usize, u64)>,
) -> Vec<Result<Summary>> {
    on_ranks(size, PATIENCE, |rank, post| {
        let resume = stops.is_none();
        let run =
            (rank == 0).then(|| if resume { RunDir::reopen(out) } else { RunDir::create(out) }.unwrap());
        let seen = Arc::new(AtomicU64::new(0));
        let after = stops.filter(|stops| stops.0 == rank).map_or(u64::MAX, |stops| stops.1);
        let mut observer = Counts(seen.clone());
        let stop = || seen.load(SeqCst) >= after;
        let context = RunContext { run: run.as_ref(), resume, observer: &mut observer, stop: &stop };
        train_over_ranks(config, dir, post, context)
    })
}

#[test]
fn stopped_runs_resume_to_the_same_bits() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = config("model=rgcn dropout=0.2 strategy=pipelined");
    let whole = over_ranks(&config, &dir, 3);
    // in the middle of an epoch, and near the end of one, by any rank, also to other numbers of
    // ranks
    let batches = whole[0].epochs[0].seeds.div_ceil(60);
    for (i, (rank, after, size)) in
        [(1, batches + 1, 3), (0, batches - 1, 3), (2, 2, 2)].into_iter().enumerate()
    {
        let out = temporary.path().join(format!("run-{i}"));
        for end in with_directory(&config, &dir, 3, &out, Some((rank, after))) {
            assert!(matches!(end, Err(Error::Interrupted { .. })), "{end:?}");
        }
        let resumed: Vec<Summary> =
            with_directory(&config, &dir, size, &out, None).into_iter().map(Result::unwrap).collect();
        let (found, expected) = (&resumed[0].epochs, &whole[0].epochs);
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(expected) {
            assert!(a.seeds == b.seeds && (size != 3 || a.loss.to_bits() == b.loss.to_bits()), "{i}");
            if size == 3 {
                assert_eq!((&a.node_types, &a.edge_types), (&b.node_types, &b.edge_types), "{i}");
                assert_eq!(a.traffic.remote.rows, b.traffic.remote.rows, "{i}");
            }
        }
        if size == 3 {
            let score = |summary: &Summary| summary.test.score.map(f64::to_bits);
            assert_eq!(score(&resumed[0]), score(&whole[0]), "{i}: the best model");
        }
        let other = partitioned(&data, &temporary.path().join(format!("other-{i}")));
        assert_eq!(other.checksum(), dir.checksum());
    }
    let book = PartitionBook::new(3, (0..700).map(|v| v % 3).collect::<Vec<u16>>()).unwrap();
    let path = temporary.path().join("another");
    let another = write_types(&data, &book, &Description::default(), &path, &progress::Quiet).unwrap();
    for end in with_directory(&config, &another, 3, &temporary.path().join("run-0"), None) {
        assert!(end.unwrap_err().to_string().contains("another partition"));
    }
}

/// Asserts that all ranks end with an error that contains `part`.
fn refused(config: &TrainConfig, dir: &TypedPartitionDir, size: usize, part: &str) {
    for end in on_ranks(size, Duration::from_secs(10), |_, post| run(config, dir, post)) {
        let message = end.unwrap_err().to_string();
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn unusable_options_end_all_ranks_with_a_reason() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (size, options, part) in [
        (2, "sampler=hgt", "use --sampler neighbor, full, weighted or labor"),
        (2, "sampler=labor labor_iterations=2", "labor without --labor-iterations"),
        (2, "host_budget=1000", "--host-budget: it is not available over ranks on several types"),
        (2, "devices=virtual:2", "--devices: it is not available over ranks on several types"),
        (5, "model=rsage", "partition with --parts 5 or more"),
    ] {
        refused(&config(options), &dir, size, part);
    }
    let reads_edges = TrainConfig { model: "gine".into(), ..config("model=rsage") };
    refused(&reads_edges, &dir, 2, "use a model without them, such as rsage");
    let mut timed = data;
    let count = timed.nodes[0].count as i64;
    timed.tasks[0].time = Some((0..count).collect::<Vec<_>>().into());
    timed.edges[0].time = Some(vec![0; timed.edges[0].num_edges()].into());
    let dir = partitioned(&timed, &temporary.path().join("timed"));
    refused(&config("model=rsage"), &dir, 2, "rows of its task have times");
}
