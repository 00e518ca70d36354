//! Line charts and stacked bars over epochs, coloured by the page's style sheet.

use graphmill_chart::{Anchor, Drawing, Scale};
use graphmill_core::units::digits;
use graphmill_engine::record::EpochRecord;

/// Value of an epoch, with its tooltip.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) epoch: usize,
    pub(super) value: f64,
    pub(super) title: String,
}

/// Points of the epochs that have a value, with their tooltips.
pub(super) fn points(
    epochs: &[EpochRecord],
    what: &str,
    value: impl Fn(&EpochRecord) -> Option<f64>,
) -> Vec<Point> {
    let point = |e: &EpochRecord| {
        let value = value(e)?;
        let shown = if value.abs() < 1.0 { format!("{value:.4}") } else { digits(value) };
        Some(Point { epoch: e.epoch, value, title: format!("epoch {}: {what} {shown}", e.epoch) })
    };
    epochs.iter().filter_map(point).collect()
}

/// Line of a chart.
pub(super) struct Line {
    /// Class of its colour.
    pub(super) class: &'static str,
    pub(super) points: Vec<Point>,
}

/// Width of a chart in half of the page, and in the whole page. Charts are drawn at this size, so
/// that all have one font size.
pub(super) const WIDTH: f64 = 510.0;
pub(super) const WHOLE_WIDTH: f64 = 1078.0;

/// Height of a chart.
pub(super) const HEIGHT: f64 = 260.0;

/// Maximum number of points drawn for a long run, so that the page stays small.
const MAX_POINTS: usize = 1000;

/// Maximum number of points with permanently visible dots.
const MAX_DOTS: usize = 40;

/// Maximum number of epochs drawn as horizontal bars.
const MAX_ROWS: usize = 12;

/// Maximum number of vertical bars; of more epochs each bar is a mean over several.
const MAX_BARS: usize = 250;

/// Draws lines over the epochs. `best` is the epoch to mark on the first line. Returns an empty
/// string without points.
pub(super) fn lines(label: &str, lines: &[Line], best: Option<usize>) -> String {
    lines_in(label, lines, best, WIDTH)
}

/// Draws lines as [`lines`] does, over the whole width of the page.
pub(super) fn wide_lines(label: &str, lines: &[Line]) -> String {
    lines_in(label, lines, None, WHOLE_WIDTH)
}

fn lines_in(label: &str, lines: &[Line], best: Option<usize>, width: f64) -> String {
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
    let height = HEIGHT;
    let (top, bottom, right) = (12.0, height - 30.0, width - 12.0);
    let y = Scale::rounded(low, high, 5, (bottom, top));
    let left = y.label_width();
    let x = Scale::epochs(first, last, 10, (left, right));
    let mut out = Drawing::new(label, width, height);
    out.y_axis(&y, left, right);
    out.x_axis(&x, bottom);
    let place = |p: &Point| (x.at(p.epoch as f64), y.at(p.value));
    for line in lines {
        let points: Vec<&Point> = line.points.iter().filter(|p| p.value.is_finite()).collect();
        let every = points.len().div_ceil(MAX_POINTS).max(1);
        // The last point of each group, so that the final one is drawn.
        let points: Vec<&Point> = points.chunks(every).filter_map(|run| run.last().copied()).collect();
        out.path(&format!("line {}", line.class), points.iter().map(|p| place(p)));
        let many = points.len() > MAX_DOTS;
        let dots = points.iter().map(|p| (place(p), p.title.clone()));
        draw_dots(&mut out, line.class, many, dots, (left, right), (top, bottom));
    }
    let marked = best.and_then(|best| lines.first()?.points.iter().find(|p| p.epoch == best));
    if let Some(p) = marked.filter(|p| p.value.is_finite()) {
        out.group("", |out| {
            out.title(&format!("best: {}", p.title));
            out.circle("best", place(p), 5.0);
        });
    }
    out.finish()
}

/// Draws a dot with a tooltip for each position; of `many` only the dot under the pointer is
/// visible.
pub(super) fn draw_dots(
    out: &mut Drawing,
    class: &str,
    many: bool,
    dots: impl ExactSizeIterator<Item = ((f64, f64), String)>,
    (left, right): (f64, f64),
    (top, bottom): (f64, f64),
) {
    let slot = ((right - left) / dots.len().max(1) as f64).max(6.0);
    let kind = if many { "dots many" } else { "dots" };
    out.group(&format!("{kind} {class}"), |out| {
        for ((x, y), title) in dots {
            out.group("", |out| {
                out.title(&title);
                out.rect("", (x - slot / 2.0, top), (slot, bottom - top));
                out.line("", (x, top), (x, bottom));
                out.circle("", (x, y), 3.5);
            });
        }
    });
}

/// Parts of an epoch, stacked.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) epoch: usize,
    /// Seconds, in the order of the classes.
    pub(super) parts: Vec<f64>,
    /// Actual duration, marked if the parts overlap.
    pub(super) whole: Option<f64>,
    pub(super) title: String,
    pub(super) label: String,
}

/// Draws stacked bars: horizontal for a few epochs, vertical for many, means of several for very
/// many. The second value is the number of epochs per bar.
pub(super) fn bars(label: &str, classes: &[&str], bars: &[Bar]) -> (String, usize) {
    let highest = |bars: &[Bar]| {
        let each = bars.iter().map(|bar| bar.parts.iter().sum::<f64>().max(bar.whole.unwrap_or(0.0)));
        each.fold(0.0, f64::max)
    };
    if bars.is_empty() || highest(bars) <= 0.0 {
        return (String::new(), 1);
    }
    if bars.len() <= MAX_ROWS {
        return (rows(label, classes, bars, highest(bars)), 1);
    }
    let every = bars.len().div_ceil(MAX_BARS);
    let merged: Vec<Bar> = bars.chunks(every).map(mean).collect();
    (columns(label, classes, &merged, highest(&merged), every), every)
}

/// Mean of several bars, with the first one's epoch.
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

/// Horizontal bars.
fn rows(label: &str, classes: &[&str], bars: &[Bar], highest: f64) -> String {
    let longest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0) as f64 * 7.0;
    let (width, row) = (WHOLE_WIDTH, 30.0);
    let left = 16.0 + longest(&mut bars.iter().map(|bar| format!("epoch {}", bar.epoch).len()));
    let right = width - 16.0 - longest(&mut bars.iter().map(|bar| bar.label.chars().count()));
    let height = row * bars.len() as f64 + 4.0;
    let scale = (right - left) / highest;
    let mut out = Drawing::new(label, width, height);
    for (i, bar) in bars.iter().enumerate() {
        let top = row * i as f64 + 5.0;
        let middle = top + row / 2.0 - 1.0;
        out.group("bar", |out| {
            out.title(&bar.title);
            out.rect("hit", (0.0, top - 5.0), (width, row));
            out.text("tick", (left - 10.0, middle), Anchor::End, format_args!("epoch {}", bar.epoch));
            let mut at = left;
            for (class, part) in classes.iter().zip(&bar.parts) {
                let wide = part * scale;
                out.rect(class, (at, top), (wide, row - 10.0));
                at += wide;
            }
            out.text("value", (at.max(left) + 8.0, middle), Anchor::Start, &bar.label);
            if let Some(whole) = bar.whole {
                let x = left + whole * scale;
                out.line("whole", (x, top - 3.0), (x, top + row - 7.0));
            }
        });
    }
    out.finish()
}

/// Vertical bars.
fn columns(label: &str, classes: &[&str], bars: &[Bar], highest: f64, every: usize) -> String {
    let (width, height) = (WHOLE_WIDTH, HEIGHT);
    let (top, bottom, right) = (12.0, height - 30.0, width - 8.0);
    let y = Scale::rounded(0.0, highest, 5, (bottom, top));
    let left = y.label_width();
    let (first, last) = (bars[0].epoch, bars[bars.len() - 1].epoch + every - 1);
    let x = Scale::epochs(first, last, 20, (left, right));
    let mut out = Drawing::new(label, width, height);
    out.y_axis(&y, left, right);
    out.x_axis(&x, bottom);
    let slot = (right - left) / bars.len() as f64;
    let wide = (slot * if slot > 8.0 { 0.75 } else { 0.9 }).min(40.0);
    for (i, bar) in bars.iter().enumerate() {
        let middle = left + slot * (i as f64 + 0.5);
        out.group("bar", |out| {
            out.title(&bar.title);
            out.rect("hit", (middle - slot / 2.0, top), (slot, bottom - top));
            let mut sum = 0.0;
            for (class, part) in classes.iter().zip(&bar.parts) {
                let (low, high) = (y.at(sum), y.at(sum + part));
                out.rect(class, (middle - wide / 2.0, high), (wide, low - high));
                sum += part;
            }
            if let Some(whole) = bar.whole {
                let (at, half) = (y.at(whole), slot / 2.0);
                out.line("whole", (middle - half, at), (middle + half, at));
            }
        });
    }
    out.finish()
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
    fn lines_have_tooltips_and_mark_the_best_epoch() {
        let svg = line(&[3.0, 2.0, 1.0]);
        assert_eq!(svg.matches("<title>").count(), 4);
        assert!(svg.contains("best: epoch 1") && svg.starts_with("<svg") && svg.ends_with("</svg>"));
        assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
    }

    #[test]
    fn values_that_are_not_finite_are_not_drawn() {
        assert_eq!(line(&[]), "");
        assert_eq!(line(&[f64::NAN]), "");
        let svg = line(&[f64::NAN, 1.0, f64::INFINITY]);
        assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.matches("<circle").count() == 1);
    }

    #[test]
    fn long_runs_are_thinned() {
        let svg = line(&vec![0.5; 100_000]);
        assert!(svg.matches("<title>").count() <= MAX_POINTS + 1);
        assert!(svg.contains("<title>epoch 100000</title>"));
        let (svg, every) = bars("stages", &["a", "b"], &(1..=1000).map(bar).collect::<Vec<_>>());
        assert_eq!((svg.matches("class=\"bar\"").count(), every), (250, 4));
        assert!(svg.contains("epochs 1 to 4, the mean"));
    }

    #[test]
    fn bars_are_horizontal_or_vertical_and_escape_their_text() {
        for n in [1, 3, 12, 13, 200] {
            let (svg, every) = bars("stages", &["a", "b"], &(1..=n).map(bar).collect::<Vec<_>>());
            assert_eq!((svg.matches("class=\"bar\"").count(), every), (n, 1));
            assert!(svg.contains("&lt;t&gt;") && !svg.contains("<t>"));
        }
        assert_eq!(bars("stages", &["a"], &[]).0, "");
    }
}
