//! Section on the node types and edge types of a run's dataset.

use std::fmt::Write;

use graphmill_core::units::count;
use graphmill_engine::record::{EpochRecord, Summary, TypeCount};

use super::{
    section::section,
    text::{escape, percent},
};

/// Renders the section; empty for a dataset of one type.
pub(super) fn types(summary: &Summary) -> String {
    let (data, epochs) = (&summary.dataset, &summary.epochs);
    if data.node_types.is_empty() {
        return String::new();
    }
    let mut body = String::from(
        "<div class=scroll><table>\n\
         <thead><tr><th>type<th>in the dataset<th>per epoch<th>share</tr></thead>\n<tbody>\n",
    );
    rows(&mut body, &data.node_types, epochs, |epoch| &epoch.node_types);
    rows(&mut body, &data.edge_types, epochs, |epoch| &epoch.edge_types);
    body += "</tbody></table></div>\n";
    let note = "Nodes whose rows batches read, and sampled edges, per epoch on average. The share is that of \
                all nodes or all edges.";
    section("Types", note, &body)
}

/// Renders a row for each type, with the mean over epochs of its count.
fn rows(
    body: &mut String,
    types: &[TypeCount],
    epochs: &[EpochRecord],
    of: fn(&EpochRecord) -> &[TypeCount],
) {
    let mean = |t: usize| {
        let all: u64 = epochs.iter().filter_map(|epoch| of(epoch).get(t)).map(|of| of.count).sum();
        all as f64 / epochs.len().max(1) as f64
    };
    let whole: f64 = (0..types.len()).map(mean).sum();
    for (t, of) in types.iter().enumerate() {
        let share = if whole > 0.0 { percent(mean(t) / whole) } else { String::new() };
        let _ = writeln!(
            body,
            "<tr><td>{}<td>{}<td>{}<td>{share}</tr>",
            escape(&of.name),
            count(of.count),
            count(mean(t) as u64)
        );
    }
}
