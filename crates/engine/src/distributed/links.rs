//! Links over ranks.
//!
//! # Algorithm
//!
//! Every rank opens the edges of the whole graph, which the partition stores besides the parts. It
//! finds the task of one process in them: the same split, the same known edges, and the same graph
//! without the edges that are held out. Exact non-edges need all of these on every rank.
//!
//! A rank makes the seeds of every batch as one process does, and keeps the positives whose sources
//! it owns, with their negatives. It draws the neighbours of their ends itself, from the graph that
//! it has, without the edges of the whole batch: draws depend on the node and not on the rank, so
//! these are the blocks of one process, and no request for neighbours is sent (`labor` with
//! iterations counts the destinations of the share). Feature rows, rows between layers and
//! gradients pass between ranks as in a run on nodes.
//!
//! To score edges, embeddings are gathered on all ranks: those of all nodes if edges are ranked
//! among them, whose queries the ranks divide, and else those of the ends of edges and of their
//! negatives.
//!
//! # Source
//!
//! None: the shares of a batch are those of runs on nodes.
//!
//! # Cost
//!
//! O(P K log d) a batch of `P` positives with `K` negatives, on every rank.
//!
//! # Memory
//!
//! On every rank what one process holds: `8 V + 4 E` mapped bytes and as many in memory for the
//! graph without held-out edges; 12 bytes for each edge to learn; of a directed graph 16 `E` more
//! for the known edges, and as much again while they are made. `4 F` bytes for each embedding of
//! width `F` that is gathered. Feature rows are those of the rank's own parts.

use std::path::Path;

use graphmill_core::{Graph, options::one_of};
use graphmill_data::{Dataset, partition::PartitionDir, typed::Verify};
use graphmill_distributed::numbers::{of_words, to_words};
use graphmill_loader::link::{ListSource, negatives_that};

use super::Ranks;
use crate::{
    Error, Result, TrainConfig,
    cache_kind::AUTO,
    config::{
        link::{LINK, LinkOptions},
        link_task::is_link,
    },
    link::{self, LinkTask, structure},
};

/// Refuses options with which several ranks cannot learn links of one type.
///
/// # Errors
/// Wrong usage: the first such option, with the reason and the remedy.
pub(super) fn check(config: &TrainConfig) -> Result<()> {
    check_links(config, false)?;
    link::check_tiers(config)?;
    let options: LinkOptions = config.own.get();
    if options.needs_times() {
        let why = format!("a partition does not store the times of nodes; use --negatives {}", usable());
        return refuse(&format!("--negatives {}", options.negatives), &why);
    }
    let split = options.split_edges;
    if split.by_time {
        let why = "a partition does not store the times of edges; split at random, or train on the dataset \
                   before graphmill partition";
        return refuse(&format!("--split-edges {split}"), why);
    }
    Ok(())
}

/// Refuses options with which several ranks cannot learn links of one type or, if `of_types`, of
/// several.
///
/// # Errors
/// Wrong usage: the first such option, with the reason and the remedy.
pub(crate) fn check_links(config: &TrainConfig, of_types: bool) -> Result<()> {
    link::check(config, of_types)?;
    if config.graph_stores > 0 {
        let why = "every rank has all edges and draws for itself; leave it out";
        return refuse(&format!("--graph-stores {}", config.graph_stores), why);
    }
    if structure::reads_structure(config) {
        let why = "every rank would hold the neighbours of the whole graph; train in one process";
        return Err(structure::refused(config, &format!("it is not available over several ranks: {why}")));
    }
    let options: LinkOptions = config.own.get();
    if options.draws_from(ListSource::File) {
        let why = format!("the file may differ between machines; use --negatives {}", usable());
        return refuse(&format!("--negatives {}", options.negatives), &why);
    }
    Ok(())
}

/// Samplers of negatives that ranks can follow.
fn usable() -> String {
    one_of(&negatives_that(|kind| !kind.needs_times && kind.lists != Some(ListSource::File)))
}

/// Name of the cache in host memory that `name` stands for in runs of ranks on links.
pub(super) fn link_cache(name: &str) -> &str {
    if name == AUTO { "lru" } else { name }
}

/// Error of an option that ranks which learn links cannot follow.
fn refuse(option: &str, why: &str) -> Result<()> {
    Err(Error::usage(format!("{option}: it is not available for links over several ranks; {why}")))
}

/// Error of a partition by an older version, which `dir` holds.
pub(crate) fn without_edges(dir: &Path) -> Error {
    Error::usage(format!(
        "--task {LINK}: the partition {} does not store the edges of the whole graph, which every rank needs \
         to learn links; partition the dataset again with this version",
        dir.display()
    ))
}

/// Edges of the whole graph, of which as much is checked as `verify` says.
///
/// # Errors
/// They are damaged, or an older version wrote the partition, without them.
pub(super) fn whole_graph(dir: &PartitionDir, verify: Verify) -> Result<Graph> {
    dir.topology(verify)?.ok_or_else(|| without_edges(dir.path()))
}

impl Ranks {
    /// Gathers the lists of every rank, in the order of ranks.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn gather_lists(&self, own: &[Vec<f64>]) -> Result<Vec<Vec<f64>>> {
        // the lengths of the lists, then their numbers
        let lengths = own.iter().map(|list| list.len() as u64);
        let numbers = own.iter().flatten().map(|number| number.to_bits());
        let words = to_words([own.len() as u64].into_iter().chain(lengths).chain(numbers));
        let mut all = Vec::new();
        for words in self.gather(&words)? {
            let mut received = of_words(&words);
            let count = received.next().unwrap_or(0) as usize;
            let lengths: Vec<u64> = received.by_ref().take(count).collect();
            all.extend(lengths.into_iter().map(|length| {
                received.by_ref().take(length as usize).map(f64::from_bits).collect::<Vec<f64>>()
            }));
        }
        Ok(all)
    }
}

/// Links that a run with these options learns on `data`, a rank's dataset with all edges from the
/// partition of this checksum; `None` if the run learns targets of nodes.
///
/// # Errors
/// As [`LinkTask::new`].
pub(super) fn task(config: &TrainConfig, data: &Dataset, partition: &str) -> Result<Option<LinkTask>> {
    if !is_link(config) {
        return Ok(None);
    }
    // a rank has the rows of its own nodes only, so it cannot compute the checksum of a dataset
    // that was in memory
    let checksum = data.checksum.clone().unwrap_or_else(|| partition.into());
    LinkTask::new(config, &Dataset { checksum: Some(checksum), ..data.clone() }).map(Some)
}
