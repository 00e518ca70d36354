//! Layers of inference: rows of all needed nodes, computed in chunks from rows in memory or from
//! streamed rows.

use std::sync::Arc;

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

use super::{
    gathered::{Gathered, run_of},
    neighbors::{Neighbors, chunk_len},
    nodes::{Added, NodeSet},
    outputs::{Above, Consumer, Outputs, Tables},
};
use crate::{Result, config::Work};

/// A layer of a model, the order of its products, and the use of its rows.
#[derive(Clone, Copy)]
pub(crate) struct Layer<'l> {
    pub(crate) model: &'l Model,
    pub(crate) pass: &'l Pass<'l>,
    /// Index of the layer, from the bottom.
    pub(crate) index: usize,
    pub(crate) order: ProductOrder,
    /// True if the layer below has filled the tables that this one reads.
    pub(super) is_transformed: bool,
    pub(super) consumer: Consumer<'l>,
}

impl<'l> Layer<'l> {
    /// A layer that transforms its rows itself and stores those that it computes.
    pub(crate) fn alone(model: &'l Model, pass: &'l Pass<'l>, index: usize, order: ProductOrder) -> Self {
        Self { model, pass, index, order, is_transformed: false, consumer: Consumer::Table }
    }

    /// The rows of `nodes` that the layer computes, and their use.
    pub(super) fn above<'s>(&'s self, nodes: &'s NodeSet) -> Above<'s> {
        Above { model: self.model, pass: self.pass, nodes, consumer: self.consumer }
    }
}

/// Layers on one graph, with buffers that are reused between calls.
pub(crate) struct Layers<'a> {
    pub(crate) graph: &'a Graph,
    symmetric: Option<&'a SymmetricWeights>,
    pub(crate) backend: &'a dyn Backend,
    pub(super) chunk: usize,
    pub(super) neighbors: Arc<InferenceNeighbors>,
    pub(super) watch: &'a dyn Progress,
    scratch: HopScratch,
    pub(super) block: Block,
    pub(super) acts: Activations,
    /// Input rows of the next layer, unless it reads only the tables.
    pub(super) input: Matrix,
    /// Tables of the next layer, if it transforms first.
    tables: Tables,
    /// Rows of the last layer.
    pub(crate) outputs: Outputs,
    /// False if all rows are stored between layers, as the reference of the tests.
    pub(super) passes_on: bool,
    pub(super) gathered: Gathered,
    pub(super) stream: StreamBuffers,
    /// Rows computed and edges aggregated.
    pub(crate) work: Work,
}

/// Buffers of one chunk of streamed rows.
#[derive(Default)]
pub(super) struct StreamBuffers {
    pub(super) rows: Matrix,
    pub(super) transformed: Vec<Matrix>,
    pub(super) nodes: Vec<NodeId>,
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
            neighbors: Arc::default(),
            watch,
            scratch: HopScratch::default(),
            block: Block::default(),
            acts: Activations::default(),
            input: Matrix::default(),
            tables: Tables::default(),
            outputs: Outputs::default(),
            passes_on: true,
            gathered: Gathered::default(),
            stream: StreamBuffers::default(),
            work: Work::default(),
        }
    }

    /// Makes the rows and tables that were computed the input of the next layer.
    pub(super) fn advance(&mut self) {
        std::mem::swap(&mut self.input, &mut self.outputs.rows);
        std::mem::swap(&mut self.tables, &mut self.outputs.tables);
    }

    /// Computes a layer to `self.outputs` from `self.input`, which has a row for each of `sources`,
    /// or from the tables that the layer below has filled.
    ///
    /// # Errors
    /// The watcher stops the work.
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

    /// Computes a layer from rows in memory to `self.outputs`. `x` has a row for each of `sources`,
    /// or for each node if `sources` is `None`; it is empty if the layer reads only tables.
    ///
    /// # Errors
    /// The watcher stops the work.
    pub(super) fn memory_layer(
        &mut self,
        layer: &Layer,
        x: &Matrix,
        sources: Option<&NodeSet>,
        destinations: &NodeSet,
    ) -> Result<()> {
        let Layer { model, pass, index: l, order, is_transformed, .. } = *layer;
        let above = layer.above(destinations);
        // aggregates may follow the rows of the nodes
        let count = sources.map_or(self.graph.num_nodes(), NodeSet::len);
        let transforms = order == ProductOrder::TransformFirst;
        let reads_product = is_transformed && model.has_own_product(l);
        if reads_product {
            self.tables.start_chunks();
        }
        if transforms && !is_transformed {
            let Self { tables, gathered, .. } = self;
            tables.resize(count, model.transformed_dims(l));
            for start in (0..count).step_by(self.chunk) {
                self.watch.check()?;
                let run = start..start.saturating_add(self.chunk).min(count);
                let rows = run_of(self.backend, x, run, gathered);
                model.transform_rows(l, pass, rows, start, &mut tables.transformed);
            }
        }
        let x = x.rows(0..count.min(x.num_rows()));
        self.outputs.start(&above, model.layer_out_dim(l));
        let mut at = 0;
        while at < destinations.len() {
            self.watch.check()?;
            let rest = &destinations.ids()[at..];
            let ids = &rest[..chunk_len(self.graph, rest, self.chunk)];
            let block = &mut self.block;
            let mut dst_ids = block.dst_ids.take().unwrap_or_default();
            let neighbors =
                Neighbors { graph: self.graph, symmetric: self.symmetric, selection: &self.neighbors };
            neighbors.fill(model.num_layers() - 1 - l, ids, model.aggregation(), &mut self.scratch, block)?;
            self.work += Work::of_block(ids.len(), block.num_edges());
            dst_ids.clear();
            dst_ids.extend_from_slice(ids);
            if let Some(sources) = sources {
                sources.number(&mut block.indices);
                sources.number(&mut dst_ids);
            }
            (block.num_dst, block.num_src, block.dst_ids) = (ids.len(), count, Some(dst_ids));
            let run = at..at + ids.len();
            if reads_product {
                self.tables.load_own(self.backend, run.clone());
            }
            let t: &[Matrix] = if transforms { &self.tables.transformed } else { &[] };
            let input = LayerInput { order, block, x, transformed: t };
            model.infer(l, pass, &input, &mut self.acts, self.outputs.chunk(&above, run.clone()));
            self.outputs.pass_on(&above, run, &mut self.acts);
            at += ids.len();
        }
        Ok(())
    }

    /// Computes a layer from streamed rows of `sources` to `self.outputs`.
    ///
    /// Each row is read once and transformed. If the layer also uses the destinations' own rows,
    /// they are read once more. If the layer can only aggregate first, rows are read once per chunk
    /// that uses them.
    ///
    /// # Errors
    /// Rows cannot be read, or the watcher stops the work.
    pub(crate) fn streamed_layer(
        &mut self,
        feature: &dyn Feature,
        layer: &Layer,
        sources: &NodeSet,
        destinations: &NodeSet,
    ) -> Result<()> {
        let Layer { model, pass, index: l, order, .. } = *layer;
        let above = layer.above(destinations);
        let Self { graph, symmetric, backend, chunk, watch, tables, stream, outputs, .. } = self;
        let StreamBuffers { rows, transformed: of_chunk, nodes, others, relabel } = stream;
        let transforms = order == ProductOrder::TransformFirst;
        if transforms {
            tables.resize(sources.len(), model.transformed_dims(l));
            for (i, ids) in sources.ids().chunks(*chunk).enumerate() {
                watch.check()?;
                feature.gather(ids, rows)?;
                model.transform_rows(l, pass, rows.view(), i * *chunk, &mut tables.transformed);
            }
            of_chunk.resize_with(tables.transformed.len(), Matrix::default);
        }
        let relabel = relabel.get_or_insert_with(|| Relabel::new(graph.num_nodes()));
        let neighbors = Neighbors { graph, symmetric: *symmetric, selection: &self.neighbors };
        outputs.start(&above, model.layer_out_dim(l));
        let mut at = 0;
        while at < destinations.len() {
            watch.check()?;
            let rest = &destinations.ids()[at..];
            let ids = &rest[..chunk_len(graph, rest, *chunk)];
            let block = &mut self.block;
            neighbors.fill(model.num_layers() - 1 - l, ids, model.aggregation(), &mut self.scratch, block)?;
            self.work += Work::of_block(ids.len(), block.num_edges());
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
                for (table, rows) in tables.transformed.iter().zip(&mut *of_chunk) {
                    gather_rows(*backend, table.view(), nodes, rows);
                }
            }
            let t: &[Matrix] = if transforms { of_chunk } else { &[] };
            let run = at..at + ids.len();
            let input = LayerInput { order, block, x: rows.view(), transformed: t };
            model.infer(l, pass, &input, &mut self.acts, outputs.chunk(&above, run.clone()));
            outputs.pass_on(&above, run, &mut self.acts);
            at += ids.len();
        }
        Ok(())
    }

    /// Scores of the given stored `rows`, through the head if the model has one.
    pub(crate) fn head(&mut self, model: &Model, pass: &Pass, rows: &[u32]) -> Matrix {
        let (mut gathered, mut out) = (Matrix::default(), Matrix::default());
        gather_rows(self.backend, self.outputs.rows.view(), rows, &mut gathered);
        if !model.has_head() {
            return gathered;
        }
        self.head_rows(model, pass, gathered.view(), &mut out);
        out
    }

    /// Scores of `rows` through the model's head.
    pub(super) fn head_rows(&mut self, model: &Model, pass: &Pass, rows: View, out: &mut Matrix) {
        let count = rows.num_rows();
        out.resize(count, model.classes());
        for start in (0..count).step_by(self.chunk) {
            let run = start..(start + self.chunk).min(count);
            model.head_rows(pass, rows.rows(run.clone()), &mut self.acts, out.rows_mut(run));
        }
    }

    /// Writes `rows` to `out`, with the flag as scores through the model's head, and keeps their
    /// memory for the next rows that are gathered.
    ///
    /// # Errors
    /// The backend failed.
    pub(super) fn write_rows(
        &mut self,
        model: &Model,
        pass: &Pass,
        (rows, through_head): (Matrix, bool),
        out: &mut Matrix,
    ) -> Result<()> {
        if through_head {
            self.head_rows(model, pass, rows.view(), out);
        } else {
            out.resize(rows.num_rows(), rows.num_cols());
            self.backend.copy(rows.view(), out.view_mut());
        }
        self.gathered.dense = rows;
        Ok(self.backend.check()?)
    }

    /// Adds the neighbours of `destinations` in hop `hop`.
    ///
    /// # Errors
    /// Another rank did not reply.
    pub(crate) fn add_neighbors(
        &mut self,
        destinations: &NodeSet,
        hop: usize,
        aggregation: Aggregation,
        added: &mut Added,
    ) -> Result<()> {
        let ids = destinations.ids();
        if self.neighbors.reaches_further() {
            for ids in ids.chunks(self.chunk) {
                self.neighbors.rows(self.graph, hop, ids, aggregation, &mut self.scratch, &mut self.block)?;
                added.add(self.block.indices.iter().copied());
            }
            return Ok(());
        }
        added.add_rows(ids, |v| self.graph.in_neighbors(v));
        Ok(())
    }

    /// Needed nodes of each layer: `needed[l]` are the nodes whose input rows of graph layer `l`
    /// (output rows of layer `l - 1`) affect the result. `hops` is the number of layers of the
    /// model.
    ///
    /// # Errors
    /// As [`Layers::add_neighbors`].
    pub(super) fn needed(
        &mut self,
        wanted: &[NodeId],
        layers: usize,
        hops: usize,
        aggregation: Aggregation,
    ) -> Result<Vec<NodeSet>> {
        let mut added = Added::new(self.graph.num_nodes());
        added.add(wanted.iter().copied());
        let mut needed = vec![added.set()];
        for l in (0..layers).rev() {
            let above = needed.last().expect("starts with one set");
            if !above.is_all() {
                self.add_neighbors(above, hops - 1 - l, aggregation, &mut added)?;
            }
            needed.push(added.set());
        }
        needed.reverse();
        Ok(needed)
    }
}
