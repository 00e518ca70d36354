//! Notes and finished epochs as plain lines, for log files.

use std::{
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use graphmill_core::progress::{Progress as Work, Unit};
use graphmill_engine::{
    Error, Result,
    observer::{Observer, Start},
    record::{EpochRecord, Summary},
};

use super::lines::EpochLines;
use crate::output::{self, printable};

/// Shortest time between the lines of two epochs.
const INTERVAL: Duration = Duration::from_secs(60);

/// Observer that prints notes, and finished epochs at most once a minute: the first, those that end
/// a minute or more after the last printed one, and the last.
pub(super) struct Plain<W> {
    out: W,
    lines: EpochLines,
    printed: Option<Instant>,
    /// Line of the last epoch, if it was not printed.
    held_back: Option<String>,
}

impl<W: Write> Plain<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, lines: EpochLines::default(), printed: None, held_back: None }
    }

    /// Prints a line. A closed pipe is no reason to end a run.
    fn print(&mut self, line: &str) {
        let _ = writeln!(self.out, "{}", printable(line));
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

    fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
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
