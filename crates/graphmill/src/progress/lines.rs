//! Lines about the start of a run and its epochs, as the bar and the plain form print them.

use graphmill_core::units::count;
use graphmill_engine::{
    observer::{Progress, Start},
    record::EpochRecord,
};
use graphmill_nn::metric::values::is_error;

/// Seconds of an epoch between two lines about its batches.
pub(super) const INTERVAL: f64 = 60.0;

/// Times of the lines about the batches of an epoch: one a minute, so none in an epoch of less.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchTimes {
    /// Seconds of the epoch at which a line is due.
    due: f64,
}

impl Default for BatchTimes {
    fn default() -> Self {
        Self { due: INTERVAL }
    }
}

impl BatchTimes {
    /// Returns true if a line is due, and counts it as printed.
    pub(super) fn is_due(&mut self, progress: &Progress) -> bool {
        let is_due = progress.seconds >= self.due;
        if is_due {
            self.due = progress.seconds + INTERVAL;
        }
        is_due
    }

    /// Returns true if the epoch has had a line.
    pub(super) fn had_line(self) -> bool {
        self.due > INTERVAL
    }
}

/// Lines of the epochs of one run.
#[derive(Debug, Default)]
pub(super) struct EpochLines {
    metric: String,
    /// Batches per epoch.
    batches: u64,
    /// Name of the rows that are scored.
    rows_are: &'static str,
    /// Best score so far.
    pub(super) best: Option<f64>,
    /// Finished epochs.
    pub(super) done: usize,
}

/// Line of a finished epoch.
#[derive(Clone, Debug)]
pub(super) struct EpochLine {
    pub(super) text: String,
    /// The epoch has the best score so far.
    pub(super) is_best: bool,
}

impl EpochLines {
    /// Lines about the start of a run, or of the rest of a resumed one.
    pub(super) fn start(&mut self, start: &Start) -> Vec<String> {
        self.metric.clone_from(&start.metric);
        self.batches = start.batches;
        self.rows_are = if start.seeds_are == "walks" { "edges" } else { start.seeds_are };
        let scores = start.earlier.iter().filter_map(|record| record.valid_score);
        self.best = scores.reduce(|a, b| if self.is_better(b, a) { b } else { a });
        let resumed = start.from != (0, 0);
        let resumed =
            resumed.then(|| format!("resuming in epoch {} after {} batches", start.from.0 + 1, start.from.1));
        let size = format!(
            "{} training {}, {} batches per epoch, {} parameters (* = best epoch so far)",
            start.seeds, start.seeds_are, start.batches, start.parameters
        );
        resumed.into_iter().chain([size]).collect()
    }

    /// Returns true if score `a` is better than `b`: larger, or of an error smaller.
    fn is_better(&self, a: f64, b: f64) -> bool {
        if is_error(&self.metric) { a < b } else { a > b }
    }

    /// Line about the batches of an epoch so far.
    pub(super) fn of_batches(&self, progress: &Progress) -> String {
        let Progress { batches, loss, seconds, .. } = *progress;
        format!(
            "{:>12} loss {loss:.4}  batch {batches}/{}  {seconds:.0} s",
            format!("epoch {}", progress.epoch + 1),
            self.batches
        )
    }

    /// Text about the scoring of `rows` nodes, edges or events.
    pub(super) fn of_scoring(&self, rows: usize) -> String {
        format!("scoring {} {}", count(rows as u64), self.rows_are)
    }

    /// Line of a finished epoch.
    pub(super) fn of(&mut self, record: &EpochRecord) -> EpochLine {
        let score =
            record.valid_score.map_or(String::new(), |score| format!("  valid {} {score:.4}", self.metric));
        let is_best =
            record.valid_score.is_some_and(|score| self.best.is_none_or(|best| self.is_better(score, best)));
        if is_best {
            self.best = record.valid_score;
        }
        self.done += 1;
        let text = format!(
            "{:>12} loss {:.4}{score}{}  {:.2} s  {} seeds/s",
            format!("epoch {}", record.epoch),
            record.loss,
            if is_best { " *" } else { "  " },
            record.seconds,
            count((record.seeds as f64 / record.seconds.max(1e-9)) as u64)
        );
        EpochLine { text, is_best }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_epoch_of_an_error_has_the_smallest() {
        let best = |metric: &str| {
            let mut lines = EpochLines { metric: metric.into(), ..EpochLines::default() };
            let mut of =
                |score| lines.of(&EpochRecord { valid_score: Some(score), ..Default::default() }).is_best;
            [0.5, 0.7, 0.4].map(&mut of)
        };
        assert_eq!(best("accuracy"), [true, true, false]);
        assert_eq!(best("rmse"), [true, false, true]);
    }
}
