//! Training on subgraphs over ranks (Zeng et al., JPDC 2021, section 8).
//!
//! Each rank draws subgraphs from its assigned parts, with the edges between nodes of these parts,
//! and sends no requests during an epoch. Every `--shuffle-parts` epochs the parts are reassigned.
//! With more parts than ranks, other parts then meet on a rank, so training also uses edges between
//! parts. A rank fetches the neighbour lists and rows of its assigned parts from their owners.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use graphmill_core::{Block, Graph, Matrix, NodeId, Split, block::Aggregation, keyed};
use graphmill_data::{Dataset, partition::PartitionBook};
use graphmill_distributed::{
    NodeOwnership,
    sampler::{Distributed, LISTS},
};
use graphmill_loader::{
    BatchKey, Feature, HopSampler, MinibatchSampler, Sampled, Seeds, Traffic, Workspace,
    feature::{Capabilities, OutputRows, TierTraffic, widen_sparse},
    sampler::{BatchRequest, HopRequest, HopScratch, HopStack, SamplerProperties, full::Full},
};

use super::Ranks;
use crate::{Error, Result, TrainConfig, build};

/// Number of nodes whose neighbours are requested at once.
const CHUNK_LEN: usize = 1 << 14;

/// Assigned parts of a rank, as a source of subgraphs and a table of rows. Both use the last
/// assignment.
pub(crate) struct AssignedParts {
    config: TrainConfig,
    ranks: Arc<Ranks>,
    /// All nodes without edges, labels and split.
    data: Dataset,
    parts: PartitionBook,
    /// Epochs between two assignments; 0 for a single assignment.
    every: u64,
    lists: Distributed,
    rows: Arc<dyn Feature>,
    assignment: RwLock<Assignment>,
    /// Subgraphs per epoch on each rank.
    subgraphs: u64,
    layers: usize,
}

/// Assignment of parts to this rank.
struct Assignment {
    /// Number of the assignment, from 0.
    number: u64,
    book: NodeOwnership,
    /// Edges between nodes of these parts.
    graph: Graph,
    sampler: Box<dyn MinibatchSampler>,
    /// Feature rows of their nodes.
    rows: Matrix,
}

impl AssignedParts {
    /// Makes the first assignment of the parts of `data`, whose features are `rows`. All ranks call
    /// this at the same time.
    ///
    /// # Errors
    /// A rank did not take part, or its parts have no training nodes.
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
            assignment: RwLock::new(Assignment {
                number: u64::MAX,
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
        let assignment = assigned.assignment();
        let (own, layers) = {
            let properties = assignment.sampler.properties();
            (properties.subgraphs.unwrap_or(1), properties.num_layers)
        };
        drop(assignment);
        let gathered = assigned.ranks.gather(&[own as u32])?;
        let max = gathered.iter().filter_map(|words| words.first()).max();
        assigned.subgraphs = max.map_or(1, |&max| u64::from(max));
        assigned.layers = layers;
        Ok(Arc::new(assigned))
    }

    fn assignment(&self) -> RwLockReadGuard<'_, Assignment> {
        self.assignment.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the assignment of `epoch` the current one. No thread may sample or read meanwhile.
    ///
    /// # Errors
    /// A rank did not take part, or its parts have no training nodes.
    pub(crate) fn assign_for(&self, epoch: u64) -> Result<()> {
        let number = epoch.checked_div(self.every).unwrap_or(0);
        if self.assignment().number == number {
            return Ok(());
        }
        let assignment = self.assign(number)?;
        *self.assignment.write().unwrap_or_else(PoisonError::into_inner) = assignment;
        Ok(())
    }

    fn assign(&self, number: u64) -> Result<Assignment> {
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        let book = NodeOwnership::with_ranks(
            self.parts.clone(),
            ranks_of(&self.parts, size, self.config.seed, number),
            rank,
            size,
        )?;
        let own: Vec<NodeId> = book.own().collect();
        let (mut indptr, mut indices) = (vec![0u64; 1], Vec::new());
        let (mut scratch, mut block) = (HopScratch::default(), Block::default());
        let key = BatchKey { seed: 0, epoch: 0, batch: 0 };
        let graph = &self.data.graph;
        for ids in own.chunks(CHUNK_LEN) {
            let request = HopRequest { graph, hop: 0, dst: ids, key, aggregation: Aggregation::Other };
            self.lists.sample_hop(&request, &mut scratch, &mut block)?;
            for (&v, ends) in ids.iter().zip(block.indptr.windows(2)) {
                // nodes outside these parts have no edges
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
                "rank {rank}: its assigned parts have no training nodes; partition into fewer parts, or \
                 balance them (--method bgl)"
            )));
        }
        let split = Split { train: train.into(), ..self.data.split.clone() };
        let seen = Dataset { graph: graph.clone(), split, ..self.data.clone() };
        let seed = keyed::key(&[self.config.seed, rank as u64, number]);
        let sampler = build::sampler(&TrainConfig { seed, ..self.config.clone() }, &seen)?;
        Ok(Assignment { number, book, graph, sampler, rows })
    }
}

/// Rank of each part in assignment `number`: owners in the first one, a shuffle in the others.
fn ranks_of(parts: &PartitionBook, size: usize, seed: u64, number: u64) -> Vec<u16> {
    let count = usize::from(parts.parts());
    let mut order: Vec<usize> = (0..count).collect();
    if number > 0 {
        order.sort_by_key(|&part| keyed::key(&[seed, number, part as u64, 0x6465_616c]));
    }
    let mut ranks = vec![0; count];
    order.iter().enumerate().for_each(|(i, &part)| ranks[part] = (i % size) as u16);
    ranks
}

/// Sampler of [`AssignedParts`].
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
        let assignment = self.0.assignment();
        let seed = keyed::key(&[request.key.seed, self.0.ranks.rank() as u64]);
        let key = BatchKey { seed, ..request.key };
        assignment.sampler.sample(
            &BatchRequest { graph: &assignment.graph, key, ..*request },
            workspace,
            seeds,
        )
    }
}

impl Feature for AssignedParts {
    fn dim(&self) -> usize {
        self.rows.dim()
    }

    fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> graphmill_core::Result<Traffic> {
        let assignment = self.assignment();
        if !assignment.rows.is_sparse() {
            out.resize(ids.len(), self.dim());
            return self.read(ids, out.view_mut().host());
        }
        let began = std::time::Instant::now();
        let places: Vec<u32> = ids.iter().map(|&v| assignment.book.place(v)).collect();
        out.gather_sparse(assignment.rows.view(), &places);
        let stored = out.view().sparse().map_or(0, |rows| rows.values.len());
        let bytes = 8 * (ids.len() + stored) as u64;
        Ok(Traffic { host: TierTraffic::since(began, ids.len() as u64, bytes), ..Traffic::default() })
    }

    fn read_to(
        &self,
        ids: &[NodeId],
        places: OutputRows,
        out: &mut [f32],
    ) -> graphmill_core::Result<Traffic> {
        let began = std::time::Instant::now();
        let assignment = self.assignment();
        if assignment.rows.is_sparse() {
            drop(assignment);
            let mut rows = Matrix::default();
            let traffic = self.gather(ids, &mut rows)?;
            widen_sparse(rows.view(), places, out);
            return Ok(traffic);
        }
        let (dim, rows) = (self.dim(), assignment.rows.view());
        let rows = rows.host();
        // caches of devices also hold rows of other parts
        let (mut others, mut others_at) = (Vec::new(), Vec::new());
        for (i, &v) in ids.iter().enumerate() {
            let to = match places {
                OutputRows::InOrder => i,
                OutputRows::At(at) => at[i] as usize,
            };
            if !assignment.book.is_own(v) {
                others.push(v);
                others_at.push(to as u32);
                continue;
            }
            let from = assignment.book.place(v) as usize;
            out[to * dim..][..dim].copy_from_slice(&rows[from * dim..][..dim]);
        }
        let count = (ids.len() - others.len()) as u64;
        let host = TierTraffic::since(began, count, count * self.row_bytes());
        let mut traffic = Traffic { host, ..Traffic::default() };
        if !others.is_empty() {
            traffic += self.rows.read_to(&others, OutputRows::At(&others_at), out)?;
        }
        Ok(traffic)
    }

    fn row_bytes(&self) -> u64 {
        if self.assignment().rows.is_sparse() { self.rows.row_bytes() } else { 4 * self.dim() as u64 }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_are_balanced_and_differ_from_each_other() {
        let parts = PartitionBook::new(12, (0..12).collect::<Vec<u16>>()).unwrap();
        let assignments: Vec<Vec<u16>> = (0..5).map(|number| ranks_of(&parts, 4, 7, number)).collect();
        assert_eq!(assignments[0], (0..12).map(|part| part % 4).collect::<Vec<u16>>());
        for (i, assignment) in assignments.iter().enumerate() {
            for rank in 0..4 {
                assert_eq!(assignment.iter().filter(|&&r| r == rank).count(), 3);
            }
            assert!(assignments[..i].iter().all(|other| other != assignment));
        }
    }
}
