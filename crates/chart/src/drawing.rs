//! Shapes and texts of an SVG document.

use std::fmt::{Display, Write};

use crate::Scale;

/// Horizontal alignment of a text relative to its point.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// The text begins at the point.
    Start,
    /// The text is centred at the point.
    Middle,
    /// The text ends at the point.
    End,
}

/// SVG document under construction. Every shape has one or more classes, separated by blanks;
/// points are `(x, y)`.
#[derive(Debug)]
pub struct Drawing(String);

/// Escapes the characters with a meaning in HTML and XML, and replaces control characters, which
/// XML does not allow.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

impl Drawing {
    /// Creates a drawing within a page, whose style sheet it uses.
    pub fn new(label: &str, width: f64, height: f64) -> Self {
        Self(format!(
            "<svg width=\"{width}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
            escape(label)
        ))
    }

    /// Creates a standalone document with the style sheet `style`.
    pub(crate) fn standalone(label: &str, width: f64, height: f64, style: &str) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n<style>{style}</style>\n",
            escape(label)
        ))
    }

    /// Appends formatted text, which cannot fail.
    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.0.write_fmt(text);
    }

    /// Opens a shape.
    fn open(&mut self, shape: &str, class: &str) {
        if class.is_empty() {
            self.push(format_args!("<{shape}"));
        } else {
            self.push(format_args!("<{shape} class=\"{class}\""));
        }
    }

    /// Draws a line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.open("line", class);
        self.push(format_args!(" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" />"));
    }

    /// Draws a line through points; nothing without points.
    pub fn path(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let path = path(points);
        if !path.is_empty() {
            self.open("path", class);
            self.push(format_args!(" d=\"{path}\" />"));
        }
    }

    /// Draws the area between a line through points and `bottom`; nothing without points.
    pub fn area(&mut self, class: &str, points: &[(f64, f64)], bottom: f64) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let path = path(points.iter().copied());
        self.open("path", class);
        self.push(format_args!(" d=\"{path}L{:.1} {bottom:.1}L{:.1} {bottom:.1}Z\" />", last.0, first.0));
    }

    /// Draws a rectangle from its upper left corner and its size.
    pub fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64)) {
        let ((x, y), (width, height)) = (corner, size);
        self.open("rect", class);
        self.push(format_args!(" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" />"));
    }

    /// Draws a circle.
    pub fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        self.open("circle", class);
        self.push(format_args!(" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" />"));
    }

    /// Draws a text; nothing if it is empty.
    pub fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: impl Display) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(&text.to_string());
        if text.is_empty() {
            return;
        }
        self.open("text", class);
        self.push(format_args!(" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"));
    }

    /// Draws a group of shapes.
    pub fn group(&mut self, class: &str, draw: impl FnOnce(&mut Self)) {
        self.styled_group(class, "", draw);
    }

    /// Draws a group of shapes with style declarations.
    pub fn styled_group(&mut self, class: &str, style: &str, draw: impl FnOnce(&mut Self)) {
        self.open("g", class);
        if !style.is_empty() {
            self.push(format_args!(" style=\"{style}\""));
        }
        self.0.push('>');
        draw(self);
        self.0.push_str("</g>");
    }

    /// Sets the tooltip of the group; must be its first element.
    pub fn title(&mut self, title: &str) {
        let title = escape(title);
        self.push(format_args!("<title>{title}</title>"));
    }

    /// Draws the y axis: a grid line and a label for every tick.
    pub fn y_axis(&mut self, y: &Scale, left: f64, right: f64) {
        for &tick in y.ticks() {
            let at = y.at(tick);
            self.line("grid", (left, at), (right, at));
            self.text("tick", (left - 8.0, at + 4.0), Anchor::End, y.label(tick));
        }
    }

    /// Draws the labels of the x axis.
    pub fn x_axis(&mut self, x: &Scale, bottom: f64) {
        for &tick in x.ticks() {
            self.text("tick", (x.at(tick), bottom + 18.0), Anchor::Middle, x.label(tick));
        }
    }

    /// Returns the finished document.
    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>");
        self.0
    }
}

fn path(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut out = String::new();
    for (x, y) in points {
        let command = if out.is_empty() { 'M' } else { 'L' };
        let _ = write!(out, "{command}{x:.1} {y:.1}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_groups_closed() {
        let mut drawing = Drawing::new("a \"b\"", 10.0, 20.0);
        drawing.group("bar", |drawing| {
            drawing.title("<t>");
            drawing.text("", (1.0, 2.0), Anchor::Middle, "a & b");
            drawing.path("line", []);
        });
        assert_eq!(
            drawing.finish(),
            "<svg width=\"10\" viewBox=\"0 0 10 20\" role=\"img\" aria-label=\"a &quot;b&quot;\"><g \
             class=\"bar\"><title>&lt;t&gt;</title>\
             <text x=\"1.0\" y=\"2.0\" text-anchor=\"middle\">a &amp; b</text></g></svg>"
        );
    }
}
