//! Import of the sets of HeCo (Wang et al., Self-supervised heterogeneous graph neural network with
//! co-contrastive learning, KDD 2021), a directory or archive:
//!
//! - `XY.txt`: lines `x y`, ids from 0 per type; `X` and `Y` are the first letters of node types
//!   (`pa.txt`: paper, author);
//! - `X_feat.npz`: features, a SciPy matrix in CSR or COO form; `labels.npy`: classes of the type
//!   with as many nodes;
//! - `train_K.npy`, `val_K.npy`, `test_K.npy`: node ids; a task `class-K` for each `K`.
//!
//! Files of metapaths (`pap.npz`, `nei_a.npy`, `pos.npz`) are not read.

use std::{collections::BTreeMap, path::Path};

use graphmill_core::{Result, location::Location, memory};

use super::{
    TypedOptions, arrays,
    files::Files,
    lines::{for_each_line, whole, wrong},
    raw::{RawEdges, RawTyped, node_task, single_labels},
    tables::from_csr,
};
use crate::{
    dataset::import::csr::Csr,
    npz::Npz,
    typed::{EdgeType, FeatureTable},
};

/// Names of node types by their letters; other letters are names themselves.
const TYPES: [(char, &str); 10] = [
    ('a', "author"),
    ('c', "conference"),
    ('d', "director"),
    ('m', "movie"),
    ('p', "paper"),
    ('r', "reference"),
    ('s', "subject"),
    ('t', "term"),
    ('u', "user"),
    ('w', "writer"),
];

fn type_name(letter: char) -> String {
    TYPES
        .iter()
        .find(|(known, _)| *known == letter)
        .map_or_else(|| letter.to_string(), |(_, name)| name.to_string())
}

/// Reads the directory `src`.
pub(super) fn read(src: &Path, options: &TypedOptions) -> Result<RawTyped> {
    let files = Files::open(src)?;
    let mut raw = RawTyped { name: files.title(), ..RawTyped::default() };
    let mut counts: BTreeMap<char, usize> = BTreeMap::new();
    let mut relations = Vec::new();
    let mut read: Vec<String> = Vec::new();
    for name in files.names() {
        let Some(stem) = name.trim_end_matches(".gz").strip_suffix(".txt") else { continue };
        let letters: Vec<char> = stem.chars().collect();
        let &[x, y] = &letters[..] else { continue };
        let mut ends = [Vec::new(), Vec::new()];
        for_each_line(&files, name, |line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let &[u, v] = &fields[..] else {
                return Err(format!("two ids expected, {} fields found", fields.len()));
            };
            for (end, id) in ends.iter_mut().zip([u, v]) {
                let id = whole::<u32>("id", id)?;
                if id >= 1 << 30 {
                    return Err(format!("id {id}: ids are numbered from 0"));
                }
                end.push(id);
            }
            Ok(())
        })?;
        for (letter, end) in [(x, &ends[0]), (y, &ends[1])] {
            let least = end.iter().max().map_or(0, |&most| most as usize + 1);
            let at = Location::new(files.path(), "ids");
            crate::dataset::import::claims::nodes(least, end.len() as u64, &at)?;
            counts.entry(letter).and_modify(|count| *count = least.max(*count)).or_insert(least);
        }
        relations.push((x, y, ends));
        read.push(name.clone());
    }
    if relations.is_empty() {
        return Err(graphmill_core::Error::format(
            src,
            "directory",
            "there is no edge list such as pa.txt (two letters)",
        ));
    }
    let mut features = BTreeMap::new();
    for (&letter, count) in &mut counts {
        let name = format!("{letter}_feat.npz");
        if let Some(name) = files.find(&name) {
            let table = read_features(&files, name, *count, options.dense_features)?;
            *count = table.1;
            features.insert(letter, table.0);
            read.push(name.into());
        }
    }
    for (x, y, [from, to]) in relations {
        let edge_type =
            EdgeType::new(type_name(x), format!("{}-{}", type_name(x), type_name(y)), type_name(y));
        raw.edges.push(RawEdges { src: from, dst: to, ..RawEdges::new(edge_type) });
    }
    for (letter, count) in &counts {
        raw.add_nodes(&type_name(*letter), *count, None).features = features.remove(letter);
    }
    read_tasks(&files, &mut raw, &mut read)?;
    raw.report.ignore_unread(files.names(), |name| read.iter().any(|read| read == name));
    Ok(raw)
}

/// Reads a feature matrix of at least `least` rows; returns also the number of rows.
fn read_features(files: &Files, name: &str, least: usize, dense: bool) -> Result<(FeatureTable, usize)> {
    let Some(path) = files.on_disk(name) else {
        return Err(wrong(files, name, "an .npz file inside an archive is not read; unpack the archive"));
    };
    let mut npz = Npz::open(&path)?;
    let at = Location::new(&path, "matrix");
    let csr = if npz.contains("row") { from_coo(&mut npz, &at)? } else { Csr::from_npz(&mut npz, "")? };
    let rows = csr.rows;
    if rows < least {
        return Err(at.error(format!("{rows} rows of features, but an edge list names node {}", least - 1)));
    }
    Ok((from_csr(csr, rows, dense, &at)?, rows))
}

/// Matrix of SciPy in COO form.
fn from_coo(npz: &mut Npz, at: &Location) -> Result<Csr> {
    let shape = npz.read_as::<u64>("shape")?.data;
    let &[rows, columns] = &shape[..] else {
        return Err(at.error(format!("shape: two numbers expected, {shape:?} found")));
    };
    let (row, col) = (npz.read_as::<u32>("row")?.data, npz.read_as::<u32>("col")?.data);
    let data = npz.read_as::<f32>("data")?.data;
    if row.len() != col.len() || row.len() != data.len() {
        return Err(at.error(format!("{} rows, {} columns and {} values", row.len(), col.len(), data.len())));
    }
    if let Some(i) = row.iter().position(|&i| u64::from(i) >= rows) {
        return Err(at.error(format!("entry {i} is in row {}, but there are {rows} rows", row[i])));
    }
    crate::dataset::import::claims::nodes(rows as usize, row.len() as u64, at)?;
    let mut indptr: Vec<u64> = memory::zeroed(rows as usize + 1)?;
    row.iter().for_each(|&i| indptr[i as usize + 1] += 1);
    (0..rows as usize).for_each(|i| indptr[i + 1] += indptr[i]);
    let mut next: Vec<u64> = memory::reserve(indptr.len())?;
    next.extend_from_slice(&indptr);
    let (mut indices, mut values) = (memory::zeroed(col.len())?, memory::zeroed(col.len())?);
    for ((i, j), x) in row.into_iter().zip(col).zip(data) {
        let at = next[i as usize] as usize;
        next[i as usize] += 1;
        (indices[at], values[at]) = (j, x);
    }
    let csr = Csr { rows: rows as usize, columns: columns as usize, indptr, indices, data: values };
    csr.check(at, at)?;
    Ok(csr)
}

/// Adds a task for each size of the training set.
fn read_tasks(files: &Files, raw: &mut RawTyped, read: &mut Vec<String>) -> Result<()> {
    let Some(name) = files.find("labels.npy") else {
        raw.report.note("there is no labels.npy: the dataset has no task");
        return Ok(());
    };
    let (classes, shape) = arrays::read::<u32>(files, name)?;
    read.push(name.into());
    let fitting: Vec<String> =
        raw.nodes.iter().filter(|nodes| shape == [nodes.count]).map(|nodes| nodes.name.clone()).collect();
    let [node_type] = &fitting[..] else {
        let types: Vec<String> =
            raw.nodes.iter().map(|nodes| format!("{} {}", nodes.count, nodes.name)).collect();
        let message = format!(
            "shape {shape:?}, but the nodes are {}: labels of one of them expected",
            types.join(", ")
        );
        return Err(wrong(files, name, message));
    };
    if let Some(v) = classes.iter().position(|&c| c >= 1 << 16) {
        return Err(wrong(
            files,
            name,
            format!("node {v} has class {}: classes are numbered from 0", classes[v]),
        ));
    }
    let pairs: Vec<(u32, u32)> = (0..).zip(classes.iter().copied()).collect();
    let labels = single_labels(classes.len(), &pairs, 0)?;
    let sizes: Vec<String> = files
        .names()
        .iter()
        .filter_map(|name| {
            Some(name.trim_end_matches(".gz").strip_prefix("train_")?.strip_suffix(".npy")?.to_string())
        })
        .collect();
    for size in sizes {
        let mut part = |part: &str| -> Result<Vec<u32>> {
            let Some(name) = files.find(&format!("{part}_{size}.npy")) else { return Ok(Vec::new()) };
            read.push(name.into());
            let (ids, _) = arrays::read::<u32>(files, name)?;
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            match ids.last().filter(|&&v| v as usize >= classes.len()) {
                Some(v) => {
                    Err(wrong(files, name, format!("node {v}, but there are {} nodes", classes.len())))
                }
                None => Ok(ids),
            }
        };
        let parts = [part("train")?, part("val")?, part("test")?];
        let mut task = node_task(&format!("class-{size}"), node_type, labels.clone(), parts);
        task.metric = Some("f1-macro".into());
        raw.tasks.push(task);
    }
    Ok(())
}
