//! Seeds to blocks.
//!
//! A sampler draws one hop at a time and knows no thread, device or cache. The provided
//! [`Sampler::sample`] stacks the hops: the nodes of all hops so far are the destinations of the
//! next (DGL's message-flow blocks), so one list of nodes in first-seen order serves every block,
//! and destinations are a prefix of sources everywhere.

pub mod exact;
pub mod full;
mod hops;
pub mod labor;
pub mod neighbor;
mod normalize;
mod parts;
pub mod random_walk;
mod reservoir;
mod runs;
pub mod subgraphs;
pub mod weighted;

use std::sync::Mutex;

use graphmill_graph::{
    Block, Graph, NodeId, Result,
    block::{Aggregation, Induce},
    keyed,
    table::Entry,
};
use parts::Parts;

use exact::Exact;
pub use parts::too_many;
pub use random_walk::WalkOptions;
pub use subgraphs::{Estimator, SubgraphTraining, Subgraphs};
pub use weighted::{WeightedDraws, WeightedOptions};

use crate::{
    MiniBatch, Relabel,
    subgraph::{self, SubgraphOptions},
    weights::SymmetricWeights,
};

/// What identifies a minibatch's random draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchKey {
    /// The run's seed.
    pub seed: u64,
    /// From 0.
    pub epoch: u64,
    /// Number of the batch within the epoch, from 0.
    pub batch: u64,
}

impl BatchKey {
    /// The key of the draws of a hop, 0 the seeds' own.
    fn of_hop(self, hop: usize) -> u64 {
        keyed::key(&[self.seed, self.epoch, self.batch, hop as u64])
    }
}

/// What the blocks are wanted for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form<'a> {
    /// Leave the bottom block global: no relabelling, no gathered copy (ARCHITECTURE, fast path).
    pub fused: bool,
    /// Build the transposes of `blocks[l]` where bit `l` is set.
    pub transposed: u64,
    /// Fill the symmetric-normalisation weights.
    pub symmetric: Option<&'a SymmetricWeights>,
    /// What the layers make of neighbours' rows, for samplers that weigh edges.
    pub aggregation: Aggregation,
}

/// Memory a worker lends to a sampler and gets back: reused for every batch.
#[derive(Debug)]
pub struct Workspace {
    relabel: Relabel,
    scratch: Scratch,
    parts: Parts,
    induce: Induce,
    room: subgraph::Room,
    /// What the edges of a subgraph stand for.
    weights: Vec<f32>,
    /// What sources become where some are reused.
    pub(crate) renumbered: Vec<u32>,
}

impl Workspace {
    /// For a graph of `num_nodes` nodes (see [`Relabel::new`] for the memory).
    pub fn new(num_nodes: usize) -> Self {
        Self {
            relabel: Relabel::new(num_nodes),
            scratch: Scratch::default(),
            parts: Parts::default(),
            induce: Induce::default(),
            room: subgraph::Room::default(),
            weights: Vec::new(),
            renumbered: Vec::new(),
        }
    }

    /// Whether one batch may be spread over the threads of the pool (it may at first): off where every thread has a batch of its
    /// own. It changes nothing but the time.
    pub fn set_parallel(&mut self, parallel: bool) {
        self.scratch.parallel = parallel;
    }

    /// Transposes a block, over the threads of the pool where that is wanted.
    pub fn transpose(&self, block: &mut Block) {
        if self.scratch.parallel { block.par_transpose() } else { block.transpose() }
    }
}

/// Room for one hop's draws.
#[derive(Debug)]
pub struct Scratch {
    /// Whether a call may be spread over the threads of the pool.
    pub parallel: bool,
    /// Per thread: membership table for large fanouts.
    pub tables: Vec<Mutex<Vec<u32>>>,
    /// Edges of each run of destinations.
    pub counts: Vec<u64>,
    /// Runs of destinations being drawn.
    runs: Vec<runs::Run>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { parallel: true, tables: Vec::new(), counts: Vec::new(), runs: Vec::new() }
    }
}

impl Scratch {
    /// Makes room for that many threads.
    fn fit(&mut self, threads: usize) {
        if self.tables.len() < threads {
            self.tables.resize_with(threads, Mutex::default);
        }
    }
}

/// Draws neighbours.
pub trait Sampler: Send + Sync {
    /// `L`: how many blocks a minibatch has.
    fn num_layers(&self) -> usize;

    /// Whether the same seeds may get other blocks under another key.
    fn is_random(&self) -> bool {
        true
    }

    /// How many subgraphs an epoch has, for a sampler that picks its seeds by itself: [`Sampler::sample`] then overwrites
    /// `batch.seeds` and `batch.loss_weight` too, and makes one block for all layers.
    fn subgraphs(&self) -> Option<u64> {
        None
    }

    /// Whether what is drawn for a destination depends on no other destination, so that a hop may be drawn in parts.
    fn draws_by_node(&self) -> bool {
        false
    }

    /// Whether all that a hop reads for a destination is that node's own list of in-neighbours, so that who has the list can draw it.
    fn reads_own_lists(&self) -> bool {
        self.draws_by_node()
    }

    /// Whether it draws by the weights that are stored with the graph's edges.
    fn reads_edge_weights(&self) -> bool {
        false
    }

    /// Draws the in-neighbours of `dst` at hop `hop` (0 is next to the seeds): `block.indptr` (`D + 1`)
    /// and `block.indices` (global ids) are overwritten. A pure function of the arguments' values.
    ///
    /// A sampler that weighs edges also fills `block.edge_weight` (`E`, empty before), for a layer that makes `aggregation` of them;
    /// with [`Aggregation::Symmetric`] by how many of the node's neighbours an edge stands for, which [`SymmetricWeights::fill`] then
    /// multiplies.
    ///
    /// # Errors
    /// The block would have more edges than its 32-bit positions can number.
    #[allow(clippy::too_many_arguments, reason = "one hop: what is drawn from, for whom, and where it goes")]
    fn sample_layer(
        &self,
        _graph: &Graph,
        _hop: usize,
        _dst: &[NodeId],
        _key: BatchKey,
        _aggregation: Aggregation,
        _scratch: &mut Scratch,
        _block: &mut Block,
    ) -> Result<()> {
        unreachable!("this sampler draws whole subgraphs");
    }

    /// Fills `batch.blocks` and `batch.input_nodes` from `batch.seeds` (distinct, below `V`) and
    /// `batch.number`.
    ///
    /// # Errors
    /// As [`Sampler::sample_layer`]; the blocks are then undefined.
    fn sample(
        &self,
        graph: &Graph,
        seed: u64,
        epoch: u64,
        form: Form,
        workspace: &mut Workspace,
        batch: &mut MiniBatch,
    ) -> Result<()> {
        hops::start(workspace, batch);
        hops::draw(
            self,
            graph,
            BatchKey { seed, epoch, batch: batch.number },
            form,
            0..self.num_layers(),
            workspace,
            batch,
        )
    }

    /// [`Sampler::sample`] but for the bottom block: fills `batch.blocks[1..]`, and in `batch.input_nodes` the destinations of the
    /// bottom one. Block 1 is left without its transpose: [`MiniBatch::reuse`] may renumber its sources. Of samplers of
    /// subgraphs, and of one hop, there is no such part.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    fn sample_above(
        &self,
        graph: &Graph,
        seed: u64,
        epoch: u64,
        form: Form,
        workspace: &mut Workspace,
        batch: &mut MiniBatch,
    ) -> Result<()> {
        let form = Form { transposed: form.transposed & !2, ..form };
        let above = 0..self.num_layers() - 1;
        hops::start(workspace, batch);
        hops::draw(self, graph, BatchKey { seed, epoch, batch: batch.number }, form, above, workspace, batch)
    }

    /// The bottom block for the destinations in `batch.input_nodes`, which become the input nodes: what [`Sampler::sample`]
    /// would have made of them last. `key` says whose draws they are.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    fn sample_bottom(
        &self,
        graph: &Graph,
        key: BatchKey,
        form: Form,
        workspace: &mut Workspace,
        batch: &mut MiniBatch,
    ) -> Result<()> {
        if !form.fused {
            workspace.relabel.start(&batch.input_nodes);
        }
        let bottom = self.num_layers() - 1..self.num_layers();
        hops::draw(self, graph, key, form, bottom, workspace, batch)
    }
}

/// What a sampler is made from. One struct serves all; each reads what concerns it.
#[derive(Clone, Debug, Default)]
pub struct SamplerOptions {
    /// Neighbours per node per hop, from the seeds outward; -1 takes all.
    pub fanout: Vec<i64>,
    /// The run's seed: what is counted beforehand follows from it.
    pub seed: u64,
    /// What a subgraph is drawn by.
    pub subgraph: SubgraphOptions,
    /// Which nodes subgraphs are drawn from, and what they stand for.
    pub training: SubgraphTraining,
    /// By what neighbours are drawn.
    pub weighted: WeightedOptions,
    /// How often `labor` makes sources more or less likely; [`usize::MAX`]: as often as it helps.
    pub labor_iterations: usize,
    /// How nodes walk.
    pub walks: WalkOptions,
}

/// What a sampler is made for.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Who hears from whom.
    pub graph: &'a Graph,
    /// The nodes that train, distinct.
    pub train: &'a [NodeId],
}

/// Makes a sampler that goes from seeds.
pub type MakeHops = fn(&SamplerOptions, &Source) -> Result<Box<dyn Sampler>, String>;

/// Makes what inference takes instead of the draws of a sampler that goes from seeds.
pub type MakeExact = fn(&SamplerOptions, &Source) -> Result<Exact, String>;

/// Makes a sampler, or says in one sentence what is wrong with the options.
#[derive(Clone, Copy)]
pub enum Make {
    /// One that goes from seeds, hop by hop, and what its draws come to.
    Hops(MakeHops, MakeExact),
    /// One that draws subgraphs.
    Subgraphs(subgraph::Make),
}

impl Make {
    /// The sampler. What it reads often is made now.
    ///
    /// # Errors
    /// What is wrong with the options.
    pub fn make(&self, options: &SamplerOptions, source: &Source) -> Result<Box<dyn Sampler>, String> {
        match self {
            Self::Hops(make, _) => make(options, source),
            Self::Subgraphs(make) => {
                let make = |graph: &Graph, train: &[NodeId]| make(graph, train, &options.subgraph);
                let made = Subgraphs::new(source.graph, source.train, &options.training, options.seed, make)?;
                Ok(Box::new(made))
            }
        }
    }

    /// How inference takes neighbours: as the sampler's draws come to on average.
    ///
    /// # Errors
    /// What is wrong with the options.
    pub fn exact(&self, options: &SamplerOptions, source: &Source) -> Result<Exact, String> {
        match self {
            Self::Hops(_, exact) => exact(options, source),
            Self::Subgraphs(_) => ALIKE(options, source),
        }
    }
}

/// All neighbours, each the same.
const ALIKE: MakeExact = |_, _| Ok(Exact::default());

/// Every sampler there is: those that go from seeds, and those of subgraphs ([`subgraph::TABLE`]).
pub const TABLE: &[Entry<Make>] = &{
    const HOPS: usize = BY_HOPS.len();
    let mut all = [BY_HOPS[0]; HOPS + subgraph::TABLE.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < HOPS {
            BY_HOPS[i]
        } else {
            let Entry { name, summary, source, make } = subgraph::TABLE[i - HOPS];
            Entry { name, summary, source, make: Make::Subgraphs(make) }
        };
        i += 1;
    }
    all
};

/// The samplers that go from seeds.
const BY_HOPS: &[Entry<Make>] = &[
    Entry {
        name: "neighbor",
        summary: "k-hop uniform neighbour sampling without replacement",
        source: "Hamilton et al., NeurIPS 2017; FGNN section 2",
        make: Make::Hops(|options, _| Ok(Box::new(neighbor::Neighbor::new(&options.fanout)?)), ALIKE),
    },
    Entry {
        name: "full",
        summary: "every neighbour at every hop: exact, and as large as it sounds",
        source: "",
        make: Make::Hops(|options, _| Ok(Box::new(full::Full::new(options.fanout.len())?)), ALIKE),
    },
    Entry {
        name: "weighted",
        summary: "k-hop neighbour sampling by edge weight, with or without replacement",
        source: "Walker, ACM TOMS 1977; Efraimidis and Spirakis, IPL 2006",
        make: Make::Hops(
            |options, source| {
                Ok(Box::new(weighted::Weighted::new(source.graph, &options.fanout, &options.weighted)?))
            },
            |options, source| Exact::weighted(source.graph, &options.fanout, &options.weighted),
        ),
    },
    Entry {
        name: "labor",
        summary: "layer-neighbour sampling: as many neighbours on average, shared by the nodes of a layer",
        source: "Balin and Catalyurek, NeurIPS 2023, section 3",
        make: Make::Hops(
            |options, source| {
                let labor = labor::LaborOptions {
                    iterations: options.labor_iterations,
                    weights: options.weighted.weights,
                };
                Ok(Box::new(labor::Labor::with_options(source.graph, &options.fanout, &labor)?))
            },
            |options, source| {
                Ok(Exact::weighted_means(source.graph, options.fanout.len(), options.weighted.weights))
            },
        ),
    },
    Entry {
        name: "random-walk",
        summary: "the nodes that short random walks visit most, by how often (PinSAGE)",
        source: "Ying et al., KDD 2018, section 3.1",
        make: Make::Hops(
            |options, _| Ok(Box::new(random_walk::RandomWalk::new(&options.fanout, &options.walks)?)),
            |options, _| Exact::walks(&options.fanout, &options.walks),
        ),
    },
];

#[cfg(test)]
mod tests;
