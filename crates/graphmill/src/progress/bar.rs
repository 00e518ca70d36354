//! A bar for the batches of the current epoch, a line with the utilisation of each stage, and a
//! line for each finished epoch.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use graphmill_core::{
    progress::{Progress as Work, Unit},
    units::count,
};
use graphmill_engine::{
    Result,
    observer::{Observer, Progress, Start},
    record::{EpochRecord, WorkerRecord, bottleneck, utilisation, workers},
    timeline::Stage,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{clock, lines::EpochLines};
use crate::output::printable;

/// Shortest time between two updates of the stages' utilisation: numbers that change faster cannot
/// be read.
const UTILISATION_INTERVAL: Duration = Duration::from_millis(250);

/// Seconds of an epoch after which the utilisation is shown; shares of less time are noise.
const MIN_UTILISATION_SECONDS: f64 = 0.5;

/// Columns of the epoch number and of the batch number.
const PREFIX: usize = 12;
const POSITION: usize = 6;

/// Observer that draws a progress bar.
pub(super) struct Bar {
    bar: ProgressBar,
    start: Option<Start>,
    lines: EpochLines,
    began: Instant,
    /// Columns of the bar itself.
    width: usize,
    /// Utilisation of each worker as it was last shown.
    workers: Vec<WorkerRecord>,
    /// Time of the last update of `workers`.
    updated: Option<Instant>,
}

impl Bar {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(10));
        let width = if columns() < 100 { 16 } else { 28 };
        Self {
            bar,
            start: None,
            lines: EpochLines::default(),
            began: Instant::now(),
            width,
            workers: Vec::new(),
            updated: None,
        }
    }

    /// Returns true if `workers` is due for an update, and records it as made.
    fn updates_workers(&mut self) -> bool {
        let due = self.updated.is_none_or(|updated| updated.elapsed() >= UTILISATION_INTERVAL);
        if due {
            self.updated = Some(Instant::now());
        }
        due
    }

    /// Shows the parts that fit behind the bar, the first ones with priority, and below it the
    /// utilisation of the stages.
    fn show(&self, parts: &[String]) {
        let columns = columns();
        let len = self.start.as_ref().map_or(1, |start| start.batches.to_string().len());
        let before = PREFIX + 1 + self.width + 1 + POSITION + 1 + len + 1;
        let mut text = fitting(parts, columns.saturating_sub(before));
        if let Some(stages) = stages(&self.workers, columns.saturating_sub(PREFIX + 1)) {
            text += &format!("\n{:PREFIX$} {stages}", "");
        }
        self.bar.set_message(text);
    }
}

/// Stage before the first epoch, on the bar of the run.
struct Preparing(ProgressBar);

impl Work for Preparing {
    fn stage(&self, what: &str, total: Option<u64>, _: Unit) {
        let template = match total {
            Some(_) => "{prefix} {bar:24.cyan/238} {percent:>3} %",
            None => "{prefix} {elapsed}",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.0.set_style(style.progress_chars("━╸─"));
        self.0.set_length(total.unwrap_or(0));
        self.0.reset();
        self.0.set_prefix(printable(what).into_owned());
        self.0.enable_steady_tick(UTILISATION_INTERVAL);
    }

    fn done(&self, amount: u64) {
        self.0.set_position(amount);
    }

    fn note(&self, message: &str) {
        self.0.println(printable(message));
    }
}

impl Observer for Bar {
    fn preparation(&self) -> Arc<dyn Work> {
        Arc::new(Preparing(self.bar.clone()))
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        let style = format!(
            "{{prefix:>{PREFIX}.cyan.bold}} {{bar:{}.cyan/238}} {{pos:>{POSITION}}}/{{len}} {{msg}}",
            self.width
        );
        let style = ProgressStyle::with_template(&style).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.bar.disable_steady_tick();
        self.bar.set_style(style.progress_chars("━╸─"));
        self.bar.set_length(start.batches);
        self.bar.set_position(0);
        for line in self.lines.start(start) {
            self.bar.println(line);
        }
        self.began = Instant::now();
        self.start = Some(start.clone());
        Ok(())
    }

    fn batch(&mut self, progress: &Progress) -> Result<()> {
        let Some(start) = &self.start else { return Ok(()) };
        let seconds = self.began.elapsed().as_secs_f64();
        let first = (start.from.0 as u64 * start.batches + start.from.1) as f64;
        let done = (progress.epoch as u64 * start.batches + progress.batches) as f64 - first;
        let left = (start.epochs as u64 * start.batches) as f64 - first - done;
        let rate = start.seeds as f64 / start.batches as f64 * done / seconds.max(1e-9);
        self.bar.set_prefix(format!("epoch {}/{}", progress.epoch + 1, start.epochs));
        self.bar.set_position(progress.batches);
        let mut parts = vec![
            format!("loss {:.4}", progress.loss),
            format!("{} left", clock(left * seconds / done.max(1.0))),
        ];
        parts.extend(self.lines.best.map(|best| format!("best {best:.4}")));
        parts.push(format!("{} seeds/s", count(rate as u64)));
        if progress.seconds >= MIN_UTILISATION_SECONDS
            && self.updates_workers()
            && let Some(start) = &self.start
        {
            self.workers = workers(&start.timeline.busy(), progress.seconds);
        }
        self.show(&parts);
        Ok(())
    }

    fn evaluate(&mut self, rows: usize) {
        self.show(&[self.lines.of_scoring(rows)]);
    }

    fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        let line = self.lines.of(record);
        if self.updates_workers() {
            self.workers.clone_from(&record.workers);
        }
        // improvements, and about 50 other lines, however many epochs the run has
        let every = self.start.as_ref().map_or(1, |start| (start.epochs / 50).max(1));
        if line.is_best || self.lines.done.is_multiple_of(every) {
            self.bar.println(line.text);
        }
        Ok(())
    }

    fn note(&mut self, message: &str) {
        self.bar.println(printable(message));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Columns of a line: one less than the terminal has, because some terminals wrap after the last.
fn columns() -> usize {
    terminal_size::terminal_size_of(std::io::stderr())
        .map_or(80, |(width, _)| width.0 as usize)
        .saturating_sub(1)
}

/// The parts that fit side by side into `columns`; earlier parts have priority.
fn fitting(parts: &[String], columns: usize) -> String {
    let mut text = String::new();
    for part in parts {
        let gap = if text.is_empty() { "" } else { "  " };
        if text.chars().count() + gap.len() + part.chars().count() <= columns {
            text = text + gap + part;
        }
    }
    text
}

/// Utilisation of each stage's workers and the bottleneck, in the longest form that fits; `None` if
/// no worker is known or no form fits.
fn stages(workers: &[WorkerRecord], columns: usize) -> Option<String> {
    let shares = Stage::ALL.into_iter().zip(utilisation(workers));
    let shares = shares.filter_map(|(stage, share)| Some(format!("{} {:.0}%", stage.name(), share? * 100.0)));
    let shares = shares.collect::<Vec<_>>().join(" · ");
    let slowest = bottleneck(workers)?.name();
    let texts = [format!("{shares}  ← bottleneck {slowest}"), format!("{shares}  ← {slowest}"), shares];
    texts.into_iter().find(|text| text.chars().count() <= columns)
}

#[cfg(test)]
mod tests {
    use graphmill_engine::timeline::Busy;

    use super::*;

    #[test]
    fn control_characters_of_names_are_shown_not_sent() {
        let bar = ProgressBar::hidden();
        Preparing(bar.clone()).stage("sorting a\u{1b}[2J.csv", None, Unit::Rows);
        assert_eq!(bar.prefix(), "sorting a\\u{1b}[2J.csv");
    }

    #[test]
    fn parts_that_do_not_fit_are_left_out() {
        let parts = ["loss 0.1234", "1:23 left", "best 0.9876", "12,345 seeds/s"].map(str::to_string);
        assert_eq!(fitting(&parts, 60), "loss 0.1234  1:23 left  best 0.9876  12,345 seeds/s");
        assert_eq!(fitting(&parts, 40), "loss 0.1234  1:23 left  best 0.9876");
        assert_eq!(fitting(&parts, 10), "1:23 left");
        assert_eq!(fitting(&parts, 0), "");
    }

    #[test]
    fn the_bottleneck_takes_the_longest_form_that_fits() {
        let busy = |worker: &str, seconds| Busy { worker: worker.into(), seconds, ..Busy::default() };
        let sampler = busy("sampler 0", [3.4, 1.2, 0.0, 0.0, 0.0]);
        let workers = workers(&[sampler, busy("trainer 0", [0.0, 0.0, 9.7, 0.0, 0.0])], 10.0);
        let text = "sample 34% · extract 12% · train 97%";
        assert_eq!(stages(&workers, 67), Some(format!("{text}  ← bottleneck train")));
        assert_eq!(stages(&workers, 50), Some(format!("{text}  ← train")));
        assert_eq!(stages(&workers, 40), Some(text.into()));
        assert_eq!((stages(&workers, 30), stages(&[], 100)), (None, None));
    }
}
