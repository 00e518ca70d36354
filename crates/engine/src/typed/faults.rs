//! A run on several types and several devices that fails and is resumed ends with the same bits as
//! a run without a failure, on nodes and on links, also over ranks.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use graphmill_core::{NodeId, keyed, progress};
use graphmill_data::{
    generate::{GenerateOptions, generate_typed},
    partition::{Description, PartitionBook, TypedPartitionDir, write_types},
    typed::{TypedDataset, Verify, open},
};
use graphmill_distributed::{Messenger, MessengerOptions, local};
use graphmill_loader::{
    Fanout,
    typed::{TypedRequest, TypedSampled, TypedSampler, TypedSeeds, TypedWorkspace},
};

use super::{links, ranks, trainer, wrapped::WrappedSampler};
use crate::{
    Error, Result, RunContext, RunDir, TrainConfig,
    checkpoint::Checkpoint,
    observer::{Observer, Progress},
    options::key,
    run::RunState,
};

/// Batches of an epoch of 300 training nodes, or of the first links.
const BATCHES: u64 = 10;
/// Time limit of a run, even on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Options by name.
type Given = Vec<(&'static str, &'static str)>;

/// Failure of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Sampling returns an error.
    SampleError,
    /// Sampling panics.
    SamplePanic,
    /// The loss is NaN.
    TrainError,
    /// The loss weights do not match the logits, or a pair has no end, which panics after the
    /// forward pass.
    TrainPanic,
}

/// Failure of one batch of one epoch.
#[derive(Clone, Copy, Debug)]
struct Fault {
    kind: Kind,
    epoch: u64,
    batch: u64,
}

/// Draws as another sampler, with a fault.
fn faulty(inner: Box<dyn TypedSampler>, fault: Fault) -> Box<dyn TypedSampler> {
    let Fault { kind, epoch, batch } = fault;
    let draw = move |inner: &dyn TypedSampler,
                     request: &TypedRequest,
                     workspace: &mut TypedWorkspace,
                     seeds: TypedSeeds|
          -> graphmill_core::Result<TypedSampled> {
        let strikes = (request.key.epoch, request.key.batch) == (epoch, batch);
        assert!(!strikes || kind != Kind::SamplePanic, "injected {kind:?}");
        let mut drawn = inner.sample(request, workspace, seeds)?;
        let count: usize = drawn.seeds.nodes.iter().map(Vec::len).sum();
        match kind {
            Kind::SampleError if strikes => {
                return Err(graphmill_core::Error::invalid(format!("injected {kind:?}")));
            }
            Kind::TrainError if strikes => match &drawn.seeds.links {
                Some(_) => set_nan_weights(&mut drawn),
                None => drawn.loss_weight.resize(count, f32::NAN),
            },
            Kind::TrainPanic if strikes => match &mut drawn.seeds.links {
                Some(links) => links.source[0] = NodeId::MAX,
                None => drawn.loss_weight.resize(count + 1, 1.0),
            },
            _ => {}
        }
        Ok(drawn)
    };
    Box::new(WrappedSampler { inner, draw })
}

/// Sets the weights of all edges of a batch to NaN.
fn set_nan_weights(drawn: &mut TypedSampled) {
    for block in drawn.blocks.iter_mut().flat_map(|block| &mut block.relations) {
        block.edge_weight.clear();
        block.edge_weight.resize(block.indices.len(), f32::NAN);
    }
}

/// Truncates a file to its header after a number of updates.
struct Cutting {
    cut: Option<(PathBuf, u64)>,
}

impl Observer for Cutting {
    fn batch(&mut self, _: &Progress) -> Result<()> {
        if let Some((file, left)) = &mut self.cut {
            *left = left.saturating_sub(1);
            if *left == 0 {
                fs::OpenOptions::new().write(true).open(&*file).unwrap().set_len(4096).unwrap();
            }
        }
        Ok(())
    }
}

/// Stops the output of injected panics, which do not happen on the threads of the tests.
fn hush() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let message = info.payload_as_str().unwrap_or_default();
        let expected = ["injected", "one loss weight per row", "out of range"];
        let is_test = thread::current().name().is_some_and(|name| name.contains("faults"));
        if is_test || !expected.iter().any(|part| message.contains(part)) {
            print(info);
        }
    }));
}

fn data(dim: usize) -> TypedDataset {
    let options = GenerateOptions { nodes: 1200, classes: 4, dim, ..GenerateOptions::default() };
    generate_typed("typed", &options).unwrap()
}

/// Targets that a run learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Learned {
    Nodes,
    Links,
}

/// Strategies with their batches per update.
fn strategies() -> [(Given, u64); 6] {
    let (sharing, factored) = (("strategy", "time-sharing"), ("strategy", "factored"));
    let stale = [("updates", "asynchronous"), ("staleness", "2")];
    [
        (vec![sharing, ("devices", "virtual:2")], 2),
        (vec![sharing, ("devices", "virtual:3"), ("overlap", "on")], 3),
        (vec![factored, ("devices", "virtual:2")], 1),
        (vec![factored, ("devices", "virtual:3"), ("num_samplers", "1")], 2),
        ([&[sharing, ("devices", "virtual:3")][..], &stale].concat(), 1),
        ([&[factored, ("devices", "virtual:3"), ("num_samplers", "1")][..], &stale].concat(), 1),
    ]
}

/// Options of a small run with learned rows, dropout and running statistics, with some given. The
/// model of links reads the weights of edges.
fn config(learned: Learned, own: &[(&'static str, &'static str)]) -> TrainConfig {
    let base = [("norm", "batch"), ("dropout", "0.2"), ("cache", "degree"), ("cache_ratio", "0.2")];
    let of_task = match learned {
        Learned::Nodes => &[("model", "simple-hgn")][..],
        Learned::Links => &[
            ("model", "rsage"),
            ("task", "author:writes:paper"),
            ("decoder", "distmult"),
            ("num_negatives", "2"),
            ("max_batches", "10"),
            ("eval_nodes", "20"),
        ],
    };
    let options = [&base[..], of_task, own].concat();
    let mut config = TrainConfig { hidden: 8, batch_size: 32, epochs: 2, lr: 0.01, ..TrainConfig::default() };
    config.fanout = Fanout(vec![3, 2]);
    for (name, value) in &options {
        key(name).unwrap().parse(&mut config, value).unwrap();
    }
    config.derive_options(&options.iter().map(|(name, _)| *name).collect::<Vec<_>>()).unwrap();
    config
}

/// Trains on two threads, with the fault, if any. The file of `cut` is truncated after a number of
/// updates.
///
/// # Panics
/// The run does not end.
fn attempt(
    data: &Arc<TypedDataset>,
    config: &TrainConfig,
    dir: &Path,
    resume: bool,
    fault: Option<Fault>,
    cut: Option<(PathBuf, u64)>,
) -> Result<()> {
    let (data, config, dir) = (data.clone(), config.clone(), dir.to_path_buf());
    let (sender, receiver) = mpsc::channel();
    let runner = thread::spawn(move || {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let trained: Result<()> = pool.install(|| {
            let run = if resume { RunDir::reopen(&dir)? } else { RunDir::create(&dir)? };
            let mut observer = Cutting { cut };
            let context = RunContext { run: Some(&run), resume, observer: &mut observer, stop: &|| false };
            let wrap = |inner: Box<dyn TypedSampler>| -> Box<dyn TypedSampler> {
                match fault {
                    Some(fault) => faulty(inner, fault),
                    None => inner,
                }
            };
            if config.task.is_empty() {
                trainer::train_alone(&config, &data, context, wrap).map(drop)
            } else {
                links::train_alone(&config, &data, context, wrap).map(drop)
            }
        });
        // after the time limit it is not received
        let _ = sender.send(trained);
    });
    let trained = receiver.recv_timeout(TIME_LIMIT).expect("the run ends");
    runner.join().unwrap();
    trained
}

/// Trains over two ranks on two threads each, of which each has its fault, if any. Returns how each
/// ended.
///
/// # Panics
/// A rank does not end.
fn attempt_over_ranks(
    parts: &Arc<TypedPartitionDir>,
    config: &TrainConfig,
    dir: &Path,
    resume: bool,
    faults: [Option<Fault>; 2],
) -> Vec<Result<()>> {
    let mut ranks = Vec::new();
    for ((rank, end), fault) in local(2).into_iter().enumerate().zip(faults) {
        let (parts, config, dir) = (parts.clone(), config.clone(), dir.to_path_buf());
        let (sender, receiver) = mpsc::channel();
        let runner = thread::spawn(move || {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
            let options = MessengerOptions { patience: TIME_LIMIT, ..MessengerOptions::default() };
            let post = Messenger::start(options, move || Ok(end)).unwrap();
            let trained = pool.install(|| {
                let open = || if resume { RunDir::reopen(&dir) } else { RunDir::create(&dir) };
                let run = (rank == 0).then(open).transpose()?;
                let mut observer = Cutting { cut: None };
                let context =
                    RunContext { run: run.as_ref(), resume, observer: &mut observer, stop: &|| false };
                let wrap = |inner: Box<dyn TypedSampler>| match fault {
                    Some(fault) => faulty(inner, fault),
                    None => inner,
                };
                ranks::train_wrapped(&config, &parts, post, context, wrap).map(drop)
            });
            // after the time limit it is not received
            let _ = sender.send(trained);
        });
        ranks.push((runner, receiver));
    }
    let ended = |(runner, receiver): (thread::JoinHandle<()>, mpsc::Receiver<Result<()>>)| {
        // a rank that hangs is alive to the others, so that no patience ends
        let trained = receiver.recv_timeout(TIME_LIMIT).expect("the rank ends");
        runner.join().unwrap();
        trained
    };
    ranks.into_iter().map(ended).collect()
}

/// Epoch and batch of the checkpoint, if there is one.
fn checkpoint_position(dir: &Path) -> Option<(u64, u64)> {
    let saved = Checkpoint::<RunState>::load(&dir.join("checkpoint")).unwrap()?;
    Some((saved.state.epoch as u64, saved.state.batch))
}

/// Losses and counts to the bit, and the files of the best model and of the optimiser.
fn results(dir: &Path) -> (String, [Vec<u8>; 2]) {
    let summary = RunDir::open(dir).unwrap().summary().unwrap();
    let of_epochs = summary.epochs.iter();
    let epochs: Vec<_> = of_epochs
        .map(|of| (of.loss.to_bits(), of.valid_score.map(f64::to_bits), of.seeds, of.sampled_edges))
        .collect();
    let files = ["best.safetensors", "checkpoint/optimizer.safetensors"];
    (format!("{epochs:?}"), files.map(|name| fs::read(dir.join(name)).unwrap()))
}

#[test]
fn runs_on_devices_resume_from_the_last_complete_update_after_a_failed_stage() {
    hush();
    let data = Arc::new(data(8));
    let of = |learned| strategies().into_iter().map(move |(own, group)| (learned, own, group));
    for (learned, own, group) in of(Learned::Nodes).chain(of(Learned::Links)) {
        let (config, temporary) = (config(learned, &own), tempfile::tempdir().unwrap());
        let whole = temporary.path().join("whole");
        attempt(&data, &config, &whole, false, None, None).unwrap();
        let whole = results(&whole);
        for (kind, epoch, batch) in [
            (Kind::SampleError, 0, 1),
            (Kind::SampleError, 1, 7),
            (Kind::SamplePanic, 0, 8),
            (Kind::SamplePanic, 1, 0),
            (Kind::TrainError, 1, 4),
            (Kind::TrainPanic, 0, 5),
            (Kind::TrainPanic, 1, 9),
        ] {
            let what = format!("{learned:?}, {own:?}, {kind:?} in {epoch}, {batch}");
            let dir = temporary.path().join(format!("{kind:?}-{epoch}-{batch}"));
            let fault = Fault { kind, epoch, batch };
            let error = attempt(&data, &config, &dir, false, Some(fault), None).unwrap_err();
            let panicked = |name: &str| match &error {
                Error::Panicked { stage, batch: of, .. } => (*stage, *of) == (name, batch + 1),
                _ => false,
            };
            let names_cause = match kind {
                Kind::SampleError => error.to_string().contains("injected SampleError"),
                Kind::SamplePanic => panicked("sample"),
                Kind::TrainPanic => panicked("train"),
                Kind::TrainError => matches!(
                    error,
                    Error::Diverged { epoch: of, batch: at, .. } if (of as u64, at) == (epoch + 1, batch + 1)
                ),
            };
            assert!(names_cause, "{what}: {error}");
            let first = batch / group * group;
            let expected = (epoch + first > 0).then_some((epoch, first));
            assert_eq!(checkpoint_position(&dir), expected, "{what}: {error}");
            attempt(&data, &config, &dir, true, None, None).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(results(&dir) == whole, "{what}");
        }
    }
}

#[test]
fn truncated_features_end_runs_on_devices_with_a_checkpoint_of_all_updates() {
    let temporary = tempfile::tempdir().unwrap();
    let home = temporary.path().join("data");
    data(16).save(&home).unwrap();
    let data = Arc::new(open(&home, Verify::Once).unwrap());
    let file = home.join("nodes").join(&data.nodes[0].name).join("features.npy");
    let bytes = fs::read(&file).unwrap();
    let of = |learned| strategies().into_iter().map(move |(own, group)| (learned, own, group));
    let all = of(Learned::Nodes).chain(of(Learned::Links));
    for (number, (learned, own, group)) in all.enumerate() {
        let tiers = [("host_budget", "20000"), ("host_cache", "degree")];
        let dataset = home.to_str().unwrap().to_string();
        let config = TrainConfig { dataset, ..config(learned, &[&own[..], &tiers].concat()) };
        let dir = |name: &str| temporary.path().join(format!("{number}-{name}"));
        let whole = dir("whole");
        attempt(&data, &config, &whole, false, None, None).unwrap();
        let whole = results(&whole);
        // in the middle of an epoch, and after the last batch, so that scoring fails
        for left in [2, BATCHES.div_ceil(group)] {
            let (what, dir) = (format!("{learned:?}, {own:?}, cut after {left}"), dir(&left.to_string()));
            let cut = Some((file.clone(), left));
            let error = attempt(&data, &config, &dir, false, None, cut).unwrap_err();
            assert!(error.to_string().contains("features.npy"), "{what}: {error}");
            let (epoch, batch) = checkpoint_position(&dir).expect("a checkpoint");
            assert!(epoch == 0 && batch >= (left * group).min(BATCHES), "{what}: {batch}");
            fs::write(&file, &bytes).unwrap();
            attempt(&data, &config, &dir, true, None, None).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(results(&dir) == whole, "{what}");
        }
    }
}

/// Strategies on the devices of each rank.
fn strategies_of_ranks() -> [Given; 3] {
    let [two, _, _, factored, stale, _] = strategies().map(|(own, _)| own);
    [two, factored, stale]
}

#[test]
fn a_failed_stage_of_one_rank_ends_all_ranks_which_resume_to_the_same_bits() {
    hush();
    let (data, temporary) = (data(8), tempfile::tempdir().unwrap());
    let of = (0..data.num_nodes() as u64).map(|v| (keyed::key(&[v]) % 2) as u16);
    let (book, path) =
        (PartitionBook::new(2, of.collect::<Vec<_>>()).unwrap(), temporary.path().join("parts"));
    let parts = write_types(&data, &book, &Description::default(), &path, &progress::Quiet).unwrap();
    let parts = Arc::new(parts);
    let of = |learned| strategies_of_ranks().into_iter().map(move |own| (learned, own));
    for (number, (learned, own)) in of(Learned::Nodes).chain(of(Learned::Links)).enumerate() {
        let saves = [("checkpoint_batches", "2")];
        let dataset = path.to_str().unwrap().to_string();
        let config = TrainConfig { dataset, ..config(learned, &[&own[..], &saves].concat()) };
        let dir = |name: &str| temporary.path().join(format!("{number}-{name}"));
        let whole = dir("whole");
        for end in attempt_over_ranks(&parts, &config, &whole, false, [None; 2]) {
            end.unwrap();
        }
        let whole = results(&whole);
        for (kind, rank, epoch, batch) in [
            (Kind::SampleError, 1, 0, 7),
            (Kind::SamplePanic, 0, 1, 5),
            (Kind::TrainError, 1, 1, 4),
            (Kind::TrainPanic, 1, 0, 6),
        ] {
            let what = format!("{learned:?}, {own:?}, {kind:?} of rank {rank} in {epoch}, {batch}");
            let dir = dir(&format!("{kind:?}"));
            let mut faults = [None; 2];
            faults[rank] = Some(Fault { kind, epoch, batch });
            let ends = attempt_over_ranks(&parts, &config, &dir, false, faults);
            let errors = ends.into_iter().map(|end| end.unwrap_err());
            for (of, error) in errors.enumerate() {
                let message = error.to_string();
                let names_cause = match kind {
                    Kind::SampleError => message.contains("injected SampleError"),
                    Kind::SamplePanic => message.contains("injected SamplePanic"),
                    // the sum over ranks is NaN on each
                    Kind::TrainError => match error {
                        Error::Diverged { epoch: of, batch: at, .. } => {
                            (of as u64, at) == (epoch + 1, batch + 1)
                        }
                        _ => false,
                    },
                    Kind::TrainPanic => message.contains("train stage"),
                };
                assert!(names_cause, "{what}: rank {of} reports {message}");
            }
            assert!(checkpoint_position(&dir).is_some(), "{what}");
            for end in attempt_over_ranks(&parts, &config, &dir, true, [None; 2]) {
                end.unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            assert!(results(&dir) == whole, "{what}");
        }
        // neither rank waits for the other if both fail in batches of the same round
        let faults = [(Kind::SampleError, 5), (Kind::TrainPanic, 4)];
        let faults = faults.map(|(kind, batch)| Some(Fault { kind, epoch: 0, batch }));
        let ends = attempt_over_ranks(&parts, &config, &dir("both"), false, faults);
        assert!(ends.iter().all(Result::is_err), "{learned:?}, {own:?}: {ends:?}");
    }
}
