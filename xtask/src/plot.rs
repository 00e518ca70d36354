//! A plot as SVG: measured points with their range, and a line beside them. It follows the reader's light or dark theme.

use std::fmt::Write;

/// What is measured at one place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    /// Median.
    pub(crate) y: f64,
    /// Least and largest.
    pub(crate) range: (f64, f64),
    /// What the model says.
    pub(crate) line: f64,
}

/// A plot of points, `x` ascending.
pub(crate) struct Plot<'p> {
    pub(crate) title: &'p str,
    pub(crate) subtitle: &'p str,
    pub(crate) x: &'p str,
    pub(crate) y: &'p str,
    /// What the points and the line are called.
    pub(crate) names: [&'p str; 2],
    /// Whether the x axis doubles in equal steps.
    pub(crate) doubling: bool,
    pub(crate) points: &'p [Point],
    /// What the measured values consist of: bars on top of each other, named from below, with a value for each point.
    pub(crate) parts: &'p [(&'p str, &'p [f64])],
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
/// Left, right, top, bottom of the frame; the key of parts takes a line more above.
const FRAME: [f64; 4] = [64.0, 616.0, 84.0, 342.0];
const PARTS_KEY: f64 = 22.0;
/// Half a bar.
const BAR: f64 = 9.0;

const STYLE: &str = "\
text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328;font-size:13px}
.title{font-size:16px;font-weight:600}.small{fill:#59636e;font-size:12px}.paper{fill:#ffffff}
.grid{stroke:#d1d9e0}.dot{fill:#0969da}.range{stroke:#0969da;stroke-width:1.5}
.line{stroke:#bc4c00;stroke-width:2;stroke-dasharray:6 4;fill:none}
.part0{fill:#8250df}.part1{fill:#d4a72c}.part2{fill:#b6e3ff}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.paper{fill:#0d1117}.grid{stroke:#3d444d}
.dot{fill:#58a6ff}.range{stroke:#58a6ff}.line{stroke:#f0883e}.part0{fill:#a371f7}.part1{fill:#bb8009}.part2{fill:#1c4a78}}";

/// Round ticks from 0 to at least `most`, about five.
fn ticks(most: f64) -> Vec<f64> {
    let rough = most.max(1e-9) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(10.0 * power);
    let count = (most / step).ceil().max(1.0) as usize;
    (0..=count).map(|i| i as f64 * step).collect()
}

/// A number without needless digits.
fn label(value: f64) -> String {
    // steps of 1, 2 and 5 have one digit that counts
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

impl Plot<'_> {
    /// The drawing; the frame alone where there are no points.
    pub(crate) fn svg(&self) -> String {
        let [left, right, top, bottom] = FRAME;
        let top = if self.parts.is_empty() { top } else { top + PARTS_KEY };
        let along = |x: f64| if self.doubling { x.log2() } else { x };
        let low = self.points.first().map_or(0.0, |point| along(point.x));
        let high = self.points.last().map_or(1.0, |point| along(point.x)).max(low + 1e-9);
        let most = self.points.iter().map(|point| point.range.1.max(point.line)).fold(0.0, f64::max);
        let y_ticks = ticks(most);
        let top_value = y_ticks[y_ticks.len() - 1];
        // half a centimetre of room at both ends
        let px = |x: f64| left + 24.0 + (along(x) - low) / (high - low) * (right - left - 48.0);
        let py = |y: f64| bottom - y / top_value * (bottom - top);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{}\">\n<style>{STYLE}</style>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             rx=\"6\"/>\n",
            escape(self.title)
        );
        let text = |class: &str, x: f64, y: f64, anchor: &str, text: &str| {
            let text = escape(text);
            format!(
                "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n"
            )
        };
        out += &text("title", 16.0, 28.0, "start", self.title);
        out += &text("small", 16.0, 47.0, "start", self.subtitle);
        for &tick in &y_ticks {
            let y = py(tick);
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/>");
            out += &text("small", left - 8.0, y + 4.0, "end", &label(tick));
        }
        for point in self.points {
            let x = px(point.x);
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{x:.1} {bottom}v5\"/>");
            out += &text("small", x, bottom + 20.0, "middle", &label(point.x));
        }
        out += &text("", (left + right) / 2.0, HEIGHT - 14.0, "middle", self.x);
        out += &text("", 16.0, top - 10.0, "start", self.y);
        // the key, at the right
        let key = top - 14.0;
        let _ = writeln!(out, "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{key:.1}\" r=\"4\"/>", left + 110.0);
        out += &text("", left + 121.0, key + 4.0, "start", self.names[0]);
        let _ = writeln!(out, "<path class=\"line\" d=\"M{:.1} {key:.1}h28\"/>", left + 296.0);
        out += &text("", left + 332.0, key + 4.0, "start", self.names[1]);

        for (part, (name, _)) in self.parts.iter().enumerate() {
            let x = left + 106.0 + 100.0 * part as f64;
            let y = key - PARTS_KEY;
            let _ = writeln!(out, "<path class=\"part{part}\" d=\"M{x:.1} {:.1}h10v10h-10z\"/>", y - 5.0);
            out += &text("", x + 15.0, y + 4.0, "start", name);
        }
        for (i, point) in self.points.iter().enumerate() {
            let mut from = 0.0;
            for (part, (_, values)) in self.parts.iter().enumerate() {
                let to = from + values[i];
                let (x, low, high) = (px(point.x) - BAR, py(from), py(to));
                let _ = writeln!(
                    out,
                    "<path class=\"part{part}\" d=\"M{x:.1} {low:.1}V{high:.1}h{}V{low:.1}z\"/>",
                    2.0 * BAR
                );
                from = to;
            }
        }

        let mut path = String::new();
        for (i, point) in self.points.iter().enumerate() {
            let _ =
                write!(path, "{}{:.1} {:.1}", if i == 0 { 'M' } else { 'L' }, px(point.x), py(point.line));
        }
        if !path.is_empty() {
            let _ = writeln!(out, "<path class=\"line\" d=\"{path}\"/>");
        }
        for point in self.points {
            let (x, [high, low]) = (px(point.x), [point.range.1, point.range.0].map(py));
            let _ = writeln!(out, "<path class=\"range\" d=\"M{x:.1} {high:.1}V{low:.1}\"/>");
            let _ = writeln!(
                out,
                "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}: {:.3}</title></circle>",
                py(point.y),
                label(point.x),
                point.y
            );
        }
        out + "</svg>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_top() {
        assert_eq!(ticks(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.3).iter().map(|&t| label(t)).collect::<Vec<_>>(), ["0", "0.1", "0.2", "0.3"]);
        assert_eq!(ticks(47.0).last(), Some(&50.0));
        assert_eq!(ticks(0.0).len(), 2);
    }

    #[test]
    fn every_point_is_drawn_inside_the_frame() {
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
        // the middle of three doublings stands in the middle
        assert!(
            svg.contains("cx=\"88.0\"") && svg.contains("cx=\"340.0\"") && svg.contains("cx=\"592.0\""),
            "{svg}"
        );
        let parts: &[(&str, &[f64])] = &[("p", &[100.0, 200.0, 300.0]), ("q", &[156.0, 312.0, 724.0])];
        // a bar for each part of each point, and each part's key
        assert_eq!(Plot { parts, ..plot }.svg().matches("class=\"part").count(), 8);
        assert!(Plot { points: &[], ..plot }.svg().ends_with("</svg>\n"));
    }
}
