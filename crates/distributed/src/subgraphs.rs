//! Subgraphs that graph stores draw for the ranks that train.
//!
//! ```text
//!   batch b of trainer t of T ─► draw g = b T + t ~~► store g mod S: its subgraph g div S
//!                                                       ~~► nodes, edges, weights ─► minibatch
//! ```
//!
//! Stores take turns, so that all draw, whatever the number of ranks that train. With as many
//! stores as training ranks, each store draws for one of them, in the order in which a rank that
//! trains on its own parts would draw.

#![forbid(unsafe_code)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use graphmill_core::{Block, Error, NodeId, ObjectPool, Result, block::Aggregation, memory};
use graphmill_loader::{
    BatchKey, MinibatchSampler, Sampled, Seeds, Workspace,
    sampler::{BatchRequest, NodeSets, SamplerProperties},
};

use crate::{
    Messenger, NodeOwnership,
    answer::check_nodes,
    messenger::{HEADER, Service},
    sampler::Request,
};

/// Number of the service that draws subgraphs.
pub const SUBGRAPH: u32 = 5;
/// Words of a reply before the nodes: numbers of nodes and edges, and the arrays that follow.
const REPLY_WORDS: usize = 3;
/// Bits of the arrays of a reply besides the nodes.
mod has {
    pub(super) const EDGES: u32 = 1;
    pub(super) const EDGE_WEIGHT: u32 = 2;
    pub(super) const SELF_WEIGHT: u32 = 4;
    pub(super) const LOSS_WEIGHT: u32 = 8;
}

/// Draws the subgraph of a key: with its block, or its nodes alone without blocks.
pub type DrawSubgraph = dyn Fn(BatchKey, Aggregation, &mut Workspace, Seeds) -> Result<Sampled> + Send + Sync;

/// Service of a graph store that draws subgraphs of its parts.
pub struct SubgraphService {
    nodes: usize,
    draw: Box<DrawSubgraph>,
    /// Nanoseconds that writing replies took.
    built: Arc<AtomicU64>,
    spare: ObjectPool<(Workspace, Seeds)>,
}

impl SubgraphService {
    /// Creates the service of a graph of `nodes` nodes. `built` counts the nanoseconds that writing
    /// replies takes.
    pub fn new(nodes: usize, built: Arc<AtomicU64>, draw: Box<DrawSubgraph>) -> Self {
        Self { nodes, draw, built, spare: ObjectPool::default() }
    }
}

impl Service for SubgraphService {
    fn answer(&self, _: usize, words: &[u32], answer: &mut Vec<u32>) -> Result<()> {
        let (Request { key, aggregation, .. }, ..) = Request::read(words)?;
        let (mut workspace, memory) =
            self.spare.take().unwrap_or_else(|| (Workspace::new(self.nodes), Seeds::default()));
        workspace.set_parallel(false);
        let batch = (self.draw)(key, aggregation, &mut workspace, memory.refill(key.batch, []))?;
        let began = Instant::now();
        append(&batch, answer);
        self.built.fetch_add(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
        self.spare.put((workspace, batch.recycle()));
        Ok(())
    }
}

/// Appends the words of a subgraph's reply.
fn append(batch: &Sampled, words: &mut Vec<u32>) {
    let nodes = &batch.seeds.nodes;
    let (none, mut arrays) = (Block::default(), 0);
    let block = batch.blocks.first().unwrap_or(&none);
    let mut set = |bit: u32, is_there: bool| arrays |= if is_there { bit } else { 0 };
    set(has::EDGES, !batch.blocks.is_empty());
    set(has::EDGE_WEIGHT, !block.edge_weight.is_empty());
    set(has::SELF_WEIGHT, !block.self_weight.is_empty());
    set(has::LOSS_WEIGHT, !batch.loss_weight.is_empty());
    let ends = block.indptr.get(1..).unwrap_or_default();
    let of_nodes = nodes.len() + ends.len() + block.self_weight.len() + batch.loss_weight.len();
    memory::demand(words, REPLY_WORDS + of_nodes + block.indices.len() + block.edge_weight.len());
    words.extend([nodes.len() as u32, block.indices.len() as u32, arrays]);
    for part in [nodes, ends, &block.indices[..]] {
        words.extend_from_slice(part);
    }
    for part in [&block.edge_weight, &block.self_weight, &batch.loss_weight] {
        words.extend_from_slice(bytemuck::cast_slice(part));
    }
}

/// Words of a reply, one array after the other.
struct Reply<'w> {
    nodes: usize,
    edges: usize,
    arrays: u32,
    rest: &'w [u32],
}

impl<'w> Reply<'w> {
    fn read(words: &'w [u32]) -> Result<Self> {
        let Some((&[nodes, edges, arrays], rest)) = words.split_first_chunk::<REPLY_WORDS>() else {
            return Err(malformed());
        };
        let reply = Self { nodes: nodes as usize, edges: edges as usize, arrays, rest };
        let (nodes, edges) = (reply.nodes, reply.edges);
        let of = |bit: u32, len: usize| if arrays & bit > 0 { len } else { 0 };
        let weights = of(has::EDGE_WEIGHT, edges) + of(has::SELF_WEIGHT, nodes) + of(has::LOSS_WEIGHT, nodes);
        match rest.len() == nodes + of(has::EDGES, nodes + edges) + weights {
            true => Ok(reply),
            false => Err(malformed()),
        }
    }

    /// The next `len` words if the reply has the array `bit`, or none.
    fn next<T: bytemuck::Pod>(&mut self, bit: u32, len: usize) -> &'w [T] {
        let (words, rest) = self.rest.split_at(if self.arrays & bit > 0 { len } else { 0 });
        self.rest = rest;
        bytemuck::cast_slice(words)
    }

    /// Overwrites `nodes`, the block if there is one, and `loss_weight` by those of the reply.
    ///
    /// # Errors
    /// The block is not one of these nodes, or a node is not below `count`, that of the graph.
    fn write(
        mut self,
        count: usize,
        nodes: &mut Vec<NodeId>,
        block: Option<&mut Block>,
        loss_weight: &mut Vec<f32>,
    ) -> Result<()> {
        let (len, edges) = (self.nodes, self.edges);
        let (ids, rest) = self.rest.split_at(len);
        self.rest = rest;
        check_nodes(ids, count)?;
        memory::demand_copy(nodes, ids);
        let (ends, indices) = (self.next::<u32>(has::EDGES, len), self.next::<u32>(has::EDGES, edges));
        let (of_edges, of_rows) = (self.next(has::EDGE_WEIGHT, edges), self.next(has::SELF_WEIGHT, len));
        memory::demand_copy(loss_weight, self.next(has::LOSS_WEIGHT, len));
        let Some(block) = block else { return Ok(()) };
        let is_sound = ends.len() == len
            && ends.is_sorted()
            && ends.last().map_or(0, |&end| end as usize) == edges
            && indices.iter().all(|&u| (u as usize) < len);
        if !is_sound {
            return Err(malformed());
        }
        block.clear();
        (block.num_dst, block.num_src) = (len, len);
        memory::demand_push(&mut block.indptr, 0);
        memory::demand_append(&mut block.indptr, ends);
        memory::demand_append(&mut block.indices, indices);
        memory::demand_append(&mut block.edge_weight, of_edges);
        memory::demand_append(&mut block.self_weight, of_rows);
        Ok(())
    }
}

fn malformed() -> Error {
    Error::invalid("a graph store has sent a malformed subgraph; use the same build and options on all ranks")
}

/// Subgraphs of a rank that trains, drawn by the graph stores.
pub struct StoreSubgraphs {
    post: Arc<Messenger>,
    book: Arc<NodeOwnership>,
    /// Subgraphs of an epoch of this rank.
    epoch: u64,
}

impl StoreSubgraphs {
    /// Creates the sampler of a rank that trains on `epoch` subgraphs in an epoch.
    pub fn new(post: Arc<Messenger>, book: Arc<NodeOwnership>, epoch: u64) -> Self {
        Self { post, book, epoch }
    }

    /// Words of the subgraph of this request, from its store.
    fn fetch(&self, request: &BatchRequest) -> Result<Vec<u32>> {
        let (trainers, stores) = (self.book.num_trainers() as u64, self.book.num_holders() as u64);
        let draw = request.key.batch * trainers + self.book.rank() as u64;
        let store = self.book.first_holder() + (draw % stores) as usize;
        let key = BatchKey { batch: draw / stores, ..request.key };
        let aggregation = request.layout.aggregation;
        let question = Request { hop: 0, key, aggregation, names_edges: false };
        self.post.ask(store, SUBGRAPH, |words| words.extend(question.words())).wait()
    }
}

impl NodeSets for StoreSubgraphs {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn draw_nodes(
        &self,
        request: &BatchRequest,
        _: &mut Workspace,
        nodes: &mut Vec<NodeId>,
        loss_weight: &mut Vec<f32>,
    ) -> Result<()> {
        Reply::read(&self.fetch(request)?[HEADER..])?.write(self.book.num_nodes(), nodes, None, loss_weight)
    }
}

impl MinibatchSampler for StoreSubgraphs {
    fn properties(&self) -> SamplerProperties {
        let subgraphs = Some(self.epoch);
        SamplerProperties { num_layers: 1, is_random: true, reads_edge_weights: false, subgraphs }
    }

    fn sample(&self, request: &BatchRequest, _: &mut Workspace, seeds: Seeds) -> Result<Sampled> {
        seeds.refuse_links()?;
        let words = self.fetch(request)?;
        let mut batch = seeds.into_sampled(1);
        let Sampled { seeds, blocks, input_nodes, loss_weight, .. } = &mut batch;
        let block = &mut blocks[0];
        let reply = Reply::read(&words[HEADER..])?;
        reply.write(self.book.num_nodes(), &mut seeds.nodes, Some(block), loss_weight)?;
        memory::demand_append(input_nodes, &seeds.nodes);
        if request.layout.transposed != 0 {
            block.transpose();
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_outside_of_the_graph_are_refused() {
        let words = [2, 1, has::EDGES, 4, 9, 0, 1, 0];
        let write = |count: usize| {
            let (mut nodes, mut block) = (Vec::new(), Block::default());
            let written = Reply::read(&words)?.write(count, &mut nodes, Some(&mut block), &mut Vec::new());
            written.map(|()| (nodes, block.indices))
        };
        assert_eq!(write(10).unwrap(), (vec![4, 9], vec![0]));
        let error = write(9).unwrap_err().to_string();
        assert!(error.starts_with("a reply names node 9, and the graph has 9 nodes"), "{error}");
    }
}
