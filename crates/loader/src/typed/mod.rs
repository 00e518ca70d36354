//! Minibatches of typed graphs: seeds of several node types, sampled typed blocks, extracted rows.
//!
//! A [`TypedSampler`] draws a [`TypedSampled`] batch from [`TypedSeeds`], and a feature table for
//! each node type returns its rows. All ids of a batch are local to their types.
//!
//! ```
//! use graphmill_core::typed::{NodeType, Relation, Schema, TypedGraph, bipartite};
//! use graphmill_loader::{
//!     BatchKey,
//!     typed::{TABLE, TypedOptions, TypedRequest, TypedSeeds, TypedWorkspace},
//! };
//!
//! let types = vec![NodeType::new("author", 2), NodeType::new("paper", 3)];
//! let relations = vec![Relation::new(0, "writes", 1), Relation::new(1, "written-by", 0)];
//! let schema = Schema::new(types, relations)?;
//! let (authors, papers) = ([0, 0, 1], [0, 2, 2]);
//! let writes = bipartite(2, 3, &authors, &papers)?;
//! let written = bipartite(3, 2, &papers, &authors)?;
//! let graph = TypedGraph::new(schema, vec![writes, written])?;
//!
//! let options = TypedOptions { fanout: "5,5".parse().expect("two numbers"), ..TypedOptions::default() };
//! let sampler = (TABLE.find("neighbor")?.make.make)(&options, &graph).expect("a sampler of this graph");
//! let mut workspace = TypedWorkspace::new(graph.schema());
//! // two hops around author 1 and paper 0
//! let seeds = TypedSeeds::new(0, vec![vec![1], vec![0]]);
//! let request = TypedRequest::new(&graph, BatchKey { seed: 1, epoch: 0, batch: 0 });
//! let batch = sampler.sample(&request, &mut workspace, seeds)?;
//! assert_eq!(batch.blocks.len(), 2);
//! assert_eq!(batch.blocks[1].num_dst, [1, 1]);
//! // the seeds come first in their types
//! assert_eq!(batch.input_nodes, [vec![1, 0], vec![0, 2]]);
//! # Ok::<(), graphmill_core::Error>(())
//! ```
//!
//! Draws are functions of (seed, relation, epoch, batch, hop, node), so batches are the same for
//! any number of threads. If the draws of a node do not depend on other nodes
//! ([`TypedSampler::is_per_node`]), the edges around seeds of several types are the union of those
//! around the seeds of each type alone. A graph of one type does not pass through this module.

#![forbid(unsafe_code)]

mod batch;
mod fanout;
mod hgt;
mod metapath;
mod relations;
mod sampler;
mod subgraphs;
mod union_buffers;

pub use batch::{TypedExtracted, TypedSampled, TypedSeeds};
pub use fanout::TypedFanout;
pub use hgt::{Hgt, HgtOptions};
pub(crate) use hgt::{race, race_key};
pub use metapath::{MetapathOptions, MetapathWalk};
pub use relations::RelationHops;
pub(crate) use relations::RelationKinds;
pub(crate) use sampler::cannot_name_edges;
pub use sampler::{
    TypedOptions, TypedRequest, TypedSampler, TypedSplitSampler, TypedWorkspace, WrapHops, unreached_types,
};
pub use subgraphs::TypedSubgraphs;

use graphmill_core::{
    options::OptionGroup,
    table::{Entry, Table},
    typed::{Relation, Schema, TypedGraph},
};

use crate::{
    sampler::{
        SubgraphTraining, WeightOptions, WeightedOptions,
        labor::LaborOptions,
        random_walk::{WalkLength, WalkOptions},
    },
    time::{self, AtTimes},
};

/// Constructor of a typed sampler.
pub type Make = fn(&TypedOptions, &TypedGraph) -> Result<Box<dyn TypedSampler>, String>;

/// Relations that a sampler adds to the graph, for seeds of some types.
pub type Added = fn(&TypedOptions, &Schema, &[usize]) -> Result<Vec<Relation>, String>;

/// A kind of typed sampler.
#[derive(Clone, Copy)]
pub struct TypedKind {
    /// Constructor of the sampler.
    pub make: Make,
    /// True if the fanout counts nodes of each type, false if it counts neighbours by each
    /// relation.
    pub counts_nodes: bool,
    /// True if its blocks can name their edges ([`TypedRequest::positions`]), which models with
    /// edge features need.
    pub names_edges: bool,
    /// Relations of its neighbours to add to the graph, if no relation of the graph has them: the
    /// sampler draws other edges than the stored ones. Inference draws the same ones then.
    pub added: Option<Added>,
    /// True if its minibatches are subgraphs that choose their own seeds
    /// ([`TypedSampler::subgraphs`]). Only the length of the fanout counts then.
    pub draws_subgraphs: bool,
    /// True if it draws neighbours by the stored weights of their edges, so that all neighbours
    /// with equal weights are not the mean of its draws.
    pub draws_by_weight: bool,
    /// Draws at the times of the seeds, if no draw reads edges that a seed does not see.
    pub at_times: Option<AtTimes>,
}

impl TypedKind {
    const fn new(make: Make) -> Self {
        Self {
            make,
            counts_nodes: false,
            names_edges: false,
            added: None,
            draws_subgraphs: false,
            draws_by_weight: false,
            at_times: None,
        }
    }

    const fn subgraphs(make: Make) -> Self {
        Self { draws_subgraphs: true, ..Self::new(make).naming_edges() }
    }

    const fn naming_edges(self) -> Self {
        Self { names_edges: true, ..self }
    }

    const fn by_weight(self) -> Self {
        Self { draws_by_weight: true, ..self }
    }

    const fn at_times(self, at_times: AtTimes) -> Self {
        Self { at_times: Some(at_times), ..self }
    }
}

/// Table of the typed samplers.
pub static TABLE: Table<TypedKind> = Table::new(
    "typed sampler",
    &[
        Entry {
            name: "neighbor",
            summary: "k-hop uniform neighbour sampling without replacement, by each relation",
            source: "Hamilton et al., NeurIPS 2017; Schlichtkrull et al., ESWC 2018",
            options: &[],
            make: TypedKind::new(|with, graph| relations::make("neighbor", with, graph))
                .naming_edges()
                .at_times(AtTimes::by_draw(time::timed::neighbor)),
        },
        Entry {
            name: "full",
            summary: "all neighbours by each relation at every hop",
            source: "",
            options: &[],
            make: TypedKind::new(|with, graph| relations::make("full", with, graph))
                .naming_edges()
                .at_times(AtTimes::by_draw(time::timed::full)),
        },
        Entry {
            name: "weighted",
            summary: "k-hop neighbour sampling by edge weight, with or without replacement, by each relation",
            source: "Walker, ACM TOMS 1977; Efraimidis and Spirakis, IPL 2006",
            options: &[OptionGroup::of::<WeightOptions>(), OptionGroup::of::<WeightedOptions>()],
            make: TypedKind::new(|with, graph| relations::make("weighted", with, graph))
                .by_weight()
                .at_times(AtTimes::own(|with, graph| time::hops::make("weighted", with, graph))),
        },
        Entry {
            name: "labor",
            summary: "layer-neighbour sampling: relations from the same source type share neighbours",
            source: "Balin and Catalyurek, NeurIPS 2023, section 3",
            options: &[OptionGroup::of::<WeightOptions>(), OptionGroup::of::<LaborOptions>()],
            make: TypedKind::new(|with, graph| relations::make_sharing("labor", with, graph))
                .by_weight()
                .at_times(AtTimes::own(|with, graph| time::hops::make_sharing("labor", with, graph))),
        },
        Entry {
            name: "hgt",
            summary: "HGSampling: a number of nodes of each type per hop, drawn by their connections",
            source: "Hu, Dong, Wang and Sun, WWW 2020, algorithm 1",
            options: &[OptionGroup::of::<HgtOptions>()],
            make: TypedKind { counts_nodes: true, ..TypedKind::new(hgt::make) }
                .at_times(AtTimes::own(time::hgt::make)),
        },
        Entry {
            name: "metapath-walk",
            summary: "PinSAGE along metapaths: the nodes of the same type that random walks visit most",
            source: "Ying et al., KDD 2018, section 3.1; DGL's PinSAGESampler",
            options: &[
                OptionGroup::of::<MetapathOptions>(),
                OptionGroup::of::<WalkOptions>(),
                OptionGroup::of::<WalkLength>(),
            ],
            make: TypedKind { added: Some(metapath::added), ..TypedKind::new(metapath::make) }
                .at_times(AtTimes::own(time::walks::make)),
        },
        Entry {
            name: "saint-node",
            summary: "subgraphs of nodes of all types drawn by degree",
            source: "Zeng et al., GraphSAINT, ICLR 2020, section 3.2",
            options: &[TRAINING],
            make: TypedKind::subgraphs(subgraphs::node),
        },
        Entry {
            name: "saint-edge",
            summary: "subgraphs of edges of all types drawn by the inverse degrees of their ends",
            source: "Zeng et al., GraphSAINT, ICLR 2020, section 3.2",
            options: &[TRAINING],
            make: TypedKind::subgraphs(subgraphs::edge),
        },
        Entry {
            name: "saint-rw",
            summary: "subgraphs of uniform random walks over all edge types from training nodes",
            source: "Zeng et al., GraphSAINT, ICLR 2020, section 3.2",
            options: &[TRAINING, OptionGroup::of::<WalkLength>()],
            make: TypedKind::subgraphs(subgraphs::walk),
        },
    ],
);

/// Options of samplers of subgraphs.
const TRAINING: OptionGroup = OptionGroup::of::<SubgraphTraining>();

/// The graph `graph` with the relations that the sampler `name` adds for seeds of the types
/// `seeds`.
///
/// # Errors
/// An unknown name or an impossible option.
pub fn with_added(
    name: &str,
    with: &TypedOptions,
    graph: TypedGraph,
    seeds: &[usize],
) -> Result<TypedGraph, String> {
    let row = TABLE.find(name).map_err(|e| e.to_string())?;
    let Some(added) = row.make.added else { return Ok(graph) };
    let relations = added(with, graph.schema(), seeds)?;
    graph.with_empty(relations).map_err(|e| e.to_string())
}

/// Names of the samplers that draw at times and for which `has` is true.
pub fn names_at_times(has: impl Fn(&AtTimes) -> bool) -> Vec<&'static str> {
    TABLE.iter().filter(|row| row.make.at_times.as_ref().is_some_and(&has)).map(|row| row.name).collect()
}

#[cfg(test)]
mod tests;
