//! Opening of a typed dataset: every file is mapped after its header and size are checked, and read
//! once in its life at this place to verify its checksum and contents.

use std::path::Path;

use graphmill_core::{Buffer, Error, Labels, Result, SparseRows, Split, location::Location};

use super::{
    CandidateLists, EdgeData, FeatureTable, Keys, Negatives, NodeData, Seeds, TableData, Targets, Task,
    TaskKind, TaskOn, Texts, TypedDataset, Values,
    manifest::{EdgeEntry, Manifest, NodeEntry, TaskEntry},
    names::{
        FEATURE_DEVIATION, FEATURE_MEAN, FEATURES, FEATURES_INDICES, FEATURES_INDPTR, FEATURES_VALUES,
        INDICES, INDPTR, KEYS, KEYS_BYTES, KEYS_OFFSETS, NEGATIVE_DESTINATIONS, NEGATIVE_LISTS,
        NEGATIVE_PAIRS, NEGATIVE_SOURCES, NEGATIVE_STARTS, ORIGINAL_IDS, PREPROCESSING, SEEDS, SPLIT,
        TARGETS, TIME, WEIGHTS,
    },
};
use crate::{
    checksum,
    dataset::{
        Normalization,
        files::{Files, directory_name},
        manifest::FILE_NAME,
    },
    npy::Element,
    signed::SignedManifest,
    verification::{Verify, verified::Record},
};

/// Maps the dataset in `dir` after checking it. Sizes, headers and shapes are compared with the
/// manifest each time; checksums and contents as `verify` says. Files that pass are remembered in
/// `verified.json`.
///
/// # Errors
/// The first file that is damaged, or all inconsistencies of the contents.
pub(super) fn open(dir: &Path, verify: Verify) -> Result<TypedDataset> {
    let manifest = Manifest::read(dir)?;
    let record = Record::open(dir, &manifest.checksum, verify);
    Reader { dir, manifest: &manifest, verify, record }.dataset()
}

/// Open directory with a parsed manifest.
struct Reader<'a> {
    dir: &'a Path,
    manifest: &'a Manifest,
    verify: Verify,
    record: Record,
}

impl Reader<'_> {
    fn files(&self) -> Files<'_> {
        let (entries, record) = (&self.manifest.files, Some(&self.record));
        Files { dir: self.dir, manifest: FILE_NAME, entries, verify: self.verify, record }
    }

    fn dataset(&self) -> Result<TypedDataset> {
        let m = self.manifest;
        let mut data = TypedDataset {
            name: if m.name.is_empty() { directory_name(self.dir) } else { m.name.clone() },
            checksum: Some(m.checksum.clone()),
            directory: Some(self.dir.to_path_buf()),
            preprocessing: self.preprocessing()?,
            ..TypedDataset::default()
        };
        data.nodes = m.node_types.iter().map(|entry| self.nodes(entry)).collect::<Result<_>>()?;
        data.edges = m.edge_types.iter().map(|entry| self.edges(entry)).collect::<Result<_>>()?;
        data.tasks = m.tasks.iter().map(|entry| self.task(entry, &data)).collect::<Result<_>>()?;
        if self.record.is_trusted() {
            return Ok(data);
        }
        let faults = data.faults(false);
        if !faults.is_empty() {
            return Err(Location::new(self.dir, "contents").error(faults.join("\n")));
        }
        self.record.store(self.dir);
        Ok(data)
    }

    /// Maps the array at a relative path, and verifies it unless it was verified before or
    /// `is_deferred` to the first read of a row.
    fn array<T: Element>(&self, path: &str, shape: &[usize], is_deferred: bool) -> Result<Buffer<T>> {
        if is_deferred {
            return self.files().map_deferred(path, shape);
        }
        self.files().read(path, shape)
    }

    fn read<T: Element>(&self, path: &str, shape: &[usize]) -> Result<Buffer<T>> {
        self.array(path, shape, false)
    }

    /// Maps an array of one axis whose length only the manifest has.
    fn list<T: Element>(&self, path: &str) -> Result<Buffer<T>> {
        self.read(path, &[self.files().length(path)])
    }

    /// Maps an array of one axis, if the manifest lists it.
    fn column<T: Element>(&self, path: &str, length: usize) -> Result<Option<Buffer<T>>> {
        self.files().has(path).then(|| self.read(path, &[length])).transpose()
    }

    /// Maps rows of floats, of which every value must be finite, as [`Reader::array`] does.
    fn finite<T: Element>(&self, path: &str, shape: &[usize], is_deferred: bool) -> Result<Buffer<T>> {
        if is_deferred {
            return self.files().map_deferred(path, shape);
        }
        let (data, bad) = self.files().scan::<T>(path, shape, |x| !x.finite())?;
        if let Some(i) = bad {
            let (row, column) = (i / shape[1].max(1), i % shape[1].max(1));
            let message = format!("column {column} of row {row} is not a finite number");
            return Err(Location::new(&self.dir.join(path), "contents").error(message));
        }
        Ok(data)
    }

    fn preprocessing(&self) -> Result<Option<serde_json::Value>> {
        let Some(document) = self.manifest.documents.get(PREPROCESSING) else { return Ok(None) };
        let path = self.dir.join(PREPROCESSING);
        let text = std::fs::read(&path).map_err(|e| Error::io(&path, "read", e))?;
        let found = (text.len() as u64, checksum::checksum(&text));
        if found != (document.bytes, document.checksum.clone()) {
            return Err(Location::new(&path, "checksum").error(format!(
                "the file is damaged or was edited: {} bytes with the checksum {} found, the manifest says \
                 {} bytes with {}; restore it or make the directory again",
                found.0, found.1, document.bytes, document.checksum
            )));
        }
        let parsed = serde_json::from_slice(&text);
        parsed.map(Some).map_err(|e| Location::new(&path, format!("line {}", e.line())).error(e.to_string()))
    }

    fn nodes(&self, entry: &NodeEntry) -> Result<NodeData> {
        let (files, count) = (self.files(), entry.nodes);
        let file = |name: &str| entry.file(name);
        let statistics = |name| Ok::<_, Error>(self.read::<f64>(&file(name), &[entry.feature_dim])?.to_vec());
        let normalization = match entry.normalize.as_deref() {
            None => None,
            Some("rows") => Some(Normalization::Rows),
            Some("standard") => Some(Normalization::Standard {
                mean: files.has(&file(FEATURE_MEAN)).then(|| statistics(FEATURE_MEAN)).transpose()?,
                deviation: statistics(FEATURE_DEVIATION)?,
            }),
            Some(other) => {
                let message = format!("'{other}' found, rows or standard expected");
                return Err(files.wrong("node_types, normalize", &message));
            }
        };
        let keys = match (files.has(&file(KEYS)), files.has(&file(KEYS_OFFSETS))) {
            (true, true) => {
                let message = format!("node type '{}' has keys of two kinds", entry.name);
                return Err(files.wrong("files", &message));
            }
            (true, false) => Some(Keys::Integers(self.read(&file(KEYS), &[count])?)),
            (false, true) => Some(Keys::Texts(Texts {
                offsets: self.read(&file(KEYS_OFFSETS), &[self.one_more(count)?])?,
                bytes: self.list(&file(KEYS_BYTES))?,
            })),
            (false, false) => None,
        };
        Ok(NodeData {
            name: entry.name.clone(),
            count,
            features: self.features(&file, count, entry.feature_dim, &entry.feature_names)?,
            normalization,
            keys,
            time: self.column(&file(TIME), count)?,
            original_ids: self.column(&file(ORIGINAL_IDS), count)?,
            graphs: entry.graphs.clone(),
        })
    }

    fn one_more(&self, count: usize) -> Result<usize> {
        count.checked_add(1).ok_or_else(|| self.files().wrong("nodes", "too many nodes"))
    }

    /// Maps feature rows, dense or sparse.
    fn features(
        &self,
        file: &dyn Fn(&str) -> String,
        rows: usize,
        width: usize,
        names: &[String],
    ) -> Result<Option<FeatureTable>> {
        let files = self.files();
        let dense = file(FEATURES);
        let is_sparse = files.has(&file(FEATURES_INDPTR));
        if files.has(&dense) == is_sparse {
            return match (is_sparse, width) {
                (true, _) => Err(files.wrong("files", &format!("{dense}: features both dense and sparse"))),
                (false, 0) => Ok(None),
                (false, _) => {
                    let message = format!("the manifest lists {width} columns and not the file '{dense}'");
                    Err(files.wrong("feature_dim", &message))
                }
            };
        }
        let data = if is_sparse {
            let stored = [files.length(&file(FEATURES_INDICES))];
            let indptr = self.read(&file(FEATURES_INDPTR), &[self.one_more(rows)?])?;
            let indices = self.read(&file(FEATURES_INDICES), &stored)?;
            let values = self.read(&file(FEATURES_VALUES), &stored)?;
            let rows = if self.record.is_trusted() {
                Ok(SparseRows::of_sound(width, indptr, indices, values))
            } else {
                SparseRows::new(width, indptr, indices, values)
            };
            TableData::Sparse(Location::new(&self.dir.join(file(FEATURES_INDICES)), "contents").locate(rows)?)
        } else {
            TableData::Dense(self.values(&dense, &[rows, width])?)
        };
        Ok(Some(FeatureTable { width, names: names.to_vec(), data }))
    }

    /// Maps feature rows of any number type.
    fn values(&self, path: &str, shape: &[usize]) -> Result<Values> {
        let bytes = self.manifest.files.get(path).map_or(0, |entry| entry.bytes);
        let is_deferred = self.verify.defers(bytes);
        let dtype = self.files().dtype(path).map(|dtype| dtype.to_string()).unwrap_or_default();
        Ok(match dtype.as_str() {
            "<f2" => Values::F16(self.finite(path, shape, is_deferred)?),
            "<f4" => Values::F32(self.finite(path, shape, is_deferred)?),
            "<f8" => Values::F64(self.finite(path, shape, is_deferred)?),
            "|i1" => Values::I8(self.array(path, shape, is_deferred)?),
            "<i2" => Values::I16(self.array(path, shape, is_deferred)?),
            "<i4" => Values::I32(self.array(path, shape, is_deferred)?),
            "<i8" => Values::I64(self.array(path, shape, is_deferred)?),
            "|u1" => Values::U8(self.array(path, shape, is_deferred)?),
            "<u2" => Values::U16(self.array(path, shape, is_deferred)?),
            "<u4" => Values::U32(self.array(path, shape, is_deferred)?),
            "<u8" => Values::U64(self.array(path, shape, is_deferred)?),
            _ => {
                let message = format!("the type '{dtype}' is not a number type of this format");
                return Err(self.files().wrong(&format!("files, {path}"), &message));
            }
        })
    }

    fn edges(&self, entry: &EdgeEntry) -> Result<EdgeData> {
        let file = |name: &str| entry.file(name);
        let destination = self.manifest.node_types.iter().find(|nodes| nodes.name == entry.destination);
        let Some(destination) = destination else {
            let message = format!("{}: '{}' is not a node type", entry.edge_type(), entry.destination);
            return Err(self.files().wrong("edge_types", &message));
        };
        Ok(EdgeData {
            edge_type: entry.edge_type(),
            reverse: entry.reverse.clone(),
            indptr: self.read(&file(INDPTR), &[self.one_more(destination.nodes)?])?,
            indices: self.read(&file(INDICES), &[entry.edges])?,
            weights: self.column(&file(WEIGHTS), entry.edges)?,
            time: self.column(&file(TIME), entry.edges)?,
            features: self.features(&file, entry.edges, entry.feature_dim, &entry.feature_names)?,
        })
    }

    fn task(&self, entry: &TaskEntry, data: &TypedDataset) -> Result<Task> {
        let (files, file) = (self.files(), |name: &str| entry.file(name));
        let mut task = Task::new(&entry.name, entry.on.clone());
        if files.has(&file(SEEDS)) {
            let rows = files.length(&file(SEEDS));
            task.seeds = Some(match entry.on {
                TaskOn::Nodes(_) => Seeds::Nodes(self.read(&file(SEEDS), &[rows])?),
                TaskOn::Edges(_) => Seeds::Pairs(self.read(&file(SEEDS), &[rows, 2])?),
            });
        }
        let rows = data.rows_of(&task);
        task.time = self.column(&file(TIME), rows)?;
        task.targets = match entry.kind {
            TaskKind::LinkPrediction => Targets::None,
            TaskKind::NodeRegression | TaskKind::EdgeRegression => {
                let values = self.read(&file(TARGETS), &[rows, entry.values])?;
                Targets::Values { width: entry.values, values }
            }
            _ if !entry.columns.is_empty() => {
                let labels = Labels::Columns {
                    class: self.read(&file(TARGETS), &[rows, entry.columns.len()])?,
                    columns: entry.columns.clone(),
                };
                if entry.multilabel || labels.classes() != entry.classes {
                    let message = format!(
                        "'{}': {} classes, but its columns have {}",
                        entry.name,
                        entry.classes,
                        labels.classes()
                    );
                    return Err(files.wrong("tasks", &message));
                }
                Targets::Classes(labels)
            }
            _ if entry.multilabel => Targets::Classes(Labels::Multi {
                member: self.read(&file(TARGETS), &[rows, entry.classes])?,
                classes: entry.classes,
            }),
            _ => Targets::Classes(Labels::Single {
                class: self.read(&file(TARGETS), &[rows])?,
                classes: entry.classes,
            }),
        };
        if task.columns() != entry.columns {
            let message = format!("'{}': {} has no columns of classes", entry.name, entry.kind.name());
            return Err(files.wrong("tasks", &message));
        }
        if task.kind() != Some(entry.kind) {
            let message = format!("'{}': {} is not a task on {}", entry.name, entry.kind.name(), entry.on);
            return Err(files.wrong("tasks", &message));
        }
        let [train, valid, test] = SPLIT.map(|name| self.list(&file(name)));
        task.split = Split { train: train?, valid: valid?, test: test? };
        for part in 0..3 {
            task.negatives[part] = self.negatives(&file, part, task.split.parts()[part].1.len())?;
        }
        (task.names, task.metric) = (entry.names.clone(), entry.metric.clone());
        Ok(task)
    }

    /// Maps the negatives of a part of the split with `positives` rows.
    fn negatives(
        &self,
        file: &dyn Fn(&str) -> String,
        part: usize,
        positives: usize,
    ) -> Result<Option<Negatives>> {
        let files = self.files();
        let [pairs, destinations, sources, lists] =
            [NEGATIVE_PAIRS, NEGATIVE_DESTINATIONS, NEGATIVE_SOURCES, NEGATIVE_LISTS]
                .map(|names| file(names[part]));
        let each = |path: &str| {
            let entry = self.manifest.files.get(path);
            entry.and_then(|entry| entry.shape.get(1).copied()).unwrap_or(0)
        };
        if [&pairs, &destinations, &sources, &lists].iter().filter(|path| files.has(path)).count() > 1 {
            return Err(files.wrong("files", &format!("{pairs}: negatives of several kinds")));
        }
        Ok(if files.has(&pairs) {
            Some(Negatives::Pairs(self.read(&pairs, &[files.length(&pairs), 2])?))
        } else if files.has(&destinations) {
            let each = each(&destinations);
            Some(Negatives::Destinations { each, nodes: self.read(&destinations, &[positives, each])? })
        } else if files.has(&sources) {
            let each = each(&sources);
            Some(Negatives::Sources { each, nodes: self.read(&sources, &[positives, each])? })
        } else if files.has(&lists) {
            let starts = self.read(&file(NEGATIVE_STARTS[part]), &[self.one_more(positives)?])?;
            Some(Negatives::Lists(CandidateLists { starts, nodes: self.list(&lists)? }))
        } else {
            None
        })
    }
}
