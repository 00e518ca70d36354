//! Which seeds come when: a permutation of the training nodes per epoch, cut into batches.

pub mod proximity;
pub mod random;
pub mod sequential;
mod shuffling;

use graphmill_core::{
    Graph, Labels, NodeId,
    table::{Entry, Table},
};

pub use shuffling::shuffling_error;

/// An ordering of the training nodes, with what it prepared for it.
///
/// ```
/// use graphmill_core::NodeId;
/// use graphmill_loader::order::Order;
///
/// /// Ascending ids in even epochs, descending ids in odd ones.
/// struct BackAndForth(Vec<NodeId>);
///
/// impl Order for BackAndForth {
///     fn order(&self, epoch: u64, out: &mut Vec<NodeId>) {
///         out.clone_from(&self.0);
///         if epoch % 2 == 1 {
///             out.reverse();
///         }
///     }
/// }
///
/// let mut seeds = Vec::new();
/// BackAndForth(vec![2, 5, 7]).order(1, &mut seeds);
/// assert_eq!(seeds, [7, 5, 2]);
/// ```
pub trait Order: Send + Sync {
    /// Writes an epoch's order to `out`: each training node once. The same for any number of threads.
    fn order(&self, epoch: u64, out: &mut Vec<NodeId>);

    /// What was chosen by itself, in a sentence for the user.
    fn choice(&self) -> Option<String> {
        None
    }
}

/// What an order is made from. One struct serves all; each reads what concerns it.
#[derive(Clone, Copy, Debug, Default)]
pub struct OrderOptions {
    /// The run's seed.
    pub seed: u64,
    /// Seeds per batch.
    pub batch_size: usize,
    /// Sequences that are interleaved; 0 for as many as batches need to be mixed well (proximity).
    pub sequences: usize,
}

/// What an order is made for.
#[derive(Clone, Copy, Debug)]
pub struct OrderSource<'a> {
    /// Who hears from whom.
    pub graph: &'a Graph,
    /// What the nodes are.
    pub labels: &'a Labels,
    /// The nodes that train, distinct.
    pub train: &'a [NodeId],
}

/// Makes an order, or says in one sentence what is wrong with the options.
pub type Make = for<'a> fn(&OrderOptions, &OrderSource<'a>) -> Result<Box<dyn Order + 'a>, String>;

/// Every ordering there is.
pub static TABLE: Table<Make> = Table::new(
    "order",
    &[
        Entry {
            name: "random",
            summary: "a fresh uniform shuffle every epoch",
            source: "",
            options: &[],
            make: |options, source| Ok(Box::new(random::Random::new(source.train, options.seed))),
        },
        Entry {
            name: "sequential",
            summary: "ascending node ids, every epoch",
            source: "",
            options: &[],
            make: |_, source| Ok(Box::new(sequential::Sequential::new(source.train))),
        },
        Entry {
            name: "proximity",
            summary: "nodes that lie close together in batches that follow each other, so that caches hit",
            source: "Liu et al. (BGL), NSDI 2023, section 3.2",
            options: &["order_sequences"],
            make: |options, source| Ok(Box::new(proximity::Proximity::new(options, source))),
        },
    ],
);
