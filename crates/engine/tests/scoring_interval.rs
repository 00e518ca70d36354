//! `--eval-every auto`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use graphmill_data::{
    Dataset,
    generate::{GenerateOptions, generate, generate_typed},
};
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig, config::Fanout, observer::Quiet, record::Summary, train,
    typed,
};

use crate::set::with;

fn data() -> Dataset {
    let options =
        GenerateOptions { nodes: 3000, degree: Some(20.0), classes: 3, dim: 8, ..GenerateOptions::default() };
    let mut data = generate("sbm", &options).unwrap();
    // an epoch of a few batches beside the scores of all nodes
    data.split.train = data.split.train[..600].to_vec().into();
    data
}

fn config(options: &str) -> TrainConfig {
    let base = TrainConfig {
        epochs: 40,
        batch_size: 200,
        hidden: 8,
        fanout: Fanout(vec![3, 2]),
        eval_every: "auto".parse().unwrap(),
        ..TrainConfig::default()
    };
    with(base, options)
}

fn run(config: &TrainConfig, data: &Dataset) -> Result<Summary> {
    train(config, data, RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false })
}

/// Numbers of the epochs that were scored, with their scores.
fn scored(summary: &Summary) -> Vec<(usize, f64)> {
    summary.epochs.iter().filter_map(|epoch| Some((epoch.epoch, epoch.valid_score?))).collect()
}

#[test]
fn scoring_is_spread_by_counts_and_continues_after_a_stop() {
    let data = data();
    let whole = run(&config(""), &data).unwrap();
    let epochs: Vec<usize> = scored(&whole).iter().map(|&(epoch, _)| epoch).collect();
    let every = epochs[1];
    assert!(every > 1 && every < 40, "{epochs:?}");
    let expected = (1..=40).filter(|&epoch: &usize| epoch == 1 || epoch.is_multiple_of(every) || epoch == 40);
    assert_eq!(epochs, expected.collect::<Vec<_>>());
    // the same model: only the choice of the best epoch depends on the interval
    let all = run(&with(config(""), "eval_every=1"), &data).unwrap();
    assert!(scored(&whole).iter().all(|of| scored(&all).contains(of)));
    // neither threads nor a strategy change the counts
    let other = run(&with(config(""), "strategy=auto"), &data).unwrap();
    assert_eq!(scored(&other), scored(&whole));

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let config = with(config(""), "checkpoint_batches=1");
    let asked = AtomicUsize::new(0);
    let stop = || asked.fetch_add(1, Relaxed) == 8;
    let mut resumed = None;
    for is_first in [true, false] {
        let of_run = if is_first { RunDir::create(&path) } else { RunDir::reopen(&path) }.unwrap();
        let context = RunContext { run: Some(&of_run), resume: !is_first, observer: &mut Quiet, stop: &stop };
        match train(&config, &data, context) {
            Ok(summary) => resumed = Some(summary),
            Err(Error::Interrupted { epoch, .. }) => assert!(is_first && epoch > 1),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(scored(&resumed.unwrap()), scored(&whole));
}

#[test]
fn scoring_of_unknown_work_takes_a_number() {
    let data = data();
    let links = run(&with(config(""), "task=link metric=auc"), &data).unwrap_err().to_string();
    assert!(links.starts_with("--eval-every auto: ") && links.contains("give a number"), "{links}");
    let options = GenerateOptions { nodes: 900, classes: 3, dim: 4, ..GenerateOptions::default() };
    let several = generate_typed("typed", &options).unwrap();
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    let error = typed::train(&with(config(""), "model=rsage"), &several, context).unwrap_err().to_string();
    assert!(error.contains("nodes of graphs of one type"), "{error}");
}
