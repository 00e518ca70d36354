//! Feature rows of the edges of a relation, which are at the owners of their destinations.
//!
//! ```text
//!   block ─► positions of its edges, numbered over all ranks ─┬─ own ──────────► rows here ─┐
//!                                                             └─ remote ─► owner ~~► rows ──┴─► in block order
//! ```
//!
//! The edges of a relation are numbered over all ranks: those of rank 0 in the order of its graph,
//! then those of rank 1, and so on. Samplers name the edges of a block by these numbers.

#![forbid(unsafe_code)]

use std::sync::Arc;

use graphmill_core::{Error, NodeId, Result, memory};
use graphmill_loader::{
    Feature, Traffic,
    feature::{Capabilities, OutputRows, no_work},
};

use crate::{
    Messenger,
    messenger::Service,
    ownership::{Share, group},
    row_requests::{place, read_shares},
    row_words::append_rows,
    rows::ROWS,
    transport::Lane,
};

/// Number of the service of feature rows of edges.
pub const EDGE_ROWS: u32 = ROWS + 8;

/// Owners of the edges of a relation.
#[derive(Clone, Debug)]
pub struct EdgeOwnership {
    /// Number of the first edge of each rank, and that of all edges.
    starts: Vec<NodeId>,
    rank: usize,
}

impl EdgeOwnership {
    /// Creates the map of rank `rank`, from the numbers of edges of all ranks.
    ///
    /// # Errors
    /// 32 bits cannot number the edges.
    pub fn new(counts: &[usize], rank: usize) -> Result<Self> {
        let all: usize = counts.iter().sum();
        if all > NodeId::MAX as usize {
            return Err(Error::invalid(format!(
                "features of {all} edges: at most {} can be numbered; use a model without edge features",
                NodeId::MAX
            )));
        }
        let mut starts = vec![0];
        starts.extend(counts.iter().scan(0, |end, &count| {
            *end += count as NodeId;
            Some(*end)
        }));
        Ok(Self { starts, rank })
    }

    /// Number of the first edge of this rank.
    pub fn first(&self) -> NodeId {
        self.starts[self.rank]
    }

    /// Number of the edges of all ranks.
    pub fn num_edges(&self) -> usize {
        self.starts[self.starts.len() - 1] as usize
    }

    /// Groups edges by owner, with their positions in `ids`.
    fn by_owner(&self, ids: &[NodeId]) -> Vec<Share> {
        let owner = |edge| self.starts.partition_point(|&start| start <= edge) - 1;
        group(ids, self.starts.len() - 1, owner)
    }

    /// Positions of own edges in the graph of this rank.
    ///
    /// # Errors
    /// An edge belongs to another rank.
    fn places(&self, ids: &[NodeId]) -> Result<Vec<u32>> {
        let own = self.first()..self.starts[self.rank + 1];
        match ids.iter().find(|edge| !own.contains(edge)) {
            Some(edge) => Err(Error::invalid(format!(
                "edge {edge} is not on this rank: the ranks have opened different partitions"
            ))),
            None => Ok(memory::demand_collect(ids.iter().map(|edge| edge - own.start))),
        }
    }
}

/// Rows of all edges of a relation: own ones from a table by their positions in the graph of this
/// rank, the others from their owners.
pub struct EdgeRows {
    post: Arc<Messenger>,
    owners: Arc<EdgeOwnership>,
    own: Arc<dyn Feature>,
    service: u32,
}

impl EdgeRows {
    /// Creates the rows of all edges, of which `own` has those of this rank, and serves these to
    /// the other ranks by the service of that number.
    pub fn serve(
        post: Arc<Messenger>,
        owners: Arc<EdgeOwnership>,
        service: u32,
        own: Arc<dyn Feature>,
    ) -> Self {
        post.serve(service, Arc::new(EdgeRowService { owners: owners.clone(), own: own.clone() }));
        Self { post, owners, own, service }
    }
}

impl Feature for EdgeRows {
    fn dim(&self) -> usize {
        self.own.dim()
    }

    fn num_rows(&self) -> usize {
        self.owners.num_edges()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        if let Some(edge) = ids.iter().find(|&&edge| edge as usize >= self.num_rows()) {
            return Err(Error::invalid(format!("edge {edge} of {}", self.num_rows())));
        }
        let shares = self.owners.by_owner(ids);
        let own = &shares[self.owners.rank];
        let mut near = |out: &mut [f32]| {
            if own.ids.is_empty() {
                return no_work(out);
            }
            let to: Vec<u32> = memory::demand_collect(own.at.iter().map(|&i| place(places, i)));
            self.own.read_to(&self.owners.places(&own.ids)?, OutputRows::At(&to), out)
        };
        read_shares((&self.post, self.service), self.dim(), (&shares, places), out, &mut near)
    }

    fn row_bytes(&self) -> u64 {
        self.own.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

/// Service that replies with the rows of own edges.
struct EdgeRowService {
    owners: Arc<EdgeOwnership>,
    own: Arc<dyn Feature>,
}

impl Service for EdgeRowService {
    fn answer(&self, _: usize, ids: &[u32], answer: &mut Vec<u32>) -> Result<()> {
        append_rows(&*self.own, &self.owners.places(ids)?, answer)
    }

    fn lane(&self) -> Lane {
        Lane::Rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_numbered_by_rank_and_found_at_their_owners() {
        // a rank without edges has no number
        let owners = EdgeOwnership::new(&[3, 0, 2], 2).unwrap();
        assert_eq!((owners.first(), owners.num_edges()), (3, 5));
        let shares = owners.by_owner(&[4, 0, 2, 3]);
        let shares: Vec<_> = shares.iter().map(|share| (&share.ids[..], &share.at[..])).collect();
        assert_eq!(shares, [(&[0, 2][..], &[1, 2][..]), (&[], &[]), (&[4, 3], &[0, 3])]);
        assert_eq!(owners.places(&[3, 4]).unwrap(), [0, 1]);
        assert!(owners.places(&[2]).unwrap_err().to_string().contains("edge 2 is not on this rank"));
        assert!(EdgeOwnership::new(&[1 << 31, 1 << 31], 0).is_err());
    }
}
