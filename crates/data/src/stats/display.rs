//! Table of statistics: one line per figure, and the degrees as bars.

use std::fmt;

use graphmill_core::{
    ClassColumn,
    units::{count, decimal_bytes},
};

use super::{Info, Part};

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        let mut row = |what: &str, figure: String, note: String| {
            writeln!(f, "{}", format!("  {what:<11}{figure:>14}   {note}").trim_end())
        };
        let reordered = if self.reordered { ", reordered, original ids kept" } else { "" };
        row("nodes", grouped(self.nodes), format!("{} isolated{reordered}", grouped(self.isolated)))?;
        let direction = if self.symmetric { "undirected, stored both ways" } else { "directed" };
        let weighted = if self.weighted { ", weighted" } else { "" };
        let loops = match self.self_loops {
            0 => "no self-loops".into(),
            1 => "1 self-loop".into(),
            n => format!("{} self-loops", grouped(n)),
        };
        let bytes = decimal_bytes(self.bytes.topology as u64);
        row("edges", grouped(self.edges), format!("{direction}{weighted}, {loops}, {bytes}"))?;
        if !self.graphs.is_empty() {
            let part =
                |g: &Part| format!("{} {} nodes, {} edges", g.name, grouped(g.nodes), grouped(g.edges));
            let more = match self.graphs.len().saturating_sub(MAX_LISTED_GRAPHS) {
                0 => String::new(),
                n => format!("; and {} more", grouped(n)),
            };
            let parts = self.graphs.iter().take(MAX_LISTED_GRAPHS).map(part).collect::<Vec<_>>().join("; ");
            row("graphs", grouped(self.graphs.len()), parts + &more)?;
        }
        let share = 100.0 * self.components.largest as f64 / self.nodes.max(1) as f64;
        let largest = format!("largest {} nodes ({share:.1} %)", grouped(self.components.largest));
        row("components", grouped(self.components.count), largest)?;
        let bytes = decimal_bytes(self.bytes.features as u64);
        let stored = match self.feature_type {
            "csr" => {
                let share = self.feature_values as f64 / (self.nodes * self.feature_dim).max(1) as f64;
                format!(", {} values ({:.2} %)", grouped(self.feature_values), 100.0 * share)
            }
            _ => String::new(),
        };
        let normalized = self.normalize.map(|how| format!(", normalized: {how}")).unwrap_or_default();
        let note = format!("{}{stored}, {bytes}{normalized}", self.feature_type);
        row("features", grouped(self.feature_dim), note)?;
        let per_class = match (self.class_counts.iter().min(), self.class_counts.iter().max()) {
            (Some(min), Some(max)) => format!(", {} to {} nodes each", grouped(*min), grouped(*max)),
            _ => String::new(),
        };
        let kind = match &self.columns[..] {
            [] if self.multilabel => "several a node".to_string(),
            [] => "one a node".to_string(),
            columns => format!("one of each column a node ({})", sizes(columns).join(", ")),
        };
        let without = match self.unlabelled {
            0 => String::new(),
            n => format!(", {} unlabelled", grouped(n)),
        };
        if self.values {
            row("targets", grouped(self.classes), format!("values of a regression{without}"))?;
        } else {
            row("classes", grouped(self.classes), format!("{kind}{per_class}{without}"))?;
        }
        if let Some(homophily) = self.homophily {
            let also = |what: &str, value: Option<f64>| value.map(|x| format!("{what} {}", three(x)));
            let notes = [
                also("adjusted", homophily.adjusted),
                also("class-insensitive", homophily.class_insensitive),
            ];
            let note = notes.into_iter().flatten().collect::<Vec<_>>().join(", ");
            row("homophily", format!("{:.3}", homophily.edge), note)?;
        }
        let parts = format!("valid {}, test {}", grouped(self.valid), grouped(self.test));
        row("train", grouped(self.train), parts)?;
        if let Some(metric) = &self.metric {
            row("metric", metric.clone(), String::new())?;
        }
        let d = &self.degree;
        let (median, p90, p99) = (short(d.median), short(d.p90), short(d.p99));
        let note = format!("median {median}, 90 % {p90}, 99 % {p99}, max {}", grouped(d.max as usize));
        row("in-degree", format!("{:.2}", d.mean), note)?;
        self.write_histogram(f)
    }
}

/// Names of columns of classes with their numbers of classes.
pub(crate) fn sizes(columns: &[ClassColumn]) -> Vec<String> {
    columns.iter().map(|column| format!("{}: {}", column.name, grouped(column.classes))).collect()
}

impl Info {
    /// Prints a bar for every range of in-degrees.
    fn write_histogram(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.degree.histogram.iter().map(|bin| bin.nodes).max().unwrap_or(0).max(1);
        for bin in &self.degree.histogram {
            let degrees =
                if bin.from == bin.to { bin.from.to_string() } else { format!("{}-{}", bin.from, bin.to) };
            // A nonzero count shows at least the thinnest bar.
            let eighths = (bin.nodes as f64 / most as f64 * 8.0 * BAR as f64).round() as usize;
            let eighths = if bin.nodes > 0 { eighths.max(1) } else { 0 };
            let mut bar = "█".repeat(eighths / 8);
            bar.extend("▏▎▍▌▋▊▉".chars().nth((eighths % 8).wrapping_sub(1)));
            let line = format!("  {degrees:>11}{:>14}   {bar}", grouped(bin.nodes));
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Maximum number of graphs listed by name.
const MAX_LISTED_GRAPHS: usize = 8;

/// Length of the longest bar in characters.
const BAR: usize = 40;

pub(crate) fn grouped(n: usize) -> String {
    count(n as u64)
}

/// Three decimals, without a minus before zero.
fn three(x: f64) -> String {
    format!("{:.3}", if x.abs() < 0.0005 { 0.0 } else { x })
}

/// At most two decimals, without trailing zeros.
fn short(x: f64) -> String {
    format!("{x:.2}").trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{info, tests::small};

    #[test]
    fn the_table_matches_the_reference_text() {
        let expected = "\
small
  nodes                   6   1 isolated
  edges                  10   undirected, stored both ways, no self-loops, 96 B
  components              2   largest 5 nodes (83.3 %)
  features                2   f32, 48 B
  classes                 2   one a node, 2 to 3 nodes each, 1 unlabelled
  homophily           0.800   adjusted 0.524, class-insensitive 0.524
  train                   2   valid 1, test 2
  metric           accuracy
  in-degree            1.67   median 2, 90 % 2.5, 99 % 2.95, max 3
            0             1   ██████████
            1             1   ██████████
          2-3             4   ████████████████████████████████████████
";
        assert_eq!(info(&small()).to_string(), expected);
        assert_eq!([three(-0.0004), three(-0.0006)], ["0.000", "-0.001"]);
        assert_eq!([short(100.0), short(0.5), short(49.994)], ["100", "0.5", "49.99"]);
        assert_eq!(
            [grouped(0), grouped(999), grouped(1000), grouped(12_345_678)],
            ["0", "999", "1,000", "12,345,678"]
        );
    }
}
