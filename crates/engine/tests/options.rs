//! Every option with every sampler, strategy and kind of device changes the records of a run or is
//! refused as wrong usage, or [`UNSEEN`] gives its effect. The options of a model are also tested
//! with every layer and depth, those of caches with every size, and those of commands without
//! training.
//!
//! An option without a row in [`VALUES`] or [`UNSEEN`] fails the test.

use graphmill_core::{progress, table::Entry};
use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use graphmill_data::{
    generate::{GenerateOptions, generate},
    partition as methods,
};
use graphmill_engine::{
    Dataset, Error, RunContext, RunDir, TrainConfig, bench, build, hotness,
    observer::{Observer, Quiet},
    options::{Key, key, keys},
    partition,
    record::{EpochRecord, Summary},
    strategy, train,
};
use graphmill_loader::{BatchKey, Seeds, hotness as metrics, sampler};
use graphmill_nn::layer;
use rayon::ThreadPoolBuilder;

/// Options that a run needs before it reads another one: name and value.
type Needs = &'static [(&'static str, &'static str)];

/// For each option, a value other than the default, and alternative sets of options that it needs.
/// If a run refuses one set, the next is tried.
const VALUES: &[(&str, &str, &[Needs])] = &[
    ("metric", "f1-macro", &[&[]]),
    ("task", "venue", &[&[]]),
    ("sampler", "", &[&[]]),
    ("fanout", "2,2", &[&[]]),
    ("batch_size", "12", &[&[]]),
    ("max_batches", "2", &[&[]]),
    ("order", "sequential", &[&[]]),
    ("order_sequences", "3", &[&[], &[("order", "proximity")]]),
    ("inductive", "true", &[&[]]),
    ("sample_coverage", "0", &[&[]]),
    ("estimator", "unbiased", &[&[]]),
    ("replace", "true", &[&[]]),
    ("edge_weights", "out-degree", &[&[]]),
    ("weighted_index", "prefix-sums", &[&[], &[("replace", "true")]]),
    ("labor_iterations", "2", &[&[]]),
    ("labor_draws", "ranges", &[&[]]),
    ("num_walks", "2", &[&[]]),
    ("restart_prob", "0.9", &[&[]]),
    ("walk_length", "1", &[&[]]),
    ("frontier_size", "5", &[&[]]),
    ("frontier_index", "dashboard", &[&[]]),
    ("dashboard_slack", "8", &[&[], &[("frontier_index", "dashboard")]]),
    ("degree_cap", "1", &[&[]]),
    ("burn_prob", "0.2", &[&[]]),
    ("clusters", "", &[&[]]),
    ("parts", "9", &[&[]]),
    ("parts_per_batch", "3", &[&[]]),
    ("bottom", "exact", &[&[]]),
    ("sparse", "on", &[&[]]),
    ("model", "gcn", &[&[]]),
    ("aggregator", "max-pool", &[&[]]),
    ("sage_combine", "concat", &[&[]]),
    ("layers", "1", &[&[]]),
    ("hops", "3", &[&[], &[("model", "mixhop")]]),
    ("hidden", "8", &[&[]]),
    ("heads", "2", &[&[], &[("model", "gat")]]),
    ("out_heads", "2", &[&[], &[("model", "gat")]]),
    ("activation", "elu", &[&[]]),
    ("init", "fan-in", &[&[]]),
    ("norm", "layer", &[&[]]),
    ("residual", "linear", &[&[]]),
    ("input_layer", "true", &[&[]]),
    ("head_layers", "1", &[&[]]),
    ("dropout", "0.7", &[&[]]),
    ("input_dropout", "0.4", &[&[]]),
    ("no_own_rows", "true", &[&[]]),
    ("bases", "2", &[&[]]),
    ("blocks", "2", &[&[]]),
    ("edge_dim", "8", &[&[]]),
    ("negative_slope", "0.1", &[&[]]),
    ("max_degree", "3", &[&[]]),
    ("metapath", "cites,cites", &[&[]]),
    ("attention_dropout", "0.4", &[&[], &[("model", "gat")]]),
    ("epochs", "1", &[&[]]),
    ("optimizer", "sgd", &[&[]]),
    ("lr", "0.02", &[&[]]),
    ("momentum", "0.1", &[&[], &[("optimizer", "sgd")]]),
    ("weight_decay", "0.1", &[&[]]),
    ("weight_decay_first_layer", "true", &[&[], &[("weight_decay", "0.1")]]),
    ("schedule", "cosine", &[&[]]),
    ("schedule_epochs", "1", &[&[], &[("schedule", "step")]]),
    ("schedule_factor", "0.1", &[&[], &[("schedule", "step"), ("schedule_epochs", "1")]]),
    ("min_lr", "0.009", &[&[], &[("schedule", "cosine")]]),
    ("warmup", "2", &[&[]]),
    ("clip", "0.001", &[&[]]),
    // scores and losses disagree on which epoch is best
    (
        "select_by",
        "loss",
        &[
            &[("lr", "2"), ("epochs", "8")],
            &[("lr", "0.3"), ("epochs", "12")],
            &[("lr", "0.1"), ("epochs", "20")],
        ],
    ),
    ("patience", "1", &[&[("lr", "2"), ("epochs", "8")]]),
    ("seed", "8", &[&[]]),
    ("host_budget", "5000", &[&[("cache_ratio", "0.05")]]),
    ("device_budget", "35000", &[&[]]),
    ("cache_ratio", "0.05", &[&[]]),
    ("cache", "lru", &[&[], &[("cache_ratio", "0.05")]]),
    ("host_cache", "lru", &[&[], &[("host_budget", "5000"), ("cache_ratio", "0.05")]]),
    // with all rows cached, only the peers of a device that reads batches show it; measured times
    // may leave a single Trainer, so the number of Samplers is given
    (
        "placement",
        "replicate",
        &[&[("cache_ratio", "0.05"), ("num_samplers", "1")], &[("cache_ratio", "0.05")], &[]],
    ),
    ("strategy", "", &[&[]]),
    ("reuse", "layered", &[&[]]),
    ("num_samplers", "2", &[&[]]),
    ("updates", "asynchronous", &[&[]]),
    ("all_reduce", "peer", &[&[]]),
    ("batches_per_update", "4", &[&[]]),
    ("hot_ratio", "0.05", &[&[]]),
    ("super_batch", "3", &[&[]]),
    ("hot_metric", "random", &[&[], &[("hot_ratio", "0.02")]]),
    ("hot_rank", "1", &[&[]]),
    ("hot_gradient", "none", &[&[]]),
    ("hot_prefetch", "on", &[&[]]),
    ("hot_split", "0.5", &[&[]]),
    ("max_variation", "0.000001", &[&[]]),
    ("staleness", "1", &[&[], &[("updates", "asynchronous")]]),
    // refused without --task link; tests/link_prediction.rs changes runs on links by each of them
    ("decoder", "cosine", &[&[]]),
    ("decoder_hidden", "8", &[&[]]),
    ("embedding_dim", "4", &[&[]]),
    ("loss", "bpr", &[&[]]),
    ("quantile", "0.9", &[&[]]),
    ("target_transform", "log", &[&[]]),
    ("huber_delta", "2", &[&[]]),
    ("class_weights", "4,1,1", &[&[]]),
    ("focal", "2", &[&[]]),
    ("label_inputs", "0.5", &[&[]]),
    ("positives", "walks", &[&[]]),
    ("walk_nodes", "4", &[&[]]),
    ("walks_per_node", "2", &[&[]]),
    ("walk_window", "2", &[&[]]),
    ("walk_p", "9", &[&[]]),
    ("walk_q", "9", &[&[]]),
    ("negatives", "degree", &[&[]]),
    ("negatives_file", "pairs.npy", &[&[]]),
    ("hard_candidates", "9", &[&[]]),
    ("num_negatives", "3", &[&[]]),
    ("corrupt", "source", &[&[]]),
    ("exclude", "none", &[&[]]),
    ("disjoint", "0.5", &[&[]]),
    ("split_edges", "80,10,10", &[&[]]),
    ("valid_fraction", "0.2", &[&[]]),
    ("candidates", "all", &[&[]]),
    // refused for one type; tests/timed_links.rs changes runs by each of them
    ("link_times", "edges", &[&[]]),
    ("eval_negatives", "9", &[&[]]),
    ("margin", "2", &[&[]]),
    ("temperature", "1", &[&[]]),
    ("adversarial", "2", &[&[]]),
    // refused without --model embedding; tests/embedding.rs trains with them
    ("gamma", "9", &[&[]]),
    ("distance_norm", "2", &[&[]]),
    ("row_optimizer", "adagrad", &[&[]]),
    ("time_dim", "8", &[&[]]),
    ("event_heads", "4", &[&[]]),
    ("patch_size", "2", &[&[]]),
    ("channel_dim", "10", &[&[]]),
    ("transformer_layers", "1", &[&[]]),
    ("learn_frequencies", "true", &[&[]]),
    ("new_nodes", "0.1", &[&[]]),
    ("time_bound", "inclusive", &[&[]]),
    ("time_draw", "last", &[&[]]),
    ("time_window", "9", &[&[]]),
    ("time_half_life", "9", &[&[]]),
    ("time_carry", "edge", &[&[]]),
    ("regularizer", "n3", &[&[]]),
    ("regularization", "0.01", &[&[]]),
    ("init_scale", "0.5", &[&[]]),
    ("one_vs_all", "true", &[&[]]),
    ("subsampling", "true", &[&[]]),
    ("buckets", "3", &[&[]]),
    ("precision", "bf16", &[&[]]),
    ("cuda_graphs", "off", &[&[]]),
    ("feature_precision", "bf16", &[&[]]),
    ("devices", "", &[&[]]),
    ("eval_every", "2", &[&[]]),
    ("eval_nodes", "9", &[&[]]),
    ("shuffle_parts", "1", &[&[]]),
    ("graph_stores", "1", &[&[]]),
    ("peer_timeout", "5", &[&[]]),
];

/// Options that change no number by design, with a value that is refused if a run does not read
/// them, and with their effect.
const UNSEEN: &[(&str, &str, &str)] = &[
    ("dataset", "", "an argument of every command"),
    ("start_from", "runs/earlier", "the model that a run starts from: graphmill/tests/append.rs"),
    ("verify", "open", "the time of the verification"),
    ("bottom_dir", "elsewhere", "the place of the stored aggregates"),
    ("fused", "off", "whether rows are copied before they are aggregated"),
    ("allocation", "naive", "the cores of a stage"),
    ("queue_depth", "2", "the number of batches under way"),
    ("overlap", "on", "the workers of a device that samples and trains"),
    ("switching", "off", "the devices that train at the end of an epoch"),
    ("link", "1G,1us", "the time of simulated transfers"),
    ("peer_link", "1G,1us", "the time of simulated transfers between devices"),
    ("threads", "1", "the number of threads"),
    ("eval_chunk", "64", "the memory of inference"),
    ("checkpoint_batches", "2", "the interval of checkpoints"),
    ("checkpoint_seconds", "1", "the interval of checkpoints"),
    ("trace", "true", "the files of graphmill-report"),
    ("tensorboard", "true", "the files of graphmill-report"),
];

/// Small graph with weighted edges in a directory, so that tiers can leave rows on disk.
fn data() -> &'static (tempfile::TempDir, Dataset) {
    static DATA: OnceLock<(tempfile::TempDir, Dataset)> = OnceLock::new();
    DATA.get_or_init(|| {
        let options = GenerateOptions {
            nodes: 400,
            degree: Some(6.0),
            classes: 3,
            dim: 40,
            ..GenerateOptions::default()
        };
        let mut data = generate("sbm", &options).unwrap();
        let weights: Vec<f32> = (0..data.graph.num_edges()).map(|edge| 0.5 + (edge % 7) as f32).collect();
        data.graph = data.graph.with_edge_weight(weights.into()).unwrap();
        data.split.train = data.split.train[..140].to_vec().into();
        let dir = tempfile::tempdir().unwrap();
        data.save(dir.path().join("data")).unwrap();
        let data = Dataset::open(dir.path().join("data")).unwrap();
        (dir, data)
    })
}

/// Run of nine subgraphs or five minibatches per epoch. A strategy named `pipelined+layered` is
/// `pipelined` with layered reuse.
fn base(sampler: &str, strategy: &str, devices: &str) -> TrainConfig {
    let (strategy, reuse) = strategy.split_once('+').unwrap_or((strategy, "none"));
    let mut config = TrainConfig {
        dataset: data().1.directory.as_deref().and_then(Path::to_str).unwrap_or_default().into(),
        sampler: sampler.into(),
        strategy: strategy.into(),
        reuse: reuse.into(),
        devices: devices.parse().unwrap(),
        epochs: 2,
        batch_size: if sampler.starts_with("saint") || sampler == "frontier" { 40 } else { 16 },
        // as wide as the features, so that the bottom layer aggregates before it multiplies
        hidden: 40,
        dropout: 0.3,
        lr: 0.01,
        seed: 3,
        ..TrainConfig::default()
    };
    let super_batch = if strategy == "layered" || reuse == "layered" { "6" } else { "0" };
    let options =
        [("frontier_size", "10"), ("parts", "8"), ("parts_per_batch", "2"), ("sample_coverage", "3")];
    options.into_iter().for_each(|(name, value)| set(&mut config, name, value));
    set(&mut config, "super_batch", super_batch);
    set(&mut config, "fanout", "3,2");
    config
}

fn set(config: &mut TrainConfig, name: &str, value: &str) {
    key(name).unwrap().parse(config, value).unwrap();
}

/// Run with more options, or the error that refuses them.
fn with(base: &TrainConfig, options: &[(&str, &str)]) -> Result<TrainConfig, String> {
    let mut config = base.clone();
    options.iter().for_each(|(name, value)| set(&mut config, name, value));
    let given: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
    let checked = config.derive_options(&given).and_then(|()| config.check());
    match checked.and_then(|()| config.refuse_unused(&given)) {
        Ok(()) => Ok(config),
        Err(Error::Usage(message)) => Err(message),
        Err(other) => panic!("{options:?}: not reported as wrong usage: {other}"),
    }
}

/// Collects the notes of a run about options that it does not use.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, message: &str) {
        if message.contains("is not used") {
            self.0.push(message.to_string());
        }
    }
}

/// Temporary directory, in memory if the system has such a place: thousands of runs write a few
/// small files each, and would wait for the disk.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Records of a run, without the values that depend on time.
fn signature(config: &TrainConfig) -> Result<String, String> {
    let dir = scratch();
    let run = RunDir::create(dir.path()).unwrap();
    let mut notes = Notes::default();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut notes, stop: &|| false };
    let summary = match train(config, &data().1, context) {
        Ok(summary) => summary,
        Err(error) => return Err(error.to_string()),
    };
    let Summary { best, test, staleness, all_reduce, epochs, .. } = summary;
    let epochs: Vec<String> = epochs.iter().map(of_epoch).collect();
    let mut files: Vec<String> =
        fs::read_dir(dir.path()).unwrap().map(|entry| format!("{:?}", entry.unwrap().file_name())).collect();
    files.sort_unstable();
    let notes = notes.0;
    Ok(format!("{epochs:?} {best:?} {test:?} {} {all_reduce:?} {files:?} {notes:?}", staleness.bound))
}

fn of_epoch(record: &EpochRecord) -> String {
    let EpochRecord { loss, train_score, valid_score, valid_loss, lr, seeds, sampled_edges, .. } = record;
    let mut traffic = record.traffic;
    if record.devices.len() > 1 {
        // time decides which of the devices reads a batch
        let peers = std::mem::take(&mut traffic.peer);
        traffic.device += peers;
    }
    let traffic = traffic.tiers().map(|(name, tier)| (name, tier.rows, tier.bytes));
    let devices: Vec<_> =
        record.devices.iter().map(|of| (&of.role, of.cache_rows, of.link_seconds > 0.0)).collect();
    let reuse =
        record.reuse.map(|of| (of.super_batch, of.hot_nodes, of.asked_rows, of.reused_rows, of.split));
    format!(
        "{loss} {train_score:?} {valid_score:?} {valid_loss:?} {lr} {seeds} {sampled_edges} {} {traffic:?} \
         {:?} {:?} {devices:?} {reuse:?}",
        record.bottom_edges, record.hit_rate, record.grad_norm
    )
}

/// Effect of an option.
enum Outcome {
    Changes,
    Refused(String),
    /// The option had no effect, with and without the options that it needs.
    Ignored,
}

/// Adds options to a run, or refuses them.
type With<'c> = dyn Fn(&TrainConfig, &[(&str, &str)]) -> Result<TrainConfig, String> + 'c;

/// Command under test: adds options to a run or refuses them, and computes the records of a run.
struct Command<'c> {
    with: &'c With<'c>,
    signature: &'c dyn Fn(&TrainConfig) -> Result<String, String>,
}

const TRAIN: Command = Command { with: &with, signature: &signature };

/// Tries an option in a run; `known` holds signatures of runs without it.
fn outcome(
    Command { with, signature }: &Command,
    base: &TrainConfig,
    key: &Key,
    value: &str,
    ways: &[Needs],
    known: &mut HashMap<Needs, Result<String, String>>,
) -> Outcome {
    let (mut refused, mut ignored) = (None, false);
    for &needs in ways {
        let Ok(before) = with(base, needs) else { continue };
        let config = match with(base, &[needs, &[(key.name, value)]].concat()) {
            Ok(config) => config,
            Err(message) => {
                refused = Some(message);
                continue;
            }
        };
        // a run that is refused without the option does not test the option
        let Ok(before) = known.entry(needs).or_insert_with(|| signature(&before)) else { continue };
        match signature(&config) {
            // with other options, equal records may be a coincidence
            Ok(after) if after == *before && needs.is_empty() => return Outcome::Ignored,
            Ok(after) if after == *before => ignored = true,
            Ok(_) => return Outcome::Changes,
            Err(message) => refused = Some(message),
        }
    }
    match refused {
        _ if ignored => Outcome::Ignored,
        Some(message) => Outcome::Refused(message),
        // all runs are refused without the option, too
        None => Outcome::Changes,
    }
}

/// Command line of the options in which a run differs from the defaults.
fn command_line(base: &TrainConfig) -> String {
    let default = TrainConfig::default();
    let differs = |key: &&Key| key.name != "dataset" && key.write(base) != key.write(&default);
    keys().iter().filter(differs).map(|key| format!("--{} {} ", key.flag(), key.write(base))).collect()
}

/// Tries every option that is `chosen` in a run; returns those without effect.
fn ignored(command: &Command, base: &TrainConfig, chosen: fn(&Key) -> bool) -> Vec<String> {
    let run = command_line(base);
    let mut known = HashMap::new();
    if let Err(reason) = known.entry(&[][..]).or_insert_with(|| (command.signature)(base)) {
        assert!(!reason.is_empty(), "{run}");
        return Vec::new();
    }
    let mut ignored = Vec::new();
    for key in keys().iter().filter(|key| chosen(key)) {
        let Some((_, value, ways)) = VALUES.iter().find(|(name, ..)| *name == key.name) else { continue };
        let mut changed = base.clone();
        // skips options that the tests vary themselves, and values that the run already has
        if value.is_empty() || key.parse(&mut changed, value).is_ok() && changed == *base {
            continue;
        }
        match outcome(command, base, key, value, ways, &mut known) {
            Outcome::Changes => {}
            Outcome::Refused(message) => assert!(
                message.contains(&format!("--{}", key.flag())),
                "{run} --{} {value}: the refusal names no option: {message}",
                key.flag()
            ),
            Outcome::Ignored => ignored.push(format!("{run} --{} {value}", key.flag())),
        }
    }
    ignored
}

/// Tries every option that is `chosen` in each of the runs. Each core takes run after run, and has
/// a thread pool of its own: the runs are too small for several threads.
fn none_is_ignored(runs: &[TrainConfig], chosen: fn(&Key) -> bool) {
    let (next, ignored) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let take_runs = || {
        let pool = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = pool.install(|| self::ignored(&TRAIN, run, chosen));
            ignored.lock().unwrap().extend(found);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from).min(8) {
            scope.spawn(take_runs);
        }
    });
    let ignored = ignored.into_inner().unwrap();
    assert!(ignored.is_empty(), "{} options have no effect:\n{}", ignored.len(), ignored.join("\n"));
}

#[test]
fn every_option_has_a_row() {
    let listed = |name: &str| {
        let seen = VALUES.iter().filter(|(row, ..)| *row == name).count();
        seen + UNSEEN.iter().filter(|(row, ..)| *row == name).count()
    };
    let wrong: Vec<&str> = keys().iter().map(|key| key.name).filter(|name| listed(name) != 1).collect();
    assert!(wrong.is_empty(), "options without exactly one row in VALUES or UNSEEN: {wrong:?}");
    assert_eq!(VALUES.len() + UNSEEN.len(), keys().len(), "rows of unknown options");
}

#[test]
fn every_option_changes_a_run_of_every_sampler_or_is_refused() {
    let runs = sampler::TABLE.iter().map(|entry| base(entry.name, "sequential", "cpu"));
    none_is_ignored(&runs.collect::<Vec<_>>(), |_| true);
}

/// Returns true for a strategy of its own. A name that the devices choose is replaced by that of
/// another row.
fn is_own(entry: &&Entry<strategy::Kind>) -> bool {
    entry.make.alias.is_none_or(|alias| alias.reuse.is_some())
}

#[test]
fn every_option_changes_a_run_of_every_strategy_on_every_device_or_is_refused() {
    let runs: Vec<TrainConfig> = strategy::TABLE
        .iter()
        .filter(is_own)
        .flat_map(|entry| ["cpu", "virtual:1", "virtual:3"].map(|devices| (entry.name, devices)))
        .flat_map(|(strategy, devices)| ["neighbor", "saint-node"].map(|name| base(name, strategy, devices)))
        .collect();
    none_is_ignored(&runs, |_| true);
}

#[test]
fn every_option_changes_a_run_with_reuse_of_every_strategy_or_is_refused() {
    let runs = [
        base("neighbor", "sequential+layered", "virtual:1"),
        base("neighbor", "pipelined+layered", "cpu"),
        base("neighbor", "factored+layered", "virtual:3"),
        base("neighbor", "time-sharing+layered", "virtual:2"),
    ];
    none_is_ignored(&runs, |_| true);
}

/// Runs with `options`, each of which names values of several options.
fn runs(sampler: &str, options: &[&[(&str, &str)]]) -> Vec<TrainConfig> {
    let of = |options: &&[(&str, &str)]| {
        let mut config = base(sampler, "sequential", "cpu");
        options.iter().for_each(|(name, value)| set(&mut config, name, value));
        config.derive_options(&["layers"]).unwrap();
        config
    };
    options.iter().map(of).collect()
}

#[test]
fn every_option_of_a_model_changes_every_shape_of_it_or_is_refused() {
    let shapes = layer::TABLE.iter().flat_map(|entry| {
        runs(
            "neighbor",
            &[
                &[("model", entry.name), ("layers", "1")],
                &[("model", entry.name), ("layers", "1"), ("input_layer", "true")],
                &[("model", entry.name), ("layers", "1"), ("head_layers", "1")],
                &[("model", entry.name), ("layers", "2"), ("head_layers", "2")],
            ],
        )
    });
    none_is_ignored(&shapes.collect::<Vec<_>>(), |key| {
        key.heading() == "Model" || key.heading().contains("--model")
    });
}

#[test]
fn every_option_of_a_cache_changes_caches_of_every_size_or_is_refused() {
    let caches = ["cpu", "virtual:1", "virtual:2"].iter().flat_map(|devices| {
        let budgets = ["0", "20000", "1000000"];
        let ratios = ["auto", "0", "0.3", "1"];
        let all = budgets.into_iter().flat_map(move |budget| ratios.map(|ratio| (budget, ratio)));
        all.flat_map(move |(budget, ratio)| {
            runs(
                "neighbor",
                &[&[("devices", devices), ("host_budget", budget), ("cache_ratio", ratio), ("epochs", "1")]],
            )
        })
    });
    none_is_ignored(&caches.collect::<Vec<_>>(), |key| {
        ["cache_ratio", "cache", "placement"].contains(&key.name)
    });
    // a budget below a row gives no cache for a policy
    none_is_ignored(&runs("neighbor", &[&[("host_budget", "300")]]), |key| key.name == "cache_ratio");
}

#[test]
fn every_option_of_the_best_epoch_changes_runs_of_one_or_is_refused() {
    none_is_ignored(&runs("neighbor", &[&[("eval_every", "99")]]), |key| {
        ["select_by", "patience"].contains(&key.name)
    });
}

/// Options of `graphmill hotness`, or the error that refuses them.
fn with_samplers(base: &TrainConfig, options: &[(&str, &str)]) -> Result<TrainConfig, String> {
    let mut config = base.clone();
    options.iter().for_each(|(name, value)| set(&mut config, name, value));
    let given: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
    let checked = config.derive_options(&given).and_then(|()| config.check());
    let refused = checked.and_then(|()| hits(&config).refuse_unused(&given));
    refused.map(|()| config).map_err(|error| error.to_string())
}

fn hits(config: &TrainConfig) -> hotness::Options {
    hotness::Options {
        train: config.clone(),
        policies: ["presc:1", "optimal", "lru"].map(String::from).to_vec(),
        samplers: vec![config.sampler.clone()],
        ratios: vec![0.1],
        epochs: 2,
    }
}

#[test]
fn every_option_of_hotness_changes_every_sampler_or_is_refused() {
    let hit_rates = |config: &TrainConfig| {
        let report = hotness::run(&hits(config), &data().1, &progress::Quiet);
        let report = report.map_err(|error| error.to_string())?;
        Ok(serde_json::to_string(&report).unwrap())
    };
    let command = Command { with: &with_samplers, signature: &hit_rates };
    let read = |key: &Key| key.name != "threads" && hotness::options().contains(&key.name);
    // an epoch of clusters reads every row once, whatever the seed
    let samplers = sampler::TABLE.iter().filter(|entry| entry.name != "cluster");
    let ignored = samplers.flat_map(|entry| ignored(&command, &base(entry.name, "sequential", "cpu"), read));
    let ignored: Vec<String> = ignored.collect();
    assert!(ignored.is_empty(), "{} options have no effect:\n{}", ignored.len(), ignored.join("\n"));
}

#[test]
fn every_option_of_scores_changes_every_metric_or_is_refused() {
    for metric in &metrics::TABLE {
        let name = match metric.name {
            "presc" | "posterior" => format!("{}:1", metric.name),
            name => name.to_string(),
        };
        let with = |base: &TrainConfig, options: &[(&str, &str)]| {
            let mut config = base.clone();
            options.iter().for_each(|(name, value)| set(&mut config, name, value));
            let given: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
            let checked = config.derive_options(&given).and_then(|()| config.check());
            let refused = checked.and_then(|()| hotness::refuse_unused(&name, &config, &given));
            refused.map(|()| config).map_err(|error| error.to_string())
        };
        let scores = |config: &TrainConfig| {
            let scores = hotness::scores(&name, config, &data().1, &progress::Quiet);
            scores.map(|scores| format!("{scores:?}")).map_err(|error| error.to_string())
        };
        let command = Command { with: &with, signature: &scores };
        let read = |key: &Key| key.name != "threads" && hotness::options_of_scores().contains(&key.name);
        let samplers = ["neighbor", "saint-node", "saint-rw"].iter();
        let ignored = samplers.flat_map(|name| ignored(&command, &base(name, "sequential", "cpu"), read));
        let ignored: Vec<String> = ignored.collect();
        assert!(ignored.is_empty(), "{name}: {} have no effect:\n{}", ignored.len(), ignored.join("\n"));
    }
}

#[test]
fn benches_refuse_the_depth_of_subgraphs() {
    let of = |bench: &str, sampler: &str, name: &str, value: &str| {
        let mut config = base(sampler, "sequential", "cpu");
        set(&mut config, name, value);
        bench::refuse_unused(bench, &config, &[name]).map_err(|error| error.to_string())
    };
    for entry in &sampler::TABLE {
        let is_subgraph = entry.make.draws_subgraphs();
        for bench in ["sample", "aggregate"] {
            assert_eq!(of(bench, entry.name, "layers", "3").is_err(), is_subgraph, "{bench} {}", entry.name);
        }
        of("epoch", entry.name, "layers", "3").unwrap();
        of("all", entry.name, "layers", "3").unwrap();
    }
    let message = of("sample", "saint-rw", "layers", "3").unwrap_err();
    assert!(message.starts_with("--layers 3: --sampler saint-rw does not use it; use --sampler neighbor"));
    let mut flat = base("neighbor", "sequential", "cpu");
    flat.layers = 1;
    assert!(bench::refuse_unused("epoch", &flat, &["hidden"]).is_err());
    bench::refuse_unused("all", &flat, &["hidden"]).unwrap();
}

#[test]
fn limits_of_parts_are_refused_for_methods_that_ignore_them() {
    let data = &data().1;
    for entry in &methods::TABLE {
        let refined = |slack, train_slack, refine| {
            let options = methods::Options { parts: 3, seed: 1, slack, train_slack, refine };
            let made = (entry.make.make)(&options).unwrap();
            let book = made.partition(&data.graph, &data.split.train, &progress::Quiet).unwrap();
            book.of().to_vec()
        };
        let partitioned = |slack, train_slack| refined(slack, train_slack, true);
        let plain = partitioned(0.1, 0.05);
        let limits = [("slack", [0.0, 3.0].map(|limit| partitioned(limit, 0.05)))]
            .into_iter()
            .chain([("train_slack", [0.0, 3.0].map(|limit| partitioned(0.1, limit)))]);
        let switch = [("refine", [false, true].map(|refine| refined(0.1, 0.05, refine)))];
        for (name, books) in limits.chain(switch) {
            let refused = partition::refuse_unused(&[entry.name.into()], &[name]);
            let changes = books.iter().any(|of| *of != plain);
            assert_eq!(refused.is_ok(), changes, "{} {name}", entry.name);
        }
    }
    let refused = partition::refuse_unused(&["hash".into(), "fennel".into()], &["train_slack"]).unwrap_err();
    let expected =
        "--train-slack: --method hash,fennel does not use it; use --method metis or bgl, or leave it out";
    assert_eq!(refused.to_string(), expected);
    partition::refuse_unused(&["hash".into(), "bgl".into()], &["train_slack"]).unwrap();
}

#[test]
fn clusters_are_the_parts_of_the_given_partition() {
    let (dir, data) = data();
    let parts = 6;
    let options = methods::Options { parts, ..methods::Options::default() };
    let method = (methods::TABLE.find("bgl").unwrap().make.make)(&options).unwrap();
    let book = method.partition(&data.graph, &data.split.train, &progress::Quiet).unwrap();
    let what = methods::Description { method: "bgl", ..methods::Description::default() };
    let path = dir.path().join("clusters");
    methods::write(data, &book, &what, &path, &progress::Quiet).unwrap();
    let path_of = |file: &str| path.join(file).to_str().unwrap().to_string();
    let base = base("cluster", "sequential", "cpu");
    let given = |path: &str, count| with(&base, &[("clusters", path), ("parts_per_batch", count)]).unwrap();
    for path in [path_of(""), path_of("book.npy")] {
        let sampler = build::sampler(&given(&path, "1"), data).unwrap();
        assert_eq!(sampler.properties().subgraphs, Some(parts.into()));
        let (mut workspace, mut seen) = (sampler::Workspace::new(data.num_nodes()), vec![0; parts.into()]);
        for batch in 0..u64::from(parts) {
            let key = BatchKey { seed: 1, epoch: 0, batch };
            let request = sampler::BatchRequest::new(&data.graph, key);
            let nodes = sampler.sample(&request, &mut workspace, Seeds::default()).unwrap().input_nodes;
            let part = book.part_of(nodes[0]);
            assert!(nodes.iter().all(|&v| book.part_of(v) == part), "a subgraph is one part");
            seen[usize::from(part)] += 1;
        }
        assert!(seen.iter().all(|&times| times == 1), "{seen:?}");
        signature(&given(&path, "2")).unwrap();
    }
    let refused = |path: &str| signature(&given(path, "1")).unwrap_err();
    let degrees = refused(&path_of("part-0000/nodes.npy"));
    assert!(degrees.contains("the dataset has 400; partition this dataset"), "{degrees}");
    assert!(refused(&path_of("none")).contains("none"));
    let both = with(&base, &[("clusters", &path_of("")), ("parts", "9")]).unwrap_err();
    assert!(both.starts_with("--parts 9: --clusters gives the parts"), "{both}");
    let other = with(&self::base("neighbor", "sequential", "cpu"), &[("clusters", "x")]).unwrap_err();
    assert!(other.starts_with("--clusters x: ") && other.contains("cluster"), "{other}");
}

/// Options are refused before a device is opened, so the test needs no device.
#[test]
fn options_that_nvidia_devices_cannot_use_are_refused() {
    for strategy in &strategy::TABLE {
        for devices in ["cuda:0", "cuda:0,1"] {
            let base = base("neighbor", strategy.name, devices);
            let refused = |option: (&str, &str)| with(&base, &[option]).is_err();
            assert!(refused(("link", "1G,1us")) && refused(("host_cache", "lru")), "{}", strategy.name);
            assert!(refused(("peer_timeout", "5")) && refused(("shuffle_parts", "1")));
            assert_eq!(refused(("placement", "replicate")), devices == "cuda:0");
            assert!(!refused(("cuda_graphs", "off")));
        }
    }
}

#[test]
fn options_that_change_no_number_are_refused_if_they_are_not_read() {
    let refused = |sampler: &str, strategy: &str, devices: &str, name: &str| {
        let (_, value, _) = UNSEEN.iter().find(|(row, ..)| *row == name).unwrap();
        with(&base(sampler, strategy, devices), &[(name, value)]).is_err()
    };
    assert!(refused("saint-rw", "sequential", "cpu", "fused"));
    assert!(refused("neighbor", "sequential", "cpu", "link"));
    assert!(!refused("neighbor", "sequential", "virtual:2", "link"));
    for (strategy, devices, is_refused) in [
        ("sequential", "cpu", true),
        ("sequential", "virtual:1", true),
        ("sequential", "virtual:2", false),
        ("time-sharing", "virtual:2", false),
        ("factored", "virtual:2", true),
        ("factored", "virtual:3", false),
    ] {
        let found = refused("neighbor", strategy, devices, "peer_link");
        assert_eq!(found, is_refused, "{strategy} {devices}");
    }
    for entry in strategy::TABLE.iter().filter(is_own) {
        let by = |names: &[&str]| !names.contains(&entry.name);
        assert_eq!(
            refused("neighbor", entry.name, "cpu", "allocation"),
            by(&["pipelined"]),
            "{}",
            entry.name
        );
        assert_eq!(refused("neighbor", entry.name, "virtual:2", "switching"), by(&["factored"]));
        let overlaps = by(&["time-sharing", "layered"]);
        assert_eq!(refused("neighbor", entry.name, "virtual:2", "overlap"), overlaps, "{}", entry.name);
        let queues = ["pipelined", "factored", "time-sharing", "layered"];
        assert_eq!(
            refused("neighbor", entry.name, "virtual:2", "queue_depth"),
            by(&queues),
            "{}",
            entry.name
        );
    }
}

#[test]
fn refusals_give_the_reason_and_the_nearest_alternative() {
    let refusal = |sampler: &str, strategy: &str, devices: &str, name: &str, value: &str| {
        with(&base(sampler, strategy, devices), &[(name, value)]).unwrap_err()
    };
    let message = refusal("neighbor", "sequential", "cpu", "inductive", "true");
    assert!(
        message.starts_with("--inductive true: --sampler neighbor does not use it; use --sampler saint-node")
    );
    assert!(message.ends_with("or leave it out"), "{message}");
    let message = refusal("neighbor", "sequential", "cpu", "hot_ratio", "0.1");
    assert!(message.contains("--reuse none does not use it; use --reuse layered"), "{message}");
    let message = refusal("neighbor", "layered", "virtual:2", "reuse", "none");
    assert!(message.contains("stands for --strategy time-sharing --reuse layered"), "{message}");
    let message = signature(&base("neighbor", "historical+layered", "cpu")).unwrap_err();
    assert!(message.starts_with("--reuse layered: --strategy historical reuses rows itself"), "{message}");
    for strategy in ["historical", "pipelined+layered"] {
        let message = refusal("saint-node", strategy, "cpu", "estimator", "unbiased");
        assert!(message.contains("no sum is estimated"), "{message}");
    }
    let message = refusal("neighbor", "factored", "virtual:2", "staleness", "2");
    assert!(message.contains("use --updates asynchronous"), "{message}");
    let message = refusal("saint-node", "sequential", "cpu", "order", "sequential");
    assert!(message.contains("use --sampler neighbor"), "{message}");
    let message = refusal("neighbor", "factored", "virtual:2", "placement", "shard");
    assert!(message.contains("one device trains and holds all cached rows"), "{message}");
    let message = refusal("neighbor", "sequential", "cpu", "link", "1G,1us");
    assert!(message.contains("use --devices virtual:N"), "{message}");
    let message = refusal("neighbor", "layered", "cpu", "hot_metric", "degree");
    assert!(message.contains("--hot-ratio auto reuses the rows of every node"), "{message}");
    let of = |options: &[(&str, &str)]| {
        let last = options.len() - 1;
        let mut config = base("neighbor", "sequential", "cpu");
        options.iter().for_each(|(name, value)| set(&mut config, name, value));
        config.refuse_unused(&[options[last].0]).unwrap_err().to_string()
    };
    let message = of(&[("layers", "1"), ("hidden", "16")]);
    assert!(
        message.starts_with("--hidden 16: the only layer of --layers 1 outputs the classes"),
        "{message}"
    );
    assert!(message.contains("use --layers 2, --head-layers 1 or --input-layer, or leave it out"));
    let message = of(&[("model", "gin"), ("layers", "1"), ("norm", "layer")]);
    assert!(message.contains("use --norm batch, --layers 2 or --head-layers 1"), "{message}");
    let message = of(&[("model", "gat"), ("layers", "1"), ("heads", "2")]);
    assert!(message.contains("use --out-heads, --layers 2 or --head-layers 1"), "{message}");
    let message = of(&[("model", "gat"), ("head_layers", "1"), ("out_heads", "2")]);
    assert!(message.contains("use --heads or --head-layers 0"), "{message}");
    let message = of(&[("epochs", "10"), ("eval_every", "99"), ("patience", "1")]);
    assert!(message.contains("--eval-every 99 scores only the last of 10 epochs; use --eval-every 5"));
    let message = of(&[("devices", "virtual:2"), ("cache_ratio", "0"), ("placement", "shard")]);
    assert!(message.contains("--cache-ratio 0 caches no rows; raise it"), "{message}");
    let message = of(&[("devices", "virtual:2"), ("placement", "private"), ("peer_link", "1G")]);
    assert!(message.contains("--placement private no device reads the rows of another"), "{message}");
    let fifo = [("devices", "virtual:2"), ("strategy", "time-sharing"), ("cache", "fifo")];
    let fifo = [&fifo[..], &[("cache_ratio", "0.1"), ("placement", "shard")]].concat();
    assert!(of(&fifo).contains("such as --cache posterior:2 or --placement private"), "{}", of(&fifo));
    let mut config = base("neighbor", "time-sharing", "virtual:2");
    fifo[2..].iter().for_each(|(name, value)| set(&mut config, name, value));
    set(&mut config, "placement", "private");
    config.refuse_unused(&["placement"]).unwrap();
}

#[test]
fn policies_of_absent_caches_are_reported() {
    let notes = |options: &[(&str, &str)]| {
        let mut config = base("neighbor", "sequential", "cpu");
        options.iter().for_each(|(name, value)| set(&mut config, name, value));
        let mut notes = Notes::default();
        let context = RunContext { run: None, resume: false, observer: &mut notes, stop: &|| false };
        train(&config, &data().1, context).unwrap();
        notes.0
    };
    let fits = "is not used: the 64000 bytes of all feature rows fit in --host-budget 1000000";
    assert_eq!(notes(&[("host_budget", "1000000"), ("cache", "lru")]), [format!("--cache lru {fits}")]);
    let on_device = [("devices", "virtual:1"), ("host_budget", "1000000"), ("host_cache", "lru")];
    assert_eq!(notes(&on_device), [format!("--host-cache lru {fits}")]);
    assert!(notes(&[("host_budget", "1000000")]).is_empty());
    assert!(notes(&[("host_budget", "20000"), ("cache", "lru")]).is_empty());
}

#[test]
fn stored_weights_of_a_graph_without_weights_are_reported() {
    struct All(Vec<String>);
    impl Observer for All {
        fn note(&mut self, message: &str) {
            self.0.push(message.to_string());
        }
    }
    let options = GenerateOptions { nodes: 60, classes: 3, dim: 4, ..GenerateOptions::default() };
    let data = generate("sbm", &options).unwrap();
    let notes = |edge_weights: &str| {
        let mut config = base("labor", "sequential", "cpu");
        set(&mut config, "edge_weights", edge_weights);
        let mut all = All(Vec::new());
        let context = RunContext { run: None, resume: false, observer: &mut all, stop: &|| false };
        train(&config, &data, context).unwrap();
        all.0
    };
    let note = "this dataset has no edge weights: --sampler labor with --edge-weights stored gives all edges \
                equal weight";
    assert!(notes("stored").iter().any(|one| one == note));
    assert!(!notes("in-degree").iter().any(|one| one.contains("no edge weights")));
}

#[test]
fn directions_need_aggregated_rows() {
    let rank = |hot_rank| {
        let config = TrainConfig { hidden: 8, ..base("neighbor", "layered", "cpu") };
        config.with(|layered: &mut strategy::LayeredOptions| layered.hot_rank = hot_rank)
    };
    let message = signature(&rank(2)).unwrap_err();
    assert!(
        message.contains("--hot-rank 2: the bottom layer of this sage has no aggregated rows"),
        "{message}"
    );
    signature(&rank(0)).unwrap();
    signature(&TrainConfig { hidden: 8, ..base("neighbor", "layered", "cpu") }).unwrap();
}

#[test]
fn weighted_draws_need_weights() {
    let options = GenerateOptions { nodes: 60, classes: 3, dim: 4, ..GenerateOptions::default() };
    let data = generate("sbm", &options).unwrap();
    let plain =
        TrainConfig { sampler: "weighted".into(), batch_size: 16, epochs: 1, ..TrainConfig::default() };
    let run = |config: &TrainConfig| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        train(config, &data, context).map(drop)
    };
    let message = run(&plain).unwrap_err();
    assert!(matches!(&message, Error::Usage(_)), "{message}");
    assert!(message.to_string().contains("--sampler weighted: the graph stores no edge weights; use"));
    let with = |options: &[(&str, &str)]| {
        let mut config = plain.clone();
        options.iter().for_each(|(name, value)| set(&mut config, name, value));
        config
    };
    run(&with(&[("replace", "true")])).unwrap();
    run(&with(&[("edge_weights", "in-degree")])).unwrap();
    let sums = with(&[("replace", "true"), ("weighted_index", "prefix-sums")]);
    assert!(run(&sums).unwrap_err().to_string().contains("--weighted-index prefix-sums changes nothing"));
}

#[test]
fn files_of_earlier_runs_may_set_options_that_the_run_did_not_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let saint = TrainConfig { sampler: "saint-node".into(), ..TrainConfig::default() };
    for run in [saint, base("neighbor", "layered", "cpu"), base("neighbor", "factored", "virtual:3")] {
        let mut run = run;
        let defaults =
            [("sample_coverage", "50"), ("frontier_size", "1000"), ("parts", "50"), ("parts_per_batch", "5")];
        defaults.into_iter().for_each(|(name, value)| set(&mut run, name, value));
        set(&mut run, "layers", "3");
        run.derive_options(&["layers"]).unwrap();
        fs::write(file.path(), run.to_toml()).unwrap();
        let mut again = TrainConfig::default();
        let given = again.read_file(file.path()).unwrap();
        again.derive_options(&given).unwrap();
        again.refuse_unused(&again.beyond_defaults(&given)).unwrap();
        // except options that only another run reads
        fs::write(file.path(), "burning = 0.2\n").unwrap();
        let given = again.read_file(file.path()).unwrap();
        let refused = again.refuse_unused(&again.beyond_defaults(&given)).unwrap_err();
        assert!(refused.to_string().starts_with("--burn-prob 0.2: "), "{refused}");
    }
}
