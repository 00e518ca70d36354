//! Section on the ranks and their communication.

use std::fmt::Write;

use graphmill_core::units::{bytes, count};
use graphmill_engine::record::{EpochRecord, RankRecord};

use super::{section::section, text::percent};

/// Renders the section: sums over the run; empty for a single rank.
pub(super) fn ranks(epochs: &[EpochRecord]) -> String {
    let mut all: Vec<RankRecord> = Vec::new();
    for record in epochs.iter().flat_map(|epoch| &epoch.ranks) {
        if all.len() <= record.rank {
            all.resize_with(record.rank + 1, RankRecord::default);
        }
        let sum = &mut all[record.rank];
        sum.seeds += record.seeds;
        sum.sampled_edges += record.sampled_edges;
        sum.near_rows += record.near_rows;
        sum.remote_rows += record.remote_rows;
        sum.sample_bytes += record.sample_bytes;
        sum.feature_bytes += record.feature_bytes;
        sum.sum_bytes += record.sum_bytes;
    }
    if all.len() < 2 {
        return String::new();
    }
    let mut body = String::from(
        "<div class=scroll><table><thead><tr><th>rank<th>seeds<th>edges<th>rows read<th>remote<th>sent: \
         neighbours<th>rows<th>sums\
         </tr></thead><tbody>\n",
    );
    for (rank, sum) in all.iter().enumerate() {
        let rows = sum.near_rows + sum.remote_rows;
        let remote = percent(sum.remote_rows as f64 / rows.max(1) as f64);
        let _ = writeln!(
            body,
            "<tr><td>{rank}<td>{}<td>{}<td>{}<td>{remote}<td>{}<td>{}<td>{}</tr>",
            count(sum.seeds),
            count(sum.sampled_edges),
            count(rows),
            bytes(sum.sample_bytes),
            bytes(sum.feature_bytes),
            bytes(sum.sum_bytes),
        );
    }
    body += "</tbody></table></div>\n";
    let note = "Each rank owns a part of the graph. Sent bytes are requests and replies during training, \
        over the whole run.";
    section("Ranks", note, &body)
}
