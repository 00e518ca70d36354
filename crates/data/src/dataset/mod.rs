//! Datasets: topology, features, labels and a split, in memory or mapped from a directory.
//!
//! - [`DatasetBuilder`]: builds a dataset from arrays in memory.
//! - [`NamedGraph`]: datasets that are the union of several graphs.
//! - [`native`]: the directory format (a manifest and `.npy` files with checksums).
//! - [`StoredTable`]: location of the feature rows in such a directory.
//! - [`import`]: the table of importers and their shared options.
//! - [`export`]: the table of exporters.

mod builder;
pub mod export;
pub(crate) mod files;
mod graphs;
pub mod import;
pub(crate) mod manifest;
pub mod native;
mod normalization;
mod stored_table;
pub(crate) mod work;

use std::{fmt, path::PathBuf};

pub use builder::DatasetBuilder;
pub use graphs::{GraphParts, NamedGraph};
pub(crate) use graphs::{restrict, validate as validate_graphs};
pub use normalization::{Normalization, Rescaling};
pub use stored_table::{StoredSparse, StoredTable};
pub use work::Work;

use graphmill_core::{
    Buffer, ClassColumn, Error, FeatureData, Features, Graph, Labels, NodeId, Result, Split, memory,
    node_order::inverse,
    search::{pair_position, position},
};

use crate::{npy, typed::Keys};

/// Input of a training run.
#[derive(Clone, Debug, Default)]
pub struct Dataset {
    /// Name of the dataset; by default that of its directory.
    pub name: String,
    /// Topology: for each node the in-neighbours from which it receives messages.
    pub graph: Graph,
    /// Feature rows, one per node, or empty.
    pub features: Features,
    /// Normalization applied on import; `None` if the features are those of the source.
    pub normalization: Option<Normalization>,
    /// Labels: one, one of each column, or one set per node.
    pub labels: Labels,
    /// Training, validation and test nodes.
    pub split: Split,
    /// Graphs of a disjoint union: empty, or ranges that cover all nodes.
    pub graphs: Vec<NamedGraph>,
    /// Customary metric of the dataset (`accuracy`, `f1-micro`, `f1-macro`, `roc-auc`,
    /// `average-precision`), if its importer knows one.
    pub metric: Option<String>,
    /// Checksum of the dataset's directory: that of the manifest, which lists those of all files.
    pub checksum: Option<String>,
    /// Directory from which the dataset was opened.
    pub directory: Option<PathBuf>,
    /// Original node ids of a reordered dataset ([`crate::reorder`]): a permutation of the nodes
    /// (`V`). `None` if the ids are those of the import or generator.
    pub original_ids: Option<Buffer<NodeId>>,
    /// Original keys of the nodes, if the dataset has them.
    pub keys: Option<Keys>,
}

impl Dataset {
    /// Number of nodes, `V`.
    pub fn num_nodes(&self) -> usize {
        self.graph.num_nodes()
    }

    /// Checks consistency: lengths, label ranges, finite features, split ids in range, ascending
    /// and disjoint, no edge between two graphs. O(V (F + C)), and O(E) for several graphs;
    /// parallel.
    ///
    /// # Errors
    /// The first inconsistency, with its position and values.
    pub fn validate(&self) -> Result<()> {
        self.validate_features()?;
        self.validate_normalization()?;
        self.validate_labels()?;
        graphs::validate(&self.graphs, &self.graph)?;
        self.validate_original_ids()?;
        self.keys.as_ref().map_or(Ok(()), |keys| keys.validate(self.num_nodes()))?;
        self.validate_split()
    }

    /// Checks that original ids, if present, are a permutation of the nodes.
    fn validate_original_ids(&self) -> Result<()> {
        let Some(ids) = &self.original_ids else { return Ok(()) };
        if ids.len() != self.num_nodes() {
            let message = format!("{} original ids for {} nodes", ids.len(), self.num_nodes());
            return Err(Error::invalid(message));
        }
        inverse(ids).map(drop)
    }

    /// Checks that normalization statistics, if present, match the feature columns.
    fn validate_normalization(&self) -> Result<()> {
        self.normalization.as_ref().map_or(Ok(()), |how| how.validate(self.features.dim))
    }

    /// Checks that every node has a finite row.
    fn validate_features(&self) -> Result<()> {
        self.validate_feature_count()?;
        self.features.verify()?;
        let bad = match &self.features.data {
            // Checked when they were written.
            FeatureData::F32(data) if npy::written(data).is_some() => None,
            FeatureData::F16(data) if npy::written(data).is_some() => None,
            FeatureData::F32(data) => position(data, |x| !x.is_finite()),
            FeatureData::F16(data) => position(data, |x| !x.is_finite()),
            // Checked when they were built.
            FeatureData::Csr(_) => None,
        };
        bad.map_or(Ok(()), |i| Err(self.not_finite(i)))
    }

    /// Checks that every node has a row.
    fn validate_feature_count(&self) -> Result<()> {
        let nodes = self.num_nodes();
        if let FeatureData::Csr(rows) = &self.features.data {
            let (found, expected) = ([rows.num_rows(), rows.num_cols()], [nodes, self.features.dim]);
            if found != expected {
                let message = format!("sparse features of shape {found:?}, but {expected:?} is expected");
                return Err(Error::invalid(message));
            }
        }
        let expected = nodes.checked_mul(self.features.dim);
        if Some(self.features.len()) == expected {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "features hold {} values, but {nodes} nodes x {} features are {} values",
            self.features.len(),
            self.features.dim,
            expected.map_or("too many".into(), |n| n.to_string()),
        )))
    }

    /// Error for value `i` of the features, which is not finite.
    fn not_finite(&self, i: usize) -> Error {
        let dim = self.features.dim.max(1);
        Error::invalid(format!("feature {} of node {} is not a finite number", i % dim, i / dim))
    }

    /// Checks that every node has a label within the classes.
    fn validate_labels(&self) -> Result<()> {
        let nodes = self.num_nodes();
        match &self.labels {
            Labels::Single { class, classes } => {
                if class.len() != nodes {
                    return Err(Error::invalid(format!("{} labels for {nodes} nodes", class.len())));
                }
                if let Some(v) = position(class, |&c| c < -1 || c as i64 >= *classes as i64) {
                    return Err(Error::invalid(format!(
                        "the label of node {v} is {}, outside the {classes} classes (-1 means unknown)",
                        class[v]
                    )));
                }
            }
            Labels::Multi { member, classes } => {
                if Some(member.len()) != nodes.checked_mul(*classes) {
                    return Err(Error::invalid(format!(
                        "{} label entries for {nodes} nodes x {classes} classes",
                        member.len()
                    )));
                }
                if let Some(i) = position(member, |&m| m > 1) {
                    return Err(Error::invalid(format!(
                        "label entry {} of node {} is {}: it must be 0 or 1",
                        i % classes,
                        i / classes,
                        member[i]
                    )));
                }
            }
            Labels::Columns { class, columns } => {
                if let Some(fault) = ClassColumn::fault(columns, class, nodes) {
                    return Err(Error::invalid(format!("labels: {fault}")));
                }
            }
            Labels::Values { values, width } => {
                if Some(values.len()) != nodes.checked_mul(*width) {
                    return Err(Error::invalid(format!(
                        "{} values for {nodes} nodes x {width} targets",
                        values.len()
                    )));
                }
                if let Some(i) = position(values, |x| x.is_infinite()) {
                    return Err(Error::invalid(format!(
                        "value {} of node {} is infinite: it must be finite, or NaN if unknown",
                        i % width,
                        i / width
                    )));
                }
            }
        }
        Ok(())
    }

    /// Checks that the parts of the split are ascending, disjoint, labelled and within the graph.
    fn validate_split(&self) -> Result<()> {
        if self.split_is_sound() { Ok(()) } else { self.first_fault_of_split() }
    }

    /// Returns true if [`Dataset::first_fault_of_split`] finds nothing: the same check in parallel,
    /// for large splits.
    fn split_is_sound(&self) -> bool {
        let [train, valid, test] = self.split.parts().map(|(_, ids)| &ids[..]);
        let each = |ids: &[NodeId]| {
            let ascends = pair_position(ids, |id, next| id >= next).is_none();
            ascends
                && ids.last().is_none_or(|&v| (v as usize) < self.num_nodes())
                && position(ids, |&v| !self.labels.is_labelled(v)).is_none()
        };
        let disjoint = |a: &[NodeId], b: &[NodeId]| {
            let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
            position(few, |v| many.binary_search(v).is_ok()).is_none()
        };
        [train, valid, test].into_iter().all(each)
            && disjoint(train, valid)
            && disjoint(train, test)
            && disjoint(valid, test)
    }

    /// Finds the first fault of the split, node by node.
    fn first_fault_of_split(&self) -> Result<()> {
        let nodes = self.num_nodes();
        let mut owner = memory::filled(u8::MAX, nodes)?;
        let parts = self.split.parts();
        for (which, (part, ids)) in parts.iter().enumerate() {
            for (i, &v) in ids.iter().enumerate() {
                if v as usize >= nodes {
                    return Err(Error::invalid(format!(
                        "{part}[{i}] is node {v}, but there are {nodes} nodes"
                    )));
                }
                let earlier = owner[v as usize];
                if earlier != u8::MAX {
                    return Err(Error::invalid(format!(
                        "node {v} is in '{part}' and in '{}': the parts of a split are disjoint",
                        parts[earlier as usize].0
                    )));
                }
                if i > 0 && ids[i - 1] >= v {
                    return Err(Error::invalid(format!("{part}[{i}] = {v} does not ascend")));
                }
                if !self.labels.is_labelled(v) {
                    return Err(no_label(v, part));
                }
                owner[v as usize] = which as u8;
            }
        }
        Ok(())
    }
}

/// Error for node `v` in the part `part` of the split without a label.
pub(crate) fn no_label(v: NodeId, part: &str) -> Error {
    Error::invalid(format!("node {v} is in '{part}' but has no label; label it or remove it from '{part}'"))
}

impl fmt::Display for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} nodes, {} edges, {} features, {} {}, split {}/{}/{}",
            self.name,
            self.num_nodes(),
            self.graph.num_edges(),
            self.features.dim,
            self.labels.classes(),
            match &self.labels {
                Labels::Values { width: 1, .. } => "target",
                Labels::Values { .. } => "targets",
                Labels::Multi { .. } => "classes (multi-label)",
                Labels::Columns { .. } => "classes (several columns)",
                Labels::Single { .. } => "classes",
            },
            self.split.train.len(),
            self.split.valid.len(),
            self.split.test.len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::{EdgeOptions, build};

    use super::*;

    #[test]
    fn parallel_and_sequential_split_checks_agree() {
        let labels = Labels::Single { class: vec![0, 0, 0, 0, 0, -1].into(), classes: 1 };
        let graph = build(6, &[], &[], EdgeOptions::DIRECTED).unwrap();
        let parts: [&[NodeId]; 9] =
            [&[], &[0], &[1, 2], &[2, 1], &[3, 3], &[4], &[5], &[6], &[0, 1, 2, 3, 4]];
        let mut sound = 0;
        for i in 0..parts.len().pow(3) {
            let part = |digit: u32| parts[i / parts.len().pow(digit) % parts.len()].to_vec().into();
            let [train, valid, test] = [part(0), part(1), part(2)];
            let split = Split { train, valid, test };
            let data = Dataset { graph: graph.clone(), labels: labels.clone(), split, ..Dataset::default() };
            assert_eq!(data.split_is_sound(), data.first_fault_of_split().is_ok(), "{:?}", data.split);
            sound += u32::from(data.split_is_sound());
        }
        assert!(sound > 20);
    }
}
