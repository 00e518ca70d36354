//! `--reuse auto`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use graphmill_data::{
    Dataset,
    generate::{GenerateOptions, generate},
};
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig, config::Fanout, observer::Observer, record::Summary,
    train,
};
use rayon::ThreadPoolBuilder;

use crate::set::{checked, with};

/// Graph of 9 batches with this number of features. Most nodes are requested by several batches.
fn data(features: usize) -> Dataset {
    let options = GenerateOptions {
        nodes: 300,
        degree: Some(20.0),
        classes: 3,
        dim: features,
        ..GenerateOptions::default()
    };
    let mut data = generate("sbm", &options).unwrap();
    data.split.train = data.split.train[..140].to_vec().into();
    data
}

const WIDE: usize = 1000;
const NARROW: usize = 6;

fn config(options: &str) -> TrainConfig {
    let base = TrainConfig {
        epochs: 2,
        batch_size: 16,
        hidden: 64,
        fanout: Fanout(vec![5, 5]),
        dropout: 0.3,
        lr: 0.01,
        seed: 3,
        model: "gcn".into(),
        ..TrainConfig::default()
    };
    with(base, &format!("super_batch=8 hot_rank=2 {options}"))
}

/// Collects the notes of a run about reuse.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, message: &str) {
        if message.starts_with("--reuse") {
            self.0.push(message.to_string());
        }
    }
}

fn run(options: &str, data: &Dataset) -> Result<(Summary, Vec<String>)> {
    let mut config = config(options);
    config.derive_options(&["fanout"])?;
    let mut notes = Notes::default();
    let context = RunContext { run: None, resume: false, observer: &mut notes, stop: &|| false };
    Ok((train(&config, data, context)?, notes.0))
}

fn bits(summary: &Summary) -> Vec<(u64, Option<u64>)> {
    summary.epochs.iter().map(|e| (e.loss.to_bits(), e.valid_loss.map(f64::to_bits))).collect()
}

#[test]
fn runs_of_narrow_features_compute_exactly() {
    let data = data(NARROW);
    let (exact, none) = run("reuse=none", &data).unwrap();
    assert!(none.is_empty(), "{none:?}");
    for options in ["", "strategy=pipelined", "strategy=pipelined allocation=1,1,1", "hot_prefetch=on"] {
        let (summary, notes) = run(&format!("reuse=auto {options}"), &data).unwrap();
        assert_eq!(bits(&summary), bits(&exact), "{options}");
        assert!(summary.epochs.iter().all(|epoch| epoch.reuse.is_none()), "{options}");
        assert_eq!((summary.staleness.bound, summary.staleness.max), (0, 0), "{options}");
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.starts_with("--reuse auto: reuse would save "), "{note}");
        assert!(note.ends_with(": off: every batch computes all its rows"), "{note}");
    }
    // without a choice, the rows are reused, and the note says that it does not pay
    let (summary, notes) = run("reuse=layered", &data).unwrap();
    assert!(summary.epochs[0].reuse.unwrap().reused_rows > 0);
    assert!(notes.len() == 1 && notes[0].contains("so it does not pay; --reuse auto"), "{notes:?}");
}

#[test]
fn runs_of_wide_features_reuse_rows() {
    let data = data(WIDE);
    let (layered, notes) = run("reuse=layered", &data).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    let (exact, _) = run("reuse=none", &data).unwrap();
    assert_ne!(bits(&layered), bits(&exact));
    let mut seen = None;
    for (threads, options) in [(1, ""), (3, ""), (2, "strategy=pipelined")] {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let (summary, notes) = pool.install(|| run(&format!("reuse=auto {options}"), &data)).unwrap();
        assert_eq!(bits(&summary), bits(&layered), "{options}");
        assert_eq!(summary.staleness, layered.staleness, "{options}");
        assert!(notes.len() == 1 && notes[0].ends_with(": on"), "{notes:?}");
        assert_eq!(*seen.get_or_insert(notes.clone()), notes, "threads or a strategy change the counts");
    }
    // without hot nodes there is nothing to decide
    let (none, notes) = run("reuse=auto hot_ratio=0", &data).unwrap();
    assert_eq!(bits(&none), bits(&exact));
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn a_resumed_run_decides_as_at_its_start() {
    for (features, verdict) in [(NARROW, ": off"), (WIDE, ": on")] {
        let data = data(features);
        let (whole, notes) = run("reuse=auto", &data).unwrap();
        let mut config = config("reuse=auto checkpoint_batches=1");
        config.derive_options(&["fanout"]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let asked = AtomicU64::new(0);
        let stop = || asked.fetch_add(1, Relaxed) == 5;
        let mut resumed = None;
        for is_first in [true, false] {
            let of_run = if is_first { RunDir::create(&path) } else { RunDir::reopen(&path) }.unwrap();
            let mut noted = Notes::default();
            let context =
                RunContext { run: Some(&of_run), resume: !is_first, observer: &mut noted, stop: &stop };
            match train(&config, &data, context) {
                Ok(summary) => resumed = Some(summary),
                Err(Error::Interrupted { saved: true, .. }) => assert!(is_first),
                Err(error) => panic!("{error}"),
            }
            assert_eq!(noted.0, notes, "the counts are those of the start");
            assert!(notes[0].contains(verdict), "{notes:?}");
        }
        assert_eq!(bits(&resumed.expect("the run was resumed")), bits(&whole));
        let mut recorded = TrainConfig::default();
        recorded.read_file(&RunDir::config_path(&path)).unwrap();
        assert_eq!(recorded.reuse, "auto");
    }
}

#[test]
fn a_decision_needs_the_processor_and_seeds() {
    let data = data(NARROW);
    // the options of layered reuse are those of the decision, too
    checked(config(""), &[("reuse", "auto"), ("hot_ratio", "0.3"), ("hot_gradient", "none")]).unwrap();
    for (options, why) in [
        ("devices=virtual:1", "--devices virtual:1 also gains by what crosses a link"),
        ("sampler=saint-node", "the choice would change what is learned"),
        ("strategy=historical", "reuses rows itself"),
    ] {
        let message = run(&format!("reuse=auto {options}"), &data).unwrap_err().to_string();
        assert!(message.starts_with("--reuse auto: ") && message.contains(why), "{message}");
    }
}
