//! Training on subgraphs over ranks: each rank draws them from the parts that it has been assigned,
//! with the edges among those, and asks nobody during the epoch (Zeng et al., JPDC 2021, section
//! 8). Every so many epochs the parts are assigned anew, so that edges between parts are seen too:
//! with more parts than ranks other parts come together. What a rank is assigned it fetches from those
//! that own it.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use graphmill_core::{Block, Graph, Matrix, NodeId, Split, block::Aggregation, keyed};
use graphmill_data::{Dataset, partition::PartitionBook};
use graphmill_distributed::{
    NodeOwnership,
    sampler::{Distributed, LISTS},
};
use graphmill_loader::{
    BatchKey, Feature, HopSampler, MinibatchSampler, Sampled, Seeds, Traffic, Workspace,
    feature::{Capabilities, Places, TierTraffic},
    sampler::{BatchRequest, HopRequest, HopScratch, HopStack, SamplerProperties, full::Full},
};

use super::Ranks;
use crate::{Error, Result, TrainConfig, build};

/// Nodes whose neighbours are asked for at once.
const CHUNK: usize = 1 << 14;

/// The parts that a rank has been assigned, as a sampler of subgraphs and a table of rows: both read
/// what was assigned last.
pub(crate) struct AssignedParts {
    config: TrainConfig,
    ranks: Arc<Ranks>,
    /// All nodes without edges, labels and split.
    data: Dataset,
    parts: PartitionBook,
    /// Epochs between two deals; 0 for one deal only.
    every: u64,
    lists: Distributed,
    rows: Arc<dyn Feature>,
    hand: RwLock<Hand>,
    /// Subgraphs of an epoch on each rank.
    subgraphs: u64,
    layers: usize,
}

/// What was assigned.
struct Hand {
    deal: u64,
    book: NodeOwnership,
    /// The edges among the nodes of these parts.
    graph: Graph,
    sampler: Box<dyn MinibatchSampler>,
    /// A row for each of their nodes.
    rows: Matrix,
}

impl AssignedParts {
    /// Deals the nodes of `data`, whose features are `rows`, for the first time. All ranks do so at
    /// once.
    ///
    /// # Errors
    /// A rank did not do its part, or has been assigned nothing to train on.
    pub(super) fn new(
        config: &TrainConfig,
        data: &Dataset,
        ranks: Arc<Ranks>,
        rows: Arc<dyn Feature>,
    ) -> Result<Arc<Self>> {
        let full = Full::new(1).map_err(Error::usage)?;
        let lists = Distributed::by(LISTS, Arc::new(full), ranks.post().clone(), ranks.book().clone());
        let lists = lists.map_err(Error::usage)?;
        lists.serve(&data.graph);
        ranks.meet()?;
        let mut assigned = Self {
            config: config.clone(),
            data: data.clone(),
            parts: ranks.book().parts().clone(),
            every: config.shuffle_parts as u64,
            lists,
            rows,
            hand: RwLock::new(Hand {
                deal: u64::MAX,
                book: NodeOwnership::new(ranks.book().parts().clone(), ranks.rank(), ranks.size())?,
                graph: Graph::default(),
                sampler: Box::new(HopStack::new(Full::new(1).map_err(Error::usage)?)),
                rows: Matrix::default(),
            }),
            subgraphs: 0,
            layers: 0,
            ranks,
        };
        assigned.assign_for(0)?;
        let hand = assigned.hand();
        let (own, layers) = {
            let facts = hand.sampler.properties();
            (facts.subgraphs.unwrap_or(1), facts.num_layers)
        };
        drop(hand);
        let told = assigned.ranks.gather(&[own as u32])?;
        let most = told.iter().filter_map(|words| words.first()).max();
        assigned.subgraphs = most.map_or(1, |&most| u64::from(most));
        assigned.layers = layers;
        Ok(Arc::new(assigned))
    }

    fn hand(&self) -> RwLockReadGuard<'_, Hand> {
        self.hand.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that what is assigned is what `epoch` is to have. Nobody samples or reads meanwhile.
    ///
    /// # Errors
    /// A rank did not do its part, or there is nothing to train on in these parts.
    pub(crate) fn assign_for(&self, epoch: u64) -> Result<()> {
        let deal = epoch.checked_div(self.every).unwrap_or(0);
        if self.hand().deal == deal {
            return Ok(());
        }
        let hand = self.deal(deal)?;
        *self.hand.write().unwrap_or_else(PoisonError::into_inner) = hand;
        Ok(())
    }

    fn deal(&self, deal: u64) -> Result<Hand> {
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        let book = NodeOwnership::with_ranks(
            self.parts.clone(),
            ranks_of(&self.parts, size, self.config.seed, deal),
            rank,
            size,
        )?;
        let own: Vec<NodeId> = book.own().collect();
        let (mut indptr, mut indices) = (vec![0u64; 1], Vec::new());
        let (mut scratch, mut block) = (HopScratch::default(), Block::default());
        let key = BatchKey { seed: 0, epoch: 0, batch: 0 };
        let graph = &self.data.graph;
        for ids in own.chunks(CHUNK) {
            let request = HopRequest { graph, hop: 0, dst: ids, key, aggregation: Aggregation::Other };
            self.lists.sample_hop(&request, &mut scratch, &mut block)?;
            for (&v, ends) in ids.iter().zip(block.indptr.windows(2)) {
                // nodes that are not in these parts have no edges
                indptr.resize(v as usize + 1, indices.len() as u64);
                let neighbors = &block.indices[ends[0] as usize..ends[1] as usize];
                indices.extend(neighbors.iter().filter(|&&u| book.is_own(u)));
                indptr.push(indices.len() as u64);
            }
        }
        indptr.resize(self.data.num_nodes() + 1, indices.len() as u64);
        let graph = Graph::new(indptr.into(), indices.into())?;
        let mut rows = Matrix::default();
        self.rows.gather(&own, &mut rows)?;
        let train: Vec<NodeId> = self.data.split.train.iter().copied().filter(|&v| book.is_own(v)).collect();
        if train.is_empty() {
            return Err(Error::usage(format!(
                "rank {rank} has been assigned parts without training nodes: partition into fewer parts, or balance them (--method bgl)"
            )));
        }
        let split = Split { train: train.into(), ..self.data.split.clone() };
        let seen = Dataset { graph: graph.clone(), split, ..self.data.clone() };
        let seed = keyed::key(&[self.config.seed, rank as u64, deal]);
        let sampler = build::sampler(&TrainConfig { seed, ..self.config.clone() }, &seen)?;
        Ok(Hand { deal, book, graph, sampler, rows })
    }
}

/// The rank of each part in the `deal`-th deal: the first as they are owned, the others shuffled.
fn ranks_of(parts: &PartitionBook, size: usize, seed: u64, deal: u64) -> Vec<u16> {
    let many = usize::from(parts.parts());
    let mut order: Vec<usize> = (0..many).collect();
    if deal > 0 {
        order.sort_by_key(|&part| keyed::key(&[seed, deal, part as u64, 0x6465_616c]));
    }
    let mut ranks = vec![0; many];
    order.iter().enumerate().for_each(|(i, &part)| ranks[part] = (i % size) as u16);
    ranks
}

/// The sampler of [`AssignedParts`].
pub(crate) struct Subgraphs(pub(crate) Arc<AssignedParts>);

impl MinibatchSampler for Subgraphs {
    fn properties(&self) -> SamplerProperties {
        SamplerProperties {
            num_layers: self.0.layers,
            is_random: true,
            reads_edge_weights: false,
            subgraphs: Some(self.0.subgraphs),
        }
    }

    fn sample(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        seeds: Seeds,
    ) -> graphmill_core::Result<Sampled> {
        let hand = self.0.hand();
        let seed = keyed::key(&[request.key.seed, self.0.ranks.rank() as u64]);
        let key = BatchKey { seed, ..request.key };
        hand.sampler.sample(&BatchRequest { graph: &hand.graph, key, ..*request }, workspace, seeds)
    }
}

impl Feature for AssignedParts {
    fn dim(&self) -> usize {
        self.rows.dim()
    }

    fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: Places, out: &mut [f32]) -> graphmill_core::Result<Traffic> {
        let began = std::time::Instant::now();
        let hand = self.hand();
        let (dim, rows) = (self.dim(), hand.rows.view());
        let rows = rows.host();
        for (i, &v) in ids.iter().enumerate() {
            let to = match places {
                Places::InOrder => i,
                Places::At(at) => at[i] as usize,
            };
            let from = hand.book.place(v) as usize;
            out[to * dim..][..dim].copy_from_slice(&rows[from * dim..][..dim]);
        }
        let count = ids.len() as u64;
        Ok(Traffic { host: TierTraffic::since(began, count, count * self.row_bytes()), ..Traffic::default() })
    }

    fn row_bytes(&self) -> u64 {
        4 * self.dim() as u64
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deal_gives_each_rank_as_many_parts_and_others_than_the_one_before() {
        let parts = PartitionBook::new(12, (0..12).collect::<Vec<u16>>()).unwrap();
        let deals: Vec<Vec<u16>> = (0..5).map(|deal| ranks_of(&parts, 4, 7, deal)).collect();
        assert_eq!(deals[0], (0..12).map(|part| part % 4).collect::<Vec<u16>>());
        for (i, deal) in deals.iter().enumerate() {
            for rank in 0..4 {
                assert_eq!(deal.iter().filter(|&&r| r == rank).count(), 3);
            }
            assert!(deals[..i].iter().all(|other| other != deal));
        }
    }
}
