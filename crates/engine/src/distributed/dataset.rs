//! A rank's part of a partitioned dataset: all nodes, the edges into its own nodes, their feature
//! rows, and the labels of its own nodes and of all training, validation and test nodes.
//!
//! Memory besides the parts, per node of the whole graph: 8 bytes for row starts, 4 for labels (a
//! byte per class for multi-label data), 2 for the owners, and 4 mapped bytes for degrees.

use std::sync::{Arc, PoisonError, RwLock};

use graphmill_core::{Buffer, Graph, Labels, NodeId, WholeDegrees, progress::Quiet, rank};
use graphmill_data::{
    Dataset,
    dataset::Normalization,
    partition::{Part, PartitionDir},
};
use graphmill_distributed::{Messenger, NodeOwnership, sampler::Distributed};
use graphmill_loader::{
    Feature, HopSampler, MinibatchSampler,
    order::{self, OverRanks, SeedOrder},
    sampler::{self, HopStack, WeightOptions, inference::InferenceNeighbors},
};

use serde::{Deserialize, Serialize};

use super::{
    AssignedParts, RankSubgraphs, Ranks, links,
    own_rows::OwnRows,
    words::{pack, unpack},
};
use crate::{
    Error, Result, TrainConfig, build, config::link_task::is_link, link::LinkTask, record::DatasetRecord,
    verification::FeatureFiles,
};

/// A rank's part of the dataset, with the ranks.
pub struct RankDataset {
    /// All nodes, the edges into own nodes (all edges, in a run on links), and the labels of own,
    /// training, validation and test nodes; no features.
    pub data: Dataset,
    /// The ranks.
    pub ranks: Arc<Ranks>,
    /// Checksum of the partition.
    pub(crate) partition: String,
    /// Number of edges of the whole dataset.
    edges: usize,
    degrees: Buffer<u32>,
    /// Rows of the own parts, which other ranks request.
    own: RwLock<Arc<OwnRows>>,
    pub(super) dir: PartitionDir,
    /// The own parts.
    pub(super) parts: Vec<Part>,
    /// Feature files of the own parts.
    pub(crate) files: FeatureFiles,
    /// Training nodes in the order of each stored search, if the order reads them.
    searches: Option<Vec<Vec<NodeId>>>,
    /// Source of this rank's subgraphs, if the sampler draws subgraphs.
    pub(crate) subgraphs: Option<RankSubgraphs>,
}

impl RankDataset {
    /// Opens this rank's parts, and serves their rows to the other ranks.
    ///
    /// # Errors
    /// A part cannot be read, the partition has fewer parts than ranks, or ranks have opened
    /// different partitions.
    pub(crate) fn open(config: &TrainConfig, dir: &PartitionDir, post: Arc<Messenger>) -> Result<Self> {
        let stores = config.graph_stores;
        let book = NodeOwnership::with_stores(dir.book.clone(), post.rank(), post.size(), stores);
        let book = Arc::new(book.map_err(|error| match stores {
            0 => Error::name(error),
            _ => Error::usage(format!("--graph-stores {stores}: {error}")),
        })?);
        let parts =
            book.parts_of(book.rank()).map(|part| dir.part_with(part as u16, config.verify.at_opening()));
        let parts: Vec<Part> = parts.collect::<graphmill_core::Result<_>>()?;
        let ranks = Ranks::new(post.clone(), book.clone())?;
        let partitions = ranks.gather(&dir.checksum().bytes().map(u32::from).collect::<Vec<u32>>())?;
        if let Some(other) = partitions.iter().position(|checksum| *checksum != partitions[0]) {
            return Err(Error::usage(format!(
                "rank 0 and rank {other} have opened different partitions; copy the same partition to all \
                 machines"
            )));
        }
        let layout = PartLayout::agree(&ranks, &parts)?;
        let files = FeatureFiles::of_all(parts.iter().map(|part| &part.dataset));
        let own = OwnRows::open(config, dir, &parts, &ranks, layout.dim)?;
        let graph = match is_link(config) {
            true => links::whole_graph(dir, config.verify.at_opening())?,
            false => own_graph(config, dir, &parts, &ranks)?,
        };
        let labels = labels(&ranks, dir, &parts, &layout)?;
        let data = Dataset {
            name: dir.source().to_string(),
            graph,
            features: own.layout(),
            labels,
            split: dir.split.clone(),
            normalization: layout.normalization,
            metric: layout.metric,
            checksum: dir.source_checksum().map(str::to_string),
            ..Dataset::default()
        };
        let (edges, degrees) = (dir.num_edges(), dir.degrees.clone());
        let partition = dir.checksum().to_string();
        let searches = searches(config, dir)?;
        let ranks = Arc::new(ranks);
        let (own, dir) = (RwLock::new(Arc::new(own)), dir.clone());
        let subgraphs = None;
        let mut view =
            Self { data, ranks, partition, edges, degrees, own, dir, parts, files, searches, subgraphs };
        let entry = sampler::TABLE.find(&config.sampler).map_err(Error::name)?;
        if entry.make.draws_subgraphs() {
            config.check()?;
            let subgraphs = RankSubgraphs::open(config, &view.data, &view.ranks, view.feature())?;
            view.subgraphs = Some(subgraphs);
        } else if config.shuffle_parts > 0 {
            return Err(Error::usage(format!(
                "--shuffle-parts {}: --sampler {} reads the parts of all ranks; leave it out",
                config.shuffle_parts, config.sampler
            )));
        }
        Ok(view)
    }

    /// Links that a run with these options learns, the same on all ranks; `None` if it learns
    /// targets of nodes.
    ///
    /// # Errors
    /// As [`LinkTask::new`].
    pub(crate) fn links(&self, config: &TrainConfig) -> Result<Option<LinkTask>> {
        links::task(config, &self.data, &self.partition)
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
        if let Some(subgraphs) = &self.subgraphs {
            return Ok(subgraphs.sampler(&self.ranks));
        }
        let inner = build::hop_sampler(config, &self.data)?;
        let (post, book) = (self.ranks.post().clone(), self.ranks.book().clone());
        let sampler = Distributed::new(inner, post, book)
            .map_err(|why| Error::usage(format!("--sampler {}: over several ranks {why}", config.sampler)))?
            .with_degrees(self.degrees.clone())
            .with_building(self.ranks.building().clone());
        sampler.serve(&self.data.graph);
        // no rank requests draws before all ranks serve them
        self.ranks.meet()?;
        Ok(Box::new(HopStack::new(sampler)))
    }

    /// Order of the seeds, the same on all ranks.
    ///
    /// # Errors
    /// An option is impossible.
    pub(crate) fn order(&self, config: &TrainConfig) -> Result<Box<dyn SeedOrder + '_>> {
        build::order_of(config, &self.data, self.searches.as_deref(), &Quiet)
    }

    /// Neighbours that inference aggregates. Walks reach nodes of other ranks.
    ///
    /// # Errors
    /// An option is impossible.
    pub(crate) fn inference_neighbors(&self, config: &TrainConfig) -> Result<InferenceNeighbors> {
        let (post, book) = (self.ranks.post(), self.ranks.book());
        let over_ranks = |walks| {
            let walks = Distributed::new(walks, post.clone(), book.clone()).map_err(Error::usage)?;
            Ok(Arc::new(walks.with_degrees(self.degrees.clone())) as Arc<dyn HopSampler>)
        };
        build::inference_neighbors(config, &self.data)?.with_walks(over_ranks)
    }

    /// All rows: own rows, and rows of other ranks over the network. With
    /// [`RankDataset::add_aggregates`], the aggregates of all nodes follow.
    pub(crate) fn feature(&self) -> Arc<dyn Feature> {
        self.rows().with_others(&self.ranks)
    }

    /// Rows of this rank's own parts, as it serves them.
    pub(super) fn rows(&self) -> Arc<OwnRows> {
        self.own.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the rows of this rank's own parts.
    pub(super) fn set_rows(&self, rows: OwnRows) {
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rows);
    }

    /// Texts of all ranks, in their order. All ranks call this at the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn gather_text(&self, own: &str) -> Result<Vec<String>> {
        let all = self.ranks.gather(&own.bytes().map(u32::from).collect::<Vec<u32>>())?;
        let text = |words: &Vec<u32>| {
            let bytes: Vec<u8> = words.iter().map(|&word| word as u8).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(all.iter().map(text).collect())
    }

    /// Parts from which this rank draws subgraphs, if it does.
    pub(crate) fn assigned(&self) -> Option<&Arc<AssignedParts>> {
        self.subgraphs.as_ref()?.parts.as_ref()
    }

    /// Describes this rank's part for a note.
    pub(crate) fn describe(&self, config: &TrainConfig) -> String {
        let book = self.ranks.book();
        let part = 100.0 * book.num_own() as f64 / self.data.num_nodes().max(1) as f64;
        let assigned = match (self.assigned(), config.shuffle_parts) {
            (None, _) => String::new(),
            (Some(_), 0) => ", and draws subgraphs from them".to_string(),
            (Some(_), every) => {
                format!(", and draws subgraphs from parts that are reassigned every {every} epochs")
            }
        };
        let (rank, size, stores) = (book.rank(), book.size(), book.num_stores());
        if stores == 0 {
            return format!("rank {rank} of {size} owns {part:.1} % of the nodes{assigned}");
        }
        match book.trains() {
            true => format!("rank {rank} of {size} trains on rows of {stores} graph stores"),
            false => {
                format!("rank {rank} of {size} is a graph store with {part:.1} % of the nodes{assigned}")
            }
        }
    }
}

/// Graph of all nodes with the edges into own nodes, and the degrees in the whole graph.
fn own_graph(config: &TrainConfig, dir: &PartitionDir, parts: &[Part], ranks: &Ranks) -> Result<Graph> {
    let graph = dir.graph_of(parts)?;
    let of_out = match config.own.get::<WeightOptions>().edge_weights.reads_out_degrees() {
        true => Some(out_degrees(ranks, &graph)?),
        false => None,
    };
    Ok(graph.with_whole_degrees(WholeDegrees { of_in: dir.degrees.clone(), of_out }))
}

/// Number of nodes whose out-degrees ranks exchange at once.
const DEGREE_CHUNK: usize = 1 << 20;

/// Out-degrees of all nodes in the whole graph, of which `own` has all nodes and this rank's edges.
fn out_degrees(ranks: &Ranks, own: &Graph) -> Result<Vec<u32>> {
    let mut degrees = rank::out_degrees(own);
    for chunk in degrees.chunks_mut(DEGREE_CHUNK) {
        let gathered = ranks.gather(chunk)?;
        chunk.fill(0);
        for of_rank in &gathered {
            chunk.iter_mut().zip(of_rank).for_each(|(degree, own)| *degree = degree.saturating_add(*own));
        }
    }
    Ok(degrees)
}

/// Searches that the partition stores, if the order of the seeds reads them.
fn searches(config: &TrainConfig, dir: &PartitionDir) -> Result<Option<Vec<Vec<NodeId>>>> {
    let entry = order::TABLE.find(&config.order).map_err(Error::name)?;
    if entry.make.over_ranks != OverRanks::StoredSearches || dir.split.train.is_empty() {
        return Ok(None);
    }
    let stored = dir.searches()?;
    if stored.is_none() {
        return Err(Error::usage(format!(
            "--order {}: the partition {} stores no searches of the whole graph; partition the dataset again \
             with this version, or use --order random",
            config.order,
            dir.path().display()
        )));
    }
    Ok(stored)
}

/// Properties that all parts share. A rank without parts learns them from the others.
#[derive(Default, Serialize, Deserialize)]
struct PartLayout {
    /// Width of a feature row.
    dim: usize,
    classes: usize,
    is_multi: bool,
    normalization: Option<Normalization>,
    metric: Option<String>,
}

impl PartLayout {
    /// Exchanges the properties of each rank's parts. All ranks call this at the same time.
    ///
    /// # Errors
    /// Parts differ, or a rank did not take part.
    fn agree(ranks: &Ranks, parts: &[Part]) -> Result<Self> {
        let own = parts.first().map(|part| {
            let data = &part.dataset;
            let classes = parts.iter().map(|part| part.dataset.labels.classes()).max().unwrap_or(0);
            let (normalization, metric) = (data.normalization.clone(), data.metric.clone());
            let is_multi = data.labels.is_multi();
            Self { dim: data.features.dim, classes, is_multi, normalization, metric }
        });
        let text = own.and_then(|own| serde_json::to_vec(&own).ok()).unwrap_or_default();
        let gathered = ranks.gather(&pack(&vec![(String::new(), text)]))?;
        let mut all = gathered.iter().filter_map(|words| {
            let text = unpack(words)?.pop()?.1;
            serde_json::from_slice::<Self>(&text).ok()
        });
        let Some(mut layout) = all.next() else {
            return Err(Error::usage(
                "no rank has a part of the partition; use the same build on all machines",
            ));
        };
        for other in all {
            if (other.dim, other.is_multi) != (layout.dim, layout.is_multi) {
                return Err(mixed());
            }
            layout.classes = layout.classes.max(other.classes);
        }
        Ok(layout)
    }
}

/// Labels of own nodes, and of all training, validation and test nodes, which the ranks exchange.
fn labels(ranks: &Ranks, dir: &PartitionDir, parts: &[Part], layout: &PartLayout) -> Result<Labels> {
    let (nodes, book) = (dir.num_nodes(), ranks.book());
    let split = [&dir.split.train, &dir.split.valid, &dir.split.test];
    let shared = || split.into_iter().flat_map(|ids| ids.iter().copied());
    let classes = layout.classes;
    match layout.is_multi {
        false => {
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
        true => {
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
