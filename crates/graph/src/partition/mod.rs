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
mod metis;
mod random;
mod stream;

pub use book::PartitionBook;
pub use dir::{Description, Neighbors, Part, PartitionDir, check_target, write};

use crate::{Error, Graph, NodeId, Result, external::Watch, memory, table::Entry};

/// A way to deal the nodes of a graph to parts.
pub trait Partitioner: Send + Sync {
    /// Deals the nodes of `graph`, of which `train` (ascending) train. Tells `watch` how far it is. The same for any number of
    /// threads.
    ///
    /// # Errors
    /// There are fewer nodes than parts, the memory cannot be had, or `watch` ends the work.
    fn partition(&self, graph: &Graph, train: &[NodeId], watch: &dyn Watch) -> Result<PartitionBook>;
}

/// What the methods can be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `K`: how many parts.
    pub parts: u16,
    /// Of what is drawn.
    pub seed: u64,
    /// How far above the mean a part's nodes may be (0.1: at most 1.1 times). `random` and `hash` do as they do; `ldg` and `fennel` keep
    /// to their papers' limits where those are lower.
    pub slack: f64,
    /// As `slack`, of training nodes; for the methods that know of them: `random`, `metis` and `bgl`.
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
    pub(crate) fn check(&self, graph: &Graph, train: &[NodeId]) -> Result<()> {
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

/// The methods.
pub const TABLE: &[Entry<Make>] = &[
    Entry {
        name: "random",
        summary: "a shuffle dealt out: what the other methods are measured against",
        source: "",
        make: |options| Ok(Box::new(random::Random::new(options))),
    },
    Entry {
        name: "hash",
        summary: "a hash of the node's number: no book is needed to know a node's part",
        source: "",
        make: |options| Ok(Box::new(hash::Hash::new(options))),
    },
    Entry {
        name: "ldg",
        summary: "one pass: to the part with most neighbours, less so the fuller it is",
        source: "Stanton and Kliot, Streaming graph partitioning for large distributed graphs, KDD 2012",
        make: |options| Ok(Box::new(ldg::Ldg::new(options))),
    },
    Entry {
        name: "fennel",
        summary: "one pass: neighbours in the part less a cost that grows with its nodes",
        source: "Tsourakakis et al., Fennel: streaming graph partitioning for massive scale graphs, WSDM 2014",
        make: |options| Ok(Box::new(fennel::Fennel::new(options))),
    },
    Entry {
        name: "metis",
        summary: "multilevel k-way by the METIS library, balancing nodes and training nodes; one thread",
        source: "Karypis and Kumar, A fast and high quality multilevel scheme, SIAM J. Sci. Comput. 20(1), 1998",
        make: |options| Ok(Box::new(metis::Metis::new(options))),
    },
    Entry {
        name: "bgl",
        summary: "blocks by breadth-first search, assigned by neighbours within two hops, then refined; balances both",
        source: "Liu et al., BGL, NSDI 2023, Graph Partition Module",
        make: |options| Ok(Box::new(bgl::Bgl::new(options))),
    },
];

#[cfg(test)]
mod tests;
