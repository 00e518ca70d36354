//! Section on the reuse of bottom-layer rows and the change of the weights meanwhile.

use std::fmt::Write;

use graphmill_core::units::count;
use graphmill_engine::{
    record::{EpochRecord, ReuseRecord, Summary},
    timeline::Stage,
};

use super::{
    chart::{self, Line, points},
    section::section,
    text::{percent, seconds},
};

/// Renders the section; empty if no rows were reused.
pub(super) fn reuse(summary: &Summary) -> String {
    let epochs = &summary.epochs;
    let all: Vec<ReuseRecord> = epochs.iter().filter_map(|e| e.reuse).collect();
    if all.is_empty() {
        return String::new();
    }
    let mean = |of: fn(&ReuseRecord) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    let sum = |of: fn(&ReuseRecord) -> u64| all.iter().map(of).sum::<u64>();
    let (asked, reused, made) = (sum(|r| r.asked_rows), sum(|r| r.reused_rows), sum(|r| r.made_rows));
    let of_asked = |rows: u64| percent(rows as f64 / asked.max(1) as f64);
    let embed = |e: &EpochRecord| -> f64 {
        e.workers.iter().map(|worker| worker.stages.seconds()[Stage::Embed as usize]).sum()
    };
    let mut rows = vec![
        ("batches of a super-batch", format!("{:.1}", mean(|r| r.super_batch))),
        ("hot nodes of a super-batch", count(mean(|r| r.hot_nodes) as u64)),
        ("rows requested, besides own nodes", count(asked)),
        ("reused", format!("{} · {}", count(reused), of_asked(reused))),
        ("rows computed for reuse", format!("{} · {}", count(made), of_asked(made))),
        ("seconds computing them", seconds(epochs.iter().map(embed).sum())),
    ];
    let waited: f64 = all.iter().map(|r| r.waited_seconds).sum();
    if waited > 0.0 {
        rows.push(("seconds waiting for them", seconds(waited)));
    }
    if all.iter().any(|r| r.split < 1.0) {
        rows.push(("share of hot nodes computed, last epoch", percent(all[all.len() - 1].split)));
    }
    let (bound, max) = (summary.staleness.bound, summary.staleness.max);
    rows.push(("oldest row read, in updates", format!("{max} · bound {bound}")));
    let mut body = String::from("<div class=scroll><table><tbody>\n");
    for (what, value) in rows {
        let _ = writeln!(body, "<tr><td>{what}<td>{value}</tr>");
    }
    body += "</tbody></table></div>\n";
    let note = "Bottom-layer rows of hot nodes, computed once for the batches of a super-batch.";
    let table = section("Reused rows", note, &body);
    let variation = points(epochs, "variation", |e| e.reuse.map(|r| r.variation).filter(|&x| x > 0.0));
    let chart = chart::lines("weight variation", &[Line { class: "other", points: variation }], None);
    if chart.is_empty() {
        return table;
    }
    let note = "The largest change of a bottom-layer weight by an update, times twice the updates of a \
        super-batch, by epoch.";
    format!("<div class=pair>\n{table}{}</div>\n", section("Weight variation", note, &chart))
}
