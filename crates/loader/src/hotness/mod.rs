//! Hotness: a score for every node that predicts how often its row will be asked for. What is
//! cached nearest, and how a dataset is reordered, follows from it.

mod analytic;
mod degree;
mod footprint;
mod posterior;
mod presc;
mod random;
mod reverse_pagerank;

use graphmill_core::{
    Graph, NodeId, Result,
    table::{Entry, Table},
};

pub use footprint::{Footprint, similarity};

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
    /// Shows the input nodes of every minibatch of an epoch, batch by batch: distinct nodes, and
    /// the same ones whenever it is asked.
    ///
    /// # Errors
    /// A batch cannot be drawn.
    fn visit(&self, epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> Result<()>;

    /// In how many minibatches of an epoch each of the `num_nodes` nodes comes up.
    ///
    /// # Errors
    /// A batch cannot be drawn.
    fn footprint(&self, epoch: u64, num_nodes: usize) -> Result<Footprint> {
        let mut counts = vec![0; num_nodes];
        self.visit(epoch, &mut |nodes| nodes.iter().for_each(|&v| counts[v as usize] += 1))?;
        Ok(Footprint { counts })
    }
}

/// What hotness is computed for.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// Who hears from whom.
    pub graph: &'a Graph,
    /// The nodes that train.
    pub train: &'a [NodeId],
    /// Neighbours per node per hop, from the seeds outward; -1 takes all.
    pub fanout: &'a Fanout,
    /// Seeds of a batch.
    pub batch_size: usize,
    /// The run's seed.
    pub seed: u64,
    /// Epochs of the run.
    pub epochs: u64,
    /// Its minibatches.
    pub visits: &'a dyn Visits,
}

/// Scores all nodes (`V`), hot ones high. What stands behind a colon in the name comes second.
pub type Score = fn(&Setting, Option<&str>) -> std::result::Result<Vec<f64>, String>;

/// The options of a run that a metric's scores depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// None.
    Graph,
    /// The seed.
    Seed,
    /// The number of neighbours of a minibatch, and its size.
    Fanouts,
    /// All that decide which minibatches are drawn.
    Minibatches,
    /// These, and the number of epochs.
    Run,
}

impl Basis {
    /// Whether the scores depend on an option of that name.
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

/// A metric.
#[derive(Clone, Copy)]
pub struct Metric {
    /// Scores all nodes.
    pub score: Score,
    /// The options that the scores depend on.
    pub basis: Basis,
}

impl Metric {
    /// A metric whose scores depend on these options of a run.
    pub const fn new(score: Score, basis: Basis) -> Self {
        Self { score, basis }
    }
}

/// Every metric there is.
pub static TABLE: Table<Metric> = Table::new(
    "hotness",
    &[
        Entry {
            name: "random",
            summary: "a number drawn for each node: the bound below",
            source: "",
            options: &[],
            make: Metric::new(random::score, Basis::Seed),
        },
        Entry {
            name: "degree",
            summary: "how many nodes hear from a node",
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
            summary: "presc:K counts in how many minibatches of K epochs of their own a node comes up",
            source: "FGNN section 6.3",
            options: &[],
            make: Metric::new(presc::presampled, Basis::Minibatches),
        },
        Entry {
            name: "analytic",
            summary: "the chance that a minibatch asks for a node, from the fan-outs and without sampling",
            source: "Quiver's sample_prob, sharpened",
            options: &[],
            make: Metric::new(analytic::score, Basis::Fanouts),
        },
        Entry {
            name: "posterior",
            summary: "posterior:K is what presc:K counts on the ground of what analytic expects",
            source: "",
            options: &[],
            make: Metric::new(posterior::score, Basis::Minibatches),
        },
        Entry {
            name: "optimal",
            summary: "the run's own footprint: an oracle, the bound above for caches that stay as they are",
            source: "FGNN section 6.2",
            options: &[],
            make: Metric::new(presc::optimal, Basis::Run),
        },
    ],
);

/// Scores all nodes by the metric of that name, with its argument behind a colon.
///
/// # Errors
/// No such metric, or an impossible argument.
pub fn score(name: &str, setting: &Setting) -> std::result::Result<Vec<f64>, String> {
    let (name, argument) = match name.split_once(':') {
        Some((name, argument)) => (name, Some(argument)),
        None => (name, None),
    };
    let entry = TABLE.find(name).map_err(|e| e.to_string())?;
    (entry.make.score)(setting, argument)
}

/// Refuses an argument.
fn no_argument(name: &str, argument: Option<&str>) -> std::result::Result<(), String> {
    match argument {
        None => Ok(()),
        Some(argument) => Err(format!("{name}:{argument}: {name} takes no argument")),
    }
}

#[cfg(test)]
mod tests;
