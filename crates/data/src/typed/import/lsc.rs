//! Import of the largest typed citation graphs, a directory of NumPy arrays:
//!
//! - `mag240m` (Hu et al., OGB-LSC, NeurIPS 2021): `meta.pt` with the numbers of nodes,
//!   `processed/TYPE/node_feat.npy`, `processed/A___relation___B/edge_index.npy` of shape `[2, E]`,
//!   `processed/paper/node_label.npy` and `node_year.npy` (the time of papers), and
//!   `split_dict.pt`. Papers of `test-dev` (or `test-whole`, `test`) test.
//! - `igbh` (Khatua et al., IGB, KDD 2023): the same with `A__relation__B/edge_index.npy` of shape
//!   `[E, 2]`, and `node_label_19.npy` and `node_label_2K.npy`, a task each. The first labelled
//!   papers train, the next ones validate and the last ones test: 0.6, 0.2 and 0.2 unless the
//!   options `valid-fraction` and `test-fraction` say otherwise. The sets `large` and `full` have
//!   features and labels of papers, and features of authors, as `numpy.memmap` writes them: 32-bit
//!   floats without a header, in rows of 1,024 features.
//!
//! # Memory
//!
//! Feature arrays of 16-bit and 32-bit floats are mapped, and written to the dataset in pieces.
//! Edges take 8 bytes each in memory, and 28 while a type is ordered by destination.

use std::path::Path;

use graphmill_core::{Error, Labels, Result, location::Location};

use super::{
    TypedOptions, arrays,
    files::Files,
    loose,
    raw::{RawEdges, RawTyped, node_task},
};
use crate::{
    dataset::import::{
        claims,
        pickle::Item,
        torch::{self, Storages},
    },
    npy::{self, NpyFile},
    typed::{EdgeType, FeatureTable},
};

/// Features of a node of IGBH.
const WIDTH: usize = 1024;
/// Papers of the full IGBH, and how many of them have one of 19 and of 2,983 classes: the first
/// ones (`igb/dataloader.py`).
const FULL_PAPERS: usize = 269_346_174;
const FULL_LABELLED: [usize; 2] = [227_130_858, 157_675_969];

/// Reads a directory of MAG240M.
pub(super) fn read_mag240m(src: &Path, _options: &TypedOptions) -> Result<RawTyped> {
    let (files, mut raw) = read_graph(src, "___")?;
    if let Some(name) = files.find("processed/paper/node_label.npy") {
        let labels = labels_of(&files, name, &raw)?;
        let parts = match files.on_disk("split_dict.pt").filter(|path| path.is_file()) {
            Some(path) => torch::read(&path, |root, storages, at| {
                Ok([
                    part(root, storages, at, &["train"])?,
                    part(root, storages, at, &["valid"])?,
                    part(root, storages, at, &["test-dev", "test-whole", "test"])?,
                ])
            })?,
            None => {
                raw.report.note("there is no split_dict.pt: the task has no split");
                Default::default()
            }
        };
        raw.tasks.push(node_task("paper", "paper", labels, parts));
    }
    Ok(raw)
}

/// Reads a directory of IGBH.
pub(super) fn read_igbh(src: &Path, options: &TypedOptions) -> Result<RawTyped> {
    let (files, mut raw) = read_graph(src, "__")?;
    let (valid, test) = (options.valid_fraction.unwrap_or(0.2), options.test_fraction.unwrap_or(0.2));
    if valid + test >= 1.0 {
        return Err(Error::invalid(format!(
            "valid-fraction {valid} and test-fraction {test} leave no papers to train on; their sum must be \
                below 1"
        )));
    }
    for (name, full) in ["19", "2K"].into_iter().zip(FULL_LABELLED) {
        let Some(path) = files.find(&format!("processed/paper/node_label_{name}.npy")) else { continue };
        let labels = labels_of(&files, path, &raw)?;
        let Labels::Single { class, .. } = &labels else { continue };
        let labelled = class.iter().rposition(|&c| c >= 0).map_or(0, |last| last + 1);
        let labelled = if class.len() == FULL_PAPERS { labelled.min(full) } else { labelled };
        let count = |fraction: f64| (labelled as f64 * fraction) as usize;
        let train = count(1.0 - valid - test + 1e-9);
        let bounds = [0, train, train + count(valid), labelled];
        let rows =
            |i: usize| (bounds[i]..bounds[i + 1]).filter(|&v| class[v] >= 0).map(|v| v as u32).collect();
        let parts = [rows(0), rows(1), rows(2)];
        raw.tasks.push(node_task(&format!("paper-{name}"), "paper", labels, parts));
    }
    Ok(raw)
}

/// Reads node types and edge types; `separator` stands between the parts of an edge type.
fn read_graph(src: &Path, separator: &str) -> Result<(Files, RawTyped)> {
    let files = Files::open(src)?;
    let mut raw = RawTyped { name: files.title(), ..RawTyped::default() };
    let mut edge_types = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for name in files.names() {
        let Some((dir, file)) = name.strip_prefix("processed/").and_then(|name| name.split_once('/')) else {
            continue;
        };
        let parts: Vec<&str> = dir.split(separator).collect();
        match parts[..] {
            [from, relation, to] if file == "edge_index.npy" => {
                edge_types.push((EdgeType::new(from, relation, to), name.clone()));
                names.extend([from.to_string(), to.to_string()]);
            }
            [node_type] => names.push(node_type.to_string()),
            _ => {}
        }
    }
    names.sort_unstable();
    names.dedup();
    if edge_types.is_empty() {
        let message =
            format!("there is no processed/SOURCE{separator}RELATION{separator}DESTINATION/edge_index.npy");
        return Err(Error::format(src, "directory", message));
    }
    let counts = declared_counts(&files)?;
    let mut edges = Vec::new();
    for (edge_type, name) in edge_types {
        let [from, to] =
            if separator == "___" { loose::edges(&files, &name, "numpy")? } else { pairs(&files, &name)? };
        edges.push(RawEdges { src: from, dst: to, ..RawEdges::new(edge_type) });
    }
    for name in &names {
        let features = format!("processed/{name}/node_feat.npy");
        let declared = counts.iter().find(|(known, _)| known == name).map(|&(_, count)| count);
        let array = match files.on_disk(&features).filter(|_| files.find(&features).is_some()) {
            Some(path) if separator == "___" => Some(npy::open(&path)?),
            Some(path) => Some(npy::open_or_memmap(&path, WIDTH)?),
            None => None,
        };
        let rows = array.as_ref().map(|array| array.shape.first().copied().unwrap_or(0));
        let needed = edges.iter().map(|edges| least_count(edges, name)).max().unwrap_or(0);
        let count = declared.or(rows).unwrap_or(needed);
        if rows.is_none() {
            let total = edges.iter().map(|edges| edges.src.len() as u64).sum();
            claims::nodes(count, total, &Location::new(src, format!("nodes of {name}")))?;
        }
        let table = match &array {
            Some(array) => Some(features_of(&files, &features, array, count)?),
            None => None,
        };
        let time = match files.find(&format!("processed/{name}/node_year.npy")) {
            Some(path) => {
                let (years, shape) = arrays::read::<i64>(&files, path)?;
                if years.len() != count {
                    return Err(files.error(
                        path,
                        "years",
                        format!("shape [{count}] expected, {shape:?} found"),
                    ));
                }
                Some(years)
            }
            None => None,
        };
        let nodes = raw.add_nodes(name, count, None);
        (nodes.features, nodes.time) = (table, time);
    }
    raw.edges = edges;
    let is_read = |name: &str| {
        ["edge_index.npy", "node_feat.npy", "node_year.npy", "meta.pt", "split_dict.pt"]
            .iter()
            .any(|read| name.ends_with(read))
            || name.contains("/node_label")
    };
    raw.report.ignore_unread(files.names(), is_read);
    Ok((files, raw))
}

/// Smallest number of nodes of a type for which all ids of the edges exist.
fn least_count(edges: &RawEdges, node_type: &str) -> usize {
    let most = |is_own: bool, ids: &[u32]| if is_own { ids.iter().max().copied() } else { None };
    let from = most(edges.edge_type.source == node_type, &edges.src);
    let to = most(edges.edge_type.destination == node_type, &edges.dst);
    from.max(to).map_or(0, |most| most as usize + 1)
}

/// Numbers of nodes in `meta.pt`, if there is one.
fn declared_counts(files: &Files) -> Result<Vec<(String, usize)>> {
    let Some(path) = files.on_disk("meta.pt").filter(|path| path.is_file()) else { return Ok(Vec::new()) };
    torch::read(&path, |root, _, _| {
        let Item::Dict(entries) = root else { return Ok(Vec::new()) };
        let entry = |(key, value): &(Item, Item)| match (key.text(), value) {
            (Some(name), Item::Int(count)) => Some((name.to_string(), usize::try_from(*count).ok()?)),
            _ => None,
        };
        Ok(entries.iter().filter_map(entry).collect())
    })
}

/// Reads edges of shape `[E, 2]`.
fn pairs(files: &Files, name: &str) -> Result<[Vec<u32>; 2]> {
    let (ids, shape) = arrays::read::<u32>(files, name)?;
    match shape[..] {
        [_, 2] => {
            Ok([ids.iter().copied().step_by(2).collect(), ids.iter().copied().skip(1).step_by(2).collect()])
        }
        _ => Err(files.error(name, "edges", format!("shape [edges, 2] expected, {shape:?} found"))),
    }
}

/// Feature rows of `count` nodes.
fn features_of(files: &Files, name: &str, array: &NpyFile, count: usize) -> Result<FeatureTable> {
    let shape = &array.shape;
    loose::table_of(loose::floats(array)?, shape, count).ok_or_else(|| {
        files.error(name, "features", format!("shape [{count}, features] expected, {shape:?} found"))
    })
}

/// Classes of all papers; NaN and negative numbers are unknown.
fn labels_of(files: &Files, name: &str, raw: &RawTyped) -> Result<Labels> {
    let count = raw.nodes.iter().find(|nodes| nodes.name == "paper").map_or(0, |nodes| nodes.count);
    let (values, shape) = match files.on_disk(name).filter(|_| !name.ends_with(".gz")) {
        Some(path) => {
            let array = npy::open_or_memmap(&path, 1)?;
            (array.load::<f32>()?, array.shape.clone())
        }
        None => arrays::read::<f32>(files, name)?,
    };
    if values.len() != count {
        return Err(files.error(name, "labels", format!("shape [{count}] expected, {shape:?} found")));
    }
    let class = |(v, &x): (usize, &f32)| match x {
        x if x.is_nan() || x < 0.0 => Ok(-1),
        x if x.fract() == 0.0 && x < 65536.0 => Ok(x as i32),
        x => Err(files.error(name, "labels", format!("the label of paper {v} is {x}, not a class"))),
    };
    let class = values.iter().enumerate().map(class).collect::<Result<Vec<i32>>>()?;
    let classes = class.iter().max().map_or(0, |&most| (most + 1) as usize);
    Ok(Labels::Single { class: class.into(), classes })
}

/// First of these entries of a split, ascending.
fn part(root: &Item, storages: &Storages, at: &Location, names: &[&str]) -> Result<Vec<u32>> {
    let Some(item) = names.iter().find_map(|name| root.get(name)) else { return Ok(Vec::new()) };
    let mut ids = storages.values::<u32>(item, at)?.0;
    ids.sort_unstable();
    Ok(ids)
}
