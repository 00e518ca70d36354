//! Import of DGL's chunked graphs, the input of its distributed partitioning
//! (`tools/chunk_graph.py`, `docs/source/guide/distributed-preprocessing.rst`). `SRC` is the
//! directory of `metadata.json`, or that file.
//!
//! - `node_type` with `num_nodes_per_chunk` (or `num_nodes_per_type`), `edge_type`
//!   (`author:writes:paper`) with the files of `edges`: `csv` with a `delimiter`, or `numpy`.
//! - `node_data` and `edge_data`: `numpy` or `csv`, one file per chunk. `label` (or `labels`) with
//!   `train_mask`, `val_mask` and `test_mask` makes a task; `weight` of edges are weights, and
//!   `year`, `time` or `timestamp` times. All other columns are features and joined.
//!
//! Chunks may also be `parquet`, if the program was built with the feature of that name.

use std::path::Path;

use graphmill_core::{Labels, Result, location::Location};
use serde_json::Value;

use super::{
    TypedOptions,
    files::Files,
    loose,
    raw::{RawEdges, RawTyped, node_task},
};
use crate::typed::{EdgeType, FeatureTable};

/// Maximum length of `metadata.json`.
const MAX_METADATA: u64 = 1 << 26;
const TIMES: [&str; 3] = ["year", "time", "timestamp"];

/// Description, and the files it names.
struct Source<'a> {
    files: &'a Files,
    at: Location<'a>,
}

/// Reads the directory (or the `metadata.json`) `src`.
pub(super) fn read(src: &Path, _options: &TypedOptions) -> Result<RawTyped> {
    let path = if src.is_dir() { src.join("metadata.json") } else { src.to_path_buf() };
    let root = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let files = Files::open(root)?;
    let own = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let text = files.bytes(files.required(own)?, MAX_METADATA)?;
    let fault = |e: serde_json::Error| {
        files.error(own, format!("line {} column {}", e.line(), e.column()), e.to_string())
    };
    let metadata: Value = serde_json::from_slice(&text).map_err(fault)?;
    let source = Source { files: &files, at: Location::new(&path, "metadata") };
    let mut raw = RawTyped {
        name: metadata["graph_name"].as_str().map_or_else(|| files.title(), str::to_string),
        ..RawTyped::default()
    };
    let counts = &metadata["num_nodes_per_type"];
    let chunks = &metadata["num_nodes_per_chunk"];
    for (i, name) in source.texts(&metadata["node_type"], "node_type")?.iter().enumerate() {
        let count = counts[i].as_u64().or_else(|| {
            chunks[i].as_array()?.iter().try_fold(0u64, |sum, count| sum.checked_add(count.as_u64()?))
        });
        let count = count.and_then(|count| u32::try_from(count).ok());
        let count = count.ok_or_else(|| {
            source.at.error(format!("node_type '{name}' has no number of nodes in num_nodes_per_chunk"))
        })?;
        raw.add_nodes(name, count as usize, None);
    }
    for name in source.texts(&metadata["edge_type"], "edge_type")? {
        let parts: Vec<&str> = name.split(':').collect();
        let &[from, relation, to] = &parts[..] else {
            return Err(source
                .at
                .error(format!("'{name}' is not an edge type; source:name:destination expected")));
        };
        let mut edges = RawEdges::new(EdgeType::new(from, relation, to));
        for (path, format) in source.chunks(&metadata["edges"][&name], &format!("edges of {name}"))? {
            let [from, to] = loose::edges(&files, &path, &format)?;
            edges.src.extend(from);
            edges.dst.extend(to);
        }
        let rows = edges.src.len();
        let mut tables = Vec::new();
        for (column, value) in metadata["edge_data"][&name].as_object().into_iter().flatten() {
            let chunks = source.chunks(value, &format!("edge_data {column}"))?;
            match column.as_str() {
                "weight" | "edge_weight" => edges.weights = Some(source.column::<f32>(&chunks, rows)?),
                column if TIMES.contains(&column) => edges.time = Some(source.column::<i64>(&chunks, rows)?),
                column if is_mask_or_label(column) => raw.report.ignore(format!("{column} of {name}")),
                _ => tables.push(source.table(&chunks, rows)?),
            }
        }
        edges.features = loose::join(tables, rows)?;
        raw.edges.push(edges);
    }
    for i in 0..raw.nodes.len() {
        let name = raw.nodes[i].name.clone();
        source.add_node_data(&metadata["node_data"][&name], i, &mut raw)?;
    }
    let text = String::from_utf8_lossy(&text);
    raw.report.ignore_unread(files.names(), |name| name == own || text.contains(name));
    Ok(raw)
}

fn is_mask_or_label(column: &str) -> bool {
    ["label", "labels", "train_mask", "val_mask", "valid_mask", "test_mask"].contains(&column)
}

impl Source<'_> {
    fn texts(&self, value: &Value, field: &str) -> Result<Vec<String>> {
        let list = value
            .as_array()
            .and_then(|list| list.iter().map(|item| item.as_str().map(str::to_string)).collect());
        list.ok_or_else(|| self.at.error(format!("'{field}': a list of names expected")))
    }

    /// Paths of the chunks of a column with their format.
    fn chunks(&self, value: &Value, what: &str) -> Result<Vec<(String, String)>> {
        let format = value["format"]["name"].as_str().unwrap_or_default();
        let reads_parquet = cfg!(feature = "parquet");
        if !(["numpy", "csv"].contains(&format) || reads_parquet && format == "parquet") {
            return Err(self.at.error(format!(
                "{what}: the format '{format}' is not read; save the chunks as numpy or csv"
            )));
        }
        let paths = self.texts(&value["data"], &format!("{what}: data"))?;
        // Absolute paths are of the machine that wrote the chunks.
        let root = self.files.path().canonicalize().unwrap_or_default();
        let below = |path: &String| {
            let path =
                Path::new(path).strip_prefix(&root).unwrap_or(Path::new(path)).to_string_lossy().into_owned();
            (path, format.to_string())
        };
        Ok(paths.iter().map(below).collect())
    }

    fn column<T: crate::npy::Element>(&self, chunks: &[(String, String)], rows: usize) -> Result<Vec<T>> {
        let mut all = Vec::new();
        for (path, format) in chunks {
            all.extend_from_slice(&loose::load::<T>(self.files, path, format)?.0);
        }
        match all.len() == rows {
            true => Ok(all),
            false => Err(self.files.error(
                &chunks[0].0,
                "rows",
                format!("{} values in all chunks, {rows} expected", all.len()),
            )),
        }
    }

    /// Feature rows of all chunks. A single chunk is mapped.
    fn table(&self, chunks: &[(String, String)], rows: usize) -> Result<FeatureTable> {
        if let [(path, format)] = chunks {
            return loose::features(self.files, path, format, rows);
        }
        let (mut all, mut width) = (Vec::new(), None);
        for (path, format) in chunks {
            let (values, shape) = loose::load::<f32>(self.files, path, format)?;
            let columns = shape.get(1).copied().unwrap_or(1);
            if *width.get_or_insert(columns) != columns {
                return Err(self.files.error(
                    path,
                    "chunk",
                    format!("{columns} columns, but earlier chunks have another number"),
                ));
            }
            all.extend_from_slice(&values);
        }
        let width = width.unwrap_or(0);
        if width == 0 || all.len() != rows * width {
            return Err(self.at.error(format!(
                "{} values in the chunks of features are not {rows} rows of {width}",
                all.len()
            )));
        }
        Ok(FeatureTable::dense(width, all))
    }

    /// Adds features, times and a task of the node type `i`.
    fn add_node_data(&self, data: &Value, i: usize, raw: &mut RawTyped) -> Result<()> {
        let count = raw.nodes[i].count;
        let (mut tables, mut class) = (Vec::new(), None);
        let mut parts = [Vec::new(), Vec::new(), Vec::new()];
        for (column, value) in data.as_object().into_iter().flatten() {
            let chunks = self.chunks(value, &format!("node_data {column}"))?;
            let mask = match column.as_str() {
                "train_mask" => Some(0),
                "val_mask" | "valid_mask" => Some(1),
                "test_mask" => Some(2),
                _ => None,
            };
            if let Some(part) = mask {
                let mask = self.column::<u8>(&chunks, count)?;
                parts[part] = (0..count as u32).filter(|&v| mask[v as usize] != 0).collect();
            } else if ["label", "labels"].contains(&column.as_str()) {
                class = Some(self.column::<f64>(&chunks, count)?);
            } else if TIMES.contains(&column.as_str()) {
                raw.nodes[i].time = Some(self.column::<i64>(&chunks, count)?.into());
            } else {
                tables.push(self.table(&chunks, count)?);
            }
        }
        raw.nodes[i].features = loose::join(tables, count)?;
        let Some(class) = class else { return Ok(()) };
        let name = raw.nodes[i].name.clone();
        let label = |(v, x): (usize, &f64)| match x {
            x if x.is_nan() || *x == -1.0 => Ok(-1),
            x if x.fract() == 0.0 && (0.0..f64::from(1 << 24)).contains(x) => Ok(*x as i32),
            x => Err(self.at.error(format!("the label of node {v} of '{name}' is {x}, not a class"))),
        };
        let class = class.iter().enumerate().map(label).collect::<Result<Vec<i32>>>()?;
        let classes = class.iter().max().map_or(0, |&most| (most + 1) as usize);
        raw.tasks.push(node_task(&name, &name, Labels::Single { class: class.into(), classes }, parts));
        Ok(())
    }
}
