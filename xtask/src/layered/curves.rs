//! Validation scores by epoch: a curve a variant.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

/// The scores of one variant, in percent, an epoch each.
pub(super) struct Curve<'c> {
    pub(super) name: &'c str,
    pub(super) scores: Vec<f64>,
}

/// Pixels of the panel, of the key beside it, and of a line of the key.
const PANEL: (u32, u32) = (640, 400);
const KEY: u32 = 270;
const LINE: i32 = 22;

/// Black is for the first, grey for the last; the others are told apart by colour-blind readers (Okabe and Ito).
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 0, 0),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(150, 75, 0),
    RGBColor(120, 120, 120),
];

/// Epochs before this part of all are shown as far as they fit: what matters are the differences later on.
const EARLY: f64 = 0.2;

/// The scores that are shown: from the least behind the early epochs to the largest.
fn range(curves: &[Curve]) -> (f64, f64) {
    let late = |curve: &Curve| (curve.scores.len() as f64 * EARLY) as usize;
    let scores = curves.iter().flat_map(|curve| curve.scores[late(curve)..].iter().copied());
    let (low, high) = scores.fold((f64::INFINITY, 0.0f64), |(low, high), s| (low.min(s), high.max(s)));
    let low = low.min(high);
    let room = (0.05 * (high - low)).max(0.1);
    (low - room, high + room)
}

/// The plot as an SVG document.
///
/// # Errors
/// It cannot be drawn; says why.
pub(super) fn svg(title: &str, curves: &[Curve]) -> Result<String, Box<dyn std::error::Error>> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (PANEL.0 + KEY, PANEL.1)).into_drawing_area();
        root.fill(&WHITE)?;
        let (panel, key) = root.split_horizontally(PANEL.0);
        let epochs = curves.iter().map(|curve| curve.scores.len()).max().unwrap_or(1).max(2);
        let (low, high) = range(curves);
        let mut chart = ChartBuilder::on(&panel)
            .caption(title, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(38)
            .y_label_area_size(52)
            .build_cartesian_2d(1.0..epochs as f64, low..high)?;
        chart
            .configure_mesh()
            .x_desc("epoch")
            .y_desc("validation score, %")
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(225, 228, 232))
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.1}"))
            .draw()?;
        let font = ("sans-serif", 14).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
        for (i, curve) in curves.iter().enumerate() {
            let style = COLOURS[i % COLOURS.len()].stroke_width(2);
            let points = curve.scores.iter().enumerate().map(|(epoch, &score)| (epoch as f64 + 1.0, score));
            chart.draw_series(LineSeries::new(points.skip_while(|point| point.1 < low), style))?;
            let y = 50 + LINE * i as i32;
            key.draw(&PathElement::new([(8, y), (34, y)], style))?;
            key.draw(&Text::new(curve.name.to_string(), (42, y), font.clone()))?;
        }
        root.present()?;
    }
    Ok(text)
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
        let svg = svg("t", &curves).unwrap();
        assert!(svg.matches("a &lt; b").count() == 2 && !svg.contains("NaN"));
        // a run of one epoch
        assert!(super::svg("t", &[curve(&[50.0])]).unwrap().contains("</svg>"));
    }
}
