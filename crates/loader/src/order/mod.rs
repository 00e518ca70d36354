//! Orders of the seeds: a permutation of the training nodes per epoch, cut into batches.

#![forbid(unsafe_code)]

pub mod balanced;
pub mod proximity;
pub mod random;
pub mod sequential;
mod shuffling;

use graphmill_core::{
    Graph, Labels, NodeId,
    options::{OptionGroup, OwnOptions},
    progress::Progress,
    table::{Entry, Table},
};

pub use shuffling::shuffling_error;

/// An order of the training nodes, with the tables that it precomputed.
///
/// ```
/// use graphmill_core::NodeId;
/// use graphmill_loader::order::SeedOrder;
///
/// /// Ascending ids in even epochs, descending ids in odd ones.
/// struct BackAndForth(Vec<NodeId>);
///
/// impl SeedOrder for BackAndForth {
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
pub trait SeedOrder: Send + Sync {
    /// Writes the order of `epoch` to `out`, each training node once. Independent of the number of
    /// threads.
    fn order(&self, epoch: u64, out: &mut Vec<NodeId>);

    /// Writes the first `count` nodes of the order of `epoch` to `out`, or all if there are fewer:
    /// an epoch of few batches need not order the nodes that it leaves out.
    fn first(&self, epoch: u64, count: usize, out: &mut Vec<NodeId>) {
        self.order(epoch, out);
        out.truncate(count);
    }

    /// Sentence for the user about values that the order chose automatically, if any.
    fn choice(&self) -> Option<String> {
        None
    }
}

/// Values from which orders are made.
#[derive(Clone, Debug, Default)]
pub struct OrderOptions {
    /// The run's seed.
    pub seed: u64,
    /// Seeds per batch.
    pub batch_size: usize,
    /// Options of the orders.
    pub own: OwnOptions,
}

/// Data for which an order is made.
#[derive(Clone, Copy, Debug)]
pub struct OrderSource<'a> {
    /// The graph to sample (in-neighbours).
    pub graph: &'a Graph,
    /// Labels of all nodes.
    pub labels: &'a Labels,
    /// Distinct training nodes.
    pub train: &'a [NodeId],
    /// Searches over the whole graph ([`proximity::searches`]), if `graph` holds the edges of some
    /// nodes only.
    pub searches: Option<&'a [Vec<NodeId>]>,
    /// Watches long precomputations, and may stop them.
    pub progress: &'a dyn Progress,
}

/// Source of what an order reads besides the training nodes, over several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverRanks {
    /// At most the labels of the training nodes, which every rank has.
    TrainingNodes,
    /// The searches that a partition stores ([`OrderSource::searches`]).
    StoredSearches,
    /// Edges, or labels of other nodes, of which a rank has only a part: the order is refused.
    Unavailable,
}

/// Constructor of an order; an error is one sentence about the options.
pub type Make = for<'a> fn(&OrderOptions, &OrderSource<'a>) -> Result<Box<dyn SeedOrder + 'a>, String>;

/// Constructor of an order from the seed, the training nodes and the labels of all nodes.
pub type MakeOfLabels = for<'a> fn(u64, &'a [NodeId], &'a Labels) -> Box<dyn SeedOrder + 'a>;

/// A kind of order.
#[derive(Clone, Copy)]
pub struct OrderKind {
    /// Constructor of the order.
    pub make: Make,
    /// Source of what the order reads over several ranks.
    pub over_ranks: OverRanks,
    /// Constructor from training nodes and their labels, for datasets of several types; `None` if
    /// the order reads the edges of one type.
    pub of_labels: Option<MakeOfLabels>,
    /// True if successive batches lie close together, so that dynamic caches hit.
    pub is_local: bool,
    /// True if it reads nothing about the seeds, so that they may be edges.
    pub of_edges: bool,
}

impl OrderKind {
    /// Creates an order that reads the training nodes and their labels alone.
    pub const fn new(make: Make) -> Self {
        let over_ranks = OverRanks::TrainingNodes;
        Self { make, over_ranks, of_labels: None, is_local: false, of_edges: false }
    }
}

/// All orders of the seeds.
pub static TABLE: Table<OrderKind> = Table::new(
    "order",
    &[
        Entry {
            name: "random",
            summary: "a fresh uniform shuffle every epoch",
            source: "",
            options: &[],
            make: OrderKind {
                of_labels: Some(|seed, train, _| Box::new(random::Random::new(train, seed))),
                of_edges: true,
                ..OrderKind::new(|with, source| Ok(Box::new(random::Random::new(source.train, with.seed))))
            },
        },
        Entry {
            name: "sequential",
            summary: "ascending node ids, every epoch",
            source: "",
            options: &[],
            make: OrderKind {
                of_labels: Some(|_, train, _| Box::new(sequential::Sequential::new(train))),
                of_edges: true,
                ..OrderKind::new(|_, source| Ok(Box::new(sequential::Sequential::new(source.train))))
            },
        },
        Entry {
            name: "balanced",
            summary: "every class with its share in every batch",
            source: "Cochran, Sampling Techniques, 1977, section 5.5",
            options: &[],
            make: OrderKind {
                of_labels: Some(|seed, train, labels| Box::new(balanced::Balanced::new(train, labels, seed))),
                ..OrderKind::new(|with, source| {
                    Ok(Box::new(balanced::Balanced::new(source.train, source.labels, with.seed)))
                })
            },
        },
        Entry {
            name: "proximity",
            summary: "nearby nodes in consecutive batches, so that caches hit",
            source: "Liu et al. (BGL), NSDI 2023, section 3.2",
            options: &[OptionGroup::of::<proximity::ProximityOptions>()],
            make: OrderKind {
                make: |with, source| {
                    let order =
                        proximity::Proximity::new(&with.own.get(), with.seed, with.batch_size, source);
                    Ok(Box::new(order.map_err(|e| e.to_string())?))
                },
                over_ranks: OverRanks::StoredSearches,
                of_labels: None,
                is_local: true,
                of_edges: false,
            },
        },
    ],
);
