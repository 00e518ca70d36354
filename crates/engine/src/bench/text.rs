//! Text table of a report.

use std::fmt;

use super::{Measured, Report};

/// Characters of a full bar.
const BAR: usize = 20;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = &self.graph;
        writeln!(
            f,
            "{}: {} nodes, {} edges, {} features; {} threads; {} runs after a warm-up",
            graph.name, graph.nodes, graph.edges, graph.feature_dim, self.threads, self.repeat
        )?;
        let wide = self.results.iter().map(|row| row.case.chars().count()).max().unwrap_or(0);
        let mut bench = "";
        for row in &self.results {
            if row.bench != bench {
                bench = row.bench;
                let limit = if bench == "machine" { "" } else { "limit" };
                let range = "min .. max";
                writeln!(
                    f,
                    "\n{bench:<wide$}  {:>10} {:<9}{range:^17}{limit:>8}",
                    "median",
                    "",
                    wide = wide + 2
                )?;
            }
            line(f, row, wide)?;
        }
        self.legend(f)
    }
}

impl Report {
    /// Explains the columns that the table has.
    fn legend(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.repeat;
        write!(f, "\nmedian, min .. max: of {runs} runs; the more the better, of s and ms the less")?;
        if self.results.iter().any(|row| row.limit.is_some()) {
            write!(
                f,
                "\nlimit: what this machine's memory or arithmetic allows for the same bytes or products, \
                 measured in the same run; the bar and the percentage are the median's share of it"
            )?;
        }
        if self.results.iter().any(|row| row.row_limit.is_some()) {
            write!(f, "\nof random rows: share of the rate at which memory delivers rows in random order")?;
        }
        writeln!(f)
    }
}

/// Writes the line of a case.
fn line(f: &mut fmt::Formatter<'_>, row: &Measured, wide: usize) -> fmt::Result {
    let (factor, prefix) = prefix(row.median, row.unit);
    let unit = format!("{prefix}{}", row.unit);
    let scaled = |value: f64| digits(value / factor);
    let range = format!("{:>7} .. {}", scaled(row.min), scaled(row.max));
    write!(f, "  {:<wide$}  {:>10} {unit:<9}{range:<17}", row.case, scaled(row.median))?;
    if let (Some(limit), Some(share)) = (row.limit, row.of_limit) {
        write!(f, "{:>8}  {} {:>4.0} %", scaled(limit), bar(share), 100.0 * share)?;
        if let Some(limit) = row.row_limit {
            write!(f, "; {:.0} % of random rows", 100.0 * row.median / limit)?;
        }
    }
    writeln!(f)
}

/// Divisor of the value and prefix of the unit: thousands or millions for counts per second.
fn prefix(value: f64, unit: &str) -> (f64, &'static str) {
    match unit {
        "edges/s" | "seeds/s" | "reads/s" | "subgraphs/s" if value >= 1e5 => (1e6, "M "),
        "edges/s" | "seeds/s" | "reads/s" | "subgraphs/s" => (1e3, "k "),
        _ => (1.0, ""),
    }
}

/// Formats a value with three significant digits, without exponent.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        x if x >= 100.0 => 0,
        x if x >= 10.0 => 1,
        x if x >= 1.0 => 2,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

/// Bar of `share` of its full length.
fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    "█".repeat(full) + &"░".repeat(BAR - full)
}
