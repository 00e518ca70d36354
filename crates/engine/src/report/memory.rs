//! The memory of a run as it went on.

use std::fmt::Write;

use super::{
    chart,
    scale::Scale,
    section,
    text::{bytes, seconds},
};
use crate::record::{EpochRecord, Summary};

/// Points that are drawn at most.
const MOST_POINTS: usize = 500;

/// Epochs are told apart by lines up to so many.
const MOST_MARKS: usize = 40;

/// The memory at some second of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    at: f64,
    bytes: u64,
    epoch: usize,
}

/// All that was recorded, on the clock of training and scoring.
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

/// The section; nothing where less than two moments were recorded.
pub(super) fn memory(summary: &Summary) -> String {
    let all = points(&summary.epochs);
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return String::new() };
    if first.at >= last.at {
        return String::new();
    }
    // of many, the largest of each few: a peak must not get lost
    let every = all.len().div_ceil(MOST_POINTS);
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
    let (width, height) = (1100.0, 220.0);
    let (top, bottom, right) = (12.0, height - 30.0, width - 12.0);
    let y = Scale::rounded(0.0, scaled(highest), 4, (bottom, top));
    let left = chart::left_margin(&y);
    let x = Scale::exact(0.0, last.at / second, 12, (left, right));
    let place = |p: &Point| (x.at(p.at / second), y.at(scaled(p.bytes)));

    let mut out = chart::open("resident memory", width, height);
    chart::y_axis(&mut out, &y, left, right);
    chart::x_axis(&mut out, &x, bottom);
    if summary.epochs.len() <= MOST_MARKS {
        let mut at = 0.0;
        for e in &summary.epochs {
            at += e.seconds + e.eval_seconds;
            let px = x.at(at / second);
            let _ = write!(out, "<line class=grid x1={px:.1} x2={px:.1} y1={top} y2={bottom} />");
        }
    }
    let path: String = points
        .iter()
        .enumerate()
        .map(|(i, p)| {
            let (px, py) = place(p);
            format!("{}{px:.1} {py:.1}", if i == 0 { 'M' } else { 'L' })
        })
        .collect();
    let ends = (place(&points[0]).0, place(&points[points.len() - 1]).0);
    let _ = write!(
        out,
        "<path class=\"area other\" d=\"{path}L{:.1} {bottom}L{:.1} {bottom}Z\" /><path class=\"line other\" d=\"{path}\" />",
        ends.1, ends.0
    );
    if peak > 0 {
        let py = y.at(scaled(peak));
        let _ = write!(
            out,
            "<line class=peak x1={left:.1} x2={right:.1} y1={py:.1} y2={py:.1} /><text class=tick x={right:.1} y={:.1} \
             text-anchor=end>peak {}</text>",
            // over the line where there is room
            if py > top + 14.0 { py - 5.0 } else { py + 15.0 },
            bytes(peak)
        );
    }
    out.push_str("<g class=\"dots many other\">");
    let slot = ((right - left) / points.len() as f64).max(6.0);
    for p in &points {
        let (px, py) = place(p);
        let _ = write!(
            out,
            "<g><title>epoch {}, after {}: {}</title><rect x={:.1} y={top} width={slot:.1} height={:.1} />\
             <line x1={px:.1} x2={px:.1} y1={top} y2={bottom} /><circle cx={px:.1} cy={py:.1} r=3.5 /></g>",
            p.epoch,
            seconds(p.at),
            bytes(p.bytes),
            px - slot / 2.0,
            bottom - top
        );
    }
    out.push_str("</g></svg>");
    let note = format!("{unit} resident, over the {time} of training and scoring. Mapped files count.");
    section("Memory", &note, &format!("<div class=wide>{out}</div>"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::MemorySample;

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
    fn moments_are_on_the_clock_of_the_run() {
        let points: Vec<_> =
            points(&run(2, 2).epochs).iter().map(|p| (p.at, p.bytes >> 20, p.epoch)).collect();
        assert_eq!(points, [(0.0, 1, 1), (0.1, 1, 1), (3.0, 1, 1), (3.0, 1, 2), (3.1, 1, 2), (6.0, 2, 2)]);
    }

    #[test]
    fn there_is_a_timeline_from_two_moments_on_and_it_keeps_the_peak() {
        assert_eq!(memory(&run(0, 0)) + &memory(&run(1, 0)), "");
        let page = memory(&run(1, 1));
        assert!(page.contains("MiB resident, over the seconds") && page.contains("epoch 1, after 3.00 s"));
        let long = memory(&run(2999, 3));
        assert!(long.matches("<title>").count() <= MOST_POINTS && long.contains("over the hours"));
        assert!(long.contains("GiB resident") && long.contains("epoch 2999"), "the largest is the last");
        let peak = memory(&Summary { peak_rss_bytes: 3 << 30, ..run(3, 0) });
        assert!(peak.contains("peak 3.00 GiB"));
    }
}
