//! Progress of the work before the first epoch: counts of a sampler, hotness of rows, the order of
//! the seeds. The observer of the run may stop it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use graphmill_core::progress::{Progress, Unit};

use super::observer::Observer;

/// Duration after which a stage is shown.
const MIN_SHOWN_STAGE: Duration = Duration::from_secs(1);

/// Progress that passes the long stages on to the observer of a run.
pub(crate) struct Preparation {
    shown: Arc<dyn Progress>,
    stage: Mutex<Option<Stage>>,
}

/// Current stage.
struct Stage {
    what: String,
    total: Option<u64>,
    unit: Unit,
    began: Instant,
    is_shown: bool,
}

impl Preparation {
    /// Creates the progress of a run with this observer.
    pub(crate) fn new(observer: &dyn Observer) -> Self {
        Self { shown: observer.preparation(), stage: Mutex::new(None) }
    }

    /// Shows the current stage if it is long, and returns true if it is shown.
    fn show(&self) -> bool {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(stage) = stage.as_mut() else { return false };
        if !stage.is_shown && stage.began.elapsed() >= MIN_SHOWN_STAGE {
            stage.is_shown = true;
            self.shown.stage(&stage.what, stage.total, stage.unit);
        }
        stage.is_shown
    }
}

impl Progress for Preparation {
    fn stage(&self, what: &str, total: Option<u64>, unit: Unit) {
        let stage = Stage { what: what.into(), total, unit, began: Instant::now(), is_shown: false };
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = Some(stage);
    }

    fn done(&self, amount: u64) {
        if self.show() {
            self.shown.done(amount);
        }
    }

    fn note(&self, message: &str) {
        self.shown.note(message);
    }

    fn is_stopped(&self) -> bool {
        self.show();
        self.shown.is_stopped()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    #[derive(Default)]
    struct Shown {
        lines: Mutex<Vec<String>>,
        stopped: AtomicBool,
    }

    impl Progress for Shown {
        fn stage(&self, what: &str, _: Option<u64>, _: Unit) {
            self.lines.lock().unwrap().push(what.into());
        }

        fn done(&self, amount: u64) {
            self.lines.lock().unwrap().push(amount.to_string());
        }

        fn is_stopped(&self) -> bool {
            self.stopped.load(Relaxed)
        }
    }

    #[test]
    fn long_stages_alone_are_shown_and_the_observer_stops_the_work() {
        let shown = Arc::new(Shown::default());
        let preparation = Preparation { shown: shown.clone(), stage: Mutex::new(None) };
        preparation.stage("short", None, Unit::Rows);
        preparation.done(1);
        preparation.stage("long", Some(9), Unit::Rows);
        preparation.done(2);
        let began = Instant::now().checked_sub(2 * MIN_SHOWN_STAGE).unwrap();
        preparation.stage.lock().unwrap().as_mut().unwrap().began = began;
        assert!(!preparation.is_stopped() && preparation.check().is_ok());
        preparation.done(3);
        assert_eq!(*shown.lines.lock().unwrap(), ["long", "3"]);
        shown.stopped.store(true, Relaxed);
        assert!(preparation.check().is_err());
    }
}
