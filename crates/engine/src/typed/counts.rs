//! Counts by type of an epoch.

use graphmill_distributed::numbers::{of_words, to_words};
use serde::{Deserialize, Serialize};

use crate::{Result, distributed::Ranks, record::Traffic};

/// Counts by type of an epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct TypeCounts {
    /// Input nodes of each node type.
    pub(super) nodes: Vec<u64>,
    /// Sampled edges of each edge type.
    pub(super) edges: Vec<u64>,
    /// Rows and bytes read of each node type.
    #[serde(default)]
    pub(super) traffic: Vec<Traffic>,
}

/// Traffic of a batch over all types.
pub(super) fn total(of_types: &[Traffic]) -> Traffic {
    of_types.iter().fold(Traffic::default(), |mut sum, &of| {
        sum += of;
        sum
    })
}

/// Replaces the counts of this rank by those of all ranks, for these numbers of node types and
/// relations.
///
/// # Errors
/// A rank did not take part.
pub(super) fn add_up(
    ranks: &Ranks,
    counts: &mut TypeCounts,
    (types, relations): (usize, usize),
) -> Result<()> {
    let TypeCounts { nodes, edges, traffic } = counts;
    nodes.resize(types, 0);
    edges.resize(relations, 0);
    traffic.resize(types, Traffic::default());
    let fields = |of: &mut TypeCounts, see: &mut dyn FnMut(&mut u64)| {
        let TypeCounts { nodes, edges, traffic } = of;
        nodes.iter_mut().chain(edges).for_each(&mut *see);
        for Traffic { device, peer, host, disk, remote } in traffic {
            for tier in [device, peer, host, disk, remote] {
                see(&mut tier.rows);
                see(&mut tier.bytes);
            }
        }
    };
    let mut own = Vec::new();
    fields(counts, &mut |count| own.push(*count));
    let mut sums = vec![0u64; own.len()];
    for words in ranks.gather(&to_words(own))? {
        sums.iter_mut().zip(of_words(&words)).for_each(|(sum, count)| *sum += count);
    }
    let mut sums = sums.into_iter();
    fields(counts, &mut |count| *count = sums.next().unwrap_or(0));
    Ok(())
}
