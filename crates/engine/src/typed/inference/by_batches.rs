//! Rows of nodes from whole neighbourhoods, which are sampled as batches.

use graphmill_core::NodeId;
use graphmill_loader::typed::TypedRequest;
use graphmill_nn::{
    Matrix,
    typed::{TypedModel, TypedStep},
};

use super::{
    super::{
        computing::{layer_bytes, rows_bytes},
        counts::work_of,
        learner::step,
        tables::borrowed,
    },
    TypedInference,
};
use crate::{Result, config::Work, inference::Output};

impl TypedInference<'_> {
    /// Rows of nodes of type `t` from whole neighbourhoods: `output` of a model with scores, or the
    /// rows of the last layer. Rows of inner layers belong to one chunk, whose neighbourhood is
    /// computed as a batch. Random draws have the same key in all chunks, so rows do not depend on
    /// their number. A node may occur at each of several `times`; empty if the nodes have none.
    pub(super) fn compute_by_batches(
        &mut self,
        model: &TypedModel,
        (t, nodes, times): (usize, &[NodeId], &[i64]),
        output: Option<Output>,
        out: &mut Matrix,
    ) -> Result<()> {
        self.begin(None)?;
        let tables = borrowed(&self.tables);
        let (total, mut filled) = (nodes.len(), 0);
        for (number, nodes) in (0..).zip(nodes.chunks(self.chunk)) {
            let Some((sampler, key)) = self.samplers.by_batches() else { break };
            let mut lists: Vec<&[NodeId]> = vec![&[]; self.task.graph.schema().num_types()];
            lists[t] = nodes;
            let mut seeds = std::mem::take(&mut self.memory).refill(number, &lists);
            if !times.is_empty() {
                seeds.times = vec![Vec::new(); lists.len()];
                seeds.times[t] = times[filled..filled + nodes.len()].to_vec();
            }
            let aggregation = model.aggregation();
            let request = TypedRequest { aggregation, ..self.task.request(key) };
            let batch = sampler.sample(&request, &mut self.workspace, seeds)?;
            self.work += batch.blocks.iter().map(work_of).sum::<Work>();
            let mut batch = batch.extract(&tables)?.with_edges(&borrowed(&self.task.edges))?;
            if let Some(labels) = &self.labels {
                let t = self.task.node_type;
                labels.append_all(&batch.sampled.input_nodes[t], &mut batch.features[t]);
            }
            let features: f64 = batch.features.iter().map(|x| rows_bytes(x.num_rows(), x.num_cols())).sum();
            let layers = batch.sampled.blocks.iter().map(|block| layer_bytes(block, self.widths[1]));
            let pass = self.computing.pass(features + layers.sum::<f64>());
            let num_targets = if output.is_some() { nodes.len() } else { 0 };
            model.forward(&pass, &TypedStep { num_targets, ..step(&batch, t) }, &mut self.acts)?;
            let rows = match output {
                Some(Output::Logits) => self.acts.logits(),
                Some(Output::Embeddings) => self.acts.hidden(),
                None => self.acts.rows(t).rows(0..nodes.len()),
            };
            if filled == 0 {
                out.resize(total, rows.num_cols());
            }
            self.computing.rows().copy(rows, out.rows_mut(filled..filled + nodes.len()));
            filled += nodes.len();
            self.memory = batch.recycle();
            self.watch.check()?;
        }
        Ok(())
    }

    /// [`TypedInference::embed`] of the nodes of each type that `all` lists, each at its time. A
    /// node may occur at several times.
    ///
    /// # Errors
    /// As for [`TypedInference::run`]; the task has no times.
    pub(in crate::typed) fn embed_at(
        &mut self,
        model: &TypedModel,
        (all, times): (&[Vec<NodeId>], &[Vec<i64>]),
        out: &mut Matrix,
    ) -> Result<()> {
        self.work = Work::default();
        if self.samplers.by_batches().is_none() {
            return Err(graphmill_core::Error::invalid("rows at times of a graph without times").into());
        }
        rayon::scope(|_| self.embed_by_batches(model, (all, times), out))?;
        self.computing.check()
    }

    /// Embeddings of the nodes of each type from whole neighbourhoods, at the time of each if
    /// `times` has a list for each type.
    pub(super) fn embed_by_batches(
        &mut self,
        model: &TypedModel,
        (all, times): (&[Vec<NodeId>], &[Vec<i64>]),
        out: &mut Matrix,
    ) -> Result<()> {
        let (mut rows, mut filled) = (Matrix::default(), 0);
        for (t, nodes) in all.iter().enumerate().filter(|(_, nodes)| !nodes.is_empty()) {
            let times = times.get(t).map_or(&[][..], Vec::as_slice);
            self.compute_by_batches(model, (t, nodes, times), None, &mut rows)?;
            if filled == 0 {
                out.resize(all.iter().map(Vec::len).sum(), rows.num_cols());
            }
            let backend = self.computing.rows();
            backend.copy(rows.view(), out.rows_mut(filled..filled + rows.num_rows()));
            filled += rows.num_rows();
        }
        Ok(())
    }
}
