//! Tables of nodes, links and labels that the formats `hgb` and `hne` share: tab-separated lines
//! without a header.
//!
//! ```text
//! node.dat   ID  NAME  TYPE  [FEATURE,FEATURE,...]
//! link.dat   SOURCE  DESTINATION  TYPE  [WEIGHT]
//! label.dat  ID  NAME  TYPE  CLASS[,CLASS,...]
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use graphmill_core::{Result, location::Location};

use super::{
    TypedOptions,
    files::Files,
    lines::{finite, for_each_line, whole},
    raw::{RawEdges, RawTyped, hold_out, multi_labels, node_task, single_labels},
    tables::SparseTable,
};
use crate::typed::{EdgeType, Keys};

/// Names of the numbered types and classes of a source.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Node types.
    pub(super) nodes: BTreeMap<u32, String>,
    /// Edge types: start, end and meaning.
    pub(super) links: BTreeMap<u32, (u32, u32, String)>,
    /// Classes of each node type.
    pub(super) classes: BTreeMap<u32, BTreeMap<u32, String>>,
}

/// Nodes of a source: where each original id is.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// Position of the node type of each number.
    types: BTreeMap<u32, usize>,
    /// Node type and local id of each original id.
    places: HashMap<u64, (usize, u32)>,
    /// Node type name by position.
    names: Vec<String>,
}

/// Node type under construction.
#[derive(Default)]
struct NodeRows {
    ids: Vec<i64>,
    names: Vec<String>,
    features: SparseTable,
    without: usize,
}

impl Nodes {
    /// Node type and local id of an original id.
    ///
    /// # Errors
    /// A message: there is no such node.
    pub(super) fn place(&self, what: &str, id: &str) -> Result<(usize, u32), String> {
        let id = whole::<u64>(what, id)?;
        self.places.get(&id).copied().ok_or_else(|| format!("{what} {id} is not in node.dat"))
    }

    /// Position of the node type of this number.
    pub(super) fn node_type(&self, number: u32) -> Option<usize> {
        self.types.get(&number).copied()
    }

    /// Name of the node type at a position.
    pub(super) fn name(&self, position: usize) -> &str {
        &self.names[position]
    }
}

/// Reads `node.dat` into the node types of `raw`, ordered by their numbers.
///
/// # Errors
/// The file cannot be read or has faults.
pub(super) fn read_nodes(files: &Files, names: &Names, dense: bool, raw: &mut RawTyped) -> Result<Nodes> {
    let name = files.required("node.dat")?;
    let mut rows: BTreeMap<u32, NodeRows> = BTreeMap::new();
    let mut places: HashMap<u64, (u32, u32)> = HashMap::new();
    for_each_line(files, name, |line| {
        let mut fields = line.splitn(4, '\t');
        let (Some(id), Some(text), Some(kind)) = (fields.next(), fields.next(), fields.next()) else {
            return Err("three or four fields expected, separated by tabs: id, name, type, features".into());
        };
        let (id, kind) = (whole::<u64>("node id", id)?, whole::<u32>("node type", kind)?);
        let rows = rows.entry(kind).or_default();
        let local = rows.ids.len() as u32;
        if places.insert(id, (kind, local)).is_some() {
            return Err(format!("node id {id} occurs twice"));
        }
        let key = i64::try_from(id).map_err(|_| format!("node id {id} is out of range"))?;
        match fields.next().filter(|features| !features.trim().is_empty()) {
            Some(features) => rows.features.push_text(features, ',')?,
            None => rows.without += 1,
        }
        rows.ids.push(key);
        rows.names.push(text.into());
        Ok(())
    })?;
    let mut nodes = Nodes::default();
    for (position, (kind, rows)) in rows.into_iter().enumerate() {
        let title = names.nodes.get(&kind).cloned().unwrap_or_else(|| format!("type_{kind}"));
        let count = rows.ids.len();
        if rows.without > 0 && rows.without < count {
            let message =
                format!("{} of {count} nodes of type {kind} ({title}) have no features", rows.without);
            return Err(super::lines::wrong(files, name, message));
        }
        let distinct: HashSet<&str> = rows.names.iter().map(String::as_str).collect();
        let keys = if distinct.len() == count && !distinct.contains("") {
            Keys::texts(&rows.names)
        } else {
            raw.report.note(format!("keys of '{title}' are the ids of node.dat: its names are not unique"));
            Keys::Integers(rows.ids.into())
        };
        let features = if rows.without == count { None } else { rows.features.finish(dense)? };
        raw.add_nodes(&title, count, Some(keys)).features = features;
        nodes.types.insert(kind, position);
        nodes.names.push(title);
    }
    nodes.places = places.into_iter().map(|(id, (kind, local))| (id, (nodes.types[&kind], local))).collect();
    Ok(nodes)
}

/// Reads `link.dat` into the edge types of `raw`, ordered by their numbers. Returns the position
/// of the edge type of each number.
///
/// # Errors
/// The file cannot be read or has faults: unknown nodes, or edges of a type between several types
/// of nodes.
pub(super) fn read_links(
    files: &Files,
    names: &Names,
    nodes: &Nodes,
    raw: &mut RawTyped,
) -> Result<BTreeMap<u32, usize>> {
    struct Links {
        ends: (usize, usize),
        edges: RawEdges,
        weights: Vec<f32>,
    }
    let mut links: BTreeMap<u32, Links> = BTreeMap::new();
    for_each_line(files, files.required("link.dat")?, |line| {
        let mut fields = line.split('\t');
        let (Some(src), Some(dst), Some(kind)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(
                "three or four fields expected, separated by tabs: source, destination, type, weight".into(),
            );
        };
        let ((s, u), (t, v)) = (nodes.place("source", src)?, nodes.place("destination", dst)?);
        let kind = whole::<u32>("link type", kind)?;
        let weight = fields.next().map_or(Ok(1.0), |weight| finite("weight", weight))?;
        if weight < 0.0 {
            return Err(format!("the weight {weight} is negative"));
        }
        let links = links.entry(kind).or_insert_with(|| Links {
            ends: (s, t),
            edges: RawEdges::new(EdgeType::new(nodes.name(s), link_name(names, kind), nodes.name(t))),
            weights: Vec::new(),
        });
        if links.ends != (s, t) {
            return Err(format!(
                "link type {kind} runs from {} to {}, but this one from {} to {}",
                nodes.name(links.ends.0),
                nodes.name(links.ends.1),
                nodes.name(s),
                nodes.name(t)
            ));
        }
        links.edges.src.push(u);
        links.edges.dst.push(v);
        links.weights.push(weight);
        Ok(())
    })?;
    let mut positions = BTreeMap::new();
    for (kind, Links { mut edges, weights, .. }) in links {
        edges.weights = Some(weights).filter(|weights| weights.iter().any(|&w| w != 1.0));
        positions.insert(kind, raw.edges.len());
        raw.edges.push(edges);
    }
    Ok(positions)
}

fn link_name(names: &Names, kind: u32) -> String {
    names.links.get(&kind).map_or_else(|| format!("link_{kind}"), |(_, _, meaning)| meaning.clone())
}

/// Classes of nodes in a label file, by the position of their node type.
type Classes = BTreeMap<usize, Vec<(u32, u32)>>;

/// Reads a label file: for each node type, pairs of a node and a class; and whether a node has
/// several.
///
/// # Errors
/// The file cannot be read or has faults.
fn read_labels(files: &Files, name: &str, nodes: &Nodes) -> Result<(Classes, bool)> {
    let (mut classes, mut multi) = (Classes::new(), false);
    let mut seen = HashSet::new();
    for_each_line(files, name, |line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[id, _, kind, labels] = &fields[..] else {
            return Err(format!(
                "four fields expected, separated by tabs: id, name, type, class; {} found",
                fields.len()
            ));
        };
        let (position, v) = nodes.place("node", id)?;
        let kind = whole::<u32>("node type", kind)?;
        if nodes.node_type(kind) != Some(position) {
            return Err(format!("node {id} is of the type '{}', not of type {kind}", nodes.name(position)));
        }
        if !seen.insert((position, v)) {
            return Err(format!("node {id} has two lines"));
        }
        for label in labels.split(',') {
            let class = whole::<u32>("class", label)?;
            if class >= 1 << 16 {
                return Err(format!("class {class}: classes are numbered from 0 to 65535"));
            }
            classes.entry(position).or_default().push((v, class));
        }
        multi |= labels.contains(',');
        Ok(())
    })?;
    Ok((classes, multi))
}

/// Names of the classes of a node type, if each of `count` classes has one.
fn class_names(names: &Names, nodes: &Nodes, position: usize, count: usize) -> Vec<String> {
    let kind = nodes.types.iter().find(|(_, at)| **at == position).map(|(kind, _)| *kind);
    let known = kind.and_then(|kind| names.classes.get(&kind));
    let all: Option<Vec<String>> = (0..count as u32).map(|c| known?.get(&c).cloned()).collect();
    all.unwrap_or_default()
}

/// Adds a classification task for each node type in `label.dat` and `label.dat.test`: the nodes of
/// the second file test, and a fraction of those of the first validates.
///
/// # Errors
/// A file has faults, or a node is in both.
pub(super) fn add_node_tasks(
    files: &Files,
    names: &Names,
    nodes: &Nodes,
    options: &TypedOptions,
    raw: &mut RawTyped,
) -> Result<()> {
    let read = |name: &str| match files.find(name) {
        Some(name) => read_labels(files, name, nodes),
        None => Ok(Default::default()),
    };
    let ((known, multi), (tested, test_multi)) = (read("label.dat")?, read("label.dat.test")?);
    let mut positions: Vec<usize> = known.keys().chain(tested.keys()).copied().collect();
    positions.sort_unstable();
    positions.dedup();
    let ids = |pairs: &[(u32, u32)]| {
        let mut ids: Vec<u32> = pairs.iter().map(|&(v, _)| v).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    for position in positions {
        let part = |classes: &Classes| classes.get(&position).cloned().unwrap_or_default();
        let (train, test) = (part(&known), part(&tested));
        let (train_ids, test_ids) = (ids(&train), ids(&test));
        if let Some(v) = test_ids.iter().find(|v| train_ids.binary_search(v).is_ok()) {
            let message = format!("node {v} of type '{}' is also in label.dat", nodes.name(position));
            return Err(super::lines::wrong(files, "label.dat.test", message));
        }
        let pairs = [train, test].concat();
        let count = raw.nodes[position].count;
        let labels = match multi || test_multi {
            true => multi_labels(count, &pairs, &Location::new(files.path(), "label.dat"))?,
            false => single_labels(count, &pairs, 0)?,
        };
        let classes = labels.classes();
        let (train, valid) = hold_out(train_ids, options.valid_fraction.unwrap_or(0.2), options.split_seed);
        let name = nodes.name(position);
        let mut task = node_task(name, name, labels, [train, valid, test_ids]);
        task.names = class_names(names, nodes, position, classes);
        raw.tasks.push(task);
    }
    Ok(())
}
