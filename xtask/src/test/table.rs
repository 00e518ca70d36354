//! The table of times that ends a run.

use std::{
    fmt,
    time::{Duration, Instant},
};

/// Groups of tests that the table names one by one.
const NAMED: usize = 15;

/// Times of the steps and of the groups of tests.
#[derive(Default)]
pub(super) struct Table {
    steps: Vec<Step>,
    groups: Vec<(String, f64)>,
}

/// Time of a step.
struct Step {
    name: &'static str,
    /// Seconds from its start to its end.
    seconds: f64,
    /// Seconds of them that no other step ran.
    alone: f64,
}

impl Table {
    /// Times a step, also if it fails.
    pub(super) fn time<T>(&mut self, name: &'static str, step: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let value = step();
        let seconds = started.elapsed().as_secs_f64();
        self.steps.push(Step { name, seconds, alone: seconds });
        value
    }

    /// Adds a step that ran beside others and was waited for at its end.
    pub(super) fn add_beside(&mut self, name: &'static str, whole: Duration, waited: Duration) {
        self.steps.push(Step { name, seconds: whole.as_secs_f64(), alone: waited.as_secs_f64() });
    }

    /// Adds the groups of tests, the slowest first.
    pub(super) fn add_groups(&mut self, groups: &[(String, f64)]) {
        self.groups.extend_from_slice(groups);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<40} {:>9} {:>9}", "step", "seconds", "alone")?;
        for Step { name, seconds, alone } in &self.steps {
            writeln!(f, "{name:<40} {seconds:>9.1} {alone:>9.1}")?;
        }
        let total: f64 = self.steps.iter().map(|step| step.alone).sum();
        writeln!(f, "{:<40} {:>9} {total:>9.1}", "all", "")?;
        if self.groups.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{:<40} {:>9}", "group of tests", "seconds")?;
        for (name, seconds) in self.groups.iter().take(NAMED) {
            writeln!(f, "{name:<40} {seconds:>9.1}")?;
        }
        let others = self.groups.get(NAMED..).unwrap_or_default();
        if !others.is_empty() {
            let seconds: f64 = others.iter().map(|(_, seconds)| seconds).sum();
            writeln!(f, "{:<40} {seconds:>9.1}", format!("{} others", others.len()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_beside_others_counts_only_while_it_is_waited_for() {
        let mut table = Table::default();
        table.steps.push(Step { name: "lints", seconds: 60.0, alone: 60.0 });
        table.add_beside("kernels", Duration::from_secs(20), Duration::from_secs(2));
        let groups: Vec<(String, f64)> =
            (0..NAMED + 2).map(|number| (format!("group {number}"), 1.5)).collect();
        table.add_groups(&groups);
        let text = table.to_string();
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("kernels").ends_with("20.0       2.0"), "{text}");
        assert!(row("all").ends_with(" 62.0"), "{text}");
        assert!(row("2 others").ends_with(" 3.0"), "{text}");
    }
}
