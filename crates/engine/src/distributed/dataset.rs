//! A rank's part of a partitioned dataset: all nodes, the edges into its own nodes, their feature
//! rows, and the labels of its own nodes and of all training, validation and test nodes.
//!
//! Memory besides the parts, per node of the whole graph: 8 bytes for row starts, 4 for labels (a
//! byte per class for multi-label data), 2 for the owners, and 4 mapped bytes for degrees.

use std::sync::Arc;

use graphmill_core::{Buffer, Labels, node_order::by_scores};
use graphmill_data::{
    Dataset,
    partition::{Part, PartitionDir},
};
use graphmill_distributed::{Messenger, NodeOwnership, sampler::Distributed};
use graphmill_loader::{
    Feature, MinibatchSampler,
    order::SeedOrder,
    sampler::{self, HopStack},
    weights::SymmetricWeights,
};

use super::{AssignedParts, Ranks, Subgraphs, own_rows::OwnRows};
use crate::{
    Error, Result, TrainConfig, build,
    cache_kind::{Kind, POSTERIOR, kind, resolve_cache},
    hotness::scores::scores_of_rank,
    record::DatasetRecord,
};

/// A rank's part of the dataset, with the ranks.
pub struct RankDataset {
    /// All nodes, the edges into own nodes, and the labels of own, training, validation and test
    /// nodes; no features.
    pub data: Dataset,
    /// The ranks.
    pub ranks: Arc<Ranks>,
    /// Checksum of the partition.
    pub(crate) partition: String,
    /// Number of edges of the whole dataset.
    edges: usize,
    degrees: Buffer<u32>,
    own: OwnRows,
    /// Parts from which this rank draws subgraphs, if the sampler draws subgraphs.
    pub(crate) assigned: Option<Arc<AssignedParts>>,
}

impl RankDataset {
    /// Opens this rank's parts, and serves their rows to the other ranks.
    ///
    /// # Errors
    /// A part cannot be read, the partition has fewer parts than ranks, or ranks have opened
    /// different partitions.
    pub(crate) fn open(config: &TrainConfig, dir: &PartitionDir, post: Arc<Messenger>) -> Result<Self> {
        let book =
            Arc::new(NodeOwnership::new(dir.book.clone(), post.rank(), post.size()).map_err(Error::name)?);
        let parts = book.parts_of(book.rank()).map(|part| dir.part(part as u16));
        let parts: Vec<Part> = parts.collect::<graphmill_core::Result<_>>()?;
        let Some(first) = parts.first() else {
            return Err(Error::usage(format!(
                "rank {} of {}: the partition has no part for it; partition into at least as many parts as \
                 ranks",
                book.rank(),
                book.size()
            )));
        };
        let ranks = Ranks::new(post.clone(), book.clone())?;
        let partitions = ranks.gather(&dir.checksum().bytes().map(u32::from).collect::<Vec<u32>>())?;
        if let Some(other) = partitions.iter().position(|checksum| *checksum != partitions[0]) {
            return Err(Error::usage(format!(
                "rank 0 and rank {other} have opened different partitions; copy the same partition to all \
                 machines"
            )));
        }
        let own = OwnRows::open(config, &parts, &ranks)?;
        let graph = dir.graph_of(&parts)?;
        let labels = labels(&ranks, dir, &parts)?;
        let data = Dataset {
            name: dir.source().to_string(),
            graph,
            features: own.layout(),
            labels,
            split: dir.split.clone(),
            normalization: first.dataset.normalization.clone(),
            metric: first.dataset.metric.clone(),
            checksum: dir.source_checksum().map(str::to_string),
            ..Dataset::default()
        };
        let (edges, degrees) = (dir.num_edges(), dir.degrees.clone());
        let partition = dir.checksum().to_string();
        let mut view = Self { data, ranks: Arc::new(ranks), partition, edges, degrees, own, assigned: None };
        let entry = sampler::TABLE.find(&config.sampler).map_err(Error::name)?;
        if entry.make.draws_subgraphs() {
            config.check()?;
            view.assigned = Some(AssignedParts::new(config, &view.data, view.ranks.clone(), view.feature())?);
        } else if config.shuffle_parts > 0 {
            return Err(Error::usage(format!(
                "--shuffle-parts {}: --sampler {} reads the parts of all ranks; leave it out",
                config.shuffle_parts, config.sampler
            )));
        }
        Ok(view)
    }

    /// Record of the whole dataset.
    pub(crate) fn record(&self) -> DatasetRecord {
        DatasetRecord { edges: self.edges, ..DatasetRecord::from(&self.data) }
    }

    /// Sampler of this rank. A distributed sampler starts to draw for the other ranks.
    ///
    /// # Errors
    /// An option is impossible, or the sampler needs more of the graph than a node's neighbours.
    pub(crate) fn sampler(&self, config: &TrainConfig) -> Result<Box<dyn MinibatchSampler>> {
        if let Some(assigned) = &self.assigned {
            return Ok(Box::new(Subgraphs(assigned.clone())));
        }
        let inner = build::hop_sampler(config, &self.data)?;
        let (post, book) = (self.ranks.post().clone(), self.ranks.book().clone());
        let sampler = Distributed::new(inner, post, book)
            .map_err(|why| Error::usage(format!("--sampler {}: over several ranks {why}", config.sampler)))?;
        sampler.serve(&self.data.graph);
        // no rank requests draws before all ranks serve them
        self.ranks.meet()?;
        Ok(Box::new(HopStack::new(sampler)))
    }

    /// Weights of GCN's normalisation, from the degrees in the whole graph.
    pub(crate) fn symmetric(&self) -> SymmetricWeights {
        SymmetricWeights::of_degrees(self.degrees.clone())
    }

    /// All rows: own rows, and rows of other ranks over the network.
    pub(crate) fn feature(&self) -> Arc<dyn Feature> {
        self.own.with_others(&self.ranks)
    }

    /// Describes this rank's part for a note.
    pub(crate) fn describe(&self, config: &TrainConfig) -> String {
        let book = self.ranks.book();
        let part = 100.0 * book.num_own() as f64 / self.data.num_nodes().max(1) as f64;
        let assigned = match (&self.assigned, config.shuffle_parts) {
            (None, _) => String::new(),
            (Some(_), 0) => ", and draws subgraphs from them".to_string(),
            (Some(_), every) => {
                format!(", and draws subgraphs from parts that are reassigned every {every} epochs")
            }
        };
        format!("rank {} of {} owns {part:.1} % of the nodes{assigned}", book.rank(), book.size())
    }

    /// [`RankDataset::feature`] with a cache of remote rows, of `--cache-ratio` of all rows, and
    /// its description. Hotness is computed from this rank's share of the batches; all ranks call
    /// this at the same time.
    ///
    /// # Errors
    /// The policy is unknown, or rows cannot be fetched.
    pub(crate) fn cached(
        &self,
        config: &TrainConfig,
        sampler: &dyn MinibatchSampler,
        order: &dyn SeedOrder,
    ) -> Result<(Arc<dyn Feature>, String)> {
        let nodes = self.data.num_nodes();
        let book = self.ranks.book();
        let has = self.describe(config);
        let slots = config.cache_ratio.0.map_or(0, |ratio| (ratio * nodes as f64).round() as usize);
        let slots = slots.min(nodes - book.num_own());
        if slots == 0 {
            return Ok((self.feature(), format!("{has}, and caches no rows of other ranks")));
        }
        let policy = resolve_cache(&config.cache, "", POSTERIOR);
        let kind = kind(policy)?;
        let hottest = match kind {
            Kind::Dynamic(_) => Vec::new(),
            Kind::Pinned => {
                let scores = scores_of_rank(policy, config, &self.data, sampler, order, book)
                    .map_err(|e| Error::usage(format!("--cache {policy}: {e}")))?;
                by_scores(&scores)?.into_iter().filter(|&v| !book.is_own(v)).take(slots).collect()
            }
        };
        let rows = self.own.with_cached_others(&self.ranks, kind, slots, &hottest)?;
        let part = 100.0 * slots as f64 / nodes.max(1) as f64;
        Ok((rows, format!("{has}, and caches the rows of another {part:.1} % ({policy})")))
    }
}

/// Labels of own nodes, and of all training, validation and test nodes, which the ranks exchange.
fn labels(ranks: &Ranks, dir: &PartitionDir, parts: &[Part]) -> Result<Labels> {
    let (nodes, book) = (dir.num_nodes(), ranks.book());
    let split = [&dir.split.train, &dir.split.valid, &dir.split.test];
    let shared = || split.into_iter().flat_map(|ids| ids.iter().copied());
    let first = &parts[0].dataset.labels;
    let classes = parts.iter().map(|part| part.dataset.labels.classes()).max().unwrap_or(0);
    match first {
        Labels::Single { .. } => {
            let mut class = vec![-1i32; nodes];
            for part in parts {
                let Labels::Single { class: own, .. } = &part.dataset.labels else { return Err(mixed()) };
                part.nodes.iter().zip(own.iter()).for_each(|(&v, &c)| class[v as usize] = c);
            }
            let own = shared().filter(|&v| book.is_own(v)).map(|v| class[v as usize] as u32);
            let gathered = ranks.gather(&own.collect::<Vec<u32>>())?;
            let mut gathered: Vec<_> = gathered.iter().map(|words| words.iter()).collect();
            for v in shared() {
                class[v as usize] = gathered[book.owner(v)].next().map_or(-1, |&c| c as i32);
            }
            Ok(Labels::Single { class: class.into(), classes })
        }
        Labels::Multi { .. } => {
            let mut member = vec![0u8; nodes * classes];
            for part in parts {
                let Labels::Multi { member: own, .. } = &part.dataset.labels else { return Err(mixed()) };
                for (&v, row) in part.nodes.iter().zip(own.chunks_exact(classes.max(1))) {
                    member[v as usize * classes..][..classes].copy_from_slice(row);
                }
            }
            let words = classes.div_ceil(32);
            let mut own = Vec::new();
            for v in shared().filter(|&v| book.is_own(v)) {
                let row = &member[v as usize * classes..][..classes];
                own.extend(
                    row.chunks(32).map(|bits| {
                        bits.iter().enumerate().map(|(i, &bit)| u32::from(bit) << i).sum::<u32>()
                    }),
                );
            }
            let gathered = ranks.gather(&own)?;
            let mut gathered: Vec<_> = gathered.iter().map(|of| of.chunks_exact(words.max(1))).collect();
            for v in shared() {
                let Some(bits) = gathered[book.owner(v)].next() else { continue };
                let row = &mut member[v as usize * classes..][..classes];
                row.iter_mut().enumerate().for_each(|(i, to)| *to = (bits[i / 32] >> (i % 32) & 1) as u8);
            }
            Ok(Labels::Multi { member: member.into(), classes })
        }
    }
}

fn mixed() -> Error {
    Error::usage("some parts have one label per node and others several; partition the dataset again")
}
