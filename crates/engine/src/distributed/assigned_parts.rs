//! Training on subgraphs over ranks (Zeng et al., JPDC 2021, section 8).
//!
//! Each rank draws subgraphs from its assigned parts, with the edges between nodes of these parts,
//! and sends no requests during an epoch. A run that reuses rows also reads the neighbours of a
//! subgraph outside of it, in all parts: their owners send the neighbour lists, and the feature
//! rows of those whose rows are not reused. Every `--shuffle-parts` epochs the parts are
//! reassigned. With more parts than ranks, other parts then meet on a rank, so training also uses
//! edges between parts. A rank fetches the neighbour lists and rows of its assigned parts from
//! their owners.

use std::{
    sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard},
    time::Instant,
};

use graphmill_core::{
    Block, Error as CoreError, Graph, Matrix, NodeId, Result as CoreResult, Split, block::Aggregation,
    induced::induced_graph, keyed,
};
use graphmill_data::{Dataset, partition::PartitionBook};
use graphmill_distributed::{
    NodeOwnership,
    sampler::{Distributed, LISTS},
};
use graphmill_loader::{
    BatchKey, Feature, HopSampler, MinibatchSampler, Sampled, Seeds, Traffic, Upper, Workspace,
    feature::{Capabilities, OutputRows, TierTraffic, widen_sparse},
    sampler::{
        BatchRequest, HopRequest, HopScratch, HopStack, SamplerProperties, SplitSampler, SubgraphTraining,
        Surrounded, full::Full,
    },
};

use super::Ranks;
use crate::{Error, Result, TrainConfig, build, strategy};

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
    /// Neighbours outside of subgraphs, if batches read them.
    surroundings: Option<Surroundings>,
    /// Rows of all nodes, from their owners.
    rows: Arc<dyn Feature>,
    /// The same rows behind a cache, if there is one: those of nodes outside of the parts.
    cached: OnceLock<Arc<dyn Feature>>,
    assignment: RwLock<Assignment>,
    /// Subgraphs per epoch on each rank.
    subgraphs: u64,
    layers: usize,
}

/// Neighbours in all parts, which the owners of nodes send.
struct Surroundings {
    /// Hops over all neighbours.
    hops: HopStack,
    /// All nodes, and the edges into own nodes on which the run trains.
    graph: Graph,
}

impl Surroundings {
    /// Serves the neighbours of own nodes to the other ranks, which may request them once all ranks
    /// have called this.
    ///
    /// # Errors
    /// The model has too many layers, or a rank's graph cannot be made.
    fn serve(config: &TrainConfig, data: &Dataset, ranks: &Ranks) -> Result<Self> {
        let full = Full::new(config.fanout.len()).map_err(Error::usage)?;
        let hops = Distributed::new(Arc::new(full), ranks.post().clone(), ranks.book().clone());
        let hops = hops.map_err(Error::usage)?;
        let graph = match config.own.get::<SubgraphTraining>().inductive {
            true => induced_graph(&data.graph, &data.split.train)?,
            false => data.graph.clone(),
        };
        hops.serve(&graph);
        ranks.set_building(hops.building());
        Ok(Self { hops: HopStack::new(hops), graph })
    }
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
        let surrounds = strategy::draws_in_parts(config);
        let surroundings = surrounds.then(|| Surroundings::serve(config, data, &ranks)).transpose()?;
        // no rank requests neighbours before all ranks serve them
        ranks.meet()?;
        let mut assigned = Self {
            config: config.clone(),
            data: data.clone(),
            parts: ranks.book().parts().clone(),
            every: config.shuffle_parts as u64,
            lists,
            surroundings,
            rows,
            cached: OnceLock::new(),
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

    /// Reads the rows of nodes outside of the assigned parts from `rows`, which hold those of all
    /// nodes, such as a cache in front of their owners. The first call counts.
    pub(super) fn cache_others(&self, rows: Arc<dyn Feature>) {
        let _ = self.cached.set(rows);
    }

    /// Rows of nodes outside of the assigned parts.
    fn others(&self) -> &dyn Feature {
        &**self.cached.get().unwrap_or(&self.rows)
    }

    /// Returns true if batches read neighbours outside of subgraphs.
    pub(super) fn reads_surroundings(&self) -> bool {
        self.surroundings.is_some()
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
        let config = TrainConfig { seed, ..self.config.clone() };
        let sampler: Box<dyn MinibatchSampler> = match &self.surroundings {
            None => build::sampler(&config, &seen)?,
            Some(Surroundings { hops, .. }) => {
                let subgraphs = build::subgraphs(&config, &seen)?;
                Box::new(Surrounded::with_hops(subgraphs, graph.clone(), hops.clone()))
            }
        };
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

    fn sample(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> CoreResult<Sampled> {
        let assignment = self.0.assignment();
        assignment.sampler.sample(&self.own_request(&assignment, request), workspace, seeds)
    }

    fn split(&self) -> Option<&dyn SplitSampler> {
        self.0.surroundings.is_some().then_some(self as &dyn SplitSampler)
    }
}

impl Subgraphs {
    /// The request with this rank's draws, over the graph that its sampler reads.
    fn own_request<'r>(&'r self, assignment: &'r Assignment, request: &BatchRequest<'r>) -> BatchRequest<'r> {
        let seed = keyed::key(&[request.key.seed, self.0.ranks.rank() as u64]);
        let surroundings = self.0.surroundings.as_ref();
        let graph = surroundings.map_or(&assignment.graph, |surroundings| &surroundings.graph);
        BatchRequest { graph, key: BatchKey { seed, ..request.key }, ..*request }
    }
}

impl Assignment {
    /// The sampler, which draws the bottom block separately if it reads surroundings.
    fn split(&self) -> CoreResult<&dyn SplitSampler> {
        self.sampler.split().ok_or_else(|| CoreError::invalid("subgraphs without their surroundings"))
    }
}

impl SplitSampler for Subgraphs {
    fn sample_upper(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        seeds: Seeds,
    ) -> CoreResult<Upper> {
        let assignment = self.0.assignment();
        assignment.split()?.sample_upper(&self.own_request(&assignment, request), workspace, seeds)
    }

    fn sample_bottom(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        upper: Upper,
    ) -> CoreResult<Sampled> {
        let assignment = self.0.assignment();
        assignment.split()?.sample_bottom(&self.own_request(&assignment, request), workspace, upper)
    }
}

impl Feature for AssignedParts {
    fn dim(&self) -> usize {
        self.rows.dim()
    }

    fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> CoreResult<Traffic> {
        let assignment = self.assignment();
        if !assignment.rows.is_sparse() {
            drop(assignment);
            out.resize(ids.len(), self.dim());
            return self.read(ids, out.view_mut().host());
        }
        let (mut from, mut others) = (Vec::with_capacity(ids.len()), Vec::new());
        for &v in ids {
            let is_own = assignment.book.is_own(v);
            from.push((is_own, if is_own { assignment.book.place(v) as usize } else { others.len() }));
            if !is_own {
                others.push(v);
            }
        }
        let (mut fetched, mut traffic) = (Matrix::default(), Traffic::default());
        if !others.is_empty() {
            traffic += self.others().gather(&others, &mut fetched)?;
        }
        let began = Instant::now();
        let (own, far) = (assignment.rows.view(), fetched.view());
        let row = |i: NodeId| {
            let (is_own, at) = from[i as usize];
            if is_own { own.sparse_row(at) } else { far.sparse_row(at) }.unwrap_or_default()
        };
        let all: Vec<NodeId> = (0..ids.len() as NodeId).collect();
        out.gather_sparse_with(self.dim(), &all, row);
        let stored = |rows: &Matrix| rows.view().sparse().map_or(0, |rows| rows.values.len());
        let count = ids.len() - others.len();
        let bytes = 8 * (count + stored(out) - stored(&fetched)) as u64;
        traffic.host += TierTraffic::since(began, count as u64, bytes);
        Ok(traffic)
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> CoreResult<Traffic> {
        let began = Instant::now();
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
        // caches of devices, and batches with their surroundings, also hold rows of other parts
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
            traffic += self.others().read_to(&others, OutputRows::At(&others_at), out)?;
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
