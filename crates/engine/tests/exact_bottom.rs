//! `--bottom exact`: a run equals one that samples all neighbours at the bottom hop, depends
//! neither on threads nor on interruptions, makes stale aggregates again, and refuses what it
//! cannot do. Scores read the aggregates, too, and `--bottom auto` chooses them where it can.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_core::{Features, Graph, SparseRows, progress};
use graphmill_data::{
    checksum::checksum,
    generate::{GenerateOptions, generate, generate_typed},
    typed::TypedDataset,
};
use graphmill_engine::{
    Dataset, Error, Result, RunContext, RunDir, TrainConfig,
    config::{Bottom, Fanout},
    embedding, events, fit,
    observer::{Observer, Quiet},
    options::key,
    predictor::{Neighborhood, Predictor},
    record::Summary,
    saved::SavedRun,
    train, typed,
};

use crate::set::with;

fn data() -> Dataset {
    let options =
        GenerateOptions { nodes: 600, degree: Some(9.0), classes: 4, dim: 12, ..GenerateOptions::default() };
    generate("sbm", &options).unwrap()
}

/// A run with stored aggregates and other options, written as in [`options::set`].
fn exact(options: &str) -> TrainConfig {
    let base = TrainConfig {
        epochs: 3,
        batch_size: 64,
        hidden: 16,
        fanout: Fanout(vec![4, 3]),
        lr: 0.01,
        seed: 3,
        ..TrainConfig::default()
    };
    with(base, &format!("bottom=exact {options}"))
}

fn run(config: &TrainConfig, data: &Dataset) -> Result<Summary> {
    train(config, data, RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false })
}

fn bits(summary: &Summary) -> (Vec<u64>, Option<f64>) {
    (summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect(), summary.test.score)
}

#[test]
fn losses_equal_those_of_all_neighbours_at_the_bottom_hop() {
    let data = data();
    for options in [
        "model=sage",
        "model=gcn",
        "model=gin",
        // wider and narrower than the features, so that products come after and before aggregates
        "model=gcn hidden=4",
        "model=gin hidden=4",
        "model=sage hidden=4",
        "model=gcn layers=3",
        "model=sage layers=1",
        "model=sage strategy=pipelined",
        "model=gcn sampler=full",
    ] {
        let mut stored = exact(options);
        stored.derive_options(&["layers"]).unwrap();
        let mut all = with(stored.clone(), "bottom=sampled");
        *all.fanout.0.last_mut().unwrap() = Fanout::ALL;
        let (stored, all) = (run(&stored, &data).unwrap(), run(&all, &data).unwrap());
        assert_eq!(stored.epochs.len(), 3);
        for (a, b) in stored.epochs.iter().zip(&all.epochs) {
            assert!((a.loss - b.loss).abs() <= 1e-4 * b.loss.abs(), "{options}: {} and {}", a.loss, b.loss);
            assert!(a.bottom_edges < b.bottom_edges, "{options}: {} edges", a.bottom_edges);
        }
        assert!(stored.epochs[2].loss < stored.epochs[0].loss, "{options}");
    }
    let sampled = run(&with(exact(""), "bottom=sampled"), &data).unwrap();
    assert_ne!(bits(&run(&exact(""), &data).unwrap()), bits(&sampled), "the hop is not sampled");
}

#[test]
fn results_have_the_same_bits_for_any_threads_and_after_interruptions() {
    let (data, dir) = (data(), tempfile::tempdir().unwrap());
    for options in [
        "model=sage dropout=0.3",
        "model=gcn strategy=pipelined",
        "model=gin reuse=layered super_batch=2 hot_prefetch=off dropout=0.3",
    ] {
        let config = exact(&format!("checkpoint_batches=1 {options}"));
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            bits(&pool.install(|| run(&config, &data)).unwrap())
        };
        let whole = on(1);
        assert_eq!(on(3), whole, "{options}: threads");
        let path = dir.path().join(&config.model);
        let stopped = RunDir::create(&path).unwrap();
        let asked = AtomicUsize::new(0);
        let stop = || asked.fetch_add(1, SeqCst) >= 8;
        let context = RunContext { run: Some(&stopped), resume: false, observer: &mut Quiet, stop: &stop };
        let end = train(&config, &data, context);
        assert!(matches!(end, Err(Error::Interrupted { .. })), "{options}");
        drop(stopped);
        let again = RunDir::reopen(&path).unwrap();
        let context = RunContext { run: Some(&again), resume: true, observer: &mut Quiet, stop: &|| false };
        assert_eq!(bits(&train(&config, &data, context).unwrap()), whole, "{options}: resumed");
    }
}

/// With frozen parameters, rows that several batches share equal new ones. Each of them is made
/// from a stored aggregate, without a draw.
#[test]
fn reused_rows_are_made_from_stored_aggregates() {
    let data = data();
    for options in [
        "model=sage reuse=layered",
        "model=gcn reuse=layered hot_rank=0 strategy=pipelined",
        "model=sage reuse=layered hot_prefetch=on hot_gradient=kept",
        "model=gin norm=none reuse=layered",
        "model=gcn reuse=layered strategy=time-sharing devices=virtual:1 batches_per_update=1",
        "model=sage reuse=layered devices=virtual:2 device_budget=100000000 cache=presc:1",
        "model=sage reuse=layered strategy=time-sharing devices=virtual:2 batches_per_update=1 \
         device_budget=100000000 hot_split=auto",
        "model=sage strategy=historical",
    ] {
        let config = exact(&format!("lr=1e-30 dropout=0.0 super_batch=3 {options}"));
        let fresh = "strategy=sequential devices=cpu device_budget=0 reuse=none cache=lru";
        let fresh = run(&with(config.clone(), fresh), &data).unwrap();
        let reused = run(&config, &data).unwrap();
        for (a, b) in reused.epochs.iter().zip(&fresh.epochs) {
            assert!((a.loss - b.loss).abs() <= 1e-4 * b.loss.abs(), "{options}: {} and {}", a.loss, b.loss);
        }
        let reuse = reused.epochs[1].reuse.unwrap();
        assert!(reuse.reused_rows > 0, "{options}: {reuse:?}");
        let edges = if options.contains("historical") { 0 } else { reuse.made_rows };
        assert_eq!(reuse.made_edges, edges, "{options}");
    }
    // rows of older parameters learn
    let learned = run(&exact("model=sage reuse=layered super_batch=3"), &data).unwrap();
    assert!(learned.staleness.max > 0 && learned.epochs[2].loss < learned.epochs[0].loss);
}

#[test]
fn tiers_hold_aggregates_beside_features_and_change_no_bit() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("data");
    let rows = data();
    rows.save(&place).unwrap();
    let data = Dataset::open(&place).unwrap();
    let exact = |options: &str| {
        let config = TrainConfig { dataset: place.to_str().unwrap().into(), ..exact(options) };
        run(&config, &data).unwrap()
    };
    for model in ["model=sage", "model=gcn strategy=pipelined", "model=gin feature_precision=bf16"] {
        let whole = exact(model);
        // 1,200 rows of 48 bytes: features and aggregates
        for tiers in [
            "host_budget=20000",
            "host_budget=20000 cache=presc:1",
            "cache_ratio=0.3 cache=degree",
            "cache_ratio=0.3 cache=posterior:2",
            "cache_ratio=0.3 cache=presc-online:1",
            "devices=virtual:1 cache_ratio=0.25 cache=lru",
            "devices=virtual:2 cache_ratio=0.25 cache=presc:2 placement=interleave",
            "devices=virtual:1 cache_ratio=0.25 host_budget=20000 host_cache=degree",
        ] {
            let tiered = exact(&format!("{model} {tiers}"));
            assert_eq!(bits(&tiered), bits(&whole), "{model} {tiers}");
            let [found, all] = [&tiered, &whole].map(|of| of.epochs[2].traffic.rows());
            assert_eq!(found, all, "{model} {tiers}");
        }
    }
    // devices that sample and train by themselves, in rounds of one batch
    let whole = exact("model=gcn");
    let alone = "batches_per_update=1 model=gcn";
    for devices in [
        "strategy=time-sharing devices=virtual:1",
        "strategy=time-sharing devices=virtual:1 overlap=on cache_ratio=0.25 cache=fifo",
        "strategy=time-sharing devices=virtual:2 cache_ratio=0.25 cache=presc:2 placement=interleave",
        "strategy=time-sharing devices=virtual:2 cache_ratio=0.25 cache=lru",
        "strategy=factored devices=virtual:3 num_samplers=1 cache_ratio=0.25 cache=posterior:2",
        "strategy=factored devices=virtual:2 device_budget=100000000 cache=degree",
        "strategy=factored devices=virtual:2 cache_ratio=0.25 cache=presc-online:2",
        "strategy=factored devices=virtual:2 cache_ratio=0.25 host_budget=20000 host_cache=degree",
    ] {
        let tiered = exact(&format!("{alone} {devices}"));
        assert_eq!(bits(&tiered), bits(&whole), "{devices}");
        let traffic = tiered.epochs[2].traffic;
        assert_eq!(traffic.rows(), whole.epochs[2].traffic.rows(), "{devices}");
        assert!(traffic.device.rows + traffic.peer.rows > 0, "{devices}: {traffic:?}");
    }
    // both rows of a node are cached together: half of the nodes serve half of the reads or more
    for hits in [
        exact("model=sage cache_ratio=0.5 cache=presc:3"),
        exact("model=sage cache_ratio=0.5 cache=presc-online:2"),
        exact(&format!(
            "{alone} strategy=time-sharing devices=virtual:1 cache_ratio=0.5 cache=presc-online:2"
        )),
    ] {
        let rate = hits.epochs[2].hit_rate.unwrap();
        assert!(rate > 0.5, "{rate}");
    }
}

/// Files of stored aggregates in a directory.
fn stored(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_stored = |path: &PathBuf| {
        path.to_string_lossy().contains("bottom_") && path.extension() == Some("bin".as_ref())
    };
    paths.filter(is_stored).collect()
}

#[test]
fn aggregates_are_kept_and_made_again_for_other_features_or_another_graph() {
    let dir = tempfile::tempdir().unwrap();
    let (place, elsewhere) = (dir.path().join("data"), dir.path().join("elsewhere"));
    data().save(&place).unwrap();
    let first = Dataset::open(&place).unwrap();
    let losses = bits(&run(&exact(""), &first).unwrap());
    let [file] = &stored(&place)[..] else { panic!("one file of aggregates") };
    let (bytes, made) = (fs::read(file).unwrap(), fs::metadata(file).unwrap().modified().unwrap());
    assert_eq!(bits(&run(&exact(""), &first).unwrap()), losses);
    assert_eq!(fs::metadata(file).unwrap().modified().unwrap(), made, "used, not made again");

    // the place of the aggregates has no effect on the results
    fs::create_dir(&elsewhere).unwrap();
    let config = TrainConfig { bottom_dir: elsewhere.to_str().unwrap().into(), ..exact("") };
    assert_eq!(bits(&run(&config, &first).unwrap()), losses);
    assert_eq!(fs::read(&stored(&elsewhere)[0]).unwrap(), bytes);

    let mut features = data();
    let graphmill_core::features::FeatureData::F32(rows) = &features.features.data else { panic!("f32") };
    let rows: Vec<f32> = rows.iter().map(|x| x + 0.5).collect();
    features.features = Features::f32(12, rows);
    let mut graph = data();
    let indices: Vec<u32> = graph.graph.indices().iter().map(|u| (u + 1) % 600).collect();
    graph.graph = Graph::new(graph.graph.indptr().to_vec().into(), indices.into()).unwrap();
    for (what, changed) in [("features", features), ("graph", graph)] {
        let fresh = bits(&run(&exact(""), &changed).unwrap());
        // the kept file is that of the first data
        fs::write(&stored(&elsewhere)[0], &bytes).unwrap();
        assert_eq!(bits(&run(&config, &changed).unwrap()), fresh, "{what}");
        assert_ne!(fresh, losses, "{what}");
        assert_ne!(fs::read(&stored(&elsewhere)[0]).unwrap(), bytes, "{what}: made again");
    }
    // a dataset with aggregates may be replaced
    data().save_replacing(&place).unwrap();
    assert!(stored(&place).is_empty());
}

#[test]
fn predictions_and_scores_read_the_stored_aggregates_and_equal_those_of_all_neighbours() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("data");
    data().save(&place).unwrap();
    let data = Dataset::open(&place).unwrap();
    let all: Vec<u32> = (0..600).collect();
    let close = |found: &[f32], expected: &[f32], what: &str| {
        assert_eq!(found.len(), expected.len(), "{what}");
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() <= 1e-5 * (b.abs() + 0.1), "{what}: {a} and {b}");
        }
    };
    for (i, model) in ["model=sage", "model=gcn", "model=sage host_budget=20000"].into_iter().enumerate() {
        let config = TrainConfig { dataset: place.to_str().unwrap().into(), ..exact(model) };
        let path = dir.path().join(format!("run-{i}"));
        let made = RunDir::create(&path).unwrap();
        let context = RunContext { run: Some(&made), resume: false, observer: &mut Quiet, stop: &|| false };
        let test = train(&config, &data, context).unwrap().test.score.unwrap();
        drop(made);
        let answers = || {
            let saved = SavedRun::open(&path, false).unwrap();
            let scores = saved.scores(&data, &progress::Quiet).unwrap();
            assert!((scores.test.unwrap() - test).abs() < 0.02, "{model}");
            let mut predictor = Predictor::new(saved, data.clone()).unwrap();
            let of = |predictor: &Predictor, nodes: &[u32]| {
                predictor.predict(nodes, Neighborhood::All).unwrap().scores
            };
            let (found, few) = (of(&predictor, &all), of(&predictor, &[7, 599]));
            close(&few, &[&found[28..32], &found[2396..]].concat(), &format!("{model}: few nodes"));
            predictor.cache_embeddings(&progress::Quiet).unwrap();
            close(&of(&predictor, &all), &found, &format!("{model}: kept rows"));
            found
        };
        let exact = answers();
        let [file] = &stored(&place)[..] else { panic!("one file of aggregates") };
        let good = fs::read(file).unwrap();
        fs::remove_file(file).unwrap();
        let plain = answers();
        assert!(stored(&place).is_empty(), "{model}: scores store nothing");
        close(&exact, &plain, model);
        // aggregates of zero show that the file is read
        let (head, tail, rows) = (256, 32, 600 * 12 * 4);
        let mut zeros = good.clone();
        zeros[head + rows..good.len() - tail].fill(0);
        let sum = checksum(&zeros[head..good.len() - tail]);
        zeros[good.len() - tail..].copy_from_slice(sum.as_bytes());
        fs::write(file, zeros).unwrap();
        let saved = SavedRun::open(&path, false).unwrap();
        let predictor = Predictor::new(saved, data.clone()).unwrap();
        assert_ne!(predictor.predict(&all, Neighborhood::All).unwrap().scores, exact, "{model}");
        fs::remove_file(file).unwrap();
    }
}

/// Notes of a run about the bottom hop.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, message: &str) {
        if message.starts_with("--bottom") {
            self.0.push(message.to_string());
        }
    }
}

/// Runs with `--bottom auto` and more options in `run`: the note, and the neighbours in its file.
fn automatic(options: &str, data: &Dataset, run: &Path, resume: bool) -> (Summary, String, Bottom) {
    let config = with(exact(""), &format!("bottom=auto {options}"));
    let dir = if resume { RunDir::reopen(run).unwrap() } else { RunDir::create(run).unwrap() };
    let mut notes = Notes::default();
    let context = RunContext { run: Some(&dir), resume, observer: &mut notes, stop: &|| false };
    let summary = train(&config, data, context).unwrap();
    let mut recorded = TrainConfig::default();
    recorded.read_file(&RunDir::config_path(run)).unwrap();
    let [note] = &notes.0[..] else { panic!("{options}: {:?}", notes.0) };
    (summary, note.clone(), recorded.bottom)
}

#[test]
fn auto_is_exact_where_that_is_possible_and_otherwise_gives_the_reason() {
    let (data, dir) = (data(), tempfile::tempdir().unwrap());
    let run_in = |name: &str| dir.path().join(name);
    let missing = dir.path().join("missing");
    let nowhere = format!("fanout=4,-1 bottom_dir={}", missing.display());
    for (i, (options, bottom, reason)) in [
        ("fanout=4,-1", Bottom::Exact, "exact: batches read stored aggregates"),
        ("sampler=full", Bottom::Exact, "exact: batches read stored aggregates"),
        ("fanout=4,3", Bottom::Sampled, "sampled: the last number of --fanout 4,3 is not -1"),
        ("fanout=4,-1 sampler=labor", Bottom::Sampled, "use --sampler neighbor or full"),
        ("fanout=4,-1 model=gat", Bottom::Sampled, "use --model gcn, gin, or sage"),
        ("fanout=4,-1 label_inputs=0.5", Bottom::Sampled, "sampled: --label-inputs"),
        (nowhere.as_str(), Bottom::Sampled, "choose another directory with --bottom-dir"),
    ]
    .into_iter()
    .enumerate()
    {
        let (summary, note, recorded) = automatic(options, &data, &run_in(&i.to_string()), false);
        assert_eq!(recorded, bottom, "{options}");
        assert!(note.starts_with("--bottom auto: ") && note.contains(reason), "{options}: {note}");
        let chosen = with(exact(options), &format!("bottom={bottom}"));
        assert_eq!(bits(&summary), bits(&run(&chosen, &data).unwrap()), "{options}");
    }
    let trained = fit(&with(exact("fanout=4,-1"), "bottom=auto"), &data).unwrap();
    assert_eq!(trained.config().bottom, Bottom::Exact, "a model keeps the choice, too");
    // a resumed run keeps its choice, although another would be made now
    let place = dir.path().join("place");
    fs::create_dir(&place).unwrap();
    let options = format!("fanout=4,-1 bottom_dir={}", place.display());
    let (first, _, chosen) = automatic(&options, &data, &run_in("kept"), false);
    assert_eq!(chosen, Bottom::Exact);
    let sampled = automatic(&nowhere, &data, &run_in("sampled"), false).0;
    let (again, note, chosen) = automatic(&options, &data, &run_in("sampled"), true);
    assert_eq!((chosen, bits(&again)), (Bottom::Sampled, bits(&sampled)));
    assert!(note.contains("sampled, as before in this run"), "{note}");
    assert_ne!(bits(&sampled).0, bits(&first).0, "the choices differ in the last bits");
}

#[test]
fn what_stored_aggregates_cannot_do_is_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("data").to_str().unwrap().to_string();
    data().save(&place).unwrap();
    let data = Dataset::open(&place).unwrap();
    for (options, remedy) in [
        ("sampler=labor", "use --sampler neighbor or full"),
        ("sampler=weighted", "use --sampler neighbor or full"),
        ("sampler=saint-rw", "use --sampler neighbor or full"),
        ("model=gat", "use --model gcn, gin, or sage with --aggregator mean"),
        ("model=sage aggregator=max-pool", "use --model gcn, gin, or sage with --aggregator mean"),
        ("model=sage sage_combine=concat", "--sage-combine add"),
        ("input_layer=true", "without --input-layer"),
        ("input_dropout=0.2", "--input-dropout"),
        ("task=link", "use --task"),
        ("fused=on", "use --fused auto"),
    ] {
        let error = run(&TrainConfig { dataset: place.clone(), ..exact(options) }, &data).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, Error::Usage(_)), "{options}: {message}");
        for part in ["--bottom exact", remedy, "--bottom sampled"] {
            assert!(message.contains(part), "{options}: no '{part}' in: {message}");
        }
    }
    let mut sparse = data.clone();
    let (starts, columns) = ((0..=600).collect::<Vec<u64>>(), (0..600).map(|v| v % 12).collect::<Vec<u32>>());
    let rows = SparseRows::new(12, starts.into(), columns.into(), vec![1.0; 600].into()).unwrap();
    sparse.features = Features::csr(rows);
    let message = run(&exact(""), &sparse).unwrap_err().to_string();
    assert!(
        message.contains("--bottom exact") && message.contains("import the features as dense"),
        "{message}"
    );

    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let config = TrainConfig { bottom_dir: file.to_str().unwrap().into(), ..exact("") };
    let message = run(&config, &data).unwrap_err().to_string();
    assert!(message.contains("--bottom-dir"), "{message}");
}

/// Message that refuses options, all of them given.
fn refused(base: &TrainConfig, options: &[(&str, &str)]) -> Option<String> {
    let mut config = base.clone();
    options.iter().for_each(|(name, value)| key(name).unwrap().parse(&mut config, value).unwrap());
    let given: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
    config.derive_options(&given).unwrap();
    config.refuse_unused(&given).err().map(|error| error.to_string())
}

#[test]
fn given_options_without_effect_are_refused() {
    let base = TrainConfig::default();
    let exact = ("bottom", "exact");
    for accepted in [
        &[exact][..],
        &[exact, ("layers", "3")],
        &[exact, ("fanout", "4,-1")],
        &[exact, ("fanout", "-1")],
        &[exact, ("bottom_dir", "elsewhere")],
        &[("bottom", "auto"), ("fanout", "4,3")],
        &[("bottom", "auto"), ("sampler", "labor")],
        &[("bottom", "auto"), ("bottom_dir", "elsewhere")],
    ] {
        assert_eq!(refused(&base, accepted), None, "{accepted:?}");
    }
    for (options, remedy) in [
        (&[exact, ("fanout", "4,3")][..], "use --fanout 4,-1, or --bottom sampled"),
        (&[("bottom_dir", "elsewhere")], "use --bottom exact"),
        (&[exact, ("sampler", "labor")], "use --sampler neighbor"),
    ] {
        let message = refused(&base, options).unwrap_or_default();
        assert!(message.contains(remedy), "{options:?}: {message}");
    }
    let dir = tempfile::tempdir().unwrap();
    let options = GenerateOptions { nodes: 200, classes: 3, dim: 4, ..GenerateOptions::default() };
    generate_typed("typed", &options).unwrap().save(dir.path()).unwrap();
    let typed = TrainConfig { dataset: dir.path().to_str().unwrap().into(), ..base };
    let message = refused(&typed, &[exact]).unwrap_or_default();
    assert!(message.contains("--bottom exact") && message.contains("leave it out"), "{message}");
}

/// A caller in Rust gets the error of the command line, and no run that ignores the option.
#[test]
fn runs_that_read_no_aggregates_refuse_them_through_the_library() {
    let options = GenerateOptions { nodes: 200, classes: 3, dim: 4, ..GenerateOptions::default() };
    let data = generate_typed("typed", &options).unwrap();
    type Train = fn(&TrainConfig, &TypedDataset, RunContext) -> Result<Summary>;
    let links = "author:writes:paper";
    for (model, task, train, why) in [
        ("rsage", "", typed::train as Train, "projected before they are aggregated"),
        ("rsage", links, typed::links::train, "projected before they are aggregated"),
        ("embedding", links, embedding::train, "its parameters are a row for each node"),
        ("tgn", links, events::train, "it learns a stream of events"),
    ] {
        let config =
            TrainConfig { model: model.into(), task: task.into(), epochs: 1, ..TrainConfig::default() };
        for (bottom, dir, option) in [
            (Bottom::Exact, "", "--bottom exact: "),
            (Bottom::Auto, "", "--bottom auto: "),
            (Bottom::Sampled, "elsewhere", "--bottom-dir elsewhere: "),
        ] {
            let config = TrainConfig { bottom, bottom_dir: dir.into(), ..config.clone() };
            let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
            let message = train(&config, &data, context).unwrap_err().to_string();
            assert!(message.starts_with(option) && message.contains(why), "{model} {task}: {message}");
            assert!(message.ends_with("leave it out"), "{message}");
        }
    }
}
