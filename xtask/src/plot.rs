//! Plot of measured points with their ranges, and a line of predictions.

use graphmill_chart::{Axis, Figure, Key, Mark, Panel, Symbol, Ticks};

/// Colour of the first part; points and line use the ones before.
const PARTS: usize = 2;

/// Measurement at one position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    /// Median.
    pub(crate) y: f64,
    /// Smallest and largest value.
    pub(crate) range: (f64, f64),
    /// Prediction of the model.
    pub(crate) line: f64,
}

/// Plot of points, `x` ascending.
pub(crate) struct Plot<'p> {
    pub(crate) title: &'p str,
    pub(crate) subtitle: &'p str,
    pub(crate) x: &'p str,
    pub(crate) y: &'p str,
    /// Names of the points and the line.
    pub(crate) names: [&'p str; 2],
    /// True if the x axis is logarithmic.
    pub(crate) doubling: bool,
    pub(crate) points: &'p [Point],
    /// Parts of the measured values: stacked bars, named from the bottom, with a value for each
    /// point.
    pub(crate) parts: &'p [(&'p str, &'p [f64])],
}

/// Width of the panel in pixels, and of a bar.
const WIDTH: f64 = 620.0;
const BAR: f64 = 18.0;

/// Formats a number without unnecessary digits.
fn label(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

impl Plot<'_> {
    /// Renders the plot; only the frame without points.
    pub(crate) fn svg(&self) -> String {
        let low = self.points.first().map_or(1.0, |point| point.x);
        let high = self.points.last().map_or(2.0, |point| point.x).max(low * (1.0 + 1e-9));
        let most = self.points.iter().map(|point| point.range.1.max(point.line)).fold(0.0, f64::max);
        let ticks = self.points.iter().map(|point| (point.x, label(point.x))).collect();
        let panel = Panel {
            title: String::new(),
            width: WIDTH,
            x: Axis {
                label: self.x.into(),
                low,
                high,
                ticks: Ticks::Named { at: ticks, log: self.doubling },
            },
            y: Axis { label: self.y.into(), low: 0.0, high: most, ticks: Ticks::Rounded(5) },
            marks: self.marks(),
        };
        let [dots, line] = self.names;
        let key = |name: &str, series, symbol| Key { name: name.into(), series, symbol };
        let parts =
            self.parts.iter().enumerate().map(|(part, (name, _))| key(name, PARTS + part, Symbol::Bar));
        let figure = Figure {
            title: self.title.into(),
            subtitle: self.subtitle.into(),
            panels: vec![panel],
            key: [key(dots, 0, Symbol::Dot), key(line, 1, Symbol::Dashes)].into_iter().chain(parts).collect(),
        };
        figure.svg()
    }

    /// Bars at the back, then the line, then the points.
    fn marks(&self) -> Vec<Mark> {
        let mut marks = Vec::new();
        for (i, point) in self.points.iter().enumerate() {
            let mut from = 0.0;
            for (part, (_, values)) in self.parts.iter().enumerate() {
                let range = (from, from + values[i]);
                marks.push(Mark::Bar {
                    series: PARTS + part,
                    x: point.x,
                    width: BAR,
                    range,
                    text: String::new(),
                });
                from = range.1;
            }
        }
        let points = self.points.iter().map(|point| (point.x, point.line)).collect();
        marks.push(Mark::Line { series: 1, points, dots: false, dashed: true });
        marks.extend(self.points.iter().map(|point| Mark::Dot {
            series: 0,
            at: (point.x, point.y),
            range: point.range,
            title: format!("{}: {:.3}", label(point.x), point.y),
        }));
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_and_part_is_drawn() {
        let point = |x: f64| Point { x, y: x, range: (x, 2.0 * x), line: x / 2.0 };
        let points = [256.0, 512.0, 1024.0].map(point);
        let plot = Plot {
            title: "a < b",
            subtitle: "",
            x: "x",
            y: "ms",
            names: ["m", "l"],
            doubling: true,
            points: &points,
            parts: &[],
        };
        let svg = plot.svg();
        assert_eq!(svg.matches("<title>").count(), 3);
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN") && !svg.contains("inf"));
        let parts: &[(&str, &[f64])] = &[("p", &[100.0, 200.0, 300.0]), ("q", &[156.0, 312.0, 724.0])];
        // A bar for each part of each point, and each part's key.
        assert_eq!(Plot { parts, ..plot }.svg().matches("class=\"bar\"").count(), 8);
        assert!(Plot { points: &[], ..plot }.svg().ends_with("</svg>\n"));
    }
}
