//! Devices of several ranks that train together on several types: results are those of one device
//! in each rank with the same updates, for any number of devices and threads and after any stop or
//! death.

use std::{fs, path::Path};

use graphmill_data::{TypedDataset, partition::TypedPartitionDir};
use graphmill_engine::{
    Error, RunContext, RunDir, TrainConfig,
    observer::Quiet,
    record::{EpochRecord, Summary},
    typed::{self, links, train_over_ranks},
};
use graphmill_loader::Fanout;

use crate::{
    ranks::{PATIENCE, assert_alike, close, on_ranks},
    set::with,
    typed_links::shop,
    typed_ranks::{Dies, data_of, over_ranks, partitioned, run, with_directory},
};

/// Stale updates.
const STALE: &str = "updates=asynchronous staleness=2";
/// Dropout and running statistics.
const NORM: &str = "norm=batch dropout=0.2";

/// Options of a run on nodes with learned rows, in nine batches an epoch.
fn nodes(options: &str) -> TrainConfig {
    let config = TrainConfig {
        model: "rsage".into(),
        hidden: 8,
        fanout: Fanout(vec![4, 3]),
        batch_size: 20,
        epochs: 2,
        lr: 0.01,
        dropout: 0.0,
        ..TrainConfig::default()
    };
    let mut config = with(config, options);
    config.derive_options(&["model", "fanout", "layers"]).unwrap();
    config
}

/// Options of a run on the links of a shop, whose users and tags have learned rows.
fn of_links(dir: &TypedPartitionDir, options: &str) -> TrainConfig {
    let config = TrainConfig { dataset: dir.path().display().to_string(), task: "likes".into(), ..nodes("") };
    let mut config = with(config, &format!("batch_size=30 decoder=mlp num_negatives=2 {options}"));
    config.derive_options(&["task", "model", "fanout", "layers", "hidden"]).unwrap();
    config.check().unwrap();
    config
}

/// Losses and scores to the bit.
fn results(summary: &Summary) -> Vec<Option<u64>> {
    let of_epochs = summary.epochs.iter().flat_map(|of| [Some(of.loss), of.valid_score, of.valid_loss]);
    of_epochs.chain([summary.test.score]).map(|of| of.map(f64::to_bits)).collect()
}

/// Results of all ranks, which are the same.
fn same(summaries: &[Summary]) -> Vec<Option<u64>> {
    assert!(summaries.iter().all(|of| results(of) == results(&summaries[0])));
    results(&summaries[0])
}

/// Batches that the devices of a rank have trained on in an epoch.
fn trained(epoch: &EpochRecord) -> u64 {
    epoch.devices.iter().filter(|device| device.role != "sampler").map(|device| device.batches).sum()
}

#[test]
fn devices_of_ranks_give_the_bits_of_one_device_with_the_same_updates() {
    let (data, temporary) = (data_of(40), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let batches = over_ranks(&nodes("epochs=1"), &dir, 1)[0].epochs[0].seeds.div_ceil(20);
    let of = |options: &str, size: usize| over_ranks(&nodes(&format!("{NORM} {options}")), &dir, size);
    let one = |more: &str| same(&of(&format!("strategy=time-sharing devices=virtual:1 {more}"), 2));
    let (each, two, stale) = (same(&of("", 2)), one("batches_per_update=2"), one(STALE));
    assert!(each != two && two != stale && each != stale);
    for (expected, options) in [
        (&each, "strategy=time-sharing devices=virtual:1 overlap=on cache_ratio=0.1"),
        (&each, "strategy=factored devices=virtual:2 device_budget=100000000"),
        (&each, "strategy=time-sharing devices=virtual:2 batches_per_update=1 cache_ratio=0.1"),
        (&each, "strategy=time-sharing devices=virtual:2 updates=asynchronous staleness=0"),
        (&two, "strategy=time-sharing devices=virtual:2 cache_ratio=0.1"),
        (&two, "strategy=time-sharing devices=virtual:3 batches_per_update=2 overlap=on"),
        (&two, "strategy=factored devices=virtual:3 num_samplers=1 cache_ratio=0.1 peer_link=50G,2us"),
        (&two, "strategy=time-sharing devices=virtual:2 cache_ratio=0.1 placement=private cache=lru"),
        (&two, "strategy=time-sharing devices=virtual:2 device_budget=100000000 host_budget=40000"),
        (&stale, "strategy=time-sharing devices=virtual:3 updates=asynchronous staleness=2"),
        (
            &stale,
            "strategy=factored devices=virtual:4 num_samplers=1 queue_depth=3 \
                  updates=asynchronous staleness=2 cache_ratio=0.1",
        ),
    ] {
        let many = of(options, 2);
        assert_eq!(&same(&many), expected, "{options}");
        for (rank, summary) in many.iter().enumerate() {
            let epoch = &summary.epochs[1];
            assert_eq!(trained(epoch), batches, "rank {rank}: {options}");
            let bound = u64::from(options.contains("staleness=2")) * 2;
            assert_eq!((summary.staleness.bound, summary.staleness.max), (bound, bound), "{options}");
        }
        // a rank reads its rows through the pool of its devices, and records them by type
        let (epoch, holds) = (&many[0].epochs[1], options.contains("cache_ratio"));
        let by_type: u64 = epoch.type_traffic.iter().map(|of| of.traffic.device.rows).sum();
        assert_eq!(by_type, epoch.traffic.device.rows, "{options}");
        assert!(!holds || by_type > 0, "{options}: {:?}", epoch.traffic);
        let pools = holds && options.contains("virtual:3") && options.contains("factored");
        assert!(!pools || epoch.traffic.peer.rows > 0, "{options}: {:?}", epoch.traffic);
        // a budget for all rows leaves nothing to request, a tenth of them does
        let (requests, has_all) = (epoch.traffic.remote.rows > 0, options.contains("device_budget"));
        assert!((!holds || requests) && !(has_all && requests), "{options}: {:?}", epoch.traffic);
    }
}

#[test]
fn rounds_over_ranks_make_the_updates_of_one_process() {
    let temporary = tempfile::tempdir().unwrap();
    let data = data_of(6);
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (size, options) in [
        (1, "strategy=time-sharing devices=virtual:2"),
        (3, "strategy=time-sharing devices=virtual:2"),
        (2, "strategy=factored devices=virtual:4 num_samplers=1 cache_ratio=0.2"),
        (4, "strategy=time-sharing devices=virtual:2 batch_size=5"),
        (2, "model=hgt heads=2 strategy=time-sharing devices=virtual:2 updates=asynchronous staleness=2"),
    ] {
        let config = nodes(options);
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        let one = typed::train(&config, &data, context).unwrap();
        assert_alike(&one, &over_ranks(&config, &dir, size), options);
    }
    // each rank draws subgraphs of its own part, which weigh their nodes
    let subgraphs = "sampler=saint-rw walk_length=2 batch_size=30 sample_coverage=20";
    let of = |options: &str| same(&over_ranks(&nodes(&format!("{subgraphs} {options}")), &dir, 3));
    let two = of("strategy=time-sharing devices=virtual:1 batches_per_update=2");
    assert_eq!(of("strategy=time-sharing devices=virtual:2"), two);
    assert_ne!(of(""), two);
}

#[test]
fn devices_of_ranks_learn_links_as_one_device_does() {
    let temporary = tempfile::tempdir().unwrap();
    let data = shop(&temporary.path().join("data"));
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let of = |options: &str| same(&over_ranks(&of_links(&dir, &format!("{NORM} {options}")), &dir, 2));
    let one = |more: &str| of(&format!("strategy=time-sharing devices=virtual:1 {more}"));
    let (each, two, stale) = (of(""), one("batches_per_update=2"), one(STALE));
    assert!(each != two && two != stale);
    for (expected, options) in [
        (&each, "strategy=factored devices=virtual:2 cache_ratio=0.2"),
        (&each, "strategy=time-sharing devices=virtual:2 batches_per_update=1"),
        (&two, "strategy=time-sharing devices=virtual:2 cache_ratio=0.2"),
        (&two, "strategy=factored devices=virtual:3 num_samplers=1 device_budget=100000000"),
        (&stale, "strategy=time-sharing devices=virtual:3 updates=asynchronous staleness=2"),
    ] {
        assert_eq!(&of(options), expected, "{options}");
    }
    let config = of_links(&dir, "strategy=time-sharing devices=virtual:2 negatives=hard hard_candidates=10");
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    let alone = links::train(&config, &data, context).unwrap();
    let many = over_ranks(&config, &dir, 3);
    same(&many);
    // lists of later epochs may differ by rounding
    assert!(close(alone.epochs[0].loss, many[0].epochs[0].loss), "{:?}", many[0].epochs);
}

/// Runs that are stopped by a rank after some updates and resumed, and files of rank 0.
fn assert_resumes(name: &str, config: &TrainConfig, dir: &TypedPartitionDir, home: &Path) {
    let files = |path: &Path| {
        let files = ["best.safetensors", "checkpoint/optimizer.safetensors"];
        files.map(|file| fs::read(path.join(file)).unwrap())
    };
    let path = home.join(format!("{name}-whole"));
    let whole = with_directory(config, dir, 3, &path, Some((0, u64::MAX))).remove(0).unwrap();
    let expected = (results(&whole), files(&path));
    for (rank, after) in [(1, 1), (0, 3), (2, 6)] {
        let path = home.join(format!("{name}-{after}"));
        for end in with_directory(config, dir, 3, &path, Some((rank, after))) {
            assert!(matches!(end, Err(Error::Interrupted { .. })), "{name} {after}: {end:?}");
        }
        let resumed = with_directory(config, dir, 3, &path, None).remove(0).unwrap();
        assert!((results(&resumed), files(&path)) == expected, "{name} {after}");
        assert_eq!(resumed.staleness.max, whole.staleness.max, "{name} {after}");
        for (a, b) in resumed.epochs.iter().zip(&whole.epochs) {
            assert_eq!((&a.node_types, &a.edge_types), (&b.node_types, &b.edge_types), "{name} {after}");
            assert_eq!(a.sampled_edges, b.sampled_edges, "{name} {after}");
        }
        // another number of ranks takes the rows and earlier versions of its own nodes
        let path = home.join(format!("{name}-{after}-others"));
        with_directory(config, dir, 3, &path, Some((rank, after)));
        let ends = with_directory(config, dir, 2, &path, None);
        assert!(ends.iter().all(|end| end.as_ref().is_ok_and(|of| of.test.score.is_some())), "{name}");
    }
}

#[test]
fn stopped_runs_on_devices_of_ranks_resume_to_the_same_bits() {
    let temporary = tempfile::tempdir().unwrap();
    let (data, shop) = (data_of(6), shop(&temporary.path().join("shop")));
    let [of_nodes, of_shop] = [("nodes", &data), ("links", &shop)]
        .map(|(name, data): (_, &TypedDataset)| partitioned(data, &temporary.path().join(name)));
    let home = temporary.path();
    let rounds = format!("{NORM} strategy=time-sharing devices=virtual:2 cache_ratio=0.2");
    assert_resumes("rounds", &nodes(&rounds), &of_nodes, home);
    let stale = format!("{NORM} strategy=factored devices=virtual:3 num_samplers=1 {STALE}");
    assert_resumes("stale", &nodes(&stale), &of_nodes, home);
    assert_resumes("stale links", &of_links(&of_shop, &stale), &of_shop, home);
    let online = "strategy=time-sharing devices=virtual:2 cache=presc-online:1 cache_ratio=0.2";
    assert_resumes("online", &nodes(online), &of_nodes, home);
}

#[test]
fn dead_runs_on_devices_of_ranks_resume_from_the_last_checkpoint() {
    let (data, temporary) = (data_of(6), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (i, way) in ["batches_per_update=2", STALE].into_iter().enumerate() {
        let sharing = "strategy=time-sharing devices=virtual:3 checkpoint_batches=2";
        let config = nodes(&format!("{NORM} {sharing} {way}"));
        let whole = same(&over_ranks(&config, &dir, 3));
        for rank in 0..3 {
            let out = temporary.path().join(format!("run-{i}-{rank}"));
            let ends = on_ranks(3, PATIENCE, |number, post| {
                let run = (number == 0).then(|| RunDir::create(&out).unwrap());
                let mut observer = Dies(if number == rank { 3 } else { u64::MAX });
                let context =
                    RunContext { run: run.as_ref(), resume: false, observer: &mut observer, stop: &|| false };
                train_over_ranks(&config, &dir, post, context)
            });
            for (number, end) in ends.into_iter().enumerate() {
                let message = end.unwrap_err().to_string();
                assert!(message.contains("the machine died"), "rank {number} of {way}: {message}");
            }
            let resumed = with_directory(&config, &dir, 3, &out, None).remove(0).unwrap();
            assert_eq!(results(&resumed), whole, "{way}: rank {rank} died");
        }
    }
}

#[test]
fn results_do_not_depend_on_the_threads_of_ranks_with_devices() {
    let (data, temporary) = (data_of(6), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for options in ["batches_per_update=2", STALE] {
        let config = nodes(&format!("{NORM} strategy=time-sharing devices=virtual:3 {options}"));
        let of = |threads: [usize; 2]| {
            same(&on_ranks(2, PATIENCE, |rank, post| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads[rank]).build().unwrap();
                pool.install(|| run(&config, &dir, post).unwrap())
            }))
        };
        assert_eq!(of([1, 1]), of([4, 3]), "{options}");
    }
}
