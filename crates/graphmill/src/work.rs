//! Progress of imports, generators and downloads on standard error: a bar for the current stage
//! with its rate and remaining time, and a line for every stage that took more than two seconds. If
//! standard error is not a terminal, only notes are printed. `GRAPHMILL_PROGRESS=json` prints both
//! as JSON lines.

use std::{
    io::IsTerminal,
    sync::Mutex,
    time::{Duration, Instant},
};

use graphmill_core::{
    progress::{Progress, Quiet, Unit},
    units,
};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{
    output,
    progress::{self, Form, clock},
};

/// Progress on standard error; `quiet` hides notes, too.
pub(crate) fn on_stderr(quiet: bool) -> Box<dyn Progress> {
    if quiet {
        Box::new(Quiet)
    } else if let Ok(Some(Form::Json)) = progress::of_environment() {
        progress::json_work()
    } else if std::io::stderr().is_terminal() {
        Box::new(Bar { bar: ProgressBar::hidden(), stage: Mutex::new(None) })
    } else {
        Box::new(Notes)
    }
}

/// Duration from which a finished stage gets a line.
const MIN_PRINTED_STAGE: Duration = Duration::from_secs(2);

/// Progress that prints notes only, for log files.
struct Notes;

impl Progress for Notes {
    fn note(&self, message: &str) {
        output::note(message);
    }
}

/// Progress bar on the terminal.
struct Bar {
    bar: ProgressBar,
    stage: Mutex<Option<Stage>>,
}

/// The current stage.
struct Stage {
    name: String,
    total: Option<u64>,
    unit: Unit,
    began: Instant,
    done: u64,
    /// Share of `done` that an earlier run had completed.
    resumed: u64,
}

impl Stage {
    /// Amount per second in this run.
    fn rate(&self) -> f64 {
        self.done.saturating_sub(self.resumed) as f64 / self.began.elapsed().as_secs_f64().max(1e-9)
    }

    /// Amount, rate and remaining time.
    fn message(&self) -> String {
        let left = self.total.map(|total| total.saturating_sub(self.done) as f64 / self.rate().max(1e-9));
        let left = left
            .filter(|_| self.done > self.resumed)
            .map_or(String::new(), |left| format!("  {} left", clock(left)));
        format!("{}  {}{left}", amount(self.done, self.unit), speed(self.rate(), self.unit))
    }

    /// Line of the finished stage.
    fn line(&self) -> String {
        let seconds = self.began.elapsed().as_secs_f64();
        format!(
            "{:>24}  {}  {}  {}",
            self.name,
            amount(self.done, self.unit),
            speed(self.rate(), self.unit),
            clock(seconds)
        )
    }
}

fn amount(count: u64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => HumanBytes(count).to_string(),
        Unit::Edges => format!("{} edges", units::count(count)),
        Unit::Rows => format!("{} rows", units::count(count)),
    }
}

fn speed(rate: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => format!("{}/s", HumanBytes(rate as u64)),
        Unit::Edges | Unit::Rows => format!("{:.1} M/s", rate / 1e6),
    }
}

impl Bar {
    /// Ends `stage` and prints its line if it took long enough.
    fn end(&self, stage: &mut Option<Stage>) {
        if let Some(stage) = stage
            .take()
            .filter(|stage| stage.began.elapsed() >= MIN_PRINTED_STAGE && stage.done > stage.resumed)
        {
            self.bar.println(stage.line());
        }
    }
}

impl Progress for Bar {
    fn stage(&self, what: &str, total: Option<u64>, unit: Unit) {
        let Ok(mut stage) = self.stage.lock() else { return };
        self.end(&mut stage);
        // names of files are part of some stages
        let name = output::printable(what).into_owned();
        self.bar.set_prefix(name.clone());
        *stage = Some(Stage { name, total, unit, began: Instant::now(), done: 0, resumed: 0 });
        let template = match total {
            Some(_) => "{prefix:>24.cyan.bold} {bar:24.cyan/238} {percent:>3} %  {msg}",
            None => "{prefix:>24.cyan.bold} {msg}",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.bar.set_style(style.progress_chars("━╸─"));
        self.bar.set_length(total.unwrap_or(0));
        self.bar.set_position(0);
        self.bar.set_message("");
        self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    }

    fn resume(&self, amount: u64) {
        if let Ok(mut stage) = self.stage.lock()
            && let Some(stage) = stage.as_mut()
        {
            (stage.done, stage.resumed) = (amount, amount);
            self.bar.set_position(amount);
        }
    }

    fn done(&self, amount: u64) {
        let Ok(mut stage) = self.stage.lock() else { return };
        let Some(stage) = stage.as_mut() else { return };
        stage.done = amount;
        self.bar.set_message(stage.message());
        self.bar.set_position(amount);
    }

    fn note(&self, message: &str) {
        self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        self.bar.println(output::printable(message));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Ok(mut stage) = self.stage.lock() {
            self.end(&mut stage);
        }
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_names_of_stages_are_shown_as_escapes() {
        let bar = Bar { bar: ProgressBar::hidden(), stage: Mutex::new(None) };
        bar.stage("reading a\u{1b}[31m.csv", None, Unit::Bytes);
        assert_eq!(bar.bar.prefix(), "reading a\\u{1b}[31m.csv");
        let line = bar.stage.lock().unwrap().as_ref().unwrap().line();
        assert!(line.contains("reading a\\u{1b}[31m.csv") && !line.contains('\u{1b}'), "{line}");
    }

    #[test]
    fn stages_show_rate_and_remaining_time() {
        let began = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        let stage =
            |unit, total| Stage { name: "reading".into(), total, unit, began, done: 10 << 20, resumed: 0 };
        assert!(stage(Unit::Bytes, Some(20 << 20)).message().starts_with("10.00 MiB  1"));
        assert!(stage(Unit::Bytes, Some(20 << 20)).message().ends_with("0:10 left"));
        let resumed = Stage { resumed: 5 << 20, ..stage(Unit::Bytes, Some(20 << 20)) };
        assert!(resumed.message().ends_with("0:20 left"));
        assert_eq!(stage(Unit::Edges, None).message(), "10,485,760 edges  1.0 M/s");
        assert!(stage(Unit::Rows, None).line().ends_with("reading  10,485,760 rows  1.0 M/s  0:10"));
    }
}
