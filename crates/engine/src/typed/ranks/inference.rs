//! Scores from all neighbours over ranks.
//!
//! # Algorithm
//!
//! Layer by layer: each rank computes each layer's rows of its own nodes, of the types that the
//! layers above read, and fetches the rows of their remote neighbours from the owners, chunk by
//! chunk, as feature rows. The last layer computes the rows of the wanted nodes alone. An owner has
//! all neighbours of its nodes, so no draws pass between ranks, unless walks or times decide which
//! nodes are neighbours: then whole neighbourhoods are drawn as batches. A rank that learns links
//! has the neighbours of all nodes.
//!
//! # Source
//!
//! As for one process ([`super::super::inference`]).
//!
//! # Cost
//!
//! That of one process, divided by the ranks, and the rows between parts in every layer.
//!
//! # Memory
//!
//! Rows of own nodes in two layers, and the neighbourhood of one chunk.

use std::sync::PoisonError;

use graphmill_core::NodeId;
use graphmill_distributed::rows::OwnedAndRemoteRows;
use graphmill_loader::{
    BatchKey, Feature,
    typed::{TypedRequest, TypedSampler, TypedSeeds, TypedWorkspace},
};
use graphmill_nn::{
    Matrix, Pass,
    backend::{Cpu, ops::Gather},
    typed::{TypedActivations, TypedModel, TypedStep},
};

use super::TypedRankView;
use crate::{
    Result, TrainConfig,
    build::processor,
    config::Work,
    inference::NodeSet,
    typed::{
        build,
        counts::work_of,
        inference::append,
        learner::step,
        neighborhoods::{EXACT_SEED, Neighborhoods},
        tables::borrowed,
    },
};

/// Own nodes of a type whose rows are computed.
type Wanted<'n> = (usize, &'n [NodeId]);

/// Inference over the ranks of a view. Reuses its buffers between calls.
pub(in crate::typed) struct RankInference<'a> {
    view: &'a TypedRankView,
    /// The processor, in the precision of the run.
    processor: &'static Cpu,
    /// Samplers of all neighbours, one for each layer from the bottom up, or one of whole
    /// neighbourhoods.
    samplers: Neighborhoods,
    /// Own nodes of each type.
    own: Vec<NodeSet>,
    /// Width of the rows between layers.
    hidden: usize,
    /// Most nodes of a chunk.
    chunk: usize,
    workspace: TypedWorkspace,
    memory: TypedSeeds,
    acts: TypedActivations,
    /// Rows of a chunk's sources, for each type.
    sources: Vec<Matrix>,
    /// Rows of a chunk's edges, for each edge type, if the model reads them.
    edges: Vec<Vec<Matrix>>,
    /// Work of this rank in the last call.
    work: Work,
}

impl<'a> RankInference<'a> {
    /// Creates inference by the relations that `sampler` follows. All ranks call this at the same
    /// time.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(in crate::typed) fn new(
        config: &TrainConfig,
        view: &'a TypedRankView,
        sampler: &dyn TypedSampler,
    ) -> Result<Self> {
        let schema = view.task.graph.schema();
        let own = schema.types().iter().zip(&view.owners);
        let samplers = match build::draws_in_inference(config) {
            true => Neighborhoods::drawn(view.sampler(config)?.into(), EXACT_SEED),
            false => Neighborhoods::exact(config, &view.task, sampler)?,
        };
        let most = match config.batch_size {
            0 => usize::MAX,
            _ if samplers.has_layers() => usize::MAX,
            size => size,
        };
        let chunk = config.eval_chunk.clamp(1, most);
        Ok(Self {
            view,
            processor: processor(config),
            samplers,
            own: own.map(|(node, owners)| NodeSet::of(node.count, owners.own())).collect(),
            hidden: config.hidden,
            chunk,
            workspace: TypedWorkspace::new(schema),
            memory: TypedSeeds::default(),
            acts: TypedActivations::default(),
            sources: Vec::new(),
            edges: Vec::new(),
            work: Work::default(),
        })
    }

    /// Work of this rank in the last [`RankInference::run`].
    pub(in crate::typed) fn work(&self) -> Work {
        self.work
    }

    /// Computes the scores of the nodes `wanted` of the task's type, in their order, the same on
    /// all ranks. All ranks call this with the same arguments.
    ///
    /// # Errors
    /// A rank did not take part, or features cannot be read.
    pub(in crate::typed) fn run(
        &mut self,
        model: &TypedModel,
        wanted: &[NodeId],
        out: &mut Matrix,
    ) -> Result<()> {
        self.work = Work::default();
        let view = self.view;
        let pass = Pass { backend: self.processor, training: false, key: 0 };
        let owners = view.of_seeds();
        let mut few: Vec<NodeId> = wanted.iter().copied().filter(|&v| owners.is_own(v)).collect();
        let num_wanted = few.len();
        few.sort_unstable();
        few.dedup();
        let few = NodeSet::of(owners.num_nodes(), few.into_iter());
        let mut mine: Vec<NodeId> = Vec::with_capacity(num_wanted);
        mine.extend(wanted.iter().filter(|&&v| owners.is_own(v)));
        few.number(&mut mine);
        let of_type = (view.task.node_type, few.ids());
        let scores = match self.samplers.by_batches().is_some() {
            true => self.scores_by_batches(model, &pass, of_type, &mine)?,
            false => self.scores_by_layers(model, &pass, of_type, &mine)?,
        };
        let width = view.task.labels.classes();
        out.resize(wanted.len(), width);
        view.ranks.gather_rows(owners, scores.view().host(), wanted, (out.view_mut().host(), width))
    }

    /// Computes the rows of the last layer for all nodes of the types `types`, by a model without
    /// scores: its embeddings, one type after the other, the same on all ranks. All ranks call this
    /// with the same arguments.
    ///
    /// # Errors
    /// A rank did not take part, or features cannot be read.
    pub(in crate::typed) fn embed(
        &mut self,
        model: &TypedModel,
        types: impl IntoIterator<Item = usize>,
        out: &mut Matrix,
    ) -> Result<()> {
        self.work = Work::default();
        let view = self.view;
        let pass = Pass { backend: self.processor, training: false, key: 0 };
        let own: Vec<(usize, Vec<NodeId>)> =
            types.into_iter().map(|t| (t, self.own[t].ids().to_vec())).collect();
        let wanted: Vec<Wanted> = own.iter().map(|(t, nodes)| (*t, &nodes[..])).collect();
        let rows = match self.samplers.by_batches().is_some() {
            true => self.rows_by_batches(model, &pass, &wanted, self.hidden)?,
            false => self.rows_by_layers(model, &pass, &wanted)?,
        };
        let counts = wanted.iter().map(|(t, _)| view.owners[*t].num_nodes());
        out.resize(counts.sum(), self.hidden);
        let mut first = 0;
        for ((t, _), rows) in wanted.iter().zip(&rows) {
            let owners = &view.owners[*t];
            let all: Vec<NodeId> = (0..owners.num_nodes() as NodeId).collect();
            let to = out.rows_mut(first..first + all.len()).host();
            view.ranks.gather_rows(owners, rows.view().host(), &all, (to, self.hidden))?;
            first += all.len();
        }
        Ok(())
    }

    /// Rows of the last layer for own nodes, layer by layer.
    fn rows_by_layers(&mut self, model: &TypedModel, pass: &Pass, wanted: &[Wanted]) -> Result<Vec<Matrix>> {
        let (view, layers) = (self.view, model.num_layers());
        let types: Vec<usize> = wanted.iter().map(|(t, _)| *t).collect();
        self.input_rows(model, pass, &types)?;
        let mut rows = Vec::with_capacity(wanted.len());
        for l in 0..layers {
            if l + 1 == layers {
                for &(t, nodes) in wanted {
                    rows.push(self.layer_rows(model, pass, l, t, nodes)?);
                }
            } else {
                let read = self.read_by(&types, layers - 1 - l);
                for (t, _) in read.iter().enumerate().filter(|(_, is_read)| **is_read) {
                    let ids = self.own[t].ids().to_vec();
                    let made = self.layer_rows(model, pass, l, t, &ids)?;
                    self.publish(t, l + 1, made);
                }
            }
            // after the barrier no rank reads the layer below, whose table the next layer
            // overwrites
            view.ranks.meet()?;
        }
        Ok(rows)
    }

    /// Scores of the nodes `few[i]` of type `t` for each `i` of `mine`, layer by layer.
    fn scores_by_layers(
        &mut self,
        model: &TypedModel,
        pass: &Pass,
        (t, few): Wanted,
        mine: &[NodeId],
    ) -> Result<Matrix> {
        let rows = self.rows_by_layers(model, pass, &[(t, few)])?.pop().unwrap_or_default();
        let mut scores = Matrix::zeros(mine.len(), self.view.task.labels.classes());
        if model.has_head() {
            let mut x = Matrix::default();
            for (i, ids) in mine.chunks(self.chunk).enumerate() {
                x.resize(ids.len(), rows.num_cols());
                Gather { src: rows.view(), ids, dst: x.view_mut() }.run(pass.backend);
                let of_chunk = model.head_rows(pass, x.view(), &mut self.acts);
                let from = i * self.chunk;
                pass.backend.copy(of_chunk, scores.rows_mut(from..from + ids.len()));
            }
        } else if !mine.is_empty() {
            Gather { src: rows.view(), ids: mine, dst: scores.view_mut() }.run(pass.backend);
        }
        Ok(scores)
    }

    /// Scores as [`RankInference::scores_by_layers`], from whole neighbourhoods.
    fn scores_by_batches(
        &mut self,
        model: &TypedModel,
        pass: &Pass,
        of_type: Wanted,
        mine: &[NodeId],
    ) -> Result<Matrix> {
        let width = self.view.task.labels.classes();
        let rows = self.rows_by_batches(model, pass, &[of_type], width)?.pop().unwrap_or_default();
        let mut scores = Matrix::zeros(mine.len(), width);
        if !mine.is_empty() {
            Gather { src: rows.view(), ids: mine, dst: scores.view_mut() }.run(pass.backend);
        }
        Ok(scores)
    }

    /// Scores of own nodes, or rows of the last layer of a model without scores, of `width` values,
    /// from whole neighbourhoods: rows of inner layers depend on the time of the node that is
    /// scored, or on its walks. Owners send neighbours, the rows of nodes and edges, and learned
    /// rows.
    fn rows_by_batches(
        &mut self,
        model: &TypedModel,
        pass: &Pass,
        wanted: &[Wanted],
        width: usize,
    ) -> Result<Vec<Matrix>> {
        let view = self.view;
        for (t, learned) in model.learned_rows() {
            let own: Vec<NodeId> = (0..view.owners[t].num_own() as NodeId).collect();
            let mut rows = Matrix::default();
            learned.gather(&own, &mut rows)?;
            self.publish(t, 0, rows);
        }
        // no rank reads learned rows before all have published theirs; no rank changes them before
        // all have sent their scores
        view.ranks.meet()?;
        let learned = model.learned_rows().map(|(t, _)| (t, view.layer(t, 0, self.hidden).1));
        let learned: Vec<(usize, OwnedAndRemoteRows)> = learned.collect();
        let mut tables = borrowed(&view.tables);
        learned.iter().for_each(|(t, rows)| tables[*t] = Some(rows));
        let edges = borrowed(&view.edges.all);
        let mut all = Vec::with_capacity(wanted.len());
        for &(t, nodes) in wanted {
            let mut rows = Matrix::zeros(nodes.len(), width);
            let mut lists: Vec<&[NodeId]> = vec![&[]; self.own.len()];
            for (number, nodes) in nodes.chunks(self.chunk).enumerate() {
                let Some((sampler, key)) = self.samplers.by_batches() else { break };
                lists[t] = nodes;
                let seeds = std::mem::take(&mut self.memory).refill(number as u64, &lists);
                let request = TypedRequest { aggregation: model.aggregation(), ..view.task.request(key) };
                let batch = sampler.sample(&request, &mut self.workspace, seeds)?;
                self.work += batch.blocks.iter().map(work_of).sum::<Work>();
                let batch = batch.extract(&tables)?.with_edges(&edges)?;
                let is_scored = model.target().is_some();
                let num_targets = if is_scored { nodes.len() } else { 0 };
                model.forward(pass, &TypedStep { num_targets, ..step(&batch, t) }, &mut self.acts)?;
                let made = match is_scored {
                    true => self.acts.logits(),
                    false => self.acts.rows(t).rows(0..nodes.len()),
                };
                let from = number * self.chunk;
                pass.backend.copy(made, rows.rows_mut(from..from + nodes.len()));
                self.memory = batch.recycle();
            }
            all.push(rows);
        }
        Ok(all)
    }

    /// Types whose rows the layers above read for nodes of `types`, if there are `above` of them.
    fn read_by(&self, types: &[usize], above: usize) -> Vec<bool> {
        let (task, samplers) = (&self.view.task, self.samplers.layers());
        let follows = |hop: usize, r: usize| {
            // a hop next to the seeds is that of the last layer
            samplers[samplers.len() - 1 - hop].follows(task.graph.schema(), 0, r)
        };
        task.graph.schema().reached(types, above, follows)
    }

    /// Publishes the input rows of own nodes of the types that the first layer reads for nodes of
    /// `types`.
    fn input_rows(&mut self, model: &TypedModel, pass: &Pass, types: &[usize]) -> Result<()> {
        let (mut features, mut rows) = (Matrix::default(), Matrix::default());
        let read = self.read_by(types, self.samplers.layers().len());
        for (t, _) in read.iter().enumerate().filter(|(_, is_read)| **is_read) {
            let (ids, mut filled) = (self.own[t].ids(), 0);
            let count = ids.len();
            let mut all = Matrix::zeros(count, self.hidden);
            for ids in ids.chunks(self.chunk) {
                if let Some(table) = &self.view.tables[t] {
                    table.gather(ids, &mut features)?;
                } else if let Some((_, learned)) = model.learned_rows().find(|(of, _)| *of == t) {
                    let owners = &self.view.owners[t];
                    let places: Vec<NodeId> = ids.iter().map(|&v| owners.place(v)).collect();
                    learned.gather(&places, &mut features)?;
                }
                model.input_rows(pass, t, &features, ids, &mut rows)?;
                append(pass.backend, &mut all, count, &mut filled, &rows);
            }
            self.publish(t, 0, all);
        }
        self.view.ranks.meet()
    }

    /// Rows of layer `l` for `nodes` of type `t`, of this rank.
    fn layer_rows(
        &mut self,
        model: &TypedModel,
        pass: &Pass,
        l: usize,
        t: usize,
        nodes: &[NodeId],
    ) -> Result<Matrix> {
        let (view, types) = (self.view, self.own.len());
        let tables = borrowed(&view.edges.own);
        let below: Vec<_> = (0..types).map(|t| view.layer(t, l, self.hidden).1).collect();
        let mut lists: Vec<&[NodeId]> = vec![&[]; types];
        let (mut all, mut filled) = (Matrix::zeros(0, self.hidden), 0);
        for (number, ids) in nodes.chunks(self.chunk).enumerate() {
            lists[t] = ids;
            let seeds = std::mem::take(&mut self.memory).refill(number as u64, &lists);
            let request = view.task.request(BatchKey { seed: 0, epoch: 0, batch: number as u64 });
            let mut batch = self.samplers.layers()[l].sample(&request, &mut self.workspace, seeds)?;
            self.work += work_of(&batch.blocks[0]);
            self.sources.resize_with(types, Matrix::default);
            for ((x, ids), below) in self.sources.iter_mut().zip(&batch.input_nodes).zip(&below) {
                match ids.is_empty() {
                    true => x.resize(0, self.hidden),
                    false => drop(below.gather(ids, x)?),
                }
            }
            if !tables.is_empty() {
                batch.extract_edges(&tables, &mut self.edges)?;
            }
            let inputs = [&self.sources[..], self.edges.first().map_or(&[][..], Vec::as_slice)];
            let rows = model.layer_rows(pass, l, &batch.blocks[0], inputs, &mut self.acts)?;
            append(pass.backend, &mut all, nodes.len(), &mut filled, &rows[t]);
            self.memory = batch.recycle();
        }
        Ok(all)
    }

    /// Makes `rows` the own rows of type `t` below layer `l`.
    fn publish(&self, t: usize, l: usize, rows: Matrix) {
        let (table, _) = self.view.layer(t, l, self.hidden);
        *table.write().unwrap_or_else(PoisonError::into_inner) = rows;
    }
}
