//! Counts by type of an epoch.

use graphmill_core::typed::TypedBlock;
use graphmill_distributed::numbers::{of_words, to_words};
use graphmill_loader::typed::TypedExtracted;
use serde::{Deserialize, Serialize};

use crate::{
    Result,
    batchwise::EpochCounts,
    config::Work,
    distributed::Ranks,
    record::{EpochTotals, Traffic},
};

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

/// Work of a block.
pub(super) fn work_of(block: &TypedBlock) -> Work {
    Work::of_block(block.num_dst.iter().sum(), block.num_edges())
}

/// Adds the rows, edges and pairs of a batch, and its nodes, edges and traffic by type.
pub(super) fn add(batch: &TypedExtracted, sums: &mut EpochTotals, counts: &mut TypeCounts) {
    let TypedExtracted { sampled, traffic, .. } = batch;
    let work: Work = sampled.blocks.iter().map(work_of).sum();
    sums.rows += work.rows;
    sums.edges += work.edges;
    sums.pairs += sampled.seeds.links.as_ref().map_or(0, |links| links.source.len() as u64);
    sums.bottom_edges += sampled.blocks.first().map_or(0, |block| block.num_edges()) as u64;
    counts.nodes.resize(sampled.input_nodes.len(), 0);
    counts.nodes.iter_mut().zip(&sampled.input_nodes).for_each(|(sum, nodes)| *sum += nodes.len() as u64);
    counts.traffic.resize(traffic.len(), Traffic::default());
    counts.traffic.iter_mut().zip(traffic).for_each(|(sum, of)| *sum += *of);
    for block in &sampled.blocks {
        counts.edges.resize(block.relations.len(), 0);
        let edges = block.relations.iter().map(|slice| slice.indices.len() as u64);
        counts.edges.iter_mut().zip(edges).for_each(|(sum, edges)| *sum += edges);
    }
}

/// Traffic of a batch over all types.
pub(super) fn total(of_types: &[Traffic]) -> Traffic {
    of_types.iter().fold(Traffic::default(), |mut sum, &of| {
        sum += of;
        sum
    })
}

impl EpochCounts for TypeCounts {
    fn add_up(&mut self, ranks: &Ranks) -> Result<()> {
        // a rank without batches has counted no types
        let own = [self.nodes.len(), self.edges.len(), self.traffic.len()];
        let mut most = own;
        for words in ranks.gather(&own.map(|count| count as u32))? {
            most.iter_mut().zip(words).for_each(|(most, count)| *most = (*most).max(count as usize));
        }
        self.nodes.resize(most[0], 0);
        self.edges.resize(most[1], 0);
        self.traffic.resize(most[2], Traffic::default());
        let mut own = Vec::new();
        self.fields(&mut |count| own.push(*count));
        let mut sums = vec![0u64; own.len()];
        for words in ranks.gather(&to_words(own))? {
            sums.iter_mut().zip(of_words(&words)).for_each(|(sum, count)| *sum += count);
        }
        let mut sums = sums.into_iter();
        self.fields(&mut |count| *count = sums.next().unwrap_or(0));
        Ok(())
    }
}

impl TypeCounts {
    /// Visits every count.
    fn fields(&mut self, see: &mut dyn FnMut(&mut u64)) {
        let Self { nodes, edges, traffic } = self;
        nodes.iter_mut().chain(edges).for_each(&mut *see);
        for Traffic { device, peer, host, disk, remote } in traffic {
            for tier in [device, peer, host, disk, remote] {
                see(&mut tier.rows);
                see(&mut tier.bytes);
            }
        }
    }
}
