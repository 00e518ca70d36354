//! `metadata.yaml`: the description of the dataset. Fields that are not needed are skipped.

use std::{fs::File, io::Read, path::Path};

use graphmill_core::{Error, Result, location::Location};
use serde::Deserialize;

/// Maximum length; real files take some kilobytes. (The parser bounds the expansion of aliases.)
const MAX_LENGTH: u64 = 1 << 22;

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) dataset_name: Option<String>,
    pub(crate) graph: Option<Topology>,
    /// Replaces `graph` in datasets preprocessed by GraphBolt.
    pub(crate) graph_topology: Option<serde::de::IgnoredAny>,
    pub(crate) feature_data: Option<Vec<FeatureFile>>,
    pub(crate) tasks: Option<Vec<Task>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Topology {
    pub(crate) nodes: Vec<NodeType>,
    pub(crate) edges: Vec<EdgeFile>,
    /// Attributes of nodes and edges that belong to the graph, among them weights for sampling.
    pub(crate) feature_data: Option<Vec<FeatureFile>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct NodeType {
    /// Type, in datasets of several types.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) num: usize,
}

#[derive(Debug, Deserialize)]
pub(crate) struct EdgeFile {
    /// Type, in datasets of several types.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) format: String,
    pub(crate) path: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FeatureFile {
    /// Type, in datasets of several types.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) domain: String,
    pub(crate) name: String,
    pub(crate) format: String,
    pub(crate) path: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Task {
    pub(crate) name: Option<String>,
    pub(crate) num_classes: Option<usize>,
    pub(crate) train_set: Option<Vec<Set>>,
    pub(crate) validation_set: Option<Vec<Set>>,
    pub(crate) test_set: Option<Vec<Set>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Set {
    /// Type, in datasets of several types.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) data: Vec<SetFile>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SetFile {
    pub(crate) name: Option<String>,
    pub(crate) format: String,
    pub(crate) path: String,
}

impl Set {
    /// File with one of `names`.
    pub(crate) fn file(&self, names: &[&str]) -> Option<&SetFile> {
        self.data.iter().find(|file| file.name.as_deref().is_some_and(|name| names.contains(&name)))
    }
}

impl Metadata {
    /// Paths of all files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        let graph = self.graph.iter();
        let edges = graph.clone().flat_map(|graph| graph.edges.iter().map(|file| &file.path));
        let tables = graph.flat_map(|graph| graph.feature_data.iter()).chain(&self.feature_data).flatten();
        let tables = tables.map(|file| &file.path);
        let tasks = self.tasks.iter().flatten();
        let sets = tasks.flat_map(|task| [&task.train_set, &task.validation_set, &task.test_set]);
        let files = sets.flatten().flatten();
        let files = files.flat_map(|set| set.data.iter().map(|file| &file.path));
        edges.chain(tables).chain(files).map(String::as_str)
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// The file is missing, too long or not YAML, or a field is missing or of another type.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
        let mut text = String::new();
        file.take(MAX_LENGTH + 1).read_to_string(&mut text).map_err(|e| Error::io(path, "read", e))?;
        if text.len() as u64 > MAX_LENGTH {
            let message = format!("longer than {MAX_LENGTH} bytes: this does not describe a dataset");
            return Err(Location::new(path, "contents").error(message));
        }
        serde_saphyr::from_str(&text).map_err(|error| {
            let place = error
                .location()
                .map_or("contents".into(), |l| format!("line {} column {}", l.line(), l.column()));
            Location::new(path, place).error(error.without_snippet().to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Metadata, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metadata.yaml");
        std::fs::write(&path, text).unwrap();
        Metadata::read(&path).map_err(|e| e.to_string())
    }

    #[test]
    fn errors_contain_the_line() {
        let metadata = read("dataset_name: x\nother: [1, {a: b}]\n").unwrap();
        assert!(metadata.dataset_name.as_deref() == Some("x") && metadata.graph.is_none());
        let error = read("graph:\n  nodes:\n    - num: few\n  edges: []\n").unwrap_err();
        assert!(error.contains("metadata.yaml: line 3 column 12"), "{error}");
        let error = read("graph:\n  nodes: [\n").unwrap_err();
        assert!(error.contains("metadata.yaml: line "), "{error}");
        assert!(read("tasks: [{train_set: [{}]}]").unwrap_err().contains("data"));
        assert!(read("- 1\n").is_err() && read("a: 1\n---\nb: 2\n").is_err());
        assert!(read(&"# x\n".repeat(1 << 21)).unwrap_err().contains("longer than"));
    }

    #[test]
    fn alias_expansion_is_bounded() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_string();
        for i in 1..12 {
            let aliases = vec![format!("*a{}", i - 1); 10].join(", ");
            text += &format!("a{i}: &a{i} [{aliases}]\n");
        }
        assert!(read(&text).is_err(), "10^12 values in a few lines");
        assert!(read(&"[".repeat(100_000)).is_err());
    }
}
