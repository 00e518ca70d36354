//! A warning when the loss of training explodes. A loss that is not finite ends the run with an
//! error; this one comes earlier.

use graphmill_engine::{
    Error, Result,
    observer::{Observer, Progress, Start},
    record::{EpochRecord, Summary},
};
use graphmill_nn::model::Model;

use crate::output;

/// Rise over the smallest loss so far that is an explosion, and no longer noise.
const RISE: f64 = 10.0;

/// Observer that passes everything on, and adds one warning when the loss of an epoch exceeds that
/// of the first epoch and [`RISE`] times the smallest so far.
pub(super) struct Alarm {
    shown: Box<dyn Observer>,
    /// True if `shown` prints notes.
    prints_notes: bool,
    /// Loss of the first epoch.
    first: Option<f64>,
    /// Epoch and loss of the smallest loss so far.
    least: Option<(usize, f64)>,
    has_warned: bool,
}

impl Alarm {
    pub(super) fn new(shown: Box<dyn Observer>, prints_notes: bool) -> Self {
        Self { shown, prints_notes, first: None, least: None, has_warned: false }
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
            "warning: the loss explodes: {} in epoch {epoch} after {} in epoch {at}; lower --lr or set \
             --clip",
            number(loss),
            number(least)
        ))
    }
}

/// A loss in four decimals, a large one in its power of ten.
fn number(loss: f64) -> String {
    if loss.abs() < 1e6 { format!("{loss:.4}") } else { format!("{loss:.3e}") }
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
        match self.warning(record) {
            Some(warning) if self.prints_notes => self.shown.note(&warning),
            // without progress, a warning is still shown
            Some(warning) => output::note(&warning),
            None => {}
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
        let mut alarm = Alarm::new(Box::new(Quiet), true);
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
        assert_eq!((number(12.34567), number(2.15e31)), ("12.3457".into(), "2.150e31".into()));
    }
}
