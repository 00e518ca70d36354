//! Given destinations of events, of any number each: ranks are those of comparisons with one
//! destination after the other, and depend neither on threads nor on interruptions.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_data::{
    TypedBuilder, TypedDataset,
    typed::{self, CandidateLists, EdgeType, Negatives, Verify},
};
use graphmill_engine::{
    Error, RunContext, RunDir,
    events::{SavedEvents, train as run_events},
    observer::Quiet,
    record::Summary,
    saved::SavedRun,
};

use super::events::{config, visits};

/// Events of the parts.
const PARTS: [std::ops::Range<u32>; 3] = [0..42, 42..52, 52..60];
/// Numbers of negatives of the test events.
const LENGTHS: [u32; 8] = [3, 0, 1, 2, 4, 0, 1, 3];

/// A dataset of visits without a metric, whose validation events have two negatives each.
fn dataset(dir: &Path, test: Option<Negatives>) -> TypedDataset {
    let (users, items, times) = visits(60);
    let mut builder = TypedBuilder::new("visits");
    let rows =
        |count: u32| (0..count).flat_map(|v| [v as f32 / 10.0, (v * v % 7) as f32]).collect::<Vec<_>>();
    builder.node_type("user", 20).features(2, rows(20));
    builder.node_type("item", 15).features(2, rows(15));
    builder.edge_type("user", "visits", "item").edges(users.clone(), items.clone()).time(times.clone());
    let pairs: Vec<u32> = users.iter().zip(&items).flat_map(|(u, v)| [*u, *v]).collect();
    let valid =
        Negatives::Destinations { each: 2, nodes: (0..20).map(|i| i % 15).collect::<Vec<_>>().into() };
    let [of_train, of_valid, of_test] = PARTS.map(|part| part.collect::<Vec<u32>>());
    builder
        .task("visits")
        .on_edges(EdgeType::new("user", "visits", "item"))
        .pair_seeds(pairs)
        .time(times)
        .split(of_train, of_valid, of_test)
        .negatives([None, Some(valid), test]);
    builder.build().unwrap().save(dir).unwrap();
    typed::open(dir, Verify::Once).unwrap()
}

/// Negatives of the test events, none of which is their own destination.
fn lists() -> Vec<Vec<u32>> {
    let (_, items, _) = visits(60);
    let list = |(i, count): (usize, u32)| {
        (0..count).map(|k| (items[52 + i] + 1 + k * 3 + i as u32 % 2) % 15).collect::<Vec<u32>>()
    };
    LENGTHS.into_iter().enumerate().map(list).collect()
}

fn ragged(lists: Vec<Vec<u32>>) -> Option<Negatives> {
    Some(Negatives::Lists(CandidateLists::new(lists)))
}

fn run_to(data: &TypedDataset, options: &[(&str, &str)], run: Option<&RunDir>) -> Summary {
    let config = config(data, options).unwrap();
    let context = RunContext { run, resume: false, observer: &mut Quiet, stop: &|| false };
    run_events(&config, data, context).unwrap()
}

/// Score of the test events against these lists.
fn score(options: &[(&str, &str)], lists: Vec<Vec<u32>>) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let summary = run_to(&dataset(&dir.path().join("data"), ragged(lists)), options, None);
    assert_eq!(summary.test.metric, "mrr");
    summary.test.score.unwrap()
}

fn mean_reciprocal(ranks: &[f64]) -> f64 {
    ranks.iter().map(|rank| 1.0 / rank).sum::<f64>() / ranks.len() as f64
}

#[test]
fn lists_of_any_length_rank_as_one_comparison_after_the_other() {
    let lists = lists();
    for options in [
        &[("model", "tgn"), ("epochs", "1"), ("batch_size", "3")][..],
        &[("model", "dygformer"), ("epochs", "1"), ("batch_size", "3"), ("channel_dim", "4")],
    ] {
        // an event with one negative among events without: its rank follows from the mean
        let mut ranks = vec![1.0; lists.len()];
        for (i, list) in lists.iter().enumerate() {
            for &v in list {
                let mut alone = vec![Vec::new(); lists.len()];
                alone[i].push(v);
                let count = lists.len() as f64;
                let rank = 1.0 / (count * score(options, alone) - (count - 1.0));
                ranks[i] += (2.0 * (rank - 1.0)).round() / 2.0;
            }
        }
        let close = |found: f64, ranks: &[f64]| {
            let expected = mean_reciprocal(ranks);
            assert!((found - expected).abs() < 1e-9, "{options:?}: {found} {expected} {ranks:?}");
        };
        close(score(options, lists.clone()), &ranks);
        // more pairs than are scored at once
        let many = lists.iter().map(|list| list.repeat(200)).collect();
        let far: Vec<f64> = ranks.iter().map(|rank| 1.0 + 200.0 * (rank - 1.0)).collect();
        close(score(options, many), &far);
    }
}

#[test]
fn equal_lists_have_the_scores_of_destinations() {
    let dir = tempfile::tempdir().unwrap();
    let nodes: Vec<u32> = (0..24).map(|i| (i * 7) % 15).collect();
    let scores = [
        Negatives::Destinations { each: 3, nodes: nodes.clone().into() },
        Negatives::Lists(CandidateLists::equal(8, 3, nodes.into())),
    ]
    .map(|test| {
        let name = if matches!(test, Negatives::Lists(_)) { "lists" } else { "destinations" };
        let data = dataset(&dir.path().join(name), Some(test));
        let run = RunDir::create(&dir.path().join(format!("{name}-run"))).unwrap();
        let summary = run_to(&data, &[("epochs", "2"), ("batch_size", "10")], Some(&run));
        let saved = SavedRun::open(run.path(), false).unwrap();
        let events = SavedEvents::of(&saved).unwrap();
        let scores = events.scores(&events.dataset(None).unwrap(), &Quiet).unwrap();
        assert_eq!((scores.test, &scores.metric[..]), (summary.test.score, "mrr"));
        scores.parts.into_iter().map(|part| part.scores).collect::<Vec<_>>()
    });
    assert!(scores[0] == scores[1] && scores[0][1].contains_key("hits@1"), "{scores:?}");
}

#[test]
fn scores_against_lists_depend_neither_on_threads_nor_on_interruptions() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(&dir.path().join("data"), ragged(lists()));
    let options = [("epochs", "2"), ("batch_size", "5"), ("checkpoint_batches", "2")];
    let config = config(&data, &options).unwrap();
    let results = |summary: &Summary| {
        let losses: Vec<u64> = summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect();
        (losses, summary.best.valid_score, summary.test.score)
    };
    let whole = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let run = RunDir::create(&dir.path().join(format!("whole-{threads}"))).unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
        results(&pool.install(|| run_events(&config, &data, context)).unwrap())
    };
    let one = whole(1);
    assert_eq!(one, whole(3));
    let path = dir.path().join("run");
    let run = RunDir::create(&path).unwrap();
    let done = AtomicUsize::new(0);
    let stop = || done.fetch_add(1, SeqCst) + 1 >= 3;
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &stop };
    assert!(matches!(run_events(&config, &data, context), Err(Error::Interrupted { saved: true, .. })));
    drop(run);
    let run = RunDir::reopen(&path).unwrap();
    let context = RunContext { run: Some(&run), resume: true, observer: &mut Quiet, stop: &|| false };
    assert_eq!(results(&run_events(&config, &data, context).unwrap()), one);
}
