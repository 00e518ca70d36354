//! Progress on standard error, for people: one bar for the batches of the epoch in hand, one line
//! per finished epoch. Quiet where standard error is no terminal.

use std::{io::IsTerminal, time::Instant};

use graphmill_engine::{
    observer::{Observer, Progress, Quiet, Start},
    record::EpochRecord,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A watcher fit for standard error.
pub(crate) fn watch(quiet: bool) -> Box<dyn Observer> {
    if quiet || !std::io::stderr().is_terminal() { Box::new(Quiet) } else { Box::new(Bar::new()) }
}

/// Draws.
struct Bar {
    bar: ProgressBar,
    start: Option<Start>,
    best: Option<f64>,
    began: Instant,
    epochs_done: usize,
}

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(10));
        Self { bar, start: None, best: None, began: Instant::now(), epochs_done: 0 }
    }

    fn metric(&self) -> &str {
        self.start.as_ref().map_or("", |start| &start.metric)
    }
}

impl Observer for Bar {
    fn start(&mut self, start: &Start) {
        let style = "{prefix:>12.cyan.bold} {bar:28.cyan/238} {pos:>6}/{len} {msg}";
        let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.bar.set_style(style.progress_chars("━╸─"));
        self.bar.set_length(start.batches);
        if start.from != (0, 0) {
            self.note(&format!("resuming in epoch {}, after {} batches", start.from.0 + 1, start.from.1));
        }
        self.note(&format!(
            "{} training nodes, {} batches an epoch, {} parameters",
            start.seeds, start.batches, start.parameters
        ));
        self.began = Instant::now();
        self.start = Some(start.clone());
    }

    fn batch(&mut self, progress: &Progress) {
        let Some(start) = &self.start else { return };
        let seconds = self.began.elapsed().as_secs_f64();
        let first = (start.from.0 as u64 * start.batches + start.from.1) as f64;
        let done = (progress.epoch as u64 * start.batches + progress.batches) as f64 - first;
        let left = (start.epochs as u64 * start.batches) as f64 - first - done;
        let rate = start.seeds as f64 / start.batches as f64 * done / seconds.max(1e-9);
        self.bar.set_prefix(format!("epoch {}/{}", progress.epoch + 1, start.epochs));
        self.bar.set_position(progress.batches);
        let best = self.best.map_or(String::new(), |best| format!("  best {best:.4}"));
        self.bar.set_message(format!(
            "loss {:.4}{best}  {} seeds/s  {} left",
            progress.loss,
            thousands(rate as u64),
            clock(left * seconds / done.max(1.0))
        ));
    }

    fn evaluate(&mut self, nodes: usize) {
        self.bar.set_message(format!("scoring {} nodes", thousands(nodes as u64)));
    }

    fn epoch(&mut self, record: &EpochRecord) {
        let score =
            record.valid_score.map_or(String::new(), |score| format!("  {} {score:.4}", self.metric()));
        let better = record.valid_score.is_some_and(|score| self.best.is_none_or(|best| score > best));
        if better {
            self.best = record.valid_score;
        }
        self.epochs_done += 1;
        let line = format!(
            "{:>12} loss {:.4}{score}{}  {:.2} s  {} seeds/s",
            format!("epoch {}", record.epoch),
            record.loss,
            if better { " *" } else { "  " },
            record.seconds,
            thousands((record.seeds as f64 / record.seconds.max(1e-9)) as u64)
        );
        // a thousand-epoch run on a small graph needs no thousand lines
        let every = self.start.as_ref().map_or(1, |start| (start.epochs / 50).max(1));
        if better || self.epochs_done.is_multiple_of(every) {
            self.bar.println(line);
        }
    }

    fn note(&mut self, message: &str) {
        self.bar.println(message);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// 1234567 as `1,234,567`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Seconds as `m:ss` or `h:mm:ss`.
pub(crate) fn clock(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    if s >= 3600 {
        format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    } else {
        format!("{}:{:02}", s / 60, s % 60)
    }
}

/// Seconds since 1970 as `yyyymmdd-hhmmss` in UTC.
pub(crate) fn utc(seconds: u64) -> String {
    // civil date from day number: Hinnant's algorithm over 400-year eras that start on 1 March
    let (days, rest) = ((seconds / 86_400) as i64 + 719_468, seconds % 86_400);
    let (era, doe) = (days / 146_097, days % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_read_well() {
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(12), "12");
        assert_eq!(clock(3725.0), "1:02:05");
        assert_eq!(utc(0), "19700101-000000");
        assert_eq!(utc(1_582_979_696), "20200229-123456");
        assert_eq!(utc(951_825_600), "20000229-120000");
    }
}
