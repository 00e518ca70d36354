//! Diagrams over numbers: curves, bars between bounds and points.

use graphmill_chart::{Drawing, Scale};

use super::chart::{HEIGHT, WIDTH, draw_dots};

/// A diagram with axes over two ranges of numbers.
pub(super) struct Diagram {
    out: Drawing,
    x: Scale,
    y: Scale,
    /// Left and right end of the axes.
    across: (f64, f64),
    /// Top and bottom end of the axes.
    along: (f64, f64),
}

/// Curve of a diagram.
pub(super) struct Curve<'c> {
    /// Class of its colour.
    pub(super) class: &'c str,
    /// Points, with their tooltips.
    pub(super) points: Vec<(f64, f64, String)>,
}

impl Diagram {
    /// Creates an empty diagram over these ranges, ends included.
    pub(super) fn new(label: &str, x: (f64, f64), y: (f64, f64)) -> Self {
        let (top, bottom, right) = (12.0, HEIGHT - 30.0, WIDTH - 14.0);
        let y = Scale::rounded(y.0, y.1, 5, (bottom, top));
        let left = y.label_width();
        // marks at the ends stay inside
        let x = Scale::rounded(x.0, x.1, 8, (left + 6.0, right - 6.0));
        let mut out = Drawing::new(label, WIDTH, HEIGHT);
        out.y_axis(&y, left, right);
        out.x_axis(&x, bottom);
        Self { out, x, y, across: (left, right), along: (top, bottom) }
    }

    /// Draws the line from one point to another, dashed.
    pub(super) fn reference(&mut self, from: (f64, f64), to: (f64, f64)) {
        let at = |point: (f64, f64)| (self.x.at(point.0), self.y.at(point.1));
        self.out.line("peak", at(from), at(to));
    }

    /// Draws a bar from 0 to `height`, between the bounds.
    pub(super) fn bar(&mut self, class: &str, (low, high): (f64, f64), height: f64, title: &str) {
        let (left, right) = (self.x.at(low), self.x.at(high));
        let (top, bottom) = (self.y.at(height), self.y.at(0.0));
        self.out.group("bar", |out| {
            out.title(title);
            out.rect(class, (left + 1.0, top), ((right - left - 2.0).max(1.0), bottom - top));
        });
    }

    /// Draws a curve; dots appear under the pointer.
    pub(super) fn curve(&mut self, curve: &Curve) {
        let at = |point: &(f64, f64, String)| (self.x.at(point.0), self.y.at(point.1));
        let Curve { class, points } = curve;
        self.out.path(&format!("line {class}"), points.iter().map(at));
        let dots: Vec<_> = points.iter().map(|point| (at(point), point.2.clone())).collect();
        draw_dots(&mut self.out, class, true, dots.into_iter(), self.across, self.along);
    }

    /// Draws points.
    pub(super) fn scatter(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let (x, y) = (&self.x, &self.y);
        self.out.group(&format!("scatter {class}"), |out| {
            points.into_iter().for_each(|(a, b)| out.circle("", (x.at(a), y.at(b)), 2.0));
        });
    }

    /// Marks a point.
    pub(super) fn mark(&mut self, point: (f64, f64), title: &str) {
        let at = (self.x.at(point.0), self.y.at(point.1));
        self.out.group("", |out| {
            out.title(title);
            out.circle("best", at, 5.0);
        });
    }

    /// Returns the finished drawing.
    pub(super) fn finish(self) -> String {
        self.out.finish()
    }
}
