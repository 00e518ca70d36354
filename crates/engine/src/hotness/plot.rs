//! Hit rate against cache ratio: a panel a sampler, a line a policy.

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::Report;

/// Pixels of a panel, of the key beside it, and of a line of the key.
const PANEL: (u32, u32) = (520, 340);
const KEY: u32 = 220;
const LINE: usize = 22;

/// Colours that are told apart by colour-blind readers (Okabe and Ito), and darker ones.
const COLOURS: [RGBColor; 16] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(120, 120, 120),
    RGBColor(90, 60, 160),
    RGBColor(150, 75, 0),
    RGBColor(0, 90, 60),
    RGBColor(170, 20, 60),
    RGBColor(160, 160, 0),
    RGBColor(0, 60, 120),
    RGBColor(240, 130, 120),
    RGBColor(100, 150, 100),
];

/// The plot as an SVG document.
///
/// # Errors
/// It cannot be drawn; says why.
pub fn svg(report: &Report) -> Result<String, String> {
    let mut text = String::new();
    let policies = policies(report);
    let height = PANEL.1.max((50 + LINE * policies.len()) as u32);
    let size = (PANEL.0 * report.samplers.len().max(1) as u32 + KEY, height);
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&root, report, &policies).map_err(|e| e.to_string())?;
        root.present().map_err(|e| e.to_string())?;
    }
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Outcome = Result<(), Box<dyn std::error::Error>>;

/// The policies, each once, in their order.
fn policies(report: &Report) -> Vec<&str> {
    let mut policies: Vec<&str> = Vec::new();
    for row in &report.results {
        if !policies.contains(&row.policy.as_str()) {
            policies.push(&row.policy);
        }
    }
    policies
}

fn draw(root: &Area, report: &Report, policies: &[&str]) -> Outcome {
    root.fill(&WHITE)?;
    let (panels, key) = root.split_horizontally(PANEL.0 * report.samplers.len() as u32);
    for (area, asked) in panels.split_evenly((1, report.samplers.len())).iter().zip(&report.samplers) {
        panel(area, report, &asked.sampler, policies)?;
    }
    let font = ("sans-serif", 14).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
    for (i, policy) in policies.iter().enumerate() {
        let y = (50 + LINE * i) as i32;
        let colour = COLOURS[i % COLOURS.len()];
        key.draw(&PathElement::new([(8, y), (34, y)], colour.stroke_width(2)))?;
        key.draw(&Circle::new((21, y), 3, colour.filled()))?;
        key.draw(&Text::new((*policy).to_string(), (42, y), font.clone()))?;
    }
    Ok(())
}

fn panel(area: &Area, report: &Report, sampler: &str, policies: &[&str]) -> Outcome {
    let ratios = report.results.iter().map(|row| 100.0 * row.ratio).filter(|ratio| *ratio > 0.0);
    let (low, high) = ratios.fold((f64::INFINITY, 0.0f64), |(low, high), r| (low.min(r), high.max(r)));
    let (low, high) = if low < high { (low, high) } else { (0.5 * high.max(0.1), 2.0 * high.max(0.1)) };
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}, {sampler}", report.dataset), ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(38)
        .y_label_area_size(48)
        .build_cartesian_2d((low..high).log_scale(), 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_desc("rows held, %")
        .y_desc("rows served, %")
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 228, 232))
        .x_label_formatter(&|x| format!("{x}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for (i, policy) in policies.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let mut points: Vec<(f64, f64)> = report
            .results
            .iter()
            .filter(|row| row.sampler == sampler && row.policy == *policy && row.ratio > 0.0)
            .map(|row| (100.0 * row.ratio, 100.0 * row.hit_rate))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
    }
    Ok(())
}
