//! Warnings about the loss, beside the progress.

use std::sync::Arc;

use graphmill_core::progress::Progress as Work;
use graphmill_engine::{
    Error, LossAlarm, Result,
    observer::{Observer, Progress, Quiet, Start},
    record::{EpochRecord, Summary},
};
use graphmill_nn::model::Model;

use crate::{cancel::UntilSignal, output};

/// Observer that passes everything on, and shows the warnings of a [`LossAlarm`].
pub(super) struct Alarm {
    shown: Box<dyn Observer>,
    /// True if `shown` prints notes.
    prints_notes: bool,
    alarm: LossAlarm,
}

impl Alarm {
    pub(super) fn new(shown: Box<dyn Observer>, prints_notes: bool) -> Self {
        Self { shown, prints_notes, alarm: LossAlarm::default() }
    }

    /// Shows a warning, also without progress.
    fn warn(&mut self, warning: Option<String>) {
        match warning.map(|warning| format!("warning: {warning}")) {
            Some(warning) if self.prints_notes => self.shown.note(&warning),
            Some(warning) => output::note(&warning),
            None => {}
        }
    }
}

/// Observer that shows nothing.
pub(super) struct Silent;

impl Observer for Silent {
    fn preparation(&self) -> Arc<dyn Work> {
        Arc::new(UntilSignal(Arc::new(Quiet)))
    }
}

impl Observer for Alarm {
    fn preparation(&self) -> Arc<dyn Work> {
        Arc::new(UntilSignal(self.shown.preparation()))
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        for record in &start.earlier {
            // an earlier part of the run has shown it
            let _ = self.alarm.see(record);
        }
        self.shown.start(start)
    }

    fn batch(&mut self, progress: &Progress) -> Result<()> {
        self.shown.batch(progress)?;
        let warning = self.alarm.see_batch(progress);
        self.warn(warning);
        Ok(())
    }

    fn evaluate(&mut self, nodes: usize) {
        self.shown.evaluate(nodes);
    }

    fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        self.shown.epoch(record)?;
        let warning = self.alarm.see(record);
        self.warn(warning);
        Ok(())
    }

    fn model(&mut self, model: &Model) {
        self.shown.model(model);
    }

    fn note(&mut self, message: &str) {
        self.shown.note(message);
    }

    fn end(&mut self, outcome: Result<&Summary, &Error>) -> Result<()> {
        self.shown.end(outcome)
    }
}
