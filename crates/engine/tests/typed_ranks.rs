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

use graphmill_core::{ClassColumn, Labels, keyed, progress};
use graphmill_data::{
    TypedDataset,
    generate::{GenerateOptions, generate_typed},
    partition::{Description, PartitionBook, TypedPartitionDir, write_types},
    typed::{FeatureTable, Targets, Task},
};
use graphmill_distributed::Messenger;
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    observer::{Observer, Progress, Quiet},
    record::Summary,
    saved::SavedRun,
    typed::{self, SavedTypedRun, train_over_ranks},
};
use graphmill_loader::Fanout;
use half::f16;

use crate::ranks::{PATIENCE, assert_alike, close, on_ranks};
use crate::scoring_interval::interval;
use crate::set::with;

const PARTS: u16 = 4;

/// A dataset whose `topic` nodes have learned rows.
fn data() -> TypedDataset {
    data_of(6)
}

/// The same with rows of `dim` features.
pub(crate) fn data_of(dim: usize) -> TypedDataset {
    let options =
        GenerateOptions { nodes: 700, classes: 4, dim, p_in: 0.9, signal: 1.0, ..GenerateOptions::default() };
    generate_typed("typed", &options).unwrap()
}

/// The dataset with features of the edges of two thirds of the types, as f16, f32 and integers.
pub(crate) fn with_edge_features(mut data: TypedDataset) -> TypedDataset {
    for (r, edges) in data.edges.iter_mut().enumerate().filter(|(r, _)| r % 3 < 2) {
        let width = 1 + r % 2;
        let values = (0..edges.num_edges() * width).map(|i| (i * 7 % 13) as f32 - 6.0);
        edges.features = Some(match r % 4 {
            0 => FeatureTable::dense(width, values.map(f16::from_f32).collect::<Vec<_>>()),
            1 => FeatureTable::dense(width, values.collect::<Vec<_>>()),
            _ => FeatureTable::dense(width, values.map(|x| x as i32).collect::<Vec<_>>()),
        });
    }
    data
}

/// The papers of the dataset with the citations among them.
fn of_one_type(mut data: TypedDataset) -> TypedDataset {
    data.nodes.truncate(1);
    data.edges.retain(|edges| {
        (&edges.edge_type.source[..], &edges.edge_type.destination[..]) == ("paper", "paper")
    });
    data.edges.truncate(1);
    data.edges[0].reverse = None;
    data
}

/// The dataset whose edges of all types but the last, nodes of another type than the task's, and
/// rows of the task have times.
fn with_times(mut data: TypedDataset) -> TypedDataset {
    let last = data.edges.len() - 1;
    for edges in &mut data.edges[..last] {
        let times = (0..edges.num_edges() as i64).map(|e| e * 31 % 60);
        edges.time = Some(times.collect::<Vec<_>>().into());
    }
    let name = data.tasks[0].on.to_string();
    let of_task = data.nodes.iter().position(|nodes| nodes.name == name).unwrap();
    let other = &mut data.nodes[(of_task + 1) % 2];
    other.time = Some((0..other.count as i64).map(|v| v % 20).collect::<Vec<_>>().into());
    let rows = data.nodes[of_task].count as i64;
    data.tasks[0].time = Some((0..rows).map(|v| 20 + v * 7 % 40).collect::<Vec<_>>().into());
    data
}

/// Partition of the dataset, by a hash of the global ids.
pub(crate) fn partitioned(data: &TypedDataset, dir: &Path) -> TypedPartitionDir {
    let part = |v: u64| (keyed::key(&[v]) % u64::from(PARTS)) as u16;
    let book = PartitionBook::new(PARTS, (0..data.num_nodes() as u64).map(part).collect::<Vec<_>>());
    let what = Description { method: "hash", ..Description::default() };
    write_types(data, &book.unwrap(), &what, dir, &progress::Quiet).unwrap()
}

fn config(options: &str) -> TrainConfig {
    config_on("", options)
}

/// Options of a run on the partition in a directory. Its tasks decide what models of edges learn.
fn config_on(dataset: &str, options: &str) -> TrainConfig {
    let config = TrainConfig {
        dataset: dataset.into(),
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

/// The same run without workers and caches.
fn plain(config: &TrainConfig) -> TrainConfig {
    with(config.clone(), "strategy=sequential cache_ratio=auto")
}

fn alone(config: &TrainConfig, data: &TypedDataset) -> Summary {
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    typed::train(config, data, context).unwrap()
}

pub(crate) fn run(config: &TrainConfig, dir: &TypedPartitionDir, post: Arc<Messenger>) -> Result<Summary> {
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    train_over_ranks(config, dir, post, context)
}

pub(crate) fn over_ranks(config: &TrainConfig, dir: &TypedPartitionDir, size: usize) -> Vec<Summary> {
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
        (2, "model=rgcn feature_precision=f16"),
        (4, "model=rsage norm=layer strategy=pipelined"),
        (3, "model=rgat heads=2 sampler=labor clip=0.3"),
        (2, "model=hgt heads=2"),
        (3, "model=simple-hgn heads=2 head_layers=2 precision=tf32"),
        (2, "model=rsage sampler=full batch_size=0"),
        (4, "model=rgcn batch_size=5"),
        (3, "model=rsage order=balanced batch_size=20"),
        (1, "model=hgt heads=2 sampler=hgt fanout=20,20"),
        (3, "model=rsage sampler=metapath-walk num_walks=8"),
        (2, "model=hgt heads=2 sampler=metapath-walk walk_length=2 strategy=pipelined"),
        (1, "model=rgcn sampler=metapath-walk"),
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
fn all_ranks_score_the_same_epochs() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = config("eval_every=auto epochs=6 batch_size=200 fanout=2,1");
    let many = over_ranks(&config, &dir, 2);
    let epochs = |summary: &Summary| {
        summary.epochs.iter().map(|epoch| epoch.valid_score.map(f64::to_bits)).collect::<Vec<_>>()
    };
    assert!(interval(&many[0]) > 1);
    assert!(many.iter().all(|rank| epochs(rank) == epochs(&many[0])));
}

#[test]
fn ranks_start_from_a_run_with_the_learned_rows_of_their_nodes() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let out = temporary.path().join("run");
    let run = RunDir::create(&out).unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    typed::train(&config("model=rsage lr=0.05"), &data, context).unwrap();
    drop(run);
    let config = TrainConfig { start_from: out.display().to_string(), seed: 7, ..config("model=rsage") };
    let (one, many) = (alone(&config, &data), over_ranks(&config, &dir, 3));
    assert_alike(&one, &many, "started from a run");
    let fresh = alone(&TrainConfig { start_from: String::new(), ..config }, &data);
    assert!(one.epochs[0].loss < 0.9 * fresh.epochs[0].loss, "the start matters");
}

#[test]
fn learned_rows_that_have_grown_start_over_ranks_as_in_one_process() {
    let (mut data, temporary) = (data(), tempfile::tempdir().unwrap());
    data.checksum = Some("of-the-run".into());
    let out = temporary.path().join("run");
    let run = RunDir::create(&out).unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    typed::train(&config("model=rsage lr=0.05"), &data, context).unwrap();
    drop(run);
    // seven more topics, without edges
    let mut longer = TypedDataset { checksum: None, ..data };
    let topic = longer.nodes.iter_mut().find(|nodes| nodes.name == "topic").unwrap();
    topic.count += 7;
    for edges in longer.edges.iter_mut().filter(|edges| edges.edge_type.destination == "topic") {
        let end = edges.num_edges() as u64;
        edges.indptr = edges.indptr.iter().copied().chain([end; 7]).collect::<Vec<_>>().into();
    }
    let record = serde_json::json!({ "version": 1, "appended": [{ "checksum": "of-the-run" }] });
    longer.preprocessing = Some(record);
    let dir = partitioned(&longer, &temporary.path().join("parts"));
    let config = TrainConfig { start_from: out.display().to_string(), seed: 7, ..config("model=rsage") };
    assert_alike(&alone(&config, &longer), &over_ranks(&config, &dir, 3), "grown rows");
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
fn several_columns_of_classes_are_learned_over_ranks() {
    let (mut data, temporary) = (data(), tempfile::tempdir().unwrap());
    let Targets::Classes(Labels::Single { class, classes }) = &data.tasks[0].targets else {
        panic!("classes")
    };
    let columns =
        [("kind", *classes), ("half", 2)].map(|(name, classes)| ClassColumn { name: name.into(), classes });
    // the second column is missing for every third node
    let half =
        |(v, &class): (usize, &i32)| [class, if v.is_multiple_of(3) { -1 } else { i32::from(class > 1) }];
    let class: Vec<i32> = class.iter().enumerate().flat_map(half).collect();
    data.tasks[0].targets =
        Targets::Classes(Labels::Columns { class: class.into(), columns: columns.to_vec() });
    data.tasks[0].names.clear();
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = config("model=rsage");
    let (one, many) = (alone(&config, &data), over_ranks(&config, &dir, 2));
    assert_alike(&one, &many, "columns");
    assert_eq!((&many[0].dataset.columns, &many[0].dataset), (&columns.to_vec(), &one.dataset));
    assert_eq!(bits(&over_ranks(&config, &dir, 1)), losses(&one));
}

#[test]
fn models_that_read_edge_features_give_the_losses_of_one_process() {
    let temporary = tempfile::tempdir().unwrap();
    let typed = with_edge_features(data());
    let dir = partitioned(&typed, &temporary.path().join("parts"));
    let one_type = with_edge_features(of_one_type(data()));
    let of_one = partitioned(&one_type, &temporary.path().join("one"));
    for (size, options, on) in [
        (1, "model=gatv2-edge heads=2", (&typed, &dir)),
        (2, "model=gine", (&typed, &dir)),
        (3, "model=sage-edge strategy=pipelined", (&typed, &dir)),
        (4, "model=edge-gated sampler=full", (&typed, &dir)),
        (2, "model=gatv2-edge heads=2 cache_ratio=0.2", (&typed, &dir)),
        (1, "model=gine", (&one_type, &of_one)),
        (3, "model=edge-gated", (&one_type, &of_one)),
    ] {
        let (data, dir) = on;
        let config = config_on(dir.path().to_str().unwrap(), &format!("{options} epochs=2"));
        let one = alone(&plain(&config), data);
        let many = over_ranks(&config, dir, size);
        assert_alike(&one, &many, options);
        if size == 1 {
            assert_eq!(losses(&one), losses(&many[0]), "{options}");
        } else {
            assert_eq!(bits(&many), bits(&over_ranks(&config, dir, size)), "{options}: again");
        }
    }
}

#[test]
fn tasks_at_times_give_the_losses_of_one_process() {
    let temporary = tempfile::tempdir().unwrap();
    let data = with_times(with_edge_features(data()));
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (size, options) in [
        (1, "model=rsage"),
        (2, "model=rsage time_bound=inclusive"),
        (3, "model=rgcn time_draw=last strategy=pipelined"),
        (4, "model=rgat heads=2 time_draw=recency time_half_life=9 time_carry=edge"),
        (2, "model=rsage sampler=full time_window=25"),
        (2, "model=sage-edge cache_ratio=0.2"),
        (1, "model=gine time_draw=last"),
    ] {
        let config = config_on(dir.path().to_str().unwrap(), &format!("{options} epochs=2"));
        let one = alone(&plain(&config), &data);
        let many = over_ranks(&config, &dir, size);
        assert_alike(&one, &many, options);
        if size == 1 {
            assert_eq!(losses(&one), losses(&many[0]), "{options}");
            assert_eq!(one.epochs[1].node_types, many[0].epochs[1].node_types, "{options}");
        } else {
            assert_eq!(bits(&many), bits(&over_ranks(&config, &dir, size)), "{options}: again");
        }
    }
}

#[test]
fn results_do_not_depend_on_the_threads_of_the_ranks() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = partitioned(&with_times(with_edge_features(data())), &temporary.path().join("parts"));
    for options in ["model=rgat heads=2 dropout=0.3", "model=gatv2-edge heads=2 epochs=2"] {
        let config = config_on(dir.path().to_str().unwrap(), options);
        assert_eq!(of_threads(&config, &dir, [1, 1]), of_threads(&config, &dir, [3, 2]), "{options}");
    }
}

/// Losses of two ranks with these threads.
fn of_threads(config: &TrainConfig, dir: &TypedPartitionDir, threads: [usize; 2]) -> Vec<(u64, Option<u64>)> {
    bits(&on_ranks(2, PATIENCE, |rank, post| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads[rank]).build().unwrap();
        pool.install(|| run(config, dir, post).unwrap())
    }))
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
pub(crate) fn with_directory(
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

/// Losses of all ranks, which are the same.
fn bits(summaries: &[Summary]) -> Vec<(u64, Option<u64>)> {
    assert!(summaries.iter().all(|of| losses(of) == losses(&summaries[0])));
    losses(&summaries[0])
}

#[test]
fn caches_over_ranks_change_no_bit_and_save_requests() {
    let (data, temporary) = (data_of(40), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let rows: usize = data.nodes.iter().filter(|of| of.features.is_some()).map(|of| of.count).sum();
    // own rows of three ranks are about a third of all; maps take 8 bytes a row
    let [whole, fifth] = [160 * rows, 32 * rows];
    let plain = over_ranks(&config("model=rsage epochs=2"), &dir, 3);
    let remote = |of: &[Summary]| of[0].epochs[1].traffic.remote.rows;
    let all = remote(&plain);
    for options in [
        "cache_ratio=0.2",
        "cache_ratio=0.2 cache=lru",
        "cache_ratio=0.2 cache=degree strategy=pipelined",
        "cache_ratio=0.3 cache=stored-order",
        // own rows in memory, and rows of others in the rest
        "host_budget=WHOLE cache=presc:1",
        // own rows on disk
        "host_budget=FIFTH",
        "host_budget=FIFTH cache=s3-fifo",
        "devices=virtual:2 cache_ratio=0.1 cache=degree",
        "devices=virtual:1 cache_ratio=0.1 host_budget=FIFTH",
    ] {
        let sized = options.replace("WHOLE", &whole.to_string()).replace("FIFTH", &fifth.to_string());
        let config = config(&format!("model=rsage epochs=2 {sized}"));
        let cached = over_ranks(&config, &dir, 3);
        assert_eq!(bits(&cached), bits(&plain), "{options}");
        assert!(remote(&cached) < all, "{options}: {} of {all}", remote(&cached));
        let traffic = cached[0].epochs[1].traffic;
        assert_eq!(traffic.disk.rows > 0, options.contains("FIFTH"), "{options}");
        assert_eq!(traffic.device.rows > 0, options.contains("virtual"), "{options}");
    }
    let small = config(&format!("model=rsage cache_ratio=0.9 host_budget={fifth}"));
    for end in on_ranks(2, Duration::from_secs(10), |_, post| run(&small, &dir, post)) {
        assert!(end.unwrap_err().to_string().contains("use --cache-ratio auto"));
    }
}

/// The rows that ranks request of each other in an epoch, as counted before a run.
#[test]
fn planned_caches_serve_the_requests_that_those_of_ranks_serve() {
    let (data, temporary) = (data_of(40), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let requested = |config: &TrainConfig| {
        // the same sum over all ranks in each summary
        over_ranks(config, &dir, usize::from(PARTS))[0].epochs[0].traffic.remote.rows as f64
    };
    let without = requested(&config("model=rsage epochs=1"));
    for options in [
        "",
        "cache_ratio=0.2",
        "cache_ratio=0.2 cache=lru",
        "cache_ratio=0.3 cache=stored-order",
        "devices=virtual:2 cache_ratio=0.1",
    ] {
        let config = config(&format!("model=rsage epochs=1 {options}"));
        let (found, costs) = (requested(&config), typed::machines::measure(&config, &data, &dir, 0).unwrap());
        let planned = costs.requests.remote_rows as f64;
        assert!((planned / found - 1.0).abs() < 0.05, "{options}: {planned} {found}");
        let served = 1.0 - found / without;
        assert!((costs.cache.hit_rate - served).abs() < 0.05, "{options}: {:?} {served}", costs.cache);
        assert_eq!(costs.cache.bytes > 0.0, !options.is_empty(), "{options}");
    }
}

#[test]
fn checkpoints_hold_what_each_rank_has_counted_for_its_caches() {
    let (data, temporary) = (data_of(40), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let plain = over_ranks(&config("model=rsage epochs=4"), &dir, 3);
    let batches = plain[0].epochs[0].seeds.div_ceil(60);
    let remote =
        |of: &[Summary]| -> Vec<u64> { of[0].epochs.iter().map(|epoch| epoch.traffic.remote.rows).collect() };
    let expected = remote(&plain);
    for (i, options) in
        ["cache_ratio=0.2", "devices=virtual:1 cache_ratio=0.2 strategy=pipelined"].into_iter().enumerate()
    {
        let config = config(&format!("model=rsage epochs=4 cache=presc-online:2 {options}"));
        let whole = over_ranks(&config, &dir, 3);
        assert_eq!(bits(&whole), bits(&plain), "{options}");
        let found = remote(&whole);
        assert_eq!(found[..2], expected[..2], "{options}");
        assert!(found[2] < expected[2] && found[3] < expected[3], "{options}: {found:?} {expected:?}");
        assert_eq!(whole[0].presampling.unwrap().drawn_batches, 0, "{options}");
        for (after, size) in [(batches + 1, 3), (3 * batches + 1, 3), (batches + 1, 2)] {
            let out = temporary.path().join(format!("run-{i}-{after}-{size}"));
            for end in with_directory(&config, &dir, 3, &out, Some((1, after))) {
                assert!(matches!(end, Err(Error::Interrupted { .. })), "{end:?}");
            }
            let resumed: Vec<Summary> =
                with_directory(&config, &dir, size, &out, None).into_iter().map(Result::unwrap).collect();
            if size == 3 {
                // the first rank has the records of the epochs before the interruption
                assert_eq!(losses(&resumed[0]), losses(&whole[0]), "{options} {after}");
                assert_eq!(remote(&resumed), found, "{options} {after}");
            }
        }
    }
}

#[test]
fn samplers_that_read_shares_of_batches_train_over_ranks() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for options in
        ["model=hgt heads=2 sampler=hgt fanout=30,30", "model=rsage sampler=labor labor_iterations=2"]
    {
        let config = config(options);
        let (one, many) = (alone(&config, &data), over_ranks(&config, &dir, 3));
        let scores = [&one, &many[0]].map(|of| of.test.score.unwrap());
        assert!((scores[0] - scores[1]).abs() < 0.1, "{options}: {scores:?}");
        assert_eq!(bits(&many), bits(&over_ranks(&config, &dir, 3)), "{options}");
        assert_eq!(bits(&over_ranks(&config, &dir, 1)), losses(&one), "{options}");
    }
}

#[test]
fn stopped_runs_resume_to_the_same_bits() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = config("model=rgcn dropout=0.2 strategy=pipelined precision=bf16 clip=0.3");
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

#[test]
fn subgraphs_of_own_nodes_learn_and_resume_to_the_same_bits() {
    let temporary = tempfile::tempdir().unwrap();
    let data = with_edge_features(data());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let at = dir.path().to_str().unwrap();
    for (i, options) in [
        "model=rsage sampler=saint-node",
        "model=rgcn sampler=saint-edge strategy=pipelined",
        "model=gine sampler=saint-rw walk_length=2",
    ]
    .into_iter()
    .enumerate()
    {
        let config = config_on(at, &format!("{options} batch_size=60 sample_coverage=20 epochs=8"));
        let (one, rank) = (alone(&plain(&config), &data), over_ranks(&config, &dir, 1));
        for (a, b) in one.epochs.iter().zip(&rank[0].epochs) {
            assert!(close(a.loss, b.loss), "{options}: {} {}", a.loss, b.loss);
            let bits = |x: Option<f64>| x.map(f64::to_bits);
            assert_eq!(bits(a.valid_loss), bits(b.valid_loss), "{options}: a rank draws as one process");
        }
        let many = over_ranks(&config, &dir, 3);
        let (first, last) = (&many[0].epochs[0], &many[0].epochs[7]);
        assert!(last.loss < first.loss, "{options}: {} {}", first.loss, last.loss);
        assert_eq!(first.traffic.remote.rows, 0, "{options}: no rank reads rows of others");
        assert_eq!(first.ranks.iter().map(|rank| rank.seeds).sum::<u64>(), first.seeds, "{options}");
        assert!(first.ranks.iter().all(|rank| rank.seeds > 0), "{options}");
        assert_eq!(of_threads(&config, &dir, [1, 1]), of_threads(&config, &dir, [3, 2]), "{options}");
        // the same ranks have the same bits; of more ranks, an epoch has fewer subgraphs
        for size in [3, 4] {
            let out = temporary.path().join(format!("run-{i}-{size}"));
            for end in with_directory(&config, &dir, 3, &out, Some((1, 4))) {
                assert!(matches!(end, Err(Error::Interrupted { .. })), "{end:?}");
            }
            let resumed = with_directory(&config, &dir, size, &out, None);
            let resumed = resumed.into_iter().map(Result::unwrap).next().unwrap();
            assert_eq!(resumed.epochs.len(), 8, "{options}");
            assert!(size != 3 || losses(&resumed) == bits(&many), "{options}");
        }
    }
}

#[test]
fn ranks_without_training_nodes_have_no_subgraphs() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    // the task's type is the first, so its ids are global ones
    let train = &data.tasks[0].split.train;
    let part = |v: u32| if train.contains(&v) { 0 } else { v as u16 % PARTS };
    let book = PartitionBook::new(PARTS, (0..data.num_nodes() as u32).map(part).collect::<Vec<_>>());
    let path = temporary.path().join("parts");
    let dir = write_types(&data, &book.unwrap(), &Description::default(), &path, &progress::Quiet).unwrap();
    refused(&config("sampler=saint-rw"), &dir, 2, "rank 1: its parts have no training nodes");
    over_ranks(&config("sampler=saint-rw epochs=1"), &dir, 1);
}

/// Asserts that all ranks end with an error that contains `part`.
pub(crate) fn refused(config: &TrainConfig, dir: &TypedPartitionDir, size: usize, part: &str) {
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
        (2, "sampler=saint-edge batch_size=1", "a budget of 1 nodes holds no edge"),
        (2, "cache_ratio=0.1 cache=analytic", "expects one fanout for all neighbours"),
        (2, "strategy=factored", "it runs on simulated devices; use --devices virtual:N"),
        (5, "model=rsage", "partition with --parts 5 or more"),
    ] {
        refused(&config(options), &dir, size, part);
    }
    let gine = |dir: &TypedPartitionDir, options: &str| {
        config_on(dir.path().to_str().unwrap(), &format!("model=gine {options}"))
    };
    refused(&gine(&dir, ""), &dir, 2, "no edge type has features, which --model gine reads");
    let dir = partitioned(&with_edge_features(data.clone()), &temporary.path().join("edges"));
    refused(&gine(&dir, "sampler=labor"), &dir, 2, "it does not name the edges that it draws");
    let dir = partitioned(&with_times(data), &temporary.path().join("times"));
    refused(&config("sampler=labor"), &dir, 2, "use --sampler neighbor or full");
}

/// Fails before batch `0` of its count, as a machine that dies.
pub(crate) struct Dies(pub(crate) u64);

impl Observer for Dies {
    fn batch(&mut self, _: &Progress) -> Result<()> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| Error::usage("the machine died"))?;
        Ok(())
    }
}

#[test]
fn checkpoints_of_dead_runs_have_the_rows_and_counts_of_all_ranks() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = config("model=rgcn checkpoint_batches=2");
    let whole = over_ranks(&config, &dir, 3);
    let batches = whole[0].epochs[0].seeds.div_ceil(60);
    let out = temporary.path().join("run");
    let ends = on_ranks(3, PATIENCE, |rank, post| {
        let run = (rank == 0).then(|| RunDir::create(&out).unwrap());
        let mut observer = Dies(if rank == 1 { batches + 3 } else { u64::MAX });
        let context =
            RunContext { run: run.as_ref(), resume: false, observer: &mut observer, stop: &|| false };
        train_over_ranks(&config, &dir, post, context)
    });
    assert!(ends.iter().all(Result::is_err));
    let resumed: Vec<Summary> =
        with_directory(&config, &dir, 3, &out, None).into_iter().map(Result::unwrap).collect();
    // only rank 0 reads the records of earlier epochs
    assert_eq!(losses(&resumed[0]), bits(&whole));
    let (found, expected) = (&resumed[0].epochs, &whole[0].epochs);
    for (a, b) in found.iter().zip(expected) {
        assert_eq!((&a.node_types, &a.edge_types), (&b.node_types, &b.edge_types));
        assert_eq!(a.sampled_edges, b.sampled_edges);
        assert_eq!(a.traffic.remote.rows, b.traffic.remote.rows);
    }
    // a run directory has the learned rows of all ranks
    let saved = SavedRun::open(&out, false).unwrap();
    let scores = SavedTypedRun::of(&saved).unwrap().scores(&data, &Quiet).unwrap();
    assert!((scores.test.unwrap() - whole[0].test.score.unwrap()).abs() < 1e-6);
}
