//! Plot of hit rates by cache ratio, with a panel for each sampler and a line for each policy.

use graphmill_chart::{Axis, Figure, Key, Mark, Panel, Symbol, Ticks};

use super::Report;

/// Width of a panel in pixels.
const PANEL: f64 = 520.0;

/// Draws the plot as an SVG document.
pub fn svg(report: &Report) -> String {
    let policies = policies(report);
    let key = |(series, policy): (usize, &&str)| Key {
        name: (*policy).to_string(),
        series,
        symbol: Symbol::DottedLine,
    };
    let figure = Figure {
        title: report.dataset.clone(),
        subtitle: String::new(),
        panels: report.samplers.iter().map(|reads| panel(report, &reads.sampler, &policies)).collect(),
        key: policies.iter().enumerate().map(key).collect(),
    };
    figure.svg()
}

/// Distinct policies in their order.
fn policies(report: &Report) -> Vec<&str> {
    let mut policies: Vec<&str> = Vec::new();
    for row in &report.results {
        if !policies.contains(&row.policy.as_str()) {
            policies.push(&row.policy);
        }
    }
    policies
}

fn panel(report: &Report, sampler: &str, policies: &[&str]) -> Panel {
    let ratios = report.results.iter().map(|row| 100.0 * row.ratio).filter(|ratio| *ratio > 0.0);
    let (low, high) = ratios.fold((f64::INFINITY, 0.0f64), |(low, high), r| (low.min(r), high.max(r)));
    let (low, high) = if low < high { (low, high) } else { (0.5 * high.max(0.1), 2.0 * high.max(0.1)) };
    let line = |(series, policy): (usize, &&str)| {
        let rows = report.results.iter();
        let rows = rows.filter(|row| row.sampler == sampler && row.policy == *policy && row.ratio > 0.0);
        let mut points: Vec<_> = rows.map(|row| (100.0 * row.ratio, 100.0 * row.hit_rate)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Mark::Line { series, points, dots: true, dashed: false }
    };
    Panel {
        title: sampler.to_string(),
        width: PANEL,
        x: Axis { label: "cached rows, %".into(), low, high, ticks: Ticks::Log },
        y: Axis { label: "hit rate, %".into(), low: 0.0, high: 100.0, ticks: Ticks::Rounded(5) },
        marks: policies.iter().enumerate().map(line).collect(),
    }
}
