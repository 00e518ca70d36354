//! Partitioning: every node of a graph is given to one of `K` parts, so that each of several machines holds one.
//!
//! A [`Partitioner`] makes a [`PartitionBook`] of a graph and its training nodes; [`TABLE`] holds the methods. [`write()`]
//! writes what a training run over several machines opens, and [`PartitionDir`] opens it.
//!
//! What a good partition is: parts of about as many nodes (memory) and training nodes (work), and few of the rows and
//! neighbours that a minibatch asks for with another machine (traffic).

mod bgl;
mod book;
mod dir;
mod fennel;
mod hash;
mod ldg;
mod limits;
#[cfg(feature = "metis")]
mod metis;
mod random;
mod stream;

pub use book::PartitionBook;
pub use dir::{Description, Neighbors, Part, PartitionDir, check_target, write};

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
    /// Assigns the nodes of `graph`, of which `train` (ascending) are training nodes, and reports to `progress`. The result does
    /// not depend on the number of threads.
    ///
    /// # Errors
    /// There are fewer nodes than parts, the memory cannot be had, or `progress` ends the work.
    fn partition(&self, graph: &Graph, train: &[NodeId], progress: &dyn Progress) -> Result<PartitionBook>;
}

/// What the methods can be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `K`: how many parts.
    pub parts: u16,
    /// Of what is drawn.
    pub seed: u64,
    /// How far above the mean a part's nodes may be (0.1: at most 1.1 times), for the methods whose row of [`TABLE`] lists it.
    pub slack: f64,
    /// As `slack`, of training nodes.
    pub train_slack: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { parts: 2, seed: 0, slack: 0.1, train_slack: 0.05 }
    }
}

impl Options {
    /// Refuses what no method can do.
    ///
    /// # Errors
    /// There are no parts, or more than nodes; a training node is none.
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
            Some(v) => Err(Error::invalid(format!("node {v} trains, but there are {nodes} nodes"))),
            None => Ok(()),
        }
    }
}

/// Whether each of `nodes` nodes is among `train`.
fn trains(nodes: usize, train: &[NodeId]) -> Result<Vec<bool>> {
    let mut trains: Vec<bool> = memory::zeroed(nodes)?;
    train.iter().for_each(|&v| trains[v as usize] = true);
    Ok(trains)
}

/// Makes a partitioner that does as the options say.
pub type Make = fn(&Options) -> Result<Box<dyn Partitioner>>;

/// The counts of a part that a method bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// None: nodes are assigned one by one, and parts are even by chance or by construction.
    None,
    /// Nodes, by [`Options::slack`].
    Nodes,
    /// Nodes and, by [`Options::train_slack`], training nodes.
    NodesAndTraining,
}

/// A method.
#[derive(Clone, Copy)]
pub struct Method {
    /// The constructor.
    pub make: Make,
    /// The counts of a part that it bounds.
    pub bounds: Bounds,
}

impl Method {
    /// A method that bounds these counts of a part.
    pub const fn new(make: Make, bounds: Bounds) -> Self {
        Self { make, bounds }
    }

    /// Whether it reads the limit called `option`: `slack` or `train_slack`.
    pub fn reads(&self, option: &str) -> bool {
        match option {
            "slack" => self.bounds != Bounds::None,
            "train_slack" => self.bounds == Bounds::NodesAndTraining,
            _ => false,
        }
    }
}

/// The methods.
pub static TABLE: Table<Method> = Table::new(
    "method",
    &[
        Entry {
            name: "random",
            summary: "a shuffle dealt out: what the other methods are measured against",
            source: "",
            options: &[],
            make: Method::new(|options| Ok(Box::new(random::Random::new(options))), Bounds::None),
        },
        Entry {
            name: "hash",
            summary: "a hash of the node's number: no book is needed to know a node's part",
            source: "",
            options: &[],
            make: Method::new(|options| Ok(Box::new(hash::Hash::new(options))), Bounds::None),
        },
        Entry {
            name: "ldg",
            summary: "one pass: to the part with most neighbours, less so the fuller it is",
            source: "Stanton and Kliot, Streaming graph partitioning for large distributed graphs, KDD 2012",
            options: &[],
            make: Method::new(|options| Ok(Box::new(ldg::Ldg::new(options))), Bounds::None),
        },
        Entry {
            name: "fennel",
            summary: "one pass: neighbours in the part less a cost that grows with its nodes",
            source: "Tsourakakis et al., Fennel: streaming graph partitioning for massive scale graphs, WSDM 2014",
            options: &[],
            make: Method::new(|options| Ok(Box::new(fennel::Fennel::new(options))), Bounds::Nodes),
        },
        #[cfg(feature = "metis")]
        Entry {
            name: "metis",
            summary: "multilevel k-way by the METIS library, balancing nodes and training nodes; one thread",
            source: "Karypis and Kumar, A fast and high quality multilevel scheme, SIAM J. Sci. Comput. 20(1), 1998",
            options: &[],
            make: Method::new(|options| Ok(Box::new(metis::Metis::new(options))), Bounds::NodesAndTraining),
        },
        Entry {
            name: "bgl",
            summary: "blocks by breadth-first search, assigned by neighbours within two hops, then refined; balances both",
            source: "Liu et al., BGL, NSDI 2023, Graph Partition Module",
            options: &[],
            make: Method::new(|options| Ok(Box::new(bgl::Bgl::new(options))), Bounds::NodesAndTraining),
        },
    ],
);

#[cfg(test)]
mod tests;
