//! Text table of the methods.

use std::fmt;

use super::Report;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.results.first().map_or(0, |outcome| outcome.parts);
        writeln!(f, "{}: {} nodes, {} edges, {parts} parts", self.dataset, self.nodes, self.edges)?;
        writeln!(
            f,
            "{:8} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>14} {:>14} {:>9}",
            "method",
            "edge cut",
            "nodes",
            "train",
            "1 hop",
            "2 hops",
            "3 hops",
            "requests",
            "remote rows",
            "seconds"
        )?;
        for outcome in &self.results {
            let (statistics, balance) = (&outcome.statistics, outcome.statistics.balance);
            write!(
                f,
                "{:8} {:>7.2} % {:>9.3} {:>9.3}",
                outcome.method,
                100.0 * statistics.edge_cut,
                balance.nodes,
                balance.train
            )?;
            for hop in 0..3 {
                let share = statistics.locality.map(|locality| format!("{:.1} %", 100.0 * locality[hop]));
                write!(f, " {:>8}", share.unwrap_or_default())?;
            }
            let requests = statistics.cross_requests.as_ref();
            let number = |value: Option<f64>| value.map(|value| format!("{value:.0}")).unwrap_or_default();
            writeln!(
                f,
                " {:>14} {:>14} {:>9.3}",
                number(requests.map(|requests| requests.per_epoch)),
                number(requests.map(|requests| requests.rows_per_epoch)),
                outcome.seconds
            )?;
        }
        match &self.advice {
            Some(advice) => writeln!(f, "\nadvice: {}", advice.text),
            None => Ok(()),
        }
    }
}
