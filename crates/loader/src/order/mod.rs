//! Which seeds come when: a permutation of the training nodes per epoch, cut into batches.

pub mod proximity;
pub mod random;
pub mod sequential;
mod shuffling;

use graphmill_core::{
    Graph, Labels, NodeId,
    options::{OptionGroup, OwnOptions},
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
    /// Writes an epoch's order to `out`: each training node once. The same for any number of
    /// threads.
    fn order(&self, epoch: u64, out: &mut Vec<NodeId>);

    /// What was chosen by itself, in a sentence for the user.
    fn choice(&self) -> Option<String> {
        None
    }
}

/// The values that orders are made from.
#[derive(Clone, Debug, Default)]
pub struct OrderOptions {
    /// The run's seed.
    pub seed: u64,
    /// Seeds per batch.
    pub batch_size: usize,
    /// Options of the orders.
    pub own: OwnOptions,
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

/// A kind of order.
#[derive(Clone, Copy)]
pub struct OrderKind {
    /// The constructor.
    pub make: Make,
    /// Whether it reads the edges or labels of the graph, of which a rank has a part.
    pub reads_graph: bool,
    /// Whether successive batches lie close together, so that caches whose rows come and go hit.
    pub is_local: bool,
}

impl OrderKind {
    /// An order that reads the training nodes alone.
    pub const fn new(make: Make) -> Self {
        Self { make, reads_graph: false, is_local: false }
    }
}

/// Every ordering there is.
pub static TABLE: Table<OrderKind> = Table::new(
    "order",
    &[
        Entry {
            name: "random",
            summary: "a fresh uniform shuffle every epoch",
            source: "",
            options: &[],
            make: OrderKind::new(|with, source| Ok(Box::new(random::Random::new(source.train, with.seed)))),
        },
        Entry {
            name: "sequential",
            summary: "ascending node ids, every epoch",
            source: "",
            options: &[],
            make: OrderKind::new(|_, source| Ok(Box::new(sequential::Sequential::new(source.train)))),
        },
        Entry {
            name: "proximity",
            summary: "nodes that lie close together in batches that follow each other, so that caches hit",
            source: "Liu et al. (BGL), NSDI 2023, section 3.2",
            options: &[OptionGroup::of::<proximity::ProximityOptions>()],
            make: OrderKind {
                make: |with, source| {
                    let order =
                        proximity::Proximity::new(&with.own.get(), with.seed, with.batch_size, source);
                    Ok(Box::new(order))
                },
                reads_graph: true,
                is_local: true,
            },
        },
    ],
);
