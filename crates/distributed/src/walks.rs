//! Walks along edge types of a graph of several types: the owner of a node draws its in-neighbour.
//!
//! ```text
//!   walks ─┬─ at own nodes ─► neighbours drawn here ─────────────────────────────┐
//!          └─ at remote ones ─► ids, random words ~~► owner draws ~~► neighbours ┴─► next step
//! ```
//!
//! A step of all walks of a rank is one exchange, 12 bytes for each walk and 4 back. The random
//! words are those of a single process, and so are the neighbours.

#![forbid(unsafe_code)]

use std::sync::Arc;

use graphmill_core::{Error, Graph, NodeId, Result, memory, typed::TypedGraph};
use graphmill_loader::sampler::{PathSource, drawn_neighbor};

use crate::{
    Messenger, NodeOwnership,
    messenger::{HEADER, Service, service_of_type},
    neighbors::STEP,
    numbers::{of_words, to_words},
};

/// Reply for a node without in-neighbours; ids of nodes are smaller.
const NONE: u32 = u32::MAX;

/// Bytes on the wire for a step of `walks` walks at the nodes of another rank, and for the reply.
pub fn bytes_of_a_step(walks: usize) -> [u64; 2] {
    [HEADER + 3 * walks, HEADER + walks].map(|words| 4 * words as u64)
}

/// Service that draws in-neighbours of own nodes by one relation. A request has the nodes, and then
/// their random words.
struct Draws {
    graph: Graph,
    owners: Arc<NodeOwnership>,
}

impl Service for Draws {
    fn answer(&self, _: usize, words: &[u32], answer: &mut Vec<u32>) -> Result<()> {
        let (nodes, random) = words.split_at(words.len() / 3);
        // checks that this rank owns the nodes
        self.owners.places(nodes)?;
        let draw = |(&v, word): (&NodeId, u64)| drawn_neighbor(&self.graph, v, word).unwrap_or(NONE);
        memory::demand_extend(answer, nodes.iter().zip(of_words(random)).map(draw));
        Ok(())
    }
}

/// In-neighbours of all nodes: own ones are drawn here, those of other ranks by their owners.
pub struct StepsOverRanks {
    post: Arc<Messenger>,
    /// Owners of the nodes of each type.
    owners: Vec<Arc<NodeOwnership>>,
    /// All nodes, and the edges into own ones.
    graph: TypedGraph,
}

impl StepsOverRanks {
    /// Creates the neighbours of all nodes, of which `graph` has those of this rank, and draws from
    /// these for the other ranks. `owners` are those of the nodes of each type.
    pub fn serve(post: Arc<Messenger>, owners: Vec<Arc<NodeOwnership>>, graph: TypedGraph) -> Self {
        for (r, relation) in graph.schema().relations().iter().enumerate() {
            let draws = Draws { graph: graph.relation(r).clone(), owners: owners[relation.dst].clone() };
            post.serve(service_of_type(STEP, r), Arc::new(draws));
        }
        Self { post, owners, graph }
    }
}

impl PathSource for StepsOverRanks {
    fn step(&self, relation: usize, at: &[(NodeId, u64)], to: &mut Vec<Option<NodeId>>) -> Result<()> {
        let nodes: Vec<NodeId> = memory::demand_collect(at.iter().map(|of| of.0));
        let shares = self.owners[self.graph.schema().relations()[relation].dst].by_owner(&nodes);
        let mut asked = Vec::new();
        for rank in self.post.others() {
            let share = &shares[rank];
            if !share.ids.is_empty() {
                let say = |words: &mut Vec<u32>| {
                    memory::demand(words, 3 * share.ids.len());
                    words.extend_from_slice(&share.ids);
                    words.extend(to_words(share.at.iter().map(|&i| at[i as usize].1)));
                };
                asked.push((rank, share, self.post.ask(rank, service_of_type(STEP, relation), say)));
            }
        }
        to.clear();
        memory::demand_len(to, at.len(), None);
        for &i in &shares[self.post.rank()].at {
            let (v, word) = at[i as usize];
            to[i as usize] = drawn_neighbor(self.graph.relation(relation), v, word);
        }
        let count = self.owners[self.graph.schema().relations()[relation].src].num_nodes();
        for (rank, share, asked) in asked {
            let words = asked.wait()?;
            let drawn = &words[HEADER..];
            if drawn.len() != share.at.len() {
                let message = format!("{} neighbours of {} nodes", drawn.len(), share.at.len());
                return Err(Error::Peer { rank, message });
            }
            if drawn.iter().any(|&u| u != NONE && u as usize >= count) {
                let message = format!("a neighbour outside of the {count} nodes of its type");
                return Err(Error::Peer { rank, message });
            }
            for (&i, &u) in share.at.iter().zip(drawn) {
                to[i as usize] = (u != NONE).then_some(u);
            }
        }
        Ok(())
    }
}
