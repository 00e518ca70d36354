//! The methods side by side: what is cut, asked for and remote, as bars, in percent.

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Outcome, Report};

/// Pixels of a panel's width for its margins and for each method, and of its height.
const MARGINS: u32 = 90;
const METHOD: u32 = 74;
const HEIGHT: u32 = 340;

const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);
const GREEN: RGBColor = RGBColor(0, 158, 115);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// What a panel shows of a method, if it is known.
type Value = fn(&Outcome) -> Option<f64>;

const PANELS: [(&str, RGBColor, Value); 3] = [
    ("edges cut, %", BLUE, |outcome| Some(100.0 * outcome.statistics.edge_cut)),
    ("nodes asked of other parts, %", ORANGE, |outcome| {
        let asked = outcome.statistics.cross_requests.as_ref()?;
        let sum = |count: fn(&super::Hop) -> u64| asked.hops.iter().map(count).sum::<u64>() as f64;
        Some(100.0 * sum(|hop| hop.requests) / sum(|hop| hop.nodes).max(1.0))
    }),
    ("feature rows of other parts, %", GREEN, |outcome| {
        let asked = outcome.statistics.cross_requests.as_ref()?;
        Some(100.0 * asked.remote_rows as f64 / asked.rows.max(1) as f64)
    }),
];

/// The plot as an SVG document.
///
/// # Errors
/// It cannot be drawn; says why.
pub fn svg(report: &Report) -> Result<String, String> {
    let mut text = String::new();
    let width = MARGINS + METHOD * report.results.len().max(2) as u32;
    {
        let root = SVGBackend::with_string(&mut text, (3 * width, HEIGHT)).into_drawing_area();
        draw(&root, report).map_err(|e| e.to_string())?;
        root.present().map_err(|e| e.to_string())?;
    }
    Ok(text)
}

fn draw(root: &Area, report: &Report) -> Drawn {
    root.fill(&WHITE)?;
    let parts = report.results.first().map_or(0, |outcome| outcome.parts);
    let title = format!("{}, {parts} parts", report.dataset);
    let body = root.titled(&title, ("sans-serif", 17))?;
    for (area, panel) in body.split_evenly((1, PANELS.len())).iter().zip(PANELS) {
        draw_panel(area, report, panel)?;
    }
    Ok(())
}

fn draw_panel(area: &Area, report: &Report, (caption, colour, value): (&str, RGBColor, Value)) -> Drawn {
    let outcomes = &report.results;
    let most = outcomes.iter().filter_map(value).fold(0.0, f64::max);
    let top = if most > 0.0 { (1.18 * most).min(115.0) } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 14))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..outcomes.len().max(1) as f64, 0.0..top)?;
    let decimals = if top < 5.0 { 1 } else { 0 };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 228, 232))
        .y_label_formatter(&|y| format!("{y:.decimals$}"))
        .draw()?;
    let font = ("sans-serif", 13).into_font().color(&BLACK);
    let above = font.clone().pos(Pos::new(HPos::Center, VPos::Bottom));
    let below = font.pos(Pos::new(HPos::Center, VPos::Top));
    for (i, outcome) in outcomes.iter().enumerate() {
        let middle = i as f64 + 0.5;
        let name = Text::new(outcome.method.clone(), (0, 6), below.clone());
        chart.draw_series([EmptyElement::at((middle, 0.0)) + name])?;
        let Some(value) = value(outcome) else { continue };
        let bar = Rectangle::new([(middle - 0.32, 0.0), (middle + 0.32, value)], colour.filled());
        chart.draw_series([bar])?;
        let told = Text::new(format!("{value:.1}"), (0, -3), above.clone());
        chart.draw_series([EmptyElement::at((middle, value)) + told])?;
    }
    Ok(())
}
