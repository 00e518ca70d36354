//! Rows in files: what a stream of events has for each node and event, if it exceeds
//! `--host-budget`.
//!
//! # Algorithm
//!
//! A run has, for each node, a memory of training and one of scores (rows, messages, times), its
//! features, and the bounds of its neighbours; and for each event its ends and time, its features,
//! and a place among the neighbours of both ends. If all of them need more bytes than the budget,
//! none of them stays in memory. Memories, ends, times and neighbours are in files without names,
//! which end with the run, and features stay in the files of the dataset. All are mapped, and a
//! batch reads and writes the rows of its own nodes and events. Rows of the memory stay in that of
//! the process until the budget is full, then all leave it. All other rows leave it after each
//! batch. Neighbours are written for a range of nodes after the other ([`super::history`]).
//! Targets and listed destinations are in files, too. Events are sorted in files
//! ([`super::opening`]).
//!
//! # Source
//!
//! Paging by rows is this project's. The memory is that of Rossi et al., *Temporal Graph Networks
//! for Deep Learning on Dynamic Graphs*, ICML 2020 workshop, section 3.1.
//!
//! # Cost
//!
//! An access to the file instead of memory for each row. An epoch and a score begin with new files
//! of the memory, whose space the system reserves, or writes with zeros where it cannot.
//!
//! # Memory
//!
//! The budget counts rows. The system maps whole pages, so scattered rows occupy more of its cache,
//! which it may take back at any time. Beyond the budget are: a byte for each node, and up to two
//! more while the run opens; 4 for each training event, the order of an epoch; the targets and
//! listed destinations of a batch, and its matrices; and the outputs of the events that are scored.

use std::path::{Path, PathBuf};

use bytemuck::Pod;
use graphmill_core::{
    Buffer,
    memory::{self, available},
};
use graphmill_loader::time::TimeIndex;
use graphmill_nn::temporal::NodeMemory;

use super::opening::{RUN, least_to_open};
use crate::{Error, Result, TrainConfig, config::events::kind};

/// Pairs that are scored at once.
pub(super) const MAX_PAIRS: usize = 1 << 14;
/// Memories that a run has: those of training and of scores.
const MEMORIES: usize = 2;
/// Bytes of the ends and the time of an event.
const EVENT: usize = 16;
/// Bytes of the bounds of a node's neighbours.
const BOUNDS: usize = 16;
/// Bytes of a place among the neighbours of a node: neighbour, number and time.
pub(super) const PLACE: usize = 16;
/// Bytes of the tables of draws by recency that a draw reads: bounds of a bucket, and sums.
const LOOKED_UP: usize = 24;
/// Bytes of these tables that a node's draws read: the bounds of its own, its head and its last
/// sum.
const LOOKED_UP_OF_NODE: usize = 32;

/// Sizes that decide how many rows a run has, and how many a batch reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamSizes {
    pub(super) nodes: usize,
    pub(super) events: usize,
    /// Width of the features of nodes, `F`.
    pub(super) node_dim: usize,
    /// Width of the features of events, `K`.
    pub(super) edge_dim: usize,
    /// True if neighbours are drawn by recency, from tables of their own.
    pub(super) by_recency: bool,
    /// Histories from which neighbours are drawn: those of training and of scores, if they differ.
    pub(super) histories: usize,
    /// Events of a batch.
    pub(super) batch: usize,
    /// Destinations that an event is compared with, at most; 0 if it has a class or value.
    pub(super) negatives: usize,
    /// Records that are sorted at once, at most, while the run opens.
    pub(super) sorted: usize,
}

/// Place of the rows of a run in files.
#[derive(Clone, Debug)]
pub(super) struct RowFiles {
    /// Directory of the files without names.
    pub(super) dir: PathBuf,
    /// Nodes whose memory stays in that of the process, at most.
    pub(super) most: usize,
    /// Bytes of the budget.
    pub(super) budget: usize,
}

/// Name of the tables of draws by recency.
const RECENCY: &str = "tables of draws by recency";

/// Rows of a batch.
struct BatchRows {
    nodes: usize,
    events: usize,
    /// Places among the neighbours of nodes.
    places: usize,
}

impl RowFiles {
    /// Decides where the rows of a run are; `None` if they are in memory.
    ///
    /// # Errors
    /// The rows of a batch exceed `--host-budget`; or all rows, which are not limited, the memory
    /// of this machine.
    pub(super) fn new(config: &TrainConfig, sizes: &StreamSizes, dir: &Path) -> Result<Option<Self>> {
        let budget = usize::try_from(config.host_budget.0).unwrap_or(usize::MAX);
        let needed = sizes.bytes(config);
        if budget == 0 {
            // the ends and times are there already
            let held = EVENT.saturating_mul(sizes.events);
            return check_memory(config, sizes, needed.saturating_sub(held)).map(|()| None);
        }
        if needed <= budget {
            return Ok(None);
        }
        let of_memory = of_memory(config, sizes);
        let rows = sizes.of_batch(config);
        let others = sizes.others(&rows);
        let of_batch = others.saturating_add(rows.nodes.saturating_mul(of_memory));
        let of_opening = least_to_open(sizes.sorted);
        if of_batch.max(of_opening) > budget {
            let (part, remedy) = if of_batch >= of_opening {
                (format!("a batch reads rows of up to {of_batch}"), ", or lower --batch-size")
            } else {
                (format!("sorting its events takes {of_opening}"), "")
            };
            return Err(Error::usage(format!(
                "--host-budget {}: the nodes and events of the stream need {needed} bytes for their {}, and \
                 {part}; raise it to {} or more{remedy}",
                config.host_budget.0,
                names(config, sizes),
                of_batch.max(of_opening)
            )));
        }
        let most = (budget - others) / of_memory.max(1);
        Ok(Some(Self { dir: dir.to_path_buf(), most, budget }))
    }

    /// A copy of `values` in a file.
    ///
    /// # Errors
    /// The directory cannot be written, or the disk has too little space.
    pub(super) fn store<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>> {
        Ok(Buffer::copied_to_file(values, &self.dir)?)
    }
}

/// `values` where the rows of a run are: in `files`, or in memory.
///
/// # Errors
/// Memory or disk space is exhausted.
pub(super) fn settle<T: Pod>(values: Buffer<T>, files: Option<&RowFiles>) -> Result<Buffer<T>> {
    match files {
        Some(files) if !values.is_mapped() => files.store(&values),
        None if values.is_mapped() => {
            let mut all = memory::reserve(values.len())?;
            values.scan(RUN, |_, run| all.extend_from_slice(run));
            Ok(all.into())
        }
        _ => Ok(values),
    }
}

/// Bytes of a node in a memory of the model; 0 if it has none.
fn of_memory(config: &TrainConfig, sizes: &StreamSizes) -> usize {
    match kind(config).and_then(|kind| kind.memory) {
        Some(_) => NodeMemory::bytes_of_row(config.hidden, sizes.edge_dim),
        None => 0,
    }
}

impl StreamSizes {
    /// Bytes of all rows of a run.
    fn bytes(&self, config: &TrainConfig) -> usize {
        self.parts(config).iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Names and bytes of the rows of a run; those that it lacks have none.
    pub(super) fn parts(&self, config: &TrainConfig) -> [(&'static str, usize); 5] {
        let of = |nodes: usize, events: usize| {
            self.nodes.saturating_mul(nodes).saturating_add(self.events.saturating_mul(events))
        };
        let tables = match self.by_recency {
            true => TimeIndex::most_bytes_of_recency(self.nodes, self.events.saturating_mul(2)),
            false => 0,
        };
        [
            ("memory", of(MEMORIES * of_memory(config, self), 0)),
            ("neighbours", of(BOUNDS * self.histories, 2 * PLACE * self.histories)),
            (RECENCY, tables.saturating_mul(self.histories)),
            ("features", of(size_of::<f32>() * self.node_dim, size_of::<f32>() * self.edge_dim)),
            ("times", of(0, EVENT)),
        ]
    }

    /// Bytes of the rows of a batch without those of the memory.
    fn others(&self, rows: &BatchRows) -> usize {
        let looked_up = if self.by_recency { [LOOKED_UP_OF_NODE, LOOKED_UP] } else { [0; 2] };
        let bounds = if self.histories == 0 { 0 } else { BOUNDS + looked_up[0] };
        let of_node = size_of::<f32>() * self.node_dim + bounds;
        let of_event = size_of::<f32>() * self.edge_dim + EVENT;
        let of_nodes = rows.nodes.saturating_mul(of_node);
        let of_events = rows.events.saturating_mul(of_event);
        of_nodes.saturating_add(of_events).saturating_add(rows.places.saturating_mul(PLACE + looked_up[1]))
    }

    /// Largest numbers of rows that a batch of training or scores reads.
    fn of_batch(&self, config: &TrainConfig) -> BatchRows {
        let pairs_of_event = self.negatives.saturating_add(1);
        let scored = self.batch.saturating_mul(pairs_of_event).min(MAX_PAIRS.max(pairs_of_event));
        // a training event has one negative, if any
        let trained = self.batch.saturating_mul(pairs_of_event.min(2));
        // the pairs of an event share its source
        let mut nodes = self.batch.saturating_add(scored.max(trained));
        let mut places: usize = 0;
        for &count in config.fanout.0.iter().filter(|_| self.histories > 0) {
            // a negative number draws all neighbours
            let drawn = usize::try_from(count).map_or(usize::MAX, |count| nodes.saturating_mul(count));
            nodes = nodes.saturating_add(drawn);
            places = places.saturating_add(drawn);
        }
        BatchRows {
            nodes: nodes.min(self.nodes),
            events: places.saturating_add(self.batch).min(self.events),
            places: places.min(self.events.saturating_mul(2)),
        }
    }
}

/// Names of the rows of a run.
fn names(config: &TrainConfig, sizes: &StreamSizes) -> String {
    let of_memory = kind(config).and_then(|kind| kind.memory).map(|_| "memory");
    let of_neighbors = (sizes.histories > 0).then_some("neighbours");
    let of_recency = of_neighbors.filter(|_| sizes.by_recency).map(|_| RECENCY);
    let mut all: Vec<&str> = of_memory.into_iter().chain(of_neighbors).chain(of_recency).collect();
    all.extend(["features", "times"]);
    let last = all.pop().unwrap_or_default();
    format!("{} and {last}", all.join(", "))
}

/// Refuses rows that exceed the memory of this machine.
///
/// # Errors
/// Wrong usage: the nodes and events are too many for their width.
fn check_memory(config: &TrainConfig, sizes: &StreamSizes, needed: usize) -> Result<()> {
    let Some(free) = available().filter(|&free| needed as u64 > free) else { return Ok(()) };
    let (StreamSizes { nodes, events, .. }, names) = (sizes, names(config, sizes));
    let (option, remedy) = match kind(config).and_then(|kind| kind.memory) {
        Some(_) => (format!("--hidden {}", config.hidden), "lower it, or set"),
        None => (format!("--model {}", config.model), "set"),
    };
    Err(Error::usage(format!(
        "{option}: {nodes} nodes and {events} events need {needed} bytes for their {names}, but {free} are \
         available; {remedy} --host-budget to keep them in files"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTHS: StreamSizes = StreamSizes {
        nodes: 0,
        events: 0,
        node_dim: 5,
        edge_dim: 3,
        by_recency: false,
        histories: 1,
        batch: 0,
        negatives: 0,
        sorted: 0,
    };

    #[test]
    fn the_budget_that_a_refusal_names_is_the_least() {
        let sizes = StreamSizes { nodes: 5000, events: 9000, batch: 20, negatives: 1, ..WIDTHS };
        let chosen = |model: &str, sizes: &StreamSizes, budget: u64| {
            let mut config = TrainConfig { model: model.into(), hidden: 8, ..TrainConfig::default() };
            config.fanout.0 = vec![4];
            config.host_budget.0 = budget;
            RowFiles::new(&config, sizes, Path::new("run"))
        };
        // 60 rows have 240 neighbours of 16 bytes. A row of the memory has 132 bytes, and other
        // rows of nodes have 5 features and bounds of 16 bytes. A row of events has 3 features, and
        // ends and times of 16 bytes.
        let (tgn, jodie, tgat) =
            (StreamSizes { histories: 2, ..sizes }, StreamSizes { histories: 0, ..sizes }, sizes);
        let drawn = 300 * 36 + 260 * 28 + 240 * 16;
        for (model, sizes, expected, needed) in [
            ("tgn", &tgn, 300 * 132 + drawn, 5000 * (264 + 20 + 32) + 9000 * (12 + 16 + 64)),
            ("jodie", &jodie, 60 * 152 + 20 * 28, 5000 * (264 + 20) + 9000 * 28),
            ("tgat", &tgat, drawn, 5000 * 36 + 9000 * (12 + 16 + 32)),
        ] {
            let message = chosen(model, sizes, 1).unwrap_err().to_string();
            assert!(message.contains(&format!("raise it to {expected} or more")), "{model}: {message}");
            assert!(chosen(model, sizes, expected - 1).is_err(), "{model}");
            let files = chosen(model, sizes, expected).unwrap().unwrap();
            let most = [("tgn", 300), ("jodie", 60), ("tgat", 0)];
            assert!(most.contains(&(model, files.most)), "{model}: {}", files.most);
            assert!(chosen(model, sizes, needed - 1).unwrap().is_some(), "{model}");
            assert!(chosen(model, sizes, needed).unwrap().is_none(), "{model}");
            assert!(chosen(model, sizes, 0).unwrap().is_none(), "{model}");
        }
        // a batch reads no more nodes than there are, and classes of events need no negatives
        let of = |sizes: StreamSizes| chosen("jodie", &sizes, 1).unwrap_err().to_string();
        for (sizes, nodes) in [
            (StreamSizes { nodes: 30, ..jodie }, 30),
            (StreamSizes { negatives: 0, ..jodie }, 40),
            (StreamSizes { negatives: 99, ..jodie }, 2020),
        ] {
            let least = nodes * 152 + 20 * 28;
            assert!(of(sizes).contains(&format!("raise it to {least} or more")), "{nodes} nodes");
        }
        // sorting may need more than a batch
        let message = of(StreamSizes { sorted: 9000, ..jodie });
        let least = least_to_open(9000);
        let expected = format!("and sorting its events takes {least}; raise it to {least} or more");
        assert!(least > 60 * 152 + 20 * 28 && message.contains(&expected), "{message}");
        let sorted = StreamSizes { sorted: 9000, ..jodie };
        assert!(chosen("jodie", &sorted, least as u64 - 1).is_err());
        assert!(chosen("jodie", &sorted, least as u64).unwrap().is_some());
        let message = of(jodie);
        assert!(message.contains("bytes for their memory, features and times, and a batch"), "{message}");
        // all neighbours of a node are no more than the ends of all events
        let all = StreamSizes { nodes: 50, events: 90, ..tgat };
        let mut config = TrainConfig { model: "tgat".into(), hidden: 8, ..TrainConfig::default() };
        (config.fanout.0, config.host_budget.0) = (vec![-1], 1);
        let least = 50 * 36 + 90 * 28 + 180 * 16;
        let message = RowFiles::new(&config, &all, Path::new("run")).unwrap_err().to_string();
        assert!(message.contains(&format!("raise it to {least} or more")), "{message}");
    }

    #[test]
    fn tables_of_draws_by_recency_are_charged_to_the_budget() {
        let plain = StreamSizes { nodes: 5000, events: 9000, batch: 20, negatives: 1, ..WIDTHS };
        let recent = StreamSizes { by_recency: true, ..plain };
        let mut config = TrainConfig { model: "tgat".into(), hidden: 8, ..TrainConfig::default() };
        config.fanout.0 = vec![4];
        // the bounds of all nodes, 8 bytes for each end of an event, and 32 for a row with a table
        let tables = 8 * 5001 + 8 * 18000 + 32 * (18000 / 16);
        assert_eq!(recent.bytes(&config) - plain.bytes(&config), tables);
        let mut chosen = |budget: usize| {
            config.host_budget.0 = budget as u64;
            RowFiles::new(&config, &recent, Path::new("run"))
        };
        let needed = 5000 * 36 + 9000 * (12 + 16 + 32) + tables;
        assert!(chosen(needed).unwrap().is_none() && chosen(needed - 1).unwrap().is_some());
        // 300 nodes and 240 draws of a batch
        let least = 300 * (36 + 32) + 260 * 28 + 240 * (16 + 24);
        assert!(chosen(least).is_ok());
        let message = chosen(least - 1).unwrap_err().to_string();
        let names = "for their neighbours, tables of draws by recency, features and times";
        assert!(message.contains(names) && message.contains(&format!("raise it to {least}")), "{message}");
    }

    #[test]
    fn arrays_settle_where_the_rows_are() {
        let dir = tempfile::tempdir().unwrap();
        let files = RowFiles { dir: dir.path().to_path_buf(), most: 0, budget: 1 };
        let all: Vec<u64> = (0..RUN as u64 + 9).collect();
        let of_file = files.store(&all).unwrap();
        for from in [all.clone().into(), of_file] {
            for to in [None, Some(&files)] {
                let settled = settle(from.clone(), to).unwrap();
                assert_eq!(settled.is_mapped(), to.is_some());
                assert_eq!(settled[..], all[..]);
            }
        }
    }

    #[test]
    fn rows_that_exceed_the_machine_are_refused_without_a_budget() {
        let sizes =
            StreamSizes { nodes: usize::MAX / 4096, events: 9, batch: 2, edge_dim: 0, node_dim: 0, ..WIDTHS };
        let mut config = TrainConfig { model: "tgn".into(), hidden: 8, ..TrainConfig::default() };
        config.fanout.0 = vec![4];
        let refused = RowFiles::new(&config, &sizes, Path::new("run"));
        if available().is_some() {
            assert!(refused.unwrap_err().to_string().contains("set --host-budget to keep them in files"));
            // the width of the model has no part in the features of the events
            config.model = "tgat".into();
            let many = StreamSizes { events: usize::MAX / 4096, edge_dim: 1, ..sizes };
            let refused = RowFiles::new(&config, &many, Path::new("run")).unwrap_err().to_string();
            assert!(
                refused.starts_with("--model tgat: ")
                    && refused.contains("their neighbours, features and times"),
                "{refused}"
            );
            config.model = "tgn".into();
        }
        config.host_budget.0 = 1 << 20;
        // 4 rows have 16 neighbours
        let expected = ((1 << 20) - 20 * 16 - 9 * 16 - 16 * 16) / 120;
        assert_eq!(RowFiles::new(&config, &sizes, Path::new("run")).unwrap().unwrap().most, expected);
    }
}
