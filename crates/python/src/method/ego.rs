//! The ego network of every seed by itself: what ShaDow trains on (Zeng et al., *Decoupling the
//! depth and scope of graph neural networks*, NeurIPS 2021).

use graphmill_loader::BatchKey;

use super::{
    Method, Room,
    draw::Draws,
    neighbors::{Edges, Neighbors},
};
use crate::{batch::Drawn, topology::Topology};

/// Draws neighbours around each seed and takes all edges among them. Nodes come seed by seed, so
/// that each network is a run of the list.
#[derive(Clone, Debug)]
pub struct Ego(Neighbors);

impl Ego {
    /// `fanout` neighbours of every node over `depth` hops; `None`: all.
    pub fn new(depth: usize, fanout: Option<usize>, replace: bool) -> Self {
        let draws = Draws { replace, weights: None };
        Self(Neighbors { fanout: vec![fanout; depth], draws, edges: Edges::Induced, disjoint: true })
    }
}

impl Method for Ego {
    fn draw(
        &self,
        topology: &Topology,
        key: BatchKey,
        seeds: &[u32],
        room: &mut Room,
        out: &mut Drawn,
    ) -> Result<(), String> {
        self.0.draw(topology, key, seeds, room, out)?;
        let Some(tree) = out.tree.take() else { return Ok(()) };
        // by tree, first seen first: stable
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
