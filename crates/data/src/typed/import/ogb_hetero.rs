//! Import of an OGB directory of several node types (`ogb/io/read_graph_raw.py`,
//! `read_csv_heterograph_raw`), such as ogbn-mag:
//!
//! - `raw/num-node-dict.csv.gz` (a header of node types, their numbers of nodes) and
//!   `raw/triplet-type-list.csv.gz` (`source,relation,destination`);
//! - `raw/relations/SOURCE___RELATION___DESTINATION/edge.csv.gz`, `num-edge-list.csv.gz` and,
//!   optionally, `edge-feat.csv.gz`;
//! - `raw/node-feat/TYPE/node-feat.csv.gz`, `raw/node_year/TYPE/node_year.csv.gz` (the time of the
//!   nodes), `raw/node-label/TYPE/node-label.csv.gz`;
//! - `split/NAME/TYPE/{train,valid,test}.csv.gz`: a task per split and type;
//! - `mapping/TYPE.csv.gz` or `mapping/TYPE_entidx2name.csv.gz` (`id,name`): keys.

use std::path::Path;

use graphmill_core::{Labels, Result, memory};

use super::{
    TypedOptions,
    files::Files,
    lines::{for_each_line, whole, wrong},
    ogb_tables::{column, count, edges, find, flagged, header_and_row, ids, names, required},
    raw::{RawEdges, RawTyped, node_task},
    tables::text_features,
};
use crate::typed::{EdgeType, Keys};

/// Reads the directory or archive `src`.
pub(super) fn read(src: &Path, options: &TypedOptions) -> Result<RawTyped> {
    let files = Files::open(src)?;
    let mut raw = RawTyped { name: files.title(), ..RawTyped::default() };
    let dict = required(&files, "raw/num-node-dict")?;
    for (name, text) in header_and_row(&files, dict)? {
        let count = whole::<u32>("the number of nodes", &text).map_err(|e| wrong(&files, dict, e))? as usize;
        let keys = read_keys(&files, &name, count, &mut raw)?;
        let feature_path = find(&files, &format!("raw/node-feat/{name}/node-feat"));
        let features = match feature_path {
            Some(path) => text_features(&files, path, count, options.dense_features)?,
            None => None,
        };
        let time = match find(&files, &format!("raw/node_year/{name}/node_year")) {
            Some(path) => Some(
                column(&files, path, count)?.iter().map(|row| row[0].unwrap_or(i64::MIN)).collect::<Vec<_>>(),
            ),
            None => None,
        };
        let nodes = raw.add_nodes(&name, count, keys);
        (nodes.features, nodes.time) = (features, time.map(Into::into));
    }
    let list = required(&files, "raw/triplet-type-list")?;
    let mut triplets = Vec::new();
    for_each_line(&files, list, |line| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let &[source, name, destination] = &fields[..] else {
            return Err("three names with commas between them expected: source, relation, destination".into());
        };
        let known = |end: &str| raw.nodes.iter().position(|nodes| nodes.name == end);
        let known = |end: &str| known(end).ok_or_else(|| format!("'{end}' is not in num-node-dict"));
        triplets.push((EdgeType::new(source, name, destination), known(source)?, known(destination)?));
        Ok(())
    })?;
    for (edge_type, s, t) in triplets {
        let EdgeType { source, name, destination } = &edge_type;
        let dir = format!("raw/relations/{source}___{name}___{destination}");
        let path = required(&files, &format!("{dir}/edge"))?;
        let [from, to] = edges(&files, path, [raw.nodes[s].count, raw.nodes[t].count])?;
        if let Some(list) = find(&files, &format!("{dir}/num-edge-list")) {
            let expected = count(&files, list)?;
            if from.len() != expected {
                return Err(wrong(
                    &files,
                    path,
                    format!("{} edges, but num-edge-list says {expected}", from.len()),
                ));
            }
        }
        let features = match find(&files, &format!("{dir}/edge-feat")) {
            Some(path) => text_features(&files, path, from.len(), true)?,
            None => None,
        };
        raw.edges.push(RawEdges { src: from, dst: to, features, ..RawEdges::new(edge_type) });
    }
    read_tasks(&files, &mut raw)?;
    let relations = |name: &str| name.starts_with("raw/relations/") && !name.contains("edge_reltype");
    let known = ["raw/num-node-dict.csv", "raw/triplet-type-list.csv", "raw/nodetype-has-label.csv"];
    let parts = ["raw/node-feat/", "raw/node_year/", "raw/node-label/", "split/", "mapping/"];
    raw.report.ignore_unread(files.names(), |name| {
        known.contains(&name.trim_end_matches(".gz"))
            || parts.iter().any(|part| name.starts_with(part))
            || relations(name)
    });
    Ok(raw)
}

/// Keys of a node type from the directory `mapping`.
fn read_keys(files: &Files, name: &str, count: usize, raw: &mut RawTyped) -> Result<Option<Keys>> {
    let paths = [format!("mapping/{name}"), format!("mapping/{name}_entidx2name")];
    let Some(path) = paths.iter().find_map(|path| find(files, path)) else { return Ok(None) };
    let keys = names(files, path, count)?.map(Keys::texts);
    if keys.is_none() {
        raw.report
            .note(format!("{path}: not one name for each of {count} nodes; ids are the keys of '{name}'"));
    }
    match keys.as_ref().map(|keys| keys.validate(count)) {
        Some(Err(fault)) => {
            raw.report.note(format!("{path}: {fault}; ids are the keys of '{name}'"));
            Ok(None)
        }
        _ => Ok(keys),
    }
}

/// Adds a task for each split and each labelled type in it.
fn read_tasks(files: &Files, raw: &mut RawTyped) -> Result<()> {
    let labelled = match find(files, "raw/nodetype-has-label") {
        Some(path) => flagged(files, path)?,
        None => raw.nodes.iter().map(|nodes| nodes.name.clone()).collect(),
    };
    let mut splits: Vec<&str> = files
        .names()
        .iter()
        .filter_map(|name| name.strip_prefix("split/")?.split_once('/').map(|(split, _)| split))
        .collect();
    splits.dedup();
    for node_type in labelled {
        let Some(path) = find(files, &format!("raw/node-label/{node_type}/node-label")) else { continue };
        let Some(count) = raw.nodes.iter().find(|nodes| nodes.name == node_type).map(|nodes| nodes.count)
        else {
            return Err(wrong(files, path, format!("'{node_type}' is not in num-node-dict")));
        };
        let labels = labels_of(files, path, count)?;
        let mut class_names = Vec::new();
        for name in files.names().iter().filter(|name| name.starts_with("mapping/label")) {
            class_names = names(files, name, labels.classes())?.unwrap_or(class_names);
        }
        for split in &splits {
            let part = |name: &str| match find(files, &format!("split/{split}/{node_type}/{name}")) {
                Some(path) => ids(files, path, count),
                None => Ok(Vec::new()),
            };
            let parts = [part("train")?, part("valid")?, part("test")?];
            if parts.iter().all(Vec::is_empty) {
                continue;
            }
            let title = if splits.len() > 1 { format!("{node_type}-{split}") } else { node_type.clone() };
            let mut task = node_task(&title, &node_type, labels.clone(), parts);
            task.names.clone_from(&class_names);
            raw.tasks.push(task);
        }
    }
    Ok(())
}

/// Labels of all nodes: a class each, or a set of zeros and ones.
pub(super) fn labels_of(files: &Files, path: &str, count: usize) -> Result<Labels> {
    let rows = column(files, path, count)?;
    let width = rows.first().map_or(1, Vec::len);
    if rows.iter().any(|row| row.len() != width) {
        return Err(wrong(files, path, "rows of different lengths"));
    }
    let fault = |v: usize, x: i64| wrong(files, path, format!("the label of node {v} is {x}"));
    if width == 1 {
        let class = |(v, row): (usize, &Vec<Option<i64>>)| match row[0] {
            None | Some(-1) => Ok(-1),
            Some(x) => i32::try_from(x).ok().filter(|x| (0..1 << 24).contains(x)).ok_or_else(|| fault(v, x)),
        };
        let class = rows.iter().enumerate().map(class).collect::<Result<Vec<i32>>>()?;
        let classes = class.iter().max().map_or(0, |&most| (most + 1) as usize);
        return Ok(Labels::Single { class: class.into(), classes });
    }
    let mut member = memory::reserve(count * width)?;
    for (v, row) in rows.iter().enumerate() {
        for x in row {
            match x {
                Some(x @ (0 | 1)) => member.push(*x as u8),
                None => member.push(0),
                Some(x) => return Err(fault(v, *x)),
            }
        }
    }
    Ok(Labels::Multi { member: member.into(), classes: width })
}
