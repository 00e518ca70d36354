//! Export of typed datasets as tables: CSV files that any program reads, with a header each.
//!
//! ```text
//! schema.json                     types, tasks, and the file of each
//! nodes/TYPE.csv                  key, time, a column per feature, and for each task on all nodes
//!                                 of the type its targets and NAME_split (train, valid, test or
//!                                 empty)
//! edges/SRC__NAME__DST.csv        source, destination (keys), weight, time, features, targets and splits
//! features/TYPE.csv               row, column, value: sparse features of a node or edge type
//! tasks/NAME.csv                  tasks with seeds of their own: key, or source and destination;
//!                                 time, targets and split
//! negatives/NAME.csv              split, positive (its place in the part, or empty), source, destination
//! ```
//!
//! A node without a key is written as its number. Classes are written by name if they have names;
//! an unknown target is empty.

mod columns;
mod task;

use std::{collections::BTreeSet, fs, io::BufWriter, path::Path};

use csv::Writer;
use graphmill_core::{Error, Result};
use serde_json::{Value, json};

use super::ExportOptions;
use crate::{
    atomic::{self, Directories, Disk, Real},
    typed::{EdgeData, FeatureTable, NodeData, TableData, TaskOn, TypedDataset, file_name, unique_name},
};
use columns::{Columns, write_key, write_value};

/// File of the types and tasks.
const SCHEMA: &str = "schema.json";
/// Directories of an export.
const DIRECTORIES: [&str; 5] = ["nodes", "edges", "features", "tasks", "negatives"];

/// Writes the directory `dst`.
pub(super) fn write(data: &TypedDataset, dst: &Path, options: &ExportOptions) -> Result<Vec<String>> {
    let mut lost = Vec::new();
    for nodes in &data.nodes {
        if nodes.original_ids.is_some() {
            lost.push(format!("the ids that nodes of type '{}' had before they were reordered", nodes.name));
        }
        if let Some(how) = &nodes.normalization {
            let (name, how) = (&nodes.name, how.name());
            lost.push(format!(
                "features of '{name}' before normalization: they are exported as they are stored ({how})"
            ));
        }
        if !nodes.graphs.is_empty() {
            lost.push(format!("which nodes of type '{}' belong to which of the graphs", nodes.name));
        }
    }
    atomic::write_dir(dst, options.replace, |dir| {
        let mut export = Export { data, dir, names: BTreeSet::new(), made: Directories::default() };
        let schema = export.write()?;
        export.made.sync()?;
        let text = serde_json::to_string_pretty(&schema).map_err(|e| Error::invalid(e.to_string()))? + "\n";
        write_file(&dir.join(SCHEMA), text.as_bytes())
    })?;
    Ok(lost)
}

/// Returns the name of an entry of `dst` that no export wrote, if there is one.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn stranger(dst: &Path) -> std::io::Result<Option<String>> {
    for entry in fs::read_dir(dst)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == SCHEMA {
            continue;
        }
        if !DIRECTORIES.contains(&&name[..]) || !entry.path().is_dir() {
            return Ok(Some(name));
        }
        for inner in fs::read_dir(entry.path())? {
            let inner = inner?.file_name().to_string_lossy().into_owned();
            if !inner.ends_with(".csv") {
                return Ok(Some(format!("{name}/{inner}")));
            }
        }
    }
    Ok(None)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    Real.write(path, |file| file.write_all(bytes)).map_err(|e| Error::io(path, "write", e))
}

/// Export in progress.
struct Export<'a> {
    data: &'a TypedDataset,
    dir: &'a Path,
    /// Files written.
    names: BTreeSet<String>,
    /// Directories of the files.
    made: Directories,
}

impl Export<'_> {
    /// Writes all tables, and returns their schema.
    fn write(&mut self) -> Result<Value> {
        let nodes: Result<Vec<_>> = self.data.nodes.iter().map(|nodes| self.nodes(nodes)).collect();
        let edges: Result<Vec<_>> = self.data.edges.iter().map(|edges| self.edges(edges)).collect();
        let tasks: Result<Vec<_>> = self.data.tasks.iter().map(|task| self.task(task)).collect();
        Ok(json!({
            "format": "graphmill-tables-1",
            "name": self.data.name,
            "node_types": nodes?,
            "edge_types": edges?,
            "tasks": tasks?,
            "preprocessing": self.data.preprocessing,
        }))
    }

    /// Relative path of a new file for a type or task.
    fn path(&mut self, directory: &str, name: String) -> Result<String> {
        self.made.create(&self.dir.join(directory))?;
        Ok(unique_name(format!("{directory}/{name}"), &mut self.names) + ".csv")
    }

    /// Writes a table with a header and a row for each `count`.
    fn table(
        &self,
        path: &str,
        header: &[String],
        count: usize,
        mut row: impl FnMut(usize, &mut Vec<String>),
    ) -> Result<()> {
        let path = self.dir.join(path);
        let io = |e: csv::Error| match e.into_kind() {
            csv::ErrorKind::Io(e) => Error::io(&path, "write", e),
            other => Error::format(&path, "table", format!("{other:?}")),
        };
        let file = atomic::create_fresh(&path).map_err(|e| Error::io(&path, "create", e))?;
        let mut out = Writer::from_writer(BufWriter::with_capacity(1 << 20, file));
        out.write_record(header).map_err(io)?;
        let mut fields = vec![String::new(); header.len()];
        for i in 0..count {
            fields.iter_mut().for_each(String::clear);
            row(i, &mut fields);
            out.write_record(&fields).map_err(io)?;
        }
        let file = out.into_inner().map_err(|e| Error::io(&path, "write", e.into_error()))?;
        let file = file.into_inner().map_err(|e| Error::io(&path, "write", e.into_error()))?;
        atomic::sync(&file, &path).map_err(|e| Error::io(&path, "sync", e))
    }

    fn nodes(&mut self, nodes: &NodeData) -> Result<Value> {
        let path = self.path("nodes", file_name(&nodes.name))?;
        let mut columns = Columns::default();
        columns.add("key", |v, out| write_key(nodes.keys.as_ref(), v, out));
        if let Some(time) = &nodes.time {
            columns.add("time", |v, out| write_value(&time[v], out));
        }
        columns.add_features(nodes.features.as_ref());
        for task in self.data.tasks.iter().filter(|task| task.seeds.is_none()) {
            if matches!(&task.on, TaskOn::Nodes(name) if *name == nodes.name) {
                columns.add_task(task, &task.name);
            }
        }
        let header = columns.names().to_vec();
        self.table(&path, &header, nodes.count, |v, fields| columns.write(v, fields))?;
        let sparse = self.sparse("nodes", &file_name(&nodes.name), nodes.features.as_ref())?;
        Ok(json!({
            "name": nodes.name, "nodes": nodes.count, "file": path, "columns": header,
            "sparse_features": sparse, "keys": nodes.keys.as_ref().map(|keys| keys.kind()),
        }))
    }

    fn edges(&mut self, edges: &EdgeData) -> Result<Value> {
        let of = &edges.edge_type;
        let name = [&of.source, &of.name, &of.destination].map(|name| file_name(name)).join("__");
        let path = self.path("edges", name.clone())?;
        let keys = |name: &str| Ok::<_, Error>(self.data.node_type(name)?.keys.as_ref());
        let (sources, destinations) = (keys(&of.source)?, keys(&of.destination)?);
        let rows = edges.destinations();
        let mut columns = Columns::default();
        columns.add("source", |e, out| write_key(sources, edges.indices[e] as usize, out));
        columns.add("destination", |e, out| write_key(destinations, rows[e] as usize, out));
        if let Some(weights) = &edges.weights {
            columns.add("weight", |e, out| write_value(&weights[e], out));
        }
        if let Some(time) = &edges.time {
            columns.add("time", |e, out| write_value(&time[e], out));
        }
        columns.add_features(edges.features.as_ref());
        for task in self.data.tasks.iter().filter(|task| task.seeds.is_none()) {
            if matches!(&task.on, TaskOn::Edges(edge_type) if edge_type == of) {
                columns.add_task(task, &task.name);
            }
        }
        let header = columns.names().to_vec();
        self.table(&path, &header, edges.num_edges(), |e, fields| columns.write(e, fields))?;
        drop(columns);
        let sparse = self.sparse("edges", &name, edges.features.as_ref())?;
        Ok(json!({
            "source": of.source, "name": of.name, "destination": of.destination, "edges": edges.num_edges(),
            "reverse": edges.reverse, "file": path, "columns": header, "sparse_features": sparse,
        }))
    }

    /// Writes sparse features, one value per line; returns the path.
    fn sparse(&mut self, kind: &str, name: &str, table: Option<&FeatureTable>) -> Result<Option<String>> {
        let Some(TableData::Sparse(rows)) = table.map(|table| &table.data) else { return Ok(None) };
        let path = self.path("features", format!("{kind}-{name}"))?;
        let header = ["row", "column", "value"].map(String::from);
        let mut row = 0;
        self.table(&path, &header, rows.stored(), |k, fields| {
            while rows.indptr()[row + 1] <= k as u64 {
                row += 1;
            }
            write_value(&row, &mut fields[0]);
            write_value(&rows.indices()[k], &mut fields[1]);
            write_value(&rows.values()[k], &mut fields[2]);
        })?;
        Ok(Some(path))
    }
}
