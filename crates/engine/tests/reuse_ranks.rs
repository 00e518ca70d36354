//! Reused rows over ranks: the owners of hot nodes make them, no row is older than its bound, and
//! all ranks train to the same bits.

#[path = "common/ranks.rs"]
mod ranks;
#[path = "common/set.rs"]
mod set;

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use graphmill_data::partition::PartitionDir;
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    observer::{Observer, Progress, Quiet},
    record::Summary,
    trainer::over_ranks as train_on_ranks,
};
use ranks::{PATIENCE, alone, assert_alike, config, data, on_ranks, over_ranks, partitioned};
use set::with;

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
        let is_timed = options.contains("asynchronous");
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
    let partly = "hot_prefetch=on devices=virtual:1 cache_ratio=0.2 cache=fifo";
    for (number, options) in ["hot_prefetch=on", "hot_prefetch=off", budget, partly].into_iter().enumerate() {
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

#[test]
fn options_that_ranks_cannot_share_are_refused() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (options, expected) in [
        ("hot_metric=degree hot_ratio=0.2", "--hot-metric degree: with reused rows over several ranks"),
        ("graph_stores=1", "graph stores have no model"),
        ("devices=virtual:1 hot_split=timed", "measured times differ between ranks"),
        ("sampler=saint-rw", "--sampler saint-rw draws all blocks of a batch at once"),
        ("strategy=historical reuse=none", "--strategy historical"),
    ] {
        let config = settled(options);
        let ends = on_ranks(2, PATIENCE, |_, post| {
            let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
            train_on_ranks::train(&config, &dir, post, context).unwrap_err().to_string()
        });
        assert!(ends.iter().any(|end| end.contains(expected)), "{options}: {ends:?}");
    }
}
