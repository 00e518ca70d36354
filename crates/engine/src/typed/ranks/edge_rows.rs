//! Feature rows of edges over ranks, at the owners of their destinations.
//!
//! The owner of a node draws the edges into it, numbers them over all ranks, and sends their rows
//! when the block is extracted ([`graphmill_distributed::edges`]). Inference reads own rows alone.
//! A rank that learns links draws from all edges, and reads rows by their positions among these.

use std::sync::Arc;

use graphmill_core::NodeId;
use graphmill_data::{
    partition::{TypedPart, TypedPartitionDir},
    typed::EdgeData,
};
use graphmill_distributed::{
    NodeOwnership,
    edges::{EDGE_ROWS, EdgeOwnership, EdgeRows},
    messenger::service_of_type,
};
use graphmill_loader::{Feature, feature::Host};

use crate::{Result, TrainConfig, distributed::Ranks, tiers::Selected, typed::tables::Tables};

/// Feature rows of each edge type, `None` for a type without features; no types if the model does
/// not read them.
#[derive(Default)]
pub(in crate::typed) struct RankEdges {
    /// Rows of the edges into own nodes, by their positions in this rank's graph.
    pub(in crate::typed) own: Tables,
    /// Rows of all edges, by their numbers over all ranks.
    pub(in crate::typed) all: Tables,
    /// Number of this rank's first edge of each type; 0 for a type without features, whose numbers
    /// are not read.
    pub(super) first: Vec<u32>,
}

impl RankEdges {
    /// Opens the rows of this rank's `parts`, and serves them to the other ranks.
    ///
    /// # Errors
    /// A file is damaged, or an edge type has more edges than 32 bits can number.
    pub(super) fn open(
        config: &TrainConfig,
        (dir, parts): (&TypedPartitionDir, &[TypedPart]),
        (ranks, book): (&Ranks, &NodeOwnership),
    ) -> Result<Self> {
        let mut edges = Self::default();
        for r in 0..dir.schema().num_relations() {
            let counts = counts(dir, book, r);
            let features = dir.edge_features(parts, r, config.verify.at_opening())?;
            let own = features.map(|features| Arc::new(Host::new(&features)) as Arc<dyn Feature>);
            let mut first = 0;
            let all = match &own {
                None => None,
                Some(own) => {
                    let owners = Arc::new(EdgeOwnership::new(&counts, ranks.rank())?);
                    first = owners.first();
                    let (post, service) = (ranks.post().clone(), service_of_type(EDGE_ROWS, r));
                    Some(Arc::new(EdgeRows::serve(post, owners, service, own.clone())) as Arc<dyn Feature>)
                }
            };
            edges.own.push(own);
            edges.all.push(all);
            edges.first.push(first);
        }
        Ok(edges)
    }

    /// Rows of all edges by their positions in `whole`, the edge types with all edges. `owners` are
    /// those of the nodes of each type of `dir`. 4 bytes for each edge of a type with features.
    pub(super) fn by_position(
        &self,
        (dir, owners): (&TypedPartitionDir, &[Arc<NodeOwnership>]),
        whole: &[EdgeData],
    ) -> Tables {
        let table = |(r, rows): (usize, &Option<Arc<dyn Feature>>)| {
            let (rows, owners) = (rows.clone()?, &owners[dir.schema().relations()[r].dst]);
            // number of the next edge of each rank, whose edges are in the order of the whole graph
            let (mut numbers, mut first) = (counts(dir, owners, r), 0);
            numbers.iter_mut().for_each(|count| {
                first += *count;
                *count = first - *count;
            });
            let mut ids = Vec::with_capacity(whole[r].num_edges());
            for (v, ends) in (0..).zip(whole[r].indptr.windows(2)) {
                let number = &mut numbers[owners.owner(v)];
                let end = *number + (ends[1] - ends[0]) as usize;
                ids.extend(*number as NodeId..end as NodeId);
                *number = end;
            }
            Some(Arc::new(Selected::new(rows, ids)) as Arc<dyn Feature>)
        };
        self.all.iter().enumerate().map(table).collect()
    }

    /// Number of this rank's first edge of type `r`, if blocks name their edges.
    pub(super) fn first(&self, r: usize) -> Option<u32> {
        self.first.get(r).copied()
    }
}

/// Numbers of edges of type `r` into the nodes of each rank.
fn counts(dir: &TypedPartitionDir, book: &NodeOwnership, r: usize) -> Vec<usize> {
    let of_rank = |rank| book.parts_of(rank).map(|part| dir.num_edges_into(part as u16, r)).sum();
    (0..book.size()).map(of_rank).collect()
}
