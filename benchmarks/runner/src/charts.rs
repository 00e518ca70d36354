//! Charts of the book and the README, drawn from records.

use std::fs;

use anyhow::Result;
use graphmill_chart::{Axis, Figure, Key, Mark, Panel, Symbol, Ticks};

use crate::{
    definition::{Chart, ChartKind, load, root},
    record::{CurveRecord, MeasureRecord, PointRecord, Record, SideRecord},
    statistics::{fit, mean, range},
};

/// Directory of the charts, relative to the workspace.
const FIGURES: &str = "book/src/figures";
/// Width of the only panel, of a bar with its margin, and of a stacked bar, in pixels.
const WIDTH: f64 = 620.0;
const BAR: f64 = 64.0;
const STACKED: f64 = 18.0;
/// Colour of the first stacked measure; the points and the line have the ones before.
const PARTS: usize = 2;
/// Colours of the curves: black for the first, grey for the ninth.
const COLOURS: [usize; 9] = [6, 0, 1, 2, 4, 3, 5, 9, 7];
/// Share of early steps, whose curves may be clipped, because the later differences matter.
const EARLY: f64 = 0.2;

/// Draws every chart whose definition has a record, of all definitions or of those that are named.
///
/// # Errors
/// A name is unknown, a record cannot be read, or a chart cannot be written.
pub(crate) fn draw(names: &[String]) -> Result<()> {
    for definition in load(names)? {
        let path = Record::path(&definition.name);
        if definition.chart.is_empty() || !path.exists() {
            continue;
        }
        let record = Record::read(&path)?;
        for chart in &definition.chart {
            let file = root().join(FIGURES).join(format!("{}.svg", chart.file));
            match svg(chart, &record) {
                Some(svg) => fs::write(&file, svg)?,
                None => eprintln!("{}: the record has no values of {}", file.display(), chart.y),
            }
        }
    }
    Ok(())
}

/// Renders a chart as an SVG document, or `None` if it has no values.
fn svg(chart: &Chart, record: &Record) -> Option<String> {
    let fits = |point: &&PointRecord| {
        chart.only.iter().all(|(name, value)| point.parameters.get(name) == Some(value))
    };
    let points: Vec<&PointRecord> = record.points.iter().filter(fits).collect();
    let measure = record.measures.iter().find(|measure| measure.name == chart.y)?;
    let figure = match chart.kind {
        ChartKind::Bars => bars(chart, record, &points, measure),
        ChartKind::Line => line(chart, record, &points, measure),
        ChartKind::Curves => curves(chart, record, &points),
        ChartKind::Speedup => speedup(chart, record),
    }?;
    Some(figure.svg())
}

fn caption(record: &Record) -> String {
    format!("{}. {}", record.command, record.caption())
}

/// Sides of a chart in its order: those with values unless it names them.
fn sides<'r>(chart: &'r Chart, points: &[&'r PointRecord]) -> Vec<&'r str> {
    if !chart.sides.is_empty() {
        return chart.sides.iter().map(String::as_str).collect();
    }
    let mut names: Vec<&str> = Vec::new();
    for side in points.iter().flat_map(|point| &point.sides) {
        if !names.contains(&side.name.as_str()) && side.values.contains_key(&chart.y) {
            names.push(&side.name);
        }
    }
    names
}

fn side<'r>(point: &'r PointRecord, name: &str) -> Option<&'r SideRecord> {
    point.sides.iter().find(|side| side.name == name)
}

/// Label of a measure's axis.
fn label(measure: &MeasureRecord) -> String {
    match measure.unit.as_str() {
        "" => measure.name.clone(),
        unit => format!("{}, {unit}", measure.name),
    }
}

/// One panel for each value of x, with a bar for each side.
fn bars(chart: &Chart, record: &Record, points: &[&PointRecord], measure: &MeasureRecord) -> Option<Figure> {
    let names = sides(chart, points);
    let mut panels = Vec::new();
    for point in points {
        let values = names.iter().enumerate().filter_map(|(series, name)| {
            let values = side(point, name)?.values(&measure.name);
            (!values.is_empty()).then(|| (series, record.statistic.of(&values)))
        });
        let values: Vec<(usize, f64)> = values.collect();
        let high = values.iter().map(|value| value.1).fold(0.0, f64::max);
        let marks = values.iter().map(|&(series, value)| Mark::Bar {
            series,
            x: series as f64 + 1.0,
            width: 0.75 * BAR,
            range: (0.0, value),
            text: digits(value),
        });
        if high == 0.0 {
            continue;
        }
        let ticks = Ticks::Named { at: Vec::new(), log: false };
        panels.push(Panel {
            title: point.parameters.get(&chart.x).cloned().unwrap_or_default(),
            width: 80.0 + BAR * names.len() as f64,
            x: Axis { label: chart.label.clone(), low: 0.5, high: names.len() as f64 + 0.5, ticks },
            y: Axis { label: label(measure), low: 0.0, high, ticks: Ticks::Rounded(4) },
            marks: marks.collect(),
        });
    }
    let key = names.iter().enumerate().map(|(series, name)| Key {
        name: (*name).to_string(),
        series,
        symbol: Symbol::Bar,
    });
    let key = key.collect();
    let subtitle = caption(record);
    (!panels.is_empty()).then(|| Figure { title: chart.title.clone(), subtitle, panels, key })
}

/// Three digits.
fn digits(value: f64) -> String {
    let decimals = if value >= 100.0 { 0 } else { 1 + usize::from(value < 10.0) };
    format!("{value:.decimals$}")
}

/// Formats a number without unnecessary digits.
fn short(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Measured values of the first side with their ranges over x, a line, and stacked parts.
fn line(chart: &Chart, record: &Record, points: &[&PointRecord], measure: &MeasureRecord) -> Option<Figure> {
    let name = *sides(chart, points).first()?;
    let statistic = record.statistic;
    let of = |side: &SideRecord, measure: &str| {
        let values = side.values(measure);
        (!values.is_empty()).then(|| statistic.of(&values))
    };
    let mut measured: Vec<(f64, f64, (f64, f64), &SideRecord)> = Vec::new();
    for point in points {
        let x = point.parameters.get(&chart.x).and_then(|x| x.parse().ok());
        let (Some(x), Some(side)) = (x, side(point, name)) else { continue };
        let values = side.values(&measure.name);
        if !values.is_empty() {
            measured.push((x, statistic.of(&values), range(&values), side));
        }
    }
    measured.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, last) = (measured.first()?.0, measured.last()?.0);
    let (x, y): (Vec<f64>, Vec<f64>) = measured.iter().map(|point| (point.0, point.1)).unzip();
    let mut marks = Vec::new();
    for (at, _, _, side) in &measured {
        let mut from = 0.0;
        for (part, value) in chart.parts.iter().enumerate().filter_map(|(i, part)| Some((i, of(side, part)?)))
        {
            let range = (from, from + value);
            marks.push(Mark::Bar {
                series: PARTS + part,
                x: *at,
                width: STACKED,
                range,
                text: String::new(),
            });
            from = range.1;
        }
    }
    let mut key = vec![Key { name: format!("{name}, min .. max"), series: 0, symbol: Symbol::Dot }];
    let mut high = measured.iter().map(|point| point.2.1).fold(0.0, f64::max);
    if let Some(line) = &chart.line {
        let (name, points): (String, Vec<(f64, f64)>) = if line == "fit" {
            let (slope, start, r2) = fit(&x, &y);
            let name = format!("{slope:.3} x + {start:.2}, R² = {r2:.4}");
            (name, x.iter().map(|x| (*x, start + slope * x)).collect())
        } else {
            let points = measured.iter().filter_map(|point| Some((point.0, of(point.3, line)?)));
            (line.clone(), points.collect())
        };
        high = points.iter().map(|point| point.1).fold(high, f64::max);
        marks.push(Mark::Line { series: 1, points, dots: false, dashed: true });
        key.push(Key { name, series: 1, symbol: Symbol::Dashes });
    }
    marks.extend(measured.iter().map(|(x, y, range, _)| Mark::Dot {
        series: 0,
        at: (*x, *y),
        range: *range,
        title: format!("{}: {y:.3}", short(*x)),
    }));
    let parts = chart.parts.iter().enumerate();
    key.extend(parts.map(|(i, name)| Key { name: name.clone(), series: PARTS + i, symbol: Symbol::Bar }));
    let ticks = Ticks::Named { at: x.iter().map(|&x| (x, short(x))).collect(), log: chart.log };
    let panel = Panel {
        title: String::new(),
        width: WIDTH,
        x: Axis { label: chart.label.clone(), low: first, high: last.max(first * (1.0 + 1e-9)), ticks },
        y: Axis { label: label(measure), low: 0.0, high, ticks: Ticks::Rounded(5) },
        marks,
    };
    Some(Figure { title: chart.title.clone(), subtitle: caption(record), panels: vec![panel], key })
}

/// Mean series of each side by step.
fn curves(chart: &Chart, record: &Record, points: &[&PointRecord]) -> Option<Figure> {
    let names = sides(chart, points);
    let curve = |name: &&str| -> Option<Vec<f64>> {
        let rounds = side(points.first()?, name)?.values.get(&chart.y)?;
        let steps = rounds.iter().map(Vec::len).min()?;
        Some((0..steps).map(|step| mean(&rounds.iter().map(|r| r[step]).collect::<Vec<_>>())).collect())
    };
    let curves: Vec<(&str, Vec<f64>)> = names.iter().filter_map(|name| Some((*name, curve(name)?))).collect();
    let steps = curves.iter().map(|curve| curve.1.len()).max()?.max(2);
    let late = |curve: &[f64]| (curve.len() as f64 * EARLY) as usize;
    let values: Vec<f64> = curves.iter().flat_map(|(_, curve)| curve[late(curve)..].to_vec()).collect();
    let (low, high) = range(&values);
    let margin = (0.05 * (high - low)).max(1e-3 * high.abs());
    let (low, high) = (low - margin, high + margin);
    let colour = |i: usize| COLOURS[i % COLOURS.len()];
    let line = |(i, (_, curve)): (usize, &(&str, Vec<f64>))| {
        let points = curve.iter().enumerate().map(|(step, &value)| (step as f64 + 1.0, value));
        let points = points.skip_while(|point| point.1 < low).collect();
        Mark::Line { series: colour(i), points, dots: false, dashed: false }
    };
    let key = |(i, (name, _)): (usize, &(&str, Vec<f64>))| Key {
        name: (*name).to_string(),
        series: colour(i),
        symbol: Symbol::Line,
    };
    let panel = Panel {
        title: String::new(),
        width: WIDTH,
        x: Axis { label: chart.label.clone(), low: 1.0, high: steps as f64, ticks: Ticks::Within(10) },
        y: Axis { label: chart.y.clone(), low, high, ticks: Ticks::Within(5) },
        marks: curves.iter().enumerate().map(line).collect(),
    };
    let key = curves.iter().enumerate().map(key).collect();
    Some(Figure { title: chart.title.clone(), subtitle: caption(record), panels: vec![panel], key })
}

/// Speed-ups of each case over threads: measured ones with dots, and those of the model, which go
/// beyond the machine.
fn speedup(chart: &Chart, record: &Record) -> Option<Figure> {
    let rows = || record.speedup.iter().flat_map(|curve| &curve.rows);
    let most = rows().map(|row| row.threads).max()?.max(2);
    let high = rows().flat_map(|row| row.speedup.into_iter().chain([row.predicted_speedup]));
    let mut threads: Vec<usize> = rows().map(|row| row.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let lines = |(series, curve): (usize, &CurveRecord)| {
        let at = |threads: usize, speedup: f64| (threads as f64, speedup);
        let measured = curve.rows.iter().filter_map(|row| Some(at(row.threads, row.speedup?))).collect();
        let predicted = curve.rows.iter().map(|row| at(row.threads, row.predicted_speedup)).collect();
        [
            Mark::Line { series, points: measured, dots: true, dashed: false },
            Mark::Line { series, points: predicted, dots: false, dashed: true },
        ]
    };
    let ticks = threads.iter().map(|&threads| (threads as f64, threads.to_string())).collect();
    let panel = Panel {
        title: String::new(),
        width: WIDTH,
        x: Axis {
            label: chart.label.clone(),
            low: 1.0,
            high: most as f64,
            ticks: Ticks::Named { at: ticks, log: true },
        },
        y: Axis {
            label: "speed-up over one thread".into(),
            low: 0.0,
            high: high.fold(1.0, f64::max),
            ticks: Ticks::Rounded(5),
        },
        marks: record.speedup.iter().enumerate().flat_map(lines).collect(),
    };
    let case = |(series, curve): (usize, &CurveRecord)| Key {
        name: curve.case.clone(),
        series,
        symbol: Symbol::DottedLine,
    };
    let mut key: Vec<Key> = record.speedup.iter().enumerate().map(case).collect();
    let model = "model; beyond the machine a simulation".into();
    key.push(Key { name: model, series: COLOURS[0], symbol: Symbol::Dashes });
    Some(Figure { title: chart.title.clone(), subtitle: caption(record), panels: vec![panel], key })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::record;

    fn chart(text: &str) -> Chart {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn bars_have_a_panel_for_each_value_and_a_key_for_each_side() {
        let bars = chart("file = 'f'\ntitle = 'a < b'\nkind = 'bars'\nx = 'model'\ny = 'epoch'");
        let svg = svg(&bars, &record()).unwrap();
        assert_eq!(svg.matches("class=\"bar\"").count(), 4 + 3, "two sides in two panels, and the key");
        assert!(svg.contains("a &lt; b") && svg.contains("gcn") && svg.contains("commit abc"));
        assert!(!svg.contains("NaN") && svg.contains("prefers-color-scheme:dark"));
    }

    #[test]
    fn lines_have_ranges_fits_and_parts() {
        let mut record = record();
        for (point, nodes) in record.points.iter_mut().zip(["1", "2"]) {
            point.parameters.insert("nodes".into(), nodes.into());
        }
        let line = "file = 'f'\ntitle = 't'\nkind = 'line'\nx = 'nodes'\ny = 'epoch'\nline = 'fit'\n\
                    parts = ['epoch']\nsides = ['dgl']";
        let svg = svg(&chart(line), &record).unwrap();
        assert_eq!(svg.matches("<title>").count(), 2);
        assert!(svg.contains("-3.000 x + 7.00, R² = 1.0000"), "{svg}");
    }

    #[test]
    fn early_steps_of_curves_do_not_widen_the_range() {
        let mut record = record();
        let curve = |values: &[f64]| vec![values.to_vec()];
        let sides = &mut record.points[0].sides;
        sides[0].values.insert("curve".into(), curve(&[10.0, 80.0, 81.0, 82.0, 82.0]));
        sides[1].values.insert("curve".into(), curve(&[20.0, 79.0, 81.0, 81.0, 83.0]));
        let text =
            "file = 'f'\ntitle = 't'\nkind = 'curves'\ny = 'curve'\nsides = ['graphmill', 'dgl', 'pyg']";
        let svg = svg(&chart(text), &record).unwrap();
        assert!(svg.contains(">83<") || svg.contains(">82<"), "{svg}");
        assert!(!svg.contains(">20<") && !svg.contains("NaN"));
    }

    #[test]
    fn speed_ups_have_a_measured_line_and_a_model_for_each_case() {
        let mut record = record();
        let text = "file = 'f'\ntitle = 't'\nkind = 'speedup'\nlabel = 'threads'\ny = 'epoch'";
        assert!(svg(&chart(text), &record).is_none());
        record.speedup = crate::speedup::tests::curves();
        let svg = svg(&chart(text), &record).unwrap();
        assert!(svg.contains(">SAGE<") && svg.contains("beyond the machine a simulation"), "{svg}");
        assert!(svg.contains(">64<") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn charts_without_values_are_not_drawn() {
        let none = chart("file = 'f'\ntitle = 't'\nkind = 'bars'\nx = 'model'\ny = 'epoch'\nsides = ['pyg']");
        assert!(svg(&none, &record()).is_none());
    }
}
