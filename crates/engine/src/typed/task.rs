//! A task on nodes of a dataset of several types, classification or regression: graph, feature
//! tables, targets and split, as samplers and models read them.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use graphmill_core::{
    Buffer, Features, Labels, NodeId, Split,
    features::FeatureData,
    matrix::TableType,
    options::one_of,
    search::position,
    typed::{NodeType, TypedGraph},
};
use graphmill_data::typed::{
    EdgeData, NodeData, Seeds, TableData, Targets, Task, TaskKind, TaskOn, TypedDataset,
};
use graphmill_loader::{BatchKey, Feature, typed::TypedRequest};
use rayon::prelude::*;

use super::{
    added,
    counts::TypeCounts,
    edges,
    tables::{Tables, in_host},
    time::TaskTimes,
};
use crate::{
    Error, Result, TrainConfig,
    config::FeaturePrecision,
    label_inputs::LabelColumns,
    memory::chosen_type,
    record::{DatasetRecord, EpochRecord, Traffic, TypeCount, TypeTraffic},
};

/// A task on the nodes of one type, and the data that it is learned from.
#[derive(Clone)]
pub(super) struct TypedTask {
    /// Name of the task.
    pub(super) name: String,
    /// Node types, and the in-neighbours by each edge type.
    pub(super) graph: TypedGraph,
    /// Feature rows of each type; `None` for a type without features.
    pub(super) features: Vec<Option<Features>>,
    /// Number type in which dense rows are read, if `--feature-precision` or `--precision` sets it.
    pub(super) row_type: Option<TableType>,
    /// Table of each type with features in host memory, once made.
    pub(super) resident: Vec<OnceLock<Arc<dyn Feature>>>,
    /// Feature rows of each edge type, `None` for a type without features; empty if the model does
    /// not read them.
    pub(super) edges: Tables,
    /// Labels that follow the feature rows of the task's type, if the run has `--label-inputs`.
    pub(super) label_columns: Option<LabelColumns>,
    /// Directory of files with the learned rows, if they exceed the host's budget.
    pub(super) learned_in: Option<PathBuf>,
    /// True for a type whose rows are stored as they are trained on, false if they were converted.
    pub(super) is_stored: Vec<bool>,
    /// Times of the seeds and of the graph, if the rows of the task have times.
    pub(super) times: Option<TaskTimes>,
    /// Number of the node type of the seeds.
    pub(super) node_type: usize,
    /// Labels, or values, of all nodes of that type.
    pub(super) labels: Labels,
    /// Nodes that train, validate and test, ascending.
    pub(super) split: Split,
    /// Customary metric, if known.
    pub(super) metric: Option<String>,
    /// Names of the classes; may be empty.
    pub(super) classes: Vec<String>,
}

impl TypedTask {
    /// Prepares the task `name` of `data`, or with an empty name its only classification of nodes,
    /// else its only regression.
    /// Feature rows are shared, or converted to f32 if they are neither f16 nor f32.
    ///
    /// # Errors
    /// The task is unknown or of another kind, its classes are missing, no edge has a time if its
    /// rows have, or features exceed f32.
    pub(super) fn new(data: &TypedDataset, name: &str) -> Result<Self> {
        let task = choose(data, name)?;
        Self::of(data, task, data.graph()?)
    }

    /// Prepares the task `name` of `data` as [`TypedTask::new`] does, on the graph `graph` of its
    /// types.
    ///
    /// # Errors
    /// As for [`TypedTask::new`].
    pub(super) fn on_graph(data: &TypedDataset, name: &str, graph: TypedGraph) -> Result<Self> {
        Self::of(data, choose(data, name)?, graph)
    }

    fn of(data: &TypedDataset, task: &Task, graph: TypedGraph) -> Result<Self> {
        let TaskOn::Nodes(on) = &task.on else { return Err(other_kind(data, task)) };
        let labels = &match &task.targets {
            Targets::Classes(labels) => labels.clone(),
            Targets::Values { width, values } => Labels::Values { values: values.clone(), width: *width },
            Targets::None => return Err(other_kind(data, task)),
        };
        let node_type = graph.schema().find_type(on)?;
        let (labels, split) = by_node(data, task, labels, data.nodes[node_type].count)?;
        if labels.classes() == 0 {
            let message = format!("task '{}' has no targets; add those of its nodes", task.name);
            return Err(Error::dataset(&data.name, message));
        }
        let times = TaskTimes::new(data, task, &graph, node_type)?;
        Ok(Self {
            name: task.name.clone(),
            times,
            graph,
            features: data.nodes.iter().map(|nodes| features(data, nodes)).collect::<Result<_>>()?,
            row_type: None,
            resident: vec![OnceLock::new(); data.nodes.len()],
            edges: Vec::new(),
            label_columns: None,
            learned_in: None,
            is_stored: data.nodes.iter().map(is_stored).collect(),
            node_type,
            labels,
            split,
            metric: task.metric.clone(),
            classes: task.names.clone(),
        })
    }

    /// The data of a task on links, which has no targets: the features of `data`, with the edges of
    /// `graph`.
    ///
    /// # Errors
    /// Features exceed f32.
    pub(super) fn of_links(data: &TypedDataset, name: &str, graph: TypedGraph) -> Result<Self> {
        let features = data.nodes.iter().map(|nodes| features(data, nodes)).collect::<Result<_>>()?;
        Ok(Self::without_targets(data, name, graph, features))
    }

    /// A task without targets on `graph`, with these features of each type of `data`.
    pub(super) fn without_targets(
        data: &TypedDataset,
        name: &str,
        graph: TypedGraph,
        features: Vec<Option<Features>>,
    ) -> Self {
        Self {
            name: name.into(),
            graph,
            features,
            row_type: None,
            resident: vec![OnceLock::new(); data.nodes.len()],
            edges: Vec::new(),
            label_columns: None,
            learned_in: None,
            is_stored: data.nodes.iter().map(is_stored).collect(),
            times: None,
            node_type: 0,
            labels: Labels::Single { class: Buffer::default(), classes: 0 },
            split: Split::default(),
            metric: None,
            classes: Vec::new(),
        }
    }

    /// The same task with the feature rows of its edges, if the model of the configuration reads
    /// them, its label columns, if it has some, and the relations that its sampler adds.
    ///
    /// # Errors
    /// No edge type has features, a value exceeds f32, labels cannot follow the rows of the task's
    /// type, or an option of the sampler does not fit the types.
    pub(super) fn with_edges(self, config: &TrainConfig, data: &TypedDataset) -> Result<Self> {
        let edges = edges::tables(config, data)?;
        let seeds = [self.node_type];
        Self { edges, ..self }.with_label_columns(config, data)?.with_added(config, &seeds)
    }

    /// The same task with the relations that the sampler of the configuration adds for seeds of the
    /// types `seeds`, and with feature rows in the number type of the configuration.
    ///
    /// # Errors
    /// An unknown name, or an option of the sampler or of feature rows that does not fit the types.
    pub(super) fn with_added(self, config: &TrainConfig, seeds: &[usize]) -> Result<Self> {
        let graph = added::with_added(config, self.graph, seeds)?;
        let times = self.times.map(|times| times.with_relations(&graph)).transpose()?;
        Ok(Self { graph, times, row_type: row_type(config, &self.features)?, ..self })
    }

    /// Request for a batch with the rows that the model reads.
    pub(super) fn request(&self, key: BatchKey) -> TypedRequest<'_> {
        TypedRequest { positions: !self.edges.is_empty(), ..TypedRequest::new(&self.graph, key) }
    }

    /// Feature table of each type in host memory, or mapped.
    ///
    /// # Errors
    /// Rows of another number type than the stored one cannot be made.
    pub(super) fn host_tables(&self) -> Result<Tables> {
        (0..self.features.len()).map(|t| self.host_table(t)).collect()
    }

    /// Table of type `t` in host memory, or mapped, if it has features.
    ///
    /// # Errors
    /// As for [`TypedTask::host_tables`].
    pub(super) fn host_table(&self, t: usize) -> Result<Option<Arc<dyn Feature>>> {
        let (Some(features), made) = (&self.features[t], &self.resident[t]) else { return Ok(None) };
        if let Some(table) = made.get() {
            return Ok(Some(table.clone()));
        }
        let table = in_host(features, self.row_type)?;
        Ok(Some(made.get_or_init(|| table).clone()))
    }

    /// Number type of the rows of type `t`; `None` if they are sparse, or it has no features.
    pub(super) fn kind(&self, t: usize) -> Option<TableType> {
        let stored = self.features[t].as_ref()?.data.kind()?;
        Some(self.row_type.unwrap_or(stored))
    }

    /// Number of features of each type; 0 for a type without features.
    pub(super) fn feature_dims(&self) -> Vec<usize> {
        self.features.iter().map(|features| features.as_ref().map_or(0, |features| features.dim)).collect()
    }

    /// Number of nodes of the type of the seeds.
    pub(super) fn num_nodes(&self) -> usize {
        self.graph.schema().types()[self.node_type].count
    }

    /// Lists of seeds for a batch: `nodes` of the task's type.
    pub(super) fn seeds<'n>(&self, nodes: &'n [NodeId]) -> Vec<&'n [NodeId]> {
        let mut lists: Vec<&[NodeId]> = vec![&[]; self.graph.schema().num_types()];
        lists[self.node_type] = nodes;
        lists
    }

    /// Names of the node types with a count for each.
    pub(super) fn count_nodes(&self, count: impl Fn(usize) -> u64) -> Vec<TypeCount> {
        let types = self.graph.schema().types().iter().enumerate();
        types.map(|(t, node)| TypeCount { name: node.name.clone(), count: count(t) }).collect()
    }

    /// Names of the edge types with a count for each.
    pub(super) fn count_edges(&self, count: impl Fn(usize) -> u64) -> Vec<TypeCount> {
        let schema = self.graph.schema();
        let relations = 0..schema.num_relations();
        relations.map(|r| TypeCount { name: schema.relation_name(r), count: count(r) }).collect()
    }

    /// Names of the types with features, with their traffic in an epoch. `has_device` selects the
    /// tier that hit rates refer to.
    pub(super) fn traffic(&self, of_types: &[Traffic], has_device: bool) -> Vec<TypeTraffic> {
        let types = self.graph.schema().types().iter().zip(&self.features).zip(of_types);
        let with_features = types.filter(|((_, features), _)| features.is_some());
        let record = |((node, _), &traffic): ((&NodeType, _), &Traffic)| TypeTraffic {
            name: node.name.clone(),
            hit_rate: traffic.hit_rate(has_device),
            traffic,
        };
        with_features.map(record).collect()
    }

    /// The record of an epoch with its counts by type.
    pub(super) fn complete(&self, record: EpochRecord, counts: &TypeCounts, has_device: bool) -> EpochRecord {
        EpochRecord {
            node_types: self.count_nodes(|t| counts.nodes.get(t).copied().unwrap_or(0)),
            edge_types: self.count_edges(|r| counts.edges.get(r).copied().unwrap_or(0)),
            type_traffic: self.traffic(&counts.traffic, has_device),
            ..record
        }
    }

    /// Record of the dataset. Features, classes and the split are those of the task.
    pub(super) fn record(&self, data: &TypedDataset) -> DatasetRecord {
        let stored = |edges: &EdgeData| TypeCount {
            name: edges.edge_type.to_string(),
            count: edges.num_edges() as u64,
        };
        DatasetRecord {
            name: data.name.clone(),
            nodes: data.num_nodes(),
            edges: data.num_edges(),
            feature_dim: self.feature_dims()[self.node_type],
            classes: self.labels.classes(),
            multilabel: self.labels.is_multi(),
            columns: self.labels.columns().to_vec(),
            train: self.split.train.len(),
            valid: self.split.valid.len(),
            test: self.split.test.len(),
            checksum: data.checksum.clone(),
            node_types: self.count_nodes(|t| data.nodes[t].count as u64),
            edge_types: data.edges.iter().map(stored).collect(),
            values: self.labels.is_values(),
        }
    }
}

/// Columns of the dataset that training does not read, in words.
pub(super) fn unread_columns(data: &TypedDataset, task: &TypedTask) -> Option<String> {
    let edges = |has: fn(&EdgeData) -> bool| {
        data.edges.iter().filter(move |edges| has(edges)).map(|edges| edges.edge_type.to_string())
    };
    let mut features: Vec<String> = edges(|edges| edges.features.is_some()).collect();
    if !task.edges.is_empty() {
        features.clear();
    }
    let times = edges(|edges| edges.time.is_some());
    let mut times: Vec<String> = times
        .chain(data.nodes.iter().filter(|nodes| nodes.time.is_some()).map(|nodes| nodes.name.clone()))
        .collect();
    if task.times.is_some() {
        times.clear();
    }
    let part = |what: &str, names: Vec<String>| {
        (!names.is_empty()).then(|| format!("the {what} of {}", names.join(", ")))
    };
    let parts: Vec<String> =
        [part("edge features", features), part("times", times)].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("training does not read {}", parts.join(" and ")))
}

/// Number type in which a run reads dense feature rows, if it is not the stored one.
///
/// # Errors
/// `--feature-precision` is given, and no type has dense rows.
fn row_type(config: &TrainConfig, features: &[Option<Features>]) -> Result<Option<TableType>> {
    let is_given = config.feature_precision != FeaturePrecision::Auto;
    if is_given && features.iter().flatten().all(|of| of.data.kind().is_none()) {
        return Err(Error::usage(format!(
            "--feature-precision {}: no type has dense features, and sparse ones stay in f32; leave it out",
            config.feature_precision
        )));
    }
    Ok(chosen_type(config))
}

/// Returns true if the task is on nodes.
fn is_usable(task: &&Task) -> bool {
    matches!(task.kind(), Some(TaskKind::NodeClassification | TaskKind::NodeRegression))
}

/// Finds the task `name`, or with an empty name the only classification of nodes, else the only
/// regression.
pub(super) fn choose<'d>(data: &'d TypedDataset, name: &str) -> Result<&'d Task> {
    if !name.is_empty() {
        let task = data.task(name).map_err(|error| {
            let edges = data.edges.iter().filter(|edges| edges.edge_type.name == name);
            let edges: Vec<String> = edges.map(|edges| format!("--task {}", edges.edge_type)).collect();
            let learn = match &edges[..] {
                [] => String::new(),
                edges => format!("; to learn its edges, pass {}", one_of(edges)),
            };
            Error::usage(format!("--task {name}: {error}{learn}"))
        })?;
        return if is_usable(&task) { Ok(task) } else { Err(other_kind(data, task)) };
    }
    let of_kind =
        |kind| data.tasks.iter().filter(move |task| task.kind() == Some(kind)).collect::<Vec<&Task>>();
    let mut usable = of_kind(TaskKind::NodeClassification);
    if usable.is_empty() {
        usable = of_kind(TaskKind::NodeRegression);
    }
    match (&usable[..], &data.tasks[..]) {
        ([task], _) => Ok(task),
        ([], [task]) => Err(other_kind(data, task)),
        ([], _) => {
            let message = "it has no task on nodes, classification or regression; add one to the dataset, or \
                           learn links with --task link";
            Err(Error::dataset(&data.name, message))
        }
        _ => {
            let names: Vec<&str> = usable.iter().map(|task| &task.name[..]).collect();
            Err(Error::usage(format!(
                "dataset {} has several tasks on nodes; choose one with --task {}",
                data.name,
                one_of(&names)
            )))
        }
    }
}

/// Error of a task that is not on nodes.
fn other_kind(data: &TypedDataset, task: &Task) -> Error {
    let kind = task.kind().map_or("of an unknown kind", TaskKind::name);
    let usable: Vec<&str> = data.tasks.iter().filter(is_usable).map(|task| &task.name[..]).collect();
    let remedy = match &usable[..] {
        _ if task.kind() == Some(TaskKind::LinkPrediction) => format!("use --task {}", task.name),
        [] => "add such a task to the dataset".to_string(),
        names => format!("use --task {}", one_of(names)),
    };
    let message = format!(
        "task '{}' is {kind} on {}, and this run learns node-classification or node-regression; {remedy}",
        task.name, task.on
    );
    Error::dataset(&data.name, message)
}

/// Labels of all `count` nodes and the nodes of the split, from rows whose seeds may be some nodes
/// in any order.
fn by_node(data: &TypedDataset, task: &Task, labels: &Labels, count: usize) -> Result<(Labels, Split)> {
    let Some(seeds) = &task.seeds else { return Ok((labels.clone(), task.split.clone())) };
    let Seeds::Nodes(nodes) = seeds else { return Err(other_kind(data, task)) };
    let mut row_of = vec![u32::MAX; count];
    for (row, &v) in nodes.iter().enumerate() {
        if std::mem::replace(&mut row_of[v as usize], row as u32) != u32::MAX {
            let message = format!(
                "node {v} is the seed of several rows of task '{}'; give each row a time and train in one \
                 process, or give each node one row",
                task.name
            );
            return Err(Error::dataset(&data.name, message));
        }
    }
    let labels = match labels {
        Labels::Single { class, classes } => {
            let class_of = |&row: &u32| class.get(row as usize).copied().unwrap_or(-1);
            let class: Vec<i32> = row_of.par_iter().map(class_of).collect();
            Labels::Single { class: class.into(), classes: *classes }
        }
        Labels::Multi { member, classes } => {
            let mut all = vec![0u8; count * classes];
            let rows = member.chunks_exact((*classes).max(1));
            for (&v, row) in nodes.iter().zip(rows) {
                all[v as usize * classes..][..*classes].copy_from_slice(row);
            }
            Labels::Multi { member: all.into(), classes: *classes }
        }
        Labels::Columns { class, columns } => {
            let mut all = vec![-1; count * columns.len()];
            for (&v, row) in nodes.iter().zip(class.chunks_exact(columns.len().max(1))) {
                all[v as usize * columns.len()..][..columns.len()].copy_from_slice(row);
            }
            Labels::Columns { class: all.into(), columns: columns.clone() }
        }
        Labels::Values { values, width } => {
            let mut all = vec![f32::NAN; count * width];
            for (&v, row) in nodes.iter().zip(values.chunks_exact((*width).max(1))) {
                all[v as usize * width..][..*width].copy_from_slice(row);
            }
            Labels::Values { values: all.into(), width: *width }
        }
    };
    let part = |rows: &[NodeId]| -> Buffer<NodeId> {
        let mut part: Vec<NodeId> = rows.iter().map(|&row| nodes[row as usize]).collect();
        part.par_sort_unstable();
        part.into()
    };
    let Split { train, valid, test } = &task.split;
    Ok((labels, Split { train: part(train), valid: part(valid), test: part(test) }))
}

/// Returns true if a type's rows need no conversion.
pub(super) fn is_stored(nodes: &NodeData) -> bool {
    use graphmill_data::typed::Values::{F16, F32};
    let data = nodes.features.as_ref().map(|table| &table.data);
    matches!(data, Some(TableData::Sparse(_) | TableData::Dense(F16(_) | F32(_))))
}

/// Feature rows of a type.
pub(super) fn features(data: &TypedDataset, nodes: &NodeData) -> Result<Option<Features>> {
    use graphmill_data::typed::Values;
    let Some(table) = &nodes.features else { return Ok(None) };
    let rows = match &table.data {
        TableData::Sparse(rows) => FeatureData::Csr(rows.clone()),
        TableData::Dense(Values::F32(values)) => FeatureData::F32(values.clone()),
        TableData::Dense(Values::F16(values)) => FeatureData::F16(values.clone()),
        TableData::Dense(values) => {
            table.verify()?;
            let converted: Vec<f32> =
                (0..values.len()).into_par_iter().map(|i| values.get(i) as f32).collect();
            if let Some(i) = position(&converted, |x| !x.is_finite()) {
                let message = format!(
                    "feature {} of node {} of type '{}' is {}, beyond the range of f32; scale the column",
                    i % table.width,
                    i / table.width,
                    nodes.name,
                    values.get(i)
                );
                return Err(Error::dataset(&data.name, message));
            }
            FeatureData::F32(converted.into())
        }
    };
    Ok(Some(Features { dim: table.width, data: rows }))
}

#[cfg(test)]
mod tests {
    use graphmill_data::typed::{EdgeType, TypedBuilder};

    use super::*;
    use crate::build::target_scale_of;

    fn builder() -> TypedBuilder {
        let mut builder = TypedBuilder::new("shop");
        builder.node_type("user", 4);
        builder.node_type("item", 2).features(2, vec![1i64, 0, 7, -3]);
        builder
            .edge_type("user", "buys", "item")
            .edges(vec![0, 1, 2], vec![1, 0, 1])
            .time(vec![1, 2, 3])
            .with_reverse("bought-by");
        builder
    }

    fn error(builder: TypedBuilder, name: &str) -> String {
        TypedTask::new(&builder.build().unwrap(), name).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn rows_of_some_nodes_become_labels_of_all_nodes() {
        let mut builder = builder();
        builder.task("churn").on_nodes("user").node_seeds(vec![3, 0, 2]).classes(2, vec![1, 0, 1]).split(
            [0],
            [1],
            [2],
        );
        let data = builder.build().unwrap();
        let task = TypedTask::new(&data, "").unwrap();
        assert!((0..4).map(|v| task.labels.is_labelled(v)).eq([true, false, true, true]));
        let Labels::Single { class, .. } = &task.labels else { panic!("single labels") };
        assert_eq!(class[..], [0, -1, 1, 1]);
        assert_eq!((&task.split.train[..], &task.split.valid[..]), (&[3][..], &[0][..]));
        assert_eq!(task.feature_dims(), [0, 2]);
        let mut rows = graphmill_nn::Matrix::default();
        task.host_tables().unwrap()[1].as_ref().unwrap().gather(&[1], &mut rows).unwrap();
        assert_eq!(rows.view().host(), [7.0, -3.0], "integers are converted");
        assert_eq!(
            unread_columns(&data, &task).unwrap(),
            "training does not read the times of user:buys:item, item:bought-by:user"
        );
    }

    #[test]
    fn several_values_of_some_nodes_are_standardised_over_the_training_nodes() {
        let mut builder = builder();
        builder
            .task("spend")
            .on_nodes("user")
            .node_seeds(vec![3, 0, 2])
            .values(2, vec![1.0, 10.0, 3.0, f32::NAN, 100.0, 30.0])
            .split([0, 2], [], []);
        let data = builder.build().unwrap();
        let task = TypedTask::new(&data, "").unwrap();
        let Labels::Values { values, width: 2 } = &task.labels else { panic!("values") };
        assert!(values[2].is_nan() && values[3].is_nan(), "node 1 has no row");
        assert_eq!((values[0], values[6], values[7]), (3.0, 1.0, 10.0));
        let config = TrainConfig::default();
        let scale = target_scale_of(&config, &task.labels, &task.split.train).unwrap();
        assert_eq!((scale.mean, scale.deviation), (vec![50.5, 20.0], vec![49.5, 10.0]));
        assert!(task.record(&data).values);
    }

    #[test]
    fn unusable_tasks_are_refused_with_a_remedy() {
        let churn = |mut builder: TypedBuilder| {
            builder.task("churn").on_nodes("user").classes(2, vec![0, 1, 0, 1]).split([0], [1], []);
            builder
        };
        assert!(error(builder(), "").contains("dataset shop: it has no task on nodes"));
        let mut links = builder();
        links.task("next").on_edges(EdgeType::new("user", "buys", "item"));
        let message = error(links, "");
        assert!(message.contains("task 'next' is link-prediction on user:buys:item"), "{message}");
        assert!(message.ends_with("use --task next"), "{message}");
        let mut two = churn(builder());
        two.task("kind").on_nodes("item").classes(2, vec![0, 1]).split([0], [1], []);
        let message = error(two, "");
        assert!(message.ends_with("choose one with --task churn or kind"), "{message}");
        let message = error(churn(builder()), "venue");
        assert_eq!(message, "--task venue: unknown task 'venue'; known: churn");
        let message = error(churn(builder()), "buys");
        assert!(
            message.ends_with("known: churn; to learn its edges, pass --task user:buys:item"),
            "{message}"
        );
        let mut repeated = builder();
        let task = repeated.task("churn").on_nodes("user").node_seeds(vec![3, 3]);
        task.classes(2, vec![1, 0]).split([0], [1], []);
        assert!(error(repeated, "").contains("node 3 is the seed of several rows"));
        let mut times = TypedBuilder::new("shop");
        times.node_type("user", 4);
        times.edge_type("user", "knows", "user").edges(vec![0, 1], vec![1, 0]);
        times.task("later").on_nodes("user").classes(2, vec![0, 1, 0, 1]).time(vec![1, 2, 3, 4]);
        assert!(error(times, "").contains("the rows of task 'later' have times, but no edge or node has"));
        let mut huge = churn(builder());
        huge.node_type("place", 1).features(1, vec![1e300f64]);
        assert!(error(huge, "").contains("feature 0 of node 0 of type 'place' is 1"));
    }
}
