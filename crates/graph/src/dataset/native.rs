//! The directory format: `graphmill.json` and `.npy` files that NumPy opens and Graphmill maps.
//!
//! ```text
//! graphmill.json    manifest: counts, the names of several graphs, and type, shape, size and checksum of every file
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
//! original_ids.npy  u32 [V]         only in a reordered dataset: what each node was called before, a permutation
//! ```
//!
//! Beside them there may be `edge_alias.bin`, which the manifest does not know: the alias tables of the weights, kept by the first who drew by
//! them ([`crate::alias::RowAlias::of_stored_weights`]). It may be deleted at any time.

use std::{fs, path::Path};

use half::f16;

use super::{
    Dataset, FeatureData, Features, Labels, Split,
    files::{self, Files},
    graphs,
    manifest::{self, FileEntry, Manifest},
};
use crate::{
    Buffer, Error, Graph, Result, SparseRows,
    alias::is_file_of_tables,
    atomic::{Disk, Real},
    csc::is_no_weight,
    external::Scratch,
    memory,
    npy::Element,
    place::At,
};

const INDPTR: &str = "indptr.npy";
const INDICES: &str = "indices.npy";
const EDGE_WEIGHT: &str = "edge_weight.npy";
pub(super) const FEATURES: &str = "features.npy";
pub(super) const FEATURES_INDPTR: &str = "features_indptr.npy";
const FEATURES_INDICES: &str = "features_indices.npy";
const FEATURES_VALUES: &str = "features_values.npy";
const LABELS: &str = "labels.npy";
const ORIGINAL_IDS: &str = "original_ids.npy";
const SPLIT: [&str; 3] = ["train.npy", "valid.npy", "test.npy"];

/// Whether this version of the format has an array of that name.
fn is_known(name: &str) -> bool {
    const FEATURE_FILES: [&str; 4] = [FEATURES, FEATURES_INDPTR, FEATURES_INDICES, FEATURES_VALUES];
    [INDPTR, INDICES, EDGE_WEIGHT, LABELS, ORIGINAL_IDS].contains(&name)
        || FEATURE_FILES.contains(&name)
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
    /// of all files, ids, labels, finite features. Reads every byte once, in parallel, and gives pages back as it goes.
    ///
    /// Features that [`is_too_large_to_verify`] are not read: of those only length, type and header are checked.
    /// [`Dataset::open_verified`] reads them too.
    ///
    /// # Errors
    /// The first fault, with the file and the place.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        open(dir.as_ref(), is_too_large_to_verify)
    }

    /// As [`Dataset::open`], and reads every byte however large the files are.
    ///
    /// # Errors
    /// As for [`Dataset::open`].
    pub fn open_verified(dir: impl AsRef<Path>) -> Result<Self> {
        open(dir.as_ref(), |_| false)
    }

    fn save_to(&self, dir: &Path, replace: bool) -> Result<()> {
        self.save_by_way_of(&Scratch::in_memory(), dir, replace)
    }

    /// As [`Dataset::save`] or [`Dataset::save_replacing`], made within the scratch.
    pub(crate) fn save_by_way_of(&self, scratch: &Scratch, dir: &Path, replace: bool) -> Result<()> {
        self.validate()?;
        let exists = check_target(dir, replace)?;
        scratch.publish(dir, exists, |dir| self.write_files(dir))
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
            graphs: self.graphs.clone(),
            files: Default::default(),
            checksum: String::new(),
        };
        let (indptr, indices) = self.graph.buffers();
        // The empty graph has an empty indptr in memory; on disk it has its one zero.
        let one = Buffer::from(vec![0]);
        add(&mut m, dir, INDPTR, if indptr.is_empty() { &one } else { indptr }, &[nodes + 1])?;
        add(&mut m, dir, INDICES, indices, &[self.graph.num_edges()])?;
        if let Some(weight) = self.graph.weight_buffer() {
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
        if let Some(ids) = &self.original_ids {
            add(&mut m, dir, ORIGINAL_IDS, ids, &[nodes])?;
        }
        let path = dir.join(manifest::FILE_NAME);
        let text = m.to_text()?;
        Real.write(&path, |file| file.write_all(text.as_bytes())).map_err(|e| Error::io(&path, "write", e))
    }
}

/// Whether features of that many bytes are more than a quarter of the machine's memory. Reading them whenever they are
/// opened would take longer than many things that are then done with them, and would push everything else out of the
/// system's cache.
pub fn is_too_large_to_verify(bytes: u64) -> bool {
    memory::total().is_some_and(|total| bytes > total / 4)
}

/// See [`Dataset::open`]; `too_large` says which features are not read.
fn open(dir: &Path, too_large: impl Fn(u64) -> bool) -> Result<Dataset> {
    let stored = Stored { dir, manifest: Manifest::read(dir)? };
    stored.check_names()?;
    let (m, files) = (&stored.manifest, stored.files());
    let (nodes, edges) = (m.nodes, m.edges);
    let rows = nodes.checked_add(1).ok_or_else(|| files.wrong("nodes", "too many nodes"))?;
    let indptr = files.read::<u64>(INDPTR, &[rows])?;
    let (indices, bad_edge) = files.scan(INDICES, &[edges], |&u| u as usize >= nodes)?;
    let (weight, bad_weight) = if files.has(EDGE_WEIGHT) {
        let (weight, bad) = files.scan(EDGE_WEIGHT, &[edges], is_no_weight)?;
        (Some(weight), bad)
    } else {
        (None, None)
    };
    let contents = |name: &str, fault: Option<Error>| {
        At::new(&dir.join(name), "contents").locate(fault.map_or(Ok(()), Err))
    };
    let graph = Graph::of_sound_edges(indptr, indices, weight);
    let graph = At::new(&dir.join(INDICES), "contents").locate(graph)?;
    contents(INDICES, bad_edge.map(|e| graph.no_such_node(e)))?;
    contents(EDGE_WEIGHT, bad_weight.map(|e| graph.no_such_weight(e)))?;

    let (data, bad_feature) = stored.features(too_large)?;
    let labels = if m.multilabel {
        Labels::Multi { member: files.read(LABELS, &[nodes, m.classes])?, classes: m.classes }
    } else {
        Labels::Single { class: files.read(LABELS, &[nodes])?, classes: m.classes }
    };
    let [train, valid, test] = SPLIT.map(|name| files.read::<u32>(name, &[files.length(name)]));
    let original_ids = files.has(ORIGINAL_IDS).then(|| files.read(ORIGINAL_IDS, &[nodes])).transpose()?;
    let dataset = Dataset {
        name: if m.name.is_empty() { directory_name(dir) } else { m.name.clone() },
        graph: graph.kept_in(dir),
        features: Features { dim: m.feature_dim, data },
        labels,
        split: Split { train: train?, valid: valid?, test: test? },
        graphs: m.graphs.clone(),
        metric: m.metric.clone(),
        checksum: Some(m.checksum.clone()),
        original_ids,
    };
    At::new(&dir.join(FEATURES), "contents").locate(dataset.validate_feature_count())?;
    contents(FEATURES, bad_feature.map(|i| dataset.not_finite(i)))?;
    At::new(&dir.join(LABELS), "contents").locate(dataset.validate_labels())?;
    At::new(&dir.join(manifest::FILE_NAME), "graphs")
        .locate(graphs::validate(&dataset.graphs, &dataset.graph))?;
    At::new(&dir.join(ORIGINAL_IDS), "contents").locate(dataset.validate_original_ids())?;
    At::new(dir, "split").locate(dataset.validate_split())?;
    Ok(dataset)
}

/// The checksum of the dataset in `dir`, by its manifest.
pub(crate) fn checksum_of(dir: &Path) -> Result<String> {
    Ok(Manifest::read(dir)?.checksum)
}

/// What a dataset without a name is called.
fn directory_name(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Puts one array in its place and enters it in the manifest: a file that this process has already written is linked,
/// anything else is written.
fn add<T: Element>(
    manifest: &mut Manifest,
    dir: &Path,
    name: &str,
    data: &Buffer<T>,
    shape: &[usize],
) -> Result<()> {
    let same = |entry: &FileEntry| entry.shape == shape && entry.dtype == T::DTYPE.to_string();
    match data.written().filter(|written| same(&written.entry)) {
        // a file system without links has it copied
        Some(written) if fs::hard_link(&written.path, dir.join(name)).is_ok() => {
            manifest.files.insert(name.into(), written.entry.clone());
            Ok(())
        }
        _ => files::write(&mut manifest.files, dir, name, data, shape),
    }
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
    let ours = |name: &str| name == manifest::FILE_NAME || is_known(name) || is_file_of_tables(name);
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
    fn files(&self) -> Files<'_> {
        Files { dir: self.dir, manifest: manifest::FILE_NAME, entries: &self.manifest.files }
    }

    /// The feature rows, in whichever form they are there, and the first value that is not finite. Of a dense table of
    /// as many bytes as `too_large` says only the header is checked.
    fn features(&self, too_large: impl Fn(u64) -> bool) -> Result<(FeatureData, Option<usize>)> {
        let (m, files) = (&self.manifest, self.files());
        let shape = [m.nodes, m.feature_dim];
        if [FEATURES_INDPTR, FEATURES_INDICES, FEATURES_VALUES].iter().any(|name| files.has(name)) {
            if files.has(FEATURES) {
                return Err(files.wrong("files", "features both dense and sparse"));
            }
            let stored = [files.length(FEATURES_INDICES)];
            let indptr = files.read(FEATURES_INDPTR, &[m.nodes.saturating_add(1)])?;
            let indices = files.read(FEATURES_INDICES, &stored)?;
            let values = files.read(FEATURES_VALUES, &stored)?;
            let rows = SparseRows::new(m.feature_dim, indptr, indices, values);
            let rows = At::new(&self.dir.join(FEATURES_INDICES), "contents").locate(rows)?;
            return Ok((FeatureData::Csr(rows), None));
        }
        let skip = m.files.get(FEATURES).is_some_and(|file| too_large(file.bytes));
        Ok(match (files.has(FEATURES), files.dtype(FEATURES)) {
            (false, _) if m.feature_dim == 0 => (FeatureData::default(), None),
            (_, Some(dtype)) if dtype == f16::DTYPE && skip => {
                (FeatureData::F16(files.map(FEATURES, &shape)?.1), None)
            }
            (_, Some(dtype)) if dtype == f16::DTYPE => {
                let (data, bad) = files.scan::<f16>(FEATURES, &shape, |x| !x.is_finite())?;
                (FeatureData::F16(data), bad)
            }
            _ if skip => (FeatureData::F32(files.map(FEATURES, &shape)?.1), None),
            _ => {
                let (data, bad) = files.scan::<f32>(FEATURES, &shape, |x| !x.is_finite())?;
                (FeatureData::F32(data), bad)
            }
        })
    }

    /// Every file the manifest names must be one this version knows.
    fn check_names(&self) -> Result<()> {
        match self.manifest.files.keys().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => Err(self.files().wrong("files", &format!("'{name}' is not a file of this format"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::checksum, *};

    fn small() -> Dataset {
        Dataset {
            graph: Graph::new(vec![0, 0, 1].into(), vec![0].into()).unwrap(),
            features: Features::f32(2, vec![1.0, 2.0, 3.0, 4.0]),
            labels: Labels::Single { class: vec![0, 0].into(), classes: 1 },
            ..Dataset::default()
        }
    }

    #[test]
    fn of_features_that_are_too_large_the_header_is_checked_and_of_others_all() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("data");
        small().save(&dir).unwrap();
        let damage = |name: &str, at: usize| {
            let good = fs::read(dir.join(name)).unwrap();
            let mut bad = good.clone();
            let at = bad.len() - at;
            bad[at] ^= 1;
            fs::write(dir.join(name), bad).unwrap();
            let outcome = (open(&dir, |_| true).is_ok(), open(&dir, |_| false).is_ok());
            fs::write(dir.join(name), good).unwrap();
            outcome
        };
        assert_eq!(damage(FEATURES, 1), (true, false));
        assert_eq!(damage(FEATURES, 16 + 2), (false, false), "the header");
        assert_eq!(damage(INDICES, 1), (false, false));
        assert_eq!(damage(LABELS, 1), (false, false));
    }

    #[test]
    fn the_first_bad_value_is_found_in_any_chunk() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("data");
        // several chunks of the checksum
        let nodes = checksum::CHUNK / 2;
        let values: Vec<f32> = (0..nodes).map(|i| i as f32).collect();
        let data = Dataset {
            graph: Graph::new(vec![0; nodes + 1].into(), Vec::new().into()).unwrap(),
            features: Features::f32(1, values.clone()),
            labels: Labels::Single { class: vec![0; nodes].into(), classes: 1 },
            ..Dataset::default()
        };
        data.save(&dir).unwrap();
        let stored = Stored { dir: &dir, manifest: Manifest::read(&dir).unwrap() };
        for bad in [0, 7, checksum::CHUNK / 4 - 33, checksum::CHUNK / 4 - 32, values.len() - 1] {
            let (data, first) =
                stored.files().scan::<f32>(FEATURES, &[values.len(), 1], |x| *x >= bad as f32).unwrap();
            assert_eq!((first, data.len()), (Some(bad), values.len()));
        }
        assert_eq!(stored.files().scan::<f32>(FEATURES, &[values.len(), 1], |_| false).unwrap().1, None);
    }
}
