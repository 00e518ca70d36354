//! Section on the memory of a run over time.

use graphmill_chart::{Anchor, Drawing, Scale};
use graphmill_core::units::bytes;
use graphmill_engine::record::{EpochRecord, Summary};

use super::{chart, section::section, text::seconds};

/// Maximum number of points drawn.
const MAX_POINTS: usize = 500;

/// Maximum number of epochs separated by lines.
const MAX_MARKS: usize = 40;

/// Memory at a time of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    at: f64,
    bytes: u64,
    epoch: usize,
}

/// Recorded samples, on the clock of training and scoring.
fn points(epochs: &[EpochRecord]) -> Vec<Point> {
    let mut out = Vec::new();
    let mut began = 0.0;
    for e in epochs {
        let whole = e.seconds + e.eval_seconds;
        let samples = e.memory.iter().map(|sample| (sample.seconds.min(whole), sample.bytes));
        let all = samples.chain(e.memory_bytes.map(|bytes| (whole, bytes)));
        out.extend(all.map(|(at, bytes)| Point { at: began + at, bytes, epoch: e.epoch }));
        began += whole;
    }
    out
}

/// Renders the section; empty for fewer than two samples.
pub(super) fn memory(summary: &Summary) -> String {
    let all = points(&summary.epochs);
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return String::new() };
    if first.at >= last.at {
        return String::new();
    }
    // Of many samples, the largest of each group, so that no peak is lost.
    let every = all.len().div_ceil(MAX_POINTS);
    let points: Vec<Point> =
        all.chunks(every).filter_map(|few| few.iter().max_by_key(|p| p.bytes).copied()).collect();
    let peak = summary.peak_rss_bytes;
    let highest = points.iter().map(|p| p.bytes).chain([peak]).max().unwrap_or(0);
    let (unit, power) =
        [("GiB", 30), ("MiB", 20)].into_iter().find(|(_, power)| highest >> power > 0).unwrap_or(("KiB", 10));
    let scaled = |bytes: u64| bytes as f64 / f64::from(1u32 << power);
    let (time, second) = match last.at {
        x if x >= 7200.0 => ("hours", 3600.0),
        x if x >= 120.0 => ("minutes", 60.0),
        _ => ("seconds", 1.0),
    };
    let (width, height) = (chart::WHOLE_WIDTH, 220.0);
    let (top, bottom, right) = (12.0, height - 30.0, width - 12.0);
    let y = Scale::rounded(0.0, scaled(highest), 4, (bottom, top));
    let left = y.label_width();
    let x = Scale::exact(0.0, last.at / second, 12, (left, right));
    let place = |p: &Point| (x.at(p.at / second), y.at(scaled(p.bytes)));

    let mut out = Drawing::new("resident memory", width, height);
    out.y_axis(&y, left, right);
    out.x_axis(&x, bottom);
    if summary.epochs.len() <= MAX_MARKS {
        let mut at = 0.0;
        for e in &summary.epochs {
            at += e.seconds + e.eval_seconds;
            let px = x.at(at / second);
            out.line("grid", (px, top), (px, bottom));
        }
    }
    let places: Vec<(f64, f64)> = points.iter().map(place).collect();
    out.area("area other", &places, bottom);
    out.path("line other", places.iter().copied());
    if peak > 0 {
        let py = y.at(scaled(peak));
        out.line("peak", (left, py), (right, py));
        // Above the line if it fits there.
        let above = if py > top + 14.0 { py - 5.0 } else { py + 15.0 };
        out.text("tick", (right, above), Anchor::End, format_args!("peak {}", bytes(peak)));
    }
    let title = |p: &Point| format!("epoch {}, after {}: {}", p.epoch, seconds(p.at), bytes(p.bytes));
    let dots = points.iter().map(|p| (place(p), title(p)));
    chart::draw_dots(&mut out, "other", true, dots, (left, right), (top, bottom));
    let out = out.finish();
    let note = format!("{unit} resident, over the {time} of training and scoring. Mapped files count.");
    section("Memory", &note, &format!("<div class=wide>{out}</div>"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_engine::record::MemorySample;

    fn run(epochs: usize, samples: usize) -> Summary {
        let epoch = |epoch| EpochRecord {
            epoch,
            seconds: 2.0,
            eval_seconds: 1.0,
            memory_bytes: Some((epoch as u64) << 20),
            memory: (0..samples).map(|i| MemorySample { seconds: i as f64 * 0.1, bytes: 1 << 20 }).collect(),
            ..EpochRecord::default()
        };
        Summary { epochs: (1..=epochs).map(epoch).collect(), ..Summary::default() }
    }

    #[test]
    fn samples_are_on_the_clock_of_the_run() {
        let points: Vec<_> =
            points(&run(2, 2).epochs).iter().map(|p| (p.at, p.bytes >> 20, p.epoch)).collect();
        assert_eq!(points, [(0.0, 1, 1), (0.1, 1, 1), (3.0, 1, 1), (3.0, 1, 2), (3.1, 1, 2), (6.0, 2, 2)]);
    }

    #[test]
    fn timelines_need_two_samples_and_keep_the_peak() {
        assert_eq!(memory(&run(0, 0)) + &memory(&run(1, 0)), "");
        let page = memory(&run(1, 1));
        assert!(page.contains("MiB resident, over the seconds") && page.contains("epoch 1, after 3.00 s"));
        let long = memory(&run(2999, 3));
        assert!(long.matches("<title>").count() <= MAX_POINTS && long.contains("over the hours"));
        assert!(long.contains("GiB resident") && long.contains("epoch 2999"), "the largest is the last");
        let peak = memory(&Summary { peak_rss_bytes: 3 << 30, ..run(3, 0) });
        assert!(peak.contains("peak 3.00 GiB"));
    }
}
