//! Caches that are filled during a run, by the minibatches of its first epochs (`presc-online:K`).
//!
//! # Algorithm
//!
//! The trainer counts the input nodes of every minibatch of the first `K` epochs, while all reads
//! go to the next tier. Before epoch `K` it ranks the nodes by their counts, and the caches load
//! the hottest rows. A resumed run draws the counted minibatches again, because draws are functions
//! of their keys, so that it fills the same rows.
//!
//! If batches reuse rows, the nodes that are counted are those whose features a batch still reads.
//! These may depend on parameters, so such a run stores its counts in its checkpoints instead. So
//! does a run on links, whose hard negatives depend on parameters, and a run on several types
//! ([`read_counts`](super::read_counts)). Each of several ranks counts its own shares, and rank 0
//! collects the counts of all whenever it writes a checkpoint.
//!
//! # Source
//!
//! Yang et al., *GNNLab: A Factored System for Sample-based GNN Training over GPUs*, EuroSys 2022,
//! section 6.3: pre-sampling may use the first epochs of training.
//!
//! # Cost
//!
//! An increment per input node, instead of drawing `K` epochs; reads of `K` epochs without a cache.
//!
//! # Memory
//!
//! 4 bytes per node of the graph until the caches are filled; if checkpoints hold the counts until
//! the run ends, and 8 bytes per node in each checkpoint. Over ranks, a checkpoint has as many for
//! each rank that trains.

use std::{sync::OnceLock, time::Instant};

use graphmill_core::{Graph, NodeId, node_order::by_scores, progress::Progress};
use graphmill_loader::hotness;

use super::read_counts::{ReadCounts, Restart};
use crate::{
    Error, Result, TrainConfig,
    cache_kind::Fill,
    hotness::OrderedVisits,
    record::{PresamplingCost, PresamplingRecord},
    stage::Loader,
};

/// Minibatches of a run that are counted for its caches: their cost, and the ranking by those of
/// its first epochs.
#[derive(Debug, Default)]
pub(crate) struct Presampling {
    pub(crate) cost: PresamplingCost,
    /// All nodes, those read most often in the first epochs first, once these are counted.
    pub(super) ranking: OnceLock<Vec<NodeId>>,
}

/// A cache whose rows are chosen during the run.
pub(crate) struct LateCache(Fill);

impl LateCache {
    /// A cache that `fill` loads with the hottest rows of a ranking.
    pub(crate) fn new(fill: impl Fn(&[NodeId]) -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Box::new(fill))
    }
}

/// Number of epochs that the caches of these options count; `None` if all caches are filled before
/// training.
///
/// # Errors
/// The run ends before the caches are filled, or they count different numbers of epochs.
pub(crate) fn counted_epochs(config: &TrainConfig) -> Result<Option<u64>> {
    let (mut most, flags) = (None, [("cache", &config.cache), ("host-cache", &config.host_cache)]);
    for (flag, name) in flags {
        let refuse = |why: String| Err(Error::usage(format!("--{flag} {name}: {why}")));
        let epochs = hotness::counted_epochs(name).map_err(|e| Error::usage(format!("--{flag} {e}")))?;
        let Some(epochs) = epochs else { continue };
        let before = format!("use presc:{epochs}, which counts before training");
        if epochs >= config.epochs as u64 {
            return refuse(format!(
                "--epochs {} ends before a cache is filled; raise --epochs, or {before}",
                config.epochs
            ));
        }
        if most.is_some_and(|most| most != epochs) {
            return refuse(
                "--cache and --host-cache count different numbers of epochs; use the same number".into(),
            );
        }
        most = Some(epochs);
    }
    Ok(most)
}

/// Counts of the minibatches of the first epochs, and the caches that they fill.
pub(crate) struct OnlineCounts<'a> {
    /// Counts of reads, which checkpoints may hold.
    pub(crate) reads: ReadCounts,
    graph: &'a Graph,
    presampling: &'a Presampling,
    caches: &'a [LateCache],
    /// True if the aggregates of all nodes follow their rows.
    has_aggregates: bool,
}

impl<'a> OnlineCounts<'a> {
    /// Counts of no minibatches yet, of `epochs` epochs.
    pub(crate) fn new(
        epochs: u64,
        restart: Restart,
        graph: &'a Graph,
        presampling: &'a Presampling,
        caches: &'a [LateCache],
    ) -> Self {
        let reads = ReadCounts::new(epochs, graph.num_nodes(), restart);
        Self { reads, graph, presampling, caches, has_aggregates: false }
    }

    /// The same counts in a run whose rows are those of the nodes and, if `has_aggregates`, those
    /// of their aggregates.
    #[must_use]
    pub(crate) fn with_aggregates(self, has_aggregates: bool) -> Self {
        Self { has_aggregates, ..self }
    }

    /// Counts the input nodes of a minibatch of an epoch, if it is among the first ones.
    pub(crate) fn see(&mut self, epoch: u64, nodes: &[NodeId]) {
        // aggregates of nodes follow all nodes
        let nodes = &nodes[..nodes.partition_point(|&v| (v as usize) < self.graph.num_nodes())];
        self.reads.see(epoch, nodes.iter().copied(), &self.presampling.cost);
    }

    /// Counts the minibatches before batch `batch` of an epoch again, for a run that resumes there,
    /// unless the checkpoint held their counts. `begin` prepares an epoch to be drawn, and returns
    /// false if this rank draws none.
    ///
    /// # Errors
    /// A batch cannot be drawn, `begin` fails, or `progress` stops the work.
    pub(crate) fn replay(
        &mut self,
        loader: &Loader,
        (epoch, batch): (u64, u64),
        begin: &dyn Fn(u64) -> Result<bool>,
        progress: &dyn Progress,
    ) -> Result<()> {
        if !self.reads.is_redrawn() {
            return Ok(());
        }
        let clock = Instant::now();
        let visits = OrderedVisits::new(loader, progress);
        let mut order = Vec::new();
        let epochs = self.reads.epochs();
        let counts = self.reads.counts_mut();
        for number in 0..epochs.min(epoch + 1) {
            if !begin(number)? {
                continue;
            }
            let end = if number < epoch { loader.num_batches() } else { batch };
            loader.order(number, &mut order);
            let mut see = |nodes: &[NodeId]| nodes.iter().for_each(|&v| counts[v as usize] += 1);
            visits.visit_batches(loader, number, &order, 0..end, &mut see)?;
        }
        let (drawn_batches, seconds) = (visits.drawn(), clock.elapsed().as_secs_f64());
        self.presampling.cost.add(PresamplingRecord { drawn_batches, counted_batches: 0, seconds });
        Ok(())
    }

    /// Fills the caches before an epoch, once the first epochs are counted. Returns true if it has
    /// just filled them.
    ///
    /// # Errors
    /// The rows cannot be read, or the memory of a cache cannot be allocated.
    pub(crate) fn fill(&mut self, epoch: u64) -> Result<bool> {
        if epoch < self.reads.epochs() || self.presampling.ranking.get().is_some() {
            return Ok(false);
        }
        let clock = Instant::now();
        let mut scores = hotness::by_counts(self.graph, self.reads.counts());
        if self.has_aggregates {
            // a batch reads the aggregate of a node if it reads its row
            scores.extend_from_within(..);
        }
        let ranking = by_scores(&scores)?;
        self.reads.free();
        self.caches.iter().try_for_each(|LateCache(fill)| fill(&ranking))?;
        let _ = self.presampling.ranking.set(ranking);
        let seconds = clock.elapsed().as_secs_f64();
        self.presampling.cost.add(PresamplingRecord { seconds, ..PresamplingRecord::default() });
        Ok(true)
    }
}
