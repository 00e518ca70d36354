//! Memory of nodes and features of events that exceed the host's budget: in files, with the bits of
//! a run in memory, across interruptions and other budgets, and for saved runs.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_data::TypedDataset;
use graphmill_engine::{
    Error, Result, RunContext, RunDir,
    events::{SavedEvents, train as run_events},
    observer::{Observer, Quiet},
    record::Summary,
    saved::SavedRun,
};

use super::events::{config, shop_of, visits};

/// Collects notes.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, message: &str) {
        self.0.push(message.to_string());
    }
}

/// Trains in the directory `path`, or resumes there, for at most `batches` batches.
fn train(
    data: &TypedDataset,
    options: &[(&str, &str)],
    (path, resume): (&Path, bool),
    batches: usize,
) -> Result<(Summary, Vec<String>)> {
    let config = config(data, options)?;
    let run = if resume { RunDir::reopen(path) } else { RunDir::create(path) }?;
    let (done, mut notes) = (AtomicUsize::new(0), Notes::default());
    let stop = || done.fetch_add(1, SeqCst) + 1 >= batches;
    let context = RunContext { run: Some(&run), resume, observer: &mut notes, stop: &stop };
    let summary = run_events(&config, data, context)?;
    Ok((summary, notes.0))
}

/// Losses, scores, and files of a run.
fn results(summary: &Summary, run: &Path) -> (Vec<u64>, Vec<Vec<u8>>) {
    let of_epochs = summary.epochs.iter().flat_map(|of| [of.loss, of.valid_score.unwrap()]);
    let bits = of_epochs.chain(summary.test.score).map(f64::to_bits).collect();
    let files = ["best.safetensors", "checkpoint/model.safetensors", "checkpoint/optimizer.safetensors"];
    (bits, files.iter().map(|file| fs::read(run.join(file)).unwrap()).collect())
}

/// Bytes of the memory of the checkpoint of a run.
fn memory(run: &Path) -> Vec<u8> {
    fs::read(run.join("checkpoint/history.safetensors")).unwrap()
}

#[test]
fn memory_and_features_in_files_have_the_bits_of_those_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let data = shop_of(&dir.path().join("shop"), false, visits(600));
    let place = "memory of nodes and features of events: in files";
    // of 12080 bytes for two memories of 35 nodes and 600 events, or of 4800 for the events alone
    for (model, budget, place, more) in [
        ("tgn", "9000", place, &[("new_nodes", "0.1"), ("clip", "1")][..]),
        ("jodie", "5000", place, &[("new_nodes", "0.1")]),
        ("tgat", "4000", "features of events: in their file", &[("batch_size", "10"), ("fanout", "2,2")]),
    ] {
        let plain =
            [&[("model", model), ("checkpoint_batches", "2"), ("schedule", "cosine")][..], more].concat();
        let limited = [&plain[..], &[("host_budget", budget)]].concat();
        let path = |name: &str| dir.path().join(format!("{model}-{name}"));
        let (whole, notes) = train(&data, &plain, (&path("memory"), false), usize::MAX).unwrap();
        assert!(!notes.iter().any(|note| note.starts_with(place)), "{model}: {notes:?}");
        let expected = results(&whole, &path("memory"));
        let (one, notes) = train(&data, &limited, (&path("files"), false), usize::MAX).unwrap();
        assert!(notes.iter().any(|note| note.starts_with(place)), "{model}: {notes:?}");
        assert!(expected == results(&one, &path("files")), "{model}: in files");

        // stopped twice within epochs, and resumed in the same place or in the other
        let mut first = None;
        for (name, budgets) in [
            ("often", [&limited; 3]),
            ("to-memory", [&limited, &plain, &limited]),
            ("to-files", [&plain, &limited, &plain]),
        ] {
            for (i, batches) in [3, 9].into_iter().enumerate() {
                let stopped = train(&data, budgets[i], (&path(name), i > 0), batches);
                assert!(matches!(stopped, Err(Error::Interrupted { saved: true, .. })), "{model}: {name}");
                if model != "tgat" && i == 0 {
                    let found = memory(&path(name));
                    assert!(*first.get_or_insert_with(|| found.clone()) == found, "{model}: {name}");
                }
            }
            let (resumed, _) = train(&data, budgets[2], (&path(name), true), usize::MAX).unwrap();
            assert!(expected == results(&resumed, &path(name)), "{model}: resumed {name}");
        }
        let mut left = fs::read_dir(path("often")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(!left.any(|name| name.to_string_lossy().starts_with(".rows-")), "{model}");

        let saved = SavedRun::open(&path("files"), false).unwrap();
        let scores = SavedEvents::of(&saved).unwrap().scores(&data, &Quiet).unwrap();
        assert_eq!(scores.test, whole.test.score, "{model}");
    }
}

#[test]
fn the_least_budget_is_named_and_enough() {
    let dir = tempfile::tempdir().unwrap();
    let data = shop_of(&dir.path().join("shop"), false, visits(600));
    let path = |name: &str| dir.path().join(name);
    // all 35 nodes with 26 values each, and the 50 events of a batch with 2
    for budget in ["1", "4039"] {
        let refused = train(&data, &[("model", "jodie"), ("host_budget", budget)], (&path(budget), false), 1);
        let message = refused.err().unwrap().to_string();
        let expected = format!(
            "--host-budget {budget}: the memory of nodes and the features of events need 12080 bytes, and a \
             batch reads rows of up to 4040; raise it to 4040 or more, or lower --batch-size"
        );
        assert!(message.contains(&expected), "{message}");
    }
    for (budget, in_files) in [("4040", true), ("12079", true), ("12080", false)] {
        let options = [("model", "jodie"), ("host_budget", budget), ("epochs", "1")];
        let (_, notes) = train(&data, &options, (&path(budget), false), usize::MAX).unwrap();
        assert_eq!(notes.iter().any(|note| note.contains("in files")), in_files, "{budget}: {notes:?}");
    }
}
