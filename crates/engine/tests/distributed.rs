//! Several ranks give the losses of one process, and end or resume together.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use graphmill_core::{keyed, progress};
use graphmill_data::{
    generate::{GenerateOptions, generate},
    partition::{Description, PartitionBook, PartitionDir, write},
};
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    config::{Fanout, Ratio},
    observer::{Observer, Progress, Quiet},
    record::{EpochRecord, Summary},
    train,
    trainer::over_ranks,
};

use crate::ranks::{PATIENCE, alone, assert_alike, close, config, data, on_ranks, over_ranks, partitioned};
use crate::set::with;

#[test]
fn ranks_give_the_losses_of_one_process_for_every_model_and_strategy() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let s = String::from;
    let runs = [
        (1, TrainConfig { model: s("sage"), ..config() }),
        (2, with(config(), "model=gcn strategy=pipelined allocation=1,1,1")),
        (3, with(config(), "model=gat heads=2")),
        (4, with(config(), "model=gin norm=none input_layer=true head_layers=1 clip=1")),
        (
            4,
            TrainConfig {
                model: s("sage"),
                strategy: s("pipelined"),
                residual: "linear".parse().unwrap(),
                norm: "layer".parse().unwrap(),
                ..config()
            },
        ),
        (2, TrainConfig { model: s("sage"), sampler: s("full"), batch_size: 0, ..config() }),
        (3, TrainConfig { model: s("gcn"), sampler: s("labor"), ..config() }),
        (3, TrainConfig { model: s("mixhop"), fanout: Fanout(vec![4; 4]), ..config() }),
        (4, TrainConfig { model: s("sage"), batch_size: 3, max_batches: 12, ..config() }),
        (3, with(config(), "model=pinsage sampler=random-walk num_walks=6")),
        (2, with(config(), "model=gcn sampler=random-walk")),
        (3, with(config(), "model=sage sampler=weighted edge_weights=inverse-in-degree")),
        (2, with(config(), "model=gcn sampler=labor edge_weights=out-degree")),
        (3, with(config(), "model=sage order=proximity order_sequences=4")),
        (2, with(config(), "model=sage order=proximity strategy=pipelined allocation=1,1,1")),
        (3, with(config(), "model=sage order=balanced")),
        (1, with(config(), "model=sage sampler=labor labor_iterations=2")),
        (2, with(config(), "model=gcn sampler=labor labor_draws=ranges")),
    ];
    for (size, config) in runs {
        let what = format!("{size} ranks, {} by {}", config.model, config.strategy);
        let one = alone(&TrainConfig { strategy: s("sequential"), ..config.clone() }, &data);
        let many = over_ranks(&config, &dir, size);
        assert_alike(&one, &many, &what);
        let (epoch, whole) = (&many[0].epochs[1], &one.epochs[1]);
        assert_eq!(epoch.ranks.len(), size, "{what}");
        assert_eq!(epoch.ranks.iter().map(|rank| rank.seeds).sum::<u64>(), whole.seeds, "{what}");
        assert!(epoch.sampled_edges >= whole.sampled_edges, "{what}");
        assert_eq!(epoch.traffic.remote.rows > 0, size > 1, "{what}");
    }
}

#[test]
fn ranks_start_from_the_model_of_a_run_as_one_process_does() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let out = temporary.path().join("run");
    let run = RunDir::create(&out).unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    train(&config(), &data, context).unwrap();
    drop(run);
    let config = TrainConfig { start_from: out.display().to_string(), seed: 7, ..config() };
    let one = alone(&config, &data);
    for size in [1, 3] {
        assert_alike(&one, &over_ranks(&config, &dir, size), "started from a run");
    }
    let fresh = alone(&TrainConfig { start_from: String::new(), ..config }, &data);
    assert!(one.epochs[0].loss < 0.9 * fresh.epochs[0].loss, "the start matters");
}

#[test]
fn importance_is_that_of_a_ranks_share_of_the_destinations() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = with(config(), "model=sage sampler=labor labor_iterations=3 epochs=6");
    let (first, again) = (over_ranks(&config, &dir, 3), over_ranks(&config, &dir, 3));
    let losses = |s: &Summary| s.epochs.iter().map(|e| e.loss.to_bits()).collect::<Vec<_>>();
    assert!(first.iter().chain(&again).all(|rank| losses(rank) == losses(&first[0])));
    let (one, epochs) = (alone(&config, &data), &first[0].epochs);
    assert!(epochs[5].loss < 0.8 * epochs[0].loss, "{} to {}", epochs[0].loss, epochs[5].loss);
    // a rank shares neighbours among fewer destinations, so it reads more of them, but not many
    let rows = |s: &Summary| s.epochs[1].traffic.rows() as f64;
    assert!(rows(&first[0]) > rows(&one) && rows(&first[0]) < 2.5 * rows(&one));
}

#[test]
fn partitions_without_searches_refuse_orders_that_read_them() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let path = temporary.path().join("parts");
    let book = PartitionBook::new(2, (0..900).map(|v| v % 2).collect::<Vec<u16>>()).unwrap();
    let dir = write(&data, &book, &Description::default(), &path, &progress::Quiet).unwrap();
    let config = TrainConfig { order: "proximity".into(), ..config() };
    for end in on_ranks(2, PATIENCE, |_, post| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        over_ranks::train(&config, &dir, post, context).unwrap_err().to_string()
    }) {
        assert!(end.contains("--order proximity") && end.contains("partition the dataset again"), "{end}");
    }
}

#[test]
fn ranks_exchange_multi_label_targets() {
    let options =
        GenerateOptions { nodes: 600, degree: Some(7.0), classes: 40, dim: 8, ..GenerateOptions::default() };
    let mut data = generate("sbm", &options).unwrap();
    let member = (0..600 * 40).map(|i| u8::from(keyed::key(&[i]).is_multiple_of(5))).collect::<Vec<u8>>();
    data.labels = graphmill_core::Labels::Multi { member: member.into(), classes: 40 };
    let temporary = tempfile::tempdir().unwrap();
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for order in ["random", "balanced"] {
        let config = TrainConfig { batch_size: 50, order: order.into(), ..config() };
        assert_alike(&alone(&config, &data), &over_ranks(&config, &dir, 3), order);
    }
}

#[test]
fn caches_of_remote_rows_change_no_bit_and_reduce_traffic() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let mut runs = Vec::new();
    for (policy, ratio) in
        [("auto", None), ("posterior:2", Some(0.3)), ("lru", Some(0.3)), ("degree", Some(1.0))]
    {
        let config = TrainConfig { cache: policy.into(), cache_ratio: Ratio(ratio), ..config() };
        let many = over_ranks(&config, &dir, 4);
        let rows: u64 = many[0].epochs.iter().map(|epoch| epoch.traffic.remote.rows).sum();
        runs.push((many[0].epochs.iter().map(|e| e.loss.to_bits()).collect::<Vec<_>>(), rows));
    }
    assert!(runs.iter().all(|run| run.0 == runs[0].0));
    let rows: Vec<u64> = runs.iter().map(|run| run.1).collect();
    assert!(rows[1] < rows[0] * 7 / 10 && rows[2] < rows[0] && rows[3] == 0, "{rows:?}");
}

/// Counts batches.
struct Counts(Arc<Mutex<u64>>);

impl Observer for Counts {
    fn batch(&mut self, _: &Progress) -> Result<()> {
        *self.0.lock().unwrap() += 1;
        Ok(())
    }
}

/// Runs with a run directory. With `stops`, this rank asks to stop after this number of batches;
/// else the run is resumed.
pub(crate) fn with_directory(
    config: &TrainConfig,
    dir: &PartitionDir,
    size: usize,
    out: &Path,
    stops: Option<(usize, u64)>,
) -> Vec<Result<Summary>> {
    on_ranks(size, PATIENCE, |rank, post| {
        let resume = stops.is_none();
        let run =
            (rank == 0).then(|| if resume { RunDir::reopen(out) } else { RunDir::create(out) }.unwrap());
        let seen = Arc::new(Mutex::new(0));
        let after = stops.filter(|stops| stops.0 == rank).map_or(u64::MAX, |stops| stops.1);
        let mut observer = Counts(seen.clone());
        let stop = || *seen.lock().unwrap() >= after;
        let context = RunContext { run: run.as_ref(), resume, observer: &mut observer, stop: &stop };
        over_ranks::train(config, dir, post, context)
    })
}

#[test]
fn stopped_runs_resume_with_any_number_of_ranks() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = config();
    let whole = over_ranks(&config, &dir, 4);
    for (i, (rank, size)) in [(1, 4), (0, 2), (3, 1)].into_iter().enumerate() {
        let out = temporary.path().join(format!("run-{i}"));
        // in the middle of the second epoch
        let batches = 8;
        for end in with_directory(&config, &dir, 4, &out, Some((rank, batches))) {
            assert!(matches!(end, Err(Error::Interrupted { .. })), "{end:?}");
        }
        let resumed: Vec<Summary> =
            with_directory(&config, &dir, size, &out, None).into_iter().map(Result::unwrap).collect();
        let epochs = &resumed[0].epochs;
        assert_eq!(epochs.len(), whole[0].epochs.len());
        for (a, b) in epochs.iter().zip(&whole[0].epochs) {
            if size == 4 {
                assert_eq!(a.loss.to_bits(), b.loss.to_bits(), "the same bits");
            }
            assert!(close(a.loss, b.loss), "{} and {}", a.loss, b.loss);
            assert_eq!(a.seeds, b.seeds);
            if size == 4 {
                assert_eq!(
                    a.sampled_edges, b.sampled_edges,
                    "counters of all ranks before the stop are included"
                );
                assert_eq!(a.traffic.remote.rows, b.traffic.remote.rows);
            }
        }
        let read: Vec<EpochRecord> = std::fs::read_to_string(out.join("metrics.jsonl"))
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(read.len(), 3);
    }
}

/// Observer that panics in the second epoch.
struct Fails;

impl Observer for Fails {
    fn batch(&mut self, progress: &Progress) -> Result<()> {
        assert!(progress.epoch < 1, "injected");
        Ok(())
    }
}

#[test]
fn a_panicking_rank_ends_all_ranks_and_the_run_resumes_from_its_checkpoint() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = TrainConfig { checkpoint_batches: 1, ..config() };
    let out = temporary.path().join("run");
    let ends = on_ranks(3, PATIENCE, |rank, post| {
        let run = (rank == 0).then(|| RunDir::create(&out).unwrap());
        let context = RunContext { run: run.as_ref(), resume: false, observer: &mut Quiet, stop: &|| false };
        if rank != 2 {
            return over_ranks::train(&config, &dir, post, context).unwrap_err().to_string();
        }
        let context = RunContext { observer: &mut Fails, ..context };
        let run = std::panic::AssertUnwindSafe(|| over_ranks::train(&config, &dir, post, context).map(drop));
        assert!(std::panic::catch_unwind(run).is_err());
        String::new()
    });
    for end in &ends[..2] {
        assert!(end.contains("rank 2: it ended before its work was complete"), "{end}");
    }
    let resumed = with_directory(&config, &dir, 3, &out, None);
    let whole = over_ranks(&config, &dir, 3);
    let bits = |s: &Summary| s.epochs.iter().map(|e| e.loss.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(resumed[0].as_ref().unwrap()), bits(&whole[0]));
}

#[test]
fn options_that_no_rank_can_follow_are_refused_on_all_ranks() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let shuffled = with(config(), "shuffle_parts=1");
    let ends = on_ranks(2, PATIENCE, |_, post| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        over_ranks::train(&shuffled, &dir, post, context).unwrap_err().to_string()
    });
    assert!(ends.iter().any(|end| end.contains("--shuffle-parts 1")), "{ends:?}");
    let few = on_ranks(5, PATIENCE, |_, post| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        over_ranks::train(&config(), &dir, post, context).unwrap_err().to_string()
    });
    assert!(few.iter().any(|end| end.contains("--parts 5")), "{few:?}");
}

#[test]
fn subgraphs_of_reassigned_parts_learn_and_resume_after_a_stop() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let s = String::from;
    let base = with(config(), "sampler=saint-rw batch_size=60 walk_length=3 epochs=8");
    // all ranks together draw every node once in an epoch, as one process does
    let short = with(base.clone(), "epochs=1");
    let seeds = |summary: &Summary| summary.epochs[0].seeds as f64;
    let ratio = seeds(&over_ranks(&short, &dir, 2)[0]) / seeds(&alone(&short, &data));
    assert!((0.6..1.5).contains(&ratio), "{ratio} times the seeds of one process");
    let first_and_last = |config: &TrainConfig| {
        let many = over_ranks(config, &dir, 2);
        let bits = |s: &Summary| s.epochs.iter().map(|e| e.loss.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&many[0]), bits(&many[1]), "ranks report different losses");
        assert!(many[0].epochs.iter().all(|epoch| epoch.traffic.remote.rows == 0));
        let moved = |e: &EpochRecord| e.ranks.iter().map(|rank| rank.feature_bytes).sum::<u64>();
        let moved: Vec<bool> = many[0].epochs.iter().map(|epoch| moved(epoch) > 0).collect();
        let losses: Vec<f64> = many[0].epochs.iter().map(|epoch| epoch.valid_loss.unwrap()).collect();
        (losses, moved, bits(&many[0]))
    };
    for (name, strategy) in [
        ("saint-rw", "sequential"),
        ("saint-node", "pipelined"),
        ("saint-edge", "sequential"),
        ("cluster", "sequential"),
    ] {
        let config = TrainConfig {
            sampler: s(name),
            strategy: s(strategy),
            shuffle_parts: 3,
            ..with(base.clone(), "allocation=1,1,1 parts=6 parts_per_batch=2")
        };
        let (losses, moved, _) = first_and_last(&config);
        assert!(losses[7] < losses[0], "{name}: {losses:?}");
        assert_eq!(moved, [false, false, false, true, false, false, true, false], "{name}");
    }
    let (_, moved, still) = first_and_last(&base);
    assert_eq!(moved, [false; 8]);
    let config = TrainConfig { shuffle_parts: 2, ..base.clone() };
    let (_, _, whole) = first_and_last(&config);
    assert_ne!(whole, still);
    let out = temporary.path().join("run");
    for end in with_directory(&config, &dir, 2, &out, Some((1, 14))) {
        assert!(matches!(end, Err(Error::Interrupted { .. })), "{end:?}");
    }
    let resumed = with_directory(&config, &dir, 2, &out, None);
    let bits = |s: &Summary| s.epochs.iter().map(|e| e.loss.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(resumed[0].as_ref().unwrap()), whole);
}
