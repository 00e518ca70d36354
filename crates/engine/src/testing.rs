//! Conformance test of strategies, for crates that add one (feature `testing`). The built-in
//! synchronous strategies pass it, too.

#![forbid(unsafe_code)]

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use graphmill_data::{
    Dataset,
    generate::{GenerateOptions, generate},
};
use graphmill_nn::model::Model;

use crate::{
    Error, Result, RunContext, RunDir, TrainConfig,
    config::{Devices, Fanout, Switch},
    observer::{Observer, Progress},
    record::Summary,
    strategy::RoundOptions,
    trainer::train,
};

/// Epochs of a run.
const EPOCHS: usize = 2;
/// Seeds of a batch.
const BATCH: usize = 16;
/// Batches of an epoch; the last one is shorter.
const BATCHES: u64 = 9;

/// Checks that runs with the strategy of `config` and its options have the losses, scores and
/// weights of `sequential` to the bit: on one, two and four threads, and when stopped at several
/// batches and resumed. The check sets the other options itself.
///
/// # Panics
/// The strategy breaks a promise, which the message names.
pub fn check_strategy(config: &TrainConfig) {
    let data = small_dataset();
    let config = derived(TrainConfig {
        epochs: EPOCHS,
        batch_size: BATCH,
        hidden: 8,
        fanout: Fanout(vec![3, 2]),
        layers: 2,
        dropout: 0.3,
        lr: 0.01,
        fused: Switch::Off,
        seed: 3,
        ..config.clone()
    });
    let name = &config.strategy;
    let reference = derived(TrainConfig {
        strategy: "sequential".into(),
        devices: Devices::Cpu.into(),
        ..config.clone().with(|rounds: &mut RoundOptions| rounds.batches_per_update = 0)
    });
    let expected = run(&reference, 2, &data, None, u64::MAX).expect("sequential trains");
    for threads in [1, 2, 4] {
        let found = run(&config, threads, &data, None, u64::MAX)
            .unwrap_or_else(|error| panic!("{name} on {threads} threads: {error}"));
        assert!(found == expected, "{name} on {threads} threads differs from sequential");
    }
    for stop in [1, 4, BATCHES, BATCHES + 3] {
        let dir = Scratch::new();
        let stopped = run(&config, 2, &data, Some((&dir.0, false)), stop);
        assert!(matches!(stopped, Err(Error::Interrupted { .. })), "{name} does not stop after batch {stop}");
        let found = run(&config, 2, &data, Some((&dir.0, true)), u64::MAX)
            .unwrap_or_else(|error| panic!("{name}, stopped after batch {stop} and resumed: {error}"));
        assert!(found == expected, "{name}, stopped after batch {stop} and resumed, differs from sequential");
    }
}

/// A small dataset with nine batches of at most 16 training nodes.
fn small_dataset() -> Dataset {
    let options =
        GenerateOptions { nodes: 600, degree: Some(6.0), classes: 3, dim: 6, ..GenerateOptions::default() };
    let mut data = generate("sbm", &options).expect("memory for 600 nodes");
    data.split.train = data.split.train[..140].to_vec().into();
    data
}

/// The configuration with its derived values.
fn derived(mut config: TrainConfig) -> TrainConfig {
    config.derive_options(&["layers", "fanout"]).expect("as many hops as layers");
    config
}

/// Bits of a run's results.
#[derive(PartialEq)]
struct RunBits {
    /// Loss, validation score and sampled edges of each epoch.
    epochs: Vec<(u64, Option<u64>, u64)>,
    weights: Vec<u32>,
    test: Option<u64>,
}

/// Trains on `threads` threads, optionally in a run directory (path, resume), and stops after
/// `stop` batches.
fn run(
    config: &TrainConfig,
    threads: usize,
    data: &Dataset,
    dir: Option<(&Path, bool)>,
    stop: u64,
) -> Result<RunBits> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a few threads");
    pool.install(|| {
        let (run, resume) = match dir {
            Some((dir, true)) => (Some(RunDir::reopen(dir)?), true),
            Some((dir, false)) => (Some(RunDir::create(dir)?), false),
            None => (None, false),
        };
        let polls = AtomicU64::new(0);
        let mut check = BatchOrderCheck::default();
        let context = RunContext {
            run: run.as_ref(),
            resume,
            observer: &mut check,
            stop: &|| polls.fetch_add(1, Relaxed) + 1 >= stop,
        };
        let summary = train(config, data, context)?;
        Ok(check.into_bits(&summary))
    })
}

/// Observer that checks the order of batches and stores the weights.
#[derive(Default)]
struct BatchOrderCheck {
    last: (usize, u64),
    weights: Vec<u32>,
}

impl BatchOrderCheck {
    fn into_bits(self, summary: &Summary) -> RunBits {
        let epochs = summary.epochs.iter();
        RunBits {
            epochs: epochs
                .map(|e| (e.loss.to_bits(), e.valid_score.map(f64::to_bits), e.sampled_edges))
                .collect(),
            weights: self.weights,
            test: summary.test.score.map(f64::to_bits),
        }
    }
}

impl Observer for BatchOrderCheck {
    fn batch(&mut self, progress: &Progress) -> Result<()> {
        let now = (progress.epoch, progress.batches);
        assert!(now > self.last, "batch {now:?} (epoch, batches done) is reported after {:?}", self.last);
        assert!(progress.batches <= BATCHES, "{} of {BATCHES} batches are reported", progress.batches);
        self.last = now;
        Ok(())
    }

    fn model(&mut self, model: &Model) {
        model.visit(&mut |_, param| {
            self.weights.extend(param.value.view().host().iter().map(|x| x.to_bits()));
        });
    }
}

/// A temporary directory that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let name = format!("graphmill-check-strategy-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // best effort: it lies in the system's temporary directory
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
