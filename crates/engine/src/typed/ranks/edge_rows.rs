//! Feature rows of edges over ranks, at the owners of their destinations.
//!
//! The owner of a node draws the edges into it, numbers them over all ranks, and sends their rows
//! when the block is extracted ([`graphmill_distributed::edges`]). Inference reads own rows alone.

use std::sync::Arc;

use graphmill_data::partition::{TypedPart, TypedPartitionDir};
use graphmill_distributed::{
    NodeOwnership,
    edges::{EDGE_ROWS, EdgeOwnership, EdgeRows},
    messenger::service_of_type,
};
use graphmill_loader::{Feature, feature::Host};

use crate::{Result, TrainConfig, distributed::Ranks, typed::tables::Tables};

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
            let of_rank =
                |rank| -> usize { book.parts_of(rank).map(|part| dir.num_edges_into(part as u16, r)).sum() };
            let counts: Vec<usize> = (0..ranks.size()).map(of_rank).collect();
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

    /// Number of this rank's first edge of type `r`, if blocks name their edges.
    pub(super) fn first(&self, r: usize) -> Option<u32> {
        self.first.get(r).copied()
    }
}
