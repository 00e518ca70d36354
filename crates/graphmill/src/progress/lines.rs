//! Lines about the start of a run and its epochs, as the bar and the plain form print them.

use graphmill_core::units::{count, counted};
use graphmill_engine::{
    observer::{Progress, Start},
    record::EpochRecord,
};
use graphmill_nn::{metric::values::is_error, schedule::Patience};

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
    /// The smallest loss selects the best epoch, and not the score.
    selects_by_loss: bool,
    /// The best epoch so far, by the rule of the run.
    selected: Patience,
    /// Batches per epoch.
    batches: u64,
    /// Name of the rows that are scored.
    rows_are: &'static str,
    /// Score of the best epoch so far.
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
        self.selects_by_loss = start.selects_by_loss;
        for record in &start.earlier {
            self.select(record);
        }
        let size = format!(
            "{} training {}, {} per epoch, {} parameters (* = best epoch so far)",
            start.seeds,
            start.seeds_are,
            counted(start.batches, "batch", "batches"),
            start.parameters
        );
        resumed(start).into_iter().chain([size]).chain(few_updates(start)).collect()
    }

    /// Takes the epoch as the best so far if it is. Returns true if so.
    fn select(&mut self, record: &EpochRecord) -> bool {
        let Some(score) = record.valid_score else { return false };
        let loss = record.valid_loss.unwrap_or(f64::INFINITY);
        let judged = match self.selects_by_loss {
            true => -loss,
            false if is_error(&self.metric) => -score,
            false => score,
        };
        let is_best = self.selected.observe(judged, loss);
        if is_best {
            self.best = Some(score);
        }
        is_best
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
        let is_best = self.select(record);
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

/// Updates below which a line says that parameters have hardly changed.
const FEW_UPDATES: u64 = 50;

/// Line about the position of a resumed run.
fn resumed(start: &Start) -> Option<String> {
    let (done, batches) = start.from;
    if start.from == (0, 0) {
        return None;
    }
    Some(if done >= start.epochs {
        let done = counted(done as u64, "epoch is", "epochs are");
        format!("{done} done, so --epochs {} trains nothing; raise it to go on", start.epochs)
    } else {
        format!("resuming in epoch {} after {}", done + 1, counted(batches, "batch", "batches"))
    })
}

/// Line about a whole run of so few batches that its parameters hardly change.
fn few_updates(start: &Start) -> Option<String> {
    let updates = start.epochs as u64 * start.batches;
    (updates < FEW_UPDATES && start.from == (0, 0)).then(|| {
        format!(
            "{} in the whole run: if the score is low, raise --epochs or lower --batch-size",
            counted(updates, "batch", "batches")
        )
    })
}

#[cfg(test)]
mod tests {
    use graphmill_engine::timeline::Timeline;

    use super::*;

    fn start_of(epochs: usize, batches: u64, from: (usize, u64)) -> Start {
        Start {
            epochs,
            batches,
            seeds: 60,
            seeds_are: "nodes",
            from,
            metric: "accuracy".into(),
            selects_by_loss: false,
            parameters: 7,
            earlier: Vec::new(),
            timeline: Timeline::begin().into(),
        }
    }

    #[test]
    fn counts_have_their_nouns_and_few_updates_a_remark() {
        let lines = |epochs, batches, from| EpochLines::default().start(&start_of(epochs, batches, from));
        let size = |batches: &str| {
            format!("60 training nodes, {batches} per epoch, 7 parameters (* = best epoch so far)")
        };
        assert_eq!(
            lines(3, 1, (0, 0)),
            [
                size("1 batch"),
                "3 batches in the whole run: if the score is low, raise --epochs or lower --batch-size"
                    .into()
            ]
        );
        assert_eq!(lines(10, 5, (0, 0)), [size("5 batches")]);
        assert_eq!(lines(3, 2, (1, 1)), ["resuming in epoch 2 after 1 batch".into(), size("2 batches")]);
        let done = "9 epochs are done, so --epochs 5 trains nothing; raise it to go on".to_string();
        assert_eq!(lines(5, 2, (9, 1)), [done, size("2 batches")]);
    }

    #[test]
    fn the_best_epoch_is_that_of_the_run() {
        let marks = |by_loss: bool, epochs: &[(f64, f64)]| {
            let mut lines = EpochLines::default();
            lines.start(&Start { selects_by_loss: by_loss, ..start_of(10, 10, (0, 0)) });
            let mut mark = |&(score, loss): &(f64, f64)| {
                let (valid_score, valid_loss) = (Some(score), Some(loss));
                lines.of(&EpochRecord { valid_score, valid_loss, ..Default::default() }).is_best
            };
            epochs.iter().map(&mut mark).collect::<Vec<_>>()
        };
        // of equal scores, the lower loss
        let epochs = [(0.9, 0.5), (0.9, 0.4), (0.9, 0.45), (0.8, 0.3)];
        assert_eq!(marks(false, &epochs), [true, true, false, false]);
        assert_eq!(marks(true, &epochs), [true, true, false, true]);
    }

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
