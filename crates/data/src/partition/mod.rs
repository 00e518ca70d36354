//! Partitioning: assignment of every node of a graph to one of `K` parts, one per machine.
//!
//! A [`Partitioner`] computes a [`PartitionBook`] from a graph and its training nodes; [`TABLE`]
//! lists the methods, and [`KnownParts`] keeps the parts of an earlier partition. [`write()`]
//! writes the directory that distributed training opens as a [`PartitionDir`]. A dataset of several
//! types is partitioned by the union of its relations, over the ids that its types share, and
//! written by [`write_types`] as a [`TypedPartitionDir`].
//!
//! A good partition balances nodes (memory) and training nodes (work) and minimizes the rows and
//! neighbours that a minibatch requests from other machines (traffic).

mod bgl;
mod book;
mod dir;
mod fennel;
mod gminer;
mod hash;
mod ldg;
mod like;
mod limits;
#[cfg(feature = "metis")]
mod metis;
mod pagraph;
mod random;
mod stream;
mod typed;

pub use book::PartitionBook;
pub use dir::{Description, Neighbors, Part, PartAggregates, PartitionDir, ReadRows, check_target, write};
pub use like::KnownParts;
pub use typed::{EdgeTypeCounts, TypedPart, TypedPartitionDir, write_types};

use graphmill_core::{
    Error, Graph, NodeId, Result, memory,
    progress::Progress,
    table::{Entry, Table},
};

/// A method that assigns every node of a graph to a part.
///
/// ```
/// use graphmill_core::{EdgeOptions, Graph, NodeId, Result, build, progress::{Progress, Quiet}};
/// use graphmill_data::partition::{Options, PartitionBook, Partitioner};
///
/// /// Equal runs of node ids: a good partition if nearby nodes have nearby ids.
/// struct Runs(Options);
///
/// impl Partitioner for Runs {
///     fn partition(&self, graph: &Graph, train: &[NodeId], _: &dyn Progress) -> Result<PartitionBook> {
///         self.0.check(graph, train)?;
///         let (parts, nodes) = (self.0.parts as usize, graph.num_nodes());
///         let part_of: Vec<u16> = (0..nodes).map(|v| (v * parts / nodes) as u16).collect();
///         PartitionBook::new(self.0.parts, part_of)
///     }
/// }
///
/// let path = build(6, &[0, 1, 2, 3, 4], &[1, 2, 3, 4, 5], EdgeOptions::UNDIRECTED)?;
/// let book = Runs(Options { parts: 3, ..Options::default() }).partition(&path, &[], &Quiet)?;
/// assert_eq!((book.part_of(1), book.part_of(2)), (0, 1));
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait Partitioner: Send + Sync {
    /// Assigns the nodes of `graph`, of which `train` (ascending) are training nodes, and reports
    /// to `progress`. The result does not depend on the number of threads.
    ///
    /// # Errors
    /// The graph has fewer nodes than parts, an allocation fails, or `progress` cancels the work.
    fn partition(&self, graph: &Graph, train: &[NodeId], progress: &dyn Progress) -> Result<PartitionBook>;
}

/// Options of the partitioners.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Number of parts, `K`.
    pub parts: u16,
    /// Seed of all random draws.
    pub seed: u64,
    /// Allowed excess of a part's nodes over the mean (0.1: at most 1.1 times), for the methods
    /// whose row of [`TABLE`] lists it.
    pub slack: f64,
    /// Allowed excess of a part's training nodes over the mean.
    pub train_slack: f64,
    /// If true, a method whose row of [`TABLE`] can refine moves nodes after the assignment.
    pub refine: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { parts: 2, seed: 0, slack: 0.1, train_slack: 0.05, refine: true }
    }
}

impl Options {
    /// Checks the preconditions of all methods.
    ///
    /// # Errors
    /// The number of parts is zero or exceeds the nodes; a training node is out of range.
    pub fn check(&self, graph: &Graph, train: &[NodeId]) -> Result<()> {
        let nodes = graph.num_nodes();
        if self.parts == 0 || usize::from(self.parts) > nodes {
            let parts = self.parts;
            return Err(Error::invalid(format!(
                "{parts} parts of a graph of {nodes} nodes: give 1 to {}",
                nodes.min(u16::MAX.into())
            )));
        }
        match train.iter().find(|&&v| v as usize >= nodes) {
            Some(v) => {
                Err(Error::invalid(format!("training node {v} is out of range: the graph has {nodes} nodes")))
            }
            None => Ok(()),
        }
    }
}

/// Flags the nodes in `train`.
fn trains(nodes: usize, train: &[NodeId]) -> Result<Vec<bool>> {
    let mut trains: Vec<bool> = memory::zeroed(nodes)?;
    train.iter().for_each(|&v| trains[v as usize] = true);
    Ok(trains)
}

/// Constructor of a partitioner from options.
pub type Make = fn(&Options) -> Result<Box<dyn Partitioner>>;

/// Counts of a part that a method bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// None: nodes are assigned one by one, and parts are even by chance or by construction.
    None,
    /// Nodes, by [`Options::slack`].
    Nodes,
    /// Nodes and, by [`Options::train_slack`], training nodes.
    NodesAndTraining,
}

/// Partitioning method.
#[derive(Clone, Copy)]
pub struct Method {
    /// Constructor.
    pub make: Make,
    /// Counts of a part that it bounds.
    pub bounds: Bounds,
    /// True if [`Options::refine`] selects whether it refines.
    pub can_refine: bool,
}

impl Method {
    /// Creates a method that bounds these counts of a part.
    pub const fn new(make: Make, bounds: Bounds) -> Self {
        Self { make, bounds, can_refine: false }
    }

    /// The same method, which reads [`Options::refine`].
    #[must_use]
    pub const fn with_refinement(self) -> Self {
        Self { can_refine: true, ..self }
    }

    /// Returns true if the method reads `option`: `slack`, `train_slack` or `refine`.
    pub fn reads(&self, option: &str) -> bool {
        match option {
            "slack" => self.bounds != Bounds::None,
            "train_slack" => self.bounds == Bounds::NodesAndTraining,
            "refine" => self.can_refine,
            _ => false,
        }
    }
}

/// Partitioning methods.
pub static TABLE: Table<Method> = Table::new(
    "method",
    &[
        Entry {
            name: "random",
            summary: "random assignment: the baseline of the other methods",
            source: "",
            options: &[],
            make: Method::new(|options| Ok(Box::new(random::Random::new(options))), Bounds::None),
        },
        Entry {
            name: "hash",
            summary: "a hash of the node id: computable without a partition book",
            source: "",
            options: &[],
            make: Method::new(|options| Ok(Box::new(hash::Hash::new(options))), Bounds::None),
        },
        Entry {
            name: "ldg",
            summary: "one pass: each node to the part with most neighbours, discounted as the part fills",
            source: "Stanton and Kliot, Streaming graph partitioning for large distributed graphs, KDD 2012",
            options: &[],
            make: Method::new(|options| Ok(Box::new(ldg::Ldg::new(options))), Bounds::None),
        },
        Entry {
            name: "fennel",
            summary: "one pass: neighbours in the part minus a cost that grows with its nodes",
            source: "Tsourakakis et al., Fennel: streaming graph partitioning for massive scale graphs, WSDM \
                2014",
            options: &[],
            make: Method::new(|options| Ok(Box::new(fennel::Fennel::new(options))), Bounds::Nodes),
        },
        Entry {
            name: "gminer",
            summary: "breadth-first blocks from random sources, assigned by neighbours and free capacity",
            source: "Chen et al., G-Miner, EuroSys 2018, block-based deterministic greedy partitioning",
            options: &[],
            make: Method::new(|options| Ok(Box::new(gminer::GMiner::new(options))), Bounds::Nodes),
        },
        Entry {
            name: "pagraph",
            summary: "training nodes by their neighbours in the part, balanced; the other nodes as ldg does",
            source: "Lin et al., PaGraph, SoCC 2020, data partitioning",
            options: &[],
            make: Method::new(|options| Ok(Box::new(pagraph::PaGraph::new(options))), Bounds::None),
        },
        #[cfg(feature = "metis")]
        Entry {
            name: "metis",
            summary: "multilevel k-way by the METIS library; balances nodes and training nodes; \
                single-threaded",
            source: "Karypis and Kumar, A fast and high quality multilevel scheme, SIAM J. Sci. Comput. \
                20(1), 1998",
            options: &[],
            make: Method::new(|options| Ok(Box::new(metis::Metis::new(options))), Bounds::NodesAndTraining),
        },
        Entry {
            name: "bgl",
            summary: "breadth-first blocks, assigned by two-hop neighbours, then refined; balances nodes and \
                training nodes",
            source: "Liu et al., BGL, NSDI 2023, Graph Partition Module",
            options: &[],
            make: Method::new(|options| Ok(Box::new(bgl::Bgl::new(options))), Bounds::NodesAndTraining)
                .with_refinement(),
        },
    ],
);

#[cfg(test)]
mod tests;
