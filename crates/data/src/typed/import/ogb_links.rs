//! Import of an OGB link property directory (`ogb/linkproppred/dataset.py`), such as ogbl-ddi:
//!
//! - `raw/edge.csv.gz` (the training edges), `raw/num-node-list.csv.gz`, and, optionally,
//!   `raw/node-feat.csv.gz`, `raw/edge_weight.csv.gz` and `raw/edge_year.csv.gz` (the time of the
//!   edges);
//! - `split/NAME/{train,valid,test}.pt` or `.npz` (also in `split_npz/`): `edge` and `edge_neg` of
//!   shape `[N, 2]`, or `source_node`, `target_node` and `target_node_neg` of shape `[N, K]`;
//! - `mapping/nodeidx2*.csv.gz`: keys.
//!
//! Nothing in a `.pt` file is executed. OGB adds the reverse of the edges of ddi, ppa and collab
//! when it loads them, so these become undirected.

use std::path::Path;

use graphmill_core::{Result, location::Location};

use super::{
    TypedOptions,
    files::Files,
    lines::{Faults, finite, for_each_line, wrong},
    ogb_tables::{column, count, edges, find, names, required},
    raw::{RawEdges, RawTyped, Reverse, link_task},
    tables::text_features,
};
use crate::{
    dataset::import::torch::{self, Storages},
    npz::Npz,
    typed::{EdgeType, Keys, Negatives},
};

/// Maximum length of a split file inside an archive.
const MAX_SPLIT: u64 = 1 << 36;
/// Names of directories in OGB's archives, and of their datasets.
const ARCHIVES: [(&str, &str); 2] = [("ppassoc", "ppa"), ("citation-v2", "citation2")];
/// Datasets whose edges OGB's loader makes undirected.
const UNDIRECTED: [&str; 3] = ["ddi", "ppa", "collab"];

/// Positives and negatives of a part of a split.
#[derive(Default)]
struct Part {
    positives: Vec<u32>,
    negatives: Option<Negatives>,
}

/// Reads the directory or archive `src`.
pub(super) fn read(src: &Path, options: &TypedOptions) -> Result<RawTyped> {
    let files = Files::open(src)?;
    let mut raw = RawTyped { name: files.title().replace('_', "-"), ..RawTyped::default() };
    let nodes = count(&files, required(&files, "raw/num-node-list")?)?;
    let at = Location::new(files.path(), "raw/num-node-list");
    let path = required(&files, "raw/edge")?;
    let [from, to] = edges(&files, path, [nodes; 2])?;
    crate::dataset::import::claims::nodes(nodes, from.len() as u64, &at)?;
    if let Some(list) = find(&files, "raw/num-edge-list") {
        let expected = count(&files, list)?;
        if from.len() != expected {
            return Err(wrong(
                &files,
                path,
                format!("{} edges, but num-edge-list says {expected}", from.len()),
            ));
        }
    }
    let edge_type = EdgeType::new("node", "link", "node");
    let mut edges = RawEdges { src: from, dst: to, ..RawEdges::new(edge_type.clone()) };
    if let Some(path) = find(&files, "raw/edge_weight") {
        edges.weights = Some(numbers(&files, path, edges.src.len())?).filter(|w| w.iter().any(|&w| w != 1.0));
    }
    if let Some(path) = find(&files, "raw/edge_year") {
        let years = column(&files, path, edges.src.len())?;
        edges.time = Some(years.iter().map(|row| row[0].unwrap_or(i64::MIN)).collect());
    }
    let short = raw.name.strip_prefix("ogbl-").unwrap_or(&raw.name);
    let short = ARCHIVES.iter().find(|(archive, _)| *archive == short).map_or(short, |&(_, name)| name);
    let short = short.to_string();
    if UNDIRECTED.contains(&short.as_str()) || options.undirected {
        edges.reverse = Reverse::Undirected;
    }
    let features = match find(&files, "raw/node-feat") {
        Some(path) => text_features(&files, path, nodes, options.dense_features)?,
        None => None,
    };
    let mut keys = None;
    if let Some(path) = files.names().iter().find(|name| name.starts_with("mapping/nodeidx2")) {
        keys = names(&files, path, nodes)?.map(Keys::texts).filter(|keys| keys.validate(nodes).is_ok());
        if keys.is_none() {
            raw.report.note(format!("{path}: not one name for each node; ids are the keys"));
        }
    }
    read_splits(&files, &edges, nodes, &edge_type, &short, &mut raw)?;
    raw.add_nodes("node", nodes, keys).features = features;
    raw.edges.push(edges);
    const READ: [&str; 6] =
        ["edge", "num-node-list", "num-edge-list", "edge_weight", "edge_year", "node-feat"];
    let is_read = |name: &str| {
        READ.iter().any(|read| {
            name.strip_prefix("raw/")
                .is_some_and(|name| name.trim_end_matches(".gz").strip_suffix(".csv") == Some(read))
        })
    };
    let splits = |name: &str| ["split", "mapping/nodeidx2"].iter().any(|part| name.starts_with(part));
    raw.report.ignore_unread(files.names(), |name| is_read(name) || splits(name));
    Ok(raw)
}

/// Adds a task for each directory of `split/`.
fn read_splits(
    files: &Files,
    edges: &RawEdges,
    nodes: usize,
    edge_type: &EdgeType,
    short: &str,
    raw: &mut RawTyped,
) -> Result<()> {
    let mut names: Vec<&str> = files
        .names()
        .iter()
        .filter_map(|name| name.strip_prefix("split/")?.split_once('/').map(|(split, _)| split))
        .collect();
    names.dedup();
    if names.is_empty() && files.names().iter().any(|name| name.starts_with("split_npz/")) {
        names.push("npz");
    }
    for split in names {
        let part = |part: &str| {
            let paths = [
                format!("split/{split}/{part}.pt"),
                format!("split/{split}/{part}.npz"),
                format!("split_npz/{part}.npz"),
            ];
            match paths.iter().find_map(|path| files.find(path)) {
                Some(path) => read_part(files, path, nodes).map(Some),
                None => Ok(None),
            }
        };
        let train = part("train")?.unwrap_or_else(|| Part { positives: edges.pairs(), negatives: None });
        let (valid, test) = (part("valid")?.unwrap_or_default(), part("test")?.unwrap_or_default());
        let negatives = [train.negatives, valid.negatives, test.negatives];
        let mut task =
            link_task(split, edge_type, [train.positives, valid.positives, test.positives], negatives);
        let metric = match short {
            "ddi" => Some("hits@20"),
            "collab" => Some("hits@50"),
            "ppa" => Some("hits@100"),
            "citation2" => Some("mrr"),
            "vessel" => Some("roc-auc"),
            _ => None,
        };
        task.metric = metric.map(str::to_string);
        raw.tasks.push(task);
    }
    Ok(())
}

/// Arrays of a part, by their names.
enum Arrays<'a> {
    Torch(&'a crate::dataset::import::pickle::Item<'a>, &'a Storages<'a>),
    Npz(Npz),
}

impl Arrays<'_> {
    fn get(&mut self, name: &str, at: &Location) -> Result<Option<(Vec<u32>, Vec<usize>)>> {
        match self {
            Self::Torch(root, storages) => root.get(name).map(|item| storages.values(item, at)).transpose(),
            Self::Npz(npz) if npz.contains(name) => {
                npz.read_as(name).map(|array| Some((array.data, array.shape)))
            }
            Self::Npz(_) => Ok(None),
        }
    }
}

/// Reads a part of a split: a file of PyTorch or an archive of NumPy.
fn read_part(files: &Files, name: &str, nodes: usize) -> Result<Part> {
    if name.trim_end_matches(".gz").ends_with(".npz") {
        let Some(path) = files.on_disk(name) else {
            return Err(wrong(files, name, "an .npz file inside an archive is not read; unpack the archive"));
        };
        return part_of(&mut Arrays::Npz(Npz::open(&path)?), &Location::new(&path, "arrays"), nodes);
    }
    match files.on_disk(name) {
        Some(path) => {
            torch::read(&path, |root, storages, at| part_of(&mut Arrays::Torch(root, storages), at, nodes))
        }
        None => {
            let bytes = files.bytes(name, MAX_SPLIT)?;
            torch::read_bytes(&bytes, files.path(), |root, storages, at| {
                part_of(&mut Arrays::Torch(root, storages), at, nodes)
            })
        }
    }
}

fn part_of(arrays: &mut Arrays, at: &Location, nodes: usize) -> Result<Part> {
    let check = |ids: &[u32], what: &str| match ids.iter().position(|&id| id as usize >= nodes) {
        Some(i) => {
            Err(at.error(format!("{what}: entry {i} is node {}, but there are {nodes} nodes", ids[i])))
        }
        None => Ok(()),
    };
    let pairs = |found: Option<(Vec<u32>, Vec<usize>)>, name: &str| match found {
        None => Ok(None),
        Some((ids, shape)) => {
            check(&ids, name)?;
            if ids.is_empty() || matches!(shape[..], [_, 2]) {
                Ok(Some(ids))
            } else {
                Err(at.error(format!("{name}: shape [pairs, 2] expected, {shape:?} found")))
            }
        }
    };
    if let Some(positives) = pairs(arrays.get("edge", at)?, "edge")? {
        let negatives = pairs(arrays.get("edge_neg", at)?, "edge_neg")?;
        return Ok(Part { positives, negatives: negatives.map(|pairs| Negatives::Pairs(pairs.into())) });
    }
    if let (Some((source, _)), Some((target, _))) =
        (arrays.get("source_node", at)?, arrays.get("target_node", at)?)
    {
        check(&source, "source_node")?;
        check(&target, "target_node")?;
        if source.len() != target.len() {
            return Err(at.error(format!("{} sources for {} targets", source.len(), target.len())));
        }
        let positives = source.iter().zip(&target).flat_map(|(&u, &v)| [u, v]).collect();
        let negatives = match arrays.get("target_node_neg", at)? {
            Some((ids, shape)) if matches!(shape[..], [rows, _] if rows == source.len()) => {
                check(&ids, "target_node_neg")?;
                Some(Negatives::Destinations { each: shape[1], nodes: ids.into() })
            }
            Some((_, shape)) => {
                let message =
                    format!("target_node_neg: shape [{}, negatives] expected, {shape:?} found", source.len());
                return Err(at.error(message));
            }
            None => None,
        };
        return Ok(Part { positives, negatives });
    }
    Err(at.error(
        "neither 'edge' nor 'source_node' and 'target_node': for knowledge graphs (head, relation, tail) \
            write \
         the triples as text and import them as 'triples'",
    ))
}

/// Reads a column of numbers, not negative.
fn numbers(files: &Files, name: &str, count: usize) -> Result<Vec<f32>> {
    let mut values = Vec::new();
    for_each_line(files, name, |line| {
        values.push(finite("weight", line)?);
        Ok(())
    })?;
    let mut faults = Faults::default();
    if values.len() != count {
        faults.add("rows", format!("{} rows for {count} edges", values.len()));
    }
    if let Some(i) = values.iter().position(|&w| w < 0.0) {
        faults.add(format!("row {i}"), format!("the weight {} is negative", values[i]));
    }
    faults.finish(files, name)?;
    Ok(values)
}
