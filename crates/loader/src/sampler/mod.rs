//! Samplers: from seeds to blocks.
//!
//! A [`HopSampler`] draws one hop at a time and knows no threads, devices or caches; a [`HopStack`]
//! makes minibatches from it. [`Subgraphs`] makes them from a
//! [`SubgraphSampler`](crate::subgraph::SubgraphSampler), and [`Surrounded`] adds the neighbours
//! outside of the subgraphs. Stages, devices and ranks use all as a [`MinibatchSampler`].

mod batch;
mod device;
mod edges;
mod exact_bottom;
pub mod full;
mod hop;
pub mod inference;
pub mod labor;
pub(crate) mod metapath;
pub mod neighbor;
mod normalize;
mod parts;
pub mod random_walk;
mod remaining;
mod reservoir;
mod runs;
mod scratch;
mod stack;
pub mod subgraphs;
mod surrounded;
pub mod weighted;
mod workspace;

use std::sync::Arc;

use graphmill_core::{
    Error, Graph, NodeId,
    options::{OptionGroup, OwnOptions},
    progress::{Progress, Quiet},
    table::{Entry, Table},
};

pub use batch::{BatchRequest, BlockLayout, MinibatchSampler, SamplerProperties, SplitSampler};
pub use device::{DescribeDraws, DeviceDraws, DrawMethod};
pub use edges::{EdgeNeighbors, EdgeSampled};
pub use exact_bottom::{ExactBottom, exact_bottom_block};
pub use hop::{EdgeSampler, HopProperties, HopRequest, HopSampler, NeighborAccess, StepSampler, StepSource};
use inference::InferenceNeighbors;
pub(crate) use metapath::PathStep;
pub use metapath::{PathSource, drawn_neighbor};
pub use parts::too_many;
pub use random_walk::{WalkLength, WalkOptions};
pub use remaining::{sample_remaining, sample_remaining_edges};
pub use scratch::HopScratch;
pub use stack::HopStack;
pub use subgraphs::{Estimator, NodeSets, SubgraphTraining, Subgraphs};
pub use surrounded::Surrounded;
pub use weighted::{WeightOptions, WeightedDraws, WeightedOptions};
pub(crate) use workspace::SubgraphBuffers;
pub use workspace::Workspace;

use crate::{
    Fanout, order,
    subgraph::{
        self, SubgraphContext, cluster::ClusterOptions, forest_fire::ForestFireOptions,
        frontier::FrontierOptions,
    },
};

/// Values from which samplers are made.
#[derive(Clone, Debug)]
pub struct SamplerOptions {
    /// Number of neighbours per node and hop, from the seeds outward; -1 takes all.
    pub fanout: Fanout,
    /// The run's seed, on which precomputed counts depend.
    pub seed: u64,
    /// Size of a subgraph ([`SubgraphContext::budget`]). Default 8000.
    pub budget: usize,
    /// Options of each sampler.
    pub own: OwnOptions,
    /// Part of every node ([`SubgraphContext::partition`]), read from
    /// [`ClusterOptions::clusters`].
    pub partition: Option<Arc<[u32]>>,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        let own = OwnOptions::default();
        Self { fanout: Fanout::default(), seed: 0, budget: 8000, own, partition: None }
    }
}

impl SamplerOptions {
    /// Returns the options of subgraph samplers, whose precomputations report to `progress`.
    pub fn subgraphs<'a>(&'a self, progress: &'a dyn Progress) -> SubgraphContext<'a> {
        let partition = self.partition.as_deref();
        SubgraphContext { budget: self.budget, own: &self.own, partition, progress }
    }
}

/// Data for which a sampler is made.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The graph to sample (in-neighbours).
    pub graph: &'a Graph,
    /// Distinct training nodes.
    pub train: &'a [NodeId],
    /// Number of nodes that an epoch of subgraphs holds once: those that a rank owns, or all of the
    /// graph.
    pub num_nodes: usize,
    /// Watches long precomputations, and may stop them.
    pub progress: &'a dyn Progress,
}

impl<'a> Source<'a> {
    /// Creates a source whose precomputations nothing watches.
    pub fn new(graph: &'a Graph, train: &'a [NodeId]) -> Self {
        Self { graph, train, num_nodes: graph.num_nodes(), progress: &Quiet }
    }
}

/// Constructor of a sampler that goes from seeds, hop by hop.
pub type MakeHops = fn(&SamplerOptions, &Source) -> Result<Arc<dyn HopSampler>, String>;

/// Constructor of the neighbours that inference takes instead of the draws of a sampler that goes
/// from seeds.
pub type MakeInference = fn(&SamplerOptions, &Source) -> Result<InferenceNeighbors, String>;

/// Constructors of a sampler.
#[derive(Clone, Copy)]
pub enum Make {
    /// A sampler that goes from seeds, hop by hop, and the mean of its draws for inference.
    Hops(MakeHops, MakeInference),
    /// A subgraph sampler.
    Subgraphs(subgraph::Make),
}

/// A kind of sampler: its constructors, and the general options of a run that it reads.
#[derive(Clone, Copy)]
pub struct SamplerKind {
    /// Constructors of the sampler.
    pub make: Make,
    /// True if an option bounds the draws: the fanout of a sampler that goes from seeds, or the
    /// batch size of a subgraph sampler.
    pub is_bounded: bool,
    /// Description of the draws for devices, if devices can repeat them.
    pub device_draws: Option<DescribeDraws>,
    /// True if a hop reads only the rows of its destinations, never those of their neighbours, so
    /// that it can draw by a relation between two node types ([`crate::typed`]).
    pub draws_relations: bool,
    /// True if all neighbours with equal weights are the mean of a hop's draws, so that the bottom
    /// hop may read stored aggregates instead ([`ExactBottom`]).
    pub has_exact_bottom: bool,
    /// True if the neighbours that inference takes have weights, by edges or visits, which a model
    /// that is exported without its neighbours does not know.
    pub weights_inference: bool,
    /// Edge weights that some relation of a typed graph must store, if it needs them there.
    pub needed_weights: Option<NeededWeights>,
}

/// Edge weights that a sampler needs on typed graphs. If one relation stores weights, it draws
/// uniformly from those that do not.
#[derive(Clone, Copy)]
pub struct NeededWeights {
    /// Returns true if the sampler needs weights with these options.
    pub by: fn(&OwnOptions) -> bool,
    /// Name of the row that draws uniformly in its place.
    pub uniform: &'static str,
    /// Advice if no relation stores weights.
    pub remedy: &'static str,
}

impl SamplerKind {
    /// Creates a sampler that goes from seeds, with the neighbours that inference takes instead of
    /// its draws.
    pub const fn hops(make: MakeHops, inference: MakeInference) -> Self {
        Self {
            make: Make::Hops(make, inference),
            is_bounded: true,
            device_draws: None,
            draws_relations: false,
            has_exact_bottom: false,
            weights_inference: false,
            needed_weights: None,
        }
    }

    /// Creates a subgraph sampler.
    pub const fn subgraphs(make: subgraph::Make) -> Self {
        Self {
            make: Make::Subgraphs(make),
            is_bounded: true,
            device_draws: None,
            draws_relations: false,
            has_exact_bottom: false,
            weights_inference: false,
            needed_weights: None,
        }
    }

    /// The same sampler with draws that neither a fanout nor a batch size bounds.
    #[must_use]
    pub const fn unbounded(self) -> Self {
        Self { is_bounded: false, ..self }
    }

    /// The same sampler, whose draws devices can repeat.
    #[must_use]
    pub const fn on_devices(self, describe: DescribeDraws) -> Self {
        Self { device_draws: Some(describe), ..self }
    }

    /// The same sampler, which can draw by relations between node types.
    #[must_use]
    pub const fn for_relations(self) -> Self {
        Self { draws_relations: true, ..self }
    }

    /// The same sampler, whose bottom hop may read stored aggregates.
    #[must_use]
    pub const fn with_exact_bottom(self) -> Self {
        Self { has_exact_bottom: true, ..self }
    }

    /// The same sampler, whose inference weights the neighbours.
    #[must_use]
    pub const fn weighting_inference(self) -> Self {
        Self { weights_inference: true, ..self }
    }

    /// The same sampler, which needs edge weights on typed graphs.
    #[must_use]
    pub const fn needing_weights(self, needed: NeededWeights) -> Self {
        Self { needed_weights: Some(needed), ..self }
    }

    /// Returns true if it is a subgraph sampler.
    pub fn draws_subgraphs(&self) -> bool {
        matches!(self.make, Make::Subgraphs(_))
    }

    /// Returns true if the draws depend on `option`, a general option that some samplers ignore.
    pub fn reads(&self, option: &str) -> bool {
        match option {
            "layers" | "order" | "fused" => !self.draws_subgraphs(),
            "fanout" => !self.draws_subgraphs() && self.is_bounded,
            "bottom" => self.has_exact_bottom,
            "batch_size" => !self.draws_subgraphs() || self.is_bounded,
            _ => false,
        }
    }

    /// Makes the sampler, with its precomputed tables.
    ///
    /// # Errors
    /// An option is invalid.
    pub fn make(
        &self,
        options: &SamplerOptions,
        source: &Source,
    ) -> Result<Box<dyn MinibatchSampler>, String> {
        match self.make {
            Make::Hops(make, _) => Ok(Box::new(HopStack::from(make(options, source)?))),
            Make::Subgraphs(make) => Ok(Box::new(subgraphs_of(make, options, source)?)),
        }
    }

    /// Makes the minibatches of subgraphs, without neighbours outside of them.
    ///
    /// # Errors
    /// An option is invalid, or the sampler draws hops.
    pub fn make_subgraphs(&self, options: &SamplerOptions, source: &Source) -> Result<Subgraphs, String> {
        match self.make {
            Make::Hops(..) => Err("the sampler draws hops, not subgraphs; use saint-rw".into()),
            Make::Subgraphs(make) => subgraphs_of(make, options, source),
        }
    }

    /// Makes the sampler for batches that reuse rows: a sampler of subgraphs also draws the
    /// neighbours of their nodes ([`Surrounded`]).
    ///
    /// # Errors
    /// An option is invalid.
    pub fn in_parts(
        &self,
        options: &SamplerOptions,
        source: &Source,
    ) -> Result<Box<dyn MinibatchSampler>, String> {
        match self.make {
            Make::Hops(..) => self.make(options, source),
            Make::Subgraphs(_) => {
                let subgraphs = self.make_subgraphs(options, source)?;
                Ok(Box::new(Surrounded::new(subgraphs, options.fanout.len())?))
            }
        }
    }

    /// Makes the sampler of one hop.
    ///
    /// # Errors
    /// An option is invalid, or the sampler draws subgraphs.
    pub fn hop(&self, options: &SamplerOptions, source: &Source) -> Result<Arc<dyn HopSampler>, String> {
        match self.make {
            Make::Hops(make, _) => make(options, source),
            Make::Subgraphs(_) => Err("the sampler draws whole subgraphs, not hops; use neighbor".into()),
        }
    }

    /// Makes the neighbours that inference takes: the mean of the sampler's draws.
    ///
    /// # Errors
    /// An option is invalid.
    pub fn inference(&self, options: &SamplerOptions, source: &Source) -> Result<InferenceNeighbors, String> {
        match self.make {
            Make::Hops(_, inference) => inference(options, source),
            Make::Subgraphs(_) => UNIFORM(options, source),
        }
    }
}

/// Minibatches of a subgraph sampler.
fn subgraphs_of(
    make: subgraph::Make,
    options: &SamplerOptions,
    source: &Source,
) -> Result<Subgraphs, String> {
    let training = options.own.get::<SubgraphTraining>();
    let make = |graph: &Graph, train: &[NodeId]| make(graph, train, &options.subgraphs(source.progress));
    Subgraphs::new(source, &training, options.seed, make)
}

/// All neighbours with equal weights.
const UNIFORM: MakeInference = |_, _| Ok(InferenceNeighbors::default());

/// General options of a run that decide which minibatches are drawn.
const GENERAL_DRAWS: [&str; 6] = ["sampler", "layers", "fanout", "batch_size", "max_batches", "order"];

/// Names of the options of a run that decide which minibatches are drawn: general ones, and those
/// of samplers and orders.
pub fn draws() -> Vec<&'static str> {
    let rows = TABLE.iter().map(|entry| entry.options);
    let groups = rows.chain(order::TABLE.iter().map(|entry| entry.options)).flatten();
    let mut names = GENERAL_DRAWS.to_vec();
    for key in groups.flat_map(|group| group.keys()) {
        let name = key.name.as_str();
        if !names.contains(&name) && !SubgraphTraining::NORMALIZATION.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Options of all subgraph samplers.
const TRAINING: OptionGroup = OptionGroup::of::<SubgraphTraining>();
/// Options of samplers that draw by edge weight.
const WEIGHTS: OptionGroup = OptionGroup::of::<WeightOptions>();
/// Options of samplers that walk.
const WALK_LENGTH: OptionGroup = OptionGroup::of::<WalkLength>();

/// All samplers: those that go from seeds, and those of subgraphs.
pub static TABLE: Table<SamplerKind> = Table::new(
    "sampler",
    &[
        Entry {
            name: "neighbor",
            summary: "k-hop uniform neighbour sampling without replacement",
            source: "Hamilton et al., NeurIPS 2017; FGNN section 2",
            options: &[],
            make: SamplerKind::hops(|with, _| Ok(Arc::new(neighbor::Neighbor::new(&with.fanout)?)), UNIFORM)
                .on_devices(device::neighbor)
                .for_relations()
                .with_exact_bottom(),
        },
        Entry {
            name: "full",
            summary: "all neighbours at every hop: exact, but blocks grow with the whole neighbourhood",
            source: "",
            options: &[],
            make: SamplerKind::hops(|with, _| Ok(Arc::new(full::Full::new(with.fanout.len())?)), UNIFORM)
                .unbounded()
                .on_devices(device::full)
                .for_relations()
                .with_exact_bottom(),
        },
        Entry {
            name: "weighted",
            summary: "k-hop neighbour sampling by edge weight, with or without replacement",
            source: "Walker, ACM TOMS 1977; Efraimidis and Spirakis, IPL 2006",
            options: &[WEIGHTS, OptionGroup::of::<WeightedOptions>()],
            make: SamplerKind::hops(weighted::make, inference::of_weighted)
                .on_devices(device::weighted)
                .for_relations()
                .weighting_inference()
                .needing_weights(weighted::NEEDED),
        },
        Entry {
            name: "labor",
            summary: "layer-neighbour sampling: the fanout on average, with neighbours shared in a layer",
            source: "Balin and Catalyurek, NeurIPS 2023, section 3",
            options: &[WEIGHTS, OptionGroup::of::<labor::LaborOptions>()],
            make: SamplerKind::hops(labor::make, labor::inference).for_relations().weighting_inference(),
        },
        Entry {
            name: "random-walk",
            summary: "the nodes that short random walks visit most (PinSAGE)",
            source: "Ying et al., KDD 2018, section 3.1",
            options: &[OptionGroup::of::<WalkOptions>(), WALK_LENGTH],
            make: SamplerKind::hops(random_walk::make, inference::of_walks)
                .on_devices(device::random_walk)
                .weighting_inference(),
        },
        Entry {
            name: "saint-node",
            summary: "subgraphs of nodes drawn by degree",
            source: "Zeng et al., GraphSAINT, ICLR 2020, section 3.2",
            options: &[TRAINING],
            make: SamplerKind::subgraphs(|graph, roots, with| {
                Ok(Box::new(subgraph::node::Node::new(graph, roots, with.checked_budget()?)?))
            }),
        },
        Entry {
            name: "saint-edge",
            summary: "subgraphs of edges drawn by the inverse degrees of their ends",
            source: "Zeng et al., GraphSAINT, ICLR 2020, section 3.2",
            options: &[TRAINING],
            make: SamplerKind::subgraphs(|graph, roots, with| {
                Ok(Box::new(subgraph::edge::Edge::new(graph, roots, with.checked_budget()?)?))
            }),
        },
        Entry {
            name: "saint-rw",
            summary: "subgraphs of uniform random walks from uniform roots",
            source: "Zeng et al., GraphSAINT, ICLR 2020, section 3.2",
            options: &[TRAINING, WALK_LENGTH],
            make: SamplerKind::subgraphs(|graph, roots, with| {
                let length = with.own.get::<WalkLength>().or(subgraph::random_walk::LENGTH);
                let budget = with.checked_budget()?;
                Ok(Box::new(subgraph::random_walk::RandomWalk::new(graph, roots, budget, length)?))
            }),
        },
        Entry {
            name: "frontier",
            summary: "subgraphs of a random walk of many nodes at once, popped by degree",
            source: "Ribeiro and Towsley, IMC 2010; Zeng et al., JPDC 2021, section 4",
            options: &[TRAINING, OptionGroup::of::<FrontierOptions>()],
            make: SamplerKind::subgraphs(|graph, roots, with| {
                let budget = with.checked_budget()?;
                Ok(Box::new(subgraph::frontier::Frontier::new(graph, roots, budget, &with.own.get())?))
            }),
        },
        Entry {
            name: "forest-fire",
            summary: "subgraphs of fires that spread from uniform roots to some of a node's neighbours",
            source: "Leskovec and Faloutsos, KDD 2006, section 3.3",
            options: &[TRAINING, OptionGroup::of::<ForestFireOptions>()],
            make: SamplerKind::subgraphs(|graph, roots, with| {
                let budget = with.checked_budget()?;
                Ok(Box::new(subgraph::forest_fire::ForestFire::new(graph, roots, budget, &with.own.get())?))
            }),
        },
        Entry {
            name: "cluster",
            summary: "subgraphs that are unions of a partition's parts",
            source: "Chiang et al., Cluster-GCN, KDD 2019, section 3.2",
            options: &[TRAINING, OptionGroup::of::<ClusterOptions>()],
            make: SamplerKind::subgraphs(|graph, roots, with| {
                Ok(Box::new(subgraph::cluster::Cluster::new(
                    graph,
                    roots,
                    &with.own.get(),
                    (with.partition, with.progress),
                )?))
            })
            .unbounded(),
        },
    ],
);

/// Names and constructors of the subgraph samplers in the [`TABLE`].
pub fn of_subgraphs() -> impl Iterator<Item = (&'static str, subgraph::Make)> {
    TABLE.iter().filter_map(|entry| match entry.make.make {
        Make::Subgraphs(make) => Some((entry.name, make)),
        Make::Hops(..) => None,
    })
}

/// Constructor of the subgraph sampler `name`.
///
/// # Errors
/// No subgraph sampler has that name.
pub fn find_subgraphs(name: &str) -> graphmill_core::Result<subgraph::Make> {
    of_subgraphs().find(|row| row.0 == name).map(|row| row.1).ok_or_else(|| Error::Unknown {
        axis: TABLE.axis(),
        name: name.to_string(),
        known: of_subgraphs().map(|row| row.0).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests;
