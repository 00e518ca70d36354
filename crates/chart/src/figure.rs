//! Standalone figures: panels side by side with one shared key.

use crate::{Anchor, Drawing, Scale};

/// Figure of several panels.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    /// Title at the top.
    pub title: String,
    /// Line below the title; may be empty.
    pub subtitle: String,
    /// Panels, from left to right.
    pub panels: Vec<Panel>,
    /// Key at the right; may be empty.
    pub key: Vec<Key>,
}

/// Entry of the key.
#[derive(Clone, Debug)]
pub struct Key {
    /// Name of the series.
    pub name: String,
    /// Index of its colour.
    pub series: usize,
    /// Symbol before the name.
    pub symbol: Symbol,
}

/// Symbol of a series in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// Line with a dot.
    DottedLine,
    /// Solid line.
    Line,
    /// Dashed line.
    Dashes,
    /// Dot.
    Dot,
    /// Square.
    Bar,
}

/// Two axes and the marks between them.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Title, above the panel; may be empty.
    pub title: String,
    /// Width in pixels.
    pub width: f64,
    /// Axis at the bottom.
    pub x: Axis,
    /// Axis at the left.
    pub y: Axis,
    /// Marks, from back to front.
    pub marks: Vec<Mark>,
}

/// Axis of a panel.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Name and unit.
    pub label: String,
    /// Smallest value.
    pub low: f64,
    /// Largest value.
    pub high: f64,
    /// Ticks.
    pub ticks: Ticks,
}

/// Ticks of an axis.
#[derive(Clone, Debug)]
pub enum Ticks {
    /// Approximate number of round ticks; the axis ends at ticks.
    Rounded(usize),
    /// Approximate number of round ticks; the axis ends at its smallest and largest value.
    Within(usize),
    /// Round ticks on a logarithmic axis.
    Log,
    /// Named ticks, on a logarithmic or linear axis.
    Named {
        /// Positions and names.
        at: Vec<(f64, String)>,
        /// True for a logarithmic axis, on which equal ratios have equal lengths.
        log: bool,
    },
}

/// Mark of a series, which determines its colour.
#[derive(Clone, Debug)]
pub enum Mark {
    /// Line through points.
    Line {
        /// Index of its colour.
        series: usize,
        /// Points, from left to right.
        points: Vec<(f64, f64)>,
        /// True to draw dots at the points.
        dots: bool,
        /// True for a dashed line.
        dashed: bool,
    },
    /// Dot with its range and a tooltip.
    Dot {
        /// Index of its colour.
        series: usize,
        /// Position.
        at: (f64, f64),
        /// Smallest and largest value.
        range: (f64, f64),
        /// Tooltip.
        title: String,
    },
    /// Bar with a text above it.
    Bar {
        /// Index of its colour.
        series: usize,
        /// Position on the x axis.
        x: f64,
        /// Width in pixels.
        width: f64,
        /// Lower and upper end.
        range: (f64, f64),
        /// Text above the bar; may be empty.
        text: String,
    },
}

/// Height of a panel with its axes and title.
const PANEL_HEIGHT: f64 = 340.0;
/// Height of an entry of the key.
const KEY_ROW: f64 = 22.0;
/// Margin around the figure.
const MARGIN: f64 = 16.0;

const STYLE: &str = "\
text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328;font-size:13px}
.title{font-size:16px;font-weight:600}.panel{font-weight:600}
.tick,.small{fill:#59636e;font-size:12px}.paper{fill:#ffffff}
.grid{stroke:#d1d9e0}.line{stroke:currentColor;stroke-width:2;fill:none}.dashed{stroke-dasharray:6 4}
.range{stroke:currentColor;stroke-width:1.5}.dot,.bar{fill:currentColor}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}
.tick,.small{fill:#9198a1}.paper{fill:#0d1117}.grid{stroke:#3d444d}
.series6{color:#e6edf3}}";

/// Colours that readers with colour blindness can distinguish (Okabe and Ito), then darker
/// variants.
const COLOURS: [&str; 16] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#787878", "#5a3ca0",
    "#964b00", "#005a3c", "#aa143c", "#a0a000", "#003c78", "#f08278", "#649664",
];

fn series(number: usize) -> String {
    format!("series{}", number % COLOURS.len())
}

impl Figure {
    /// Renders the figure as an SVG document.
    pub fn svg(&self) -> String {
        let header = if self.subtitle.is_empty() { 40.0 } else { 58.0 };
        let panels: f64 = self.panels.iter().map(|panel| panel.width).sum();
        let longest = self.key.iter().map(|key| key.name.chars().count()).max();
        let key = longest.map_or(0.0, |chars| 60.0 + 7.4 * chars as f64);
        let width = (2.0 * MARGIN + panels + key).round();
        let body = PANEL_HEIGHT.max(48.0 + KEY_ROW * self.key.len() as f64);
        let height = header + body + MARGIN;
        let colours: String =
            COLOURS.iter().enumerate().map(|(i, colour)| format!(".series{i}{{color:{colour}}}")).collect();
        let mut out = Drawing::standalone(&self.title, width, height, &format!("{colours}\n{STYLE}"));
        out.rect("paper", (0.0, 0.0), (width, height));
        out.text("title", (MARGIN, 28.0), Anchor::Start, &self.title);
        if !self.subtitle.is_empty() {
            out.text("small", (MARGIN, 47.0), Anchor::Start, &self.subtitle);
        }
        let mut left = MARGIN;
        for panel in &self.panels {
            panel.draw(&mut out, (left, header));
            left += panel.width;
        }
        for (i, row) in self.key.iter().enumerate() {
            row.draw(&mut out, (left + 12.0, header + 48.0 + KEY_ROW * i as f64));
        }
        out.finish() + "\n"
    }
}

impl Key {
    fn draw(&self, out: &mut Drawing, (x, y): (f64, f64)) {
        let Self { name, symbol, .. } = self;
        out.group(&series(self.series), |out| {
            let (from, to, middle) = ((x, y), (x + 26.0, y), (x + 13.0, y));
            match symbol {
                Symbol::Bar => out.rect("bar", (x + 8.0, y - 5.0), (10.0, 10.0)),
                Symbol::Dot => out.circle("dot", middle, 4.0),
                Symbol::Dashes => out.line("line dashed", from, to),
                Symbol::Line => out.line("line", from, to),
                Symbol::DottedLine => {
                    out.line("line", from, to);
                    out.circle("dot", middle, 3.0);
                }
            }
        });
        out.text("", (x + 34.0, y + 4.5), Anchor::Start, name);
    }
}

impl Axis {
    fn scale(&self, to: (f64, f64)) -> Scale {
        let (low, high) = (self.low, self.high);
        match &self.ticks {
            Ticks::Rounded(count) => Scale::rounded(low, high, *count, to),
            Ticks::Within(count) => Scale::exact(low, high, *count, to),
            Ticks::Log => Scale::log(low, high, to),
            Ticks::Named { log: true, .. } => Scale::log(low, high, to),
            Ticks::Named { log: false, .. } => Scale::exact(low, high, 1, to),
        }
    }
}

impl Panel {
    fn draw(&self, out: &mut Drawing, (x0, y0): (f64, f64)) {
        let (top, bottom, right) = (y0 + 44.0, y0 + PANEL_HEIGHT - 44.0, x0 + self.width - 20.0);
        let y = self.y.scale((bottom, top));
        let left = x0 + y.label_width();
        out.text("panel", (x0, y0 + 14.0), Anchor::Start, &self.title);
        out.text("small", (x0, y0 + 32.0), Anchor::Start, &self.y.label);
        out.y_axis(&y, left, right);
        // Keep marks at both ends inside.
        let x = self.x.scale((left + 12.0, right - 12.0));
        match &self.x.ticks {
            Ticks::Named { at, .. } => {
                for (tick, name) in at {
                    out.text("tick", (x.at(*tick), bottom + 18.0), Anchor::Middle, name);
                }
            }
            _ => out.x_axis(&x, bottom),
        }
        out.text("small", (f64::midpoint(left, right), bottom + 38.0), Anchor::Middle, &self.x.label);
        for mark in &self.marks {
            mark.draw(out, &x, &y);
        }
    }
}

impl Mark {
    fn draw(&self, out: &mut Drawing, x: &Scale, y: &Scale) {
        let place = |&(at, value): &(f64, f64)| (x.at(at), y.at(value));
        match self {
            Self::Line { series: number, points, dots, dashed } => out.group(&series(*number), |out| {
                out.path(if *dashed { "line dashed" } else { "line" }, points.iter().map(place));
                if *dots {
                    points.iter().for_each(|point| out.circle("dot", place(point), 3.0));
                }
            }),
            Self::Dot { series: number, at, range, title } => out.group(&series(*number), |out| {
                out.title(title);
                out.line("range", (x.at(at.0), y.at(range.0)), (x.at(at.0), y.at(range.1)));
                out.circle("dot", place(at), 4.0);
            }),
            Self::Bar { series: number, x: middle, width, range, text } => {
                let (middle, low, high) = (x.at(*middle), y.at(range.0), y.at(range.1));
                out.group(&series(*number), |out| {
                    out.rect("bar", (middle - width / 2.0, high), (*width, low - high));
                });
                if !text.is_empty() {
                    out.text("", (middle, high - 5.0), Anchor::Middle, text);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let points = [1.0, 2.0, 4.0].map(|x| (x, 10.0 * x)).to_vec();
        let marks = vec![
            Mark::Bar { series: 2, x: 2.0, width: 10.0, range: (0.0, 5.0), text: "5 %".into() },
            Mark::Line { series: 0, points, dots: true, dashed: false },
            Mark::Dot { series: 1, at: (4.0, 20.0), range: (10.0, 30.0), title: "a < b".into() },
        ];
        let x = Axis { label: "x".into(), low: 1.0, high: 4.0, ticks: Ticks::Log };
        let y = Axis { label: "ms".into(), low: 0.0, high: 40.0, ticks: Ticks::Rounded(5) };
        let panel = Panel { title: "p".into(), width: 400.0, x, y, marks };
        let key = |symbol| Key { name: "k".into(), series: 17, symbol };
        Figure {
            title: "t & u".into(),
            subtitle: String::new(),
            panels: vec![panel.clone(), panel],
            key: vec![key(Symbol::DottedLine), key(Symbol::Bar), key(Symbol::Dashes)],
        }
    }

    #[test]
    fn every_mark_of_every_panel_is_drawn() {
        let svg = figure().svg();
        assert!(svg.starts_with("<svg xmlns") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("t &amp; u") && !svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(svg.matches("<title>a &lt; b</title>").count(), 2);
        assert_eq!(svg.matches("class=\"dot\"").count(), 2 * 4 + 1);
        assert_eq!(svg.matches("class=\"bar\"").count(), 2 + 1);
        assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
        // Colours repeat.
        assert_eq!(svg.matches("class=\"series1\"").count(), 2 + 3);
    }

    #[test]
    fn doublings_are_equidistant_on_a_logarithmic_axis() {
        let scale = Axis { label: String::new(), low: 1.0, high: 4.0, ticks: Ticks::Log }.scale((0.0, 100.0));
        assert_eq!([1.0, 2.0, 4.0].map(|x| scale.at(x).round()), [0.0, 50.0, 100.0]);
    }

    #[test]
    fn an_empty_figure_is_a_valid_document() {
        assert!(Figure::default().svg().ends_with("</svg>\n"));
    }
}
