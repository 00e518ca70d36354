//! Minibatches of graphs with several node types and edge types, as PyTorch Geometric draws them.
//!
//! ```text
//!   inputs (nodes or links) ─► seeds of each type ─► method ─► gather ─► batch
//! ```
//!
//! Ids of a batch are local to their types. A hop expands, by each relation, the destinations that
//! the previous hop added. All draws are functions of (seed, epoch, batch, hop, relation, node).
//! Batches of links of a graph of one type also come from here.

#![forbid(unsafe_code)]

pub mod blocks;
pub mod hgt;
pub mod links;
pub mod neighbors;
pub mod places;
pub mod source;
pub mod subgraph;

use std::sync::Arc;

use graphmill_loader::{BatchKey, link::ExcludedEdges, sampler::HopScratch, typed::TypedWorkspace};

use self::places::Places;
use crate::{method::draw, topology::Topology};

/// Edges from nodes of one type to nodes of another, or the same.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Type of the sources.
    pub src: usize,
    /// Type of the destinations.
    pub dst: usize,
    /// The edges: a row for each destination.
    pub topology: Arc<Topology>,
}

/// A graph of several node types.
#[derive(Clone, Debug, Default)]
pub struct TypedTopology {
    /// Name and number of nodes of each type.
    pub types: Vec<(String, usize)>,
    /// Relations, in the user's order.
    pub relations: Vec<Relation>,
}

/// Seeds of a batch.
#[derive(Clone, Debug, Default)]
pub struct Seeds {
    /// Nodes of each type.
    pub nodes: Vec<Vec<u32>>,
    /// Tree of each seed, if trees are disjoint.
    pub tree: Option<Vec<Vec<u32>>>,
    /// Latest time of an edge of each tree, if times bound the hops.
    pub latest: Option<Vec<i64>>,
    /// Edges that no hop may follow, by relation.
    pub excluded: Vec<(usize, ExcludedEdges)>,
}

/// Drawn edges of a relation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelationEdges {
    /// Position of each edge's source among the nodes of its type.
    pub src: Vec<u32>,
    /// Position of each edge's destination among the nodes of its type.
    pub dst: Vec<u32>,
    /// Number of each edge in the user's list.
    pub edges: Vec<u64>,
}

/// Result of a method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypedDrawn {
    /// Nodes of each type, the seeds first.
    pub nodes: Vec<Vec<u32>>,
    /// Edges of each relation.
    pub relations: Vec<RelationEdges>,
    /// Tree of each node, if trees are disjoint.
    pub tree: Option<Vec<Vec<u32>>>,
    /// Number of nodes of each type that each hop added, where the seeds are the first hop.
    pub nodes_per_hop: Option<Vec<Vec<usize>>>,
    /// Number of edges of each relation that each hop added.
    pub edges_per_hop: Option<Vec<Vec<usize>>>,
}

impl TypedDrawn {
    /// Empties the lists, for this many types and relations.
    fn clear(&mut self, types: usize, relations: usize) {
        self.nodes.resize_with(types, Vec::new);
        self.nodes.iter_mut().for_each(Vec::clear);
        self.relations.resize_with(relations, RelationEdges::default);
        for RelationEdges { src, dst, edges } in &mut self.relations {
            src.clear();
            dst.clear();
            edges.clear();
        }
        (self.tree, self.nodes_per_hop, self.edges_per_hop) = (None, None, None);
    }
}

/// Scratch buffers of a method, one set per thread.
pub struct TypedScratch {
    places: Places,
    hop: HopScratch,
    draw: draw::Scratch,
    indptr: Vec<u32>,
    offsets: Vec<u32>,
    /// Workspace of the loader's samplers, if the method uses one.
    workspace: Option<TypedWorkspace>,
}

impl TypedScratch {
    /// Creates buffers for a graph.
    pub fn new(topology: &TypedTopology) -> Self {
        Self {
            places: Places::new(topology.types.iter().map(|(_, count)| *count)),
            hop: HopScratch::default(),
            draw: draw::Scratch::default(),
            indptr: Vec::new(),
            offsets: Vec::new(),
            workspace: None,
        }
    }
}

/// Method of drawing typed minibatches.
pub trait TypedMethod: Send + Sync {
    /// Draws the nodes and edges around `seeds` (each below its type's number) into `out`, which is
    /// overwritten. The result is a function of the topology, the key and the seeds alone.
    ///
    /// # Errors
    /// The batch has 2^32 edges or more, or the method refuses the seeds.
    fn draw(
        &self,
        topology: &TypedTopology,
        key: BatchKey,
        seeds: &Seeds,
        scratch: &mut TypedScratch,
        out: &mut TypedDrawn,
    ) -> Result<(), String>;
}

#[cfg(test)]
mod tests;
