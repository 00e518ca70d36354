//! Writing of a typed dataset: arrays, documents and the manifest, moved into place at once.

use std::{collections::BTreeSet, path::Path};

use graphmill_core::{Buffer, Error, Labels, Result};

use super::{
    EdgeData, FeatureTable, Keys, Negatives, NodeData, Seeds, TableData, Targets, Task, TypedDataset, Values,
    manifest::{Document, EdgeEntry, Manifest, NodeEntry, TaskEntry, VERSION},
    names::{
        EDGES, FEATURE_DEVIATION, FEATURE_MEAN, FEATURES, FEATURES_INDICES, FEATURES_INDPTR, FEATURES_VALUES,
        INDICES, INDPTR, KEYS, KEYS_BYTES, KEYS_OFFSETS, NEGATIVE_DESTINATIONS, NEGATIVE_LISTS,
        NEGATIVE_PAIRS, NEGATIVE_SOURCES, NEGATIVE_STARTS, NODES, ORIGINAL_IDS, PREPROCESSING, SEEDS, SPLIT,
        TARGETS, TASKS, TIME, WEIGHTS, edge_directory, escape, unique,
    },
    values::each_buffer,
};
use crate::{
    atomic::{self, Directories, Disk, Real},
    checksum,
    dataset::{
        Normalization, files,
        manifest::{FILE_NAME, FORMAT},
    },
    npy::Element,
    signed::SignedManifest,
};

impl TypedDataset {
    /// Writes all files to the fresh directory `dir`.
    pub(super) fn write_files(&self, dir: &Path) -> Result<()> {
        let mut target = Directory { dir, made: Directories::default() };
        let (_, text) = self.manifest(&mut target)?.signed()?;
        target.made.sync()?;
        write_text(&dir.join(FILE_NAME), text.as_bytes())
    }

    /// Computes the checksum that identifies the dataset regardless of its location: that of its
    /// directory's manifest, or of the manifest that [`TypedDataset::save`] would write. For a
    /// dataset in memory this reads all arrays.
    ///
    /// # Errors
    /// The manifest would be too long.
    pub fn identity(&self) -> Result<String> {
        match &self.checksum {
            Some(checksum) => Ok(checksum.clone()),
            None => Ok(self.manifest(&mut Unwritten)?.signed()?.0),
        }
    }

    /// Passes every array to `each`: its path in a dataset directory without `.npy`, its type in
    /// NumPy's notation, its shape and its bytes. Returns the types and tasks as the manifest of
    /// such a directory describes them.
    ///
    /// # Errors
    /// `each` fails.
    pub(crate) fn each_array(&self, each: &mut EachArray<'_>) -> Result<serde_json::Value> {
        let manifest = self.manifest(&mut Passed { each })?;
        let wrong = |e: serde_json::Error| Error::invalid(e.to_string());
        let mut schema = serde_json::to_value(&manifest).map_err(wrong)?;
        if let Some(fields) = schema.as_object_mut() {
            // There are no files.
            fields.retain(|name, _| ["name", "node_types", "edge_types", "tasks"].contains(&&name[..]));
        }
        Ok(schema)
    }

    /// Builds the manifest of the files that `target` receives.
    fn manifest(&self, target: &mut impl Target) -> Result<Manifest> {
        let mut m = Manifest {
            format: FORMAT.into(),
            version: VERSION,
            name: self.name.clone(),
            node_types: Vec::new(),
            edge_types: Vec::new(),
            tasks: Vec::new(),
            files: Default::default(),
            documents: Default::default(),
            checksum: String::new(),
        };
        let mut taken = BTreeSet::new();
        for nodes in &self.nodes {
            let directory = unique(escape(&nodes.name), &mut taken);
            let entry = add_nodes(&mut Sink { manifest: &mut m, target, kind: NODES, directory }, nodes)?;
            m.node_types.push(entry);
        }
        taken.clear();
        for edges in &self.edges {
            let directory = unique(edge_directory(&edges.edge_type), &mut taken);
            let entry = add_edges(&mut Sink { manifest: &mut m, target, kind: EDGES, directory }, edges)?;
            m.edge_types.push(entry);
        }
        taken.clear();
        for task in &self.tasks {
            let directory = unique(escape(&task.name), &mut taken);
            let mut sink = Sink { manifest: &mut m, target, kind: TASKS, directory };
            let entry = add_task(&mut sink, task, self.rows_of(task))?;
            m.tasks.push(entry);
        }
        if let Some(document) = &self.preprocessing {
            let text = serde_json::to_string_pretty(document)
                .map_err(|e| Error::invalid(format!("{PREPROCESSING} cannot be written: {e}")))?
                + "\n";
            target.document(PREPROCESSING, text.as_bytes())?;
            let checksum = checksum::checksum(text.as_bytes());
            m.documents.insert(PREPROCESSING.into(), Document { bytes: text.len() as u64, checksum });
        }
        Ok(m)
    }
}

fn write_text(path: &Path, text: &[u8]) -> Result<()> {
    Real.write(path, |file| file.write_all(text)).map_err(|e| Error::io(path, "write", e))
}

/// Destination of the files.
trait Target {
    /// Adds an array at a relative path, and enters it in the manifest.
    fn array<T: Element>(
        &mut self,
        manifest: &mut Manifest,
        path: String,
        data: &Buffer<T>,
        shape: &[usize],
    ) -> Result<()>;

    /// Adds a document at a relative path.
    fn document(&mut self, path: &str, text: &[u8]) -> Result<()>;
}

/// Directory as a destination: a file that this process has already written is linked, any other
/// array is written.
struct Directory<'a> {
    dir: &'a Path,
    /// Directories made within it.
    made: Directories,
}

impl Target for Directory<'_> {
    fn array<T: Element>(
        &mut self,
        manifest: &mut Manifest,
        path: String,
        data: &Buffer<T>,
        shape: &[usize],
    ) -> Result<()> {
        self.made.create(atomic::parent(&self.dir.join(&path)))?;
        files::add(&mut manifest.files, self.dir, &path, data, shape)
    }

    fn document(&mut self, path: &str, text: &[u8]) -> Result<()> {
        write_text(&self.dir.join(path), text)
    }
}

/// Destination that computes the entries of [`Directory`] without writing.
struct Unwritten;

impl Target for Unwritten {
    fn array<T: Element>(
        &mut self,
        manifest: &mut Manifest,
        path: String,
        data: &Buffer<T>,
        shape: &[usize],
    ) -> Result<()> {
        manifest.files.insert(path, files::unwritten(data, shape));
        Ok(())
    }

    fn document(&mut self, _: &str, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// Receiver of arrays: path, type, shape and bytes.
pub(crate) type EachArray<'a> = dyn FnMut(&str, &str, &[usize], &[u8]) -> Result<()> + 'a;

/// Destination that passes arrays on.
struct Passed<'a, 'b> {
    each: &'a mut EachArray<'b>,
}

impl Target for Passed<'_, '_> {
    fn array<T: Element>(
        &mut self,
        _: &mut Manifest,
        path: String,
        data: &Buffer<T>,
        shape: &[usize],
    ) -> Result<()> {
        let path = path.strip_suffix(".npy").unwrap_or(&path);
        (self.each)(path, &T::DTYPE.to_string(), shape, bytemuck::cast_slice(data))
    }

    fn document(&mut self, _: &str, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// Directory of one type or task.
struct Sink<'a, T> {
    manifest: &'a mut Manifest,
    target: &'a mut T,
    kind: &'static str,
    directory: String,
}

impl<T: Target> Sink<'_, T> {
    fn add<E: Element>(&mut self, name: &str, data: &Buffer<E>, shape: &[usize]) -> Result<()> {
        let path = format!("{}/{}/{name}", self.kind, self.directory);
        self.target.array(self.manifest, path, data, shape)
    }

    fn add_values(&mut self, name: &str, values: &Values, shape: &[usize]) -> Result<()> {
        each_buffer!(values, buffer => self.add(name, buffer, shape))
    }

    /// Adds an array of one axis, if there is one.
    fn add_column<E: Element>(&mut self, name: &str, data: Option<&Buffer<E>>) -> Result<()> {
        data.map_or(Ok(()), |data| self.add(name, data, &[data.len()]))
    }

    fn add_features(&mut self, rows: usize, table: Option<&FeatureTable>) -> Result<()> {
        let Some(table) = table else { return Ok(()) };
        match &table.data {
            TableData::Dense(values) => self.add_values(FEATURES, values, &[rows, table.width]),
            TableData::Sparse(sparse) => {
                self.add(FEATURES_INDPTR, sparse.indptr(), &[rows + 1])?;
                self.add(FEATURES_INDICES, sparse.indices(), &[sparse.stored()])?;
                self.add(FEATURES_VALUES, sparse.values(), &[sparse.stored()])
            }
        }
    }
}

/// Adds the files of a node type, and returns its entry.
fn add_nodes(sink: &mut Sink<'_, impl Target>, nodes: &NodeData) -> Result<NodeEntry> {
    sink.add_features(nodes.count, nodes.features.as_ref())?;
    if let Some(Normalization::Standard { mean, deviation }) = &nodes.normalization {
        for (name, values) in [(FEATURE_MEAN, mean.as_ref()), (FEATURE_DEVIATION, Some(deviation))] {
            sink.add_column(name, values.map(|values| Buffer::from(values.clone())).as_ref())?;
        }
    }
    match &nodes.keys {
        None => {}
        Some(Keys::Integers(keys)) => sink.add(KEYS, keys, &[nodes.count])?,
        Some(Keys::Texts(texts)) => {
            sink.add(KEYS_OFFSETS, &texts.offsets, &[nodes.count + 1])?;
            sink.add(KEYS_BYTES, &texts.bytes, &[texts.bytes.len()])?;
        }
    }
    sink.add_column(TIME, nodes.time.as_ref())?;
    sink.add_column(ORIGINAL_IDS, nodes.original_ids.as_ref())?;
    let features = nodes.features.as_ref();
    Ok(NodeEntry {
        name: nodes.name.clone(),
        directory: sink.directory.clone(),
        nodes: nodes.count,
        feature_dim: features.map_or(0, |table| table.width),
        feature_names: features.map_or_else(Vec::new, |table| table.names.clone()),
        normalize: nodes.normalization.as_ref().map(|how| how.name().to_string()),
        graphs: nodes.graphs.clone(),
    })
}

/// Adds the files of an edge type, and returns its entry.
fn add_edges(sink: &mut Sink<'_, impl Target>, edges: &EdgeData) -> Result<EdgeEntry> {
    sink.add(INDPTR, &edges.indptr, &[edges.indptr.len()])?;
    sink.add(INDICES, &edges.indices, &[edges.num_edges()])?;
    sink.add_column(WEIGHTS, edges.weights.as_ref())?;
    sink.add_column(TIME, edges.time.as_ref())?;
    sink.add_features(edges.num_edges(), edges.features.as_ref())?;
    let features = edges.features.as_ref();
    let of = edges.edge_type.clone();
    Ok(EdgeEntry {
        source: of.source,
        name: of.name,
        destination: of.destination,
        directory: sink.directory.clone(),
        edges: edges.num_edges(),
        reverse: edges.reverse.clone(),
        feature_dim: features.map_or(0, |table| table.width),
        feature_names: features.map_or_else(Vec::new, |table| table.names.clone()),
    })
}

/// Adds the files of a task, and returns its entry.
fn add_task(sink: &mut Sink<'_, impl Target>, task: &Task, rows: usize) -> Result<TaskEntry> {
    let no_targets = || Error::invalid(format!("task '{}' has no targets", task.name));
    match &task.seeds {
        None => {}
        Some(Seeds::Nodes(ids)) => sink.add(SEEDS, ids, &[ids.len()])?,
        Some(Seeds::Pairs(ids)) => sink.add(SEEDS, ids, &[ids.len() / 2, 2])?,
    }
    sink.add_column(TIME, task.time.as_ref())?;
    match &task.targets {
        Targets::None => {}
        Targets::Classes(Labels::Single { class, .. }) => sink.add(TARGETS, class, &[rows])?,
        Targets::Classes(Labels::Multi { member, classes }) => {
            sink.add(TARGETS, member, &[rows, *classes])?;
        }
        Targets::Classes(Labels::Columns { class, columns }) => {
            sink.add(TARGETS, class, &[rows, columns.len()])?;
        }
        Targets::Values { width, values } | Targets::Classes(Labels::Values { width, values }) => {
            sink.add(TARGETS, values, &[rows, *width])?;
        }
    }
    for (i, (_, ids)) in task.split.parts().into_iter().enumerate() {
        sink.add(SPLIT[i], ids, &[ids.len()])?;
        match &task.negatives[i] {
            None => {}
            Some(Negatives::Pairs(pairs)) => sink.add(NEGATIVE_PAIRS[i], pairs, &[pairs.len() / 2, 2])?,
            Some(Negatives::Destinations { each, nodes }) => {
                sink.add(NEGATIVE_DESTINATIONS[i], nodes, &[ids.len(), *each])?;
            }
            Some(Negatives::Sources { each, nodes }) => {
                sink.add(NEGATIVE_SOURCES[i], nodes, &[ids.len(), *each])?;
            }
            Some(Negatives::Lists(lists)) => {
                sink.add(NEGATIVE_LISTS[i], &lists.nodes, &[lists.nodes.len()])?;
                sink.add(NEGATIVE_STARTS[i], &lists.starts, &[ids.len() + 1])?;
            }
        }
    }
    let is_of_values =
        matches!(task.targets, Targets::Values { .. } | Targets::Classes(Labels::Values { .. }));
    Ok(TaskEntry {
        name: task.name.clone(),
        directory: sink.directory.clone(),
        kind: task.kind().ok_or_else(no_targets)?,
        on: task.on.clone(),
        classes: if is_of_values { 0 } else { task.width() },
        multilabel: task.is_multi_label(),
        columns: task.columns().to_vec(),
        values: if is_of_values { task.width() } else { 0 },
        names: task.names.clone(),
        metric: task.metric.clone(),
    })
}
