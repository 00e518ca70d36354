//! Training on subgraphs over ranks (Zeng et al., JPDC 2021, section 8).
//!
//! Each rank draws subgraphs from its assigned parts, with the edges between nodes of these parts,
//! and sends no requests during an epoch. A run that reuses rows also reads the neighbours of a
//! subgraph outside of it, in all parts: their owners send the neighbour lists, and the feature
//! rows of those whose rows are not reused. Every `--shuffle-parts` epochs the parts are
//! reassigned. With more parts than ranks, other parts then meet on a rank, so training also uses
//! edges between parts. A rank fetches the neighbour lists and rows of its assigned parts from
//! their owners.
//!
//! With graph stores, the stores have the assigned parts and draw subgraphs for the ranks that
//! train, which read the rows of all nodes from the stores.

use std::{
    sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard},
    time::Instant,
};

use graphmill_core::{
    Block, Graph, Matrix, NodeId, Result as CoreResult, Split, block::Aggregation, induced::induced_graph,
    keyed,
};
use graphmill_data::Dataset;
use graphmill_distributed::{
    NodeOwnership,
    sampler::{Distributed, LISTS},
};
use graphmill_loader::{
    BatchKey, Feature, HopSampler, MinibatchSampler, Sampled, Seeds, Traffic, Workspace,
    feature::{Capabilities, OutputRows, TierTraffic, widen_sparse},
    sampler::{
        self, BatchRequest, BlockLayout, HopRequest, HopScratch, HopStack, NodeSets, SubgraphTraining,
        Surrounded, full::Full,
    },
};

use super::Ranks;
use crate::{Error, Result, TrainConfig, build};

/// Number of nodes whose neighbours are requested at once.
const CHUNK_LEN: usize = 1 << 14;

/// Assigned parts of a rank, as a source of subgraphs and a table of rows. Both use the last
/// assignment.
pub(crate) struct AssignedParts {
    source: Source,
    /// Rows of nodes outside of the parts behind a cache, if there is one.
    cached: OnceLock<Arc<dyn Feature>>,
    assignment: RwLock<Assignment>,
}

/// Parts of all ranks, from which assignments are made.
struct Source {
    config: TrainConfig,
    ranks: Arc<Ranks>,
    /// All nodes without edges, labels and split.
    data: Dataset,
    lists: Distributed,
    /// Neighbours outside of subgraphs, if batches read them.
    surroundings: Option<Arc<Surroundings>>,
    /// Rows of all nodes, from their owners.
    rows: Arc<dyn Feature>,
}

/// Neighbours in all parts, which the owners of nodes send.
pub(super) struct Surroundings {
    /// Hops over all neighbours.
    pub(super) hops: HopStack,
    /// All nodes, and the edges into own nodes on which the run trains.
    graph: Graph,
}

impl Surroundings {
    /// Serves the neighbours of own nodes to the other ranks, which may request them once all ranks
    /// have called this.
    ///
    /// # Errors
    /// The model has too many layers, or a rank's graph cannot be made.
    pub(super) fn serve(config: &TrainConfig, data: &Dataset, ranks: &Ranks) -> Result<Self> {
        let full = Full::new(config.fanout.len()).map_err(Error::usage)?;
        let built = ranks.building().clone();
        let hops = Distributed::new(Arc::new(full), ranks.post().clone(), ranks.book().clone());
        let hops = hops.map_err(Error::usage)?.with_building(built);
        let graph = match config.own.get::<SubgraphTraining>().inductive {
            true => induced_graph(&data.graph, &data.split.train)?,
            false => data.graph.clone(),
        };
        hops.serve(&graph);
        Ok(Self { hops: HopStack::new(hops), graph })
    }
}

/// Assignment of parts to this rank.
pub(super) struct Assignment {
    /// Number of the assignment, from 0.
    number: u64,
    book: NodeOwnership,
    /// Edges between nodes of these parts.
    graph: Graph,
    subgraphs: Arc<sampler::Subgraphs>,
    /// The subgraphs with their surroundings, if batches read these.
    pub(super) surrounded: Option<Surrounded>,
    /// Feature rows of their nodes; none on a graph store, which does not read them.
    rows: Matrix,
}

impl AssignedParts {
    /// Makes the first assignment of the parts of `data`, whose features are `rows`. All ranks that
    /// hold parts call this at the same time, when the others meet them ([`Ranks::meet`]).
    ///
    /// # Errors
    /// A rank did not take part, or its parts have no training nodes.
    pub(super) fn new(
        config: &TrainConfig,
        data: &Dataset,
        ranks: Arc<Ranks>,
        rows: Arc<dyn Feature>,
        surroundings: Option<Arc<Surroundings>>,
    ) -> Result<Self> {
        let full = Full::new(1).map_err(Error::usage)?;
        let lists = Distributed::by(LISTS, Arc::new(full), ranks.post().clone(), ranks.book().clone());
        let lists = lists.map_err(Error::usage)?;
        lists.serve(&data.graph);
        // no rank requests neighbours before all ranks serve them
        ranks.meet()?;
        let (config, data) = (config.clone(), data.clone());
        let source = Source { config, ranks, data, lists, surroundings, rows };
        let assignment = RwLock::new(source.assign(0)?);
        Ok(Self { source, cached: OnceLock::new(), assignment })
    }

    /// Number of subgraphs of an epoch.
    pub(super) fn subgraphs(&self) -> u64 {
        self.assignment().subgraphs.epoch()
    }

    /// Reads the rows of nodes outside of the assigned parts from `rows`, which hold those of all
    /// nodes, such as a cache in front of their owners. The first call counts.
    pub(super) fn cache_others(&self, rows: Arc<dyn Feature>) {
        let _ = self.cached.set(rows);
    }

    /// Rows of nodes outside of the assigned parts.
    fn others(&self) -> &dyn Feature {
        &**self.cached.get().unwrap_or(&self.source.rows)
    }

    /// Returns true if batches read neighbours outside of subgraphs.
    pub(super) fn reads_surroundings(&self) -> bool {
        self.source.surroundings.is_some()
    }

    /// The current assignment.
    pub(super) fn assignment(&self) -> RwLockReadGuard<'_, Assignment> {
        self.assignment.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the assignment of `epoch` the current one. No thread may sample or read meanwhile.
    ///
    /// # Errors
    /// A rank did not take part, or its parts have no training nodes.
    pub(crate) fn assign_for(&self, epoch: u64) -> Result<()> {
        let every = self.source.config.shuffle_parts as u64;
        let number = epoch.checked_div(every).unwrap_or(0);
        if self.assignment().number == number {
            return Ok(());
        }
        let assignment = self.source.assign(number)?;
        *self.assignment.write().unwrap_or_else(PoisonError::into_inner) = assignment;
        Ok(())
    }

    /// The key of this rank's draws, which other ranks' draws do not share.
    fn own_key(&self, key: BatchKey) -> BatchKey {
        let holder = self.source.ranks.book().number_of_holder() as u64;
        BatchKey { seed: keyed::key(&[key.seed, holder]), ..key }
    }

    /// The request with this rank's draws, over the graph that its sampler reads.
    pub(super) fn own_request<'r>(
        &'r self,
        assignment: &'r Assignment,
        request: &BatchRequest<'r>,
    ) -> BatchRequest<'r> {
        let surroundings = self.source.surroundings.as_ref();
        let graph = surroundings.map_or(&assignment.graph, |surroundings| &surroundings.graph);
        BatchRequest { graph, key: self.own_key(request.key), ..*request }
    }

    /// Draws the subgraph of a key for another rank: with its block, or its nodes alone if that
    /// rank reads their surroundings.
    ///
    /// # Errors
    /// As [`MinibatchSampler::sample`].
    pub(super) fn draw(
        &self,
        key: BatchKey,
        aggregation: Aggregation,
        workspace: &mut Workspace,
        seeds: Seeds,
    ) -> CoreResult<Sampled> {
        let assignment = self.assignment();
        let layout = BlockLayout { aggregation, ..BlockLayout::default() };
        let request = BatchRequest::new(&assignment.graph, self.own_key(key)).with_layout(layout);
        if !self.reads_surroundings() {
            return assignment.subgraphs.sample(&request, workspace, seeds);
        }
        let mut batch = seeds.into_sampled(0);
        let Sampled { seeds, loss_weight, .. } = &mut batch;
        assignment.subgraphs.draw_nodes(&request, workspace, &mut seeds.nodes, loss_weight)?;
        Ok(batch)
    }
}

impl Assignment {
    /// The sampler of its subgraphs, with their surroundings if batches read these.
    pub(super) fn sampler(&self) -> &dyn MinibatchSampler {
        match &self.surrounded {
            Some(surrounded) => surrounded,
            None => &*self.subgraphs,
        }
    }
}

impl Source {
    fn assign(&self, number: u64) -> Result<Assignment> {
        let book = self.ranks.book();
        let book = book.reassigned(&order_of(book.parts().parts().into(), self.config.seed, number))?;
        let own: Vec<NodeId> = book.own().collect();
        let (mut indptr, mut indices) = (vec![0u64; 1], Vec::new());
        let (mut scratch, mut block) = (HopScratch::default(), Block::default());
        let key = BatchKey { seed: 0, epoch: 0, batch: 0 };
        let graph = &self.data.graph;
        for ids in own.chunks(CHUNK_LEN) {
            let request = HopRequest::new(graph, 0, ids, key);
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
        if book.trains() {
            self.rows.gather(&own, &mut rows)?;
        }
        let train: Vec<NodeId> = self.data.split.train.iter().copied().filter(|&v| book.is_own(v)).collect();
        if train.is_empty() {
            return Err(Error::usage(format!(
                "rank {}: its assigned parts have no training nodes; partition into fewer parts, or balance \
                 them (--method bgl)",
                book.rank()
            )));
        }
        let split = Split { train: train.into(), ..self.data.split.clone() };
        let seen = Dataset { graph: graph.clone(), split, ..self.data.clone() };
        let seed = keyed::key(&[self.config.seed, book.number_of_holder() as u64, number]);
        let config = TrainConfig { seed, ..self.config.clone() };
        let subgraphs = Arc::new(build::subgraphs(&config, &seen, own.len())?);
        let surround = |surroundings: &Arc<Surroundings>| {
            Surrounded::with_hops(subgraphs.clone(), Some(graph.clone()), surroundings.hops.clone())
        };
        let surrounded = self.surroundings.as_ref().map(surround);
        Ok(Assignment { number, book, graph, subgraphs, surrounded, rows })
    }
}

/// Order in which assignment `number` distributes `count` parts over the ranks: ascending in the
/// first one, a shuffle in the others.
fn order_of(count: usize, seed: u64, number: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if number > 0 {
        order.sort_by_key(|&part| keyed::key(&[seed, number, part as u64, 0x6465_616c]));
    }
    order
}

impl Feature for AssignedParts {
    fn dim(&self) -> usize {
        self.source.rows.dim()
    }

    fn num_rows(&self) -> usize {
        self.source.rows.num_rows()
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
        if self.assignment().rows.is_sparse() { self.source.rows.row_bytes() } else { 4 * self.dim() as u64 }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

#[cfg(test)]
mod tests {
    use graphmill_data::partition::PartitionBook;

    use super::*;

    #[test]
    fn assignments_are_balanced_and_differ_from_each_other() {
        let parts = PartitionBook::new(12, (0..12).collect::<Vec<u16>>()).unwrap();
        let book = NodeOwnership::new(parts, 0, 4).unwrap();
        let assignments: Vec<Vec<usize>> = (0..5)
            .map(|number| {
                let assigned = book.reassigned(&order_of(12, 7, number)).unwrap();
                (0..12).map(|part| assigned.owner(part)).collect()
            })
            .collect();
        assert_eq!(assignments[0], (0..12).map(|part| part % 4).collect::<Vec<usize>>());
        for (i, assignment) in assignments.iter().enumerate() {
            for rank in 0..4 {
                assert_eq!(assignment.iter().filter(|&&r| r == rank).count(), 3);
            }
            assert!(assignments[..i].iter().all(|other| other != assignment));
        }
    }
}
