//! New events of an open run: its answers are those of a run opened on all events at once.

use std::{fs, ops::Range, path::Path};

use graphmill_data::typed::TypedDataset;
use graphmill_engine::{
    RunContext, RunDir,
    events::train,
    observer::Quiet,
    predictor::{LinkPredictor, NewEvents, TopOptions},
    saved::{SavedRun, links::Reading},
};

use super::events::{config, features_of, shop_of, visits};

/// Number of events of the dataset that the run learns.
const OLD: usize = 530;
/// Number of events of the dataset with the new ones. Batches have 50.
const ALL: usize = 670;

/// Visits of a range as new events.
fn new_events(range: Range<usize>) -> NewEvents {
    let (users, items, times) = visits(ALL as u32);
    NewEvents {
        pairs: range.clone().map(|e| (users[e], items[e])).collect(),
        times: times[range.clone()].to_vec(),
        features: range.flat_map(|e| features_of(e as u32)).collect(),
    }
}

/// A dataset of the first `count` visits.
fn shop(dir: &Path, count: usize) -> TypedDataset {
    let (mut users, mut items, mut times) = visits(ALL as u32);
    users.truncate(count);
    items.truncate(count);
    times.truncate(count);
    shop_of(dir, false, (users, items, times))
}

/// Trains a run on `data` in the directory `dir`.
fn trained(data: &TypedDataset, dir: &Path, options: &[(&str, &str)]) {
    let run = RunDir::create(dir).unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    train(&config(data, options).unwrap(), data, context).unwrap();
}

/// Opens a run on its dataset, or on another one that is taken for it.
fn open(run: &Path, data: &TypedDataset, taken_for: &TypedDataset) -> LinkPredictor {
    let checksum = |of: &TypedDataset| of.checksum.clone().unwrap();
    for entry in fs::read_dir(run).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "toml" || end == "json") {
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replace(&checksum(taken_for), &checksum(data))).unwrap();
        }
    }
    let run = SavedRun::open(run, false).unwrap();
    LinkPredictor::of(run, data.directory.as_deref(), Reading::Training, &Quiet).unwrap()
}

/// Bits of answers as of several times: scores, best candidates, and embeddings if there are any.
fn answers(links: &LinkPredictor, times: &[Option<i64>]) -> Vec<u32> {
    let mut bits = Vec::new();
    for &at in times {
        let pairs = [(3, 4), (19, 14), (0, 0)];
        bits.extend(links.score_at(0, &pairs, at).unwrap().iter().map(|score| score.to_bits()));
        let options = TopOptions { k: 4, at, ..TopOptions::default() };
        let best = links.top(0, &[0, 7, 19], options).unwrap();
        bits.extend(best.concat().iter().flat_map(|(item, score)| [*item, score.to_bits()]));
        if links.embedding_dim() > 0 {
            let all: Vec<u32> = (0..20).collect();
            bits.extend(links.embed_at(0, &all, at).unwrap().iter().map(|x| x.to_bits()));
        }
    }
    bits
}

#[test]
fn answers_after_new_events_are_those_of_a_dataset_that_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let (_, _, times) = visits(ALL as u32);
    for (model, option) in [
        ("tgn", ("new_nodes", "0.1")),
        ("tgn", ("batch_size", "37")),
        ("tgat", ("fanout", "4,3")),
        ("jodie", ("new_nodes", "0.1")),
        ("graphmixer", ("dropout", "0.2")),
        ("dygformer", ("channel_dim", "4")),
    ] {
        let case = dir.path().join(format!("{model}-{}", option.0));
        let [old, all] = [OLD, ALL].map(|count| shop(&case.join(count.to_string()), count));
        let run = &case.join("run");
        trained(&old, run, &[("model", model), option]);
        let grown = open(run, &old, &old);
        assert_eq!((grown.events(), grown.end_time()), (Some([OLD, 2]), Some(times[OLD - 1] + 1)));
        // as of a time within the old events, at their end, between old and new, and within the new
        let asked = [None, Some(times[300]), Some(times[OLD]), Some(times[600]), Some(times[ALL - 1] + 9)];
        let before = answers(&grown, &asked);
        // a few, then none, one, a batch and more, and up to the end
        for range in [OLD..542, 542..542, 542..543, 543..625, 625..ALL] {
            grown.add_events(&new_events(range.clone())).unwrap();
            // states are kept from here on
            if range.end < ALL {
                answers(&grown, &asked[1..3]);
            }
        }
        assert_eq!((grown.events(), grown.end_time()), (Some([ALL, 2]), Some(times[ALL - 1] + 1)));
        let after = answers(&grown, &asked);
        assert_ne!(before, after, "{model}: new events change answers");
        assert_eq!(after, answers(&open(run, &all, &old), &asked), "{model}: {option:?}");
    }
}

#[test]
fn answers_see_the_events_of_before_or_after_while_events_are_added() {
    let dir = tempfile::tempdir().unwrap();
    let old = shop(&dir.path().join("shop"), OLD);
    let run = &dir.path().join("run");
    trained(&old, run, &[]);
    let links = open(run, &old, &old);
    let answer = || answers(&links, &[None]);
    let before = answer();
    let seen = std::thread::scope(|scope| {
        let asking = scope.spawn(|| (0..40).map(|_| answer()).collect::<Vec<_>>());
        links.add_events(&new_events(OLD..ALL)).unwrap();
        asking.join().unwrap()
    });
    let after = answer();
    // one answer of several questions may lie on both sides
    let questions = |bits: &[u32]| [bits[..3].to_vec(), bits[3..27].to_vec(), bits[27..].to_vec()];
    let [before, after] = [before, after].map(|bits| questions(&bits));
    for bits in seen {
        for (i, part) in questions(&bits).into_iter().enumerate() {
            assert!(part == before[i] || part == after[i], "question {i}");
        }
    }
}

#[test]
fn unusable_events_are_refused_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let old = shop(&dir.path().join("shop"), OLD);
    let run = &dir.path().join("run");
    trained(&old, run, &[]);
    let links = open(run, &old, &old);
    let before = answers(&links, &[None]);
    let good = new_events(OLD..OLD + 2);
    type Edit = fn(&mut NewEvents);
    let cases: [(Edit, &str); 7] = [
        (|new| new.pairs[1].0 = 20, "20"),
        (|new| new.pairs[0].1 = 15, "15"),
        (|new| new.times[1] = new.times[0] - 1, "event 1 at time"),
        (|new| new.times[0] = 5, "none before the last of the stream"),
        (|new| new.times[1] = i64::MAX, "send an earlier one"),
        (|new| new.features[3] = f32::NAN, "feature 1 of event 1 is NaN"),
        (|new| new.features.truncate(3), "3 features for 2 events; the events of task 'visits' have 2 each"),
    ];
    for (edit, message) in cases {
        let mut new = good.clone();
        edit(&mut new);
        let error = links.add_events(&new).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let error = links.add_events(&NewEvents { times: vec![], ..good }).unwrap_err().to_string();
    assert!(error.contains("2 pairs and 0 times"), "{error}");
    assert_eq!(before, answers(&links, &[None]));
}
