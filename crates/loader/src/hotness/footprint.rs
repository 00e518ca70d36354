//! In how many minibatches each node comes up.

use graphmill_core::{NodeId, Result, node_order::by_scores};

use super::Visits;

/// Minibatches that ask for each node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Of each node (`V`).
    pub counts: Vec<u32>,
}

impl Footprint {
    /// Of some epochs. As much work as sampling them.
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

    /// Adds another one, of as many nodes.
    fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
    }

    /// Rows that were asked for.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// Rows served by a cache that holds the first `k` nodes of `ranking`, for each `k` from 0 to
    /// `V`.
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

/// How alike two epochs are in what they ask for most (FGNN, Table 2): of the rows that the second
/// asks for among its hottest tenth of the nodes, the part that the first asks for as often, among
/// its own hottest tenth. From 0 to 1.
///
/// # Errors
/// The memory cannot be had.
pub fn similarity(first: &Footprint, second: &Footprint) -> Result<f64> {
    let hottest = |of: &Footprint| -> Result<_> {
        let scores: Vec<f64> = of.counts.iter().map(|&count| f64::from(count)).collect();
        let mut nodes = by_scores(&scores)?;
        nodes.truncate(of.counts.len().div_ceil(10));
        let mut among = vec![false; of.counts.len()];
        nodes.iter().for_each(|&v| among[v as usize] = true);
        Ok((nodes, among))
    };
    let (_, among_first) = hottest(first)?;
    let (nodes, _) = hottest(second)?;
    let asked: u64 = nodes.iter().map(|&v| u64::from(second.counts[v as usize])).sum();
    let shared = nodes.iter().filter(|&&v| among_first[v as usize]);
    let shared: u64 =
        shared.map(|&v| u64::from(first.counts[v as usize].min(second.counts[v as usize]))).sum();
    Ok(if asked == 0 { 1.0 } else { shared as f64 / asked as f64 })
}
