//! Seeds to blocks.
//!
//! A [`HopSampler`] draws one hop at a time and knows no thread, device or cache; a [`HopStack`] makes minibatches of
//! it. [`Subgraphs`] makes them of a [`SubgraphSampler`](crate::subgraph::SubgraphSampler). Stages, devices and ranks
//! know both as a [`MinibatchSampler`].

mod batch;
pub mod full;
mod hop;
pub mod inference;
pub mod labor;
pub mod neighbor;
mod normalize;
mod parts;
pub mod random_walk;
mod reservoir;
mod runs;
mod scratch;
mod stack;
pub mod subgraphs;
pub mod weighted;
mod workspace;

use std::sync::Arc;

use graphmill_core::{
    Error, Graph, NodeId,
    table::{Entry, Table},
};

pub use batch::{BatchRequest, BlockLayout, MinibatchSampler, SamplerProperties, SplitSampler};
pub use hop::{HopProperties, HopRequest, HopSampler};
use inference::InferenceNeighbors;
pub use parts::too_many;
pub use random_walk::WalkOptions;
pub use scratch::HopScratch;
pub use stack::HopStack;
pub use subgraphs::{Estimator, SubgraphTraining, Subgraphs};
pub use weighted::{WeightedDraws, WeightedOptions};
pub use workspace::Workspace;

use crate::{
    Fanout,
    subgraph::{self, SubgraphOptions},
};

/// What a sampler is made from. One struct serves all; each reads what concerns it.
#[derive(Clone, Debug, Default)]
pub struct SamplerOptions {
    /// Neighbours per node per hop, from the seeds outward; -1 takes all.
    pub fanout: Fanout,
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
    /// The graph to sample (in-neighbours).
    pub graph: &'a Graph,
    /// The nodes that train, distinct.
    pub train: &'a [NodeId],
}

/// Makes a sampler that goes from seeds.
pub type MakeHops = fn(&SamplerOptions, &Source) -> Result<Arc<dyn HopSampler>, String>;

/// Makes the neighbours that inference takes instead of the draws of a sampler that goes from seeds.
pub type MakeInference = fn(&SamplerOptions, &Source) -> Result<InferenceNeighbors, String>;

/// Makes a sampler, or says in one sentence what is wrong with the options.
#[derive(Clone, Copy)]
pub enum Make {
    /// A sampler that goes from seeds, hop by hop, and the mean of its draws.
    Hops(MakeHops, MakeInference),
    /// A sampler that draws subgraphs.
    Subgraphs(subgraph::Make),
}

impl Make {
    /// The sampler. Tables that it reads often are made now.
    ///
    /// # Errors
    /// An option is impossible.
    pub fn make(
        &self,
        options: &SamplerOptions,
        source: &Source,
    ) -> Result<Box<dyn MinibatchSampler>, String> {
        match self {
            Self::Hops(make, _) => Ok(Box::new(HopStack::from(make(options, source)?))),
            Self::Subgraphs(make) => {
                let make = |graph: &Graph, train: &[NodeId]| make(graph, train, &options.subgraph);
                let made = Subgraphs::new(source.graph, source.train, &options.training, options.seed, make)?;
                Ok(Box::new(made))
            }
        }
    }

    /// The sampler of one hop.
    ///
    /// # Errors
    /// An option is impossible, or it is a sampler of subgraphs.
    pub fn hops(&self, options: &SamplerOptions, source: &Source) -> Result<Arc<dyn HopSampler>, String> {
        match self {
            Self::Hops(make, _) => make(options, source),
            Self::Subgraphs(_) => Err("it draws whole subgraphs, not hops; use neighbor".into()),
        }
    }

    /// The neighbours that inference takes: the mean of the sampler's draws.
    ///
    /// # Errors
    /// An option is impossible.
    pub fn inference(&self, options: &SamplerOptions, source: &Source) -> Result<InferenceNeighbors, String> {
        match self {
            Self::Hops(_, inference) => inference(options, source),
            Self::Subgraphs(_) => UNIFORM(options, source),
        }
    }
}

/// All neighbours, each with the same weight.
const UNIFORM: MakeInference = |_, _| Ok(InferenceNeighbors::default());

/// Options that decide which minibatches are drawn.
pub const DRAWS: &[&str] = &[
    "sampler",
    "layers",
    "fanout",
    "batch_size",
    "max_batches",
    "order",
    "order_sequences",
    "inductive",
    "replace",
    "edge_weights",
    "draw_by",
    "labor_iterations",
    "walks",
    "restart",
    "walk_length",
    "frontier_size",
    "pop_by",
    "eta",
    "degree_cap",
    "burning",
    "parts",
    "parts_per_batch",
];

/// Every sampler: those that go from seeds, and those of subgraphs.
pub static TABLE: Table<Make> = Table::new("sampler", ROWS);

/// The built-in samplers.
const ROWS: &[Entry<Make>] = &{
    const HOPS: usize = BY_HOPS.len();
    let mut all = [BY_HOPS[0]; HOPS + subgraph::ROWS.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < HOPS {
            BY_HOPS[i]
        } else {
            let Entry { name, summary, source, options, make } = subgraph::ROWS[i - HOPS];
            Entry { name, summary, source, options, make: Make::Subgraphs(make) }
        };
        i += 1;
    }
    all
};

/// The names and constructors of the samplers of subgraphs in the [`TABLE`].
pub fn of_subgraphs() -> impl Iterator<Item = (&'static str, subgraph::Make)> {
    TABLE.iter().filter_map(|entry| match entry.make {
        Make::Subgraphs(make) => Some((entry.name, make)),
        Make::Hops(..) => None,
    })
}

/// The constructor of the sampler of subgraphs called `name`.
///
/// # Errors
/// No sampler of subgraphs has that name.
pub fn find_subgraphs(name: &str) -> graphmill_core::Result<subgraph::Make> {
    of_subgraphs().find(|row| row.0 == name).map(|row| row.1).ok_or_else(|| Error::Unknown {
        axis: TABLE.axis(),
        name: name.to_string(),
        known: of_subgraphs().map(|row| row.0).collect::<Vec<_>>().join(", "),
    })
}

/// The samplers that go from seeds.
const BY_HOPS: &[Entry<Make>] = &[
    Entry {
        name: "neighbor",
        summary: "k-hop uniform neighbour sampling without replacement",
        source: "Hamilton et al., NeurIPS 2017; FGNN section 2",
        options: &["layers", "batch_size", "order", "fused", "fanout"],
        make: Make::Hops(|options, _| Ok(Arc::new(neighbor::Neighbor::new(&options.fanout)?)), UNIFORM),
    },
    Entry {
        name: "full",
        summary: "every neighbour at every hop: exact, and as large as it sounds",
        source: "",
        options: &["layers", "batch_size", "order", "fused"],
        make: Make::Hops(|options, _| Ok(Arc::new(full::Full::new(options.fanout.len())?)), UNIFORM),
    },
    Entry {
        name: "weighted",
        summary: "k-hop neighbour sampling by edge weight, with or without replacement",
        source: "Walker, ACM TOMS 1977; Efraimidis and Spirakis, IPL 2006",
        options: &["layers", "batch_size", "order", "fused", "fanout", "replace", "edge_weights", "draw_by"],
        make: Make::Hops(
            |options, source| {
                options.weighted.check(source.graph)?;
                Ok(Arc::new(weighted::Weighted::new(source.graph, &options.fanout, &options.weighted)?))
            },
            |options, source| InferenceNeighbors::weighted(source.graph, &options.fanout, &options.weighted),
        ),
    },
    Entry {
        name: "labor",
        summary: "layer-neighbour sampling: as many neighbours on average, shared by the nodes of a layer",
        source: "Balin and Catalyurek, NeurIPS 2023, section 3",
        options: &["layers", "batch_size", "order", "fused", "fanout", "edge_weights", "labor_iterations"],
        make: Make::Hops(
            |options, source| {
                let labor = labor::LaborOptions {
                    iterations: options.labor_iterations,
                    weights: options.weighted.weights,
                };
                Ok(Arc::new(labor::Labor::with_options(source.graph, &options.fanout, &labor)?))
            },
            |options, source| {
                Ok(InferenceNeighbors::weighted_means(
                    source.graph,
                    options.fanout.len(),
                    options.weighted.weights,
                ))
            },
        ),
    },
    Entry {
        name: "random-walk",
        summary: "the nodes that short random walks visit most, by how often (PinSAGE)",
        source: "Ying et al., KDD 2018, section 3.1",
        options: &["layers", "batch_size", "order", "fused", "fanout", "walks", "restart", "walk_length"],
        make: Make::Hops(
            |options, _| Ok(Arc::new(random_walk::RandomWalk::new(&options.fanout, &options.walks)?)),
            |options, _| InferenceNeighbors::walks(&options.fanout, &options.walks),
        ),
    },
];

#[cfg(test)]
mod tests;
