//! Hotness: a score for every node that predicts how often its row will be asked for. What is cached nearest, and how a dataset is
//! reordered, follows from it.

mod analytic;
mod degree;
mod footprint;
mod posterior;
mod presc;
mod random;
mod reverse_pagerank;

use graphmill_graph::{Graph, NodeId, Result, table::Entry};

pub use footprint::{Footprint, similarity};

/// What the minibatches of a run ask for.
pub trait Visits {
    /// Shows the input nodes of every minibatch of an epoch, batch by batch: distinct nodes, and the same ones whenever it is asked.
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
    pub fanout: &'a [i64],
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

/// Every metric there is.
pub const TABLE: &[Entry<Score>] = &[
    Entry {
        name: "random",
        summary: "a number drawn for each node: the bound below",
        source: "",
        make: random::score,
    },
    Entry {
        name: "degree",
        summary: "how many nodes hear from a node",
        source: "PaGraph, SoCC 2020; Data Tiering section 3.1",
        make: degree::score,
    },
    Entry {
        name: "reverse-pagerank",
        summary: "reverse PageRank",
        source: "Data Tiering section 3.1",
        make: reverse_pagerank::plain,
    },
    Entry {
        name: "weighted-reverse-pagerank",
        summary: "reverse PageRank from the training nodes, five iterations",
        source: "Data Tiering section 3.2, Algorithm 1",
        make: reverse_pagerank::weighted,
    },
    Entry {
        name: "presc",
        summary: "presc:K counts in how many minibatches of K epochs of their own a node comes up",
        source: "FGNN section 6.3",
        make: presc::presampled,
    },
    Entry {
        name: "analytic",
        summary: "the chance that a minibatch asks for a node, from the fan-outs and without sampling",
        source: "Quiver's sample_prob, sharpened",
        make: analytic::score,
    },
    Entry {
        name: "posterior",
        summary: "posterior:K is what presc:K counts on the ground of what analytic expects",
        source: "",
        make: posterior::score,
    },
    Entry {
        name: "optimal",
        summary: "the run's own footprint: an oracle, the bound above for caches that stay as they are",
        source: "FGNN section 6.2",
        make: presc::optimal,
    },
];

/// Scores all nodes by the metric of that name, with its argument behind a colon.
///
/// # Errors
/// No such metric, or an impossible argument.
pub fn score(name: &str, setting: &Setting) -> std::result::Result<Vec<f64>, String> {
    let (name, argument) = match name.split_once(':') {
        Some((name, argument)) => (name, Some(argument)),
        None => (name, None),
    };
    let entry = graphmill_graph::table::find("hotness", TABLE, name).map_err(|e| e.to_string())?;
    (entry.make)(setting, argument)
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
