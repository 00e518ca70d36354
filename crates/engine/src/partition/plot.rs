//! Bar charts of the methods: percentages of cut edges, requested nodes and remote rows.

use graphmill_chart::{Axis, Figure, Mark, Panel, Ticks};

use super::{Outcome, Report};

/// Width of a panel's margins in pixels.
const MARGINS: f64 = 90.0;
/// Width of a method's column in pixels.
const METHOD: f64 = 74.0;
/// Width of a bar in pixels.
const BAR: f64 = 46.0;

/// Value of a method in a panel, if known.
type Value = fn(&Outcome) -> Option<f64>;

/// Title, colour and value of each panel.
const PANELS: [(&str, usize, Value); 3] = [
    ("edges cut, %", 0, |outcome| Some(100.0 * outcome.statistics.edge_cut)),
    ("nodes requested from other parts, %", 1, |outcome| {
        let requests = outcome.statistics.cross_requests.as_ref()?;
        let sum = |count: fn(&super::Hop) -> u64| requests.hops.iter().map(count).sum::<u64>() as f64;
        Some(100.0 * sum(|hop| hop.requests) / sum(|hop| hop.nodes).max(1.0))
    }),
    ("feature rows of other parts, %", 2, |outcome| {
        let requests = outcome.statistics.cross_requests.as_ref()?;
        Some(100.0 * requests.remote_rows as f64 / requests.rows.max(1) as f64)
    }),
];

/// Draws the charts as an SVG document.
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
    let max = outcomes.iter().filter_map(value).fold(0.0, f64::max);
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
            high: if max > 0.0 { 1.08 * max } else { 1.0 },
            ticks: Ticks::Rounded(5),
        },
        marks: outcomes.iter().enumerate().filter_map(bar).collect(),
    }
}
