//! A download's progress on standard error: one bar for the file in hand, with rate and remaining time. What a person
//! should know is told as a line of its own; without a terminal those lines are all there is.

use std::io::IsTerminal;

use graphmill_fetch::Watch;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Draws.
pub(super) struct Bar {
    /// None without a terminal.
    bar: Option<ProgressBar>,
}

impl Bar {
    pub(super) fn new() -> Self {
        let draws = std::io::stderr().is_terminal();
        let bar = || ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
        Self { bar: draws.then(bar) }
    }
}

impl Watch for Bar {
    fn begin(&mut self, what: &'static str, name: &str, done: u64, total: Option<u64>) {
        let Some(bar) = &self.bar else { return };
        let style = match total {
            // the name last: it gives way where the terminal is narrow
            Some(_) => {
                "{prefix:>9.cyan.bold} {bar:16.cyan/238} {decimal_bytes}/{decimal_total_bytes} \
                 {decimal_bytes_per_sec} {eta} left  {wide_msg}"
            }
            None => "{prefix:>9.cyan.bold} {decimal_bytes} {decimal_bytes_per_sec}  {wide_msg}",
        };
        let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.reset();
        bar.set_style(style.progress_chars("━╸─"));
        bar.set_prefix(what);
        bar.set_message(name.to_string());
        bar.set_length(total.unwrap_or(0));
        bar.set_position(done);
        // the rate is that of this process
        bar.reset_eta();
    }

    fn advance(&mut self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }

    fn restart(&mut self) {
        if let Some(bar) = &self.bar {
            bar.set_position(0);
            bar.reset_eta();
        }
    }

    fn note(&mut self, message: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{message}")),
            None => eprintln!("{message}"),
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
