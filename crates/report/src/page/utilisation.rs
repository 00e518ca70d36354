//! Utilization of the workers: a bar for each over the whole run, and a strip with one cell per
//! epoch, above a strip of bottlenecks.

use std::fmt::Write;

use graphmill_chart::{Anchor, Drawing, Scale};
use graphmill_engine::{
    record::{EpochRecord, WorkerRecord},
    timeline::Stage,
};

use super::{
    chart::WHOLE_WIDTH,
    section::section_with_legend,
    text::{escape, percent, seconds},
};

/// Maximum number of cells in all strips, so that the page stays small.
const MAX_CELLS: usize = 1500;

/// Height of a strip, and distance between strips.
const STRIP: f64 = 18.0;
const ROW: f64 = 24.0;

/// Totals of a worker over several epochs.
#[derive(Clone, Debug, Default)]
struct Sum {
    seconds: [f64; Stage::COUNT],
    /// Seconds of the sample stage that marked cached rows, and that copied batches to the queue.
    parts: [f64; 2],
    utilisation: f64,
}

impl Sum {
    /// Totals of the worker of that name; unrecorded time counts as idle. Epochs are weighted by
    /// their seconds.
    fn of(worker: &str, epochs: &[EpochRecord]) -> Self {
        let all: f64 = epochs.iter().map(|e| e.seconds).sum();
        let mut sum = Self::default();
        for (epoch, record) in epochs.iter().filter_map(|e| Some((e, find(e, worker)?))) {
            sum.seconds.iter_mut().zip(record.stages.seconds()).for_each(|(sum, part)| *sum += part);
            sum.parts[0] += record.mark_seconds;
            sum.parts[1] += record.copy_seconds;
            sum.utilisation += record.utilisation * epoch.seconds / all.max(f64::MIN_POSITIVE);
        }
        sum
    }

    /// Stages of the worker: `sample 1.20 s (of this mark 0.10 s), train 3.40 s`.
    fn stages(&self) -> String {
        let parts = ["mark", "copy"].iter().zip(self.parts).filter(|(_, part)| *part > 0.0);
        let parts: Vec<_> = parts.map(|(name, part)| format!("{name} {}", seconds(part))).collect();
        let of_stage = |stage: Stage| match stage {
            Stage::Sample if !parts.is_empty() => format!(" (of this {})", parts.join(", ")),
            _ => String::new(),
        };
        let did = Stage::ALL.into_iter().zip(self.seconds).filter(|(_, part)| *part > 0.0);
        let text =
            |(stage, part): (Stage, f64)| format!("{} {}{}", stage.name(), seconds(part), of_stage(stage));
        did.map(text).collect::<Vec<_>>().join(", ")
    }
}

fn find<'e>(epoch: &'e EpochRecord, worker: &str) -> Option<&'e WorkerRecord> {
    epoch.workers.iter().find(|record| record.worker == worker)
}

/// Bottleneck stages with their numbers of epochs, most frequent first.
fn bottlenecks(epochs: &[EpochRecord]) -> Vec<(Stage, usize)> {
    let count = |stage: Stage| (stage, epochs.iter().filter(|e| e.bottleneck == Some(stage)).count());
    let mut counts: Vec<_> = Stage::ALL.map(count).into_iter().filter(|(_, count)| *count > 0).collect();
    // The sort is stable: ties keep the order of the stages.
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

/// Most frequent bottleneck, and a sentence about all of them.
fn bottleneck(epochs: &[EpochRecord]) -> Option<(Stage, String)> {
    let counts = bottlenecks(epochs);
    let (stage, most) = *counts.first()?;
    let of = epochs.len();
    let rest: Vec<_> = counts[1..].iter().map(|(stage, n)| format!("{} in {n}", stage.name())).collect();
    let text = match (of, rest.is_empty()) {
        (1, _) => stage.name().to_string(),
        (_, true) if most == of => format!("{} in all epochs", stage.name()),
        (_, true) => format!("{} in {most} of {of} epochs", stage.name()),
        (_, false) => format!("{} in {most} of {of} epochs, {}", stage.name(), rest.join(", ")),
    };
    Some((stage, text))
}

/// Renders the section; empty without recorded workers.
pub(super) fn utilisation(epochs: &[EpochRecord]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for record in epochs.iter().flat_map(|e| &e.workers) {
        if !names.contains(&record.worker.as_str()) {
            names.push(&record.worker);
        }
    }
    if names.is_empty() {
        return String::new();
    }
    let sums: Vec<Sum> = names.iter().map(|name| Sum::of(name, epochs)).collect();
    let mut legend = String::from("<ul class=legend>");
    for stage in Stage::ALL {
        if sums.iter().any(|sum| sum.seconds[stage as usize] > 0.0) {
            let _ = write!(legend, "<li><i class={0}></i>{0}</li>", stage.name());
        }
    }
    legend += "<li><i class=idle></i>idle</li></ul>";
    let mut body = String::from("<div class=workers>\n");
    for (name, sum) in names.iter().zip(&sums) {
        body += &bar(name, sum);
    }
    body += "</div>\n";
    let mut note = String::from("Busy seconds of each worker out of the epochs' seconds.");
    if let Some((_, text)) = bottleneck(epochs) {
        let _ = write!(note, " The bottleneck, the stage whose workers are busiest: <b>{text}</b>.");
    }
    if epochs.len() > 1 {
        let (chart, every) = strips(&names, epochs);
        note += " Below, epoch by epoch: the stronger the colour, the busier";
        note += &if every > 1 { format!("; each cell is {every} epochs.") } else { ".".to_string() };
        let _ = write!(body, "<div class=wide>{chart}</div>");
    }
    section_with_legend("Utilisation", &legend, &note, &body)
}

/// Bar of a worker: its stages as shares of the whole run.
fn bar(name: &str, sum: &Sum) -> String {
    let busy: f64 = sum.seconds.iter().sum();
    let mut out = format!("<div><span>{}</span><div class=share title=\"{}\">", escape(name), sum.stages());
    for (stage, part) in Stage::ALL.iter().zip(sum.seconds).filter(|(_, part)| *part > 0.0) {
        let wide = 100.0 * sum.utilisation * part / busy;
        let _ = write!(out, "<div class={} style=\"width:{wide:.2}%\"></div>", stage.name());
    }
    let _ = writeln!(out, "</div><b>{}</b></div>", percent(sum.utilisation));
    out
}

/// Strip per worker and one of the bottlenecks, with one cell per epoch or, in long runs, per
/// several epochs; the second value is their number.
fn strips(names: &[&str], epochs: &[EpochRecord]) -> (String, usize) {
    let every = epochs.len().div_ceil((MAX_CELLS / (names.len() + 1)).clamp(1, 250));
    let runs: Vec<&[EpochRecord]> = epochs.chunks(every).collect();
    let (width, right) = (WHOLE_WIDTH, WHOLE_WIDTH - 8.0);
    let longest =
        names.iter().map(|name| name.chars().count()).chain(["bottleneck".len()]).max().unwrap_or(0);
    let left = 16.0 + 7.0 * longest as f64;
    let height = ROW * (names.len() + 1) as f64 + 26.0;
    let x = Scale::epochs(epochs[0].epoch, epochs[epochs.len() - 1].epoch, 20, (left, right));
    let mut out = Drawing::new("utilisation by worker and epoch", width, height);
    let slot = (right - left) / epochs.len() as f64;
    // Few cells are separated; many overlap slightly, or gaps between them would be visible.
    let gap = if runs.len() <= 60 { 2.0 } else { -0.7 };
    let cell = |run: usize| {
        let from = left + slot * (run * every) as f64;
        (from, slot * runs[run].len() as f64 - gap)
    };
    let epoch_of = |run: &[EpochRecord]| match run {
        [one] => format!("epoch {}", one.epoch),
        _ => format!("epochs {} to {}", run[0].epoch, run[run.len() - 1].epoch),
    };
    let row = |out: &mut Drawing, i: usize, name: &str| {
        let top = ROW * i as f64;
        out.text("tick", (left - 10.0, top + 13.0), Anchor::End, name);
        top
    };
    for (i, name) in names.iter().enumerate() {
        let top = row(&mut out, i, name);
        out.rect("idle", (left, top), (right - left - gap.max(0.0), STRIP));
        out.group("heat", |out| {
            for (c, run) in runs.iter().enumerate() {
                let sum = Sum::of(name, run);
                if sum.utilisation <= 0.0 {
                    continue;
                }
                let (from, wide) = cell(c);
                let (share, did) = (percent(sum.utilisation), sum.stages());
                out.styled_group("", &format!("--u:{:.0}%", 100.0 * sum.utilisation), |out| {
                    out.title(&format!("{}: {name} {share}, {did}", epoch_of(run)));
                    out.rect("", (from, top), (wide, STRIP));
                });
            }
        });
    }
    let top = row(&mut out, names.len(), "bottleneck");
    out.group("stages", |out| {
        for (c, run) in runs.iter().enumerate() {
            let Some((stage, text)) = bottleneck(run) else { continue };
            let (from, wide) = cell(c);
            out.group("", |out| {
                out.title(&format!("{}: {text}", epoch_of(run)));
                out.rect(stage.name(), (from, top), (wide, STRIP));
            });
        }
    });
    out.x_axis(&x, ROW * (names.len() + 1) as f64 - 4.0);
    (out.finish(), every)
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_engine::record::WorkerStages;

    fn epoch(epoch: usize, seconds: f64, workers: &[(&str, f64)], bottleneck: Option<Stage>) -> EpochRecord {
        let record = |&(worker, train): &(&str, f64)| WorkerRecord {
            worker: worker.into(),
            stages: WorkerStages { train, ..WorkerStages::default() },
            utilisation: train / seconds,
            ..WorkerRecord::default()
        };
        let workers = workers.iter().map(record).collect();
        EpochRecord { epoch, seconds, workers, bottleneck, ..EpochRecord::default() }
    }

    #[test]
    fn epochs_are_weighted_by_seconds_and_absence_counts_as_idle() {
        let epochs = [
            epoch(1, 1.0, &[("a", 1.0), ("b", 0.5)], None),
            epoch(2, 3.0, &[("a", 1.5)], Some(Stage::Train)),
        ];
        let (a, b) = (Sum::of("a", &epochs), Sum::of("b", &epochs));
        assert_eq!((a.seconds[2], a.utilisation), (2.5, 0.625));
        assert_eq!((b.seconds[2], b.utilisation), (0.5, 0.125));
        let page = utilisation(&epochs);
        assert!(page.contains("train in 1 of 2 epochs") && page.contains("epoch 2: a 50.0 %, train 1.50 s"));
        assert!(page.contains("62.5 %") && !page.contains("epoch 2: b"), "{page}");
    }

    #[test]
    fn parts_of_the_sample_stage_are_named() {
        let sampler = WorkerRecord {
            worker: "sampler 0".into(),
            stages: WorkerStages { sample: 2.0, ..WorkerStages::default() },
            mark_seconds: 0.5,
            ..WorkerRecord::default()
        };
        let epoch = EpochRecord { epoch: 1, seconds: 4.0, workers: vec![sampler], ..EpochRecord::default() };
        let sum = Sum::of("sampler 0", &[epoch]);
        assert_eq!(sum.stages(), format!("sample {} (of this mark {})", seconds(2.0), seconds(0.5)));
    }

    #[test]
    fn bottlenecks_are_counted() {
        let held = |stages: &[Option<Stage>]| {
            let epochs: Vec<_> = stages.iter().map(|&stage| epoch(1, 1.0, &[], stage)).collect();
            bottleneck(&epochs).map(|(stage, text)| (stage.name(), text))
        };
        let (train, extract) = (Some(Stage::Train), Some(Stage::Extract));
        assert_eq!(held(&[None, None]), None);
        assert_eq!(held(&[train]), Some(("train", "train".into())));
        assert_eq!(held(&[train, train]), Some(("train", "train in all epochs".into())));
        let text = "train in 2 of 4 epochs, extract in 1".to_string();
        assert_eq!(held(&[extract, train, None, train]), Some(("train", text)));
    }

    #[test]
    fn long_runs_and_many_workers_have_few_cells() {
        let names: Vec<String> = (0..30).map(|i| format!("trainer {i}")).collect();
        let workers: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 0.9)).collect();
        let epochs: Vec<_> = (1..=1000).map(|i| epoch(i, 1.0, &workers, Some(Stage::Train))).collect();
        let page = utilisation(&epochs);
        assert!(page.matches("<title>").count() <= MAX_CELLS, "{}", page.matches("<title>").count());
        assert!(page.contains("each cell is 21 epochs") && page.contains("epochs 988 to 1000"));
        assert_eq!(utilisation(&[EpochRecord::default()]), "");
        assert!(!utilisation(&epochs[..1]).contains("<svg"), "one epoch is its bars");
    }
}
