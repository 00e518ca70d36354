//! Scores and embeddings of nodes of a dataset of several types, from all their neighbours.
//!
//! # Algorithm
//!
//! Nodes are computed in chunks: the sampler `full` draws all neighbours of a chunk for all layers,
//! and the model runs on the blocks.
//!
//! # Source
//!
//! None: minibatch inference with all neighbours.
//!
//! # Cost
//!
//! The sum of the chunks' neighbourhoods: larger chunks share more neighbours.
//!
//! # Memory
//!
//! The rows of one chunk's neighbourhood, in all layers.

use graphmill_core::{
    NodeId,
    progress::{Progress, Quiet},
};
use graphmill_loader::{
    BatchKey,
    typed::{TypedRequest, TypedSampler, TypedSeeds, TypedWorkspace},
};
use graphmill_nn::{
    Matrix, Pass,
    backend::Cpu,
    typed::{TypedActivations, TypedModel},
};

use super::{build, learner::step, task::TypedTask};
use crate::{Result, TrainConfig, inference::Output};

/// Inference on one task. Reuses its buffers between calls.
pub(super) struct TypedInference<'a> {
    task: &'a TypedTask,
    sampler: Box<dyn TypedSampler>,
    chunk: usize,
    /// Width of embeddings.
    hidden: usize,
    watch: &'a dyn Progress,
    workspace: TypedWorkspace,
    memory: TypedSeeds,
    acts: TypedActivations,
}

impl<'a> TypedInference<'a> {
    /// Creates inference by the relations that `sampler` follows.
    ///
    /// # Errors
    /// None in practice.
    pub(super) fn new(config: &TrainConfig, task: &'a TypedTask, sampler: &dyn TypedSampler) -> Result<Self> {
        Ok(Self {
            task,
            sampler: build::full_sampler(config, task, sampler)?,
            chunk: config.eval_chunk,
            hidden: config.hidden,
            watch: &Quiet,
            workspace: TypedWorkspace::new(task.graph.schema()),
            memory: TypedSeeds::default(),
            acts: TypedActivations::default(),
        })
    }

    /// The same inference, which asks `watch` after every chunk whether to go on.
    #[must_use]
    pub(super) fn watched(self, watch: &'a dyn Progress) -> Self {
        Self { watch, ..self }
    }

    /// Computes the rows of distinct `nodes`, in their order.
    ///
    /// # Errors
    /// The model does not fit the task, or `watch` stops the work.
    pub(super) fn run(
        &mut self,
        model: &TypedModel,
        nodes: &[NodeId],
        output: Output,
        out: &mut Matrix,
    ) -> Result<()> {
        rayon::scope(|_| self.compute(model, nodes, output, out))
    }

    fn compute(
        &mut self,
        model: &TypedModel,
        nodes: &[NodeId],
        output: Output,
        out: &mut Matrix,
    ) -> Result<()> {
        let backend = Cpu::default();
        let (task, tables) = (self.task, self.task.tables());
        let outputs = model.target().map_or(0, |target| target.outputs);
        let width = if output == Output::Logits { outputs } else { self.hidden };
        out.resize(nodes.len(), width);
        let mut filled = 0;
        for (number, seeds) in (0..).zip(nodes.chunks(self.chunk.max(1))) {
            let seeds = std::mem::take(&mut self.memory).refill(number, &task.seeds(seeds));
            let key = BatchKey { seed: 0, epoch: 0, batch: number };
            let request = TypedRequest::new(&task.graph, key);
            let batch = self.sampler.sample(&request, &mut self.workspace, seeds)?.extract(&tables)?;
            let pass = Pass { backend: &backend, training: false, key: 0 };
            model.forward(&pass, &step(&batch, task.node_type), &mut self.acts)?;
            let rows = match output {
                Output::Logits => self.acts.logits(),
                Output::Embeddings => self.acts.hidden(),
            };
            let end = filled + rows.num_rows();
            out.view_mut().host()[filled * width..end * width].copy_from_slice(rows.host());
            filled = end;
            self.memory = batch.recycle();
            self.watch.check()?;
        }
        Ok(())
    }
}
