//! Reused rows over ranks: the owners of hot nodes make them, no row is older than its bound, and
//! all ranks train to the same bits.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use graphmill_core::{Graph, keyed};
use graphmill_data::{
    Dataset,
    generate::{GenerateOptions, generate},
    partition::PartitionDir,
};
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    observer::{Observer, Progress, Quiet},
    record::Summary,
    trainer::over_ranks as train_on_ranks,
};
use rayon::ThreadPoolBuilder;

use crate::ranks::{
    PARTS, PATIENCE, alone, assert_alike, close, config, data, on_ranks, over_ranks, partitioned,
    partitioned_by,
};
use crate::set::with;

fn settled(options: &str) -> TrainConfig {
    let mut config = with(config(), &format!("reuse=layered {options}"));
    config.derive_options(&["fanout", "layers"]).unwrap();
    config
}

fn bits(summary: &Summary) -> Vec<u64> {
    summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect()
}

/// Rows that epochs requested, reused and made.
fn rows(summary: &Summary) -> Vec<[u64; 4]> {
    let of = |epoch: &graphmill_engine::record::EpochRecord| {
        let reuse = epoch.reuse.expect("rows were reused");
        [reuse.asked_rows, reuse.reused_rows, reuse.made_rows, reuse.made_edges]
    };
    summary.epochs.iter().map(of).collect()
}

/// With frozen parameters, stale rows equal new ones; without staleness and with all gradients,
/// training is exact.
#[test]
fn ranks_have_the_losses_of_one_process_where_rows_are_exact() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    // a row that several batches share has one draw, so all neighbours are taken
    let frozen = "sampler=full lr=1e-30 hot_prefetch=on super_batch=3";
    let exact = "devices=virtual:1 super_batch=1 hot_prefetch=off hot_gradient=kept";
    for (size, options) in [
        (3, frozen.to_string()),
        (2, format!("{frozen} model=gcn hot_rank=0 strategy=pipelined allocation=1,1,1")),
        (4, format!("{frozen} model=gat hot_gradient=none")),
        (1, frozen.to_string()),
        (3, format!("{exact} model=sage")),
        (2, format!("{exact} model=gcn strategy=time-sharing batches_per_update=1")),
    ] {
        let config = settled(&options);
        let one = alone(&with(config.clone(), "strategy=sequential devices=cpu reuse=none"), &data);
        let many = over_ranks(&config, &dir, size);
        assert_alike(&one, &many, &options);
        assert!(many.iter().all(|summary| rows(summary) == rows(&many[0])), "{options}");
        let [asked, reused, made, edges] = rows(&many[0])[1];
        assert!(reused > 0 && reused <= asked && made > 0 && edges > 0, "{options}: {asked}, {reused}");
    }
}

#[test]
fn rows_of_other_ranks_have_a_bounded_age() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let mut sequential = None;
    for (options, bound) in [
        ("super_batch=3 hot_prefetch=on dropout=0.2", 5),
        ("super_batch=3 hot_prefetch=on dropout=0.2 strategy=pipelined", 5),
        ("super_batch=3 hot_prefetch=on dropout=0.2 strategy=pipelined allocation=1,1,1", 5),
        ("super_batch=3 hot_prefetch=off", 2),
        ("super_batch=3 hot_prefetch=on max_variation=0.02", 5),
        ("super_batch=4 hot_prefetch=on strategy=time-sharing devices=virtual:2 cache_ratio=0.1", 3),
        ("super_batch=3 strategy=time-sharing devices=virtual:2 updates=asynchronous staleness=2", 7),
        ("super_batch=0 hot_prefetch=on", 15),
        ("super_batch=3 hot_gradient=kept sampler=labor", 2),
        // ranks agree on the hot nodes: they add up scores, and follow the one that waits most
        ("super_batch=3 hot_metric=degree hot_ratio=0.2", 2),
        ("super_batch=3 hot_metric=presc:1 hot_ratio=0.2 hot_prefetch=on", 5),
        ("super_batch=2 strategy=time-sharing devices=virtual:1 hot_ratio=0.3 hot_split=timed", 3),
    ] {
        let config = settled(options);
        let many = over_ranks(&config, &dir, 3);
        for summary in &many {
            assert_eq!(bits(summary), bits(&many[0]), "{options}: ranks differ");
            assert!(summary.staleness.max <= summary.staleness.bound, "{options}");
            assert!(summary.staleness.bound <= bound && summary.staleness.max > 0, "{options}");
        }
        let epochs = &many[0].epochs;
        assert!(epochs[2].loss < epochs[0].loss, "{options}");
        let is_timed = options.contains("timed");
        if !is_timed && (options.contains("max_variation") || options.contains("devices")) {
            assert_eq!(bits(&over_ranks(&config, &dir, 3)[0]), bits(&many[0]), "{options}: timing matters");
        }
        if options.contains("dropout") {
            assert_eq!(*sequential.get_or_insert(bits(&many[0])), bits(&many[0]), "{options}");
        }
        let exact = "strategy=sequential devices=cpu cache_ratio=auto reuse=none";
        let one = alone(&with(config.clone(), exact), &data);
        let (a, b) = (epochs[2].valid_loss.unwrap(), one.epochs[2].valid_loss.unwrap());
        assert!((a - b).abs() < 0.2 * b, "{options}: {a}, and {b} without reuse");
    }
}

/// Each rank counts its shares and the rows that it makes, and the sum decides.
#[test]
fn ranks_decide_together_whether_reuse_pays() {
    let temporary = tempfile::tempdir().unwrap();
    for (dim, chosen) in [(1000, "layered"), (6, "none")] {
        let options =
            GenerateOptions { nodes: 300, degree: Some(20.0), classes: 3, dim, ..GenerateOptions::default() };
        let mut data = generate("sbm", &options).unwrap();
        data.split.train = data.split.train[..140].to_vec().into();
        let dir = partitioned(&data, &temporary.path().join(chosen));
        let of = |reuse: &str| {
            let options = "model=gcn hidden=64 fanout=5,5 batch_size=16 epochs=2 super_batch=8 hot_rank=2";
            let mut config = with(config(), &format!("{options} reuse={reuse}"));
            config.derive_options(&["fanout", "layers"]).unwrap();
            over_ranks(&config, &dir, 2)
        };
        let (decided, layered, none) = (of("auto"), of("layered"), of("none"));
        assert_ne!(bits(&layered[0]), bits(&none[0]));
        let expected = if chosen == "layered" { &layered } else { &none };
        for (rank, expected) in decided.iter().zip(expected) {
            assert_eq!(bits(rank), bits(expected), "{dim} features");
            assert_eq!(rank.epochs[0].reuse.is_some(), chosen == "layered", "{dim} features");
        }
    }
}

/// A budget of device memory changes where rows are read, not their bits. A number of hot nodes is
/// given, because by default the budget limits it.
#[test]
fn device_budgets_hold_reused_rows_and_change_no_bit() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let base = "super_batch=3 hot_prefetch=off hot_rank=0 hot_ratio=0.2 cache=degree";
    for (size, options) in [
        (3, "devices=virtual:1 hot_split=1"),
        (2, "devices=virtual:2 hot_split=1 strategy=time-sharing"),
        // each rank counts the bytes of its shares, and all choose the same split
        (2, "devices=virtual:1 hot_split=auto strategy=time-sharing"),
        (2, "devices=virtual:1 hot_split=1 sampler=saint-rw batch_size=60 walk_length=2"),
    ] {
        let config = settled(&format!("{base} {options}"));
        let whole = over_ranks(&config, &dir, size);
        let divided = over_ranks(&with(config.clone(), "device_budget=100000000"), &dir, size);
        for summary in &divided {
            assert_eq!(bits(summary), bits(&whole[0]), "{options}");
            assert_eq!(rows(summary), rows(&whole[0]), "{options}");
            assert!(summary.staleness.max <= summary.staleness.bound, "{options}");
        }
        let traffic = divided[0].epochs[1].traffic;
        assert!(traffic.device.rows > 0, "{options}: the cache has the rest: {traffic:?}");
    }
    // one table of 180 rows of 16 values, as in one process, beside a step that does not fit
    let config = settled(&format!("{base} devices=virtual:1 hot_split=1 device_budget=20000"));
    let ends = on_ranks(2, PATIENCE, |_, post| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        train_on_ranks::train(&config, &dir, post, context).unwrap_err().to_string()
    });
    let charged = "bytes of a device, reused rows 11520, and the maps";
    assert!(ends.iter().any(|end| end.contains(charged)), "{ends:?}");
}

/// Caches that hold only some of the rows give the bits of ranks without caches, and one rank those
/// of a single process.
#[test]
fn partly_filled_caches_change_no_bit() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let sequential = [
        "cache_ratio=0.3 cache=degree",
        "cache_ratio=0.3 cache=lru",
        "host_budget=14000",
        "devices=virtual:1 cache_ratio=0.2",
        "devices=virtual:1 cache_ratio=0.2 cache=degree device_budget=100000000 hot_split=1",
        "devices=virtual:2 cache_ratio=0.2 placement=interleave cache=posterior:2",
        "devices=virtual:1 cache_ratio=0.2 cache=fifo host_budget=9000 host_cache=lru",
        "devices=virtual:1 cache_ratio=0.2 cache=degree strategy=pipelined",
    ];
    let by_device = ["cache_ratio=0.2 cache=degree", "cache_ratio=0.2 placement=interleave cache=fifo"];
    for (size, base, tiers) in [
        (3, "hot_prefetch=on dropout=0.2", &sequential[..]),
        (2, "hot_prefetch=off strategy=time-sharing devices=virtual:2", &by_device),
        // a rank has cached rows of other ranks, if there are any
        (1, "hot_prefetch=on", &sequential[3..]),
    ] {
        let of = |tiers: &str| settled(&format!("super_batch=3 hot_ratio=0.2 {base} {tiers}"));
        let plain = match size {
            1 => alone(&of(""), &data),
            _ => over_ranks(&of("cache_ratio=0"), &dir, size).remove(0),
        };
        for tiers in tiers {
            let what = format!("{size} ranks, {base} {tiers}");
            let cached = over_ranks(&of(tiers), &dir, size);
            for summary in &cached {
                assert_eq!(bits(summary), bits(&plain), "{what}");
                assert_eq!((rows(summary), &summary.staleness), (rows(&plain), &plain.staleness), "{what}");
            }
            let (epoch, plain) = (&cached[0].epochs[1], &plain.epochs[1]);
            assert_eq!(epoch.traffic.rows(), plain.traffic.rows(), "{what}");
            let rate = epoch.hit_rate.expect("a cache");
            assert!(rate > 0.0 && rate < 1.0, "{what}: {rate}");
        }
    }
}

/// Counts batches.
struct Counts<'c>(&'c AtomicU64);

impl Observer for Counts<'_> {
    fn batch(&mut self, _: &Progress) -> Result<()> {
        self.0.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// Runs with a run directory until rank 1 has seen `stops` batches; without, resumes the run.
fn with_directory(
    config: &TrainConfig,
    dir: &PartitionDir,
    out: &Path,
    stops: Option<u64>,
) -> Vec<Result<Summary>> {
    on_ranks(3, PATIENCE, |rank, post| {
        let resume = stops.is_none();
        let run =
            (rank == 0).then(|| if resume { RunDir::reopen(out) } else { RunDir::create(out) }.unwrap());
        let seen = AtomicU64::new(0);
        let after = stops.filter(|_| rank == 1).unwrap_or(u64::MAX);
        let stop = || seen.load(Relaxed) >= after;
        let context = RunContext { run: run.as_ref(), resume, observer: &mut Counts(&seen), stop: &stop };
        train_on_ranks::train(config, dir, post, context)
    })
}

#[test]
fn runs_resume_within_a_super_batch_to_the_same_bits() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let budget = "hot_prefetch=off hot_ratio=0.2 devices=virtual:1 device_budget=100000000";
    let stores = "hot_prefetch=on graph_stores=1";
    let subgraphs = "hot_prefetch=on sampler=saint-rw batch_size=60 walk_length=3 shuffle_parts=1";
    let partly = "hot_prefetch=on devices=virtual:1 cache_ratio=0.2 cache=fifo";
    let history = "reuse=none strategy=historical";
    let cases = ["hot_prefetch=on", "hot_prefetch=off", budget, stores, subgraphs, partly, history];
    for (number, options) in cases.into_iter().enumerate() {
        let config = settled(&format!("super_batch=3 {options}"));
        let whole = over_ranks(&config, &dir, 3);
        for stops in [1, 2, 7, 9] {
            let out = temporary.path().join(format!("{number}-{stops}"));
            for end in with_directory(&config, &dir, &out, Some(stops)) {
                assert!(matches!(end, Err(Error::Interrupted { .. })), "{end:?}");
            }
            let resumed = with_directory(&config, &dir, &out, None).remove(0).unwrap();
            assert_eq!(bits(&resumed), bits(&whole[0]), "{options}, {stops}");
            assert_eq!(rows(&resumed), rows(&whole[0]), "{options}, {stops}");
        }
    }
}

/// Subgraphs of about 60 nodes, whose nodes read all their neighbours.
fn of_subgraphs(options: &str) -> TrainConfig {
    settled(&format!("sampler=saint-rw batch_size=60 walk_length=2 sample_coverage=5 {options}"))
}

/// A graph in four parts, of which the first has `share` parts of all nodes and training nodes, and
/// the others one each.
fn parts_as_clusters(path: &Path, share: usize) -> (Dataset, PartitionDir) {
    let options =
        GenerateOptions { nodes: 896, degree: Some(20.0), classes: 4, dim: 12, ..Default::default() };
    let mut data = generate("sbm", &options).unwrap();
    let all = usize::from(PARTS) + share - 1;
    assert!(data.split.train.len().is_multiple_of(4));
    let is_train = |v: usize| data.split.train.contains(&(v as u32));
    let mut shuffled: Vec<usize> = (0..data.num_nodes()).collect();
    shuffled.sort_by_key(|&v| (is_train(v), keyed::key(&[v as u64])));
    let mut of = vec![0; data.num_nodes()];
    let part = |i: usize| (i % all).saturating_sub(share - 1) as u16;
    shuffled.iter().enumerate().for_each(|(i, &v)| of[v] = part(i));
    // a rank draws no node without neighbours in its part, so every node has one
    let (mut indptr, mut indices) = (vec![0u64], Vec::new());
    for v in 0..of.len() {
        let near = (1..=of.len()).map(|i| (v + i) % of.len()).find(|&u| of[u] == of[v]).unwrap();
        let mut neighbors = [data.graph.in_neighbors(v as u32), &[near as u32]].concat();
        neighbors.sort_unstable();
        neighbors.dedup();
        indices.append(&mut neighbors);
        indptr.push(indices.len() as u64);
    }
    data.graph = Graph::new(indptr.into(), indices.into()).unwrap();
    let dir = partitioned_by(&data, of, path);
    (data, dir)
}

/// Subgraphs of different sizes have the weights of their nodes, in a round of one process and over
/// ranks.
#[test]
fn subgraphs_of_different_sizes_have_the_losses_of_one_process() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("parts");
    let (data, dir) = parts_as_clusters(&path, 3);
    let clusters = format!("sampler=cluster clusters={} parts_per_batch=1 sample_coverage=0", path.display());
    for options in ["", "model=gat", "strategy=time-sharing devices=virtual:1"] {
        let base = with(config(), &format!("epochs=5 lr=0.05 {clusters} {options}"));
        let several = "strategy=time-sharing devices=virtual:4 batches_per_update=4";
        let one = alone(&with(base.clone(), several), &data);
        let many = over_ranks(&base, &dir, 4);
        for (a, b) in one.epochs.iter().zip(&many[0].epochs) {
            assert!(close(b.loss, a.loss), "{options}: {} and {}", b.loss, a.loss);
            let (x, y) = (a.valid_loss.unwrap(), b.valid_loss.unwrap());
            assert!(close(y, x), "{options}: validation {y} and {x}");
        }
        assert!(one.epochs[4].loss < one.epochs[0].loss, "{options}: the parameters change");
        assert!(many.iter().all(|summary| bits(summary) == bits(&many[0])), "{options}");
    }
}

/// Epochs whose subgraphs are the parts: one update by all of them, in one process and over as many
/// ranks.
#[test]
fn subgraphs_that_are_parts_have_the_losses_of_one_process() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("parts");
    let (data, dir) = parts_as_clusters(&path, 1);
    let clusters = format!("sampler=cluster clusters={} parts_per_batch=1 sample_coverage=0", path.display());
    // without a row that is older than its batch, and with all gradients
    let exact = "reuse=layered devices=virtual:1 super_batch=1 hot_prefetch=off hot_gradient=kept";
    let frozen = "reuse=layered lr=1e-30 hot_rank=0 super_batch=2 hot_prefetch=on";
    for (size, options) in [
        (4, "reuse=none".to_string()),
        (4, "reuse=layered hot_ratio=0".to_string()),
        (4, exact.to_string()),
        (4, format!("{exact} model=gcn")),
        (2, frozen.to_string()),
        (2, format!("{frozen} model=gin norm=none")),
        (1, format!("{frozen} model=gat hot_gradient=none")),
    ] {
        let base = with(config(), &format!("epochs=5 lr=0.05 {clusters} {options}"));
        let several = format!("strategy=time-sharing devices=virtual:{size} batches_per_update={size}");
        let one = alone(&with(base.clone(), &format!("{several} hot_ratio=0")), &data);
        let many = over_ranks(&base, &dir, size);
        for (a, b) in one.epochs.iter().zip(&many[0].epochs) {
            assert!(close(b.loss, a.loss), "{options}: {} and {}", b.loss, a.loss);
            let (x, y) = (a.valid_loss.unwrap(), b.valid_loss.unwrap());
            assert!(close(y, x), "{options}: validation {y} and {x}");
            let reuse = b.reuse.map_or(0, |reuse| reuse.reused_rows);
            assert_eq!(reuse > 0, options.contains("super_batch"), "{options}");
        }
        if !options.contains("lr=") {
            assert!(one.epochs[4].loss < one.epochs[0].loss, "{options}: the parameters change");
        }
        assert!(many.iter().all(|summary| bits(summary) == bits(&many[0])), "{options}");
    }
}

/// Rows of nodes outside of a subgraph, in all parts, are those that the batch would compute: with
/// frozen parameters, and without staleness and with all gradients.
#[test]
fn rows_outside_of_subgraphs_of_parts_equal_full_aggregation() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let frozen = "lr=1e-30 hot_rank=0 hot_prefetch=on super_batch=4 model=";
    let exact = "devices=virtual:1 hot_prefetch=off super_batch=1 hot_gradient=kept model=";
    for (size, options) in [
        (3, format!("{frozen}sage")),
        (2, format!("{frozen}gcn sampler=saint-node")),
        (2, format!("{frozen}gin norm=none sampler=cluster parts=20 parts_per_batch=4 shuffle_parts=1")),
        (2, format!("{frozen}gat sampler=saint-edge inductive=true")),
        (3, format!("{exact}sage sampler=saint-node inductive=true")),
        (2, format!("{exact}gcn sampler=saint-edge shuffle_parts=1")),
        (2, format!("{exact}sage sampler=cluster parts=20 parts_per_batch=4 strategy=time-sharing")),
        (3, format!("{exact}gcn strategy=pipelined allocation=1,1,1")),
    ] {
        let reused = over_ranks(&of_subgraphs(&format!("{options} hot_ratio=1")), &dir, size);
        let full = over_ranks(&of_subgraphs(&format!("{options} hot_ratio=0")), &dir, size);
        for (a, b) in reused[0].epochs.iter().zip(&full[0].epochs) {
            assert!(b.reuse.is_none(), "{options}: every batch computes all its rows");
            assert!(close(a.loss, b.loss), "{options}: {} and {}", a.loss, b.loss);
            assert!(a.reuse.unwrap().reused_rows > 0, "{options}");
            let is_fewer = a.traffic.remote.rows < b.traffic.remote.rows;
            assert!(is_fewer || options.contains("devices"), "{options}: rows of other ranks");
        }
        assert!(reused.iter().all(|summary| bits(summary) == bits(&reused[0])), "{options}");
    }
}

#[test]
fn rows_outside_of_subgraphs_of_parts_have_a_bounded_age() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let mut ahead = None;
    for (options, bound) in [
        ("hot_prefetch=off", 3),
        ("hot_prefetch=on", 7),
        ("hot_prefetch=on strategy=pipelined allocation=1,1,1", 7),
        ("hot_prefetch=on strategy=time-sharing devices=virtual:1 cache_ratio=0.2", 7),
        ("hot_prefetch=on cache=lru cache_ratio=0.2", 7),
        ("hot_prefetch=on cache=presc:1 cache_ratio=0.2", 7),
        ("hot_prefetch=on host_budget=15000", 7),
        ("hot_prefetch=off sampler=cluster parts=20 parts_per_batch=2 shuffle_parts=2", 3),
        ("hot_prefetch=on sampler=saint-node shuffle_parts=1", 7),
        ("hot_prefetch=on sampler=saint-edge inductive=true batch_size=20", 7),
    ] {
        let config = of_subgraphs(&format!("super_batch=4 {options}"));
        let outcomes = [1, 3].map(|threads| {
            let run = |_, post| {
                let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
                pool.install(|| train_on_ranks::train(&config, &dir, post, context)).unwrap()
            };
            on_ranks(2, PATIENCE, run)
        });
        let one = &outcomes[0][0];
        for summary in outcomes.iter().flatten() {
            assert_eq!(bits(summary), bits(one), "{options}: ranks or threads change the bits");
            assert_eq!(rows(summary), rows(one), "{options}");
            assert_eq!((summary.staleness.bound, summary.staleness.max), (bound, bound), "{options}");
        }
        let reuse = one.epochs[1].reuse.unwrap();
        assert!(reuse.reused_rows > reuse.made_rows && reuse.made_edges > 0, "{options}: {reuse:?}");
        assert!(one.epochs[2].loss < one.epochs[0].loss, "{options}: it learns");
        if options.starts_with("hot_prefetch=on") && !options.contains("sampler") {
            assert_eq!(*ahead.get_or_insert(bits(one)), bits(one), "{options}");
        }
    }
    // rows whose largest age depends on the run
    for (options, bound) in [
        ("super_batch=0 hot_prefetch=on", 15),
        ("super_batch=3 hot_prefetch=on max_variation=0.02 shuffle_parts=1", 5),
        ("super_batch=4 strategy=factored devices=virtual:2 num_samplers=1 cache_ratio=0.1", 7),
        ("super_batch=3 strategy=time-sharing devices=virtual:2 updates=asynchronous staleness=2", 7),
        ("super_batch=4 strategy=time-sharing devices=virtual:2 device_budget=100000000", 3),
    ] {
        let many = over_ranks(&of_subgraphs(options), &dir, 3);
        for summary in &many {
            assert_eq!(bits(summary), bits(&many[0]), "{options}: ranks differ");
            assert!(summary.staleness.max <= summary.staleness.bound, "{options}");
            assert!(summary.staleness.bound <= bound && summary.staleness.max > 0, "{options}");
        }
        assert!(many[0].epochs[2].loss < many[0].epochs[0].loss, "{options}");
    }
}

/// All ranks pull from the same history. A node that one share of a batch computes may be pulled by
/// another, so the ages depend on the number of ranks.
#[test]
fn ranks_share_the_history_of_all_nodes() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let base = settled("strategy=historical reuse=none sampler=full");
    // with frozen parameters, rows of any age are exact
    for (size, options) in [(3, "model=sage"), (2, "model=gcn"), (3, "model=gin norm=none graph_stores=1")] {
        let frozen = with(base.clone(), &format!("lr=1e-30 {options}"));
        let one = alone(&with(frozen.clone(), "strategy=sequential graph_stores=0"), &data);
        let many = over_ranks(&frozen, &dir, size);
        assert_alike(&one, &many, options);
        assert!(rows(&many[0])[1][..3].iter().all(|&count| count > 0), "{options}: {:?}", rows(&many[0]));
    }
    let one = alone(&base, &data);
    let single = over_ranks(&base, &dir, 1).remove(0);
    assert_eq!((bits(&single), rows(&single)), (bits(&one), rows(&one)), "one rank is one process");
    for options in ["dropout=0.2", "graph_stores=1", "sampler=saint-rw batch_size=60 walk_length=2"] {
        let config = with(base.clone(), options);
        let outcomes = [1, 3].map(|threads| {
            on_ranks(3, PATIENCE, |_, post| {
                let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
                pool.install(|| train_on_ranks::train(&config, &dir, post, context)).unwrap()
            })
        });
        let first = &outcomes[0][0];
        assert!(first.epochs[2].loss < first.epochs[0].loss && first.staleness.max > 0, "{options}");
        for (i, summary) in outcomes.iter().flatten().enumerate() {
            assert_eq!(bits(summary), bits(first), "{options}: ranks or threads change the bits");
            let trains = !options.contains("stores") || i % 3 < 2;
            assert!(!trains || rows(summary) == rows(first), "{options}");
            assert!(!trains || summary.staleness == first.staleness, "{options}");
        }
    }
}
