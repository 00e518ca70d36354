//! A rank's part of a partitioned dataset of several types: all nodes, the edges into its own nodes
//! by each relation, their feature rows, and the task with the targets of all nodes. Of a task on
//! links, it has the edges into all nodes (`links.rs`).
//!
//! Memory besides the parts, per node of the whole graph: 8 bytes for the row starts of each
//! relation into its type, 2 for the owners, and those of its targets.

use std::sync::{Arc, RwLock};

use graphmill_core::{Matrix, matrix::TableType, typed::NodeType};
use graphmill_data::{
    partition::{EdgeTypeCounts, TypedPart, TypedPartitionDir},
    typed::{EdgeData, FeatureTable, NodeData, TableData, TypedDataset, Values},
};
use graphmill_distributed::{
    Messenger, NodeOwnership,
    messenger::service_of_type,
    rows::{ConcatRows, OwnedAndRemoteRows, ROWS, Remote, RowService, Table},
    sampler::Distributed,
    times::TimesOverRanks,
    walks::StepsOverRanks,
};
use graphmill_loader::{Feature, HopSampler, feature::LinkTraffic, sampler::PathSource, typed::TypedSampler};

use super::{RankEdges, RankSubgraphs, RowOwners};
use crate::{
    Error, Result, TrainConfig,
    batchwise::{BatchLearner, EpochCounts, Session},
    distributed::{LAYERS, Ranks},
    record::{DatasetRecord, RankRecord, TypeCount},
    typed::{
        build,
        counts::TypeCounts,
        edges,
        tables::{self, Tables},
        task::{TypedTask, choose, features, is_stored, unread_columns},
    },
};

/// Rows of a type: own ones, and those of other ranks over the network.
pub(in crate::typed) struct RankRows {
    pub(in crate::typed) own: Table,
    pub(in crate::typed) others: Arc<dyn Feature>,
    /// Bytes of the own rows in host memory; 0 if they are read from files.
    pub(in crate::typed) resident: u64,
    on_disk: bool,
}

impl RankRows {
    /// Returns true if the own rows are read from files.
    pub(in crate::typed) fn is_on_disk(&self) -> bool {
        self.on_disk
    }
}

/// A rank's view of a partitioned dataset.
pub(in crate::typed) struct TypedRankView {
    pub(in crate::typed) ranks: Arc<Ranks>,
    /// Owners of the nodes of each type.
    pub(in crate::typed) owners: Vec<Arc<NodeOwnership>>,
    /// Types of the dataset, with the widths of their features and the tasks on nodes.
    pub(in crate::typed) data: TypedDataset,
    /// The task, on the graph of all nodes with the edges into own ones or, of links, with those of
    /// the whole graph that batches read.
    pub(in crate::typed) task: TypedTask,
    /// Rows of all nodes of each type: own ones, and those of other ranks over the network.
    pub(in crate::typed) tables: Tables,
    /// The same rows by their places.
    pub(in crate::typed) rows: Vec<Option<RankRows>>,
    /// Rows of edges, if the model reads them.
    pub(in crate::typed) edges: RankEdges,
    /// Own rows between layers of each type.
    layers: Vec<[Arc<RwLock<Matrix>>; 2]>,
    /// Record of the whole dataset.
    pub(in crate::typed) record: DatasetRecord,
    /// Checksum of the partition.
    pub(in crate::typed) partition: String,
    /// Columns that training does not read, in words.
    pub(in crate::typed) unread: Option<String>,
    /// True if the rank has the edges into all nodes, so that it draws neighbours itself.
    has_all_edges: bool,
}

/// The parts of a rank, and what all ranks know of the dataset.
pub(super) struct Opened {
    pub(super) ranks: Arc<Ranks>,
    /// Owners of the nodes of each type.
    pub(super) owners: Vec<Arc<NodeOwnership>>,
    pub(super) parts: Vec<TypedPart>,
    /// Types of the dataset, with the widths of their features and the tasks on nodes.
    pub(super) data: TypedDataset,
}

/// The task of a view, with what is known of its edges.
pub(super) struct Viewed {
    pub(super) task: TypedTask,
    pub(super) edges: RankEdges,
    pub(super) record: DatasetRecord,
    pub(super) unread: Option<String>,
    pub(super) has_all_edges: bool,
}

impl Opened {
    /// Opens this rank's parts. All ranks call this at the same time.
    ///
    /// # Errors
    /// A part cannot be read, the ranks have opened different partitions, there are fewer parts
    /// than ranks, or a rank did not take part.
    pub(super) fn new(config: &TrainConfig, dir: &TypedPartitionDir, post: Arc<Messenger>) -> Result<Self> {
        let (rank, size) = (post.rank(), post.size());
        let book = NodeOwnership::new(dir.book.clone(), rank, size).map_err(Error::name)?;
        let types = dir.schema().num_types();
        let of_type = |t: usize| Ok(Arc::new(NodeOwnership::new(dir.book_of(t)?, rank, size)?));
        let owners: Vec<Arc<NodeOwnership>> =
            (0..types).map(of_type).collect::<graphmill_core::Result<_>>().map_err(Error::name)?;
        let parts = book.parts_of(rank).map(|part| dir.part(part as u16, config.verify.at_opening()));
        let parts: Vec<TypedPart> = parts.collect::<graphmill_core::Result<_>>()?;
        let ranks = Arc::new(Ranks::new(post, Arc::new(book))?);
        let partitions = ranks.gather(&dir.checksum().bytes().map(u32::from).collect::<Vec<u32>>())?;
        if let Some(other) = partitions.iter().position(|checksum| *checksum != partitions[0]) {
            return Err(Error::usage(format!(
                "rank 0 and rank {other} have opened different partitions; copy the same partition to all \
                 machines"
            )));
        }
        let data = types_of(dir, &parts);
        Ok(Self { ranks, owners, parts, data })
    }

    /// Serves the rows of this rank's nodes to the other ranks. All ranks call this at the same
    /// time.
    ///
    /// # Errors
    /// Rows cannot be read, or a rank did not take part.
    pub(super) fn view(
        self,
        config: &TrainConfig,
        dir: &TypedPartitionDir,
        of: Viewed,
    ) -> Result<TypedRankView> {
        let Self { ranks, owners, parts, data } = self;
        let Viewed { task, edges, record, unread, has_all_edges } = of;
        let types = owners.len();
        let mut view = TypedRankView {
            tables: Vec::with_capacity(types),
            rows: Vec::with_capacity(types),
            edges,
            layers: (0..types).map(|_| Default::default()).collect(),
            record,
            partition: dir.checksum().to_string(),
            unread,
            has_all_edges,
            ranks,
            owners,
            data,
            task,
        };
        let on_disk = exceeds(config.host_budget.0, &parts, view.task.row_type);
        for t in 0..types {
            let rows = view.serve(t, &parts, on_disk)?;
            let of = |RankRows { own, others, .. }: &RankRows| {
                let rows = OwnedAndRemoteRows::new(view.owners[t].clone(), own.clone(), others.clone());
                Arc::new(rows) as Arc<dyn Feature>
            };
            view.tables.push(rows.as_ref().map(of));
            view.rows.push(rows);
        }
        // no rank requests rows before all ranks serve them
        view.ranks.meet()?;
        Ok(view)
    }
}

impl TypedRankView {
    /// Opens this rank's parts for a task on nodes, and serves their rows to the other ranks. All
    /// ranks call this at the same time.
    ///
    /// # Errors
    /// Those of [`Opened::new`], or the task is not one to train on over ranks.
    pub(super) fn open(config: &TrainConfig, dir: &TypedPartitionDir, post: Arc<Messenger>) -> Result<Self> {
        let mut opened = Opened::new(config, dir, post)?;
        let Opened { ranks, owners, parts, data } = &mut opened;
        let graph = dir.graph_of(parts)?;
        if choose(data, &config.task)?.time.is_some() {
            add_times(data, dir, parts)?;
        }
        let task = TypedTask::on_graph(data, &config.task, graph)?;
        let seeds = [task.node_type];
        let mut task = task.with_added(config, &seeds)?;
        let mut edges = RankEdges::default();
        if edges::reads(&config.model) {
            edges = RankEdges::open(config, (dir, parts), (ranks, ranks.book()))?;
            edges::check_features(config, data, &edges.all)?;
            task.edges.clone_from(&edges.all);
        }
        task.times = task.times.map(|times| {
            let of = (times.graph().clone(), config.own.get());
            let rows = TimesOverRanks::serve(ranks.post().clone(), owners.clone(), of, edges.first.clone());
            times.with_rows(Arc::new(rows))
        });
        let record = record(dir, data, &task);
        let unread = parts.first().and_then(|part| unread_columns(&part.dataset, &task));
        opened.view(config, dir, Viewed { task, edges, record, unread, has_all_edges: false })
    }

    /// Serves the own rows of type `t`, of features and between layers; with `on_disk`, feature
    /// rows are read from the files of the parts, if they are stored as they are trained on.
    fn serve(&self, t: usize, parts: &[TypedPart], on_disk: bool) -> Result<Option<RankRows>> {
        let (post, owners) = (self.ranks.post(), &self.owners[t]);
        for (service, table) in LAYERS.iter().zip(&self.layers[t]) {
            let rows = RowService::new(owners.clone(), Table::Written(table.clone()));
            post.serve(service_of_type(*service, t), Arc::new(rows));
        }
        let dim = self.task.feature_dims()[t];
        if dim == 0 {
            return Ok(None);
        }
        let on_disk = on_disk && parts.iter().all(|part| is_dense_file(part, t));
        let mut resident = 0;
        let of_part = |part: &TypedPart| {
            if let Some(dir) = part.dataset.directory.as_deref().filter(|_| on_disk) {
                return tables::on_disk(dir, t, &part.dataset, self.task.row_type);
            }
            let rows = features(&part.dataset, &part.dataset.nodes[t])?.unwrap_or_default();
            let width = |stored: TableType| self.task.row_type.unwrap_or(stored).width();
            resident += rows.data.kind().map_or(rows.bytes(), |stored| width(stored) * rows.len()) as u64;
            tables::in_host(&rows, self.task.row_type)
        };
        let of_parts: Vec<Arc<dyn Feature>> = parts.iter().map(of_part).collect::<Result<_>>()?;
        let own: Arc<dyn Feature> = match &of_parts[..] {
            [one] => one.clone(),
            _ => Arc::new(ConcatRows::new(of_parts, parts.iter().map(|part| &part.nodes[t][..]))?),
        };
        let kind = own.capabilities().half.unwrap_or(TableType::F32);
        let (service, own) = (service_of_type(ROWS, t), Table::Constant(own));
        post.serve(service, Arc::new(RowService::new(owners.clone(), own.clone())));
        let others = Arc::new(Remote::new(post.clone(), owners.clone(), service, dim).stored_in(kind));
        Ok(Some(RankRows { own, others, resident, on_disk }))
    }

    /// Sampler of this rank, which draws for the other ranks too, or subgraphs of its own part, or
    /// for itself from all edges. All ranks call this at the same time.
    ///
    /// # Errors
    /// An option is impossible, the draws read more than single lists of neighbours or single
    /// neighbours, or the rank has no training nodes for its subgraphs.
    pub(in crate::typed) fn sampler(&self, config: &TrainConfig) -> Result<Box<dyn TypedSampler>> {
        if self.has_all_edges {
            return build::sampler(config, &self.task);
        }
        if build::draws_subgraphs(config) {
            let own = RankSubgraphs::new(config, &self.task, &self.owners, &self.edges)?;
            return Ok(Box::new(own.agreed(&self.ranks)?));
        }
        let own = build::sampler(config, &self.task)?;
        let sampler = match self.task.times {
            // the rows of times are those of all ranks
            Some(_) => own,
            None => self.at_owners(config, &*own)?,
        };
        // no rank requests draws before all ranks serve them
        self.ranks.meet()?;
        Ok(sampler)
    }

    /// The sampler `own` with draws at the owners of nodes, which this rank serves.
    fn at_owners(&self, config: &TrainConfig, own: &dyn TypedSampler) -> Result<Box<dyn TypedSampler>> {
        let (graph, post) = (&self.task.graph, self.ranks.post());
        let by_relation = own.by_relation(&mut |r, inner| {
            let of = &graph.schema().relations()[r];
            let (owners, sources) = (self.owners[of.dst].clone(), graph.schema().types()[of.src].count);
            let sampler = Distributed::new(inner, post.clone(), owners)?.of_relation(r, sources);
            let mut sampler = sampler.with_building(self.ranks.building().clone());
            if let Some(first) = self.edges.first(r) {
                sampler = sampler.naming_edges(first);
            }
            sampler.serve(graph.relation(r));
            Ok(Arc::new(sampler) as Arc<dyn HopSampler>)
        });
        let by_steps = || {
            let steps = StepsOverRanks::serve(post.clone(), self.owners.clone(), graph.clone());
            own.by_steps(&(Arc::new(steps) as Arc<dyn PathSource>)).map(Ok)
        };
        let refused = || {
            Err(format!(
                "--sampler {}: over ranks on several types its draws read the neighbours of several nodes; \
                 use --sampler neighbor, full, weighted, labor, hgt or metapath-walk",
                config.sampler
            ))
        };
        by_relation.or_else(by_steps).unwrap_or_else(refused).map_err(Error::usage)
    }

    /// Ends an epoch whose batches are trained on: replaces its totals and counts on this rank by
    /// those of all ranks, and returns the work of each. All ranks call this at the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(in crate::typed) fn end_epoch<L: BatchLearner<Counts = TypeCounts>>(
        &self,
        session: &mut Session<L>,
    ) -> Result<Vec<RankRecord>> {
        self.ranks.count_bytes(false)?;
        let (sums, counts) = session.totals();
        let records = self.ranks.end_epoch(sums, LinkTraffic::default())?;
        counts.add_up(&self.ranks)?;
        Ok(records)
    }

    /// The ranks, with the owners of learned rows.
    pub(in crate::typed) fn row_owners(&self) -> RowOwners {
        RowOwners { ranks: self.ranks.clone(), owners: self.owners.clone() }
    }

    /// Owners of the seeds.
    pub(in crate::typed) fn of_seeds(&self) -> &NodeOwnership {
        &self.owners[self.task.node_type]
    }

    /// Table of the own rows of type `t` below layer `l`, and a feature that reads such rows of all
    /// ranks, of `dim` values each.
    pub(super) fn layer(&self, t: usize, l: usize, dim: usize) -> (&RwLock<Matrix>, OwnedAndRemoteRows) {
        let (which, owners) = (l % 2, &self.owners[t]);
        let table = &self.layers[t][which];
        let service = service_of_type(LAYERS[which], t);
        let others = Remote::new(self.ranks.post().clone(), owners.clone(), service, dim);
        let own = Table::Written(table.clone());
        (table, OwnedAndRemoteRows::new(owners.clone(), own, Arc::new(others)))
    }

    /// Describes this rank's part for a note.
    pub(in crate::typed) fn describe(&self, config: &TrainConfig) -> String {
        let types = self.task.graph.schema().types().iter().zip(&self.owners);
        let share = |(node, owners): (&NodeType, &Arc<NodeOwnership>)| {
            let share = 100.0 * owners.num_own() as f64 / node.count.max(1) as f64;
            format!("{} {share:.1} %", node.name)
        };
        let shares: Vec<String> = types.map(share).collect();
        let drawn = if build::draws_subgraphs(config) { "; it draws subgraphs of these nodes" } else { "" };
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        format!("rank {rank} of {size} owns {}{drawn}", shares.join(", "))
    }
}

/// Adds the times of the edges into own nodes to `data`, which has those of the nodes.
fn add_times(data: &mut TypedDataset, dir: &TypedPartitionDir, parts: &[TypedPart]) -> Result<()> {
    for (r, edges) in data.edges.iter_mut().enumerate() {
        edges.time = dir.edge_times(parts, r)?;
    }
    let of_parts = parts.iter().flat_map(|part| data.nodes.iter().zip(&part.dataset.nodes));
    match { of_parts }.find(|(whole, part)| whole.time.is_none() && part.time.is_some()) {
        None => Ok(()),
        Some((nodes, _)) => Err(Error::dataset(
            &data.name,
            format!(
                "an earlier version partitioned it without the times of all nodes of type {}; partition it \
                 again",
                nodes.name
            ),
        )),
    }
}

/// Returns true if the feature rows of `parts` exceed a budget of host memory, in the number type
/// `kind` in which they are read if one is given.
fn exceeds(budget: u64, parts: &[TypedPart], kind: Option<TableType>) -> bool {
    let bytes = |nodes: &NodeData| match nodes.features.as_ref().map(|table| &table.data) {
        None => 0,
        Some(TableData::Dense(values)) => {
            let stored = if matches!(values, Values::F16(_)) { TableType::F16 } else { TableType::F32 };
            (values.len() * kind.unwrap_or(stored).width()) as u64
        }
        Some(TableData::Sparse(rows)) => rows.bytes() as u64,
    };
    budget > 0 && parts.iter().flat_map(|part| &part.dataset.nodes).map(bytes).sum::<u64>() > budget
}

/// Returns true if the part's rows of type `t` are a file of dense rows that are trained on as they
/// are.
fn is_dense_file(part: &TypedPart, t: usize) -> bool {
    let nodes = &part.dataset.nodes[t];
    let is_dense = nodes.features.as_ref().is_some_and(|table| matches!(table.data, TableData::Dense(_)));
    is_dense && is_stored(nodes) && part.dataset.directory.is_some()
}

/// The types of the whole dataset, with the widths of their features, which all parts share, and
/// the tasks on nodes.
fn types_of(dir: &TypedPartitionDir, parts: &[TypedPart]) -> TypedDataset {
    let mut data = TypedDataset {
        name: dir.source().to_string(),
        checksum: dir.source_checksum().map(str::to_string),
        directory: None,
        ..dir.whole.clone()
    };
    let without_rows = |table: &FeatureTable| FeatureTable {
        names: table.names.clone(),
        ..FeatureTable::dense(table.width, Values::F32(Vec::new().into()))
    };
    for (nodes, of_part) in data.nodes.iter_mut().zip(parts.iter().flat_map(|part| &part.dataset.nodes)) {
        nodes.normalization.clone_from(&of_part.normalization);
        nodes.features = of_part.features.as_ref().map(without_rows);
    }
    let without_edges = |of: &EdgeData| EdgeData {
        edge_type: of.edge_type.clone(),
        reverse: None,
        indptr: Vec::new().into(),
        indices: Vec::new().into(),
        weights: None,
        time: None,
        features: of.features.as_ref().map(without_rows),
    };
    data.edges = parts.iter().take(1).flat_map(|part| &part.dataset.edges).map(without_edges).collect();
    data
}

/// Record of the whole dataset.
fn record(dir: &TypedPartitionDir, data: &TypedDataset, task: &TypedTask) -> DatasetRecord {
    let edge_type =
        |of: &EdgeTypeCounts| TypeCount { name: of.edge_type.to_string(), count: of.edges as u64 };
    DatasetRecord {
        edges: dir.num_edges(),
        edge_types: dir.edge_types().iter().map(edge_type).collect(),
        ..task.record(data)
    }
}
