//! Scores and embeddings of nodes of a dataset of several types, from all their neighbours.
//!
//! # Algorithm
//!
//! As for one type ([`crate::inference`]): layer by layer, in chunks of nodes, and each layer only
//! for the nodes of each type that the layers above it need. A chunk holds nodes of one type. Its
//! block has all their neighbours by every relation that training follows in that layer.
//!
//! # Source
//!
//! Hamilton, Ying and Leskovec, *Inductive Representation Learning on Large Graphs*, NeurIPS 2017,
//! algorithm 1 (all nodes, layer by layer).
//!
//! # Cost
//!
//! O(L (E + V)) row operations.
//!
//! # Memory
//!
//! Input and output rows of one layer for the needed nodes of all types, in files if the learned
//! rows are, and the neighbourhood of one chunk. Features are read chunk by chunk, those of edges
//! in the order of their destinations. A device takes the chunks that fit in its memory
//! ([`computing`](super::computing)).

mod by_batches;

use std::sync::Arc;

use graphmill_core::{
    NodeId,
    progress::{Progress, Quiet},
    typed::NodeType,
};
use graphmill_loader::{
    BatchKey,
    typed::{TypedSampler, TypedSeeds, TypedWorkspace},
};
use graphmill_nn::{
    Backend, Matrix,
    backend::ops::Gather,
    layer::GatOptions,
    typed::{TypedActivations, TypedModel},
};

use super::{
    computing::{Computing, InferenceDevice, layer_bytes, rows_bytes},
    counts::work_of,
    neighborhoods::Neighborhoods,
    tables::{Tables, borrowed},
    task::TypedTask,
};
use crate::{
    Result, TrainConfig,
    build::processor,
    config::Work,
    inference::{Added, NodeSet, Output},
    label_inputs::LabelColumns,
};

/// Inference on one task. Reuses its buffers between calls.
pub(super) struct TypedInference<'a> {
    task: &'a TypedTask,
    /// Feature table of each type.
    tables: Tables,
    samplers: Arc<Neighborhoods>,
    /// Ids of the nodes of each type in the tables, if they differ from those in the graph.
    ids: Option<&'a [Vec<NodeId>]>,
    /// Labels that follow the feature rows of the task's type, if the model reads some.
    labels: Option<LabelColumns>,
    /// Most nodes of a chunk.
    chunk: usize,
    computing: Computing<'a>,
    /// Width of the rows between layers, and of the widest rows of a layer.
    widths: [usize; 2],
    watch: &'a dyn Progress,
    workspace: TypedWorkspace,
    memory: TypedSeeds,
    acts: TypedActivations,
    /// Rows of a chunk's sources, for each type.
    sources: Vec<Matrix>,
    /// Rows of a chunk's edges, for each edge type, if the model reads them.
    edges: Vec<Vec<Matrix>>,
    /// Work of the last call.
    work: Work,
}

/// Nodes of each type, and their rows in ascending order of the nodes.
pub(super) struct Level {
    nodes: Vec<NodeSet>,
    rows: Vec<Matrix>,
}

impl<'a> TypedInference<'a> {
    /// Creates inference by the relations that `sampler` follows, on the rows of `tables`.
    ///
    /// # Errors
    /// None in practice.
    pub(super) fn new(
        config: &TrainConfig,
        task: &'a TypedTask,
        sampler: &dyn TypedSampler,
        tables: Tables,
    ) -> Result<Self> {
        let samplers = Neighborhoods::exact(config, task, sampler)?;
        Ok(Self::by(config, task, Arc::new(samplers), tables))
    }

    /// Creates inference from the neighbours of `samplers`, on the rows of `tables`.
    pub(super) fn by(
        config: &TrainConfig,
        task: &'a TypedTask,
        samplers: Arc<Neighborhoods>,
        tables: Tables,
    ) -> Self {
        let most = match config.batch_size {
            0 => usize::MAX,
            _ if samplers.has_layers() => usize::MAX,
            size => size,
        };
        let of_edges = task.edges.iter().flatten().map(|table| table.dim()).max().unwrap_or(0);
        let scores = task.labels.classes() * config.own.get::<GatOptions>().out_heads;
        Self {
            task,
            tables,
            samplers,
            ids: None,
            labels: task.label_columns.clone(),
            chunk: config.eval_chunk.clamp(1, most),
            computing: Computing::new(processor(config)),
            widths: [config.hidden, config.hidden.max(scores).max(of_edges)],
            watch: &Quiet,
            workspace: TypedWorkspace::new(task.graph.schema()),
            memory: TypedSeeds::default(),
            acts: TypedActivations::default(),
            sources: Vec::new(),
            edges: Vec::new(),
            work: Work::default(),
        }
    }

    /// Work of the last [`TypedInference::run`] or [`TypedInference::embed_nodes`].
    pub(super) fn work(&self) -> Work {
        self.work
    }

    /// The same inference, which asks `watch` after every chunk whether to go on.
    #[must_use]
    pub(super) fn watched(self, watch: &'a dyn Progress) -> Self {
        Self { watch, ..self }
    }

    /// The same inference, whose layers run on the device, if there is one.
    #[must_use]
    pub(super) fn on(self, device: Option<&'a dyn InferenceDevice>) -> Self {
        Self { computing: self.computing.on(device), ..self }
    }

    /// Note about chunks that do not fit in the device's memory, once.
    pub(super) fn note(&mut self) -> Option<String> {
        self.computing.note()
    }

    /// Hides all labels from the model, or shows those of the training nodes.
    pub(super) fn hide_labels(&mut self, hide: bool) {
        let labels = self.task.label_columns.as_ref();
        self.labels = labels.map(|labels| if hide { labels.hidden() } else { labels.clone() });
    }

    /// The same inference on a part of a graph, whose nodes of each type have these ids in the
    /// tables. It reads them layer by layer only.
    #[must_use]
    #[cfg(feature = "tables")]
    pub(super) fn numbered(self, ids: Option<&'a [Vec<NodeId>]>) -> Self {
        Self { ids, ..self }
    }

    /// Computes the rows of distinct `nodes` of the task's type, in their order.
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
        self.work = Work::default();
        rayon::scope(|_| match self.samplers.by_batches() {
            Some(_) => self.compute_by_batches(model, (self.task.node_type, nodes, &[]), Some(output), out),
            None => self.compute(model, nodes, output, out),
        })?;
        self.computing.check()
    }

    /// Frees the device's memory of an earlier call, and measures what is free for rows between
    /// layers of `between` bytes.
    fn begin(&mut self, between: Option<f64>) -> Result<()> {
        if self.computing.has_device() {
            self.acts = TypedActivations::default();
            self.sources.clear();
            self.edges.clear();
        }
        self.computing.begin(between)
    }

    /// Input rows of the last layer for all nodes of the types that it reads, so that
    /// [`TypedInference::last`] reads one hop.
    ///
    /// # Errors
    /// As for [`TypedInference::run`].
    ///
    /// # Panics
    /// Neighbourhoods are sampled as batches, or the model has one layer.
    pub(super) fn below_last(&mut self, model: &TypedModel) -> Result<Level> {
        let (below, schema) = (model.num_layers() - 1, self.task.graph.schema());
        let read = self.samplers.last_reads(schema, self.task.node_type);
        let all = |(t, node): (usize, &NodeType)| -> Vec<NodeId> {
            if read[t] { (0..node.count as NodeId).collect() } else { Vec::new() }
        };
        let lists: Vec<Vec<NodeId>> = schema.types().iter().enumerate().map(all).collect();
        let lists: Vec<&[NodeId]> = lists.iter().map(Vec::as_slice).collect();
        rayon::scope(|_| self.level(model, &lists, below))
    }

    /// Scores of distinct `nodes` of the task's type from the rows of
    /// [`TypedInference::below_last`]: those of [`TypedInference::run`], to the bit.
    ///
    /// # Errors
    /// As for [`TypedInference::run`].
    pub(super) fn last(
        &mut self,
        model: &TypedModel,
        below: &Level,
        nodes: &[NodeId],
        out: &mut Matrix,
    ) -> Result<()> {
        rayon::scope(|_| {
            let sets = self.needed(&self.task.seeds(nodes), 0).swap_remove(0);
            let level = self.layer_level(model, model.num_layers() - 1, below, sets)?;
            self.finish(model, &level, (nodes, Output::Logits), out)
        })
    }

    fn compute(
        &mut self,
        model: &TypedModel,
        nodes: &[NodeId],
        output: Output,
        out: &mut Matrix,
    ) -> Result<()> {
        // without a head, the last layer computes the scores, and its own input is the embedding
        let scored = output == Output::Logits || model.has_head();
        let layers = model.num_layers() - usize::from(!scored);
        let level = self.level(model, &self.task.seeds(nodes), layers)?;
        self.finish(model, &level, (nodes, output), out)
    }

    /// Writes the rows of `nodes` of the task's type in the uppermost level, or their scores.
    fn finish(
        &mut self,
        model: &TypedModel,
        level: &Level,
        (nodes, output): (&[NodeId], Output),
        out: &mut Matrix,
    ) -> Result<()> {
        let (backend, t) = (self.computing.rows(), self.task.node_type);
        let mut ids = nodes.to_vec();
        level.nodes[t].number(&mut ids);
        let rows = &level.rows[t];
        if output == Output::Embeddings || !model.has_head() {
            out.resize(ids.len(), rows.num_cols());
            Gather { src: rows.view(), ids: &ids, dst: out.view_mut() }.run(backend);
            return Ok(());
        }
        let (mut x, mut filled) = (Matrix::default(), 0);
        for ids in ids.chunks(self.chunk) {
            x.resize(ids.len(), rows.num_cols());
            Gather { src: rows.view(), ids, dst: x.view_mut() }.run(backend);
            let pass = self.computing.pass(rows_bytes(ids.len(), 4 * self.widths[1]));
            let scores = model.head_rows(&pass, x.view(), &mut self.acts);
            if filled == 0 {
                out.resize(nodes.len(), scores.num_cols());
            }
            backend.copy(scores, out.rows_mut(filled..filled + ids.len()));
            filled += ids.len();
            self.watch.check()?;
        }
        Ok(())
    }

    /// Computes the rows of all layers for all nodes of the types `types`, by a model without
    /// scores: its embeddings, one type after the other.
    ///
    /// # Errors
    /// As for [`TypedInference::run`].
    pub(super) fn embed(
        &mut self,
        model: &TypedModel,
        types: impl IntoIterator<Item = usize>,
        out: &mut Matrix,
    ) -> Result<()> {
        let schema = self.task.graph.schema();
        let mut all = vec![Vec::new(); schema.num_types()];
        types.into_iter().for_each(|t| all[t] = (0..schema.types()[t].count as NodeId).collect());
        self.embed_nodes(model, &all, out)
    }

    /// [`TypedInference::embed`] of the nodes of each type that `all` lists.
    ///
    /// # Errors
    /// As for [`TypedInference::run`].
    pub(super) fn embed_nodes(
        &mut self,
        model: &TypedModel,
        all: &[Vec<NodeId>],
        out: &mut Matrix,
    ) -> Result<()> {
        self.work = Work::default();
        if self.samplers.by_batches().is_some() {
            rayon::scope(|_| self.embed_by_batches(model, (all, &[]), out))?;
            return self.computing.check();
        }
        rayon::scope(|_| -> Result<()> {
            let lists: Vec<&[NodeId]> = all.iter().map(Vec::as_slice).collect();
            let level = self.level(model, &lists, model.num_layers())?;
            let backend = self.computing.rows();
            let width = level.rows.iter().map(Matrix::num_cols).max().unwrap_or(0);
            let count: usize = all.iter().map(Vec::len).sum();
            match self.task.learned_in {
                Some(_) => *out = rows_between(self.task, &self.computing, [count, width])?,
                None => out.resize(count, width),
            }
            let mut filled = 0;
            for rows in level.rows.iter().filter(|rows| rows.num_rows() > 0) {
                backend.copy(rows.view(), out.rows_mut(filled..filled + rows.num_rows()));
                filled += rows.num_rows();
            }
            Ok(())
        })?;
        self.computing.check()
    }

    /// Computes the rows of `layers` layers for the nodes of each type in `lists`.
    fn level(&mut self, model: &TypedModel, lists: &[&[NodeId]], layers: usize) -> Result<Level> {
        let needed = self.needed(lists, layers);
        let rows = |sets: &[NodeSet]| sets.iter().map(NodeSet::len).sum::<usize>();
        let below_and_above = |pair: &[Vec<NodeSet>]| pair.iter().map(|sets| rows(sets)).sum::<usize>();
        let most = needed.windows(2).map(below_and_above).max().unwrap_or_else(|| rows(&needed[0]));
        self.begin(Some(rows_bytes(most, self.widths[1])))?;
        let mut needed = needed.into_iter();
        let bottom = needed.next().expect("the input of the first layer");
        let mut level = self.input_level(model, bottom)?;
        for (l, nodes) in needed.enumerate() {
            level = self.layer_level(model, l, &level, nodes)?;
        }
        Ok(level)
    }

    /// Nodes of each type that each of `layers` layers reads, from the bottom up, and last those of
    /// `lists`.
    fn needed(&self, lists: &[&[NodeId]], layers: usize) -> Vec<Vec<NodeSet>> {
        let (graph, schema) = (&self.task.graph, self.task.graph.schema());
        let mut added: Vec<Added> = schema.types().iter().map(|node| Added::new(node.count)).collect();
        for (added, nodes) in added.iter_mut().zip(lists) {
            added.add(nodes.iter().copied());
        }
        let sets = |added: &mut [Added]| added.iter_mut().map(Added::set).collect::<Vec<NodeSet>>();
        let mut needed = vec![sets(&mut added)];
        for sampler in self.samplers.layers()[..layers].iter().rev() {
            let above = &needed[needed.len() - 1];
            for (r, relation) in schema.relations().iter().enumerate() {
                if sampler.follows(schema, 0, r) {
                    let rows = graph.relation(r);
                    added[relation.src].add_rows(above[relation.dst].ids(), |v| rows.in_neighbors(v));
                }
            }
            needed.push(sets(&mut added));
        }
        needed.reverse();
        needed
    }

    /// Input rows of `nodes` of each type.
    fn input_level(&mut self, model: &TypedModel, nodes: Vec<NodeSet>) -> Result<Level> {
        let (mut features, mut rows) = (Matrix::default(), Matrix::default());
        let mut level = Vec::with_capacity(nodes.len());
        for (t, set) in nodes.iter().enumerate() {
            let (mut all, mut filled) = (Matrix::default(), 0);
            for ids in set.ids().chunks(self.chunk) {
                let in_tables = |all: &[Vec<NodeId>]| ids.iter().map(|&v| all[t][v as usize]).collect();
                let in_tables: Option<Vec<NodeId>> = self.ids.map(in_tables);
                let ids = in_tables.as_deref().unwrap_or(ids);
                if let Some(table) = &self.tables[t] {
                    table.gather(ids, &mut features)?;
                }
                if let Some(labels) = self.labels.as_ref().filter(|_| t == self.task.node_type) {
                    labels.append_all(ids, &mut features);
                }
                let width = features.num_cols() + 2 * self.widths[0];
                let pass = self.computing.pass(rows_bytes(ids.len(), width));
                model.input_rows(&pass, t, &features, ids, &mut rows)?;
                if filled == 0 {
                    all = rows_between(self.task, &self.computing, [set.len(), rows.num_cols()])?;
                }
                append(self.computing.rows(), &mut all, set.len(), &mut filled, &rows);
                self.watch.check()?;
            }
            level.push(all);
        }
        Ok(Level { nodes, rows: level })
    }

    /// Rows of layer `l` for `nodes` of each type.
    fn layer_level(
        &mut self,
        model: &TypedModel,
        l: usize,
        below: &Level,
        nodes: Vec<NodeSet>,
    ) -> Result<Level> {
        let tables = borrowed(&self.task.edges);
        let width = below.rows.iter().map(Matrix::num_cols).max().unwrap_or(0);
        let mut lists: Vec<&[NodeId]> = vec![&[]; nodes.len()];
        let mut level = Vec::with_capacity(nodes.len());
        let mut number = 0;
        for (t, set) in nodes.iter().enumerate() {
            let (mut all, mut filled) = (Matrix::default(), 0);
            for ids in set.ids().chunks(self.chunk) {
                lists[t] = ids;
                let seeds = std::mem::take(&mut self.memory).refill(number, &lists);
                let request = self.task.request(BatchKey { seed: 0, epoch: 0, batch: number });
                let mut batch = self.samplers.layers()[l].sample(&request, &mut self.workspace, seeds)?;
                self.work += work_of(&batch.blocks[0]);
                self.sources.resize_with(nodes.len(), Matrix::default);
                for (t, x) in self.sources.iter_mut().enumerate() {
                    let ids = &mut batch.input_nodes[t];
                    below.nodes[t].number(ids);
                    x.resize(ids.len(), width);
                    if !ids.is_empty() {
                        let src = below.rows[t].view();
                        Gather { src, ids, dst: x.view_mut() }.run(self.computing.rows());
                    }
                }
                if !tables.is_empty() {
                    batch.extract_edges(&tables, &mut self.edges)?;
                }
                let inputs = [&self.sources[..], self.edges.first().map_or(&[][..], Vec::as_slice)];
                let pass = self.computing.pass(layer_bytes(&batch.blocks[0], self.widths[1]));
                let rows = model.layer_rows(&pass, l, &batch.blocks[0], inputs, &mut self.acts)?;
                if filled == 0 {
                    all = rows_between(self.task, &self.computing, [set.len(), rows[t].num_cols()])?;
                }
                append(self.computing.rows(), &mut all, set.len(), &mut filled, &rows[t]);
                self.memory = batch.recycle();
                number += 1;
                self.watch.check()?;
            }
            lists[t] = &[];
            level.push(all);
        }
        Ok(Level { nodes, rows: level })
    }
}

/// A matrix of this shape for rows between layers or embeddings: in a file if the learned rows of
/// the task are in files, and no device holds the rows.
fn rows_between(task: &TypedTask, computing: &Computing, [rows, cols]: [usize; 2]) -> Result<Matrix> {
    match &task.learned_in {
        Some(dir) if !computing.holds_rows() => Ok(Matrix::in_file(rows, cols, dir)?),
        _ => {
            let mut matrix = Matrix::default();
            matrix.resize(rows, cols);
            Ok(matrix)
        }
    }
}

/// Appends the rows of a chunk to `all`, which will have `total` rows, of which `filled` are
/// written.
pub(super) fn append(
    backend: &dyn Backend,
    all: &mut Matrix,
    total: usize,
    filled: &mut usize,
    rows: &Matrix,
) {
    let shape = (total, rows.num_cols());
    if *filled == 0 && (all.num_rows(), all.num_cols()) != shape {
        all.resize(shape.0, shape.1);
    }
    let end = *filled + rows.num_rows();
    backend.copy(rows.view(), all.rows_mut(*filled..end));
    *filled = end;
}

#[cfg(test)]
mod tests {
    use graphmill_data::{
        generate::{GenerateOptions, generate_typed},
        typed::FeatureTable,
    };
    use graphmill_loader::typed::{TABLE as SAMPLERS, TypedFanout, TypedOptions};
    use graphmill_nn::{
        Pass,
        backend::{Cpu, ElementOps, Reference},
        typed::TABLE as MODELS,
    };
    use rayon::ThreadPoolBuilder;

    use super::*;
    use crate::typed::{build, learner::step};

    fn config(model: &str, head_layers: usize) -> TrainConfig {
        TrainConfig { model: model.into(), hidden: 8, head_layers, eval_chunk: 7, ..TrainConfig::default() }
    }

    /// Rows of `nodes` from one minibatch with all neighbours: the reference.
    fn of_one_batch(
        task: &TypedTask,
        model: &TypedModel,
        fanout: &TypedFanout,
        nodes: &[NodeId],
    ) -> [Matrix; 2] {
        let options = TypedOptions { fanout: fanout.clone(), ..TypedOptions::default() };
        let sampler = (SAMPLERS.find("full").unwrap().make.make)(&options, &task.graph).unwrap();
        let seeds = TypedSeeds::default().refill(0, &task.seeds(nodes));
        let key = BatchKey { seed: 0, epoch: 0, batch: 0 };
        let mut workspace = TypedWorkspace::new(task.graph.schema());
        let batch = sampler.sample(&task.request(key), &mut workspace, seeds).unwrap();
        let batch = batch.extract(&borrowed(&task.host_tables().unwrap())).unwrap();
        let batch = batch.with_edges(&borrowed(&task.edges)).unwrap();
        let (backend, mut acts) = (Cpu::default(), TypedActivations::default());
        let pass = Pass { backend: &backend, training: false, key: 0 };
        model.forward(&pass, &step(&batch, task.node_type), &mut acts).unwrap();
        [acts.logits(), acts.hidden()].map(|rows| {
            let mut copy = Matrix::default();
            copy.resize(rows.num_rows(), rows.num_cols());
            backend.copy(rows, copy.view_mut());
            copy
        })
    }

    #[test]
    fn rows_layer_by_layer_are_those_of_one_batch_for_any_threads() {
        let options = GenerateOptions { nodes: 300, classes: 3, dim: 5, ..GenerateOptions::default() };
        let mut data = generate_typed("typed", &options).unwrap();
        // all edge types but the first have features
        for (r, edges) in data.edges.iter_mut().enumerate().skip(1) {
            let values: Vec<f32> = (0..edges.num_edges() * r).map(|i| (i * 7 % 13) as f32 - 6.0).collect();
            edges.features = Some(FeatureTable::dense(r, values));
        }
        let task = TypedTask::new(&data, "").unwrap();
        let nodes: Vec<NodeId> = (0..task.num_nodes() as NodeId).rev().step_by(2).collect();
        // the last relation is followed in one layer only
        let schema = task.graph.schema();
        let last = schema.relation_name(schema.num_relations() - 1);
        for (model, head_layers) in MODELS.iter().flat_map(|model| [(model.name, 0), (model.name, 2)]) {
            let mut config = config(model, head_layers);
            config.fanout_by_name = format!("{last}=0,3").parse().unwrap();
            config.fanout = graphmill_loader::Fanout(vec![2, 2]);
            let task = TypedTask::new(&data, "").unwrap().with_edges(&config, &data).unwrap();
            let sampler = build::sampler(&config, &task).unwrap();
            let Ok(model) = build::model(&config, &task) else {
                let can_score = MODELS.find(&config.model).unwrap().make.can_score;
                assert_eq!((can_score, head_layers), (false, 0), "{}", config.model);
                continue;
            };
            let fanout = TypedFanout::new(vec![-1, -1]).with(last.clone(), vec![0, -1]);
            let expected = of_one_batch(&task, &model, &fanout, &nodes);
            for (output, expected) in [Output::Logits, Output::Embeddings].into_iter().zip(&expected) {
                let rows = [1, 3].map(|threads| {
                    let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    let mut rows = Matrix::default();
                    let mut inference =
                        TypedInference::new(&config, &task, &*sampler, task.host_tables().unwrap()).unwrap();
                    pool.install(|| inference.run(&model, &nodes, output, &mut rows)).unwrap();
                    rows
                });
                let [one, three] = [&rows[0], &rows[1]].map(|rows| rows.view().host().to_vec());
                assert!(one.iter().zip(&three).all(|(a, b)| a.to_bits() == b.to_bits()), "{}", config.model);
                assert_eq!(rows[0].num_cols(), expected.num_cols());
                for (a, b) in one.iter().zip(expected.view().host()) {
                    assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{}: {a} {b}", config.model);
                }
            }
        }
    }

    /// A device of other operations with this much free memory.
    struct Other(u64);

    impl InferenceDevice for Other {
        fn backend(&self) -> &dyn Backend {
            &Reference
        }

        fn free(&self) -> Result<u64> {
            Ok(self.0)
        }
    }

    #[test]
    fn a_device_computes_what_fits_and_all_rows_agree() {
        let options = GenerateOptions { nodes: 300, classes: 3, dim: 5, ..GenerateOptions::default() };
        let data = generate_typed("typed", &options).unwrap();
        for (model, sampler) in [("rsage", "neighbor"), ("rgat", "neighbor"), ("rsage", "metapath-walk")] {
            let fanout = graphmill_loader::Fanout(vec![3, 2]);
            let config = TrainConfig { sampler: sampler.into(), fanout, ..config(model, 1) };
            let task = TypedTask::new(&data, "").unwrap().with_edges(&config, &data).unwrap();
            let (sampler, model) =
                (build::sampler(&config, &task).unwrap(), build::model(&config, &task).unwrap());
            let nodes: Vec<NodeId> = (0..task.num_nodes() as NodeId).rev().step_by(3).collect();
            let rows = |device: Option<&dyn InferenceDevice>| {
                let inference =
                    TypedInference::new(&config, &task, &*sampler, task.host_tables().unwrap()).unwrap();
                let (mut inference, mut rows) = (inference.on(device), Matrix::default());
                inference.run(&model, &nodes, Output::Logits, &mut rows).unwrap();
                (rows.view().host().to_vec(), inference.note(), inference.note())
            };
            let (expected, none, _) = rows(None);
            assert!(none.is_none());
            for (free, is_partial) in [(0, Some(true)), (20_000, None), (1 << 40, Some(false))] {
                let (found, note, again) = rows(Some(&Other(free)));
                assert!(
                    is_partial.is_none_or(|part| part == note.is_some()),
                    "{}, {free} bytes: {note:?}",
                    config.model
                );
                assert!(again.is_none(), "a note is reported once");
                for (a, b) in expected.iter().zip(&found) {
                    assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{}, {free}: {a} {b}", config.model);
                }
            }
        }
    }

    #[test]
    fn rows_of_drawn_neighbours_depend_neither_on_chunks_nor_threads() {
        let options = GenerateOptions { nodes: 300, classes: 3, dim: 5, ..GenerateOptions::default() };
        let data = generate_typed("typed", &options).unwrap();
        let nodes: Vec<NodeId> = (0..100).rev().collect();
        let rows = |threads: usize, eval_chunk: usize, batch_size: usize, output: Output| {
            let config = TrainConfig {
                sampler: "metapath-walk".into(),
                fanout: graphmill_loader::Fanout(vec![3, 2]),
                batch_size,
                eval_chunk,
                ..config("rsage", 2)
            };
            let task = TypedTask::new(&data, "").unwrap().with_edges(&config, &data).unwrap();
            let (sampler, model) = (build::sampler(&config, &task), build::model(&config, &task));
            let inference =
                TypedInference::new(&config, &task, &*sampler.unwrap(), task.host_tables().unwrap());
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut rows = Matrix::default();
            pool.install(|| inference.unwrap().run(&model.unwrap(), &nodes, output, &mut rows)).unwrap();
            rows.view().host().to_vec()
        };
        for output in [Output::Logits, Output::Embeddings] {
            let whole = rows(1, 1000, 1000, output);
            assert!(whole.iter().any(|&x| x != 0.0));
            for (threads, chunk, batch_size) in [(3, 1000, 1000), (1, 7, 1000), (2, 1000, 13)] {
                assert_eq!(rows(threads, chunk, batch_size, output), whole, "{threads} {chunk}");
            }
        }
    }
}
