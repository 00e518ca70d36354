//! Section on the node types and edge types of a run's dataset.

use std::fmt::Write;

use graphmill_core::units::{bytes, count};
use graphmill_engine::record::{EpochRecord, Summary, Traffic, TypeCount};

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
    // and those that a sampler adds, of which the dataset has no edges
    let read = epochs.last().map_or(&[][..], |epoch| &epoch.edge_types);
    let added = read.iter().skip(data.edge_types.len());
    let added = added.map(|of| TypeCount { name: of.name.clone(), count: 0 });
    let edge_types: Vec<TypeCount> = data.edge_types.iter().cloned().chain(added).collect();
    rows(&mut body, &edge_types, epochs, |epoch| &epoch.edge_types);
    body += "</tbody></table></div>\n";
    traffic(&mut body, epochs);
    let note = "Nodes whose rows batches read, and sampled edges, per epoch on average. The share is that of \
                all nodes or all edges. Feature rows are listed by the tier that served them, with the share \
                of the type's rows.";
    section("Types", note, &body)
}

/// Renders the mean traffic per epoch of each type and tier, if epochs have recorded it.
fn traffic(body: &mut String, epochs: &[EpochRecord]) {
    let Some(last) = epochs.last().filter(|last| !last.type_traffic.is_empty()) else { return };
    *body += "<div class=scroll><table>\n\
              <thead><tr><th>features of<th>tier<th>rows per epoch<th>bytes per epoch<th>share</tr></thead>\n\
              <tbody>\n";
    let mean = |total: u64| total / epochs.len() as u64;
    for (t, of) in last.type_traffic.iter().enumerate() {
        let mut sum = Traffic::default();
        epochs.iter().filter_map(|epoch| epoch.type_traffic.get(t)).for_each(|of| sum += of.traffic);
        for (tier, read) in sum.tiers().into_iter().filter(|(_, read)| read.rows > 0) {
            let _ = writeln!(
                body,
                "<tr><td>{}<td>{tier}<td>{}<td>{}<td>{}</tr>",
                escape(&of.name),
                count(mean(read.rows)),
                bytes(mean(read.bytes)),
                percent(read.rows as f64 / sum.rows() as f64)
            );
        }
    }
    *body += "</tbody></table></div>\n";
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
