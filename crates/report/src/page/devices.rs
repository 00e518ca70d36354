//! Section on the devices.

use std::fmt::Write;

use graphmill_core::units::{bytes, count};
use graphmill_engine::record::{DeviceRecord, EpochRecord};

use super::{
    section::section,
    text::{escape, percent, seconds},
};

/// Renders the section: sums over the run; empty if no device worked on its own.
pub(super) fn devices(epochs: &[EpochRecord]) -> String {
    let mut all: Vec<DeviceRecord> = Vec::new();
    // Hit rates are weighted by the batches of their epoch.
    let mut hits: Vec<(f64, u64)> = Vec::new();
    for record in epochs.iter().flat_map(|epoch| &epoch.devices) {
        let at = all.iter().position(|sum| sum.device == record.device).unwrap_or_else(|| {
            all.push(DeviceRecord { batches: 0, link_bytes: 0, link_seconds: 0.0, ..record.clone() });
            hits.push((0.0, 0));
            all.len() - 1
        });
        all[at].batches += record.batches;
        all[at].link_bytes += record.link_bytes;
        all[at].link_seconds += record.link_seconds;
        if let Some(rate) = record.hit_rate {
            hits[at].0 += rate * record.batches as f64;
            hits[at].1 += record.batches;
        }
    }
    if all.is_empty() {
        return String::new();
    }
    let mut body = String::from(
        "<div class=scroll><table><thead><tr><th>device<th>role<th>batches<th>rows held<th>hit rate<th>over \
         the link\
         <th>seconds of it</tr></thead><tbody>\n",
    );
    for (record, (sum, batches)) in all.iter().zip(hits) {
        let rate = if batches > 0 { percent(sum / batches as f64) } else { "–".to_string() };
        let _ = writeln!(
            body,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{rate}<td>{}<td>{}</tr>",
            escape(&record.device),
            escape(&record.role),
            count(record.batches),
            count(record.cache_rows as u64),
            bytes(record.link_bytes),
            seconds(record.link_seconds),
        );
    }
    body += "</tbody></table></div>\n";
    section("Devices", "Work of each device over the whole run.", &body)
}
