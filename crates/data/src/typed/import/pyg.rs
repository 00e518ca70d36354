//! Import of PyTorch Geometric's `Data` or `HeteroData`, saved as a dictionary:
//! `torch.save(data.to_dict(), 'data.pt')`. Nothing in the file is executed, so objects of classes
//! are refused.
//!
//! - A dictionary with `edge_index` is a graph of the node type `node` and the edge type
//!   `node:link:node`; otherwise its entries are node types (keys that are texts) and edge types
//!   (keys of three texts).
//! - Of nodes: `x` (features), `y` (classes, sets or values) with `train_mask`, `val_mask` and
//!   `test_mask`, `time`, `num_nodes`. Of edges: `edge_index` `[2, E]`, `edge_attr` (features),
//!   `edge_weight`, `time`.

use std::path::Path;

use graphmill_core::{Labels, Result, location::Location};

use super::{
    TypedOptions,
    files::Files,
    raw::{RawEdges, RawTyped, split},
};
use crate::{
    dataset::import::{
        claims,
        pickle::Item,
        torch::{self, Storages},
    },
    typed::{EdgeType, FeatureTable, Targets, Task, TaskOn},
};

/// Reads the file `src`.
pub(super) fn read(src: &Path, _options: &TypedOptions) -> Result<RawTyped> {
    let name = Files::open(src)?.title();
    torch::read(src, |root, storages, at| {
        let Item::Dict(entries) = root else {
            let message = format!("{} found, a dictionary expected; save data.to_dict()", root.kind());
            return Err(at.error(message));
        };
        let mut raw = RawTyped { name, ..RawTyped::default() };
        if root.get("edge_index").is_some() {
            add_edges(root, EdgeType::new("node", "link", "node"), storages, at, &mut raw)?;
            add_nodes(root, "node", storages, at, &mut raw)?;
            return Ok(raw);
        }
        for (key, value) in entries {
            if let Item::List(parts) = key
                && let [Some(from), Some(name), Some(to)] =
                    parts.iter().map(Item::text).collect::<Vec<_>>()[..]
            {
                add_edges(value, EdgeType::new(from, name, to), storages, at, &mut raw)?;
            }
        }
        for (key, value) in entries {
            match key.text() {
                Some(name) if name.starts_with('_') => {}
                Some(name) if matches!(value, Item::Dict(_)) => {
                    add_nodes(value, name, storages, at, &mut raw)?
                }
                Some(name) => raw.report.ignore(name),
                None => {}
            }
        }
        Ok(raw)
    })
}

/// Adds the edge type described by the dictionary `store`.
fn add_edges(
    store: &Item,
    edge_type: EdgeType,
    storages: &Storages,
    at: &Location,
    raw: &mut RawTyped,
) -> Result<()> {
    let place = |what: &str| Location::new(at.path, format!("{what} of {edge_type}"));
    let Some(index) = store.get("edge_index") else {
        return Err(place("edge_index").error("it is missing; SparseTensor's adj_t is not read"));
    };
    let (ids, shape) = storages.values::<u32>(index, &place("edge_index"))?;
    let &[2, count] = &shape[..] else {
        return Err(place("edge_index").error(format!("shape [2, edges] expected, {shape:?} found")));
    };
    let mut edges = RawEdges::new(edge_type.clone());
    (edges.src, edges.dst) = (ids[..count].to_vec(), ids[count..].to_vec());
    if let Some(item) = store.get("edge_attr") {
        edges.features = Some(features(item, count, storages, &place("edge_attr"))?);
    }
    if let Some(item) = store.get("edge_weight") {
        edges.weights = Some(column(item, count, storages, &place("edge_weight"))?);
    }
    if let Some(item) = store.get("time").filter(|_| edge_type.name != "link") {
        edges.time = Some(column(item, count, storages, &place("time"))?);
    }
    ignore(store, &["edge_index", "edge_attr", "edge_weight", "time"], &edge_type.to_string(), raw);
    raw.edges.push(edges);
    Ok(())
}

/// Adds the node type described by the dictionary `store`.
fn add_nodes(store: &Item, name: &str, storages: &Storages, at: &Location, raw: &mut RawTyped) -> Result<()> {
    let place = |what: &str| Location::new(at.path, format!("{what} of {name}"));
    let numbers =
        |what: &str| store.get(what).map(|item| storages.values::<f32>(item, &place(what))).transpose();
    let x = numbers("x")?;
    let y = numbers("y")?;
    let declared =
        store.get("num_nodes").map(|item| storages.values::<u32>(item, &place("num_nodes"))).transpose()?;
    let ends = raw.edges.iter().flat_map(|edges| {
        let from = edges.src.iter().filter(|_| edges.edge_type.source == name);
        from.chain(edges.dst.iter().filter(|_| edges.edge_type.destination == name))
    });
    let needed = ends.max().map_or(0, |&most| most as usize + 1);
    let rows =
        |found: &Option<(Vec<f32>, Vec<usize>)>| found.as_ref().and_then(|(_, shape)| shape.first().copied());
    let count = declared.and_then(|(values, _)| values.first().map(|&count| count as usize));
    let count = count.or(rows(&x)).or(rows(&y)).unwrap_or(needed);
    let total: u64 = raw.edges.iter().map(|edges| edges.src.len() as u64).sum();
    if rows(&x) != Some(count) {
        claims::nodes(count, total, &place("num_nodes"))?;
    }
    let table = match store.get("x") {
        Some(item) => Some(features(item, count, storages, &place("x"))?),
        None => None,
    };
    let time =
        store.get("time").map(|item| column::<i64>(item, count, storages, &place("time"))).transpose()?;
    let nodes = raw.add_nodes(name, count, None);
    (nodes.features, nodes.time) = (table, time.map(Into::into));
    if let Some((values, shape)) = y {
        let targets = targets(values, &shape, count, &place("y"))?;
        let mask = |what: &str| match store.get(what) {
            Some(item) => {
                let mask = column::<u8>(item, count, storages, &place(what))?;
                Ok((0..count as u32).filter(|&v| mask[v as usize] != 0).collect())
            }
            None => Ok(Vec::new()),
        };
        let parts = [mask("train_mask")?, mask("val_mask")?, mask("test_mask")?];
        raw.tasks.push(Task { targets, split: split(parts), ..Task::new(name, TaskOn::Nodes(name.into())) });
    }
    const READ: [&str; 11] = [
        "x",
        "y",
        "time",
        "num_nodes",
        "train_mask",
        "val_mask",
        "test_mask",
        "edge_index",
        "edge_attr",
        "edge_weight",
        "name",
    ];
    ignore(store, &READ, name, raw);
    Ok(())
}

/// Reports the entries of a dictionary that are not read.
fn ignore(store: &Item, read: &[&str], what: &str, raw: &mut RawTyped) {
    let Item::Dict(entries) = store else { return };
    let names = entries.iter().filter_map(|(key, _)| key.text()).filter(|name| !read.contains(name));
    names.for_each(|name| raw.report.ignore(format!("{name} of {what}")));
}

fn column<T: crate::npy::Element>(
    item: &Item,
    rows: usize,
    storages: &Storages,
    at: &Location,
) -> Result<Vec<T>> {
    let (values, shape) = storages.values::<T>(item, at)?;
    match values.len() == rows {
        true => Ok(values),
        false => Err(at.error(format!("shape [{rows}] expected, {shape:?} found"))),
    }
}

fn features(item: &Item, rows: usize, storages: &Storages, at: &Location) -> Result<FeatureTable> {
    let (values, shape) = storages.values::<f32>(item, at)?;
    match shape[..] {
        [count] if count == rows => Ok(FeatureTable::dense(1, values)),
        [count, width] if count == rows && width > 0 => Ok(FeatureTable::dense(width, values)),
        _ => Err(at.error(format!("shape [{rows}, features] expected, {shape:?} found"))),
    }
}

/// Classes if all values are whole, sets if rows of them are zeros and ones, values otherwise.
fn targets(values: Vec<f32>, shape: &[usize], rows: usize, at: &Location) -> Result<Targets> {
    let width = match shape {
        [count] if *count == rows => 1,
        [count, width] if *count == rows && *width > 0 => *width,
        _ => return Err(at.error(format!("shape [{rows}] expected, {shape:?} found"))),
    };
    if width == 1 && values.iter().all(|x| x.is_nan() || x.fract() == 0.0 && (-1.0..65536.0).contains(x)) {
        let class: Vec<i32> = values.iter().map(|&x| if x.is_nan() { -1 } else { x as i32 }).collect();
        let classes = class.iter().max().map_or(0, |&most| (most + 1) as usize);
        return Ok(Targets::Classes(Labels::Single { class: class.into(), classes }));
    }
    if width > 1 && values.iter().all(|&x| x == 0.0 || x == 1.0) {
        let member: Vec<u8> = values.iter().map(|&x| x as u8).collect();
        return Ok(Targets::Classes(Labels::Multi { member: member.into(), classes: width }));
    }
    Ok(Targets::Values { width, values: values.into() })
}
