//! Original keys of a dataset's nodes and names of its classes, and lists of keys.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use graphmill_core::{ClassColumn, NodeId};
use graphmill_data::{
    Dataset,
    typed::{self, KEY_SEPARATOR, Keys, TypedDataset, Verify},
};

use super::{
    Selection,
    node_list::{lines, read_nodes},
};
use crate::{Error, Result, build, predictions::Identity};

/// Number of unknown keys that a message lists.
const EXAMPLES: usize = 5;

/// Returns true if a list has a line that is no integer.
fn is_of_words(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    lines(&text).any(|(_, line)| line.parse::<i64>().is_err())
}

/// Keys and names of a dataset.
#[derive(Default)]
pub(crate) struct Names {
    /// Names of the columns of the key.
    pub(crate) key_columns: Vec<String>,
    /// Keys of all nodes.
    pub(crate) keys: Option<Keys>,
    /// Names of the classes, of all columns together if there are several.
    pub(crate) classes: Vec<String>,
    /// Columns of classes that the run learned; empty unless there are several.
    pub(crate) columns: Vec<ClassColumn>,
    /// Type of the nodes, if the dataset has several.
    node_type: Option<String>,
}

impl Names {
    /// Keys of a dataset, with the names of their columns, and names of the classes of
    /// `trained_on`, the directory of the run's dataset.
    pub(super) fn of(data: &Dataset, trained_on: Option<&Path>) -> Result<Self> {
        let typed = open(data.directory.as_deref())?;
        let columns = typed.as_ref().map(key_columns).unwrap_or_default();
        let key_columns = if columns.is_empty() { vec!["key".into()] } else { columns };
        let classes = build::class_names(trained_on)?;
        Ok(Self { key_columns, keys: data.keys.clone(), classes, ..Self::default() })
    }

    /// Keys of the node type number `t` of a dataset of several types, with the names of their
    /// columns.
    pub(crate) fn of_type(data: &TypedDataset, t: usize, classes: Vec<String>) -> Self {
        let columns = key_columns_of(data, &data.nodes[t].name);
        let key_columns = if columns.is_empty() { vec!["key".into()] } else { columns };
        let node_type = (data.nodes.len() > 1).then(|| data.nodes[t].name.clone());
        Self { key_columns, keys: data.nodes[t].keys.clone(), classes, node_type, ..Self::default() }
    }

    /// Nodes of a selection among the `count` nodes of a type of `dataset`.
    ///
    /// # Errors
    /// A list cannot be read, or a node or key is unknown.
    pub(crate) fn select(&self, selection: Selection, count: usize, dataset: &str) -> Result<Vec<NodeId>> {
        Ok(self.find(selection, count, dataset)?.0)
    }

    /// Nodes of a selection as [`Names::select`], and true if they were found by their keys rather
    /// than by ids.
    ///
    /// # Errors
    /// Those of [`Names::select`].
    pub(crate) fn find(
        &self,
        selection: Selection,
        count: usize,
        dataset: &str,
    ) -> Result<(Vec<NodeId>, bool)> {
        let by_key = |nodes| (nodes, true);
        let found = match selection {
            Selection::Nodes(file) => match (read_nodes(file, count), &self.keys) {
                // a list that has no ids has keys, if nodes have some
                (Err(_), Some(_)) if is_of_words(file) => by_key(self.read_list(file, dataset)?),
                // a key with a dot or a slash looks like a file
                (Err(_), Some(keys)) if !file.exists() => {
                    let (key, shown) = (file.to_string_lossy(), file.display());
                    by_key(self.find_keys(keys, [&*key].into_iter(), dataset).map_err(|_| {
                        Error::usage(format!(
                            "--nodes {shown}: there is no such file, and {dataset} has no such key; check \
                             its spelling"
                        ))
                    })?)
                }
                // integers that are not all ids may be keys
                (Err(error), Some(_)) => by_key(self.read_list(file, dataset).map_err(|_| error)?),
                (Ok(nodes), Some(keys)) => {
                    self.refuse_other_keys(file, &nodes, keys, dataset)?;
                    (nodes, false)
                }
                (nodes, _) => (nodes?, false),
            },
            Selection::Keys(file) => by_key(self.read_list(file, dataset)?),
            Selection::List(words) => (self.find_listed(words, count, dataset)?, self.keys.is_some()),
            Selection::KeyList(keys) => match &self.keys {
                Some(known) => by_key(self.find_keys(known, keys.iter().map(String::as_str), dataset)?),
                None => return Err(no_keys(dataset)),
            },
            Selection::All => ((0..count as NodeId).collect(), false),
        };
        Ok(found)
    }

    /// Keys of `nodes`.
    pub(crate) fn identity(self, nodes: &[NodeId]) -> Identity {
        let Self { key_columns, keys, classes, columns, .. } = self;
        let (nodes, ids) = (nodes.to_vec(), nodes.to_vec());
        Identity { key_columns, keys, nodes, classes, columns, ids, of_candidates: None, events: None }
    }

    /// Nodes of the keys in a file: one key per line, or a CSV table with the columns of the key.
    ///
    /// # Errors
    /// The dataset has no keys, the file cannot be read, or keys are unknown.
    fn read_list(&self, file: &Path, dataset: &str) -> Result<Vec<NodeId>> {
        let Some(keys) = &self.keys else { return Err(no_keys(dataset)) };
        let wanted = self.read_keys(file)?;
        let found = find(keys, &wanted, dataset);
        found.map_err(|(line, why)| Error::format(file, format!("line {line}"), self.of_their_type(why)))
    }

    /// Checks that the integers of a text, which lists ids, are no keys of other nodes.
    ///
    /// # Errors
    /// An integer of a text that lists the ids of `nodes` is the key of another node, so that it is
    /// open which one is meant.
    fn refuse_other_keys(&self, file: &Path, nodes: &[NodeId], keys: &Keys, dataset: &str) -> Result<()> {
        // an array has ids, and a key of several columns is no integer
        let Ok(text) = std::fs::read_to_string(file) else { return Ok(()) };
        if self.key_columns.len() > 1 {
            return Ok(());
        }
        let by_key = nodes_by_key(keys, lines(&text).map(|(_, line)| line));
        let mut listed = lines(&text).zip(nodes);
        let other = listed.find(|((_, line), node)| by_key[line].iter().any(|of_key| of_key != *node));
        let Some(((line, id), _)) = other else { return Ok(()) };
        Err(Error::format(
            file,
            format!("line {line}"),
            format!(
                "{id} is the id of one node of {dataset} and the key of another; pass keys as --keys {0}, \
                 and ids as a .npy of integers",
                file.display()
            ),
        ))
    }

    /// Nodes of the keys in `words`, separated by commas, or of ids below `count` if the dataset
    /// has no keys. The parts of a key of several columns are joined by `|`.
    ///
    /// # Errors
    /// A key or id is unknown.
    fn find_listed(&self, words: &str, count: usize, dataset: &str) -> Result<Vec<NodeId>> {
        let words = words.split(',').map(str::trim).filter(|word| !word.is_empty());
        let Some(keys) = &self.keys else {
            let id = |word: &str| match word.parse::<NodeId>() {
                Ok(id) if (id as usize) < count => Ok(id),
                _ => Err(Error::usage(format!(
                    "--nodes: '{word}' is neither a file nor an id below {count}, and {dataset} has no keys; \
                     pass ids such as 0,7, or a file of ids"
                ))),
            };
            return words.map(id).collect();
        };
        self.find_keys(keys, words, dataset)
    }

    /// Nodes of keys. The parts of a key of several columns are joined by `|`.
    fn find_keys<'w>(
        &self,
        keys: &Keys,
        words: impl Iterator<Item = &'w str>,
        dataset: &str,
    ) -> Result<Vec<NodeId>> {
        let several = self.key_columns.len() > 1;
        let key =
            |word: &str| if several { word.replace('|', &KEY_SEPARATOR.to_string()) } else { word.into() };
        let wanted: Vec<(u64, String)> = words.enumerate().map(|(i, word)| (i as u64, key(word))).collect();
        let found = find(keys, &wanted, dataset);
        found.map_err(|(_, why)| Error::usage(format!("--nodes: {}", self.of_their_type(why))))
    }

    /// A message about unknown keys, with the parts of a key or the type of the nodes.
    fn of_their_type(&self, message: String) -> String {
        match &self.node_type {
            _ if self.key_columns.len() > 1 => {
                format!("{message}, or write keys as {}", self.key_columns.join("|"))
            }
            Some(name) => format!("{message}, or select nodes of type '{name}'"),
            None => message,
        }
    }

    /// Lines and keys of a list.
    fn read_keys(&self, file: &Path) -> Result<Vec<(u64, String)>> {
        let path: PathBuf = file.to_path_buf();
        let wrong = |e: csv::Error| match e.into_kind() {
            csv::ErrorKind::Io(e) => Error::io(&path, "read", e),
            other => Error::format(&path, "text", format!("{other:?}; write one key per line")),
        };
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_path(file).map_err(wrong)?;
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(wrong)?;
            let line = record.position().map_or(0, csv::Position::line);
            rows.push((line, record.iter().map(|field| field.trim().to_string()).collect::<Vec<_>>()));
        }
        let header = rows.first().map(|(_, fields)| fields.clone()).unwrap_or_default();
        let places: Option<Vec<usize>> =
            self.key_columns.iter().map(|name| header.iter().position(|field| field == name)).collect();
        let count = self.key_columns.len();
        let (places, first) = match places {
            Some(places) => (places, 1),
            None if header.len() == count => ((0..count).collect(), 0),
            None => {
                let columns = self.key_columns.join(", ");
                let message = format!("the columns of the key ({columns}) are expected, by name or alone");
                return Err(Error::format(file, "line 1", message));
            }
        };
        let mut keys = Vec::new();
        for (line, fields) in &rows[first.min(rows.len())..] {
            let parts: Option<Vec<&str>> =
                places.iter().map(|&c| fields.get(c).map(String::as_str)).collect();
            let parts = parts.ok_or_else(|| {
                let message = format!("{} fields, but the first line has {}", fields.len(), header.len());
                Error::format(file, format!("line {line}"), message)
            })?;
            keys.push((*line, parts.join(&KEY_SEPARATOR.to_string())));
        }
        Ok(keys)
    }
}

/// Error of a dataset without keys.
fn no_keys(dataset: &str) -> Error {
    Error::dataset(dataset, "it has no keys, which 'graphmill import tables' stores; pass --nodes with ids")
}

/// Nodes of the `wanted` keys with their lines, in their order, a key that is wanted twice twice. A
/// key of edges may have several rows, all of which are found, in ascending order, where it is
/// wanted first. The error has the first line of an unknown key and a message.
fn find(keys: &Keys, wanted: &[(u64, String)], dataset: &str) -> Result<Vec<NodeId>, (u64, String)> {
    let mut ids = nodes_by_key(keys, wanted.iter().map(|(_, key)| &key[..]));
    let unknown: Vec<&(u64, String)> = wanted.iter().filter(|(_, key)| ids[&key[..]].is_empty()).collect();
    if let Some((line, _)) = unknown.first() {
        let shown =
            unknown.iter().take(EXAMPLES).map(|(_, key)| format!("'{}'", key.replace(KEY_SEPARATOR, ", ")));
        let message = format!(
            "{} of {} keys are not in {dataset}: {}; remove them",
            unknown.len(),
            wanted.len(),
            shown.collect::<Vec<_>>().join(", ")
        );
        return Err((*line, message));
    }
    let mut nodes = Vec::new();
    for (_, key) in wanted {
        let Some(of_key) = ids.get_mut(&key[..]) else { continue };
        nodes.extend_from_slice(of_key);
        if of_key.len() > 1 {
            of_key.clear();
        }
    }
    Ok(nodes)
}

/// Nodes of each wanted key, in ascending order; none of an unknown one.
fn nodes_by_key<'w>(keys: &Keys, wanted: impl Iterator<Item = &'w str>) -> HashMap<&'w str, Vec<NodeId>> {
    let mut nodes: HashMap<&str, Vec<NodeId>> = wanted.map(|key| (key, Vec::new())).collect();
    for v in 0..keys.len() {
        if let Some(nodes) = nodes.get_mut(&*keys.get(v).to_string()) {
            nodes.push(v as NodeId);
        }
    }
    nodes
}

/// Opens a directory of format 2; `None` for another directory.
fn open(dir: Option<&Path>) -> Result<Option<TypedDataset>> {
    let dir = dir.filter(|dir| dir.join("nodes").is_dir());
    Ok(dir.map(|dir| typed::open(dir, Verify::Once)).transpose()?)
}

/// Names of the columns of the key, if the dataset was imported from tables of one node type.
fn key_columns(data: &TypedDataset) -> Vec<String> {
    let [nodes] = &data.nodes[..] else { return Vec::new() };
    key_columns_of(data, &nodes.name)
}

/// Names of the columns of the key of a node type, if the dataset was imported from tables.
fn key_columns_of(data: &TypedDataset, node_type: &str) -> Vec<String> {
    let recorded =
        data.preprocessing.as_ref().and_then(|record| record["nodes"][node_type]["key"].as_array());
    recorded.into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_looks_like_a_file_is_found() {
        let keys = ["ann@example.org", "item/7", "bob"].map(str::to_owned);
        let key_columns = vec!["name".to_owned()];
        let names = Names { keys: Some(Keys::texts(keys)), key_columns, ..Names::default() };
        let select = |word: &str| names.select(Selection::Nodes(word.as_ref()), 3, "shop");
        assert_eq!(select("ann@example.org").unwrap(), [0]);
        assert_eq!(select("item/7").unwrap(), [1]);
        assert_eq!(names.find(Selection::Nodes("item/7".as_ref()), 3, "shop").unwrap(), (vec![1], true));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("list.csv");
        std::fs::write(&file, "name\nbob\nbob\n").unwrap();
        assert_eq!(names.find(Selection::Nodes(&file), 3, "shop").unwrap(), (vec![2, 2], true));
        std::fs::write(&file, "2\n").unwrap();
        assert_eq!(names.find(Selection::Nodes(&file), 3, "shop").unwrap(), (vec![2], false));
        let message = "--nodes item/8: there is no such file, and shop has no such key; check its spelling";
        assert_eq!(select("item/8").unwrap_err().to_string(), message);
    }

    #[test]
    fn integers_that_are_ids_and_keys_of_other_nodes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let [text, array] = ["list.txt", "list.npy"].map(|name| dir.path().join(name));
        std::fs::write(&text, "# of two nodes\n0\n2\n").unwrap();
        graphmill_data::npy::write(&array, &[0_i64, 2], &[2]).unwrap();
        let select = |keys: [&str; 3], file: &Path| {
            let names = Names {
                keys: Some(Keys::texts(keys)),
                key_columns: vec!["number".to_owned()],
                ..Names::default()
            };
            names.find(Selection::Nodes(file), 3, "shop")
        };
        let message = select(["1", "2", "3"], &text).unwrap_err().to_string();
        let ending = "line 3: 2 is the id of one node of shop and the key of another; pass keys as --keys ";
        assert!(message.contains(ending), "{message}");
        // an array has ids; keys may be the ids, or unlike them
        assert_eq!(select(["1", "2", "3"], &array).unwrap(), (vec![0, 2], false));
        assert_eq!(select(["0", "1", "2"], &text).unwrap(), (vec![0, 2], false));
        assert_eq!(select(["7", "8", "9"], &text).unwrap(), (vec![0, 2], false));
        // integers that are not ids may be keys
        std::fs::write(&text, "2\n7\n").unwrap();
        assert_eq!(select(["7", "8", "2"], &text).unwrap(), (vec![2, 0], true));
        let message = select(["7", "8", "9"], &text).unwrap_err().to_string();
        assert!(message.contains("node 7 is outside the graph's 3 nodes"), "{message}");
    }

    #[test]
    fn unknown_keys_are_reported_with_the_type_of_the_nodes() {
        let node_type = Some("item".to_owned());
        let names = Names { keys: Some(Keys::texts(["tea"])), node_type, ..Names::default() };
        let message = names.select(Selection::List("ann"), 1, "shop").unwrap_err().to_string();
        let expected =
            "--nodes: 1 of 1 keys are not in shop: 'ann'; remove them, or select nodes of type 'item'";
        assert_eq!(message, expected);
    }

    #[test]
    fn a_key_of_several_edges_selects_all_of_them() {
        let keys = [("ann", "tea"), ("bob", "tea"), ("ann", "tea")];
        let keys = keys.map(|(source, destination)| format!("{source}{KEY_SEPARATOR}{destination}"));
        let key_columns = ["source", "destination"].map(str::to_owned).to_vec();
        let names = Names { keys: Some(Keys::texts(keys)), key_columns, ..Names::default() };
        let select = |words| names.select(Selection::List(words), 3, "shop").unwrap();
        assert_eq!(select("bob|tea,ann|tea"), [1, 0, 2]);
        // every row of a key once, however often the key is named
        assert_eq!(select("ann|tea,bob|tea,ann|tea,bob|tea"), [0, 2, 1, 1]);
        let message = names.select(Selection::List("ann"), 3, "shop").unwrap_err().to_string();
        let expected = "'ann'; remove them, or write keys as source|destination";
        assert!(message.ends_with(expected), "{message}");
    }
}
