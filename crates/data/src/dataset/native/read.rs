//! Opening of a dataset directory: every file is checked against the manifest, and its contents for
//! consistency, unless it is unchanged since an earlier opening did so.

use std::{path::Path, sync::Arc};

use graphmill_core::{
    Error, FeatureData, Features, Graph, Labels, Result, SparseRows, Split, csc::is_no_weight,
    location::Location,
};
use half::f16;

use super::names::{
    EDGE_WEIGHT, FEATURE_DEVIATION, FEATURE_MEAN, FEATURES, FEATURES_INDICES, FEATURES_INDPTR,
    FEATURES_VALUES, INDICES, INDPTR, LABELS, ORIGINAL_IDS, SPLIT, is_known,
};
use crate::{
    alias_file::AliasCache,
    dataset::{
        Dataset, Normalization,
        files::{Files, directory_name},
        graphs,
        manifest::{self, Manifest},
    },
    npy::Element,
    signed::SignedManifest,
    verification::{Verify, verified::Record},
};

/// Opens a dataset as [`Dataset::open_with`] does.
pub(super) fn open(dir: &Path, verify: Verify) -> Result<Dataset> {
    let stored = Stored::new(dir, verify)?;
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
        Location::new(&dir.join(name), "contents").locate(fault.map_or(Ok(()), Err))
    };
    let graph = if stored.record.is_trusted() {
        Ok(Graph::sorted(indptr, indices, weight))
    } else {
        Graph::of_sound_edges(indptr, indices, weight)
    };
    let graph = Location::new(&dir.join(INDICES), "contents").locate(graph)?;
    contents(INDICES, bad_edge.map(|e| graph.no_such_node(e)))?;
    contents(EDGE_WEIGHT, bad_weight.map(|e| graph.no_such_weight(e)))?;

    let (data, bad_feature) = stored.features()?;
    let normalization = stored.normalization()?;
    let labels = if m.multilabel {
        Labels::Multi { member: files.read(LABELS, &[nodes, m.classes])?, classes: m.classes }
    } else {
        Labels::Single { class: files.read(LABELS, &[nodes])?, classes: m.classes }
    };
    let [train, valid, test] = SPLIT.map(|name| files.read::<u32>(name, &[files.length(name)]));
    let original_ids = files.has(ORIGINAL_IDS).then(|| files.read(ORIGINAL_IDS, &[nodes])).transpose()?;
    let dataset = Dataset {
        name: if m.name.is_empty() { directory_name(dir) } else { m.name.clone() },
        graph: graph.with_table_store(Arc::new(AliasCache::new(dir))),
        directory: Some(dir.to_path_buf()),
        features: Features { dim: m.feature_dim, data },
        normalization,
        labels,
        split: Split { train: train?, valid: valid?, test: test? },
        graphs: m.graphs.clone(),
        metric: m.metric.clone(),
        checksum: Some(m.checksum.clone()),
        original_ids,
        keys: None,
    };
    if stored.record.is_trusted() {
        return Ok(dataset);
    }
    Location::new(&dir.join(FEATURES), "contents").locate(dataset.validate_feature_count())?;
    Location::new(&dir.join(FEATURE_DEVIATION), "contents").locate(dataset.validate_normalization())?;
    contents(FEATURES, bad_feature.map(|i| dataset.not_finite(i)))?;
    Location::new(&dir.join(LABELS), "contents").locate(dataset.validate_labels())?;
    Location::new(&dir.join(manifest::FILE_NAME), "graphs")
        .locate(graphs::validate(&dataset.graphs, &dataset.graph))?;
    Location::new(&dir.join(ORIGINAL_IDS), "contents").locate(dataset.validate_original_ids())?;
    Location::new(dir, "split").locate(dataset.validate_split())?;
    stored.record.store(dir);
    Ok(dataset)
}

/// Dataset directory with a parsed manifest.
pub(super) struct Stored<'a> {
    pub(super) dir: &'a Path,
    pub(super) manifest: Manifest,
    pub(super) verify: Verify,
    record: Record,
}

impl<'a> Stored<'a> {
    /// Reads the manifest of `dir`.
    pub(super) fn new(dir: &'a Path, verify: Verify) -> Result<Self> {
        let manifest = Manifest::read(dir)?;
        let record = Record::open(dir, &manifest.checksum, verify);
        Ok(Self { dir, manifest, verify, record })
    }

    pub(super) fn files(&self) -> Files<'_> {
        let (manifest, entries) = (manifest::FILE_NAME, &self.manifest.files);
        Files { dir: self.dir, manifest, entries, verify: self.verify, record: Some(&self.record) }
    }

    /// Maps the feature rows, dense or sparse, and finds the first value that is not finite. Dense
    /// rows may be verified later: then only their header is checked.
    fn features(&self) -> Result<(FeatureData, Option<usize>)> {
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
            let rows = if self.record.is_trusted() {
                Ok(SparseRows::of_sound(m.feature_dim, indptr, indices, values))
            } else {
                SparseRows::new(m.feature_dim, indptr, indices, values)
            };
            let rows = Location::new(&self.dir.join(FEATURES_INDICES), "contents").locate(rows)?;
            return Ok((FeatureData::Csr(rows), None));
        }
        let is_deferred = m.files.get(FEATURES).is_some_and(|file| self.verify.defers(file.bytes));
        Ok(match (files.has(FEATURES), files.dtype(FEATURES)) {
            (false, _) if m.feature_dim == 0 => (FeatureData::default(), None),
            (_, Some(dtype)) if dtype == f16::DTYPE && is_deferred => {
                (FeatureData::F16(files.map_deferred(FEATURES, &shape)?), None)
            }
            (_, Some(dtype)) if dtype == f16::DTYPE => {
                let (data, bad) = files.scan::<f16>(FEATURES, &shape, |x| !x.is_finite())?;
                (FeatureData::F16(data), bad)
            }
            _ if is_deferred => (FeatureData::F32(files.map_deferred(FEATURES, &shape)?), None),
            _ => {
                let (data, bad) = files.scan::<f32>(FEATURES, &shape, |x| !x.is_finite())?;
                (FeatureData::F32(data), bad)
            }
        })
    }

    /// Reads the normalization of the features.
    fn normalization(&self) -> Result<Option<Normalization>> {
        let (m, files) = (&self.manifest, self.files());
        let statistics = |name| Ok::<_, Error>(files.read::<f64>(name, &[m.feature_dim])?.to_vec());
        match m.normalize.as_deref() {
            None => Ok(None),
            Some("rows") => Ok(Some(Normalization::Rows)),
            Some("standard") => Ok(Some(Normalization::Standard {
                mean: files.has(FEATURE_MEAN).then(|| statistics(FEATURE_MEAN)).transpose()?,
                deviation: statistics(FEATURE_DEVIATION)?,
            })),
            Some(other) => {
                Err(files.wrong("normalize", &format!("'{other}' found, rows or standard expected")))
            }
        }
    }

    /// Checks that this version knows every file of the manifest.
    fn check_names(&self) -> Result<()> {
        match self.manifest.files.keys().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => Err(self.files().wrong("files", &format!("'{name}' is not a file of this format"))),
        }
    }
}
