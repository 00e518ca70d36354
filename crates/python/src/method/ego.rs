//! A separate ego network for every seed, on which ShaDow trains.
//!
//! # Algorithm
//!
//! Draws neighbours over `depth` hops in a tree per seed, takes all edges within each tree, and
//! sorts nodes and edges by seed.
//!
//! # Source
//!
//! Zeng et al., *Decoupling the depth and scope of graph neural networks*, NeurIPS 2021.
//!
//! # Cost
//!
//! O(sum of the drawn nodes' in-degrees + N log N + M log M) for `N` drawn nodes and `M` edges.

use graphmill_loader::BatchKey;

use super::{
    Method, Scratch,
    draw::Draws,
    neighbors::{Edges, Neighbors},
};
use crate::{batch::Drawn, topology::Topology};

/// Method that draws the ego network of each seed. Nodes come seed by seed, so that each network is
/// contiguous in the list.
#[derive(Clone, Debug)]
pub struct Ego(Neighbors);

impl Ego {
    /// Draws `fanout` neighbours of every node over `depth` hops; `None` takes all.
    pub fn new(depth: usize, fanout: Option<usize>, replace: bool) -> Self {
        let draws = Draws { replace, weights: None };
        Self(Neighbors {
            fanout: vec![fanout; depth],
            draws,
            edges: Edges::Induced,
            disjoint: true,
            times: None,
        })
    }
}

impl Method for Ego {
    fn draw(
        &self,
        topology: &Topology,
        key: BatchKey,
        seeds: &[u32],
        scratch: &mut Scratch,
        out: &mut Drawn,
    ) -> Result<(), String> {
        self.0.draw(topology, key, seeds, scratch, out)?;
        let Some(tree) = out.tree.take() else { return Ok(()) };
        // a stable sort by tree keeps the order of discovery
        let mut order: Vec<u32> = (0..out.nodes.len() as u32).collect();
        order.sort_by_key(|&i| tree[i as usize]);
        let mut place = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&old, new)| place[old as usize] = new);
        out.roots = Some((0..seeds.len()).map(|seed| place[seed]).collect());
        out.nodes = order.iter().map(|&old| out.nodes[old as usize]).collect();
        out.tree = Some(order.iter().map(|&old| tree[old as usize]).collect());
        let mut edges: Vec<(u32, u32, u64)> = (out.src.iter().zip(&out.dst).zip(&out.edges))
            .map(|((&u, &v), &e)| (place[v as usize], place[u as usize], e))
            .collect();
        edges.sort_by_key(|edge| edge.0);
        out.dst = edges.iter().map(|edge| edge.0).collect();
        out.src = edges.iter().map(|edge| edge.1).collect();
        out.edges = edges.iter().map(|edge| edge.2).collect();
        Ok(())
    }
}
