//! Rows of a task as nodes: classes and values of edges, and targets of nodes at several times.
//!
//! Each row of a task on edges becomes a node of a new type that is called as the edge type. It has
//! the features of its edge, and two edges lead to it: `source` from the source and `destination`
//! from the destination. A model of several types then learns the row from both ends, each with its
//! neighbourhood, and every command for nodes serves edges. If nodes have rows at several times,
//! each row becomes a node of a type that is called as the task, with an edge `entity` from the
//! node. No edge leads away from a row, so no other node reads its features, and no node reads a
//! target.
//!
//! # Source
//!
//! Robinson, Ranjan, Hu, Huang, Han, Dobles, Fey, Lenssen, Yuan, Zhang, He and Leskovec, "RelBench:
//! A benchmark for deep learning on relational databases", NeurIPS 2024 (Datasets and Benchmarks),
//! section 2: rows of tables are nodes.
//!
//! # Cost
//!
//! O(R) memory for `R` rows: an edge for each end, a key, and features unless those of the edges
//! are used as they are.

#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet, VecDeque};

use graphmill_core::{Buffer, NodeId};
use graphmill_data::typed::{
    EdgeData, EdgeType, FeatureTable, KEY_SEPARATOR, Keys, NodeData, Seeds, Task, TaskKind, TaskOn, Texts,
    TypedDataset, Values,
};
use graphmill_loader::time::{TimeCarry, TimeOptions};
use serde_json::json;

use crate::{Error, Result, TrainConfig, config::link_task::reads_edges};

/// Names of the edge types that lead to a row of a task on edges.
const ENDS: [&str; 2] = ["source", "destination"];
/// Name of the edge type that leads to a row of a task on nodes.
const ENTITY: &str = "entity";

/// Nodes at one end of the rows of a task.
struct End {
    /// Name of the edge type that leads from them to the rows.
    name: &'static str,
    /// Number of their type.
    node_type: usize,
    /// Node of each row.
    nodes: Vec<NodeId>,
}

/// The dataset with the rows of the run's task as nodes, if these are edges with classes or values,
/// or nodes at several times; otherwise the dataset itself. The task is that of the configuration,
/// or the only one.
///
/// # Errors
/// The type of the task is unknown, features cannot be read, or a row is from before its node
/// exists.
pub(crate) fn as_nodes(mut data: TypedDataset, config: &TrainConfig) -> Result<TypedDataset> {
    let Some(number) = task_number(&data, config) else { return Ok(data) };
    let (schema, task) = (data.schema()?, &data.tasks[number]);
    let (ends, name, features) = match (&task.on, &task.seeds) {
        (TaskOn::Edges(on), seeds) => {
            let edges = data.edge_type(on)?;
            let pairs: [Vec<NodeId>; 2] = match seeds {
                Some(Seeds::Pairs(pairs)) => {
                    [0, 1].map(|end| pairs.chunks_exact(2).map(|pair| pair[end]).collect())
                }
                _ => [edges.indices.to_vec(), edges.destinations()],
            };
            let features = features(edges, task, &pairs)?;
            let types = [schema.node_type(&on.source)?, schema.node_type(&on.destination)?];
            let ends = ENDS.into_iter().zip(types).zip(pairs);
            let ends: Vec<End> =
                ends.map(|((name, node_type), nodes)| End { name, node_type, nodes }).collect();
            (ends, on.name.clone(), features)
        }
        (TaskOn::Nodes(on), Some(Seeds::Nodes(nodes))) => {
            let end = End { name: ENTITY, node_type: schema.node_type(on)?, nodes: nodes.to_vec() };
            check_existence(&data, task, &end, config)?;
            (vec![end], task.name.clone(), constant(nodes.len()))
        }
        _ => return Ok(data),
    };
    // edges without times are in no window, and bound deeper hops to what always existed
    let options: TimeOptions = config.own.get();
    let is_read = options.time_window > 0 || options.time_carry == TimeCarry::Edge;
    let newest = |time: &Buffer<i64>| time.iter().map(|&time| options.time_bound.latest(time)).collect();
    let time: Option<Vec<i64>> = task.time.as_ref().filter(|_| is_read).map(newest);
    if let (TaskOn::Edges(on), false) = (task.on.clone(), reads_edges(config)) {
        // rows read them
        let own = data.edges.iter_mut().filter(|edges| edges.edge_type == on);
        own.for_each(|edges| edges.features = None);
    }
    add_rows(&mut data, number, (ends, time.map(Buffer::from)), name, features);
    Ok(data)
}

/// Returns true if [`as_nodes`] adds the rows of the run's task to a dataset.
pub(crate) fn adds_rows(data: &TypedDataset, config: &TrainConfig) -> bool {
    task_number(data, config).is_some()
}

/// Number of the run's task, if its rows become nodes.
fn task_number(data: &TypedDataset, config: &TrainConfig) -> Option<usize> {
    let only = |kind| {
        let mut of_kind = (0..data.tasks.len()).filter(|&i| data.tasks[i].kind() == Some(kind));
        of_kind.next().filter(|_| of_kind.next().is_none())
    };
    let number = match &config.task[..] {
        "" if data.tasks.len() == 1 => Some(0),
        "" => only(TaskKind::NodeClassification).or_else(|| only(TaskKind::NodeRegression)),
        name => data.tasks.iter().position(|task| task.name == name),
    }?;
    let becomes_nodes = |task: &Task| match (task.kind(), &task.seeds, &task.time) {
        (Some(TaskKind::EdgeClassification | TaskKind::EdgeRegression), ..) => true,
        (_, Some(Seeds::Nodes(nodes)), Some(_)) => {
            let mut seen = HashSet::with_capacity(nodes.len());
            !nodes.iter().all(|v| seen.insert(v))
        }
        _ => false,
    };
    becomes_nodes(&data.tasks[number]).then_some(number)
}

/// Refuses rows that read nothing, because their node does not exist yet.
fn check_existence(data: &TypedDataset, task: &Task, end: &End, config: &TrainConfig) -> Result<()> {
    let (Some(exists), Some(time)) = (&data.nodes[end.node_type].time, &task.time) else { return Ok(()) };
    let bound = config.own.get::<TimeOptions>().time_bound;
    let is_early = |&(&v, &time): &(&NodeId, &i64)| !bound.admits(exists[v as usize], time);
    let Some((&v, time)) = end.nodes.iter().zip(time.iter()).find(is_early) else { return Ok(()) };
    let message = format!(
        "a row of task '{}' has time {time}, but its node {v} exists from time {} on, and rows read what \
         exists before their time; use a later time, leave the row out, or pass --time-bound inclusive if \
         both are equal",
        task.name, exists[v as usize]
    );
    Err(Error::dataset(&data.name, message))
}

/// Adds the rows of the task number `number` as nodes of a type that is called `name`, and the
/// edges from their ends, which have the times `time`.
fn add_rows(
    data: &mut TypedDataset,
    number: usize,
    (ends, times): (Vec<End>, Option<Buffer<i64>>),
    mut name: String,
    features: FeatureTable,
) {
    let count = ends[0].nodes.len();
    let task = &data.tasks[number];
    let time = match &task.on {
        TaskOn::Nodes(_) => task.time.clone(),
        TaskOn::Edges(_) => None,
    };
    let keys = keys(data, &ends, time.as_deref());
    while data.nodes.iter().any(|nodes| nodes.name == name) {
        name += "-row";
    }
    let mut columns: Vec<String> = ends.iter().flat_map(|end| key_columns(data, end)).collect();
    columns.extend(time.map(|_| "time".to_string()));
    let record = data.preprocessing.get_or_insert_with(|| json!({ "version": 1 })).as_object_mut();
    let nodes = record.and_then(|record| record.entry("nodes").or_insert_with(|| json!({})).as_object_mut());
    if let Some(nodes) = nodes {
        nodes.insert(name.clone(), json!({ "key": columns }));
    }
    for end in ends {
        data.edges.push(EdgeData {
            edge_type: EdgeType::new(&data.nodes[end.node_type].name, end.name, &name),
            reverse: None,
            indptr: (0..=count as u64).collect::<Vec<_>>().into(),
            indices: end.nodes.into(),
            weights: None,
            time: times.clone(),
            features: None,
        });
    }
    data.nodes.push(NodeData {
        name: name.clone(),
        count,
        features: Some(features),
        keys: Some(keys),
        ..NodeData::default()
    });
    let task = &mut data.tasks[number];
    (task.on, task.seeds) = (TaskOn::Nodes(name), None);
}

/// A constant feature of `count` rows, so that no model learns a vector for each row.
fn constant(count: usize) -> FeatureTable {
    FeatureTable::dense(1, Values::F32(vec![1.0; count].into()))
}

/// Features of the rows: those of their edges. Of edges with the same ends, the first is that of
/// the first such row, and so on. Without them, or if a row is no edge, a row has a constant.
fn features(
    edges: &EdgeData,
    task: &Task,
    [sources, destinations]: &[Vec<NodeId>; 2],
) -> Result<FeatureTable> {
    let count = sources.len();
    let Some(table) = &edges.features else { return Ok(constant(count)) };
    if task.seeds.is_none() {
        return Ok(table.clone());
    }
    let mut edges_of: HashMap<(NodeId, NodeId), VecDeque<usize>> = HashMap::new();
    for (e, pair) in edges.indices.iter().copied().zip(edges.destinations()).enumerate() {
        edges_of.entry(pair).or_default().push_back(e);
    }
    let mut row_of = Vec::with_capacity(count);
    for pair in sources.iter().copied().zip(destinations.iter().copied()) {
        match edges_of.get_mut(&pair).and_then(VecDeque::pop_front) {
            Some(e) => row_of.push(e),
            None => return Ok(constant(count)),
        }
    }
    table.verify()?;
    let (mut values, mut row) = (Vec::with_capacity(count * table.width), vec![0.0; table.width]);
    for e in row_of {
        table.copy_row(e, &mut row);
        values.extend(row.iter().map(|&x| x as f32));
    }
    let mut out = FeatureTable::dense(table.width, Values::F32(values.into()));
    out.names.clone_from(&table.names);
    Ok(out)
}

/// Keys of the rows: those of their ends, or their ids, and the time if rows have one.
fn keys(data: &TypedDataset, ends: &[End], time: Option<&[i64]>) -> Keys {
    let of = |row: usize| {
        let key = |end: &End| match &data.nodes[end.node_type].keys {
            Some(keys) => keys.get(end.nodes[row] as usize).to_string(),
            None => end.nodes[row].to_string(),
        };
        let parts: Vec<String> = ends.iter().map(key).chain(time.map(|time| time[row].to_string())).collect();
        parts.join(&KEY_SEPARATOR.to_string())
    };
    Keys::Texts((0..ends[0].nodes.len()).map(of).collect::<Texts>())
}

/// Names of the columns of the key of an end.
fn key_columns(data: &TypedDataset, end: &End) -> Vec<String> {
    let name = &data.nodes[end.node_type].name;
    let recorded = data.preprocessing.as_ref().and_then(|record| record["nodes"][name]["key"].as_array());
    let parts = recorded.into_iter().flatten().map(|part| part.as_str().unwrap_or_default());
    let parts: Vec<&str> = parts.collect();
    match (end.name == ENTITY, parts.len()) {
        (true, 0) => vec![name.clone()],
        (true, _) => parts.into_iter().map(String::from).collect(),
        (false, 0 | 1) => vec![end.name.to_string()],
        (false, _) => parts.into_iter().map(|part| format!("{}_{part}", end.name)).collect(),
    }
}
