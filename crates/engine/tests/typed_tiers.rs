//! Runs on several types whose feature rows exceed a budget, on nodes and on links: the results
//! have the bits of a run in memory, whatever the caches, and the records list the traffic of each
//! type.

use std::path::Path;

use graphmill_core::{SparseRows, progress};
use graphmill_data::{
    TypedDataset,
    generate::{GenerateOptions, generate_typed},
    typed::{FeatureTable, Verify, open},
};
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    hotness::Options,
    observer::{Observer, Quiet},
    options::key,
    record::Summary,
    saved::SavedRun,
    typed::{self, ProgramSeeds, SavedTypedRun, links::SavedTypedLinks},
};
use graphmill_loader::{
    feature::OutputRows,
    typed::{TABLE, TypedFanout, TypedOptions},
};

/// A small dataset in memory.
pub(crate) fn data() -> TypedDataset {
    let options =
        GenerateOptions { nodes: 1200, classes: 4, dim: 8, p_in: 0.9, ..GenerateOptions::default() };
    let mut data = generate_typed("typed", &options).unwrap();
    // rows of another width
    let rows = data.nodes[1].count;
    data.nodes[1].features =
        Some(FeatureTable::dense(40, (0..rows * 40).map(|i| (i % 7) as f32).collect::<Vec<_>>()));
    data
}

pub(crate) fn stored(data: &TypedDataset, dir: &Path) -> TypedDataset {
    data.save(dir).unwrap();
    open(dir, Verify::Once).unwrap()
}

/// Bytes of all feature rows.
fn feature_bytes(data: &TypedDataset) -> usize {
    data.nodes.iter().filter_map(|of| of.features.as_ref().map(|table| of.count * table.width * 4)).sum()
}

pub(crate) fn config(data: &TypedDataset, options: &[(&str, &str)]) -> Result<TrainConfig> {
    let mut config = TrainConfig { hidden: 8, batch_size: 64, epochs: 2, lr: 0.01, ..TrainConfig::default() };
    config.dataset = data.directory.as_deref().and_then(Path::to_str).unwrap_or_default().into();
    config.fanout = graphmill_loader::Fanout(vec![4, 2]);
    let given: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
    for (name, value) in options {
        key(name).unwrap().parse(&mut config, value).map_err(Error::usage)?;
    }
    if data.directory.is_none() {
        config.model = "rsage".into();
    }
    config.derive_options(&given)?;
    config.check()?;
    if data.directory.is_some() {
        config.refuse_unused(&given)?;
    }
    Ok(config)
}

/// Collects notes.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, message: &str) {
        self.0.push(message.to_string());
    }
}

fn train(data: &TypedDataset, options: &[(&str, &str)]) -> Result<(Summary, Vec<String>)> {
    let mut notes = Notes::default();
    let context = RunContext { run: None, resume: false, observer: &mut notes, stop: &|| false };
    let summary = typed::train(&config(data, options)?, data, context)?;
    Ok((summary, notes.0))
}

/// Losses and scores to the bit.
fn results(summary: &Summary) -> Vec<u64> {
    let of_epochs =
        summary.epochs.iter().flat_map(|of| [of.loss, of.valid_score.unwrap(), of.valid_loss.unwrap()]);
    of_epochs.chain(summary.test.score).map(f64::to_bits).collect()
}

#[test]
fn a_quarter_of_the_features_gives_the_bits_of_a_run_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let (all, notes) = train(&data, &[]).unwrap();
    assert_eq!(notes[0], "feature rows: the host holds all; strategy sequential");
    // maps take 8 bytes a row and 20 a cached one
    let quarter = (feature_bytes(&data) / 4).to_string();
    let mut hits = Vec::new();
    for cache in [
        "auto",
        "presc:1",
        "optimal",
        "degree",
        "random",
        "weighted-reverse-pagerank",
        "stored-order",
        "lru",
        "fifo",
        "s3-fifo",
    ] {
        let (summary, notes) = train(&data, &[("host_budget", &quarter), ("cache", cache)]).unwrap();
        assert_eq!(results(&summary), results(&all), "{cache}");
        assert!(
            notes[0].starts_with("feature rows: the host holds ") && notes[0].contains("the disk all"),
            "{notes:?}"
        );
        let epoch = &summary.epochs[1];
        let sum = |of: fn(&graphmill_loader::Traffic) -> u64| {
            epoch.type_traffic.iter().map(|t| of(&t.traffic)).sum::<u64>()
        };
        assert_eq!(sum(|of| of.host.rows), epoch.traffic.host.rows);
        assert_eq!(sum(|of| of.disk.bytes), epoch.traffic.disk.bytes);
        assert!(epoch.traffic.host.rows > 0 && epoch.traffic.disk.rows > 0, "{cache}");
        assert_eq!(epoch.traffic.rows(), all.epochs[1].traffic.rows());
        assert_eq!(epoch.type_traffic.len(), 3, "a type has no features");
        assert_eq!(summary.presampling.is_some(), ["auto", "presc:1", "optimal"].contains(&cache), "{cache}");
        hits.push((cache, epoch.hit_rate.unwrap()));
    }
    for cache in ["auto", "lru"] {
        let options = [("host_budget", &quarter[..]), ("cache", cache), ("strategy", "pipelined")];
        assert_eq!(results(&train(&data, &options).unwrap().0), results(&all), "pipelined, {cache}");
    }
    let of = |name| hits.iter().find(|(cache, _)| *cache == name).unwrap().1;
    assert!(of("optimal") >= of("presc:1") && of("presc:1") > of("random"), "{hits:?}");
}

#[test]
fn rows_in_16_bits_halve_the_traffic_and_have_the_same_bits_in_every_tier() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let with = |options: &[(&str, &str)]| train(&data, options).unwrap().0;
    let bytes = |summary: &Summary| summary.epochs[1].traffic.host.bytes;
    let wide = with(&[]);
    assert_eq!(results(&with(&[("feature_precision", "f32")])), results(&wide));
    // maps take 8 bytes a row and 20 a cached one
    let eighth = &(feature_bytes(&data) / 8).to_string()[..];
    for kind in ["f16", "bf16"] {
        let precision = ("feature_precision", kind);
        let all = with(&[precision]);
        assert_ne!(results(&all), results(&wide), "{kind}: rows are rounded");
        assert!((all.epochs[1].loss - wide.epochs[1].loss).abs() < 0.02, "{kind}");
        assert_eq!(2 * bytes(&all), bytes(&wide), "{kind}");
        for options in [
            &[("host_budget", eighth)][..],
            &[("host_budget", eighth), ("cache", "lru")],
            &[("devices", "virtual:2"), ("cache_ratio", "0.2")],
        ] {
            let summary = with(&[&[precision][..], options].concat());
            assert_eq!(results(&summary), results(&all), "{kind} {options:?}");
        }
    }
    // products in bf16 read rows in bf16, unless others are asked for
    let precision = ("precision", "bf16");
    let of_bf16 = with(&[precision]);
    assert_eq!(results(&of_bf16), results(&with(&[precision, ("feature_precision", "bf16")])));
    assert_eq!(bytes(&with(&[precision, ("feature_precision", "f32")])), 2 * bytes(&of_bf16));
}

#[test]
fn sparse_rows_stay_in_f32() {
    let dir = tempfile::tempdir().unwrap();
    let mut data = data();
    let sparse = |count: usize| {
        let values: Vec<f32> = (0..count * 8).map(|i| if i % 3 == 0 { 0.3 } else { 0.0 }).collect();
        Some(FeatureTable::sparse(SparseRows::from_dense(8, &values).unwrap()))
    };
    data.nodes[0].features = sparse(data.nodes[0].count);
    let precision = [("feature_precision", "f16")];
    let (_, notes) = train(&stored(&data, &dir.path().join("some")), &precision).unwrap();
    let paper = &data.nodes[0].name;
    let note = format!("the sparse feature rows of {paper} stay in f32");
    assert!(notes.contains(&note), "{notes:?}");
    for nodes in data.nodes.iter_mut().filter(|nodes| nodes.features.is_some()) {
        nodes.features = sparse(nodes.count);
    }
    let message = train(&stored(&data, &dir.path().join("all")), &precision).unwrap_err().to_string();
    assert!(message.starts_with("--feature-precision f16: no type has dense features"), "{message}");
}

#[test]
fn caches_on_simulated_devices_give_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let expected = results(&train(&data, &[]).unwrap().0);
    let quarter = (feature_bytes(&data) / 4).to_string();
    for options in [
        &[("devices", "virtual:1"), ("cache_ratio", "0.2")][..],
        &[("devices", "virtual:1"), ("cache_ratio", "0.2"), ("cache", "lru"), ("link", "16G")],
        &[("devices", "virtual:2"), ("cache_ratio", "0.2"), ("placement", "replicate:0.5")],
        &[
            ("devices", "virtual:1"),
            ("cache_ratio", "0.2"),
            ("host_budget", &quarter),
            ("host_cache", "degree"),
        ],
        &[("devices", "virtual:1"), ("device_budget", "1G")],
    ] {
        let (summary, notes) = train(&data, options).unwrap();
        assert_eq!(results(&summary), expected, "{options:?}");
        let traffic = summary.epochs[1].traffic;
        assert!(traffic.device.rows > 0, "{options:?} {traffic:?}");
        assert_eq!(traffic.peer.rows > 0, options[0].1 == "virtual:2", "{options:?} {traffic:?}");
        let (device, host) = (notes[0].find("device"), notes[0].find("the host holds"));
        assert!(host.is_none_or(|host| device.unwrap() < host), "{}", notes[0]);
        assert_eq!(traffic.disk.rows > 0, host.is_some());
    }
    let message =
        train(&data, &[("devices", "virtual:1"), ("device_budget", "1000")]).unwrap_err().to_string();
    assert!(message.starts_with("--device-budget 1000: a training step takes "), "{message}");
}

/// Options of a run on devices of which one trains.
pub(crate) fn on_devices(strategy: &'static str, devices: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![("strategy", strategy), ("devices", devices)]
}

#[test]
fn devices_that_sample_and_one_that_trains_give_the_bits_of_sequential() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let (all, _) = train(&data, &[]).unwrap();
    let batches = 10;
    for (strategy, devices, more) in [
        ("factored", "virtual:2", &[("cache_ratio", "0.2")][..]),
        ("factored", "virtual:3", &[("cache_ratio", "0.2"), ("cache", "lru"), ("link", "16G")]),
        ("factored", "virtual:2", &[("device_budget", "1G"), ("queue_depth", "1")]),
        ("factored", "virtual:1", &[("cache_ratio", "0.2")]),
        ("time-sharing", "virtual:1", &[("cache_ratio", "0.2")]),
        ("time-sharing", "virtual:1", &[("cache_ratio", "0.2"), ("overlap", "on")]),
    ] {
        let (summary, notes) = train(&data, &[&on_devices(strategy, devices)[..], more].concat()).unwrap();
        assert_eq!(results(&summary), results(&all), "{strategy} {devices} {more:?}");
        assert!(notes[0].contains("a device holds "), "{notes:?}");
        let (epoch, one) = (&summary.epochs[1], &all.epochs[1]);
        assert_eq!(epoch.traffic.rows(), one.traffic.rows());
        let count: usize = devices["virtual:".len()..].parse().unwrap();
        assert_eq!(epoch.devices.len(), count);
        let (trainer, samplers) = epoch.devices.split_last().unwrap();
        assert_eq!(trainer.role, if count == 1 { "both" } else { "trainer" });
        let done: u64 = summary.epochs.iter().map(|epoch| epoch.devices[count - 1].batches).sum();
        assert_eq!(done, batches, "{strategy} {devices}");
        assert!(trainer.cache_rows > 0 && trainer.hit_rate.unwrap() > 0.0, "{trainer:?}");
        // missed rows cross its link, and the blocks of batches those of both
        assert!(trainer.link_bytes >= epoch.traffic.host.bytes, "{trainer:?}");
        for sampler in samplers {
            assert_eq!((&sampler.role[..], sampler.batches, sampler.cache_rows), ("sampler", 0, 0));
        }
        assert_eq!(samplers.iter().any(|sampler| sampler.link_bytes > 0), count > 1);
    }
}

#[test]
fn records_of_links_leave_out_the_rows_that_fill_caches() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    for cache in ["degree", "presc-online:2", "lru"] {
        let more = [("epochs", "4"), ("cache_ratio", "0.2"), ("cache", cache)];
        let all = [&on_devices("time-sharing", "virtual:1")[..], &more].concat();
        let (summary, _) = train(&data, &all).unwrap();
        for epoch in &summary.epochs {
            // the device updates the model itself, so that only missed rows cross its link
            assert_eq!(epoch.devices[0].link_bytes, epoch.traffic.host.bytes, "{cache} {}", epoch.epoch);
        }
    }
}

#[test]
fn devices_that_train_together_give_the_bits_of_one_with_as_many_batches_per_update() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let with = |strategy, devices, more: &[_]| {
        train(&data, &[&on_devices(strategy, devices)[..], more].concat()).unwrap()
    };
    let of_one = |round| with("time-sharing", "virtual:1", &[("batches_per_update", round)]).0;
    let (two, three) = (of_one("2"), of_one("3"));
    assert_ne!(results(&two), results(&train(&data, &[]).unwrap().0), "two batches make an update");
    let (ratio, private) = (("cache_ratio", "0.2"), ("placement", "private"));
    let (sharing, factored) = ("time-sharing", "factored");
    for (strategy, devices, one, more) in [
        (sharing, "virtual:2", &two, &[ratio][..]),
        (sharing, "virtual:2", &two, &[ratio, private, ("cache", "lru")]),
        (sharing, "virtual:3", &two, &[ratio, ("batches_per_update", "2")]),
        (sharing, "virtual:3", &three, &[("device_budget", "1G"), ("overlap", "on")]),
        (factored, "virtual:3", &two, &[ratio, ("num_samplers", "1"), ("peer_link", "50G,2us")]),
        (factored, "virtual:5", &three, &[ratio, ("num_samplers", "2"), ("queue_depth", "1")]),
    ] {
        let (summary, notes) = with(strategy, devices, more);
        let what = format!("{strategy} {devices} {more:?}");
        assert_eq!(results(&summary), results(one), "{what}");
        let epoch = &summary.epochs[1];
        let trainers: Vec<_> = epoch.devices.iter().filter(|device| device.role != "sampler").collect();
        assert_eq!(trainers.iter().map(|device| device.batches).sum::<u64>(), 5, "{what}");
        assert!(trainers.iter().all(|device| device.cache_rows > 0), "{what}: {trainers:?}");
        assert!(epoch.devices.iter().all(|device| device.role != "sampler" || device.cache_rows == 0));
        // missed rows, parameters, gradients and learned rows cross the links to the host
        let links: u64 = trainers.iter().map(|device| device.link_bytes).sum();
        assert!(links > epoch.traffic.host.bytes, "{what}: {trainers:?}");
        // the shares of all devices serve rows, or each has its own
        let traffic = epoch.traffic;
        let is_pooled = !more.contains(&private);
        assert_eq!(traffic.rows(), one.epochs[1].traffic.rows(), "{what}");
        assert!(traffic.device.rows > 0 && (traffic.peer.rows > 0) == is_pooled, "{what}: {traffic:?}");
        let peers: u64 = trainers.iter().map(|device| device.peer_link_bytes).sum();
        assert_eq!(peers, traffic.peer.bytes, "{what}");
        assert_eq!(notes[0].contains(&format!("{} devices hold ", trainers.len())), is_pooled, "{notes:?}");
    }
}

#[test]
fn devices_that_train_together_equal_one_with_larger_batches() {
    let data = data();
    let epochs = |options: &[(&str, &str)]| {
        let all = [("sampler", "full"), ("dropout", "0"), ("epochs", "3")];
        train(&data, &[&all[..], options].concat()).unwrap().0.epochs
    };
    let one = epochs(&[("batch_size", "128")]);
    let sharing = on_devices("time-sharing", "virtual:2");
    let two = epochs(&[&sharing[..], &[("batch_size", "64")]].concat());
    for (one, two) in one.iter().zip(&two) {
        let (a, b) = (one.loss, two.loss);
        assert!((a - b).abs() < 1e-3 * a, "{a} and {b}");
    }
}

#[test]
fn devices_too_small_for_their_role_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let fault = |strategy, devices, more: &[(&str, &str)]| {
        train(&data, &[&on_devices(strategy, devices)[..], more].concat()).unwrap_err().to_string()
    };
    let message = fault("factored", "virtual:2", &[("device_budget", "1000")]);
    assert!(message.starts_with("virtual:0 is out of memory: the topology takes "), "{message}");
    let message = fault("factored", "virtual:3", &[("num_samplers", "3")]);
    assert!(message.contains("--num-samplers 3 leaves none of 3 that trains; lower it"), "{message}");
    let message = fault("time-sharing", "virtual:2", &[("device_budget", "1000")]);
    assert!(message.starts_with("virtual:0 is out of memory: the topology takes "), "{message}");
    let mut config = config(&data, &[]).unwrap();
    config.strategy = "factored".into();
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    let message = typed::train(&config, &data, context).unwrap_err().to_string();
    assert!(message.contains("it runs on simulated devices; use --devices virtual:N"), "{message}");
}

#[test]
fn tiers_of_programs_have_the_rows_of_the_types_that_they_hold() {
    let (dir, mut data) = (tempfile::tempdir().unwrap(), data());
    let rows = data.nodes[0].count;
    let values: Vec<f32> = (0..rows * 8).map(|i| if i % 3 == 0 { 1.0 } else { 0.0 }).collect();
    data.nodes[0].features = Some(FeatureTable::sparse(SparseRows::from_dense(8, &values).unwrap()));
    let rows = data.nodes[2].count;
    data.nodes[2].features =
        Some(FeatureTable::dense(3, (0..rows as i64 * 3).map(|i| i % 5).collect::<Vec<_>>()));
    let data = stored(&data, &dir.path().join("shop"));
    let graph = data.graph().unwrap();
    let options = TypedOptions { fanout: TypedFanout::new([3, 2]), ..TypedOptions::default() };
    let sampler = (TABLE.find("neighbor").unwrap().make.make)(&options, &graph).unwrap();
    let open = |options: &[(&str, &str)], each: usize| {
        // each seed is a node of one type, or a pair with one of another
        let nodes = (0..180).map(|i| (1 + i % each, (i / each) as u32)).collect();
        let seeds = (&ProgramSeeds { nodes, each }, &*sampler);
        typed::open_tiers(&config(&data, options)?, (&data, graph.clone()), seeds, &progress::Quiet)
    };
    for options in [&[("cache_ratio", "0.3")][..], &[("cache_ratio", "0.3"), ("cache", "lru")], &[]] {
        for each in [1, 2] {
            let tiers = open(options, each).unwrap();
            let held: Vec<bool> = tiers.tables.iter().map(Option::is_some).collect();
            assert!(!held[0] && held[1] && !held[2], "{held:?}");
            let in_place = [0, 2].map(|t| &data.nodes[t].name[..]).join(", ");
            let text = &tiers.description;
            assert!(text.contains(&format!("rows of {in_place} are read in place")), "{text}");
            let rows = tiers.tables[1].as_ref().unwrap();
            let (ids, mut out) = ([5, 0, 17, rows.num_rows() as u32 - 1], vec![0f32; 4 * 40]);
            rows.read_to(&ids, OutputRows::InOrder, &mut out).unwrap();
            let value = |i: usize| ((ids[i / 40] as usize * 40 + i % 40) % 7) as f32;
            assert_eq!(out, (0..160).map(value).collect::<Vec<f32>>());
        }
    }
    for (options, part) in [
        (&[("cache_ratio", "0.3"), ("cache", "presc-online:1")][..], "only a run counts its first epochs"),
        (&[("cache_ratio", "0.3"), ("cache", "posterior:2")][..], "use presc:2"),
    ] {
        let message = open(options, 1).err().unwrap().to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn sparse_and_integer_rows_stay_in_host_memory() {
    let (dir, mut data) = (tempfile::tempdir().unwrap(), data());
    let rows = data.nodes[0].count;
    let values: Vec<f32> = (0..rows * 8).map(|i| if i % 3 == 0 { 1.0 } else { 0.0 }).collect();
    data.nodes[0].features = Some(FeatureTable::sparse(SparseRows::from_dense(8, &values).unwrap()));
    let rows = data.nodes[2].count;
    data.nodes[2].features =
        Some(FeatureTable::dense(3, (0..rows as i64 * 3).map(|i| i % 5).collect::<Vec<_>>()));
    let data = stored(&data, &dir.path().join("shop"));
    let expected = results(&train(&data, &[]).unwrap().0);
    let (summary, notes) = train(&data, &[("cache_ratio", "0.2")]).unwrap();
    assert_eq!(results(&summary), expected);
    let [kept, cached] = [[0, 2], [1, 3]].map(|types| types.map(|t| format!(" of {}", data.nodes[t].name)));
    assert!(kept.iter().all(|name| !notes[0].contains(name)), "{notes:?}");
    assert!(cached.iter().all(|name| notes[0].contains(name)), "{notes:?}");
    let message = train(&data, &[("host_budget", "1000")]).unwrap_err().to_string();
    assert!(
        message.contains("--host-budget 1000: rows of type") && message.contains("raise it"),
        "{message}"
    );
}

/// Rows of every epoch that caches served, the near tiers together.
fn near(summary: &Summary) -> Vec<u64> {
    let of = |epoch: &graphmill_engine::record::EpochRecord| {
        let graphmill_loader::Traffic { device, peer, host, .. } = epoch.traffic;
        if epoch.traffic.disk.rows > 0 {
            device.rows + peer.rows + host.rows
        } else {
            device.rows + peer.rows
        }
    };
    summary.epochs.iter().map(of).collect()
}

#[test]
fn the_first_epochs_of_training_fill_the_caches_of_all_types() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let quarter = (feature_bytes(&data) / 4).to_string();
    let epochs = ("epochs", "4");
    let expected = results(&train(&data, &[epochs]).unwrap().0);
    for options in [
        &[("host_budget", &quarter[..])][..],
        &[("cache_ratio", "0.2"), ("strategy", "pipelined")],
        &[("devices", "virtual:1"), ("cache_ratio", "0.2")],
        &[("devices", "virtual:2"), ("cache_ratio", "0.2"), ("placement", "replicate:0.5")],
        &[("devices", "virtual:1"), ("cache_ratio", "0.2"), ("host_budget", &quarter), ("host_cache", "lru")],
        &[&on_devices("factored", "virtual:2")[..], &[("cache_ratio", "0.2")][..]].concat()[..],
        &[
            &on_devices("time-sharing", "virtual:2")[..],
            &[("cache_ratio", "0.2"), ("batches_per_update", "1")][..],
        ]
        .concat()[..],
    ] {
        let with = |cache: &'static str| [options, &[epochs, ("cache", cache)][..]].concat();
        let (online, notes) = train(&data, &with("presc-online:2")).unwrap();
        assert_eq!(results(&online), expected, "{options:?}");
        assert!(notes[0].contains("(presc-online:2)"), "{notes:?}");
        let filled = notes.iter().filter(|note| note.contains("of 2 epochs were counted")).count();
        assert_eq!(filled, 1, "{notes:?}");
        let cost = online.presampling.unwrap();
        assert_eq!((cost.drawn_batches, cost.counted_batches), (0, 2 * 5), "{options:?}");
        let hits = near(&online);
        // another cache in host memory serves reads from the first epoch on
        if !options.contains(&("host_cache", "lru")) {
            assert_eq!(hits[..2], [0, 0], "{options:?}");
        }
        assert!(hits[2] > 0 && hits[3] > 0, "{options:?}: {hits:?}");
        // about as many as with counts of epochs before training
        let before = near(&train(&data, &with("presc:2")).unwrap().0);
        assert!(hits[3] * 10 > before[3] * 9, "{options:?}: {hits:?} {before:?}");
        if options[0].1 == "factored" {
            let rows = |epoch: usize| online.epochs[epoch].devices[1].cache_rows;
            assert!(rows(0) == 0 && rows(2) > 0, "{options:?}");
        }
    }
}

#[test]
fn a_resumed_run_has_the_counts_of_its_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let options =
        [("epochs", "4"), ("devices", "virtual:1"), ("cache_ratio", "0.2"), ("cache", "presc-online:2")];
    let config = config(&data, &options).unwrap();
    let (whole, _) = train(&data, &options).unwrap();
    // while batches are counted, at the end of an epoch, and after the caches are filled
    for updates in [7, 10, 16] {
        let path = dir.path().join(format!("run-{updates}"));
        let left = std::sync::atomic::AtomicU64::new(updates);
        let stop = || left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1;
        let run = RunDir::create(&path).unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &stop };
        assert!(matches!(typed::train(&config, &data, context), Err(Error::Interrupted { .. })));
        drop(run);
        let run = RunDir::reopen(&path).unwrap();
        let context = RunContext { run: Some(&run), resume: true, observer: &mut Quiet, stop: &|| false };
        let resumed = typed::train(&config, &data, context).unwrap();
        assert_eq!(results(&resumed), results(&whole), "after {updates} updates");
        assert_eq!(near(&resumed), near(&whole), "after {updates} updates");
        assert_eq!(resumed.presampling.map_or(0, |cost| cost.drawn_batches), 0);
    }
}

#[test]
fn impossible_caches_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (memory, quarter) = (data(), (feature_bytes(&data()) / 4).to_string());
    let data = stored(&memory, &dir.path().join("shop"));
    let error = |data, options: &[(&str, &str)]| train(data, options).unwrap_err().to_string();
    let budget = ("host_budget", &quarter[..]);
    assert!(error(&data, &[budget, ("cache", "posterior:2")]).contains("use presc:2"));
    assert!(
        error(&data, &[budget, ("cache", "analytic")])
            .starts_with("--cache analytic: hotness analytic expects")
    );
    assert!(error(&data, &[budget, ("cache", "presc-online:2")]).contains("--epochs 2 ends before a cache"));
    assert!(error(&data, &[budget, ("cache", "clock")]).contains("unknown policy 'clock'"));
    assert!(error(&data, &[budget, ("cache_ratio", "0.9")]).starts_with("--cache-ratio 0.9: "));
    assert!(error(&data, &[("cache", "lru")]).contains("host memory holds all rows"));
    assert!(error(&data, &[("host_cache", "lru")]).contains("use it instead"));
    assert!(error(&memory, &[budget]).contains("this dataset is in memory only"));
}

#[test]
fn saved_runs_read_rows_from_disk_and_score_as_the_run_did() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let quarter = (feature_bytes(&data) / 4).to_string();
    let path = dir.path().join("run");
    let summary = {
        let run = RunDir::create(&path).unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
        typed::train(&config(&data, &[("host_budget", &quarter)]).unwrap(), &data, context).unwrap()
    };
    let run = SavedRun::open(&path, false).unwrap();
    let saved = SavedTypedRun::of(&run).unwrap();
    let scores = saved.scores(&saved.dataset(None).unwrap(), &graphmill_core::progress::Quiet).unwrap();
    assert_eq!(scores.test, summary.test.score);
}

/// Options of a run on links, whose ends are nodes of two types.
pub(crate) const LINKS: [(&str, &str); 5] = [
    ("task", "author:writes:paper"),
    ("num_negatives", "2"),
    ("max_batches", "6"),
    ("eval_nodes", "40"),
    ("dropout", "0"),
];

fn train_links(data: &TypedDataset, options: &[(&str, &str)], run: Option<&RunDir>) -> (Summary, String) {
    let mut notes = Notes::default();
    let config = config(data, &[&LINKS[..], options].concat()).unwrap();
    let context = RunContext { run, resume: false, observer: &mut notes, stop: &|| false };
    let summary = typed::links::train(&config, data, context).unwrap();
    (summary, notes.0[0].clone())
}

/// Losses and scores of a run on links to the bit.
fn results_of_links(summary: &Summary) -> Vec<u64> {
    let of_epochs = summary.epochs.iter().flat_map(|of| [of.loss, of.valid_score.unwrap()]);
    of_epochs.chain(summary.test.score).map(f64::to_bits).collect()
}

/// Checks that the traffic of an epoch is the sum of that of its types, which have hit rates.
fn check_types(summary: &Summary, options: &[(&str, &str)]) {
    let epoch = &summary.epochs[1];
    let sum = |of: fn(&graphmill_loader::Traffic) -> u64| {
        epoch.type_traffic.iter().map(|t| of(&t.traffic)).sum::<u64>()
    };
    let all = epoch.traffic;
    assert_eq!(sum(|of| of.device.rows + of.peer.rows), all.device.rows + all.peer.rows, "{options:?}");
    assert_eq!([sum(|of| of.host.rows), sum(|of| of.disk.rows)], [all.host.rows, all.disk.rows]);
    assert_eq!(epoch.type_traffic.len(), 3, "a type has no features");
    for of in epoch.type_traffic.iter().filter(|of| of.traffic.rows() > 0) {
        assert!(of.hit_rate.is_some_and(|rate| (0.0..=1.0).contains(&rate)), "{options:?} {}", of.name);
    }
    let rate = epoch.hit_rate.unwrap();
    assert!(rate > 0.0 && rate <= 1.0, "{options:?}: {rate}");
}

#[test]
fn links_read_rows_through_caches_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let (all, note) = train_links(&data, &[], None);
    assert_eq!(note, "feature rows: the host holds all; strategy sequential");
    let quarter = (feature_bytes(&data) / 4).to_string();
    let budget = ("host_budget", &quarter[..]);
    let mut hits = Vec::new();
    for cache in ["auto", "optimal", "degree", "random", "weighted-reverse-pagerank", "stored-order", "lru"] {
        let options = [budget, ("cache", cache)];
        let (summary, note) = train_links(&data, &options, None);
        assert_eq!(results_of_links(&summary), results_of_links(&all), "{cache}");
        assert!(note.starts_with("feature rows: the host holds ") && note.contains("the disk all"), "{note}");
        check_types(&summary, &options);
        let (traffic, whole) = (summary.epochs[1].traffic, all.epochs[1].traffic);
        assert_eq!(traffic.rows(), whole.rows());
        assert!(traffic.host.rows > 0 && traffic.disk.rows > 0, "{cache}");
        assert_eq!(summary.presampling.is_some(), ["auto", "optimal"].contains(&cache), "{cache}");
        hits.push((cache, summary.epochs[1].hit_rate.unwrap()));
    }
    // batches of links are counted, negatives included
    let of = |name| hits.iter().find(|(cache, _)| *cache == name).unwrap().1;
    assert!(of("optimal") > of("random") && of("auto") > of("random"), "{hits:?}");
    for options in [
        &[budget, ("strategy", "pipelined")][..],
        &[("cache_ratio", "0.3"), ("model", "rgat"), ("heads", "2")],
        &[("cache_ratio", "0.3"), ("negatives", "hard"), ("hard_candidates", "10")],
        &[("cache_ratio", "0.3"), ("sampler", "metapath-walk"), ("num_walks", "8")],
        &[("cache_ratio", "0.3"), ("sampler", "labor"), ("disjoint", "0.4"), ("corrupt", "both")],
    ] {
        let (cached, _) = train_links(&data, options, None);
        check_types(&cached, options);
        let of_model = |(name, _): &&(&str, &str)| !["host_budget", "cache_ratio", "strategy"].contains(name);
        let plain: Vec<_> = options.iter().filter(of_model).copied().collect();
        let (plain, _) = train_links(&data, &plain, None);
        assert_eq!(results_of_links(&cached), results_of_links(&plain), "{options:?}");
    }
}

#[test]
fn links_on_simulated_devices_give_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let (all, _) = train_links(&data, &[], None);
    let quarter = (feature_bytes(&data) / 4).to_string();
    for options in [
        &[("devices", "virtual:1"), ("cache_ratio", "0.2")][..],
        &[("devices", "virtual:2"), ("cache_ratio", "0.2"), ("placement", "replicate:0.5")],
        &[("devices", "virtual:1"), ("device_budget", "1G")],
        &[
            ("devices", "virtual:1"),
            ("cache_ratio", "0.2"),
            ("cache", "lru"),
            ("host_budget", &quarter),
            ("host_cache", "degree"),
        ],
        &[("devices", "virtual:2"), ("strategy", "factored"), ("cache_ratio", "0.2")],
        &[("devices", "virtual:3"), ("strategy", "factored"), ("device_budget", "1G")],
        &[("devices", "virtual:1"), ("strategy", "time-sharing"), ("cache_ratio", "0.2"), ("overlap", "on")],
    ] {
        let (summary, note) = train_links(&data, options, None);
        assert_eq!(results_of_links(&summary), results_of_links(&all), "{options:?}");
        check_types(&summary, options);
        assert!(summary.epochs[1].traffic.device.rows > 0 && note.contains("device"), "{options:?}: {note}");
        if options.iter().any(|(name, _)| *name == "strategy") {
            let trainer = summary.epochs[1].devices.last().unwrap();
            assert!(trainer.cache_rows > 0 && trainer.hit_rate.unwrap() > 0.0, "{trainer:?}");
        }
    }
    let config =
        config(&data, &[&LINKS[..], &[("devices", "virtual:1"), ("device_budget", "1000")]].concat());
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    let message = typed::links::train(&config.unwrap(), &data, context).unwrap_err().to_string();
    assert!(message.starts_with("--device-budget 1000: a training step takes "), "{message}");
}

#[test]
fn saved_runs_on_links_read_rows_from_disk_and_score_as_the_run_did() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let quarter = (feature_bytes(&data) / 4).to_string();
    let path = dir.path().join("run");
    let run = RunDir::create(&path).unwrap();
    let (summary, _) = train_links(&data, &[("host_budget", &quarter)], Some(&run));
    drop(run);
    let run = SavedRun::open(&path, false).unwrap();
    let saved = SavedTypedLinks::of(&run).unwrap();
    let scores = saved.scores(&saved.dataset(None).unwrap(), &graphmill_core::progress::Quiet).unwrap();
    assert_eq!(scores.test, summary.test.score);
}

#[test]
fn hit_rates_by_type_predict_those_of_runs() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let policies =
        ["random", "degree", "presc:1", "optimal", "stored-order", "lru"].map(String::from).to_vec();
    let options = Options {
        train: config(&data, &[]).unwrap(),
        policies: policies.clone(),
        samplers: vec!["neighbor".into(), "labor".into()],
        ratios: vec![0.0, 0.2, 1.0],
        epochs: 2,
    };
    let report = typed::hotness::run(&options, &data, &graphmill_core::progress::Quiet).unwrap();
    assert_eq!(report.results.len(), 2 * 6 * 3);
    let of = |policy: &str, sampler: &str| {
        let rows = report.results.iter().filter(|row| row.all.policy == policy && row.all.sampler == sampler);
        rows.collect::<Vec<_>>()
    };
    for policy in &policies {
        let (rows, best) = (of(policy, "neighbor"), of("optimal", "neighbor"));
        assert!(rows.iter().all(|row| row.types.len() == 3), "{policy}");
        assert!(rows[0].all.hit_rate == 0.0 && rows[1].all.hit_rate > 0.0, "{policy}");
        if policy != "lru" {
            assert!((rows[2].all.hit_rate - 1.0).abs() < 1e-9, "{policy}");
            // per byte, counts of the run itself are the best choice up to the last row
            assert!(best[1].all.hit_rate + 0.01 >= rows[1].all.hit_rate, "{policy}");
        }
    }
    // a run of these epochs with the same cache
    for policy in ["degree", "presc:1", "optimal"] {
        let (run, _) = train(&data, &[("cache_ratio", "0.2"), ("cache", policy)]).unwrap();
        let hits: u64 = run.epochs.iter().map(|epoch| epoch.traffic.host.rows).sum();
        let rows: u64 = run.epochs.iter().map(|epoch| epoch.traffic.rows()).sum();
        let predicted = of(policy, "neighbor")[1].all.hit_rate;
        assert!((hits as f64 / rows as f64 - predicted).abs() < 1e-9, "{policy}: {hits} {rows} {predicted}");
    }
    let text = report.to_string();
    assert!(text.starts_with("typed: rows of 3 types\n  paper: 600 rows of 32 bytes\n"), "{text}");
    assert!(text.contains("\nneighbor: ") && text.contains("\n  author "), "{text}");
    let wrong = Options { policies: vec!["posterior:2".into()], ..options };
    let message =
        typed::hotness::run(&wrong, &data, &graphmill_core::progress::Quiet).unwrap_err().to_string();
    assert!(message.starts_with("--policies: ") && message.contains("use presc:2"), "{message}");
}

/// An observer that truncates a file after the second batch.
struct Truncating(std::path::PathBuf);

impl Observer for Truncating {
    fn batch(&mut self, progress: &graphmill_engine::observer::Progress) -> Result<()> {
        if progress.batches == 2 {
            std::fs::File::options().write(true).open(&self.0).unwrap().set_len(200).unwrap();
        }
        Ok(())
    }
}

#[test]
fn a_file_that_shrinks_ends_the_run_with_one_error() {
    for strategy in ["sequential", "pipelined"] {
        let dir = tempfile::tempdir().unwrap();
        let data = stored(&data(), &dir.path().join("shop"));
        let options =
            [("host_budget", "20000"), ("cache", "lru"), ("strategy", strategy), ("batch_size", "20")];
        let mut observer = Truncating(dir.path().join("shop/nodes/author/features.npy"));
        let run = RunDir::create(&dir.path().join("run")).unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut observer, stop: &|| false };
        let error = typed::train(&config(&data, &options).unwrap(), &data, context).unwrap_err().to_string();
        assert!(error.contains("features.npy"), "{strategy}: {error}");
        assert!(run.checkpoint().join("state.json").exists(), "{strategy}: trained batches are saved");
    }
}
