//! Positives of walks, and negatives of lists: runs learn, results depend neither on threads nor on
//! interruptions, and hard negatives are those of the last epoch's ranking.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_data::{
    generate::{GenerateOptions, generate},
    npy,
};
use graphmill_engine::{
    AnyDataset, Error, RunContext, RunDir, TrainConfig,
    config::{Fanout, link::LINK},
    embedding::SavedEmbedding,
    observer::Quiet,
    record::Summary,
    saved::SavedRun,
};

use crate::set::with;

const WALKS: &str =
    "positives=walks negatives=degree num_negatives=3 walk_nodes=8 walk_window=2 batch_size=48";
const TABLE: &str = "model=embedding decoder=dot loss=bce metric=auc lr=0.05";

/// Stores a graph of four communities without a link task.
fn store(dir: &Path) -> String {
    let options = GenerateOptions {
        nodes: 240,
        degree: Some(12.0),
        classes: 4,
        dim: 8,
        p_in: 0.95,
        ..GenerateOptions::default()
    };
    let path = dir.join("communities");
    generate("sbm", &options).unwrap().save(&path).unwrap();
    path.to_str().unwrap().into()
}

fn config(dataset: &str, options: &str) -> TrainConfig {
    let base = TrainConfig {
        dataset: dataset.into(),
        task: LINK.into(),
        epochs: 3,
        batch_size: 128,
        hidden: 16,
        fanout: Fanout(vec![4, 3]),
        dropout: 0.0,
        lr: 0.01,
        seed: 3,
        ..TrainConfig::default()
    };
    let mut config = with(base, options);
    config.derive_options(&["layers", "fanout", "loss"]).unwrap();
    config.check().unwrap();
    config
}

fn train(config: &TrainConfig, threads: usize) -> Summary {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    pool.install(|| AnyDataset::open(config).unwrap().train(config, context)).unwrap()
}

/// Results of a run.
#[derive(PartialEq)]
struct Results {
    /// Bits of the loss of each epoch, the validation scores and the test score.
    numbers: Vec<Option<u64>>,
    /// Files of parameters.
    files: [Vec<u8>; 2],
}

/// Results of a run in a directory.
fn results(summary: &Summary, run: &Path) -> Results {
    let epochs = summary.epochs.iter().flat_map(|epoch| [Some(epoch.loss), epoch.valid_score]);
    Results {
        numbers: epochs.chain([summary.test.score]).map(|x| x.map(f64::to_bits)).collect(),
        files: ["best.safetensors", "checkpoint/model.safetensors"]
            .map(|file| fs::read(run.join(file)).unwrap()),
    }
}

#[test]
fn results_have_the_same_bits_for_any_threads_and_after_interruptions() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = store(dir.path());
    let hard = "negatives=hard hard_candidates=15 num_negatives=2";
    for (case, options) in [
        ("encoder-walks", format!("{WALKS} walk_p=0.5 walk_q=2")),
        ("encoder-hard", hard.to_string()),
        ("table-walks", format!("{TABLE} {WALKS}")),
        ("table-hard", format!("{TABLE} {hard} num_negatives=3")),
    ] {
        let config = config(&dataset, &format!("{options} checkpoint_batches=2"));
        let data = AnyDataset::open(&config).unwrap();
        let whole = |threads: usize| {
            let run = RunDir::create(&dir.path().join(format!("{case}-{threads}"))).unwrap();
            let context =
                RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            results(&pool.install(|| data.train(&config, context)).unwrap(), run.path())
        };
        let one = whole(1);
        assert!(one == whole(3), "{case}: threads");
        // stopped inside the first epoch, inside the second, and at the end of a later one
        let path = dir.path().join(format!("{case}-often"));
        for (i, batches) in [2usize, 7, 4].into_iter().enumerate() {
            let run = if i > 0 { RunDir::reopen(&path) } else { RunDir::create(&path) }.unwrap();
            let done = AtomicUsize::new(0);
            let stop = || done.fetch_add(1, SeqCst) + 1 >= batches;
            let context = RunContext { run: Some(&run), resume: i > 0, observer: &mut Quiet, stop: &stop };
            let outcome = data.train(&config, context);
            assert!(matches!(outcome, Err(Error::Interrupted { saved: true, .. })), "{case} {i}");
        }
        let run = RunDir::reopen(&path).unwrap();
        let context = RunContext { run: Some(&run), resume: true, observer: &mut Quiet, stop: &|| false };
        let summary = data.train(&config, context).unwrap();
        assert!(one == results(&summary, &path), "{case}: resumed");
    }
}

#[test]
fn walks_learn_communities() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = store(dir.path());
    for (options, least) in [
        (format!("{WALKS} epochs=25 lr=0.02"), 0.6),
        (format!("{TABLE} {WALKS} epochs=12"), 0.72),
        (format!("{TABLE} {WALKS} epochs=12 metric=mrr"), 0.04),
    ] {
        let summary = train(&config(&dataset, &options), 2);
        assert!(summary.test.score.unwrap() > least, "{options}: {:?}", summary.test);
        // a walk of each node with a training edge; with an encoder, the pairs are counted
        let seeds = summary.epochs[0].seeds;
        let is_expected =
            if options.starts_with(WALKS) { seeds > 2000 } else { (220..=240).contains(&seeds) };
        assert!(is_expected, "{options}: {seeds} seeds");
        let [first, last] = [0, summary.epochs.len() - 1].map(|epoch| summary.epochs[epoch].loss);
        assert!(last < first, "{options}: {first} {last}");
    }
}

#[test]
fn tables_of_graphs_without_a_task_have_the_scores_of_training() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = store(dir.path());
    let config = config(&dataset, &format!("{TABLE} {WALKS}"));
    let run = RunDir::create(&dir.path().join("run")).unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    let summary = AnyDataset::open(&config).unwrap().train(&config, context).unwrap();
    let saved = SavedRun::open(run.path(), false).unwrap();
    let table = SavedEmbedding::of(&saved).unwrap();
    let scores = table.scores(&table.dataset(None).unwrap(), &Quiet).unwrap();
    assert_eq!((scores.test, &scores.metric[..]), (summary.test.score, "auc"));
    let of_test = scores.parts.iter().find(|part| part.part == "test").unwrap();
    assert!(["average-precision", "mrr", "hits@10"].iter().all(|name| of_test.scores.contains_key(*name)));
}

#[test]
fn hard_negatives_follow_the_first_ranking_and_are_harder() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = store(dir.path());
    for model in ["model=sage", TABLE] {
        let losses = |negatives: &str| -> Vec<f64> {
            let options = format!("{model} num_negatives=2 epochs=4 negatives={negatives}");
            train(&config(&dataset, &options), 2).epochs.iter().map(|epoch| epoch.loss).collect()
        };
        let (uniform, hard) = (losses("uniform"), losses("hard hard_candidates=10"));
        assert_eq!(uniform[0].to_bits(), hard[0].to_bits(), "{model}: no ranking yet");
        assert!((1..4).all(|epoch| hard[epoch] > uniform[epoch]), "{model}: {uniform:?} {hard:?}");
    }
}

#[test]
fn negatives_of_a_file_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = store(dir.path());
    let file = dir.path().join("pairs.npy");
    let write = |columns: usize, values: Vec<i64>| {
        npy::write(&file, &values, &[values.len() / columns, columns]).unwrap();
    };
    for model in ["model=sage", TABLE] {
        let options = format!("{model} num_negatives=2 negatives=file negatives_file={}", file.display());
        let losses = |options: &str| -> Vec<u64> {
            train(&config(&dataset, options), 2).epochs.iter().map(|epoch| epoch.loss.to_bits()).collect()
        };
        // without lists, draws are uniform
        write(2, Vec::new());
        let uniform = losses(&format!("{model} num_negatives=2"));
        assert_eq!(losses(&options), uniform, "{model}");
        write(2, (0..240).flat_map(|u| [u, (u * 7 + 3) % 240]).collect());
        let listed = losses(&options);
        assert_ne!(listed, uniform, "{model}");
        write(3, (0..240).flat_map(|u| [u, 0, (u * 7 + 3) % 240]).collect());
        assert_eq!(losses(&options), listed, "{model}: one relation");
        for (columns, values, why) in [
            (2, vec![3, 240], "row 0: destination 240 is not below 240"),
            (2, vec![3, 4, -1, 5], "row 1: source -1 is not below 240"),
            (3, vec![3, 2, 4], "row 0: relation 2 is not below 1"),
            (4, vec![3, 2, 4, 1], "rows of two columns"),
        ] {
            write(columns, values);
            let config = config(&dataset, &options);
            let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
            let error = AnyDataset::open(&config).unwrap().train(&config, context).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}

#[test]
fn options_that_do_not_fit_are_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = store(dir.path());
    for (options, given, why) in [
        ("walk_window=3", "walk_window", "--positives edges makes no walks; use --positives walks"),
        ("positives=walks exclude=edges", "exclude", "walks read all training edges"),
        (
            "hard_candidates=5",
            "hard_candidates",
            "--negatives uniform does not read it; use --negatives hard",
        ),
        ("negatives_file=a.npy", "negatives_file", "use --negatives file"),
    ] {
        let refused = config(&dataset, options).refuse_unused(&[given]);
        let message = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains(why), "{options}: {message}");
    }
    let shares = config(&dataset, "model=embedding split_edges=8,1,1");
    shares.refuse_unused(&["split_edges"]).unwrap();
    let mut config = with(TrainConfig::default(), "negatives=file");
    config.task = LINK.into();
    assert!(config.check().unwrap_err().to_string().contains("pass --negatives-file PATH"));
    for options in ["one_vs_all=true", "subsampling=true"] {
        let config =
            self::config(&dataset, &format!("model=embedding decoder=distmult positives=walks {options}"));
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        let error = AnyDataset::open(&config).unwrap().train(&config, context).unwrap_err().to_string();
        assert!(error.contains("--positives walks"), "{error}");
    }
}
