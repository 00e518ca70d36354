//! Import of tables in Parquet files (Apache Parquet format 2), as written by pandas, Polars, Spark
//! and DuckDB.
//!
//! `SRC` is a directory with `edges.parquet` and optionally `nodes.parquet`, or the file of edges
//! itself with the nodes as an option. Either table may consist of several files (`edges/*.parquet`
//! or `edges-*.parquet`), read in name order.
//!
//! - Edges: columns `src` and `dst` (also `source`/`target`, `from`/`to`, `src_id`/`dst_id`,
//!   `u`/`v`, or the only two columns of numbers), and `weight` (`edge_weight`, `weights`, or the
//!   name in the option `weights`). Others are not read.
//! - Nodes: a row per node, each column optional. `id` (or `node_id`): any whole numbers, by which
//!   edges refer to the rows; without it edges refer to rows by number. `label` (`labels`, `y`):
//!   classes, with empty, NaN or -1 if unknown, or lists of zeros and ones, where a node with a
//!   missing or empty list or one of nulls is unlabelled. `split`: `train`, `valid`, `test` or 0,
//!   1, 2; or masks `train_mask`, `valid_mask` (`val_mask`), `test_mask`. Features are the one
//!   column of lists, all of equal length, or else all other columns of numbers in their order.
//!
//! Row groups are read sequentially, some thousand rows at a time. Memory holds a page of each
//! column and arrays of one entry per node. Declared sizes are checked before use: those of columns
//! and rows in `file.rs`, those of pages in `pages.rs`.

mod column;
mod edges;
mod file;
mod guard;
pub(crate) mod matrix;
mod nodes;
mod pages;
mod table;
mod thrift;

#[cfg(feature = "tables")]
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use edges::Ids;
use graphmill_core::{Error, Result, location::Location};
#[cfg(feature = "tables")]
pub(crate) use guard::guarded;
use nodes::Nodes;
use table::Table;

use super::{ImportOptions, ImportReport, Raw, labels};
use crate::external::Scratch;

/// End of a message about ids or columns that this importer does not read.
const OTHER_IDS: &str = "'graphmill import tables' reads keys of any type";
/// End of a message about columns that have other names, types or values.
const OTHER_COLUMNS: &str =
    "'graphmill import tables' reads columns of any name and type, also with missing values";

/// Checks the metadata of a Parquet file against its size.
///
/// # Errors
/// The file is not a Parquet file, or its declared offsets and sizes are impossible.
#[cfg(feature = "tables")]
pub(crate) fn check(path: &Path) -> Result<()> {
    file::Source::open(path).map(drop)
}

/// Checks the metadata of a Parquet file of `size` bytes, which `read` reads from a position on, as
/// [`check`] does.
///
/// # Errors
/// As for [`check`].
#[cfg(feature = "tables")]
pub(crate) fn check_by(
    path: &Path,
    size: u64,
    read: impl FnMut(&mut [u8], u64) -> std::io::Result<()>,
) -> Result<()> {
    file::metadata(path, size, read).map(drop)
}

/// Names of the columns of a Parquet file, and the texts that its writer recorded beside them.
///
/// # Errors
/// As for [`check`].
#[cfg(feature = "tables")]
pub(crate) fn described(path: &Path) -> Result<(Vec<String>, BTreeMap<String, String>)> {
    let source = file::Source::open(path)?;
    let columns = source.columns().into_iter().map(|(name, _)| name).collect();
    Ok((columns, source.recorded()))
}

/// Reads the directory or file `src`.
pub(super) fn read(src: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    let (edge_files, mut node_files) = if src.is_dir() {
        (find(src, "edges")?, find(src, "nodes")?)
    } else {
        (vec![src.to_path_buf()], vec![])
    };
    if edge_files.is_empty() {
        let message = "no edges.parquet, edges-*.parquet or edges/*.parquet in this directory; name the edge \
            file itself";
        return Err(Error::format(src, "directory", message));
    }
    if let Some(path) = &options.nodes {
        node_files = if path.is_dir() { in_order(path, |_| true)? } else { vec![path.clone()] };
    }
    let mut report = ImportReport::default();
    let mut nodes = match node_files.is_empty() {
        true => None,
        false => Some(nodes::read(&Table::open(node_files.clone())?, scratch, &mut report)?),
    };
    if src.is_dir() {
        let is_of = |file: &PathBuf, path: &Path| file == path || file.parent() == Some(path);
        let is_read = |path: &Path| edge_files.iter().chain(&node_files).any(|file| is_of(file, path));
        // Names beginning with an underscore are Spark's own.
        report.ignore_unread(src, |name| name.starts_with('_') || is_read(&src.join(name)))?;
    }
    let table = Table::open(edge_files)?;
    let at = Location::new(node_files.first().unwrap_or(&table.files[0]), "ids");
    if let (Some(nodes), Some(count)) = (&nodes, options.num_nodes)
        && nodes.count != count
    {
        return Err(at.error(format!("{} nodes, but the option num-nodes says {count}", nodes.count)));
    }
    let ids = match &mut nodes {
        Some(Nodes { ids: Some(_), .. }) if options.compact_ids || options.first_id != 0 => {
            return Err(at.error("the nodes have a column of ids: leave out compact-ids and first-id"));
        }
        Some(Nodes { ids: ids @ Some(_), .. }) => Ids::of_rows(ids.take().unwrap_or_default(), &at)?,
        Some(Nodes { count, .. }) if !options.compact_ids => Ids::Plain(Some(*count)),
        _ if options.compact_ids => {
            let ids = edges::distinct(&table, options, scratch)?;
            let known = nodes.as_ref().map(|nodes| nodes.count).or(options.num_nodes);
            if let Some(known) = known.filter(|&known| known != ids.len()) {
                return Err(at.error(format!(
                    "the edges name {} different ids, but there are {known} nodes; compact-ids needs every \
                     node to have an edge, or give the nodes a column of ids",
                    ids.len()
                )));
            }
            Ids::Known(ids)
        }
        _ => Ids::Plain(options.num_nodes),
    };
    let bytes = nodes.as_ref().map_or(0, |nodes| nodes.features.bytes() as u64);
    let (edges, num_nodes) = edges::read(&table, &ids, bytes, options, scratch, &mut report)?;
    let name = src.file_name().unwrap_or_default().to_string_lossy();
    let name = if src.is_dir() { &name } else { name.split('.').next().unwrap_or_default() }.to_string();
    let nodes = match nodes {
        Some(nodes) => nodes,
        None => Nodes { labels: labels::unknown(num_nodes)?, ..Nodes::default() },
    };
    let Nodes { features, labels, splits, .. } = nodes;
    Ok(Raw { name, num_nodes, edges, features, labels, splits, report, ..Raw::default() })
}

/// Files of the table `stem` in `dir`.
fn find(dir: &Path, stem: &str) -> Result<Vec<PathBuf>> {
    let sub = dir.join(stem);
    let numbered =
        in_order(dir, |name| name == format!("{stem}.parquet") || name.starts_with(&format!("{stem}-")))?;
    match (sub.is_dir(), numbered.is_empty()) {
        (true, false) => Err(Error::format(
            dir,
            "directory",
            format!("both '{stem}' and '{}' exist; move one away", numbered[0].display()),
        )),
        (true, true) => in_order(&sub, |_| true),
        (false, _) => Ok(numbered),
    }
}

/// Parquet files of a directory with matching names, in name order.
fn in_order(dir: &Path, fits: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(|e| Error::io(dir, "look into", e))?;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| Error::io(dir, "look into", e))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let hidden = name.starts_with(['.', '_']); // written by Spark beside its parts
        if name.ends_with(".parquet") && !hidden && fits(&name) {
            files.push(entry.path());
        }
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
pub(super) mod tests;
