//! A warning when the loss of training explodes. A loss that is not finite ends the run with an
//! error; this one comes earlier.

use graphmill_engine::{
    Error, Result,
    observer::{Observer, Progress, Start},
    record::{EpochRecord, Summary},
};
use graphmill_nn::model::Model;

/// Rise over the smallest loss so far that is an explosion, and no longer noise.
const RISE: f64 = 10.0;

/// Observer that passes everything on, and adds one warning when the loss of an epoch exceeds that
/// of the first epoch and [`RISE`] times the smallest so far.
pub(super) struct Alarm {
    shown: Box<dyn Observer>,
    /// Loss of the first epoch.
    first: Option<f64>,
    /// Epoch and loss of the smallest loss so far.
    least: Option<(usize, f64)>,
    has_warned: bool,
}

impl Alarm {
    pub(super) fn new(shown: Box<dyn Observer>) -> Self {
        Self { shown, first: None, least: None, has_warned: false }
    }

    /// Warning of this epoch, if it is due.
    fn warning(&mut self, record: &EpochRecord) -> Option<String> {
        let (epoch, loss) = (record.epoch, record.loss);
        let first = *self.first.get_or_insert(loss);
        let (at, least) = *self.least.get_or_insert((epoch, loss));
        if loss < least {
            self.least = Some((epoch, loss));
        }
        if self.has_warned || loss <= first || loss <= RISE * least {
            return None;
        }
        self.has_warned = true;
        Some(format!(
            "warning: the loss explodes: {loss:.4} in epoch {epoch} after {least:.4} in epoch {at}; lower \
             --lr or set --clip"
        ))
    }
}

impl Observer for Alarm {
    fn start(&mut self, start: &Start) -> Result<()> {
        for record in &start.earlier {
            self.has_warned |= self.warning(record).is_some();
        }
        self.shown.start(start)
    }

    fn batch(&mut self, progress: &Progress) -> Result<()> {
        self.shown.batch(progress)
    }

    fn evaluate(&mut self, nodes: usize) {
        self.shown.evaluate(nodes);
    }

    fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        self.shown.epoch(record)?;
        if let Some(warning) = self.warning(record) {
            self.shown.note(&warning);
        }
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

#[cfg(test)]
mod tests {
    use graphmill_engine::observer::Quiet;

    use super::*;

    /// Epochs with a warning, for losses of the epochs from 1 on.
    fn warned(losses: &[f64]) -> Vec<usize> {
        let mut alarm = Alarm::new(Box::new(Quiet));
        let records = losses.iter().enumerate().map(|(at, &loss)| EpochRecord {
            epoch: at + 1,
            loss,
            ..Default::default()
        });
        records.filter(|record| alarm.warning(record).is_some()).map(|record| record.epoch).collect()
    }

    #[test]
    fn an_exploding_loss_is_warned_of_once() {
        assert_eq!(warned(&[2.0, 1.0, 50.0, 5000.0]), [3]);
        assert_eq!(
            warned(&[2.0, 0.01, 0.5, 1.9]),
            [0; 0],
            "noise of a small loss stays below the first loss"
        );
        assert_eq!(warned(&[2.0, 2.5, 4.0]), [0; 0]);
    }
}
