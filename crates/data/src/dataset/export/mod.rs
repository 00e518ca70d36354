//! Exporters: from a [`Dataset`] back to the field's own formats, so that what was prepared here can be used elsewhere.
//!
//! Every exporter is a function in a file of its own that writes to a file or directory which appears whole or not at
//! all. Data goes to disk in pieces: a dataset that is mapped stays so. To add a format, copy `npz.rs` and add its row to
//! [`TABLE`].
//!
//! What an importer reads back is the dataset that was exported, but for what [`export`] says stays behind. Normalized
//! features are written as they are stored, with the statistics, so that they come back with their scale.

mod edges;
mod lines;
mod npz;
mod ordered;
mod rows;

use std::{fs, path::Path};

use graphmill_core::{
    Error, Result, memory,
    progress::Quiet,
    table::{self, Entry},
};

use super::{Dataset, Normalization};
use crate::{atomic, external::Scratch};

/// Writes a dataset in one format and says what could not be written. The target was checked.
pub type Exporter = fn(&Dataset, &Path, &ExportOptions) -> Result<Vec<String>>;

/// The formats, in the order in which help lists them.
pub const TABLE: &[Entry<Exporter>] = &[
    Entry {
        name: "npz",
        summary: "one .npz file with sparse adjacency and features, labels and masks, as PyG's read_npz takes it",
        source: "Shchur et al., Pitfalls of graph neural network evaluation, 2018; torch_geometric/io/npz.py",
        options: &[],
        make: npz::write,
    },
    Entry {
        name: "edges",
        summary: "a directory of edges.txt, features, labels, split.json and meta.json; or, where the name ends in .txt, .tsv or .csv (also .gz), the list of edges alone",
        source: "SNAP edge lists; what 'graphmill import edges' reads",
        options: &[],
        make: edges::write,
    },
];

/// The options of [`export`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// Replace an earlier export.
    pub replace: bool,
    /// `edges` only: write each edge of a symmetric graph once, from the smaller id to the larger.
    pub undirected_once: bool,
    /// Compress: `npz` members by deflate, the list of edges by gzip (which a name ending in `.gz` also asks for).
    pub compress: bool,
}

impl ExportOptions {
    /// Refuses options that do not fit `format`. Exporting asks this too.
    ///
    /// # Errors
    /// The first such option, or an unknown format.
    pub fn check(&self, format: &str) -> Result<()> {
        table::find("format", TABLE, format)?;
        if self.undirected_once && format != "edges" {
            return Err(Error::invalid(format!(
                "the option 'undirected-once' belongs to the format 'edges'; '{format}' stores every direction"
            )));
        }
        Ok(())
    }
}

/// Exports `dataset` to `dst` in the format called `format`. Returns what the format cannot hold, a sentence each.
///
/// # Errors
/// An unknown format, an option that does not fit it, a dataset that does not [`validate`](Dataset::validate), a target
/// that may not be replaced, or writing fails; then `dst` is as it was.
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
    // of a list of edges the graph is enough, and its features may be far larger
    if format != "edges" || !edges::is_list(dst) {
        dataset.validate()?;
    }
    (entry.make)(dataset, dst, options)
}

/// Says that the features of `dataset` are written as they are stored, where that is not as the source
/// had them; `place` says where the normalization is written.
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
        "features before normalization: features are exported as they are stored, {stored}; {place} records that{restored}, \
         and 'graphmill import' reads it back, but other programs must not normalize them again"
    ))
}

/// What the arrays of a normalization's statistics are called (`F` each).
const MEAN: &str = "feature_mean";
const DEVIATION: &str = "feature_deviation";

/// Hands `work` a scratch beside `dst`, which is gone afterwards.
fn with_scratch<R>(dst: &Path, work: impl FnOnce(&Scratch) -> Result<R>) -> Result<R> {
    // What a killed export left is not taken up: it may be of another dataset of the same name.
    let purpose = format!("export {}", std::process::id());
    let memory = memory::available().map_or(1 << 30, |bytes| bytes / 2);
    let scratch = Scratch::open(&atomic::suffixed(dst, ".exporting"), &purpose, memory, Box::new(Quiet))?;
    let done = work(&scratch);
    // After an error the first one is the one to tell.
    let removed = scratch.remove();
    let done = done?;
    removed?;
    Ok(done)
}

/// Whether `dst` may be written. Exporting asks this too; asking before a dataset is opened saves the wait.
///
/// # Errors
/// Something is there and `replace` is not set, or it is no earlier export.
pub fn check_target(format: &str, dst: &Path, replace: bool) -> Result<()> {
    let is_file = format == "npz" || edges::is_list(dst);
    let refuse = |message: &str| Err(Error::format(dst, "target", message));
    let parent = dst.parent().filter(|parent| !parent.as_os_str().is_empty());
    if is_file && parent.is_some_and(|parent| !parent.is_dir()) {
        return refuse("the directory it should be in is not there; make it first");
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
            return refuse("it is already there; replace it with --force, or choose another name");
        }
        (true, false) => return Ok(()),
        (false, true) => {}
    }
    let entries = fs::read_dir(dst).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let names: Vec<_> = entries.map_err(|e| Error::io(dst, "look into", e))?;
    let ours = |name: &str| edges::FILES.contains(&name);
    match names.iter().map(|entry| entry.file_name()).find(|name| !name.to_str().is_some_and(ours)) {
        Some(name) => refuse(&format!("it holds '{}'; choose another directory", name.to_string_lossy())),
        None if names.is_empty() || replace => Ok(()),
        None => refuse("it already holds an export; replace it with --force, or choose another directory"),
    }
}
