//! Work before the first epoch, which the observer of a run watches and may stop.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_core::progress::{Progress, Unit};
use graphmill_data::generate::{GenerateOptions, generate, generate_typed};
use graphmill_engine::{
    Error, RunContext, RunDir, TrainConfig,
    config::Fanout,
    observer::{Observer, Start},
    train, typed,
};

use crate::set::with;

/// Progress that stops the work at its N-th question.
struct Stops {
    asked: AtomicUsize,
    after: usize,
}

impl Progress for Stops {
    fn stage(&self, _: &str, _: Option<u64>, _: Unit) {}

    fn is_stopped(&self) -> bool {
        self.asked.fetch_add(1, SeqCst) + 1 >= self.after
    }
}

/// Observer of a run that is stopped before it starts.
struct Watch {
    progress: Arc<Stops>,
    started: Mutex<bool>,
}

impl Observer for Watch {
    fn preparation(&self) -> Arc<dyn Progress> {
        self.progress.clone()
    }

    fn start(&mut self, _: &Start) -> graphmill_engine::Result<()> {
        *self.started.lock().unwrap() = true;
        Ok(())
    }
}

fn config(options: &str) -> TrainConfig {
    let base = TrainConfig {
        epochs: 1,
        batch_size: 32,
        hidden: 4,
        fanout: Fanout(vec![3, 2]),
        ..TrainConfig::default()
    };
    with(base, options)
}

#[test]
fn a_stop_ends_each_phase_before_the_first_epoch() {
    let options =
        GenerateOptions { nodes: 9000, degree: Some(6.0), classes: 3, dim: 4, ..GenerateOptions::default() };
    let (data, several) = (generate("sbm", &options).unwrap(), generate_typed("typed", &options).unwrap());
    for (options, is_typed) in [
        ("sampler=saint-node batch_size=500 sample_coverage=1e6", false),
        ("sampler=cluster parts=10 parts_per_batch=2 sample_coverage=0", false),
        ("order=proximity", false),
        ("cache=presc:1000 cache_ratio=0.1 devices=virtual:1", false),
        ("cache=presc:1000 cache_ratio=0.1 devices=virtual:2 strategy=factored", false),
        ("model=rsage cache=presc:1000 cache_ratio=0.1 devices=virtual:1", true),
    ] {
        // at the first question of a phase, and in the middle
        for after in [1, 2] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("run");
            let run = RunDir::create(&path).unwrap();
            let progress = Arc::new(Stops { asked: AtomicUsize::new(0), after });
            let mut watch = Watch { progress, started: Mutex::new(false) };
            let config = config(options);
            let context =
                RunContext { run: Some(&run), resume: false, observer: &mut watch, stop: &|| false };
            let outcome = match is_typed {
                true => typed::train(&config, &several, context),
                false => train(&config, &data, context),
            };
            let error = outcome.expect_err(options);
            let is_stop = matches!(error, Error::Interrupted { epoch: 1, batch: 0, saved: false });
            assert!(is_stop, "{options}: {error}");
            assert!(!*watch.started.lock().unwrap(), "{options}: the run started");
            drop(run);
            assert!(!path.exists(), "{options}: the directory stays");
        }
    }
}
