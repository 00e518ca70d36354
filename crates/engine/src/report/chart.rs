//! Line charts and stacked bars as inline SVG. Colours come from the page's style sheet by class.

use std::fmt::Write;

use super::{scale::Scale, text::escape};

/// A value of an epoch, with what hovering over it says.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) epoch: usize,
    pub(super) value: f64,
    pub(super) title: String,
}

/// A line.
pub(super) struct Line {
    /// Class of its colour.
    pub(super) class: &'static str,
    pub(super) points: Vec<Point>,
}

/// What is drawn of a long run: at most this many points, so that the page stays light.
const MOST_POINTS: usize = 1000;

/// Up to so many points each gets a dot.
const MOST_DOTS: usize = 40;

/// Bars lie on their side up to so many epochs.
const MOST_ROWS: usize = 12;

/// Standing bars are means over runs of epochs beyond so many.
const MOST_BARS: usize = 250;

/// The y axis with its grid.
pub(super) fn y_axis(out: &mut String, y: &Scale, left: f64, right: f64) {
    for &tick in &y.ticks {
        let at = y.at(tick);
        let _ = write!(out, "<line class=grid x1={left:.1} x2={right:.1} y1={at:.1} y2={at:.1} />");
        let label = y.label(tick);
        let _ = write!(
            out,
            "<text class=tick x={:.1} y={:.1} text-anchor=end>{label}</text>",
            left - 8.0,
            at + 4.0
        );
    }
}

/// The labels of the x axis.
pub(super) fn x_axis(out: &mut String, x: &Scale, bottom: f64) {
    for &tick in &x.ticks {
        let (at, label) = (x.at(tick), x.label(tick));
        let _ = write!(
            out,
            "<text class=tick x={at:.1} y={:.1} text-anchor=middle>{label}</text>",
            bottom + 18.0
        );
    }
}

/// Room for the y axis' labels.
pub(super) fn left_margin(y: &Scale) -> f64 {
    let longest = y.ticks.iter().map(|&tick| y.label(tick).len()).max().unwrap_or(0);
    (14.0 + 7.2 * longest as f64).max(34.0)
}

/// The beginning of a drawing.
pub(super) fn open(label: &str, width: f64, height: f64) -> String {
    format!("<svg viewBox=\"0 0 {width} {height}\" role=img aria-label=\"{}\">", escape(label))
}

/// Lines over the epochs. `best` is the epoch to mark on the first line. Nothing to draw gives an empty string.
pub(super) fn lines(label: &str, lines: &[Line], best: Option<usize>) -> String {
    let finite = lines.iter().flat_map(|line| &line.points).filter(|p| p.value.is_finite());
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    let (mut first, mut last) = (usize::MAX, 0);
    for point in finite {
        (low, high) = (low.min(point.value), high.max(point.value));
        (first, last) = (first.min(point.epoch), last.max(point.epoch));
    }
    if low > high {
        return String::new();
    }
    let (width, height) = (540.0, 260.0);
    let (top, bottom, right) = (12.0, height - 30.0, width - 12.0);
    let y = Scale::rounded(low, high, 5, (bottom, top));
    let left = left_margin(&y);
    let x = Scale::epochs(first, last, 10, (left, right));
    let mut out = open(label, width, height);
    y_axis(&mut out, &y, left, right);
    x_axis(&mut out, &x, bottom);
    for line in lines {
        let points: Vec<&Point> = line.points.iter().filter(|p| p.value.is_finite()).collect();
        let every = points.len().div_ceil(MOST_POINTS).max(1);
        // the last of each run of points, so that the last of all is drawn
        let points: Vec<&Point> = points.chunks(every).filter_map(|run| run.last().copied()).collect();
        let mut path = String::new();
        for (i, p) in points.iter().enumerate() {
            let command = if i == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", x.at(p.epoch as f64), y.at(p.value));
        }
        let _ = write!(out, "<path class=\"line {}\" d=\"{path}\" />", line.class);
        let dots = if points.len() <= MOST_DOTS { "dots" } else { "dots many" };
        let _ = write!(out, "<g class=\"{dots} {}\">", line.class);
        let slot = ((right - left) / points.len().max(1) as f64).max(6.0);
        for p in &points {
            let (px, py) = (x.at(p.epoch as f64), y.at(p.value));
            let _ = write!(
                out,
                "<g><title>{}</title><rect x={:.1} y={top} width={slot:.1} height={:.1} />\
                 <line x1={px:.1} x2={px:.1} y1={top} y2={bottom} /><circle cx={px:.1} cy={py:.1} r=3.5 /></g>",
                escape(&p.title),
                px - slot / 2.0,
                bottom - top,
            );
        }
        out.push_str("</g>");
    }
    let marked = best.and_then(|best| lines.first()?.points.iter().find(|p| p.epoch == best));
    if let Some(p) = marked.filter(|p| p.value.is_finite()) {
        let (px, py) = (x.at(p.epoch as f64), y.at(p.value));
        let _ = write!(
            out,
            "<circle class=best cx={px:.1} cy={py:.1} r=5><title>best: {}</title></circle>",
            escape(&p.title)
        );
    }
    out.push_str("</svg>");
    out
}

/// An epoch's parts, one above the other.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) epoch: usize,
    /// Seconds, in the order of the classes.
    pub(super) parts: Vec<f64>,
    /// What it really took, to be marked where the parts overlap.
    pub(super) whole: Option<f64>,
    pub(super) title: String,
    pub(super) label: String,
}

/// Stacked bars: lying for a few epochs, standing for many, means of several for very many. The second
/// value is how many epochs a bar stands for.
pub(super) fn bars(label: &str, classes: &[&str], bars: &[Bar]) -> (String, usize) {
    let highest = |bars: &[Bar]| {
        let each = bars.iter().map(|bar| bar.parts.iter().sum::<f64>().max(bar.whole.unwrap_or(0.0)));
        each.fold(0.0, f64::max)
    };
    if bars.is_empty() || highest(bars) <= 0.0 {
        return (String::new(), 1);
    }
    if bars.len() <= MOST_ROWS {
        return (rows(label, classes, bars, highest(bars)), 1);
    }
    let every = bars.len().div_ceil(MOST_BARS);
    let merged: Vec<Bar> = bars.chunks(every).map(mean).collect();
    (columns(label, classes, &merged, highest(&merged), every), every)
}

/// The mean of several bars, under the first one's epoch.
fn mean(run: &[Bar]) -> Bar {
    if let [one] = run {
        return one.clone();
    }
    let n = run.len() as f64;
    let part = |i: usize| run.iter().map(|bar| bar.parts[i]).sum::<f64>() / n;
    let whole: Option<f64> = run.iter().map(|bar| bar.whole).sum();
    Bar {
        epoch: run[0].epoch,
        parts: (0..run[0].parts.len()).map(part).collect(),
        whole: whole.map(|sum| sum / n),
        title: format!("epochs {} to {}, the mean", run[0].epoch, run[run.len() - 1].epoch),
        label: String::new(),
    }
}

/// Lying bars.
fn rows(label: &str, classes: &[&str], bars: &[Bar], highest: f64) -> String {
    let longest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0) as f64 * 7.0;
    let (width, row) = (1100.0, 30.0);
    let left = 16.0 + longest(&mut bars.iter().map(|bar| format!("epoch {}", bar.epoch).len()));
    let right = width - 16.0 - longest(&mut bars.iter().map(|bar| bar.label.chars().count()));
    let height = row * bars.len() as f64 + 4.0;
    let scale = (right - left) / highest;
    let mut out = open(label, width, height);
    for (i, bar) in bars.iter().enumerate() {
        let top = row * i as f64 + 5.0;
        let middle = top + row / 2.0 - 1.0;
        let _ = write!(
            out,
            "<g class=bar><title>{}</title><rect class=hit x=0 y={:.1} width={width} height={row} />\
             <text class=tick x={:.1} y={middle:.1} text-anchor=end>epoch {}</text>",
            escape(&bar.title),
            top - 5.0,
            left - 10.0,
            bar.epoch
        );
        let mut at = left;
        for (class, part) in classes.iter().zip(&bar.parts) {
            let wide = part * scale;
            let _ = write!(
                out,
                "<rect class={class} x={at:.2} y={top:.1} width={wide:.2} height={:.1} />",
                row - 10.0
            );
            at += wide;
        }
        let _ = write!(
            out,
            "<text class=value x={:.1} y={middle:.1}>{}</text>",
            at.max(left) + 8.0,
            escape(&bar.label)
        );
        if let Some(whole) = bar.whole {
            let x = left + whole * scale;
            let _ = write!(
                out,
                "<line class=whole x1={x:.1} x2={x:.1} y1={:.1} y2={:.1} />",
                top - 3.0,
                top + row - 7.0
            );
        }
        out.push_str("</g>");
    }
    out.push_str("</svg>");
    out
}

/// Standing bars.
fn columns(label: &str, classes: &[&str], bars: &[Bar], highest: f64, every: usize) -> String {
    let (width, height) = (1100.0, 260.0);
    let (top, bottom, right) = (12.0, height - 30.0, width - 8.0);
    let y = Scale::rounded(0.0, highest, 5, (bottom, top));
    let left = left_margin(&y);
    let (first, last) = (bars[0].epoch, bars[bars.len() - 1].epoch + every - 1);
    let x = Scale::epochs(first, last, 20, (left, right));
    let mut out = open(label, width, height);
    y_axis(&mut out, &y, left, right);
    x_axis(&mut out, &x, bottom);
    let slot = (right - left) / bars.len() as f64;
    let wide = (slot * if slot > 8.0 { 0.75 } else { 0.9 }).min(40.0);
    for (i, bar) in bars.iter().enumerate() {
        let middle = left + slot * (i as f64 + 0.5);
        let _ = write!(
            out,
            "<g class=bar><title>{}</title><rect class=hit x={:.1} y={top} width={slot:.1} height={:.1} />",
            escape(&bar.title),
            middle - slot / 2.0,
            bottom - top
        );
        let mut sum = 0.0;
        for (class, part) in classes.iter().zip(&bar.parts) {
            let (low, high) = (y.at(sum), y.at(sum + part));
            let _ = write!(
                out,
                "<rect class={class} x={:.2} y={high:.2} width={wide:.2} height={:.2} />",
                middle - wide / 2.0,
                low - high
            );
            sum += part;
        }
        if let Some(whole) = bar.whole {
            let (at, half) = (y.at(whole), slot / 2.0);
            let _ = write!(
                out,
                "<line class=whole x1={:.1} x2={:.1} y1={at:.1} y2={at:.1} />",
                middle - half,
                middle + half
            );
        }
        out.push_str("</g>");
    }
    out.push_str("</svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[f64]) -> Vec<Point> {
        let point =
            |(i, &value): (usize, &f64)| Point { epoch: i + 1, value, title: format!("epoch {}", i + 1) };
        values.iter().enumerate().map(point).collect()
    }

    fn line(values: &[f64]) -> String {
        lines("loss", &[Line { class: "loss", points: points(values) }], Some(1))
    }

    fn bar(epoch: usize) -> Bar {
        Bar { epoch, parts: vec![1.0, 2.0], whole: None, title: "<t>".into(), label: "3 s".into() }
    }

    #[test]
    fn a_line_has_a_title_per_point_and_marks_the_best() {
        let svg = line(&[3.0, 2.0, 1.0]);
        assert_eq!(svg.matches("<title>").count(), 4);
        assert!(svg.contains("best: epoch 1") && svg.starts_with("<svg") && svg.ends_with("</svg>"));
        assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
    }

    #[test]
    fn what_is_not_finite_is_not_drawn() {
        assert_eq!(line(&[]), "");
        assert_eq!(line(&[f64::NAN]), "");
        let svg = line(&[f64::NAN, 1.0, f64::INFINITY]);
        assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.matches("<circle").count() == 1);
    }

    #[test]
    fn long_runs_are_thinned() {
        let svg = line(&vec![0.5; 100_000]);
        assert!(svg.matches("<title>").count() <= MOST_POINTS + 1);
        assert!(svg.contains("<title>epoch 100000</title>"));
        let (svg, every) = bars("stages", &["a", "b"], &(1..=1000).map(bar).collect::<Vec<_>>());
        assert_eq!((svg.matches("class=bar").count(), every), (250, 4));
        assert!(svg.contains("epochs 1 to 4, the mean"));
    }

    #[test]
    fn bars_lie_or_stand_and_escape_their_text() {
        for n in [1, 3, 12, 13, 200] {
            let (svg, every) = bars("stages", &["a", "b"], &(1..=n).map(bar).collect::<Vec<_>>());
            assert_eq!((svg.matches("class=bar").count(), every), (n, 1));
            assert!(svg.contains("&lt;t&gt;") && !svg.contains("<t>"));
        }
        assert_eq!(bars("stages", &["a"], &[]).0, "");
    }
}
