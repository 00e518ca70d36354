//! Files of an edge-list import: by convention in a directory, and by options.

use std::path::{Path, PathBuf};

use graphmill_core::{Error, Result};

use super::super::{ImportOptions, WeightColumn};

/// Paths of the files.
pub(super) struct Files {
    pub(super) edges: PathBuf,
    /// Array of edge weights.
    pub(super) weights: Option<PathBuf>,
    pub(super) features: Option<PathBuf>,
    pub(super) labels: Option<PathBuf>,
    /// Classes as pairs, if there is no label file.
    pub(super) pairs: Option<PathBuf>,
    pub(super) nodes: Option<PathBuf>,
    pub(super) meta: Option<PathBuf>,
    pub(super) json: Option<PathBuf>,
    pub(super) parts: [Option<PathBuf>; 3],
}

impl Files {
    /// Finds the files by convention in a directory; options take precedence.
    pub(super) fn find(src: &Path, options: &ImportOptions) -> Result<Self> {
        let mut files = Self {
            edges: src.to_path_buf(),
            weights: None,
            features: None,
            labels: None,
            pairs: None,
            nodes: None,
            meta: None,
            json: None,
            parts: [None, None, None],
        };
        let mut names = Vec::new();
        let named = [&options.train, &options.valid, &options.test];
        if src.is_dir() {
            let entries = std::fs::read_dir(src).map_err(|e| Error::io(src, "look into", e))?;
            names.extend(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()));
            // errors name files in the same order on every file system
            names.sort_unstable();
            let one = |stems: &[&str], endings: &[&str]| one_of(src, &names, stems, endings);
            files.edges = one(&["edges", "edge_list"], TABLES)?.ok_or_else(|| {
                let message = "no edges.* or edge_list.* (.csv, .tsv, .txt, .npy, also .gz) in this \
                    directory; name the edge file itself";
                Error::format(src, "directory", message)
            })?;
            files.weights = one(&["edge_weight"], &[".npy"])?;
            // A file replaced by an option is not searched for, so duplicates of it are allowed.
            if options.features.is_none() {
                files.features = one(&["features"], TABLES)?;
            }
            if options.labels.is_none() && options.label_pairs.is_none() {
                files.labels = one(&["labels"], TABLES)?;
                if files.labels.is_none() {
                    files.pairs = one(&["label_pairs", "group-edges"], TABLES)?;
                }
            }
            if options.nodes.is_none() {
                files.nodes = one(&["nodes"], TABLES)?;
            }
            files.meta = one(&["meta"], &[".json"])?;
            if named.iter().all(|path| path.is_none()) {
                files.json = one(&["split", "splits"], &[".json"])?;
                if files.json.is_none() {
                    files.parts =
                        [one(&["train"], TABLES)?, one(&["valid", "val"], TABLES)?, one(&["test"], TABLES)?];
                }
            }
        }
        files.features = options.features.clone().or(files.features);
        files.labels = options.labels.clone().or(files.labels);
        files.pairs = options.label_pairs.clone().or(files.pairs);
        files.nodes = options.nodes.clone().or(files.nodes);
        if named.iter().any(|path| path.is_some()) {
            files.parts = named.map(Clone::clone);
        }
        Ok(files)
    }
}

impl Files {
    /// Paths of all files that are read.
    pub(super) fn read(&self, options: &ImportOptions) -> Vec<PathBuf> {
        let one = [&self.features, &self.labels, &self.pairs, &self.nodes, &self.meta, &self.json];
        let weights = match &options.weights {
            // The weights of a text list are a column.
            _ if !is_npy(&self.edges) => None,
            WeightColumn::Named(file) => Some(PathBuf::from(file)),
            WeightColumn::Auto => self.weights.clone(),
            WeightColumn::None => None,
        };
        let parts = one.into_iter().chain(&self.parts).flatten().cloned();
        parts.chain([self.edges.clone()]).chain(weights).collect()
    }
}

const TABLES: &[&str] = &[".csv", ".tsv", ".txt", ".npy", ".csv.gz", ".tsv.gz", ".txt.gz"];

/// Returns true if the name is one of the stems with one of the endings.
fn is_called(name: &str, stems: &[&str], endings: &[&str]) -> bool {
    stems.iter().any(|stem| name.strip_prefix(stem).is_some_and(|ending| endings.contains(&ending)))
}

/// Finds the one file whose name is one of the stems with one of the endings.
fn one_of(dir: &Path, names: &[String], stems: &[&str], endings: &[&str]) -> Result<Option<PathBuf>> {
    let found: Vec<&String> = names.iter().filter(|name| is_called(name, stems, endings)).collect();
    match found[..] {
        [] => Ok(None),
        [name] => Ok(Some(dir.join(name))),
        [first, second, ..] => Err(Error::format(
            dir,
            "directory",
            format!("both '{first}' and '{second}' exist; select one with an option, or move one away"),
        )),
    }
}

/// Returns `true` if both paths lead to the same file.
pub(super) fn same_file(one: &Path, other: &Path) -> bool {
    one == other
        || std::fs::canonicalize(one)
            .is_ok_and(|one| std::fs::canonicalize(other).is_ok_and(|other| one == other))
}

/// Returns `true` if the file is a NumPy array, by its ending.
pub(super) fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "npy")
}
