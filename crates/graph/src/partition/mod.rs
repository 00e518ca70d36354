//! Partitioning: every node of a graph is given to one of `K` parts, so that each of several machines holds one.
//!
//! A [`Partitioner`] makes a [`PartitionBook`] of a graph and its training nodes; [`TABLE`] holds the methods. [`write()`]
//! writes what a training run over several machines opens, and [`PartitionDir`] opens it.
//!
//! What a good partition is: parts of about as many nodes (memory) and training nodes (work), and few of the rows and
//! neighbours that a minibatch asks for with another machine (traffic).

mod book;
mod dir;
mod random;

pub use book::PartitionBook;
pub use dir::{Description, Neighbors, Part, PartitionDir, write};

use crate::{Error, Graph, NodeId, Result, external::Watch, memory, table::Entry};

/// A way to deal the nodes of a graph to parts.
pub trait Partitioner: Send + Sync {
    /// Deals the nodes of `graph`, of which `train` (ascending) train. Tells `watch` how far it is. The same for any number of
    /// threads.
    ///
    /// # Errors
    /// There are fewer nodes than parts, or the memory cannot be had.
    fn partition(&self, graph: &Graph, train: &[NodeId], watch: &dyn Watch) -> Result<PartitionBook>;
}

/// What the methods can be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `K`: how many parts.
    pub parts: u16,
    /// Of what is drawn.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { parts: 2, seed: 0 }
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
pub const TABLE: &[Entry<Make>] = &[Entry {
    name: "random",
    summary: "a shuffle dealt out: what the other methods are measured against",
    source: "",
    make: |options| Ok(Box::new(random::Random::new(options))),
}];

#[cfg(test)]
mod tests;
