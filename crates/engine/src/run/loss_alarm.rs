//! A warning when the loss of training explodes. A loss that is not finite ends the run with an
//! error; this one comes earlier.

use super::observer::Progress;
use crate::record::EpochRecord;

/// Rise over the smallest loss so far that is an explosion, and no longer noise.
const RISE: f64 = 10.0;

/// Batches of the first epoch from which its mean loss is compared; that of fewer is noise.
const MIN_BATCHES: u64 = 10;

/// Seeds whose mean loss stands for an untrained model; that of fewer is noise.
const MIN_SEEDS: u64 = 32;

/// Number of the first batches, before epoch 1, among the epochs with the smallest loss.
const FIRST_BATCHES: usize = 0;

/// Losses of a run so far.
#[derive(Clone, Debug, Default)]
pub struct LossAlarm {
    /// Loss of the first batches, or of the first epoch if they were not seen.
    first: Option<f64>,
    /// Epoch and loss of the smallest loss so far.
    least: Option<(usize, f64)>,
    has_warned: bool,
}

impl LossAlarm {
    /// Takes the progress after a batch. Returns a warning, once in a run, if the mean loss of the
    /// first epoch exceeds ten times that of its first batches.
    pub fn see_batch(&mut self, progress: &Progress) -> Option<String> {
        if progress.epoch > 0 {
            return None;
        }
        if self.first.is_none() && progress.seeds >= MIN_SEEDS && progress.loss > 0.0 {
            self.first = Some(progress.loss);
            self.least = Some((FIRST_BATCHES, progress.loss));
        }
        let is_known = self.first.is_some() && progress.batches >= MIN_BATCHES;
        if is_known { self.compare(1, progress.loss) } else { None }
    }

    /// Takes the record of the next epoch. Returns a warning, once in a run, if its loss exceeds
    /// that of the first batches (or of the first epoch if they were not seen) and ten times the
    /// smallest so far.
    pub fn see(&mut self, record: &EpochRecord) -> Option<String> {
        let (epoch, loss) = (record.epoch, record.loss);
        self.first.get_or_insert(loss);
        let warning = self.compare(epoch, loss);
        if self.least.is_none_or(|(_, least)| loss <= least) {
            self.least = Some((epoch, loss));
        }
        warning
    }

    /// Compares the loss of `epoch` with the first and the smallest.
    fn compare(&mut self, epoch: usize, loss: f64) -> Option<String> {
        let (first, (at, least)) = (self.first?, self.least?);
        if self.has_warned || loss <= first || loss <= RISE * least {
            return None;
        }
        self.has_warned = true;
        let place = if at == FIRST_BATCHES { "the first batches".into() } else { format!("epoch {at}") };
        Some(format!(
            "the loss explodes: {} in epoch {epoch} after {} in {place}; lower --lr or set --clip",
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

    /// Number of the batch of the first epoch with a warning, and its text, for the mean losses
    /// after its batches of `seeds` seeds; an alarm that has seen the epoch.
    fn warned_within(losses: &[f64], seeds: u64) -> (Option<(u64, String)>, LossAlarm) {
        let mut alarm = LossAlarm::default();
        let mut warnings = (1..).zip(losses).filter_map(|(batches, &loss)| {
            let progress = Progress { epoch: 0, batches, seeds: seeds * batches, loss, seconds: 0.0 };
            Some((batches, alarm.see_batch(&progress)?))
        });
        let (warning, more) = (warnings.next(), warnings.count());
        assert_eq!(more, 0, "a second warning");
        (warning, alarm)
    }

    #[test]
    fn an_explosion_within_the_first_epoch_is_warned_of() {
        let losses: Vec<f64> = (0..20).map(|batch| 2.5 + 100.0 * f64::from(batch)).collect();
        let (warning, mut alarm) = warned_within(&losses, 50);
        let (batch, text) = warning.unwrap();
        assert_eq!(batch, MIN_BATCHES);
        assert!(text.contains("902.5000 in epoch 1 after 2.5000 in the first batches; lower --lr"), "{text}");
        let later = EpochRecord { epoch: 1, loss: 1902.5, ..Default::default() };
        assert_eq!(alarm.see(&later), None, "a run has one warning");

        // an epoch of few batches is compared at its end, also if all later ones are smaller
        let (warning, mut alarm) = warned_within(&losses[..5], 50);
        assert_eq!(warning, None);
        let seen = alarm.see(&EpochRecord { epoch: 1, loss: 402.5, ..Default::default() });
        assert!(seen.unwrap().contains("402.5000 in epoch 1 after 2.5000 in the first batches"));
    }

    #[test]
    fn a_first_epoch_of_noise_is_not_warned_of() {
        let falling: Vec<f64> = (1..=20).map(|batch| 3.0 / f64::from(batch)).collect();
        let (warning, mut alarm) = warned_within(&falling, 50);
        assert_eq!(warning, None);
        let see = |alarm: &mut LossAlarm, epoch, loss| {
            alarm.see(&EpochRecord { epoch, loss, ..Default::default() })
        };
        assert_eq!(see(&mut alarm, 1, 0.15), None);
        assert_eq!(see(&mut alarm, 2, 2.9), None, "below the loss of an untrained model");
        assert!(see(&mut alarm, 3, 3.1).unwrap().contains("after 0.1500 in epoch 1"));
        // a batch of one seed says nothing about the others: 32 seeds do
        let single: Vec<f64> = (0..40).map(|batch| if batch < 5 { 0.01 } else { 2.0 }).collect();
        assert_eq!(warned_within(&single, 1).0, None);
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
