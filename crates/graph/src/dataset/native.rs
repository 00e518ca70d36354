//! The directory format: `graphmill.json` and `.npy` files that NumPy opens and Graphmill maps.
//!
//! ```text
//! graphmill.json    manifest: counts, and type, shape, size and checksum of every file
//! indptr.npy        u64 [V + 1]     row starts of the CSC graph
//! indices.npy       u32 [E]         in-neighbours
//! edge_weight.npy   f4  [E]         only where edges have weights
//! features.npy      f4 or f2 [V, F] only where nodes have features
//!                                   or, where that takes fewer bytes, what of them is not zero, by rows:
//! features_indptr.npy   u64 [V + 1]     row starts
//! features_indices.npy  u32 [stored]    columns, ascending within a row
//! features_values.npy   f4  [stored]
//! labels.npy        i4 [V] (-1 unknown) or u1 [V, C] (0 and 1)
//! train.npy valid.npy test.npy      u32, ascending and disjoint
//! ```

use std::{fs, path::Path};

use half::f16;

use super::{
    Dataset, FeatureData, Features, Labels, Split,
    checksum::checksum,
    manifest::{self, FileEntry, Manifest},
};
use crate::{
    Buffer, Error, Graph, Result, SparseRows,
    atomic::{self, Disk, Real},
    npy::{self, Dtype, Element},
    place::At,
};

const INDPTR: &str = "indptr.npy";
const INDICES: &str = "indices.npy";
const EDGE_WEIGHT: &str = "edge_weight.npy";
const FEATURES: &str = "features.npy";
const FEATURES_INDPTR: &str = "features_indptr.npy";
const FEATURES_INDICES: &str = "features_indices.npy";
const FEATURES_VALUES: &str = "features_values.npy";
const LABELS: &str = "labels.npy";
const SPLIT: [&str; 3] = ["train.npy", "valid.npy", "test.npy"];

/// Whether this version of the format has an array of that name.
fn is_known(name: &str) -> bool {
    [INDPTR, INDICES, EDGE_WEIGHT, FEATURES, FEATURES_INDPTR, FEATURES_INDICES, FEATURES_VALUES, LABELS]
        .contains(&name)
        || SPLIT.contains(&name)
}

impl Dataset {
    /// Writes the dataset to the directory `dir`, which must be missing or empty. Everything is
    /// written to a sibling directory, synced, and moved into place: `dir` holds the whole dataset
    /// or is as it was.
    ///
    /// # Errors
    /// The dataset does not [`validate`](Dataset::validate), `dir` holds something, or writing
    /// fails.
    pub fn save(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.save_to(dir.as_ref(), false)
    }

    /// As [`Dataset::save`], but a dataset that is already in `dir` is replaced. A directory that
    /// holds anything else is still refused.
    ///
    /// # Errors
    /// As for [`Dataset::save`].
    pub fn save_replacing(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.save_to(dir.as_ref(), true)
    }

    /// Maps the dataset in `dir` after checking it: manifest, sizes, shapes, types and checksums
    /// of all files, ids, labels, finite features. Reads every byte once, in parallel; the memory
    /// used is the page cache's.
    ///
    /// # Errors
    /// The first fault, with the file and the place.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        let stored = Stored { dir, manifest: Manifest::read(dir)? };
        stored.check_names()?;
        let m = &stored.manifest;
        let (nodes, edges) = (m.nodes, m.edges);
        let rows = nodes.checked_add(1).ok_or_else(|| stored.wrong("nodes", "too many nodes"))?;
        let indptr = stored.map::<u64>(INDPTR, &[rows])?;
        let indices = stored.map::<u32>(INDICES, &[edges])?;
        let mut graph = At::new(&dir.join(INDICES), "contents").locate(Graph::new(indptr, indices))?;
        if stored.has(EDGE_WEIGHT) {
            let weight = stored.map::<f32>(EDGE_WEIGHT, &[edges])?;
            graph = At::new(&dir.join(EDGE_WEIGHT), "contents").locate(graph.with_edge_weight(weight))?;
        }
        let data = stored.features()?;
        let labels = if m.multilabel {
            Labels::Multi { member: stored.map(LABELS, &[nodes, m.classes])?, classes: m.classes }
        } else {
            Labels::Single { class: stored.map(LABELS, &[nodes])?, classes: m.classes }
        };
        let [train, valid, test] = SPLIT.map(|name| stored.map::<u32>(name, &[stored.length(name)]));
        let dataset = Self {
            name: if m.name.is_empty() { directory_name(dir) } else { m.name.clone() },
            graph,
            features: Features { dim: m.feature_dim, data },
            labels,
            split: Split { train: train?, valid: valid?, test: test? },
            metric: m.metric.clone(),
            checksum: Some(m.checksum.clone()),
        };
        At::new(&dir.join(FEATURES), "contents").locate(dataset.validate_features())?;
        At::new(&dir.join(LABELS), "contents").locate(dataset.validate_labels())?;
        At::new(dir, "split").locate(dataset.validate_split())?;
        Ok(dataset)
    }

    fn save_to(&self, dir: &Path, replace: bool) -> Result<()> {
        self.validate()?;
        let exists = check_target(dir, replace)?;
        atomic::write_dir(dir, exists, |dir| self.write_files(dir))
    }

    fn write_files(&self, dir: &Path) -> Result<()> {
        let nodes = self.num_nodes();
        let mut m = Manifest {
            format: manifest::FORMAT.into(),
            version: manifest::VERSION,
            name: self.name.clone(),
            nodes,
            edges: self.graph.num_edges(),
            feature_dim: self.features.dim,
            classes: self.labels.classes(),
            multilabel: self.labels.is_multi(),
            metric: self.metric.clone(),
            files: Default::default(),
            checksum: String::new(),
        };
        let indptr = self.graph.indptr();
        // The empty graph has an empty indptr in memory; on disk it has its one zero.
        add(&mut m, dir, INDPTR, if indptr.is_empty() { &[0] } else { indptr }, &[nodes + 1])?;
        add(&mut m, dir, INDICES, self.graph.indices(), &[self.graph.num_edges()])?;
        if let Some(weight) = self.graph.edge_weight() {
            add(&mut m, dir, EDGE_WEIGHT, weight, &[weight.len()])?;
        }
        if self.features.dim > 0 {
            let shape = [nodes, self.features.dim];
            match &self.features.data {
                FeatureData::F32(data) => add(&mut m, dir, FEATURES, data, &shape)?,
                FeatureData::F16(data) => add(&mut m, dir, FEATURES, data, &shape)?,
                FeatureData::Csr(rows) => {
                    add(&mut m, dir, FEATURES_INDPTR, rows.indptr(), &[nodes + 1])?;
                    add(&mut m, dir, FEATURES_INDICES, rows.indices(), &[rows.stored()])?;
                    add(&mut m, dir, FEATURES_VALUES, rows.values(), &[rows.stored()])?;
                }
            }
        }
        match &self.labels {
            Labels::Single { class, .. } => add(&mut m, dir, LABELS, class, &[nodes])?,
            Labels::Multi { member, classes } => add(&mut m, dir, LABELS, member, &[nodes, *classes])?,
        }
        for (name, (_, ids)) in SPLIT.iter().zip(self.split.parts()) {
            add(&mut m, dir, name, ids, &[ids.len()])?;
        }
        let path = dir.join(manifest::FILE_NAME);
        let text = m.to_text()?;
        Real.write(&path, |file| file.write_all(text.as_bytes())).map_err(|e| Error::io(&path, "write", e))
    }
}

/// What a dataset without a name is called.
fn directory_name(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Writes one array and enters it in the manifest, with the checksum of what the disk now holds.
fn add<T: Element>(
    manifest: &mut Manifest,
    dir: &Path,
    name: &str,
    data: &[T],
    shape: &[usize],
) -> Result<()> {
    let path = dir.join(name);
    npy::write_new(&path, data, shape)?;
    let bytes = map_whole(&path)?;
    let entry = FileEntry {
        dtype: T::DTYPE.to_string(),
        shape: shape.to_vec(),
        bytes: bytes.len() as u64,
        checksum: checksum(&bytes),
    };
    manifest.files.insert(name.into(), entry);
    Ok(())
}

fn map_whole(path: &Path) -> Result<Buffer<u8>> {
    let file = fs::File::open(path).map_err(|e| Error::io(path, "open", e))?;
    let size = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
    let size = usize::try_from(size).map_err(|_| Error::format(path, "size", "too large to map"))?;
    Buffer::map(&file, path, 0, size)
}

/// Whether `dir` holds a dataset that may be replaced. Saving asks this too; asking before a long import saves
/// the wait.
///
/// # Errors
/// It holds a dataset and `replace` is not set, or anything else.
pub fn check_target(dir: &Path, replace: bool) -> Result<bool> {
    let names = match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| entry.map(|e| e.file_name())).collect::<Result<Vec<_>, _>>(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(Error::format(
                dir,
                "directory",
                "this is a file; choose another name for the directory",
            ));
        }
        Err(e) => Err(e),
    };
    let names = names.map_err(|e| Error::io(dir, "look into", e))?;
    if names.is_empty() {
        return Ok(false);
    }
    let refuse = |message: String| Err(Error::format(dir, "directory", message));
    if !names.iter().any(|name| name == manifest::FILE_NAME) {
        return refuse(
            "it is not empty and holds no Graphmill dataset; nothing was written, choose another directory"
                .into(),
        );
    }
    let ours = |name: &str| name == manifest::FILE_NAME || is_known(name);
    if let Some(name) = names.iter().find(|name| !name.to_str().is_some_and(ours)) {
        let name = name.to_string_lossy();
        return refuse(format!(
            "beside a dataset it holds '{name}'; move that away before replacing the dataset"
        ));
    }
    if !replace {
        return refuse(
            "it already holds a dataset; replace it with --force, or choose another directory".into(),
        );
    }
    Ok(true)
}

/// A dataset directory whose manifest is read.
struct Stored<'a> {
    dir: &'a Path,
    manifest: Manifest,
}

impl Stored<'_> {
    fn wrong(&self, place: &str, message: &str) -> Error {
        Error::format(self.dir.join(manifest::FILE_NAME), place, message)
    }

    fn has(&self, name: &str) -> bool {
        self.manifest.files.contains_key(name)
    }

    /// The number of entries that the manifest says an array of one axis has.
    fn length(&self, name: &str) -> usize {
        self.manifest.files.get(name).and_then(|file| file.shape.first().copied()).unwrap_or(0)
    }

    /// The feature rows, in whichever form they are there.
    fn features(&self) -> Result<FeatureData> {
        let m = &self.manifest;
        let shape = [m.nodes, m.feature_dim];
        let sparse = [FEATURES_INDPTR, FEATURES_INDICES, FEATURES_VALUES].iter().any(|name| self.has(name));
        Ok(match (self.has(FEATURES), self.dtype(FEATURES)) {
            (true, _) if sparse => return Err(self.wrong("files", "features both dense and sparse")),
            (false, _) if sparse => {
                let stored = [self.length(FEATURES_INDICES)];
                let indptr = self.map(FEATURES_INDPTR, &[m.nodes.saturating_add(1)])?;
                let indices = self.map(FEATURES_INDICES, &stored)?;
                let values = self.map(FEATURES_VALUES, &stored)?;
                let rows = SparseRows::new(m.feature_dim, indptr, indices, values);
                FeatureData::Csr(At::new(&self.dir.join(FEATURES_INDICES), "contents").locate(rows)?)
            }
            (false, _) if m.feature_dim == 0 => FeatureData::default(),
            (_, Some(dtype)) if dtype == f16::DTYPE => FeatureData::F16(self.map(FEATURES, &shape)?),
            _ => FeatureData::F32(self.map(FEATURES, &shape)?),
        })
    }

    fn dtype(&self, name: &str) -> Option<Dtype> {
        Dtype::parse(&self.manifest.files.get(name)?.dtype)
    }

    /// Every file the manifest names must be one this version knows.
    fn check_names(&self) -> Result<()> {
        match self.manifest.files.keys().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => Err(self.wrong("files", &format!("'{name}' is not a file of this format"))),
        }
    }

    /// Maps the array `name` after checking it against the manifest, and the manifest against the
    /// `shape` that the counts ask for.
    fn map<T: Element>(&self, name: &str, shape: &[usize]) -> Result<Buffer<T>> {
        let place = format!("files, {name}");
        let Some(entry) = self.manifest.files.get(name) else {
            return Err(self.wrong(&place, "the manifest does not list this file"));
        };
        if entry.shape != shape || entry.dtype != T::DTYPE.to_string() {
            let expected = T::DTYPE;
            return Err(self.wrong(
                &place,
                &format!(
                    "shape {:?} of {} disagrees with the counts, which ask for {shape:?} of {expected}",
                    entry.shape, entry.dtype
                ),
            ));
        }
        let path = self.dir.join(name);
        let bytes = map_whole(&path)?;
        if bytes.len() as u64 != entry.bytes {
            return Err(Error::format(
                &path,
                format!("byte {}", (bytes.len() as u64).min(entry.bytes)),
                format!(
                    "the file has {} bytes, the manifest says {}; restore it or import the data again",
                    bytes.len(),
                    entry.bytes
                ),
            ));
        }
        let found = checksum(&bytes);
        if found != entry.checksum {
            return Err(Error::format(
                &path,
                "checksum",
                format!(
                    "the file is damaged: its checksum is {found}, the manifest says {}; restore it or import the data again",
                    entry.checksum
                ),
            ));
        }
        let array = npy::open(&path)?;
        if array.shape != shape {
            return Err(Error::format(
                &path,
                "header",
                format!("shape {:?} found, {shape:?} expected", array.shape),
            ));
        }
        array.map()
    }
}
