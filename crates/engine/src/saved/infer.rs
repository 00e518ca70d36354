//! Predicted values of nodes.

use std::sync::Arc;

use graphmill_core::{
    ClassColumn, Graph, NodeId,
    progress::{Progress, Quiet},
};
use graphmill_data::Dataset;
use graphmill_loader::{sampler::inference::InferenceNeighbors, weights::SymmetricWeights};
use graphmill_nn::{
    Matrix,
    backend::{Cpu, LossOps},
    model::Model,
    regression::TargetScale,
};
use rayon::prelude::*;

use super::{Kind, SavedRun, check_outputs, numbered};
use crate::{
    Error, Result, build,
    inference::{Inference, Output, select},
    predictions::Values,
    tiers::AllRows,
};

/// A model with its weights, ready to infer on one graph.
pub(super) struct LoadedModel {
    model: Arc<Model>,
    symmetric: Option<Arc<SymmetricWeights>>,
    /// Neighbours of exact inference.
    pub(super) exact: Arc<InferenceNeighbors>,
    backend: Cpu,
    chunk: usize,
    /// Numbers of nodes and edges of the graph, or of the whole one of which it is a part.
    size: [usize; 2],
    /// Scale of the targets, if they are values.
    scale: Option<TargetScale>,
    /// True if a node may have several labels.
    pub(super) multi: bool,
    /// Columns of classes, if a node has a class in each of several.
    pub(super) columns: Vec<ClassColumn>,
}

impl LoadedModel {
    /// Rows of `nodes` on `graph`, from the rows `features` of all its nodes. Values are at the
    /// scale of the targets.
    ///
    /// # Errors
    /// Features cannot be read, or `watch` stops the work.
    pub(super) fn rows(
        &self,
        (graph, features): (&Graph, &AllRows),
        neighbors: &Arc<InferenceNeighbors>,
        nodes: &[NodeId],
        output: Output,
        watch: &dyn Progress,
    ) -> Result<Matrix> {
        let mut rows = Matrix::default();
        let mut inference = self.inference((graph, features), neighbors, watch);
        inference.run(&self.model, nodes, output, &mut rows)?;
        if let Some(scale) = self.scale.as_ref().filter(|_| output == Output::Logits) {
            scale.undo(rows.view_mut().host());
        }
        Ok(rows)
    }

    /// Input rows of the last layer for all nodes, from all their neighbours; `None` if the model
    /// has one layer.
    ///
    /// # Errors
    /// As [`LoadedModel::rows`].
    pub(super) fn below_last(
        &self,
        (graph, features): (&Graph, &AllRows),
        watch: &dyn Progress,
    ) -> Result<Option<Matrix>> {
        self.inference((graph, features), &self.exact, watch).below_last(&self.model)
    }

    /// Exact logits of `nodes` from the rows of [`LoadedModel::below_last`]: those of
    /// [`LoadedModel::rows`], to the bit.
    ///
    /// # Errors
    /// Another rank did not reply.
    pub(super) fn last(
        &self,
        (graph, features): (&Graph, &AllRows),
        below: &Matrix,
        nodes: &[NodeId],
    ) -> Result<Matrix> {
        let mut rows = Matrix::default();
        self.inference((graph, features), &self.exact, &Quiet).last(&self.model, below, nodes, &mut rows)?;
        if let Some(scale) = &self.scale {
            scale.undo(rows.view_mut().host());
        }
        Ok(rows)
    }

    /// Inference on `graph`.
    fn inference<'i>(
        &'i self,
        (graph, features): (&'i Graph, &'i AllRows),
        neighbors: &Arc<InferenceNeighbors>,
        watch: &'i dyn Progress,
    ) -> Inference<'i> {
        Inference::new(graph, features, self.symmetric.as_deref(), &self.backend, self.chunk)
            .with_neighbors(neighbors.clone())
            .part_of(self.size)
            .watched(watch)
    }

    /// The same weights on the graph of `data`, or on the whole graph of `size` of which that is a
    /// part.
    ///
    /// # Errors
    /// The configuration of `run` does not fit the graph.
    #[cfg(feature = "tables")]
    pub(super) fn on(&self, run: &SavedRun, data: &Dataset, size: [usize; 2]) -> Result<Self> {
        Ok(Self { size, ..run.loaded_on(self.model.clone(), data)? })
    }

    /// Number of layers of the model.
    #[cfg(feature = "tables")]
    pub(super) fn num_layers(&self) -> usize {
        self.model.num_layers()
    }

    /// Values of one kind from the rows of [`LoadedModel::rows`], and their number for each node.
    ///
    /// # Errors
    /// A row is not finite.
    pub(super) fn values(&self, kind: Kind, rows: Matrix) -> Result<(usize, Values)> {
        if kind == Kind::Classes && self.predicts_values() {
            return Ok((rows.num_cols(), Values::Values(rows.view().host().to_vec())));
        }
        values(kind, ClassOutputs::new(self.multi, &self.columns), rows)
    }

    /// Returns true if the targets are values.
    pub(super) fn predicts_values(&self) -> bool {
        self.scale.is_some()
    }

    /// The processor, in the precision of the run.
    pub(super) fn backend(&self) -> &Cpu {
        &self.backend
    }

    /// Width of the rows of [`LoadedModel::below_last`]; `None` if the model has one layer.
    pub(super) fn width_below_last(&self) -> Option<usize> {
        let last = self.model.num_layers() - 1;
        (last > 0).then(|| self.model.layer_in_dim(last))
    }

    /// Number of values of each node: classes, labels or targets.
    pub(super) fn num_outputs(&self) -> usize {
        self.model.classes()
    }
}

impl SavedRun {
    /// Loads the model for inference on the graph of `data`.
    ///
    /// # Errors
    /// The weights cannot be read or do not fit the dataset.
    pub(super) fn load(&self, data: &Dataset) -> Result<LoadedModel> {
        self.loaded_on(Arc::new(self.model(data)?), data)
    }

    /// Prepares the weights of `model` for the graph of `data`.
    ///
    /// # Errors
    /// The configuration does not fit the graph.
    fn loaded_on(&self, model: Arc<Model>, data: &Dataset) -> Result<LoadedModel> {
        Ok(LoadedModel {
            symmetric: build::symmetric(&model, data),
            exact: Arc::new(self.blame_config(build::inference_neighbors(&self.config, data))?),
            backend: Cpu { precision: build::precision(&self.config) },
            chunk: self.config.eval_chunk,
            size: [data.graph.num_nodes(), data.graph.num_edges()],
            scale: self.target_scale().cloned(),
            multi: self.origin.as_ref().map_or(data.labels.is_multi(), |origin| origin.dataset.multilabel),
            columns: self.columns().to_vec(),
            model,
        })
    }

    /// Number of values per node, and values of `nodes`, computed from all neighbours in the graph
    /// of `data` and from the rows `features`, of which there is one per node of the graph. Of the
    /// features in `data` only the width counts.
    pub(super) fn infer(
        &self,
        data: &Dataset,
        features: &AllRows,
        nodes: &[NodeId],
        kind: Kind,
        watch: &dyn Progress,
    ) -> Result<(usize, Values)> {
        self.check_kind(kind)?;
        let loaded = self.load(data)?;
        if let Some(propagation) = &self.propagation {
            propagation.check_kind(kind)?;
            let all = self.propagated(propagation, (&loaded, data), features, watch)?;
            return loaded.values(kind, select(&all, nodes));
        }
        let output = if kind == Kind::Embeddings { Output::Embeddings } else { Output::Logits };
        let rows = loaded.rows((&data.graph, features), &loaded.exact, nodes, output, watch);
        loaded.values(kind, self.blame_config(rows)?)
    }
}

impl SavedRun {
    /// Refuses probabilities of a run that predicts values.
    ///
    /// # Errors
    /// Wrong usage: the run has no predictions of this kind.
    pub(crate) fn check_kind(&self, kind: Kind) -> Result<()> {
        if kind == Kind::Probabilities && self.target_scale().is_some() {
            return Err(no_probabilities());
        }
        Ok(())
    }

    /// Values of predictions, as [`values`] returns them; of a run that predicts values these, at
    /// the scale of its targets.
    ///
    /// # Errors
    /// A row is not finite.
    pub(crate) fn values(&self, kind: Kind, multi: bool, mut rows: Matrix) -> Result<(usize, Values)> {
        if kind == Kind::Classes {
            self.undo_scale(&mut rows);
        }
        self.scaled_values(kind, multi, rows)
    }

    /// [`SavedRun::values`] from rows at the scale of the targets.
    ///
    /// # Errors
    /// As for [`SavedRun::values`].
    pub(crate) fn scaled_values(&self, kind: Kind, multi: bool, rows: Matrix) -> Result<(usize, Values)> {
        if kind == Kind::Classes && self.target_scale().is_some() {
            return Ok((rows.num_cols(), Values::Values(rows.view().host().to_vec())));
        }
        values(kind, ClassOutputs::new(multi, self.columns()), rows)
    }

    /// Columns of classes that the run learned; empty unless there are several.
    pub(crate) fn columns(&self) -> &[ClassColumn] {
        self.origin.as_ref().map_or(&[], |origin| &origin.dataset.columns)
    }
}

/// Error of probabilities of values.
pub(crate) fn no_probabilities() -> Error {
    Error::usage("the run predicts values, which have no probabilities; leave out --probabilities")
}

/// Meaning of the outputs of a model of classes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClassOutputs<'a> {
    /// A node has one of the classes.
    One,
    /// A node may have several of them.
    Sets,
    /// A node has one of the classes of each column.
    Columns(&'a [ClassColumn]),
}

impl<'a> ClassOutputs<'a> {
    /// Outputs of sets if `is_multi`, of the `columns` if there are some, or of one class.
    pub(crate) fn new(is_multi: bool, columns: &'a [ClassColumn]) -> Self {
        match columns {
            [] if is_multi => Self::Sets,
            [] => Self::One,
            columns => Self::Columns(columns),
        }
    }

    /// Replaces logits by probabilities.
    pub(crate) fn probabilities(self, backend: &Cpu, rows: &mut Matrix) {
        let columns = match self {
            Self::One => return backend.softmax(rows.view_mut()),
            Self::Sets => return backend.sigmoid(rows.view_mut()),
            Self::Columns(columns) => columns,
        };
        let (count, width) = (rows.num_rows(), rows.num_cols());
        for range in ClassColumn::ranges(columns) {
            let all = rows.view_mut().host();
            let own: Vec<f32> =
                all.chunks_exact(width).flat_map(|row| &row[range.clone()]).copied().collect();
            let mut own = Matrix::from_slice(count, range.len(), &own);
            backend.softmax(own.view_mut());
            let own = own.view().host().chunks_exact(range.len());
            all.chunks_exact_mut(width)
                .zip(own)
                .for_each(|(row, own)| row[range.clone()].copy_from_slice(own));
        }
    }
}

/// Values of predictions, and their number for each node, from the rows that inference returns.
///
/// # Errors
/// A row is not finite: its largest logit, or its probabilities, would mean nothing.
pub(crate) fn values(kind: Kind, of: ClassOutputs, mut rows: Matrix) -> Result<(usize, Values)> {
    let cols = rows.num_cols();
    check_outputs(rows.view().host(), cols, numbered)?;
    if kind == Kind::Probabilities {
        of.probabilities(&Cpu::default(), &mut rows);
    }
    let all = rows.view().host();
    Ok(match kind {
        Kind::Classes => match of {
            ClassOutputs::One => {
                (1, Values::Classes(all.par_chunks_exact(cols).map(first_largest).collect()))
            }
            ClassOutputs::Sets => {
                (cols, Values::Members(all.par_iter().map(|&x| u8::from(x > 0.0)).collect()))
            }
            ClassOutputs::Columns(columns) => {
                let largest = |row: &[f32]| -> Vec<i64> {
                    ClassColumn::ranges(columns).map(|range| first_largest(&row[range])).collect()
                };
                let classes = all.par_chunks_exact(cols).flat_map_iter(largest).collect();
                (columns.len(), Values::Classes(classes))
            }
        },
        Kind::Probabilities => (cols, Values::Probabilities(all.to_vec())),
        Kind::Embeddings => (cols, Values::Embeddings(all.to_vec())),
    })
}

/// Index of the first of the largest logits.
pub(crate) fn first_largest(logits: &[f32]) -> i64 {
    let mut best = 0;
    for (class, &x) in logits.iter().enumerate() {
        if x > logits[best] {
            best = class;
        }
    }
    best as i64
}
