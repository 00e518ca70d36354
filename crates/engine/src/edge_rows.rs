//! Classes and values of edges as a task on nodes.
//!
//! Each row of the task becomes a node of a new type that is called as the edge type. It has the
//! features of its edge, and two edges lead to it: `source` from the source and `destination` from
//! the destination. A model of several types then learns the row from both ends, each with its
//! neighbourhood, and every command for nodes serves edges. No edge leads away from a row, so no
//! other node reads its features, and no node reads a target.
//!
//! # Source
//!
//! Robinson, Ranjan, Hu, Huang, Han, Dobles, Fey, Lenssen, Yuan, Zhang, He and Leskovec, "RelBench:
//! A benchmark for deep learning on relational databases", NeurIPS 2024 (Datasets and Benchmarks),
//! section 2: rows of tables are nodes.
//!
//! # Cost
//!
//! O(R) memory for `R` rows: two edges, a key, and features unless those of the edges are used as
//! they are.

use std::collections::{HashMap, VecDeque};

use graphmill_core::NodeId;
use graphmill_data::typed::{
    EdgeData, EdgeType, FeatureTable, KEY_SEPARATOR, Keys, NodeData, Seeds, Task, TaskKind, TaskOn, Texts,
    TypedDataset, Values,
};
use serde_json::json;

use crate::{Result, TrainConfig, config::link_task::reads_edges};

/// Names of the edge types that lead to a row.
const ENDS: [&str; 2] = ["source", "destination"];

/// The dataset with the rows of the run's task as nodes, if these are edges with classes or values;
/// otherwise the dataset itself. The task is that of the configuration, or the only one.
///
/// # Errors
/// The edge type of the task is unknown, or features cannot be read.
pub(crate) fn as_nodes(mut data: TypedDataset, config: &TrainConfig) -> Result<TypedDataset> {
    let has_targets =
        |task: &Task| matches!(task.kind(), Some(TaskKind::EdgeClassification | TaskKind::EdgeRegression));
    let number = match &config.task[..] {
        "" => (data.tasks.len() == 1).then_some(0),
        name => data.tasks.iter().position(|task| task.name == name),
    };
    let Some(number) = number.filter(|&number| has_targets(&data.tasks[number])) else { return Ok(data) };
    let TaskOn::Edges(on) = data.tasks[number].on.clone() else { return Ok(data) };
    let schema = data.schema()?;
    let ends = [schema.node_type(&on.source)?, schema.node_type(&on.destination)?];
    let edges = data.edge_type(&on)?;
    let task = &data.tasks[number];
    let pairs: [Vec<NodeId>; 2] = match &task.seeds {
        Some(Seeds::Pairs(pairs)) => [0, 1].map(|end| pairs.chunks_exact(2).map(|pair| pair[end]).collect()),
        _ => [edges.indices.to_vec(), edges.destinations()],
    };
    let count = pairs[0].len();
    let features = features(edges, task, &pairs)?;
    let keys = keys(&data, ends, &pairs);
    let taken = |name: &str| data.nodes.iter().any(|nodes| nodes.name == name);
    let mut name = on.name.clone();
    while taken(&name) {
        name += "-row";
    }
    let columns = ENDS.iter().zip(ends).flat_map(|(end, t)| key_columns(&data, t, end)).collect::<Vec<_>>();
    let record = data.preprocessing.get_or_insert_with(|| json!({ "version": 1 })).as_object_mut();
    let nodes = record.and_then(|record| record.entry("nodes").or_insert_with(|| json!({})).as_object_mut());
    if let Some(nodes) = nodes {
        nodes.insert(name.clone(), json!({ "key": columns }));
    }
    let all = ENDS.iter().zip(ends).zip(pairs).map(|((end, t), nodes)| EdgeData {
        edge_type: EdgeType::new(&data.nodes[t].name, *end, &name),
        reverse: None,
        indptr: (0..=count as u64).collect::<Vec<_>>().into(),
        indices: nodes.into(),
        weights: None,
        time: None,
        features: None,
    });
    let all: Vec<EdgeData> = all.collect();
    if !reads_edges(config) {
        // rows read them
        let own = data.edges.iter_mut().filter(|edges| edges.edge_type == on);
        own.for_each(|edges| edges.features = None);
    }
    data.edges.extend(all);
    data.nodes.push(NodeData {
        name: name.clone(),
        count,
        features: Some(features),
        normalization: None,
        keys: Some(keys),
        time: None,
        original_ids: None,
        graphs: Vec::new(),
    });
    let task = &mut data.tasks[number];
    (task.on, task.seeds) = (TaskOn::Nodes(name), None);
    Ok(data)
}

/// Features of the rows: those of their edges. Of edges with the same ends, the first is that of
/// the first such row, and so on. Without them, or if a row is no edge, a row has a constant, so
/// that no model learns a vector for each row.
fn features(
    edges: &EdgeData,
    task: &Task,
    [sources, destinations]: &[Vec<NodeId>; 2],
) -> Result<FeatureTable> {
    let count = sources.len();
    let constant = || FeatureTable::dense(1, Values::F32(vec![1.0; count].into()));
    let Some(table) = &edges.features else { return Ok(constant()) };
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
            None => return Ok(constant()),
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

/// Keys of the rows: those of both ends, or their ids.
fn keys(data: &TypedDataset, ends: [usize; 2], [sources, destinations]: &[Vec<NodeId>; 2]) -> Keys {
    let key = |end: usize, v: NodeId| match &data.nodes[ends[end]].keys {
        Some(keys) => keys.get(v as usize).to_string(),
        None => v.to_string(),
    };
    let of = |(&u, &v): (&NodeId, &NodeId)| format!("{}{KEY_SEPARATOR}{}", key(0, u), key(1, v));
    Keys::Texts(sources.iter().zip(destinations).map(of).collect::<Texts>())
}

/// Names of the columns of the key of an end, of the node type number `t`.
fn key_columns(data: &TypedDataset, t: usize, end: &str) -> Vec<String> {
    let recorded =
        data.preprocessing.as_ref().and_then(|record| record["nodes"][&data.nodes[t].name]["key"].as_array());
    match recorded.map(Vec::as_slice) {
        Some(parts) if parts.len() > 1 => {
            parts.iter().map(|part| format!("{end}_{}", part.as_str().unwrap_or_default())).collect()
        }
        _ => vec![end.to_string()],
    }
}
