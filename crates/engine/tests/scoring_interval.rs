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

use crate::{
    distributed::with_directory,
    ranks::{self, over_ranks, partitioned},
    set::with,
};

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

/// Epochs between two that were scored: the first, every so many, and the last.
pub(crate) fn interval(summary: &Summary) -> usize {
    let epochs: Vec<usize> = scored(summary).iter().map(|&(epoch, _)| epoch).collect();
    let last = summary.epochs.len();
    let every = if epochs.len() == last { 1 } else { epochs[1] };
    let is_turn = |epoch: &usize| *epoch == 1 || epoch.is_multiple_of(every) || *epoch == last;
    assert_eq!(epochs, (1..=last).filter(is_turn).collect::<Vec<_>>());
    every
}

/// Numbers of the epochs that were scored, with their scores.
fn scored(summary: &Summary) -> Vec<(usize, f64)> {
    summary.epochs.iter().filter_map(|epoch| Some((epoch.epoch, epoch.valid_score?))).collect()
}

#[test]
fn scoring_is_spread_by_counts_and_continues_after_a_stop() {
    let data = data();
    let whole = run(&config(""), &data).unwrap();
    let every = interval(&whole);
    assert!(every > 1 && every < 40, "{every}");
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
fn rankings_of_links_are_spread_by_the_pairs_that_they_score() {
    let options =
        GenerateOptions { nodes: 300, degree: Some(8.0), classes: 3, dim: 8, ..GenerateOptions::default() };
    let data = generate("sbm", &options).unwrap();
    let of = |options: &str| {
        let options = format!("task=link batch_size=50 max_batches=2 {options}");
        let mut config = with(config(""), &options);
        config.derive_options(&["batch_size", "fanout", "hidden", "eval_every"]).unwrap();
        run(&config, &data).unwrap()
    };
    let all = of("metric=mrr candidates=all");
    assert_eq!(scored(&of("metric=mrr candidates=all strategy=pipelined")), scored(&all));
    let [all, pairs] = [all, of("metric=auc candidates=pairs")].map(|summary| interval(&summary));
    assert!(all > pairs && pairs > 1, "{all} {pairs}");
}

#[test]
fn nodes_of_several_types_are_scored_by_counts() {
    let options = GenerateOptions { nodes: 900, classes: 3, dim: 4, ..GenerateOptions::default() };
    let mut data = generate_typed("typed", &options).unwrap();
    let train = data.tasks[0].split.train[..20].to_vec();
    data.tasks[0].split.train = train.into();
    let run = |options: &str| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        typed::train(&with(config("model=rsage"), options), &data, context).unwrap()
    };
    let whole = run("");
    assert!(interval(&whole) > 1);
    let all = run("eval_every=1");
    assert!(scored(&whole).iter().all(|of| scored(&all).contains(of)));
    assert_eq!(scored(&run("strategy=pipelined")), scored(&whole));
    // whole neighbourhoods are drawn as batches
    assert!(interval(&run("sampler=metapath-walk")) > 1);
}

#[test]
fn all_ranks_score_the_same_epochs() {
    let (data, temporary) = (ranks::data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = with(ranks::config(), "eval_every=auto epochs=12");
    let many = over_ranks(&config, &dir, 2);
    let every = interval(&many[0]);
    assert!(every > 1 && every < 12, "{every}");
    assert!(many.iter().all(|rank| scored(rank) == scored(&many[0])));
    // a stop in the first epoch, whose rows are counted by two processes on each rank
    let out = temporary.path().join("run");
    for end in with_directory(&config, &dir, 2, &out, Some((1, 3))) {
        assert!(matches!(end, Err(Error::Interrupted { .. })), "{end:?}");
    }
    let resumed = with_directory(&config, &dir, 2, &out, None);
    assert_eq!(interval(resumed[0].as_ref().unwrap()), every);

    let mut links = with(config, "task=link batch_size=50 max_batches=2 metric=mrr candidates=all epochs=6");
    links.derive_options(&["layers", "fanout", "dropout", "hidden", "batch_size"]).unwrap();
    let many = over_ranks(&links, &dir, 2);
    assert!(interval(&many[0]) > 1 && many.iter().all(|rank| scored(rank) == scored(&many[0])));
}
