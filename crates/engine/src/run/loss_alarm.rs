//! A warning when the loss of training explodes. A loss that is not finite ends the run with an
//! error; this one comes earlier.

use crate::record::EpochRecord;

/// Rise over the smallest loss so far that is an explosion, and no longer noise.
const RISE: f64 = 10.0;

/// Losses of a run so far.
#[derive(Clone, Debug, Default)]
pub struct LossAlarm {
    /// Loss of the first epoch.
    first: Option<f64>,
    /// Epoch and loss of the smallest loss so far.
    least: Option<(usize, f64)>,
    has_warned: bool,
}

impl LossAlarm {
    /// Takes the record of the next epoch. Returns a warning, once in a run, if its loss exceeds
    /// that of the first epoch and ten times the smallest so far.
    pub fn see(&mut self, record: &EpochRecord) -> Option<String> {
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
            "the loss explodes: {} in epoch {epoch} after {} in epoch {at}; lower --lr or set --clip",
            number(loss),
            number(least)
        ))
    }
}

/// A loss in four decimals, a large one in its power of ten.
fn number(loss: f64) -> String {
    if loss.abs() < 1e6 { format!("{loss:.4}") } else { format!("{loss:.3e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs with a warning, for losses of the epochs from 1 on.
    fn warned(losses: &[f64]) -> Vec<usize> {
        let mut alarm = LossAlarm::default();
        let records = losses.iter().enumerate().map(|(at, &loss)| EpochRecord {
            epoch: at + 1,
            loss,
            ..Default::default()
        });
        records.filter(|record| alarm.see(record).is_some()).map(|record| record.epoch).collect()
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
