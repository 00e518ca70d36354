//! Notes, finished epochs and the progress of long ones as plain lines, for log files.

use std::{
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use graphmill_core::progress::{Progress as Work, Unit};
use graphmill_engine::{
    Error, Result,
    observer::{Observer, Progress, Start},
    record::{EpochRecord, Summary},
};

use super::lines::{self, BatchTimes, EpochLines};
use crate::output::{self, printable};

/// Shortest time between the lines of two epochs.
const INTERVAL: Duration = Duration::from_secs(lines::INTERVAL as u64);

/// Rows whose scoring may take minutes: the first one of a run is announced.
const MANY_ROWS: usize = 1_000_000;

/// Observer that prints notes, and finished epochs at most once a minute: the first, those that end
/// a minute or more after the last printed one, and the last. Within an epoch of more than a minute
/// it prints the batches once a minute, and the scoring that follows.
pub(super) struct Plain<W> {
    out: W,
    lines: EpochLines,
    printed: Option<Instant>,
    /// Line of the last epoch, if it was not printed.
    held_back: Option<String>,
    batches: BatchTimes,
    scoring: Scoring,
}

/// Duration of the scoring of an epoch.
#[derive(Clone, Copy, Debug, Default)]
enum Scoring {
    /// No scoring has ended.
    #[default]
    Unknown,
    /// Started at this time.
    Running(Instant),
    /// Duration of the last one.
    Took(Duration),
}

impl Scoring {
    /// Returns true if the scoring of `rows` rows may take more than a minute.
    fn is_long(self, rows: usize) -> bool {
        match self {
            Self::Took(last) => last >= INTERVAL,
            Self::Unknown | Self::Running(_) => rows >= MANY_ROWS,
        }
    }
}

impl<W: Write> Plain<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            out,
            lines: EpochLines::default(),
            printed: None,
            held_back: None,
            batches: BatchTimes::default(),
            scoring: Scoring::default(),
        }
    }

    /// Prints a line. A closed pipe is no reason to end a run.
    fn print(&mut self, line: &str) {
        let _ = writeln!(self.out, "{}", printable(line));
    }

    /// Prints a line about the current epoch, behind that of the last one.
    fn print_within(&mut self, line: &str) {
        if let Some(line) = self.held_back.take() {
            self.print(&line);
        }
        self.print(line);
    }
}

/// Stages before the first epoch, as lines on standard error.
struct Preparing;

impl Work for Preparing {
    fn stage(&self, what: &str, _: Option<u64>, _: Unit) {
        output::note(what);
    }

    fn note(&self, message: &str) {
        output::note(message);
    }
}

impl<W: Write + Send> Observer for Plain<W> {
    fn preparation(&self) -> Arc<dyn Work> {
        Arc::new(Preparing)
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        for line in self.lines.start(start) {
            self.print(&line);
        }
        Ok(())
    }

    fn batch(&mut self, progress: &Progress) -> Result<()> {
        if self.batches.is_due(progress) {
            self.print_within(&self.lines.of_batches(progress));
        }
        Ok(())
    }

    fn evaluate(&mut self, rows: usize) {
        if self.batches.had_line() || self.scoring.is_long(rows) {
            self.print_within(&format!("{:>12} {}", "", self.lines.of_scoring(rows)));
        }
        self.scoring = Scoring::Running(Instant::now());
    }

    fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        self.batches = BatchTimes::default();
        if let Scoring::Running(since) = self.scoring {
            self.scoring = Scoring::Took(since.elapsed());
        }
        let line = self.lines.of(record).text;
        if self.printed.is_none_or(|printed| printed.elapsed() >= INTERVAL) {
            self.print(&line);
            (self.printed, self.held_back) = (Some(Instant::now()), None);
        } else {
            self.held_back = Some(line);
        }
        Ok(())
    }

    fn note(&mut self, message: &str) {
        self.print(message);
    }

    fn end(&mut self, _outcome: Result<&Summary, &Error>) -> Result<()> {
        if let Some(line) = self.held_back.take() {
            self.print(&line);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use graphmill_engine::timeline::Timeline;

    use super::*;

    fn record(epoch: usize, score: f64) -> EpochRecord {
        EpochRecord {
            epoch,
            loss: 0.5,
            valid_score: Some(score),
            seconds: 2.0,
            seeds: 1000,
            ..Default::default()
        }
    }

    /// Lines that a run prints whose first epoch reports a batch at each of `seconds`.
    fn lines_within(seconds: &[f64], rows: usize) -> Vec<String> {
        let mut text = Vec::new();
        let mut plain = Plain::new(&mut text);
        let start = Start {
            epochs: 2,
            batches: 5000,
            seeds: 50_000,
            seeds_are: "nodes",
            from: (0, 0),
            metric: "accuracy".into(),
            selects_by_loss: false,
            parameters: 7,
            earlier: Vec::new(),
            timeline: Timeline::begin().into(),
        };
        plain.start(&start).unwrap();
        for (at, &seconds) in seconds.iter().enumerate() {
            let batches = 100 * (at as u64 + 1);
            let progress = Progress { epoch: 0, batches, seeds: 10 * batches, loss: 0.5, seconds };
            plain.batch(&progress).unwrap();
        }
        plain.evaluate(rows);
        plain.epoch(&record(1, 0.5)).unwrap();
        plain.end(Err(&Error::usage("stopped"))).unwrap();
        let lines = std::str::from_utf8(&text).unwrap().lines().map(|line| line.trim().to_string());
        lines.skip(1).collect()
    }

    #[test]
    fn batches_of_a_long_epoch_are_printed_once_a_minute() {
        assert_eq!(
            lines_within(&[1.0, 59.0, 61.0, 90.0, 120.0, 130.0, 500.0], 1000),
            [
                "epoch 1 loss 0.5000  batch 300/5000  61 s",
                "epoch 1 loss 0.5000  batch 600/5000  130 s",
                "epoch 1 loss 0.5000  batch 700/5000  500 s",
                "scoring 1,000 nodes",
                "epoch 1 loss 0.5000  valid accuracy 0.5000 *  2.00 s  500 seeds/s",
            ]
        );
        assert_eq!(lines_within(&[1.0, 59.0], 1000).len(), 1, "a short epoch has the line of its end");
        let scored = lines_within(&[1.0], MANY_ROWS);
        assert_eq!((scored.len(), &*scored[0]), (2, "scoring 1,000,000 nodes"));
    }

    #[test]
    fn the_line_of_an_epoch_precedes_those_within_the_next() {
        let mut text = Vec::new();
        let mut plain = Plain::new(&mut text);
        plain.epoch(&record(1, 0.25)).unwrap();
        plain.epoch(&record(2, 0.5)).unwrap();
        let progress = Progress { epoch: 2, batches: 1, seeds: 1, loss: 0.5, seconds: 60.0 };
        plain.batch(&progress).unwrap();
        let lines = String::from_utf8(text).unwrap();
        let starts: Vec<&str> = lines.lines().map(|line| &line.trim()[..7]).collect();
        assert_eq!(starts, ["epoch 1", "epoch 2", "epoch 3"]);
    }

    #[test]
    fn the_first_and_the_last_epoch_of_a_minute_are_printed() {
        let mut text = Vec::new();
        let mut plain = Plain::new(&mut text);
        plain.note("features are in memory");
        for (epoch, score) in [(1, 0.25), (2, 0.75), (3, 0.5)] {
            plain.epoch(&record(epoch, score)).unwrap();
        }
        plain.end(Err(&Error::usage("stopped"))).unwrap();
        let lines: Vec<_> = std::str::from_utf8(&text).unwrap().lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "features are in memory",
                "epoch 1 loss 0.5000  valid  0.2500 *  2.00 s  500 seeds/s",
                "epoch 3 loss 0.5000  valid  0.5000    2.00 s  500 seeds/s",
            ]
        );
    }
}
