//! Model of a run: rows of nodes from memory and features, attention to neighbours, and the head
//! that scores pairs.
//!
//! # Algorithm
//!
//! The row of a node is its memory (TGN, JODIE) plus its projected features. Each layer attends to
//! the sampled events of a row, with their features and the time since them. JODIE reads no
//! neighbours: it scales the row by the time since the node's last event, in deviations of the
//! times between training events. DyGFormer reads the histories of both ends together
//! ([`graphmill_nn::temporal::DygFormer`]). The head scores a pair by two dense layers over the
//! rows of both ends.
//!
//! # Source
//!
//! Rossi et al., *Temporal graph networks for deep learning on dynamic graphs*, 2020; Xu et al.,
//! *Inductive representation learning on temporal graphs*, ICLR 2020; Kumar, Zhang and Leskovec,
//! *Predicting dynamic embedding trajectory in temporal interaction networks*, KDD 2019.
//!
//! # Cost
//!
//! O(H^2) multiplications per node, event and pair of a batch.
//!
//! # Deviations
//!
//! - Features of nodes are projected to the width of the memory before they are added to it.
//! - Memory and attention have time encodings of their own. Their frequencies stay the papers'
//!   initial values unless `--learn-frequencies` is given (Cong et al., *Do we really need
//!   complicated model architectures for temporal networks?*, ICLR 2023, section 4.2).
//! - All heads together have the width of the embeddings, without that of the time encoding.
//! - JODIE has the form of TGN's authors: one cell for all nodes, messages that wait for a batch,
//!   and the head in the place of a predicted embedding of the next destination.

use graphmill_core::{Block, NodeId, keyed::key, memory};
use graphmill_nn::{
    DistinctNodes, Matrix, Param, Pass, View,
    layer::Linear,
    link::{EdgeHead, EdgeHeadState, EdgePairs},
    temporal::{MemoryState, MemoryUpdater, NodeMemory, TemporalInput, TimeProjection},
};

use super::{
    batch::{Neighborhood, Rows},
    features::NodeFeatures,
    files::RowFiles,
    hop::{Hop, HopState},
    pair::{PairModel, PairState},
    stream::EventStream,
    target::EventTargets,
};
use crate::{
    Error, Result, TrainConfig,
    config::events::{EventOptions, EventRows, kind},
};

/// Parts of the keys of initial values.
const MODEL: u64 = 0x6576_656e_7473;

/// Parameters of a run.
pub(super) struct EventModel {
    /// Projection of the features of nodes.
    input: Option<Linear>,
    pub(super) updater: Option<MemoryUpdater>,
    /// Layers of all hops, from the bottom.
    layers: Vec<Hop>,
    /// Projection of rows to their times, and the mean and deviation of the times between events.
    projection: Option<(TimeProjection, [f64; 2])>,
    /// Rows of both ends of a pair together, in the place of all parts above.
    pairs: Option<Box<PairModel>>,
    head: EdgeHead,
    hidden: usize,
}

/// Matrices that a forward pass saves for its backward pass.
#[derive(Default)]
pub(super) struct PassState {
    pub(super) memory: MemoryState,
    distinct: DistinctNodes,
    /// Block of the bottom layer over the distinct nodes, if it reads their rows.
    shared: Block,
    features: Matrix,
    /// Rows below each layer, and above the last.
    rows: Vec<Matrix>,
    /// Standardized time since the last event of each row's node.
    since: Vec<f32>,
    hops: Vec<HopState>,
    pairs: PairState,
    head: EdgeHeadState,
    pub(super) scores: Matrix,
    pub(super) scores_grad: Matrix,
    grads: [Matrix; 2],
    memory_grad: Matrix,
}

impl EventModel {
    /// Creates the model of a configuration with its initial, random weights.
    ///
    /// # Errors
    /// The heads do not divide the width, or the disk has too little space.
    pub(super) fn new(config: &TrainConfig, stream: &EventStream) -> Result<Self> {
        let options: EventOptions = config.own.get();
        let (hidden, edge_dim) = (config.hidden, stream.edge_dim());
        let kind = kind(config);
        let is_of = |rows| kind.is_some_and(|kind| kind.rows == rows);
        if is_of(EventRows::Attention) && !hidden.is_multiple_of(options.event_heads) {
            return Err(Error::usage(format!(
                "--event-heads {}: it does not divide --hidden {hidden}; use a divisor",
                options.event_heads
            )));
        }
        let key = |part| key(&[config.seed, MODEL, part]);
        let has_hops = !is_of(EventRows::Projection) && !is_of(EventRows::Pairs);
        let hops = if has_hops { config.layers } else { 0 };
        let name = kind.and_then(|kind| match kind.rows {
            EventRows::Edges(name) => Some(name),
            EventRows::Attention | EventRows::Projection | EventRows::Pairs => None,
        });
        let layers = (0..hops).map(|l| Hop::new(config, name, l, edge_dim, key(3 + l as u64)));
        let projection = || -> Result<_> {
            Ok((TimeProjection::new(hidden, config.dropout as f32, key(3)), stream.intervals()?))
        };
        let pairs = || PairModel::new(config, stream, key(3)).map(Box::new);
        let cell = kind.and_then(|kind| kind.memory);
        let updater = |cell| MemoryUpdater::new(cell, hidden, edge_dim, options.time_dim, key(1));
        let outputs = stream.targets.as_deref().map_or(1, EventTargets::outputs);
        let of_features =
            |features: &NodeFeatures| Linear::named(["weight", ""], features.width(), hidden, false, key(0));
        let head = EdgeHead::new([hidden, 0], hidden, outputs, key(2));
        let mut model = Self {
            input: stream.node_features.as_deref().filter(|_| !is_of(EventRows::Pairs)).map(of_features),
            updater: cell.map(updater),
            layers: layers.collect::<Result<_>>()?,
            projection: is_of(EventRows::Projection).then(projection).transpose()?,
            pairs: is_of(EventRows::Pairs).then(pairs).transpose()?,
            // rows of JODIE grow with the time since the last event
            head: if is_of(EventRows::Projection) { head.with_small_weights() } else { head },
            hidden,
        };
        if !options.learn_frequencies {
            let is_of_time = |name: &str| name.ends_with("time.weight") || name.ends_with("time.bias");
            model.visit_mut(&mut |name, param| param.trainable &= !is_of_time(name));
        }
        Ok(model)
    }

    /// Empty memory for the nodes of a stream, if the model has one, in files if the stream is.
    ///
    /// # Errors
    /// The disk has too little space.
    pub(super) fn memory(&self, stream: &EventStream) -> Result<Option<NodeMemory>> {
        if self.updater.is_none() {
            return Ok(None);
        }
        let (nodes, width) = (stream.num_nodes, self.hidden);
        let (edge_dim, start) = (stream.edge_dim(), stream.start());
        Ok(Some(match &stream.files {
            Some(RowFiles { dir, most, .. }) => {
                NodeMemory::in_file(nodes, width, edge_dim, start, dir, *most)?
            }
            None => NodeMemory::new(nodes, width, edge_dim, start),
        }))
    }

    /// Number of parameters.
    pub(super) fn num_params(&self) -> usize {
        let mut count = 0;
        self.visit(&mut |_, param| count += param.value.num_rows() * param.value.num_cols());
        count
    }

    /// Visits every parameter by name, always in the same order.
    pub(super) fn visit(&self, see: &mut dyn FnMut(&str, &Param)) {
        let mut named = |part: &str, param: &Param| see(&format!("{part}.{}", param.name), param);
        self.input.iter().for_each(|input| input.visit(&mut |param| named("input", param)));
        self.updater.iter().for_each(|memory| memory.visit(&mut |param| named("memory", param)));
        for (i, layer) in self.layers.iter().enumerate() {
            layer.visit(&mut |param| named(&format!("layers.{i}"), param));
        }
        self.projection.iter().for_each(|(of, _)| of.visit(&mut |param| named("rows", param)));
        self.head.visit(&mut |param| named("head", param));
        if let Some(pairs) = &self.pairs {
            pairs.visit(&mut |name, param| see(&format!("pairs.{name}"), param));
        }
    }

    /// Visits every parameter mutably, in the order of [`EventModel::visit`].
    pub(super) fn visit_mut(&mut self, see: &mut dyn FnMut(&str, &mut Param)) {
        let mut named = |part: &str, param: &mut Param| see(&format!("{part}.{}", param.name), param);
        self.input.iter_mut().for_each(|input| input.visit_mut(&mut |param| named("input", param)));
        self.updater.iter_mut().for_each(|memory| memory.visit_mut(&mut |param| named("memory", param)));
        for (i, layer) in self.layers.iter_mut().enumerate() {
            layer.visit_mut(&mut |param| named(&format!("layers.{i}"), param));
        }
        self.projection.iter_mut().for_each(|(of, _)| of.visit_mut(&mut |param| named("rows", param)));
        self.head.visit_mut(&mut |param| named("head", param));
        if let Some(pairs) = &mut self.pairs {
            pairs.visit_mut(&mut |name, param| see(&format!("pairs.{name}"), param));
        }
    }

    /// Computes the score of each pair of `rows` into [`PassState::scores`], `P x 1`, or the
    /// outputs for its targets.
    ///
    /// # Errors
    /// As for [`EventModel::embed`].
    pub(super) fn forward(
        &self,
        pass: &Pass,
        stream: &EventStream,
        memory: Option<&NodeMemory>,
        (rows, near): (&Rows, &Neighborhood),
        state: &mut PassState,
    ) -> Result<()> {
        self.read(stream, memory, (rows, near), state)?;
        self.compute(pass, (rows, near), state);
        Ok(())
    }

    /// Reads the memory and the features of the nodes of a neighbourhood, the first part of
    /// [`EventModel::forward`].
    ///
    /// # Errors
    /// As for [`EventModel::embed`].
    pub(super) fn read(
        &self,
        stream: &EventStream,
        memory: Option<&NodeMemory>,
        (rows, near): (&Rows, &Neighborhood),
        state: &mut PassState,
    ) -> Result<()> {
        let nodes = near.nodes(rows);
        if let Some(model) = &self.pairs {
            model.read(stream, nodes, &mut state.pairs);
            return Ok(());
        }
        let PassState { distinct, features, memory: updated, .. } = state;
        distinct.list(nodes, stream.num_nodes);
        if let Some((updater, store)) = self.updater.as_ref().zip(memory) {
            updater.read(store, distinct.nodes(), updated)?;
        }
        if let Some(table) = stream.node_features.as_deref().filter(|_| self.input.is_some()) {
            table.copy(self.bottom_nodes(distinct, nodes).iter().copied(), features);
        }
        Ok(())
    }

    /// Computes the scores from the rows that were read, the second part of
    /// [`EventModel::forward`].
    pub(super) fn compute(&self, pass: &Pass, (rows, near): (&Rows, &Neighborhood), state: &mut PassState) {
        if let Some(model) = &self.pairs {
            model.forward(pass, (rows, near), &mut state.pairs);
            let PassState { pairs, head, scores, .. } = state;
            self.head.forward(pass, &pairs.pairs(), head, scores);
            return;
        }
        self.compute_rows(pass, (rows, near), state);
        let PassState { rows: of_layers, head, scores, .. } = state;
        self.head.forward(pass, &pairs(rows, of_layers[self.top()].view()), head, scores);
    }

    /// Computes the scores of pairs of embeddings, or the outputs for the targets, into `scores`.
    pub(super) fn score(&self, pass: &Pass, pairs: &EdgePairs, scores: &mut Matrix) {
        self.head.forward(pass, pairs, &mut EdgeHeadState::default(), scores);
    }

    /// Returns true if rows are those of pairs, so that a node alone has no embedding.
    pub(super) fn is_of_pairs(&self) -> bool {
        self.pairs.is_some()
    }

    /// Width of the embeddings, `H`.
    pub(super) fn width(&self) -> usize {
        self.hidden
    }

    /// Embeddings of the rows of the last [`EventModel::embed`], `N x H`.
    pub(super) fn embeddings<'s>(&self, state: &'s PassState) -> View<'s> {
        state.rows[self.top()].view()
    }

    /// Computes the rows that the head reads, of the nodes of `rows` at their times.
    ///
    /// # Errors
    /// A node has no memory: a bug in the caller.
    pub(super) fn embed(
        &self,
        pass: &Pass,
        stream: &EventStream,
        memory: Option<&NodeMemory>,
        (rows, near): (&Rows, &Neighborhood),
        state: &mut PassState,
    ) -> Result<()> {
        self.read(stream, memory, (rows, near), state)?;
        self.compute_rows(pass, (rows, near), state);
        Ok(())
    }

    /// Computes the rows that the head reads from those that were read.
    fn compute_rows(&self, pass: &Pass, (rows, near): (&Rows, &Neighborhood), state: &mut PassState) {
        state.rows.resize_with(self.top() + 1, Matrix::default);
        state.hops.resize_with(self.layers.len(), HopState::default);
        self.bottom_rows(pass, near.nodes(rows), state);
        if let Some(batch) = near.batch.as_ref().filter(|_| self.shares_rows()) {
            let block = &batch.sampled.blocks[0].relations[0];
            renumber(block, &state.distinct, pass.training, &mut state.shared);
        }
        for (l, layer) in self.layers.iter().enumerate() {
            let (below, above) = state.rows.split_at_mut(l + 1);
            let shared = Some(&state.shared).filter(|_| l == 0 && self.shares_rows());
            let Some(input) = input(near, l, shared, below[l].view()) else { continue };
            layer.forward(pass, &input, &mut state.hops[l], &mut above[0]);
        }
        if let Some((projection, [mean, deviation])) = &self.projection {
            let PassState { memory, distinct, rows: of_layers, since, .. } = state;
            let last = distinct.numbers().iter().map(|&at| memory.times[at as usize]);
            let of_row = |(&time, last): (&i64, i64)| {
                (((i128::from(time) - i128::from(last)) as f64 - mean) / deviation) as f32
            };
            since.clear();
            memory::demand_extend(since, rows.times.iter().zip(last).map(of_row));
            let (below, above) = of_layers.split_at_mut(1);
            projection.forward(pass, below[0].view(), since, &mut above[0]);
        }
    }

    /// Number of the rows that the head reads.
    fn top(&self) -> usize {
        self.layers.len() + usize::from(self.projection.is_some())
    }

    /// Nodes of the rows below the first layer.
    fn bottom_nodes<'n>(&self, distinct: &'n DistinctNodes, nodes: &'n [NodeId]) -> &'n [NodeId] {
        if self.shares_rows() { distinct.nodes() } else { nodes }
    }

    /// Rows of the nodes below the first layer: their memory and their projected features.
    fn bottom_rows(&self, pass: &Pass, nodes: &[NodeId], state: &mut PassState) {
        let PassState { distinct, rows, features, memory: updated, .. } = state;
        let bottom = &mut rows[0];
        bottom.resize(self.bottom_nodes(distinct, nodes).len(), self.hidden);
        match &self.updater {
            None => pass.backend.fill(0.0, bottom.view_mut()),
            Some(updater) => {
                updater.apply(pass, updated);
                if self.shares_rows() {
                    pass.backend.copy(updated.rows.view(), bottom.view_mut());
                } else {
                    copy_rows(updated.rows.view(), distinct.numbers(), bottom);
                }
            }
        }
        if let Some(input) = &self.input {
            input.forward_product(pass, features.view(), 1.0, bottom.view_mut());
        }
    }

    /// Returns true if the bottom layer reads a row for each distinct node: attention does, other
    /// layers read a row for each node and time.
    fn shares_rows(&self) -> bool {
        self.layers.first().is_some_and(Hop::is_attention)
    }

    /// Adds to the gradient of every parameter, from [`PassState::scores_grad`] of the last
    /// [`EventModel::forward`].
    pub(super) fn backward(
        &mut self,
        pass: &Pass,
        (rows, near): (&Rows, &Neighborhood),
        state: &mut PassState,
    ) {
        let shares_rows = self.shares_rows();
        let PassState {
            rows: of_layers, hops, pairs: of_pairs, head, scores, scores_grad, grads, since, ..
        } = state;
        let [grad, next] = grads;
        if let Some(model) = &mut self.pairs {
            self.head.backward(pass, &of_pairs.pairs(), head, scores.view(), scores_grad, grad);
            model.backward(pass, of_pairs, grad.view());
            return;
        }
        let pairs = pairs(rows, of_layers[self.top()].view());
        self.head.backward(pass, &pairs, head, scores.view(), scores_grad, grad);
        if let Some((projection, _)) = &mut self.projection {
            projection.backward(pass, of_layers[0].view(), since, grad.view(), next);
            std::mem::swap(grad, next);
        }
        for (l, layer) in self.layers.iter_mut().enumerate().rev() {
            let shared = Some(&state.shared).filter(|_| l == 0 && shares_rows);
            let Some(input) = input(near, l, shared, of_layers[l].view()) else { continue };
            layer.backward(pass, &input, &mut hops[l], (of_layers[l + 1].view(), grad), next);
            std::mem::swap(grad, next);
        }
        if let Some(input) = &mut self.input {
            input.backward_product(pass, state.features.view(), grad.view());
        }
        let Some(updater) = &mut self.updater else { return };
        if shares_rows {
            return updater.backward(pass, &mut state.memory, grad.view());
        }
        let to = &mut state.memory_grad;
        to.resize(state.distinct.nodes().len(), self.hidden);
        pass.backend.fill(0.0, to.view_mut());
        // rows of a node are added in their order
        let (width, sums) = (self.hidden, to.view_mut().host());
        for (&at, row) in state.distinct.numbers().iter().zip(grad.view().host().chunks_exact(width)) {
            let to = &mut sums[at as usize * width..][..width];
            to.iter_mut().zip(row).for_each(|(to, x)| *to += x);
        }
        updater.backward(pass, &mut state.memory, state.memory_grad.view());
    }
}

/// Replaces `out` by the block with the same edges between the distinct nodes of its rows.
fn renumber(block: &Block, nodes: &DistinctNodes, is_training: bool, out: &mut Block) {
    let (mut own, numbers) = (out.dst_ids.take().unwrap_or_default(), nodes.numbers());
    out.clear();
    memory::demand_copy(&mut own, &numbers[..block.num_dst]);
    (out.num_dst, out.num_src, out.dst_ids) = (block.num_dst, nodes.nodes().len(), Some(own));
    memory::demand_append(&mut out.indptr, &block.indptr);
    memory::demand_extend(&mut out.indices, block.indices.iter().map(|&row| numbers[row as usize]));
    if is_training {
        out.transpose();
    }
}

/// Inputs of a layer, over its own block or the one that replaces it.
fn input<'a>(
    near: &'a Neighborhood,
    l: usize,
    shared: Option<&'a Block>,
    x: View<'a>,
) -> Option<TemporalInput<'a>> {
    let block = &near.batch.as_ref()?.sampled.blocks[l].relations[0];
    let block = shared.unwrap_or(block);
    Some(TemporalInput { block, x, edges: near.edges[l].view(), differences: &near.since[l] })
}

/// Pairs to score.
fn pairs<'a>(rows: &'a Rows, embeddings: View<'a>) -> EdgePairs<'a> {
    EdgePairs { nodes: embeddings, source: &rows.source, destination: &rows.destination, edges: None }
}

/// Copies rows of a table.
fn copy_rows(from: View, ids: &[NodeId], to: &mut Matrix) {
    let (cols, from) = (from.num_cols(), from.host());
    let rows = to.view_mut().host().chunks_exact_mut(cols.max(1)).zip(ids);
    rows.for_each(|(row, &v)| row.copy_from_slice(&from[v as usize * cols..][..cols]));
}
