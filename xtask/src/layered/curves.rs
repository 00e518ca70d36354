//! Validation scores by epoch, one curve per variant.

use graphmill_chart::{Axis, Figure, Key, Mark, Panel, Symbol, Ticks};

/// Scores of one variant in percent, by epoch.
pub(super) struct Curve<'c> {
    pub(super) name: &'c str,
    pub(super) scores: Vec<f64>,
}

/// Width of the panel in pixels.
const PANEL: f64 = 640.0;

/// Colours of the curves: black for the first, grey for the ninth.
const COLOURS: [usize; 9] = [6, 0, 1, 2, 4, 3, 5, 9, 7];

/// Share of early epochs, whose curves may be clipped, because the later differences matter.
const EARLY: f64 = 0.2;

/// Range of the plotted scores: from the smallest after the early epochs to the largest.
fn range(curves: &[Curve]) -> (f64, f64) {
    let late = |curve: &Curve| (curve.scores.len() as f64 * EARLY) as usize;
    let scores = curves.iter().flat_map(|curve| curve.scores[late(curve)..].iter().copied());
    let (low, high) = scores.fold((f64::INFINITY, 0.0f64), |(low, high), s| (low.min(s), high.max(s)));
    let low = low.min(high);
    let margin = (0.05 * (high - low)).max(0.1);
    (low - margin, high + margin)
}

/// Renders the plot as an SVG document.
pub(super) fn svg(title: &str, curves: &[Curve]) -> String {
    let epochs = curves.iter().map(|curve| curve.scores.len()).max().unwrap_or(1).max(2);
    let (low, high) = range(curves);
    let series = |i: usize| COLOURS[i % COLOURS.len()];
    let line = |(i, curve): (usize, &Curve)| {
        let points = curve.scores.iter().enumerate().map(|(epoch, &score)| (epoch as f64 + 1.0, score));
        let points = points.skip_while(|point| point.1 < low).collect();
        Mark::Line { series: series(i), points, dots: false, dashed: false }
    };
    let key = |(i, curve): (usize, &Curve)| Key {
        name: curve.name.to_string(),
        series: series(i),
        symbol: Symbol::Line,
    };
    let panel = Panel {
        title: String::new(),
        width: PANEL,
        x: Axis { label: "epoch".into(), low: 1.0, high: epochs as f64, ticks: Ticks::Within(10) },
        y: Axis { label: "validation score, %".into(), low, high, ticks: Ticks::Within(5) },
        marks: curves.iter().enumerate().map(line).collect(),
    };
    let figure = Figure {
        title: title.to_string(),
        subtitle: String::new(),
        panels: vec![panel],
        key: curves.iter().enumerate().map(key).collect(),
    };
    figure.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_epochs_do_not_widen_the_range() {
        let curve = |scores: &[f64]| Curve { name: "a < b", scores: scores.to_vec() };
        let curves = [curve(&[10.0, 80.0, 81.0, 82.0, 82.0]), curve(&[20.0, 79.0, 81.0, 81.0, 83.0])];
        let (low, high) = range(&curves);
        assert!((78.5..79.0).contains(&low) && (83.0..83.5).contains(&high), "{low} {high}");
        let svg = svg("t", &curves);
        assert!(svg.matches("a &lt; b").count() == 2 && !svg.contains("NaN"));
        // A run of one epoch.
        assert!(super::svg("t", &[curve(&[50.0])]).contains("</svg>"));
    }
}
