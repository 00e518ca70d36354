//! Report of merged, dropped, added and ignored data of an import.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use graphmill_core::{Error, Graph, Result};
use serde::Serialize;

use super::NormalizationReport;
use crate::external::Edges;

/// Counts of source rows that an import did not store unchanged.
///
/// The counts depend only on the source and the options, not on memory, threads or interruptions.
/// Those of edges add up: `source_edges + reverse_edges_added - self_loops_removed -
/// duplicate_edges_merged - duplicate_edges_summed - edges_dropped` is the number of edges of the
/// dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Number of edges in the source.
    pub source_edges: u64,
    /// Reverse edges added to make the graph undirected.
    pub reverse_edges_added: u64,
    /// Self-loops removed.
    pub self_loops_removed: u64,
    /// Self-loops kept, counted before duplicates were merged.
    pub self_loops_kept: u64,
    /// Unweighted edges merged into another edge between the same nodes, reverse edges included.
    pub duplicate_edges_merged: u64,
    /// Weighted edges whose weight was added to another edge between the same nodes, reverse edges
    /// included.
    pub duplicate_edges_summed: u64,
    /// Nodes dropped: outside the largest component, or without a row.
    pub nodes_dropped: u64,
    /// Edges dropped with their nodes.
    pub edges_dropped: u64,
    /// Unlabelled nodes of the dataset.
    pub missing_labels: u64,
    /// Normalization of the features, if any.
    pub normalization: Option<NormalizationReport>,
    /// Unread columns, as `table.column`; a column without a name has its number, from 1.
    pub ignored_columns: Vec<String>,
    /// Unread files, arrays, variables and lists.
    pub ignored_parts: Vec<String>,
    /// Counts specific to a format, by their description.
    pub other: BTreeMap<String, u64>,
}

impl ImportReport {
    /// Records the effect of building `graph` from `edges`; called before a component is dropped.
    pub(super) fn count_edges(&mut self, edges: EdgeCounts, graph: &Graph) {
        let EdgeCounts { pushed, self_loops, dropped, undirected, drop_self_loops, weighted } = edges;
        self.source_edges = pushed.saturating_add(dropped);
        self.edges_dropped += dropped;
        if undirected {
            self.reverse_edges_added = pushed.saturating_sub(self_loops);
        }
        let removed = if drop_self_loops { self_loops } else { 0 };
        (self.self_loops_removed, self.self_loops_kept) = (removed, self_loops - removed);
        let all = pushed.saturating_add(self.reverse_edges_added).saturating_sub(removed);
        let duplicates = all.saturating_sub(graph.num_edges() as u64);
        if weighted {
            self.duplicate_edges_summed = duplicates;
        } else {
            self.duplicate_edges_merged = duplicates;
        }
    }

    /// Adds to a count specific to a format.
    pub(super) fn count(&mut self, what: &str, amount: u64) {
        if amount > 0 {
            *self.other.entry(what.into()).or_default() += amount;
        }
    }

    /// Adds unread columns of `table`.
    pub(super) fn ignore_columns<S: fmt::Display>(
        &mut self,
        table: &str,
        names: impl IntoIterator<Item = S>,
    ) {
        for name in names {
            let name = format!("{table}.{name}");
            if !self.ignored_columns.contains(&name) {
                self.ignored_columns.push(name);
            }
        }
    }

    /// Adds the unread files and directories in `dir`, except hidden ones, which other systems
    /// create.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn ignore_unread(&mut self, dir: &Path, is_read: impl Fn(&str) -> bool) -> Result<()> {
        let names = names_in(dir)?;
        let before = self.ignored_parts.len();
        for name in names.into_iter().filter(|name| !is_read(name)) {
            if !self.ignored_parts[..before].contains(&name) {
                self.ignored_parts.push(name);
            }
        }
        Ok(())
    }

    /// Adds an unread part of the source.
    pub(super) fn ignore(&mut self, part: impl Into<String>) {
        let part = part.into();
        if !self.ignored_parts.contains(&part) {
            self.ignored_parts.push(part);
        }
    }
}

/// Names of the files and directories in `dir` except hidden ones, ascending.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn names_in(dir: &Path) -> Result<Vec<String>> {
    let failed = |e| Error::io(dir, "look into", e);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Maximum number of names printed before the rest is counted.
const MAX_NAMES: usize = 20;

/// Prints one line for each nonzero count; nothing if the dataset equals the source.
impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            ("reverse edges added", self.reverse_edges_added, ""),
            ("self-loops removed", self.self_loops_removed, ""),
            ("self-loops kept", self.self_loops_kept, " (no-self-loops removes them)"),
            ("duplicate edges merged", self.duplicate_edges_merged, " (keep-duplicates keeps them)"),
            (
                "duplicate edges summed",
                self.duplicate_edges_summed,
                " (keep-duplicates keeps them, each with its weight)",
            ),
            ("nodes dropped", self.nodes_dropped, ""),
            ("edges dropped", self.edges_dropped, ""),
        ];
        if counts.iter().any(|(_, count, _)| *count > 0) {
            writeln!(f, "edges of the source: {}", self.source_edges)?;
        }
        for (what, count, hint) in counts.into_iter().filter(|(_, count, _)| *count > 0) {
            writeln!(f, "{what}: {count}{hint}")?;
        }
        if self.missing_labels > 0 {
            writeln!(f, "nodes without a label: {}", self.missing_labels)?;
        }
        if let Some(normalization) = &self.normalization {
            writeln!(f, "{}", normalization.describe())?;
        }
        for (what, count) in &self.other {
            writeln!(f, "{what}: {count}")?;
        }
        for (what, names) in
            [("columns not read", &self.ignored_columns), ("parts not read", &self.ignored_parts)]
        {
            if !names.is_empty() {
                let listed = &names[..names.len().min(MAX_NAMES)];
                let more = match names.len() - listed.len() {
                    0 => String::new(),
                    count => format!(" and {count} more"),
                };
                writeln!(f, "{what}: {}{more}", listed.join(", "))?;
            }
        }
        Ok(())
    }
}

/// Counts of a source's edges before the graph is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct EdgeCounts {
    pushed: u64,
    self_loops: u64,
    dropped: u64,
    undirected: bool,
    drop_self_loops: bool,
    weighted: bool,
}

impl EdgeCounts {
    /// Counts of all edges of the source.
    pub(super) fn of(edges: &Edges) -> Self {
        let options = edges.options();
        Self {
            pushed: edges.len(),
            self_loops: edges.self_loops().min(edges.len()),
            dropped: edges.dropped(),
            undirected: options.undirected,
            drop_self_loops: options.drop_self_loops,
            weighted: edges.is_weighted(),
        }
    }
}
