//! Hotness: a score for every node that predicts how often its feature row will be read. Static
//! caches and reordered datasets follow from it.

#![forbid(unsafe_code)]

mod analytic;
mod degree;
mod footprint;
mod posterior;
mod presc;
mod random;
mod reverse_pagerank;
mod stored_order;

use graphmill_core::{
    Graph, NodeId, Result,
    table::{Entry, Table},
};

pub use footprint::{Footprint, similarity};
pub use presc::by_counts;

use crate::{Fanout, sampler::draws};

/// Input nodes of a run's minibatches, epoch by epoch.
///
/// ```
/// use graphmill_core::{NodeId, Result};
/// use graphmill_loader::hotness::Visits;
///
/// /// The same two minibatches in every epoch.
/// struct Recorded([Vec<NodeId>; 2]);
///
/// impl Visits for Recorded {
///     fn visit(&self, _epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> Result<()> {
///         self.0.iter().for_each(|nodes| see(nodes));
///         Ok(())
///     }
/// }
///
/// let footprint = Recorded([vec![0, 2], vec![2, 3]]).footprint(0, 4)?;
/// assert_eq!(footprint.counts, [1, 0, 2, 1]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait Visits {
    /// Passes the input nodes of every minibatch of an epoch to `see`, batch by batch: distinct
    /// nodes, and the same ones in every call.
    ///
    /// # Errors
    /// A batch cannot be drawn.
    fn visit(&self, epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> Result<()>;

    /// Number of an epoch's minibatches that read each of the `num_nodes` nodes.
    ///
    /// # Errors
    /// A batch cannot be drawn.
    fn footprint(&self, epoch: u64, num_nodes: usize) -> Result<Footprint> {
        let mut counts = vec![0; num_nodes];
        self.visit(epoch, &mut |nodes| nodes.iter().for_each(|&v| counts[v as usize] += 1))?;
        Ok(Footprint { counts })
    }
}

/// The run for which hotness is computed.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The graph to sample (in-neighbours).
    pub graph: &'a Graph,
    /// Training nodes.
    pub train: &'a [NodeId],
    /// Number of neighbours per node and hop, from the seeds outward; -1 takes all.
    pub fanout: &'a Fanout,
    /// True if the sampler draws subgraphs, which depend on neither the fanout nor the batch size.
    pub draws_subgraphs: bool,
    /// Number of seeds in a batch.
    pub batch_size: usize,
    /// The run's seed.
    pub seed: u64,
    /// Number of epochs of the run.
    pub epochs: u64,
    /// Minibatches of the run.
    pub visits: &'a dyn Visits,
}

/// Function that scores all nodes (`V`), hot ones high. The second argument is the part of the
/// metric's name after a colon.
pub type Score = fn(&Setting, Option<&str>) -> std::result::Result<Vec<f64>, String>;

/// The options of a run that a metric's scores depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// No option.
    Graph,
    /// The seed.
    Seed,
    /// The fanout and the batch size.
    Fanouts,
    /// All options that decide which minibatches are drawn.
    Minibatches,
    /// All options that decide which minibatches are drawn, and the number of epochs.
    Run,
}

impl Basis {
    /// Returns true if the scores depend on the option `option`.
    pub fn reads(self, option: &str) -> bool {
        match self {
            Self::Graph => false,
            Self::Seed => option == "seed",
            Self::Fanouts => ["fanout", "layers", "batch_size"].contains(&option),
            Self::Minibatches => option == "seed" || draws().contains(&option),
            Self::Run => option == "epochs" || Self::Minibatches.reads(option),
        }
    }
}

/// A hotness metric.
#[derive(Clone, Copy)]
pub struct Metric {
    /// Function that scores all nodes.
    pub score: Score,
    /// Options that the scores depend on.
    pub basis: Basis,
    /// True if the scores fall with the number of the node, so that a cache of `k` rows holds the
    /// first `k` of the table and needs no map.
    pub follows_ids: bool,
    /// Number of epochs of training whose minibatches a run counts before it fills a cache, by the
    /// argument; `None` if it fills the cache before training.
    pub counted_epochs: Option<CountedEpochs>,
    /// True if the scores assume that a fanout counts all neighbours of a node, as it does on
    /// graphs of one edge type.
    pub has_one_fanout: bool,
}

/// Function that reads a number of epochs from the part of a metric's name after a colon.
pub type CountedEpochs = fn(Option<&str>) -> std::result::Result<u64, String>;

impl Metric {
    /// Creates a metric whose scores depend on the options of `basis`.
    pub const fn new(score: Score, basis: Basis) -> Self {
        Self { score, basis, follows_ids: false, counted_epochs: None, has_one_fanout: false }
    }

    /// A metric for which a run counts the minibatches of its first epochs.
    const fn counting(self, epochs: CountedEpochs) -> Self {
        Self { counted_epochs: Some(epochs), ..self }
    }

    /// A metric that computes expectations from the fanout.
    const fn of_one_fanout(self) -> Self {
        Self { has_one_fanout: true, ..self }
    }

    /// A metric whose scores fall with the number of the node.
    const fn following_ids(self) -> Self {
        Self { follows_ids: true, ..self }
    }
}

/// All hotness metrics.
pub static TABLE: Table<Metric> = Table::new(
    "hotness",
    &[
        Entry {
            name: "random",
            summary: "random scores: a lower bound",
            source: "",
            options: &[],
            make: Metric::new(random::score, Basis::Seed),
        },
        Entry {
            name: "degree",
            summary: "out-degree: the number of nodes that may draw a node",
            source: "PaGraph, SoCC 2020; Data Tiering section 3.1",
            options: &[],
            make: Metric::new(degree::score, Basis::Graph),
        },
        Entry {
            name: "reverse-pagerank",
            summary: "reverse PageRank",
            source: "Data Tiering section 3.1",
            options: &[],
            make: Metric::new(reverse_pagerank::plain, Basis::Graph),
        },
        Entry {
            name: "weighted-reverse-pagerank",
            summary: "reverse PageRank from the training nodes, five iterations",
            source: "Data Tiering section 3.2, Algorithm 1",
            options: &[],
            make: Metric::new(reverse_pagerank::weighted, Basis::Graph),
        },
        Entry {
            name: "presc",
            summary: "presc:K counts each node's minibatches in K extra, sampled epochs",
            source: "FGNN section 6.3",
            options: &[],
            make: Metric::new(presc::presampled, Basis::Minibatches),
        },
        Entry {
            name: "presc-online",
            summary: "presc-online:K counts each node's minibatches in the first K epochs of training",
            source: "FGNN section 6.3",
            options: &[],
            make: Metric::new(presc::online, Basis::Minibatches).counting(presc::online_epochs),
        },
        Entry {
            name: "analytic",
            summary: "probability that a minibatch reads a node, computed from the fanout",
            source: "Quiver's sample_prob, sharpened",
            options: &[],
            make: Metric::new(analytic::score, Basis::Fanouts).of_one_fanout(),
        },
        Entry {
            name: "posterior",
            summary: "posterior:K combines the counts of presc:K with the expectation of analytic",
            source: "",
            options: &[],
            make: Metric::new(posterior::score, Basis::Minibatches).of_one_fanout(),
        },
        Entry {
            name: "stored-order",
            summary: "the first rows of the table: the hottest after graphmill reorder --by HOTNESS",
            source: "Data Tiering section 4.1",
            options: &[],
            make: Metric::new(stored_order::score, Basis::Graph).following_ids(),
        },
        Entry {
            name: "optimal",
            summary: "the run's own footprint: an oracle, the upper bound of static caches",
            source: "FGNN section 6.2",
            options: &[],
            make: Metric::new(presc::optimal, Basis::Run),
        },
    ],
);

/// Scores all nodes by the metric `name`, whose argument follows a colon (`presc:3`).
///
/// # Errors
/// The metric is unknown, or its argument is invalid.
pub fn score(name: &str, setting: &Setting) -> std::result::Result<Vec<f64>, String> {
    let (name, argument) = split(name);
    let entry = TABLE.find(name).map_err(|e| e.to_string())?;
    (entry.make.score)(setting, argument)
}

/// Splits a metric's name from its argument.
fn split(name: &str) -> (&str, Option<&str>) {
    name.split_once(':').map_or((name, None), |(name, argument)| (name, Some(argument)))
}

/// Number of epochs of training that a run counts before it fills a cache by the metric `name`;
/// `None` for other metrics, and for policies.
///
/// # Errors
/// The argument of the metric is invalid.
pub fn counted_epochs(name: &str) -> std::result::Result<Option<u64>, String> {
    let (name, argument) = split(name);
    let counts = TABLE.get(name).and_then(|entry| entry.make.counted_epochs);
    counts.map(|epochs| epochs(argument)).transpose()
}

/// Rejects an argument of a metric that takes none.
fn no_argument(name: &str, argument: Option<&str>) -> std::result::Result<(), String> {
    match argument {
        None => Ok(()),
        Some(argument) => Err(format!("{name}:{argument}: {name} takes no argument; use '{name}'")),
    }
}

#[cfg(test)]
mod tests;
