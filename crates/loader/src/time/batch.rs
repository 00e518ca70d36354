//! States of a minibatch with times: seeds, then sampled blocks with the edges that they hold.

use graphmill_core::{Error, NodeId, Result, memory, typed::TypedBlock};

use super::TimedGraph;
use crate::{
    Sampled, Seeds,
    typed::{TypedSampled, TypedSeeds},
};

/// Nodes whose targets a minibatch predicts, each at a time.
#[derive(Debug, Default)]
pub struct TimeSeeds {
    /// Number of the batch within its epoch.
    pub number: u64,
    /// Nodes of each type by local id, `T` lists. A node may occur at several times.
    pub nodes: Vec<Vec<NodeId>>,
    /// Time of each seed, `T` lists.
    pub times: Vec<Vec<i64>>,
    memory: SpareBuffers,
}

/// Buffers that are unused in a batch's present state.
#[derive(Debug, Default)]
struct SpareBuffers {
    blocks: Vec<TypedBlock>,
    input_nodes: Vec<Vec<NodeId>>,
    row_times: Vec<Vec<i64>>,
    edges: Vec<Vec<Vec<u64>>>,
}

impl TimeSeeds {
    /// Creates the seeds of batch `number`, a list of nodes and one of times for each type.
    pub fn new(number: u64, nodes: Vec<Vec<NodeId>>, times: Vec<Vec<i64>>) -> Self {
        Self { number, nodes, times, ..Self::default() }
    }

    /// Creates seeds of a graph of one type.
    pub fn of_nodes(number: u64, nodes: Vec<NodeId>, times: Vec<i64>) -> Self {
        Self::new(number, vec![nodes], vec![times])
    }

    /// Replaces the seeds by those of batch `number` and keeps the buffers.
    #[must_use]
    pub fn refill(mut self, number: u64, seeds: &[(&[NodeId], &[i64])]) -> Self {
        self.number = number;
        self.nodes.resize_with(seeds.len(), Vec::new);
        self.times.resize_with(seeds.len(), Vec::new);
        for (t, &(nodes, times)) in seeds.iter().enumerate() {
            memory::demand_copy(&mut self.nodes[t], nodes);
            memory::demand_copy(&mut self.times[t], times);
        }
        self
    }

    /// Checks the seeds, without the test for repetitions.
    fn check(&self, graph: &TimedGraph) -> Result<()> {
        let schema = graph.schema();
        let fault = |reason: String| Error::invalid(format!("batch {} with times: {reason}", self.number));
        if [self.nodes.len(), self.times.len()] != [schema.num_types(); 2] {
            return Err(fault(format!(
                "{} lists of seeds and {} of times for {} node types; pass both for each, empty ones too",
                self.nodes.len(),
                self.times.len(),
                schema.num_types()
            )));
        }
        for (t, (nodes, times)) in self.nodes.iter().zip(&self.times).enumerate() {
            let node_type = &schema.types()[t];
            let (name, count) = (&node_type.name, node_type.count);
            if nodes.len() != times.len() {
                return Err(fault(format!(
                    "{} seeds of type '{name}' but {} times; pass a time for each seed",
                    nodes.len(),
                    times.len()
                )));
            }
            if let Some(&v) = nodes.iter().find(|&&v| v as usize >= count) {
                return Err(fault(format!(
                    "seed {v} of type '{name}': there are {count} nodes; use ids local to the type"
                )));
            }
            let Some(exists) = graph.node_time(t) else { continue };
            let early = |&(&v, &time): &(&NodeId, &i64)| exists[v as usize] > time;
            if let Some((&v, time)) = nodes.iter().zip(times).find(early) {
                return Err(fault(format!(
                    "seed {v} of type '{name}' has time {time}, but the node exists from time {} on; use a \
                     later time or leave the seed out",
                    exists[v as usize]
                )));
            }
        }
        Ok(())
    }

    /// Returns the next state for a sampler to fill: `blocks` cleared blocks, and the seeds as the
    /// rows so far.
    ///
    /// # Errors
    /// A list is missing, a seed is not a node of its type, or it does not exist at its time.
    pub(super) fn into_sampled(mut self, graph: &TimedGraph, blocks: usize) -> Result<TimeBatch> {
        self.check(graph)?;
        let schema = graph.schema();
        let SpareBuffers { blocks: mut typed, mut input_nodes, mut row_times, mut edges } =
            std::mem::take(&mut self.memory);
        typed.resize_with(blocks, TypedBlock::default);
        typed.iter_mut().for_each(|block| block.clear(schema));
        edges.resize_with(blocks, Vec::new);
        for edges in &mut edges {
            edges.resize_with(schema.num_relations(), Vec::new);
            edges.iter_mut().for_each(Vec::clear);
        }
        copy_lists(&self.nodes, &mut input_nodes);
        copy_lists(&self.times, &mut row_times);
        let seeds = TypedSeeds::new(self.number, std::mem::take(&mut self.nodes));
        let sampled = TypedSampled { seeds, blocks: typed, input_nodes, loss_weight: Vec::new() };
        Ok(TimeBatch { sampled, times: self.times, row_times, edges })
    }
}

/// Copies lists into the memory of others.
fn copy_lists<T: Copy>(from: &[Vec<T>], to: &mut Vec<Vec<T>>) {
    to.resize_with(from.len(), Vec::new);
    for (from, to) in from.iter().zip(to) {
        memory::demand_copy(to, from);
    }
}

/// A minibatch with times whose blocks are drawn.
#[derive(Debug)]
pub struct TimeBatch {
    /// Seeds, blocks and input nodes. A node that occurs at several times is listed several times
    /// among the destinations, and its feature row is read for each. Gradients of learned rows are
    /// to be added up by node before an update.
    pub sampled: TypedSampled,
    /// Time of each seed, `T` lists.
    pub times: Vec<Vec<i64>>,
    /// Time of each destination of the bottom block, `T` lists; the destinations of the other
    /// blocks are prefixes of them. Sources that are no destination draw nothing and have no time.
    pub row_times: Vec<Vec<i64>>,
    /// Position in its relation's graph of each edge: a list for each block and relation (`L x R`),
    /// in the order of the block's edges. Feature rows and times of edges are gathered by them. The
    /// lists may be empty unless the request is for positions.
    pub edges: Vec<Vec<Vec<u64>>>,
}

impl TimeBatch {
    /// Converts a batch of a graph of one type and one relation.
    ///
    /// # Errors
    /// The graph has more than one type or relation.
    pub fn into_one_type(self) -> Result<OneTypeBatch> {
        let Self { sampled, mut times, mut row_times, edges } = self;
        let TypedSampled { mut seeds, blocks, mut input_nodes, .. } = sampled;
        let relations = blocks.first().map_or(1, |block| block.relations.len());
        if (input_nodes.len(), relations) != (1, 1) {
            return Err(Error::invalid(format!(
                "batch {} with times: {} node types and {relations} relations are not a graph of one type; \
                 use its typed blocks",
                seeds.number,
                input_nodes.len()
            )));
        }
        let blocks: Vec<_> = blocks.into_iter().flat_map(|block| block.relations).collect();
        let nodes = std::mem::take(&mut seeds.nodes[0]);
        let mut sampled = Seeds::new(seeds.number, nodes).into_sampled(0);
        sampled.blocks = blocks;
        sampled.input_nodes = input_nodes.swap_remove(0);
        Ok(OneTypeBatch {
            sampled,
            times: times.swap_remove(0),
            row_times: row_times.swap_remove(0),
            edges: edges.into_iter().flatten().collect(),
        })
    }

    /// Returns the buffers for the next batch.
    pub fn recycle(self) -> TimeSeeds {
        let Self { sampled, times, row_times, edges } = self;
        let TypedSampled { seeds, blocks, input_nodes, .. } = sampled;
        let memory = SpareBuffers { blocks, input_nodes, row_times, edges };
        TimeSeeds { number: seeds.number, nodes: seeds.nodes, times, memory }
    }
}

/// A minibatch with times of a graph of one type.
#[derive(Debug)]
pub struct OneTypeBatch {
    /// Seeds, blocks and input nodes, as of a sampler without times; nodes at several times are
    /// listed several times.
    pub sampled: Sampled,
    /// Time of each seed.
    pub times: Vec<i64>,
    /// Time of each destination of the bottom block.
    pub row_times: Vec<i64>,
    /// Position in the graph of each edge, a list for each block.
    pub edges: Vec<Vec<u64>>,
}
