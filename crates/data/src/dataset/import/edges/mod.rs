//! Import of an edge list: one edge `from to` per line, with features, labels and a split as text
//! or `.npy`. Of further columns only the weight is read, if the list or the option `weights` names
//! its column (see [`weights`]).
//!
//! `SRC` is the edge file, or a directory that holds, each as `.csv`, `.tsv`, `.txt` (also `.gz`)
//! or `.npy`: `edges` or `edge_list` (with an array optionally its weights, `edge_weight.npy`);
//! `features` (a row per node); `labels` (a column of classes, or columns of zeros and ones); and
//! the split as `split.json` / `splits.json` (`{"train": [..], "valid": [..], "test": [..]}`, or a
//! list of those) or as `train`, `valid` (or `val`) and `test` (an id per line; as `.npy` also a
//! mask). Options name other files.
//!
//! A missing label is an empty line (see [`text`]), `nan` or -1 in a single column, or a row of
//! only those in several columns. A node without a line in `label_pairs` has no class, which is a
//! known label.
//!
//! Rows belong to nodes in the order of their ids: 0, 1, 2, ..., or with `compact_ids` the ids of
//! the edges, ascending. With `first_id` ids begin at another number, such as 1, in all files.
//!
//! A file `nodes` (an id per row) or `meta.json` (see [`meta`]) determines the number of nodes, and
//! `label_pairs` or `group-edges` (a line `node,class` for each class of a node) replaces labels.
//!
//! The edges may have other [`Flavour`]s: SNAP, METIS, WebGraph's ASCII format, or GNNLab's
//! directory, which contains everything.

mod chunks;
mod columns;
pub(crate) mod ends;
mod files;
mod first_id;
mod flavour;
mod ids;
mod list;
pub(in super::super) mod meta;
mod nodes;
mod pairs;
mod parts;
pub(crate) mod text;
pub(crate) mod unpack;
pub(crate) mod weights;

use std::path::{Path, PathBuf};

use columns::{read_features, read_labels};
use files::{Files, same_file};
pub use flavour::Flavour;
use flavour::{gnnlab, metis, snap, webgraph};
use graphmill_core::{Features, Result, location::Location};
use ids::Ids;
use meta::Meta;
use weights::Weights;

use super::{ImportOptions, ImportReport, Raw, claims, labels};
use crate::{
    dataset::Normalization,
    external::{Edges, Scratch},
};

/// Reads the file or directory `src`.
pub(super) fn read(src: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    if options.flavour.is_gnnlab(src) {
        return gnnlab::read(src, options, scratch);
    }
    let files = Files::find(src, options)?;
    let flavour = options.flavour.of_file(&files.edges)?;
    let features = files.features.as_deref().map(|path| read_features(path, scratch)).transpose()?;
    let labels = files.labels.as_deref().map(read_labels).transpose()?;
    let nodes = files.nodes.as_deref().map(|path| nodes::count(path, options)).transpose()?.flatten();
    let meta = files.meta.as_deref().map(Meta::read).transpose()?.unwrap_or_default();
    // The normalization describes the features in the directory.
    let normalization = if options.features.is_none() { meta.normalization()? } else { None };
    let mut report = ImportReport::default();
    report_unread(src, options, &files, nodes, normalization.as_ref(), &mut report)?;
    let header = if flavour == Flavour::Snap { snap::header(&files.edges)? } else { None };

    let mut known = NodeCount::default();
    let claims = [
        (options.num_nodes, "the option num-nodes".to_string()),
        (features.as_ref().map(|(_, rows)| *rows), path_of(&files.features)),
        (labels.as_ref().map(|(_, rows)| *rows), path_of(&files.labels)),
        (nodes, path_of(&files.nodes)),
        (meta.nodes, path_of(&files.meta)),
        (header.map(|header| header.nodes), format!("the header of {}", files.edges.display())),
    ];
    for (count, by) in claims {
        let Some(count) = count else { continue };
        known.agree(count, by)?;
    }

    let (edges, ids) = match flavour {
        Flavour::Metis | Flavour::WebGraph => {
            read_lists_of_neighbors(flavour, &files.edges, &mut known, options, scratch, &mut report)?
        }
        _ => {
            let bytes = features.as_ref().map_or(0, |(features, _)| features.bytes() as u64);
            let (edges, ids) =
                list::read(&files, known.count(), header, bytes, options, scratch, &mut report)?;
            if edges.is_empty() && meta.edges != Some(0) {
                return Err(Location::new(&files.edges, "ids").error("the file holds no edges"));
            }
            if let Some(header) = header {
                header.check(edges.len(), &files.edges)?;
            }
            (edges, ids)
        }
    };
    meta.check_edges(edges.len(), &files.edges)?;
    let num_nodes = ids.len();
    let is_claimed = features.is_some() || labels.is_some() || nodes.is_some() || options.num_nodes.is_some();
    if !is_claimed && !matches!(flavour, Flavour::Metis | Flavour::WebGraph) {
        claims::nodes(num_nodes, edges.len(), &Location::new(&files.edges, "ids"))?;
    }
    let splits = parts::read(&files, &ids, options.first_id)?;
    let labels = match (labels, &files.pairs) {
        (Some((labels, _)), _) => labels,
        (None, Some(path)) => pairs::read(path, &ids, options.first_id, &mut report)?,
        (None, None) => labels::unknown(num_nodes)?,
    };
    let labels = meta.with_classes(labels)?;
    let features = features.map_or_else(Features::default, |(features, _)| features);
    let name = meta.name.unwrap_or_else(|| name_of(src));
    let graphs = meta.graphs.unwrap_or_default();
    let metric = meta.metric;
    let raw = Raw { name, num_nodes, edges, report, ..Raw::default() };
    Ok(Raw { features, normalization, labels, splits, graphs, metric, ..raw })
}

/// Reports unread files and columns beside the edges.
fn report_unread(
    src: &Path,
    options: &ImportOptions,
    files: &Files,
    nodes: Option<usize>,
    normalization: Option<&Normalization>,
    report: &mut ImportReport,
) -> Result<()> {
    match (&files.nodes, nodes) {
        (Some(path), None) => report.ignore(path.file_name().unwrap_or_default().to_string_lossy()),
        (Some(path), _) => {
            report.ignore_columns("nodes", weights::unread_columns(path, 1, &Weights::None)?);
        }
        (None, _) => {}
    }
    if !src.is_dir() {
        return Ok(());
    }
    let statistics = matches!(normalization, Some(Normalization::Standard { .. }));
    let read = files.read(options);
    report.ignore_unread(src, |name| {
        let is_read = read.iter().any(|path| same_file(path, &src.join(name)));
        is_read || (statistics && [meta::MEAN, meta::DEVIATION].contains(&name))
    })
}

/// Reads the edges of a METIS or WebGraph file, which also states the number of nodes.
fn read_lists_of_neighbors(
    flavour: Flavour,
    path: &Path,
    known: &mut NodeCount,
    options: &ImportOptions,
    scratch: &Scratch,
    report: &mut ImportReport,
) -> Result<(Edges, Ids)> {
    if options.compact_ids {
        let message =
            format!("compact-ids: neighbour lists in {flavour} files have no ids; leave out compact-ids");
        return Err(Location::new(path, "ids").error(message));
    }
    let (edges, nodes) = match flavour {
        Flavour::Metis => metis::read(path, options, scratch, report)?,
        _ => webgraph::read(path, options, scratch)?,
    };
    known.agree(nodes, path.display().to_string())?;
    Ok((edges, Ids::Plain(nodes)))
}

/// Number of nodes, on which all files and options that state it must agree.
#[derive(Default)]
struct NodeCount(Option<(usize, String)>);

impl NodeCount {
    /// Records the number of nodes stated by `by`.
    ///
    /// # Errors
    /// Another source states a different number.
    fn agree(&mut self, count: usize, by: String) -> Result<()> {
        if let Some((other, first)) = &self.0
            && *other != count
        {
            let message = format!("{count} nodes, but {first} has {other}");
            return Err(Location::new(Path::new(&by), "rows").error(message));
        }
        self.0 = Some((count, by));
        Ok(())
    }

    fn count(&self) -> Option<usize> {
        self.0.as_ref().map(|(count, _)| *count)
    }
}

/// Name of a dataset by its path: that of the directory, or of the file without endings.
fn name_of(src: &Path) -> String {
    let name = src.file_name().unwrap_or_default().to_string_lossy();
    let name = if src.is_dir() { &name } else { name.split('.').next().unwrap_or_default() };
    name.to_string()
}

fn path_of(path: &Option<PathBuf>) -> String {
    path.as_deref().unwrap_or(Path::new("")).display().to_string()
}

#[cfg(test)]
mod tests;
