//! Learned rows of node types without features that exceed the host's budget: in files, with the
//! bits of a run in memory, across interruptions, and for saved runs.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_core::progress;
use graphmill_data::{
    TypedDataset,
    generate::{GenerateOptions, generate_typed},
    typed::{Verify, open},
};
use graphmill_engine::{
    AnyDataset, Error, Result, RunContext, RunDir, TrainConfig, observer::Observer, record::Summary,
    saved::SavedRun,
};

use crate::set::checked;

/// A dataset in a directory whose authors have no features.
fn stored(dir: &Path) -> TypedDataset {
    let options = GenerateOptions { nodes: 600, classes: 4, dim: 8, p_in: 0.9, ..GenerateOptions::default() };
    let mut data = generate_typed("typed", &options).unwrap();
    data.nodes.iter_mut().find(|nodes| nodes.name == "author").unwrap().features = None;
    data.save(dir).unwrap();
    open(dir, Verify::Once).unwrap()
}

fn config(dir: &Path, options: &[(&str, &str)]) -> TrainConfig {
    let base = TrainConfig {
        hidden: 8,
        batch_size: 32,
        epochs: 3,
        lr: 0.02,
        dropout: 0.0,
        dataset: dir.to_str().unwrap().into(),
        ..TrainConfig::default()
    };
    checked(base, &[&[("model", "rsage"), ("fanout", "4,3")][..], options].concat()).unwrap()
}

/// Collects notes.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, message: &str) {
        self.0.push(message.to_string());
    }
}

/// Trains, or resumes, for at most `batches` batches.
fn train(config: &TrainConfig, run: Option<(&Path, bool)>, batches: usize) -> Result<(Summary, Vec<String>)> {
    let dir = run.map(|(path, resume)| match resume {
        true => RunDir::open(path).unwrap(),
        false => RunDir::create(path).unwrap(),
    });
    let (done, mut notes) = (AtomicUsize::new(0), Notes::default());
    let stop = || done.fetch_add(1, SeqCst) + 1 >= batches;
    let context = RunContext {
        run: dir.as_ref(),
        resume: run.is_some_and(|(_, resume)| resume),
        observer: &mut notes,
        stop: &stop,
    };
    let summary = AnyDataset::open(config)?.train(config, context)?;
    Ok((summary, notes.0))
}

fn bits(summary: &Summary) -> Vec<u64> {
    let of_epochs = summary.epochs.iter().flat_map(|of| [of.loss, of.valid_score.unwrap()]);
    of_epochs.chain(summary.test.score).map(f64::to_bits).collect()
}

#[test]
fn learned_rows_in_files_have_the_bits_of_those_in_memory() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("data");
    let data = stored(&dir);
    let features: usize =
        data.nodes.iter().filter_map(|of| Some(of.count * of.features.as_ref()?.width * 4)).sum();
    let learned: usize =
        data.nodes.iter().filter(|of| of.features.is_none()).map(|of| of.count * 8 * 12).sum();
    assert!(features < learned, "{features} {learned}");
    // the features fit, so that only learned rows leave memory
    let budget = ((features + learned) / 2).to_string();
    for task in [&[][..], &[("task", "author:writes:paper"), ("num_negatives", "2"), ("eval_nodes", "30")]] {
        let plain = config(&dir, task);
        let [memory, path] =
            ["memory", "files"].map(|name| temporary.path().join(format!("{name}{}", task.len())));
        let (all, notes) = train(&plain, Some((&memory, false)), usize::MAX).unwrap();
        assert!(!notes.iter().any(|note| note.contains("in files")), "{notes:?}");
        let limited =
            config(&dir, &[task, &[("host_budget", &budget), ("checkpoint_batches", "2")]].concat());
        let (one, notes) = train(&limited, None, usize::MAX).unwrap();
        assert_eq!(bits(&one), bits(&all), "{task:?}");
        assert!(notes.iter().any(|note| note.contains("a learned row for each, in files")), "{notes:?}");

        // a run that is stopped twice continues with the rows and moments of its checkpoint
        for (resume, batches) in [(false, 3), (true, 4)] {
            let stopped = train(&limited, Some((&path, resume)), batches);
            assert!(matches!(stopped, Err(Error::Interrupted { .. })));
        }
        let (resumed, _) = train(&limited, Some((&path, true)), usize::MAX).unwrap();
        assert_eq!(bits(&resumed), bits(&all), "{task:?} resumed");
        let [expected, found] = [&memory, &path].map(|run| fs::read(run.join("best.safetensors")).unwrap());
        assert!(expected == found, "{task:?}: the best model");
        assert!(
            fs::read_dir(&path)
                .unwrap()
                .all(|entry| { !entry.unwrap().file_name().to_string_lossy().starts_with(".rows-") })
        );
        let saved = SavedRun::open(&path, false).unwrap();
        assert_eq!(saved.scores_on(None, &progress::Quiet).unwrap().test, all.test.score, "{task:?}");
    }
}
