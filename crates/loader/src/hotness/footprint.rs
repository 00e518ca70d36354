//! Number of minibatches that read each node.

use graphmill_core::{NodeId, Result, node_order::by_scores};

use super::Visits;

/// Number of minibatches that read each node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Count of each node (`V`).
    pub counts: Vec<u32>,
}

impl Footprint {
    /// Counts some epochs. As expensive as sampling them.
    ///
    /// # Errors
    /// A batch cannot be drawn.
    pub fn of(num_nodes: usize, visits: &dyn Visits, epochs: impl IntoIterator<Item = u64>) -> Result<Self> {
        let mut sum = Self { counts: vec![0; num_nodes] };
        for epoch in epochs {
            sum.add(&visits.footprint(epoch, num_nodes)?);
        }
        Ok(sum)
    }

    /// Adds the counts of another footprint of the same graph.
    fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
    }

    /// Number of rows read.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// Number of reads served by a cache of the first `k` nodes of `ranking`, for each `k` from 0
    /// to `V`.
    pub fn hits(&self, ranking: &[NodeId]) -> Vec<u64> {
        let mut sum = 0;
        let mut hits = vec![0];
        hits.extend(ranking.iter().map(|&v| {
            sum += u64::from(self.counts[v as usize]);
            sum
        }));
        hits
    }
}

/// Similarity of the hottest nodes of two epochs, from 0 to 1 (FGNN, Table 2).
///
/// Of the reads of the second epoch's hottest tenth of the nodes, the share that the first epoch
/// makes too, among its own hottest tenth.
///
/// # Errors
/// The memory cannot be allocated.
pub fn similarity(first: &Footprint, second: &Footprint) -> Result<f64> {
    let hottest = |footprint: &Footprint| -> Result<_> {
        let scores: Vec<f64> = footprint.counts.iter().map(|&count| f64::from(count)).collect();
        let mut nodes = by_scores(&scores)?;
        nodes.truncate(footprint.counts.len().div_ceil(10));
        let mut is_hot = vec![false; footprint.counts.len()];
        nodes.iter().for_each(|&v| is_hot[v as usize] = true);
        Ok((nodes, is_hot))
    };
    let (_, hot_in_first) = hottest(first)?;
    let (nodes, _) = hottest(second)?;
    let reads: u64 = nodes.iter().map(|&v| u64::from(second.counts[v as usize])).sum();
    let shared = nodes.iter().filter(|&&v| hot_in_first[v as usize]);
    let shared: u64 =
        shared.map(|&v| u64::from(first.counts[v as usize].min(second.counts[v as usize]))).sum();
    Ok(if reads == 0 { 1.0 } else { shared as f64 / reads as f64 })
}
