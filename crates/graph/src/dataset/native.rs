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
use rayon::prelude::*;

use super::{
    Dataset, FeatureData, Features, Labels, Split,
    checksum::{self, checksum},
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
    npy::{self, Dtype, Element},
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
/// Bytes of a file that are looked at before their pages are given back.
const WINDOW: usize = 64 << 20;
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
    pub(super) fn save_by_way_of(&self, scratch: &Scratch, dir: &Path, replace: bool) -> Result<()> {
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
    let m = &stored.manifest;
    let (nodes, edges) = (m.nodes, m.edges);
    let rows = nodes.checked_add(1).ok_or_else(|| stored.wrong("nodes", "too many nodes"))?;
    let indptr = stored.read::<u64>(INDPTR, &[rows])?;
    let (indices, bad_edge) = stored.scan(INDICES, &[edges], |&u| u as usize >= nodes)?;
    let (weight, bad_weight) = if stored.has(EDGE_WEIGHT) {
        let (weight, bad) = stored.scan(EDGE_WEIGHT, &[edges], is_no_weight)?;
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
        Labels::Multi { member: stored.read(LABELS, &[nodes, m.classes])?, classes: m.classes }
    } else {
        Labels::Single { class: stored.read(LABELS, &[nodes])?, classes: m.classes }
    };
    let [train, valid, test] = SPLIT.map(|name| stored.read::<u32>(name, &[stored.length(name)]));
    let original_ids = stored.has(ORIGINAL_IDS).then(|| stored.read(ORIGINAL_IDS, &[nodes])).transpose()?;
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
        _ => write(manifest, dir, name, data, shape),
    }
}

/// Writes one array and enters it in the manifest, with the checksum of what the disk now holds.
fn write<T: Element>(
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

    /// The feature rows, in whichever form they are there, and the first value that is not finite. Of a dense table of
    /// as many bytes as `too_large` says only the header is checked.
    fn features(&self, too_large: impl Fn(u64) -> bool) -> Result<(FeatureData, Option<usize>)> {
        let m = &self.manifest;
        let shape = [m.nodes, m.feature_dim];
        if [FEATURES_INDPTR, FEATURES_INDICES, FEATURES_VALUES].iter().any(|name| self.has(name)) {
            if self.has(FEATURES) {
                return Err(self.wrong("files", "features both dense and sparse"));
            }
            let stored = [self.length(FEATURES_INDICES)];
            let indptr = self.read(FEATURES_INDPTR, &[m.nodes.saturating_add(1)])?;
            let indices = self.read(FEATURES_INDICES, &stored)?;
            let values = self.read(FEATURES_VALUES, &stored)?;
            let rows = SparseRows::new(m.feature_dim, indptr, indices, values);
            let rows = At::new(&self.dir.join(FEATURES_INDICES), "contents").locate(rows)?;
            return Ok((FeatureData::Csr(rows), None));
        }
        let skip = m.files.get(FEATURES).is_some_and(|file| too_large(file.bytes));
        Ok(match (self.has(FEATURES), self.dtype(FEATURES)) {
            (false, _) if m.feature_dim == 0 => (FeatureData::default(), None),
            (_, Some(dtype)) if dtype == f16::DTYPE && skip => {
                (FeatureData::F16(self.map(FEATURES, &shape)?.1), None)
            }
            (_, Some(dtype)) if dtype == f16::DTYPE => {
                let (data, bad) = self.scan::<f16>(FEATURES, &shape, |x| !x.is_finite())?;
                (FeatureData::F16(data), bad)
            }
            _ if skip => (FeatureData::F32(self.map(FEATURES, &shape)?.1), None),
            _ => {
                let (data, bad) = self.scan::<f32>(FEATURES, &shape, |x| !x.is_finite())?;
                (FeatureData::F32(data), bad)
            }
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

    /// Maps the file `name` and the array in it after checking header and length against the manifest, and the manifest
    /// against the `shape` that the counts ask for.
    fn map<T: Element>(&self, name: &str, shape: &[usize]) -> Result<(Buffer<u8>, Buffer<T>)> {
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
        let array = npy::open(&path)?;
        if array.shape != shape {
            return Err(Error::format(
                &path,
                "header",
                format!("shape {:?} found, {shape:?} expected", array.shape),
            ));
        }
        Ok((bytes, array.map()?))
    }

    /// As [`Stored::map`], with the checksum of the whole file and the first value for which `bad` holds: one pass.
    fn scan<T: Element>(
        &self,
        name: &str,
        shape: &[usize],
        bad: impl Fn(&T) -> bool + Sync,
    ) -> Result<(Buffer<T>, Option<usize>)> {
        let (bytes, data) = self.map::<T>(name, shape)?;
        let header = bytes.len() - size_of_val(&data[..]);
        let (mut leaves, mut first) = (Vec::with_capacity(bytes.len() / checksum::CHUNK + 1), None);
        bytes.scan(WINDOW, |start, window| {
            let look = |(i, chunk): (usize, &[u8])| {
                // a chunk of the file begins with a value, as the data does at a multiple of their width
                let at = (start + i * checksum::CHUNK).max(header);
                let skipped = at - (start + i * checksum::CHUNK);
                let values: &[T] = bytemuck::cast_slice(chunk.get(skipped..).unwrap_or_default());
                let any = values.iter().fold(false, |any, value| any | bad(value));
                let place = any.then(|| values.iter().position(&bad)).flatten();
                (checksum::leaf(chunk), place.map(|i| (at - header) / size_of::<T>() + i))
            };
            let seen: Vec<_> = window.par_chunks(checksum::CHUNK).enumerate().map(look).collect();
            leaves.extend(seen.iter().map(|(leaf, _)| leaf));
            first = first.or_else(|| seen.iter().find_map(|(_, place)| *place));
        });
        let found = checksum::root(bytes.len() as u64, &leaves);
        let expected = &self.manifest.files[name].checksum;
        if found == *expected {
            return Ok((data, first));
        }
        Err(Error::format(
            self.dir.join(name),
            "checksum",
            format!(
                "the file is damaged: its checksum is {found}, the manifest says {expected}; restore it or import the data again"
            ),
        ))
    }

    /// As [`Stored::scan`], for values that are looked at later.
    fn read<T: Element>(&self, name: &str, shape: &[usize]) -> Result<Buffer<T>> {
        Ok(self.scan(name, shape, |_| false)?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                stored.scan::<f32>(FEATURES, &[values.len(), 1], |x| *x >= bad as f32).unwrap();
            assert_eq!((first, data.len()), (Some(bad), values.len()));
        }
        assert_eq!(stored.scan::<f32>(FEATURES, &[values.len(), 1], |_| false).unwrap().1, None);
    }
}
