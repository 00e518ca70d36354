//! `--bottom exact` over ranks: owners store the aggregates of their nodes with the bits of one
//! process, runs equal those of one process, and all ranks make the same choice.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_core::{Features, SparseRows, block::Aggregation, features::FeatureData};
use graphmill_data::{Dataset, bottom_hop, partition::PartitionDir, verification::Verify};
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    config::Bottom,
    observer::{Observer, Quiet},
    record::Summary,
    trainer::over_ranks as train_on_ranks,
};

use crate::ranks::{PARTS, PATIENCE, alone, assert_alike, config, data, on_ranks, over_ranks, partitioned};
use crate::set::with;

fn exact(options: &str) -> TrainConfig {
    let mut config = with(config(), &format!("bottom=exact {options}"));
    config.derive_options(&["fanout"]).unwrap();
    config
}

fn bits(summary: &Summary) -> (Vec<u64>, Option<f64>) {
    (summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect(), summary.test.score)
}

/// Files of aggregates in the directories of all parts, with their contents.
fn stored(dir: &PartitionDir) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for part in 0..PARTS {
        for entry in fs::read_dir(dir.part_path(part)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with("bottom_") && name.ends_with(".bin") {
                assert!(name.ends_with(&format!("_part-{part:04}.bin")), "{name}");
                let bytes = fs::read(&path).unwrap();
                found.insert(path, bytes);
            }
        }
    }
    found
}

#[test]
fn ranks_give_the_losses_of_one_process() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (size, options) in [
        (1, "model=sage"),
        (2, "model=gcn strategy=pipelined allocation=1,1,1"),
        (3, "model=gin norm=none"),
        (4, "model=sage sampler=full"),
        (2, "model=gcn fanout=4,3,2 hidden=6"),
        (2, "model=sage fanout=5"),
        (3, "model=gcn cache=degree cache_ratio=0.3"),
        (3, "model=sage cache=presc-online:1 cache_ratio=0.3"),
        (3, "model=sage cache=lru host_budget=20000"),
        (2, "model=gin norm=none feature_precision=bf16 cache=fifo cache_ratio=0.2"),
        (3, "model=sage graph_stores=1"),
        (4, "model=gcn graph_stores=2 cache=degree cache_ratio=0.3"),
        (2, "model=sage strategy=time-sharing devices=virtual:2 cache=presc:1 cache_ratio=0.2"),
        (2, "model=gcn strategy=factored devices=virtual:2 cache=degree cache_ratio=0.2 num_samplers=1"),
        (2, "model=sage devices=virtual:2 cache=lru cache_ratio=0.2 host_budget=20000"),
    ] {
        let config = exact(options);
        let whole = "graph_stores=0 cache_ratio=auto host_budget=0 cache=lru";
        let one = alone(&with(config.clone(), whole), &data);
        let many = over_ranks(&config, &dir, size);
        assert_alike(&one, &many, options);
        let (epoch, single) = (&many[0].epochs[1], &one.epochs[1]);
        assert!(epoch.bottom_edges >= single.bottom_edges, "{options}");
        // with one hop, which is not drawn, a rank reads the rows of its own seeds
        let reads_others = size > 1 && !options.ends_with("fanout=5");
        assert_eq!(epoch.traffic.remote.rows > 0, reads_others, "{options}");
    }
    let [stored, sampled] = ["", "bottom=sampled"]
        .map(|bottom| bits(&over_ranks(&with(exact("model=sage"), bottom), &dir, 2)[0]));
    assert_ne!(stored, sampled, "the hop is not sampled");
}

/// The bits of a table of all rows, for any number of ranks and whatever the precision of the run.
#[test]
fn parts_store_the_aggregates_of_one_process() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (model, kind) in
        [("sage", Aggregation::Mean), ("gcn", Aggregation::Symmetric), ("gin", Aggregation::Sum)]
    {
        let all = bottom_hop::stacked(&data.graph, &data.features, kind, None, Verify::Once).unwrap();
        let FeatureData::F32(all) = &all.data else { panic!("f32") };
        let expected: Vec<Vec<u8>> = (0..PARTS)
            .map(|part| {
                let nodes = dir.part(part).unwrap().nodes;
                let row = |&v: &u32| &all[(900 + v as usize) * 12..][..12];
                nodes.iter().flat_map(row).flat_map(|x| x.to_le_bytes()).collect()
            })
            .collect();
        for (size, options) in
            [(1, ""), (3, "feature_precision=f16"), (4, "host_budget=20000 cache=lru"), (3, "graph_stores=2")]
        {
            over_ranks(&exact(&format!("epochs=1 model={model} {options}")), &dir, size);
            let files = stored(&dir);
            assert_eq!(files.len(), usize::from(PARTS), "{model} {options}");
            for ((path, bytes), expected) in files.iter().zip(&expected) {
                assert!(bytes[256..bytes.len() - 32] == expected[..], "{model} {options}: {path:?}");
                fs::remove_file(path).unwrap();
            }
        }
    }
}

#[test]
fn aggregates_are_kept_and_those_of_a_damaged_part_are_made_again() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = exact("model=sage");
    let whole = bits(&over_ranks(&config, &dir, 3)[0]);
    let files = stored(&dir);
    let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let before: Vec<_> = files.keys().map(|path| modified(path)).collect();
    assert_eq!(bits(&over_ranks(&config, &dir, 3)[0]), whole);
    let (damaged, good) = files.iter().nth(1).unwrap();
    let mut bad = good.clone();
    bad[300] ^= 1;
    fs::write(damaged, bad).unwrap();
    assert_eq!(bits(&over_ranks(&config, &dir, 3)[0]), whole);
    for ((path, bytes), before) in files.iter().zip(before) {
        assert!(fs::read(path).unwrap() == *bytes, "{path:?}");
        assert_eq!(modified(path) == before, path != damaged, "{path:?}: used, not made again");
    }

    // another place has no effect on the results
    files.keys().for_each(|path| fs::remove_file(path).unwrap());
    let elsewhere = temporary.path().join("elsewhere");
    let config = TrainConfig { bottom_dir: elsewhere.to_str().unwrap().into(), ..config };
    for end in ends(&config, &dir, 2) {
        let message = end.unwrap_err().to_string();
        assert!(message.contains("--bottom exact") && message.contains("--bottom-dir"), "{message}");
    }
    fs::create_dir(&elsewhere).unwrap();
    assert_eq!(bits(&over_ranks(&config, &dir, 3)[0]), whole);
    assert!(stored(&dir).is_empty() && fs::read_dir(&elsewhere).unwrap().count() >= usize::from(PARTS));
}

fn ends(config: &TrainConfig, dir: &PartitionDir, size: usize) -> Vec<Result<Summary>> {
    on_ranks(size, PATIENCE, |_, post| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        train_on_ranks::train(config, dir, post, context)
    })
}

/// Notes about the bottom hop.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, message: &str) {
        if message.starts_with("--bottom") {
            self.0.push(message.to_string());
        }
    }
}

/// Outcomes and notes of two ranks of which rank 0 has the run directory `out`, and which stop
/// after `most` requests to stop, if that is not 0.
fn recorded(
    config: &TrainConfig,
    dir: &PartitionDir,
    (out, resume): (&Path, bool),
    most: usize,
) -> Vec<(Result<Summary>, Vec<String>)> {
    on_ranks(2, PATIENCE, |rank, post| {
        let run =
            (rank == 0).then(|| if resume { RunDir::reopen(out) } else { RunDir::create(out) }.unwrap());
        let (mut notes, asked) = (Notes::default(), AtomicUsize::new(0));
        let stop = || most > 0 && asked.fetch_add(1, SeqCst) >= most;
        let context = RunContext { run: run.as_ref(), resume, observer: &mut notes, stop: &stop };
        (train_on_ranks::train(config, dir, post, context), notes.0)
    })
}

/// Compares the results of all ranks of a run, which may be resumed. Only rank 0 has the epochs
/// before that.
fn assert_equal(
    all: impl IntoIterator<Item = Summary>,
    (losses, score): &(Vec<u64>, Option<f64>),
    what: &str,
) {
    for (rank, summary) in all.into_iter().enumerate() {
        let (own, of_test) = bits(&summary);
        assert!(rank > 0 || own.len() == losses.len(), "{what}");
        assert!(losses.ends_with(&own) && of_test == *score, "{what}: {own:?} and {losses:?}");
    }
}

#[test]
fn a_stopped_run_resumes_to_the_same_bits() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (i, options) in
        ["model=sage", "model=gcn reuse=layered super_batch=2 hot_prefetch=off"].into_iter().enumerate()
    {
        let config = exact(&format!("checkpoint_batches=1 {options}"));
        let whole = bits(&over_ranks(&config, &dir, 2)[0]);
        let out = temporary.path().join(format!("run-{i}"));
        for (end, _) in recorded(&config, &dir, (&out, false), 8) {
            assert!(matches!(end, Err(Error::Interrupted { .. })), "{options}: {end:?}");
        }
        let ends = recorded(&config, &dir, (&out, true), 0).into_iter();
        assert_equal(ends.map(|(end, _)| end.unwrap()), &whole, options);
    }
}

#[test]
fn auto_is_the_choice_of_all_ranks_and_a_resumed_run_keeps_it() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let out = |name: &str| temporary.path().join(name);
    let place = out("place");
    let chosen = |options: &str, (out, resume): (&Path, bool)| {
        let ends = recorded(&exact(&format!("bottom=auto {options}")), &dir, (out, resume), 0);
        let mut recorded = TrainConfig::default();
        recorded.read_file(&RunDir::config_path(out)).unwrap();
        let notes: Vec<String> = ends.iter().map(|(_, notes)| notes.join("")).collect();
        assert_eq!(notes[0], notes[1], "{options}");
        let all: Vec<Summary> = ends.into_iter().map(|(end, _)| end.unwrap()).collect();
        let first = bits(&all[0]);
        assert_equal(all, &first, options);
        (notes[0].clone(), recorded.bottom, first)
    };
    let (note, bottom, losses) = chosen("fanout=5,-1", (&out("exact"), false));
    assert!(bottom == Bottom::Exact && note.contains("exact: batches read stored aggregates"), "{note}");
    assert_eq!(losses, bits(&over_ranks(&exact("fanout=5,-1"), &dir, 2)[0]));
    let (note, bottom, _) = chosen("fanout=5,4", (&out("few"), false));
    assert!(bottom == Bottom::Sampled && note.contains("--fanout 5,4 is not -1"), "{note}");
    let missing = format!("fanout=5,-1 bottom_dir={}", place.display());
    let (note, bottom, losses) = chosen(&missing, (&out("sampled"), false));
    assert!(bottom == Bottom::Sampled && note.contains("another directory with --bottom-dir"), "{note}");
    // the directory is there now
    fs::create_dir(&place).unwrap();
    let (note, bottom, again) = chosen(&missing, (&out("sampled"), true));
    assert!(bottom == Bottom::Sampled && note.contains("sampled, as before in this run"), "{note}");
    assert_eq!(again, losses);
}

/// With frozen parameters, rows that several batches share equal new ones, and each of them is made
/// from a stored aggregate.
#[test]
fn owners_make_reused_rows_from_their_aggregates() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (size, options) in [
        (1, "model=sage"),
        (3, "model=sage hot_prefetch=on"),
        (2, "model=gcn hot_rank=0 strategy=pipelined allocation=1,1,1"),
        (3, "model=gin norm=none graph_stores=1"),
        (2, "model=sage strategy=time-sharing devices=virtual:1 cache_ratio=0.2 batches_per_update=1"),
    ] {
        let config = exact(&format!("lr=1e-30 reuse=layered super_batch=3 {options}"));
        let fresh = "strategy=sequential devices=cpu reuse=none graph_stores=0 cache_ratio=auto";
        let one = alone(&with(config.clone(), fresh), &data);
        let many = over_ranks(&config, &dir, size);
        assert_alike(&one, &many, options);
        let reuse = many[0].epochs[1].reuse.unwrap();
        assert!(reuse.reused_rows > 0 && reuse.made_edges == reuse.made_rows, "{options}: {reuse:?}");
    }
    let pulled = over_ranks(&exact("lr=1e-30 strategy=historical"), &dir, 2);
    assert_alike(&alone(&exact("lr=1e-30"), &data), &pulled, "historical");
    assert!(pulled[0].epochs[1].reuse.unwrap().reused_rows > 0);
}

#[test]
fn impossible_runs_are_refused_on_all_ranks() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (options, remedy) in [
        ("sampler=labor", "use --sampler neighbor or full"),
        ("model=gat", "use --model gcn, gin, or sage"),
        ("input_dropout=0.2", "--input-dropout"),
    ] {
        for end in ends(&exact(options), &dir, 2) {
            let message = end.unwrap_err().to_string();
            assert!(message.contains("--bottom exact") && message.contains(remedy), "{options}: {message}");
        }
    }
    // rows that are stored sparse, although the run keeps them as dense ones
    let (starts, columns) = ((0..=900).collect::<Vec<u64>>(), (0..900).map(|v| v % 12).collect::<Vec<u32>>());
    let rows = SparseRows::new(12, starts.into(), columns.into(), vec![1.0; 900].into()).unwrap();
    let sparse = Dataset { features: Features::csr(rows), ..data };
    let dir = partitioned(&sparse, &temporary.path().join("sparse"));
    for end in ends(&exact("sparse=off"), &dir, 2) {
        let message = end.unwrap_err().to_string();
        assert!(message.contains("import the features as dense rows"), "{message}");
    }
}
