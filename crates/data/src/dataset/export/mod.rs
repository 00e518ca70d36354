//! Exporters: from a [`Dataset`] to the field's own formats, for use in other programs.
//!
//! Each exporter is a function in a separate file that writes to a file or directory atomically.
//! Data is written in chunks: a mapped dataset stays mapped. To add a format, copy `npz.rs` and add
//! its row to [`TABLE`].
//!
//! An importer reads back the exported dataset, except for the parts that [`export`] lists as
//! omitted. Normalized features are written as stored, together with their statistics, so that an
//! import restores their scale.

mod edges;
mod lines;
mod npz;
mod npz_typed;
mod ordered;
mod rows;
mod tables;

use std::{fs, path::Path};

use graphmill_core::{
    Error, Result, memory,
    progress::Quiet,
    table::{self, Entry},
};

use super::{Dataset, Normalization, native};
use crate::{
    atomic,
    external::{Scratch, remove_left},
    typed::TypedDataset,
};

/// Function that writes a dataset in one format and returns notes on omitted parts. The target has
/// been checked.
#[derive(Clone, Copy, Debug)]
pub enum Exporter {
    /// Writes datasets of one node type and one edge type.
    OneType(fn(&Dataset, &Path, &ExportOptions) -> Result<Vec<String>>),
    /// Writes datasets of any number of types.
    Typed(fn(&TypedDataset, &Path, &ExportOptions) -> Result<Vec<String>>),
    /// Writes datasets of one type in a form of the field, and others in another.
    Both(
        fn(&Dataset, &Path, &ExportOptions) -> Result<Vec<String>>,
        fn(&TypedDataset, &Path, &ExportOptions) -> Result<Vec<String>>,
    ),
}

impl Exporter {
    /// Returns true if the format holds several types.
    pub fn is_typed(&self) -> bool {
        !matches!(self, Self::OneType(_))
    }
}

/// Formats, in the order of the help text.
pub const TABLE: &[Entry<Exporter>] = &[
    Entry {
        name: "npz",
        summary: "one .npz file with sparse adjacency and features, labels and masks, as PyG's read_npz \
            expects; several types: the arrays of a dataset directory by their paths",
        source: "Shchur et al., Pitfalls of graph neural network evaluation, 2018; torch_geometric/io/npz.py",
        options: &[],
        make: Exporter::Both(npz::write, npz_typed::write),
    },
    Entry {
        name: "edges",
        summary: "a directory of edges.txt, features, labels, split.json and meta.json; a name ending in \
            .txt, .tsv or .csv (also .gz) selects the edge list alone",
        source: "SNAP edge lists, as read by 'graphmill import edges'",
        options: &[],
        make: Exporter::OneType(edges::write),
    },
    Entry {
        name: "csv",
        summary: "a directory of tables: a CSV file for each node type, edge type and task, with keys, \
            features, times, targets and splits, and schema.json",
        source: "RFC 4180",
        options: &[],
        make: Exporter::Typed(tables::write),
    },
    Entry {
        name: "graphmill",
        summary: "a dataset directory of format 2, which holds several types and tasks",
        source: "book/src/reference/dataset-format.md",
        options: &[],
        make: Exporter::Typed(write_typed),
    },
];

/// Writes a dataset directory of format 2.
fn write_typed(data: &TypedDataset, dst: &Path, options: &ExportOptions) -> Result<Vec<String>> {
    if options.replace {
        data.save_replacing(dst)?
    } else {
        data.save(dst)?
    }
    Ok(Vec::new())
}

/// Options of [`export`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// True to replace an earlier export.
    pub replace: bool,
    /// `edges` only: true to write each edge of a symmetric graph once, from the smaller id to the
    /// larger.
    pub undirected_once: bool,
    /// True to compress: `npz` members with deflate, the edge list with gzip (which a name ending
    /// in `.gz` also selects).
    pub compress: bool,
}

impl ExportOptions {
    /// Checks that the options fit `format`. Exporting repeats this check.
    ///
    /// # Errors
    /// The first invalid option, or an unknown format.
    pub fn check(&self, format: &str) -> Result<()> {
        table::find("format", TABLE, format)?;
        if self.undirected_once && format != "edges" {
            return Err(Error::invalid(format!(
                "the option 'undirected-once' belongs to the format 'edges'; '{format}' stores every \
                 direction"
            )));
        }
        Ok(())
    }
}

/// Exports `dataset` to `dst` in the format called `format`. Returns one sentence for each part
/// that the format cannot hold.
///
/// # Errors
/// The format is unknown, an option does not fit it, the dataset does not
/// [`validate`](Dataset::validate), the target may not be replaced, or writing fails; then `dst` is
/// unchanged.
pub fn export(
    format: &str,
    dataset: &Dataset,
    dst: impl AsRef<Path>,
    options: &ExportOptions,
) -> Result<Vec<String>> {
    let dst = dst.as_ref();
    let entry = table::find("format", TABLE, format)?;
    options.check(format)?;
    check_target(format, dst, options.replace)?;
    // An edge list needs only the graph, and the features may be far larger.
    if format != "edges" || !edges::is_list(dst) {
        dataset.validate()?;
    }
    match entry.make {
        Exporter::OneType(write) | Exporter::Both(write, _) => write(dataset, dst, options),
        Exporter::Typed(write) => write(&TypedDataset::from_dataset(dataset), dst, options),
    }
}

/// Exports a typed dataset as [`export`] does. A format of one type takes a dataset of one type.
///
/// # Errors
/// As for [`export`]; the format only holds one type, and the dataset has several or other tasks.
pub fn export_typed(
    format: &str,
    data: &TypedDataset,
    dst: impl AsRef<Path>,
    options: &ExportOptions,
) -> Result<Vec<String>> {
    let dst = dst.as_ref();
    let entry = table::find("format", TABLE, format)?;
    let write = match entry.make {
        Exporter::OneType(_) => return export(format, &data.to_dataset()?, dst, options),
        Exporter::Typed(write) => write,
        Exporter::Both(_, write) => {
            let has_more = data.edges.iter().any(|edges| edges.time.is_some() || edges.features.is_some());
            if !has_more && data.is_one_type() {
                return export(format, &data.to_dataset()?, dst, options);
            }
            write
        }
    };
    options.check(format)?;
    check_target(format, dst, options.replace)?;
    data.validate()?;
    write(data, dst, options)
}

/// Error of several columns of classes, which the format called `format` does not hold.
fn several_columns(format: &str) -> Error {
    Error::invalid(format!(
        "format '{format}': nodes have a class in each of several columns, and it holds one class or a set \
         of classes; use csv or graphmill"
    ))
}

/// Note that the features of `dataset` are exported normalized, if they are; `place` names the
/// record of the normalization.
fn normalized(dataset: &Dataset, place: &str) -> Option<String> {
    let how = dataset.normalization.as_ref()?;
    let (stored, restored) = match how {
        Normalization::Rows => ("every row divided by its sum (--normalize rows)", String::new()),
        Normalization::Standard { mean: Some(_), .. } => (
            "standardized (--normalize standard)",
            format!(", with the mean and deviation of every column in {MEAN} and {DEVIATION}"),
        ),
        Normalization::Standard { mean: None, .. } => (
            "scaled without centring (--normalize standard)",
            format!(", with the deviation of every column in {DEVIATION}"),
        ),
    };
    Some(format!(
        "features before normalization: features are exported as they are stored, {stored}; {place} records \
         that{restored}, \
         and 'graphmill import' reads it back, but other programs must not normalize them again"
    ))
}

/// Array names of normalization statistics (`F` each).
const MEAN: &str = "feature_mean";
const DEVIATION: &str = "feature_deviation";

/// Runs `work` with a scratch directory beside `dst`, which is removed afterwards.
fn with_scratch<R>(dst: &Path, work: impl FnOnce(&Scratch) -> Result<R>) -> Result<R> {
    // Leftovers of a killed export are not resumed: they may belong to another dataset of the same
    // name.
    let purpose = format!("export {}", std::process::id());
    let memory = memory::available().map_or(1 << 30, |bytes| bytes / 2);
    let scratch = Scratch::open(&atomic::suffixed(dst, ".exporting"), &purpose, memory, Box::new(Quiet))?;
    let done = work(&scratch);
    // After an error the first one is returned.
    let removed = scratch.remove();
    let done = done?;
    removed?;
    Ok(done)
}

/// Checks that `dst` may be written. Exporting repeats this check; a check before a dataset is
/// opened avoids the wait.
///
/// # Errors
/// The path exists and `replace` is not set, or it is not an earlier export.
pub fn check_target(format: &str, dst: &Path, replace: bool) -> Result<()> {
    if format == "graphmill" {
        return native::check_target(dst, replace).map(drop);
    }
    let is_file = format == "npz" || format == "edges" && edges::is_list(dst);
    let refuse = |message: &str| Err(Error::format(dst, "target", message));
    // a process was killed after it had written the target
    let refuse_to_replace = |message: &str| {
        remove_left(&atomic::suffixed(dst, ".exporting"), false);
        refuse(message)
    };
    let parent = dst.parent().filter(|parent| !parent.as_os_str().is_empty());
    if is_file && parent.is_some_and(|parent| !parent.is_dir()) {
        return refuse("its parent directory does not exist; create it first");
    }
    let kind = match fs::metadata(dst) {
        Ok(kind) => kind,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(dst, "look at", e)),
    };
    match (is_file, kind.is_dir()) {
        (true, true) => return refuse("this is a directory; choose another name for the file"),
        (false, false) => return refuse("this is a file; choose another name for the directory"),
        (true, false) if !replace => {
            return refuse_to_replace("it already exists; replace it with --force, or choose another name");
        }
        (true, false) => return Ok(()),
        (false, true) => {}
    }
    let entries = fs::read_dir(dst).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let names: Vec<_> = entries.map_err(|e| Error::io(dst, "look into", e))?;
    let stranger = if format == "csv" {
        tables::stranger(dst).map_err(|e| Error::io(dst, "look into", e))?
    } else {
        let ours = |name: &str| edges::FILES.contains(&name);
        let stranger =
            names.iter().map(|entry| entry.file_name()).find(|name| !name.to_str().is_some_and(ours));
        stranger.map(|name| name.to_string_lossy().into_owned())
    };
    match stranger {
        Some(name) => refuse(&format!("it holds '{name}'; choose another directory")),
        None if names.is_empty() || replace => Ok(()),
        None => refuse_to_replace(
            "it already holds an export; replace it with --force, or choose another directory",
        ),
    }
}
