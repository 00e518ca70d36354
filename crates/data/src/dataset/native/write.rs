//! Writing of a dataset's arrays and its manifest.

use std::path::Path;

use graphmill_core::{Buffer, Error, FeatureData, Labels, Result};

use super::names::{
    EDGE_WEIGHT, FEATURE_DEVIATION, FEATURE_MEAN, FEATURES, FEATURES_INDICES, FEATURES_INDPTR,
    FEATURES_VALUES, INDICES, INDPTR, LABELS, ORIGINAL_IDS, SPLIT,
};
use crate::{
    atomic::{Disk, Real},
    dataset::{
        Dataset, Normalization, files,
        manifest::{self, Manifest},
    },
    npy::Element,
    signed::SignedManifest,
};

impl Dataset {
    pub(super) fn write_files(&self, dir: &Path) -> Result<()> {
        let (_, text) = self.manifest(&mut Directory(dir))?.signed()?;
        let path = dir.join(manifest::FILE_NAME);
        Real.write(&path, |file| file.write_all(text.as_bytes())).map_err(|e| Error::io(&path, "write", e))
    }

    /// Builds the manifest of the arrays that `target` receives.
    pub(super) fn manifest(&self, target: &mut impl Target) -> Result<Manifest> {
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
            normalize: self.normalization.as_ref().map(|how| how.name().to_string()),
            graphs: self.graphs.clone(),
            files: Default::default(),
            checksum: String::new(),
        };
        let (indptr, indices) = self.graph.buffers();
        // The empty graph has an empty indptr in memory; on disk it is a single zero.
        let one = Buffer::from(vec![0]);
        target.add(&mut m, INDPTR, if indptr.is_empty() { &one } else { indptr }, &[nodes + 1])?;
        target.add(&mut m, INDICES, indices, &[self.graph.num_edges()])?;
        if let Some(weight) = self.graph.weight_buffer() {
            target.add(&mut m, EDGE_WEIGHT, weight, &[weight.len()])?;
        }
        if self.features.dim > 0 {
            let shape = [nodes, self.features.dim];
            match &self.features.data {
                FeatureData::F32(data) => target.add(&mut m, FEATURES, data, &shape)?,
                FeatureData::F16(data) => target.add(&mut m, FEATURES, data, &shape)?,
                FeatureData::Csr(rows) => {
                    target.add(&mut m, FEATURES_INDPTR, rows.indptr(), &[nodes + 1])?;
                    target.add(&mut m, FEATURES_INDICES, rows.indices(), &[rows.stored()])?;
                    target.add(&mut m, FEATURES_VALUES, rows.values(), &[rows.stored()])?;
                }
            }
        }
        if let Some(Normalization::Standard { mean, deviation }) = &self.normalization {
            let statistics = [(FEATURE_MEAN, mean.as_ref()), (FEATURE_DEVIATION, Some(deviation))];
            for (name, values) in statistics {
                if let Some(values) = values {
                    target.add(&mut m, name, &Buffer::from(values.clone()), &[values.len()])?;
                }
            }
        }
        match &self.labels {
            Labels::Single { class, .. } => target.add(&mut m, LABELS, class, &[nodes])?,
            Labels::Multi { member, classes } => target.add(&mut m, LABELS, member, &[nodes, *classes])?,
            Labels::Values { .. } | Labels::Columns { .. } => {
                let what = if self.labels.is_values() { "real values" } else { "several columns of classes" };
                return Err(Error::invalid(format!(
                    "dataset {} has {what} as targets, which directories of format 1 do not hold; keep it as \
                     a directory of format 2",
                    self.name
                )));
            }
        }
        for (name, (_, ids)) in SPLIT.iter().zip(self.split.parts()) {
            target.add(&mut m, name, ids, &[ids.len()])?;
        }
        if let Some(ids) = &self.original_ids {
            target.add(&mut m, ORIGINAL_IDS, ids, &[nodes])?;
        }
        Ok(m)
    }
}

/// Destination of a dataset's arrays, which enters them in the manifest.
pub(super) trait Target {
    /// Adds one array.
    fn add<T: Element>(
        &mut self,
        manifest: &mut Manifest,
        name: &str,
        data: &Buffer<T>,
        shape: &[usize],
    ) -> Result<()>;
}

/// Directory as a destination: a file that this process has already written is linked, any other
/// array is written.
struct Directory<'a>(&'a Path);

impl Target for Directory<'_> {
    fn add<T: Element>(
        &mut self,
        manifest: &mut Manifest,
        name: &str,
        data: &Buffer<T>,
        shape: &[usize],
    ) -> Result<()> {
        files::add(&mut manifest.files, self.0, name, data, shape)
    }
}

/// Destination that computes the entries of [`Directory`] without writing.
pub(super) struct Unwritten;

impl Target for Unwritten {
    fn add<T: Element>(
        &mut self,
        manifest: &mut Manifest,
        name: &str,
        data: &Buffer<T>,
        shape: &[usize],
    ) -> Result<()> {
        manifest.files.insert(name.into(), files::unwritten(data, shape));
        Ok(())
    }
}
