//! The layers of inference: rows of all nodes that are needed, chunk by chunk, from memory or as
//! they are read.

use graphmill_core::{Block, Graph, NodeId, block::Aggregation, progress::Progress};
use graphmill_loader::{
    Feature, Relabel,
    sampler::{HopScratch, inference::InferenceNeighbors},
    weights::SymmetricWeights,
};
use graphmill_nn::{
    Backend, Matrix, Pass, ProductOrder, View,
    layer::{LayerInput, gather_rows},
    model::{Activations, Model},
};
use rayon::prelude::*;

use super::{
    gathered::{Gathered, run_of},
    neighbors::{Neighbors, chunk_len},
    nodes::{Marks, NodeSet},
};
use crate::Result;

/// A layer of a model, and the order of its products.
#[derive(Clone, Copy)]
pub(crate) struct Layer<'l> {
    pub(crate) model: &'l Model,
    pub(crate) pass: &'l Pass<'l>,
    /// Its number, from the bottom.
    pub(crate) index: usize,
    pub(crate) order: ProductOrder,
}

/// The layers over one graph; their tables are reused from call to call.
pub(crate) struct Layers<'a> {
    pub(crate) graph: &'a Graph,
    symmetric: Option<&'a SymmetricWeights>,
    pub(crate) backend: &'a dyn Backend,
    pub(super) chunk: usize,
    pub(super) exact: InferenceNeighbors,
    pub(super) watch: &'a dyn Progress,
    scratch: HopScratch,
    block: Block,
    pub(super) acts: Activations,
    /// Rows that go into the next layer.
    pub(super) input: Matrix,
    /// Rows that the last layer made.
    pub(crate) output: Matrix,
    transformed: Vec<Matrix>,
    pub(super) gathered: Gathered,
    read: Read,
}

/// A chunk of rows that are not in memory.
#[derive(Default)]
struct Read {
    rows: Matrix,
    transformed: Vec<Matrix>,
    nodes: Vec<NodeId>,
    others: Vec<NodeId>,
    relabel: Option<Relabel>,
}

impl<'a> Layers<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        symmetric: Option<&'a SymmetricWeights>,
        backend: &'a dyn Backend,
        chunk: usize,
        watch: &'a dyn Progress,
    ) -> Self {
        Self {
            graph,
            symmetric,
            backend,
            chunk: chunk.max(1),
            exact: InferenceNeighbors::default(),
            watch,
            scratch: HopScratch::default(),
            block: Block::default(),
            acts: Activations::default(),
            input: Matrix::default(),
            output: Matrix::default(),
            transformed: Vec::new(),
            gathered: Gathered::default(),
            read: Read::default(),
        }
    }

    /// A layer of the rows of `self.input`, one for each of `sources`, to `self.output`.
    ///
    /// # Errors
    /// The watcher ends the work.
    pub(super) fn upper_layer(
        &mut self,
        layer: &Layer,
        sources: &NodeSet,
        destinations: &NodeSet,
    ) -> Result<()> {
        let x = std::mem::take(&mut self.input);
        let made = self.memory_layer(layer, &x, Some(sources), destinations);
        self.input = x;
        made
    }

    /// A layer of rows in memory, to `self.output`: a row of `x` for each of `places`, or for each
    /// node.
    ///
    /// # Errors
    /// The watcher ends the work.
    pub(super) fn memory_layer(
        &mut self,
        layer: &Layer,
        x: &Matrix,
        places: Option<&NodeSet>,
        destinations: &NodeSet,
    ) -> Result<()> {
        let Layer { model, pass, index: l, order } = *layer;
        if order == ProductOrder::TransformFirst {
            let Self { transformed, gathered, .. } = self;
            fit(transformed, x.num_rows(), model.transformed_dims(l));
            for start in (0..x.num_rows()).step_by(self.chunk) {
                self.watch.check()?;
                let run = start..start.saturating_add(self.chunk).min(x.num_rows());
                let rows = run_of(self.backend, x, run, gathered);
                model.transform_rows(l, pass, rows, start, transformed);
            }
        }
        let t: &[Matrix] = if order == ProductOrder::TransformFirst { &self.transformed } else { &[] };
        self.output.resize(destinations.len(), model.layer_out_dim(l));
        let mut at = 0;
        while at < destinations.len() {
            self.watch.check()?;
            let rest = &destinations.ids()[at..];
            let ids = &rest[..chunk_len(self.graph, rest, self.chunk)];
            let block = &mut self.block;
            let mut dst_ids = block.dst_ids.take().unwrap_or_default();
            let neighbors = Neighbors { graph: self.graph, symmetric: self.symmetric, exact: &self.exact };
            neighbors.fill(model.num_layers() - 1 - l, ids, model.aggregation(), &mut self.scratch, block);
            dst_ids.clear();
            dst_ids.extend_from_slice(ids);
            if let Some(places) = places {
                places.number(&mut block.indices);
                places.number(&mut dst_ids);
            }
            (block.num_dst, block.num_src, block.dst_ids) = (ids.len(), x.num_rows(), Some(dst_ids));
            let out = self.output.rows_mut(at..at + ids.len());
            let input = LayerInput { order, block, x: x.view(), transformed: t };
            model.infer(l, pass, &input, &mut self.acts, out);
            at += ids.len();
        }
        Ok(())
    }

    /// A layer of rows that are read, from `sources` to `self.output`. Each row is read once and
    /// transformed; where the layer reads the destinations' own rows too, those are read once more;
    /// where it can only aggregate first, rows are read once for every chunk that needs them.
    pub(crate) fn streamed_layer(
        &mut self,
        feature: &dyn Feature,
        layer: &Layer,
        sources: &NodeSet,
        destinations: &NodeSet,
    ) -> Result<()> {
        let Layer { model, pass, index: l, order } = *layer;
        let Self { graph, symmetric, backend, chunk, exact, watch, transformed, read, output, .. } = self;
        let Read { rows, transformed: of_chunk, nodes, others, relabel } = read;
        let transforms = order == ProductOrder::TransformFirst;
        if transforms {
            fit(transformed, sources.len(), model.transformed_dims(l));
            for (i, ids) in sources.ids().chunks(*chunk).enumerate() {
                watch.check()?;
                feature.gather(ids, rows)?;
                model.transform_rows(l, pass, rows.view(), i * *chunk, transformed);
            }
            of_chunk.resize_with(transformed.len(), Matrix::default);
        }
        let relabel = relabel.get_or_insert_with(|| Relabel::new(graph.num_nodes()));
        let neighbors = Neighbors { graph, symmetric: *symmetric, exact };
        output.resize(destinations.len(), model.layer_out_dim(l));
        let mut at = 0;
        while at < destinations.len() {
            watch.check()?;
            let rest = &destinations.ids()[at..];
            let ids = &rest[..chunk_len(graph, rest, *chunk)];
            let block = &mut self.block;
            neighbors.fill(model.num_layers() - 1 - l, ids, model.aggregation(), &mut self.scratch, block);
            relabel.start(ids);
            others.clear();
            relabel.relabel(&mut block.indices, ids, others);
            nodes.clear();
            nodes.extend_from_slice(ids);
            nodes.extend_from_slice(others);
            (block.num_dst, block.num_src, block.dst_ids) = (ids.len(), nodes.len(), None);
            if !transforms {
                feature.gather(nodes, rows)?;
            } else if model.combines_own_rows(l) {
                feature.gather(ids, rows)?;
            }
            if transforms {
                sources.number(nodes);
                for (table, rows) in transformed.iter().zip(&mut *of_chunk) {
                    gather_rows(*backend, table.view(), nodes, rows);
                }
            }
            let t: &[Matrix] = if transforms { of_chunk } else { &[] };
            let out = output.rows_mut(at..at + ids.len());
            let input = LayerInput { order, block, x: rows.view(), transformed: t };
            model.infer(l, pass, &input, &mut self.acts, out);
            at += ids.len();
        }
        Ok(())
    }

    /// The scores of rows of `self.output`, through the head where there is one.
    pub(crate) fn head(&mut self, model: &Model, pass: &Pass, rows: &[u32]) -> Matrix {
        let (mut gathered, mut out) = (Matrix::default(), Matrix::default());
        gather_rows(self.backend, self.output.view(), rows, &mut gathered);
        if !model.has_head() {
            return gathered;
        }
        self.head_rows(model, pass, gathered.view(), &mut out);
        out
    }

    /// The scores of rows, through the model's head.
    pub(super) fn head_rows(&mut self, model: &Model, pass: &Pass, rows: View, out: &mut Matrix) {
        let count = rows.num_rows();
        out.resize(count, model.classes());
        for start in (0..count).step_by(self.chunk) {
            let run = start..(start + self.chunk).min(count);
            model.head_rows(pass, rows.rows(run.clone()), &mut self.acts, out.rows_mut(run));
        }
    }

    /// Marks the nodes that those of `destinations` hear from in hop `hop`.
    pub(crate) fn mark_neighbors(
        &mut self,
        destinations: &NodeSet,
        hop: usize,
        aggregation: Aggregation,
        marks: &Marks,
    ) {
        if self.exact.reaches_further() {
            for ids in destinations.ids().chunks(self.chunk) {
                self.exact
                    .rows(self.graph, hop, ids, aggregation, &mut self.scratch, &mut self.block)
                    .expect("a chunk's draws fit a block");
                self.block.indices.iter().for_each(|&u| marks.mark(u));
            }
        } else {
            let each = destinations.ids().par_iter().with_min_len(1 << 8);
            each.for_each(|&v| self.graph.in_neighbors(v).iter().for_each(|&u| marks.mark(u)));
        }
    }

    /// `needed[l]`: the nodes whose rows going into graph layer `l` (out of layer `l - 1`) matter.
    /// `hops`: how many layers the whole model has.
    pub(super) fn needed(
        &mut self,
        wanted: &[NodeId],
        layers: usize,
        hops: usize,
        aggregation: Aggregation,
    ) -> Vec<NodeSet> {
        let marks = Marks::new(self.graph.num_nodes());
        wanted.par_iter().with_min_len(1 << 12).for_each(|&v| marks.mark(v));
        let mut needed = vec![marks.set()];
        for l in (0..layers).rev() {
            let above = needed.last().expect("starts with one set");
            if !above.is_all() {
                self.mark_neighbors(above, hops - 1 - l, aggregation, &marks);
            }
            needed.push(marks.set());
        }
        needed.reverse();
        needed
    }
}

/// One table per width, `rows` rows each.
fn fit(tables: &mut Vec<Matrix>, rows: usize, dims: &[usize]) {
    tables.resize_with(dims.len(), Matrix::default);
    for (table, &dim) in tables.iter_mut().zip(dims) {
        table.resize(rows, dim);
    }
}
