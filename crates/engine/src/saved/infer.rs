//! Predicted values of nodes.

use graphmill_core::{NodeId, progress::Progress};
use graphmill_data::Dataset;
use graphmill_nn::{
    Matrix,
    backend::{Cpu, LossOps},
};
use rayon::prelude::*;

use super::{Kind, SavedRun};
use crate::{
    Error, Result, build,
    inference::{Inference, Output},
    predictions::Values,
    tiers::AllRows,
};

impl SavedRun {
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
        if kind == Kind::Probabilities && self.target_scale().is_some() {
            let message = "the run predicts values, which have no probabilities; leave out --probabilities";
            return Err(Error::usage(message));
        }
        let model = self.model(data)?;
        let multi = self.origin.as_ref().map_or(data.labels.is_multi(), |origin| origin.dataset.multilabel);
        let output = if kind == Kind::Embeddings { Output::Embeddings } else { Output::Logits };
        let backend = Cpu { precision: build::precision(&self.config) };
        let symmetric = build::symmetric(&model, data);
        let mut rows = Matrix::default();
        let mut inference =
            Inference::new(&data.graph, features, symmetric.as_deref(), &backend, self.config.eval_chunk)
                .with_neighbors(self.blame_config(build::inference_neighbors(&self.config, data))?)
                .watched(watch);
        self.blame_config(inference.run(&model, nodes, output, &mut rows))?;
        if kind == Kind::Classes && self.target_scale().is_some() {
            self.undo_scale(&mut rows);
            return Ok((rows.num_cols(), Values::Values(rows.view().host().to_vec())));
        }
        Ok(values(kind, multi, rows))
    }
}

/// Values of predictions, and their number for each node, from the rows that inference returns.
pub(crate) fn values(kind: Kind, multi: bool, mut rows: Matrix) -> (usize, Values) {
    let (backend, cols) = (Cpu::default(), rows.num_cols());
    if kind == Kind::Probabilities {
        if multi { backend.sigmoid(rows.view_mut()) } else { backend.softmax(rows.view_mut()) }
    }
    let all = rows.view().host();
    match kind {
        Kind::Classes if multi => {
            (cols, Values::Members(all.par_iter().map(|&x| u8::from(x > 0.0)).collect()))
        }
        Kind::Classes => (1, Values::Classes(all.par_chunks_exact(cols).map(first_largest).collect())),
        Kind::Probabilities => (cols, Values::Probabilities(all.to_vec())),
        Kind::Embeddings => (cols, Values::Embeddings(all.to_vec())),
    }
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
