//! In-neighbours of nodes of other ranks: whole lists, and single neighbours.
//!
//! Samplers whose draws depend on several lists read them here: the lists of all destinations
//! together (LABOR with iterations), or one neighbour after the other (random walks). A step of all
//! walks of a rank is one exchange, 8 bytes for each walk and 4 back; lists are sent whole.

#![forbid(unsafe_code)]

use std::sync::Arc;

use graphmill_core::{Block, Error, Graph, NodeId, Result, memory};
use graphmill_loader::sampler::StepSource;

use crate::{
    Messenger, NodeOwnership,
    answer::{Answer, Merged, REPLY_WORDS, check_nodes},
    messenger::{HEADER, Service},
};

/// Number of the service that returns whole lists with their weights.
pub const FETCH: u32 = 3;
/// Number of the service that returns single neighbours.
pub const STEP: u32 = 4;

/// Service that returns the lists of own nodes with the weights of their edges.
pub(crate) struct ListService {
    pub(crate) graph: Graph,
    pub(crate) book: Arc<NodeOwnership>,
}

impl Service for ListService {
    fn answer(&self, _: usize, ids: &[u32], answer: &mut Vec<u32>) -> Result<()> {
        // checks that this rank owns the nodes
        self.book.places(ids)?;
        append_lists(&self.graph, ids, answer)
    }
}

/// Appends the lists of `ids` in the words of a [`Answer`].
fn append_lists(graph: &Graph, ids: &[NodeId], words: &mut Vec<u32>) -> Result<()> {
    let edges: usize = ids.iter().map(|&v| graph.in_degree(v)).sum();
    let Ok(edges) = u32::try_from(edges) else {
        return Err(Error::invalid(format!("{edges} neighbours in a reply: the maximum is 2^32 - 1")));
    };
    let columns = if graph.edge_weight().is_some() { 2 } else { 1 };
    memory::demand(words, REPLY_WORDS + ids.len() + columns * edges as usize);
    words.extend([edges, u32::from(graph.edge_weight().is_some())]);
    let mut end = 0;
    words.extend(ids.iter().map(|&v| {
        end += graph.in_degree(v) as u32;
        end
    }));
    ids.iter().for_each(|&v| words.extend_from_slice(graph.in_neighbors(v)));
    if let Some(weights) = graph.edge_weight() {
        for &v in ids {
            let run = graph.indptr()[v as usize] as usize..graph.indptr()[v as usize + 1] as usize;
            words.extend_from_slice(bytemuck::cast_slice(&weights[run]));
        }
    }
    Ok(())
}

/// Graph of the lists of `dst` alone, in their order: destination `i` is node `i`, and neighbours
/// keep their ids. `own` holds the lists of this rank's nodes; the service of that number returns
/// those of other ranks.
///
/// # Errors
/// A rank did not reply.
pub(crate) fn fetch_lists(
    (post, service): (&Messenger, u32),
    (book, sources): (&NodeOwnership, usize),
    own: &Graph,
    dst: &[NodeId],
) -> Result<Graph> {
    let shares = book.by_owner(dst);
    let mut asked = Vec::new();
    for to in post.others() {
        let share = &shares[to];
        if !share.ids.is_empty() {
            asked.push((share, post.ask(to, service, |words| memory::demand_append(words, &share.ids))));
        }
    }
    let mine = &shares[book.rank()];
    let mut words = vec![0; HEADER];
    append_lists(own, &mine.ids, &mut words)?;
    let mut answers = vec![(mine, Answer::read(words, mine.ids.len(), sources)?)];
    for (share, asked) in asked {
        answers.push((share, Answer::read(asked.wait()?, share.ids.len(), sources)?));
    }
    let parts: Vec<_> = answers.iter().map(|(share, answer)| answer.part(share)).collect();
    let mut block = Block::default();
    Merged::of(&mut block, None).fill(dst.len(), &parts)?;
    let weights = own.edge_weight().is_some().then(|| block.edge_weight.into());
    let indptr: Vec<u64> = memory::demand_collect(block.indptr.iter().map(|&end| end.into()));
    Graph::of_sound_edges(indptr.into(), block.indices.into(), weights)
}

/// Service that returns single neighbours of own nodes: a request is pairs of a node and a number.
pub(crate) struct StepService {
    pub(crate) graph: Graph,
    pub(crate) book: Arc<NodeOwnership>,
}

/// The neighbour of number `number` of `v`.
fn neighbor(graph: &Graph, v: NodeId, number: u32) -> Result<NodeId> {
    graph.in_neighbors(v).get(number as usize).copied().ok_or_else(|| {
        let degree = graph.in_degree(v);
        Error::invalid(format!(
            "neighbour {number} of node {v}, which has {degree}: the ranks have opened different partitions"
        ))
    })
}

impl Service for StepService {
    fn answer(&self, _: usize, pairs: &[u32], answer: &mut Vec<u32>) -> Result<()> {
        memory::demand(answer, pairs.len() / 2);
        for pair in pairs.chunks_exact(2) {
            self.book.places(&pair[..1])?;
            answer.push(neighbor(&self.graph, pair[0], pair[1])?);
        }
        Ok(())
    }
}

/// Single neighbours of all nodes: own ones from `graph`, those of other ranks from their owners.
pub(crate) struct Steps<'s> {
    pub(crate) post: &'s Messenger,
    /// Numbers of the services of single neighbours and of lists.
    pub(crate) services: [u32; 2],
    pub(crate) book: &'s NodeOwnership,
    pub(crate) graph: &'s Graph,
    /// In-degrees of all nodes.
    pub(crate) degrees: &'s [u32],
}

impl StepSource for Steps<'_> {
    fn degree(&self, v: NodeId) -> u64 {
        self.degrees[v as usize].into()
    }

    fn step(&self, at: &mut [(NodeId, u32)]) -> Result<()> {
        let nodes: Vec<NodeId> = memory::demand_collect(at.iter().map(|pair| pair.0));
        let shares = self.book.by_owner(&nodes);
        let mut asked = Vec::new();
        for to in self.post.others() {
            let share = &shares[to];
            if !share.ids.is_empty() {
                let pairs = share.at.iter().flat_map(|&i| [at[i as usize].0, at[i as usize].1]);
                let say = |words: &mut Vec<u32>| memory::demand_extend(words, pairs);
                asked.push((to, share, self.post.ask(to, self.services[0], say)));
            }
        }
        for &i in &shares[self.book.rank()].at {
            let (v, number) = at[i as usize];
            at[i as usize].1 = neighbor(self.graph, v, number)?;
        }
        for (rank, share, asked) in asked {
            let words = asked.wait()?;
            let found = &words[HEADER..];
            if found.len() != share.at.len() {
                let message = format!("{} neighbours of {} nodes", found.len(), share.at.len());
                return Err(Error::Peer { rank, message });
            }
            let peer = |error: Error| Error::Peer { rank, message: error.to_string() };
            check_nodes(found, self.book.num_nodes()).map_err(peer)?;
            share.at.iter().zip(found).for_each(|(&i, &to)| at[i as usize].1 = to);
        }
        Ok(())
    }

    fn lists(&self, nodes: &[NodeId]) -> Result<Graph> {
        fetch_lists((self.post, self.services[1]), (self.book, self.book.num_nodes()), self.graph, nodes)
    }
}
