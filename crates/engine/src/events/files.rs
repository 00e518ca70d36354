//! Rows in files: the memory of nodes and the features of events that exceed `--host-budget`.
//!
//! # Algorithm
//!
//! Training and scores have a memory each. If both and the features of the events need more bytes
//! than the budget, none of them is read into memory: each memory is in files without names, which
//! end with the run, and features stay in the file of the dataset. Both are mapped, and a batch
//! reads and writes the rows of its own nodes and events. Rows of the memory stay in that of the
//! process until the budget is full, then all leave it. Rows of features leave it after each batch.
//!
//! Times of nodes, features of nodes, and the neighbours of events are in memory in any case.
//!
//! # Source
//!
//! Paging by rows is this project's. The memory is that of Rossi et al., *Temporal Graph Networks
//! for Deep Learning on Dynamic Graphs*, ICML 2020 workshop, section 3.1.
//!
//! # Cost
//!
//! An access to the file instead of memory for each row. An epoch and a score begin with new files,
//! whose space the system reserves, or writes with zeros where it cannot.
//!
//! # Memory
//!
//! The budget counts rows. The system maps whole pages, so scattered rows occupy more of its cache,
//! which it may take back at any time.

use std::path::{Path, PathBuf};

use graphmill_core::memory::available;
use graphmill_nn::temporal::NodeMemory;

use crate::{Error, Result, TrainConfig, config::events::kind};

/// Pairs that are scored at once.
pub(super) const MAX_PAIRS: usize = 1 << 14;
/// Memories that a run has: those of training and of scores.
const MEMORIES: usize = 2;

/// Sizes that decide how many rows a run has, and how many a batch reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamSizes {
    pub(super) nodes: usize,
    pub(super) events: usize,
    /// Width of the features of events, `K`.
    pub(super) edge_dim: usize,
    /// Events of a batch.
    pub(super) batch: usize,
    /// Destinations that an event is compared with, at most; 0 if it has a class or value.
    pub(super) negatives: usize,
}

/// Place of the rows of a run in files.
#[derive(Clone, Debug)]
pub(super) struct RowFiles {
    /// Directory of the files without names.
    pub(super) dir: PathBuf,
    /// Nodes whose rows stay in the memory of the process, at most.
    pub(super) most: usize,
}

impl RowFiles {
    /// Decides where the rows of a run are; `None` if they are in memory.
    ///
    /// # Errors
    /// The rows of a batch exceed `--host-budget`; or all rows, which are not limited, the memory
    /// of this machine.
    pub(super) fn new(config: &TrainConfig, sizes: &StreamSizes, dir: &Path) -> Result<Option<Self>> {
        let of_node = match kind(config).and_then(|kind| kind.memory) {
            Some(_) => NodeMemory::bytes_of_row(config.hidden, sizes.edge_dim),
            None => 0,
        };
        let of_event = size_of::<f32>() * sizes.edge_dim;
        let bytes = |nodes: usize, events: usize| {
            nodes.saturating_mul(of_node).saturating_add(events.saturating_mul(of_event))
        };
        let needed = bytes(sizes.nodes.saturating_mul(MEMORIES), sizes.events);
        let budget = usize::try_from(config.host_budget.0).unwrap_or(usize::MAX);
        if budget == 0 {
            return check_memory(config, sizes, needed).map(|()| None);
        }
        if needed <= budget {
            return Ok(None);
        }
        let [nodes, events] = sizes.of_batch(config);
        let least = bytes(nodes, events);
        if least > budget {
            return Err(Error::usage(format!(
                "--host-budget {}: the memory of nodes and the features of events need {needed} bytes, and a \
                 batch reads rows of up to {least}; raise it to {least} or more, or lower --batch-size",
                config.host_budget.0
            )));
        }
        let most = (budget - bytes(0, events)) / of_node.max(1);
        Ok(Some(Self { dir: dir.to_path_buf(), most }))
    }
}

impl StreamSizes {
    /// Largest numbers of nodes and of events whose rows a batch of training or scores reads.
    fn of_batch(&self, config: &TrainConfig) -> [usize; 2] {
        let pairs_of_event = self.negatives.saturating_add(1);
        let scored = self.batch.saturating_mul(pairs_of_event).min(MAX_PAIRS.max(pairs_of_event));
        // a training event has one negative, if any
        let trained = self.batch.saturating_mul(pairs_of_event.min(2));
        // the pairs of an event share its source
        let mut nodes = self.batch.saturating_add(scored.max(trained));
        let mut events = self.batch;
        let has_neighbors = kind(config).is_some_and(|kind| kind.neighbors.is_some());
        for &count in config.fanout.0.iter().filter(|_| has_neighbors) {
            // a negative number draws all neighbours
            let drawn = usize::try_from(count).map_or(usize::MAX, |count| nodes.saturating_mul(count));
            nodes = nodes.saturating_add(drawn);
            events = events.saturating_add(drawn);
        }
        [nodes.min(self.nodes), events.min(self.events)]
    }
}

/// Refuses rows that exceed the memory of this machine.
///
/// # Errors
/// Wrong usage: the nodes and events are too many for their width.
fn check_memory(config: &TrainConfig, sizes: &StreamSizes, needed: usize) -> Result<()> {
    let Some(free) = available().filter(|&free| needed as u64 > free) else { return Ok(()) };
    let StreamSizes { nodes, events, .. } = sizes;
    Err(Error::usage(match kind(config).and_then(|kind| kind.memory) {
        Some(_) => format!(
            "--hidden {}: the memory of {nodes} nodes and the features of {events} events need {needed} \
             bytes, but {free} are available; lower it, or set --host-budget to keep them in files",
            config.hidden
        ),
        None => format!(
            "--model {}: the features of {events} events need {needed} bytes, but {free} are available; set \
             --host-budget to keep them in files",
            config.model
        ),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_that_a_refusal_names_is_the_least() {
        let sizes = StreamSizes { nodes: 5000, events: 9000, edge_dim: 3, batch: 20, negatives: 1 };
        let chosen = |model: &str, sizes: &StreamSizes, budget: u64| {
            let mut config = TrainConfig { model: model.into(), hidden: 8, ..TrainConfig::default() };
            config.fanout.0 = vec![4];
            config.host_budget.0 = budget;
            RowFiles::new(&config, sizes, Path::new("run"))
        };
        // 60 rows have 240 neighbours; a row of the memory has 27 values, one of features 3
        for (model, expected) in
            [("tgn", 300 * 108 + 260 * 12), ("jodie", 60 * 108 + 20 * 12), ("tgat", 260 * 12)]
        {
            let message = chosen(model, &sizes, 1).unwrap_err().to_string();
            assert!(message.contains(&format!("raise it to {expected} or more")), "{model}: {message}");
            assert!(chosen(model, &sizes, expected - 1).is_err(), "{model}");
            let files = chosen(model, &sizes, expected).unwrap().unwrap();
            let most = [("tgn", 300), ("jodie", 60), ("tgat", 0)];
            assert!(most.contains(&(model, files.most)), "{model}: {}", files.most);
            let needed = if model == "tgat" { 9000 * 12 } else { 10_000 * 108 + 9000 * 12 };
            assert!(chosen(model, &sizes, needed - 1).unwrap().is_some(), "{model}");
            assert!(chosen(model, &sizes, needed).unwrap().is_none(), "{model}");
            assert!(chosen(model, &sizes, 0).unwrap().is_none(), "{model}");
        }
        // a batch reads no more nodes than there are, and classes of events need no negatives
        let of = |sizes: StreamSizes| chosen("jodie", &sizes, 1).unwrap_err().to_string();
        assert!(of(StreamSizes { nodes: 30, ..sizes }).contains("raise it to 3480 or more"));
        assert!(of(StreamSizes { negatives: 0, ..sizes }).contains("raise it to 4560 or more"));
        assert!(of(StreamSizes { negatives: 99, ..sizes }).contains("raise it to 218400 or more"));
    }

    #[test]
    fn rows_that_exceed_the_machine_are_refused_without_a_budget() {
        let sizes = StreamSizes { nodes: usize::MAX / 4096, events: 9, edge_dim: 0, batch: 2, negatives: 1 };
        let mut config = TrainConfig { model: "tgn".into(), hidden: 8, ..TrainConfig::default() };
        config.fanout.0 = vec![4];
        let refused = RowFiles::new(&config, &sizes, Path::new("run"));
        if available().is_some() {
            assert!(refused.unwrap_err().to_string().contains("set --host-budget to keep them in files"));
            // the width of the model has no part in the features of the events
            config.model = "tgat".into();
            let many = StreamSizes { events: usize::MAX / 4096, edge_dim: 1, ..sizes };
            let refused = RowFiles::new(&config, &many, Path::new("run")).unwrap_err().to_string();
            assert!(refused.starts_with("--model tgat: the features of "), "{refused}");
            config.model = "tgn".into();
        }
        config.host_budget.0 = 1 << 20;
        assert_eq!(RowFiles::new(&config, &sizes, Path::new("run")).unwrap().unwrap().most, (1 << 20) / 96);
    }
}
