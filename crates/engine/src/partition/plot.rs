//! The methods side by side: what is cut, asked for and remote, as bars, in percent.

use graphmill_chart::{Axis, Figure, Mark, Panel, Ticks};

use super::{Outcome, Report};

/// Pixels of a panel's width for its margins and for each method, and of a bar.
const MARGINS: f64 = 90.0;
const METHOD: f64 = 74.0;
const BAR: f64 = 46.0;

/// Value that a panel shows of a method, if it is known.
type Value = fn(&Outcome) -> Option<f64>;

/// Title, colour and value of each panel.
const PANELS: [(&str, usize, Value); 3] = [
    ("edges cut, %", 0, |outcome| Some(100.0 * outcome.statistics.edge_cut)),
    ("nodes asked of other parts, %", 1, |outcome| {
        let asked = outcome.statistics.cross_requests.as_ref()?;
        let sum = |count: fn(&super::Hop) -> u64| asked.hops.iter().map(count).sum::<u64>() as f64;
        Some(100.0 * sum(|hop| hop.requests) / sum(|hop| hop.nodes).max(1.0))
    }),
    ("feature rows of other parts, %", 2, |outcome| {
        let asked = outcome.statistics.cross_requests.as_ref()?;
        Some(100.0 * asked.remote_rows as f64 / asked.rows.max(1) as f64)
    }),
];

/// The plot as an SVG document.
pub fn svg(report: &Report) -> String {
    let parts = report.results.first().map_or(0, |outcome| outcome.parts);
    let figure = Figure {
        title: format!("{}, {parts} parts", report.dataset),
        subtitle: String::new(),
        panels: PANELS.map(|panel| draw(report, panel)).into(),
        key: Vec::new(),
    };
    figure.svg()
}

fn draw(report: &Report, (title, series, value): (&str, usize, Value)) -> Panel {
    let outcomes = &report.results;
    let most = outcomes.iter().filter_map(value).fold(0.0, f64::max);
    let middle = |i: usize| i as f64 + 0.5;
    let bar = |(i, outcome): (usize, &Outcome)| {
        let value = value(outcome)?;
        let text = format!("{value:.1}");
        Some(Mark::Bar { series, x: middle(i), width: BAR, range: (0.0, value), text })
    };
    let names = outcomes.iter().enumerate().map(|(i, outcome)| (middle(i), outcome.method.clone()));
    let columns = outcomes.len().max(1) as f64;
    Panel {
        title: title.to_string(),
        width: MARGINS + METHOD * columns.max(2.0),
        x: Axis {
            label: String::new(),
            low: 0.0,
            high: columns,
            ticks: Ticks::Named { at: names.collect(), log: false },
        },
        y: Axis {
            label: String::new(),
            low: 0.0,
            high: if most > 0.0 { 1.08 * most } else { 1.0 },
            ticks: Ticks::Rounded(5),
        },
        marks: outcomes.iter().enumerate().filter_map(bar).collect(),
    }
}
