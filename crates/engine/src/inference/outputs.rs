//! Rows that a part of a model computes chunk by chunk, and their use by the part above.
//!
//! # Algorithm
//!
//! A layer that transforms before it aggregates, and a head, need no row besides that of one node
//! at a time, so each chunk of rows is passed on to them as soon as it is computed, while it is in
//! the caches. The rows themselves are stored only if the layer above also reads own rows in
//! another way than by a product ([`Model::has_own_product`]); that product is computed from the
//! same chunk, for the nodes that are destinations of the layer above. Both sets of nodes ascend,
//! so the destinations in a chunk are consecutive rows of the table of products.
//!
//! Each row goes through the same operations as in whole layers, and no row of a product depends on
//! the others, so the processor computes the same bits.
//!
//! # Source
//!
//! Alwani, Chen, Ferdman and Milder, *Fused-Layer CNN Accelerators*, MICRO 2016: a tile of a
//! layer's output is the next layer's input while it is cached.
//!
//! # Cost
//!
//! The multiplications of whole layers, without a pass over `N x H` rows.
//!
//! # Memory
//!
//! For `N` nodes with `D` destinations above, `N x T` values for tables of width `T`, and `D x O`
//! for the product of own rows, instead of `N x H` more.

use std::ops::Range;

use graphmill_core::NodeId;
use graphmill_nn::{
    Backend, Matrix, Pass, ViewMut,
    layer::gather_rows,
    model::{Activations, Model},
};

use super::nodes::NodeSet;

/// Use of rows that are computed.
#[derive(Clone, Copy)]
pub(crate) enum Consumer<'l> {
    /// They are stored.
    Table,
    /// The layer of this index, which transforms first, computes rows of these nodes.
    Layer(usize, &'l NodeSet),
    /// The head computes scores.
    Head,
}

/// Rows of `nodes` that a part of the model computes, and their use.
#[derive(Clone, Copy)]
pub(crate) struct Above<'l> {
    pub(super) model: &'l Model,
    pub(super) pass: &'l Pass<'l>,
    pub(super) nodes: &'l NodeSet,
    pub(super) consumer: Consumer<'l>,
}

impl<'l> Above<'l> {
    /// Rows of `nodes` that are stored.
    pub(crate) fn stored(model: &'l Model, pass: &'l Pass<'l>, nodes: &'l NodeSet) -> Self {
        Self { model, pass, nodes, consumer: Consumer::Table }
    }

    /// Returns true if the rows themselves are stored.
    fn stores_rows(&self) -> bool {
        match self.consumer {
            Consumer::Table => true,
            Consumer::Layer(l, _) => self.model.combines_own_rows(l) && !self.model.has_own_product(l),
            Consumer::Head => false,
        }
    }
}

/// Tables that a layer reads instead of its input rows.
#[derive(Default)]
pub(super) struct Tables {
    /// Transformed rows of the sources. While a layer reads products of own rows, those of a chunk
    /// follow.
    pub(super) transformed: Vec<Matrix>,
    /// Products of the destinations' own rows, if the layer reads them.
    own: Matrix,
}

impl Tables {
    /// Resizes the tables of transformed rows to one per width in `dims`, of `rows` rows each.
    pub(super) fn resize(&mut self, rows: usize, dims: &[usize]) {
        resize_tables(&mut self.transformed, rows, dims);
    }

    /// Adds a table for the products of a chunk's own rows.
    pub(super) fn start_chunks(&mut self) {
        self.transformed.push(Matrix::default());
    }

    /// Copies the products of the own rows of the destinations `run` to the table of a chunk.
    pub(super) fn load_own(&mut self, backend: &dyn Backend, run: Range<usize>) {
        let Self { transformed, own } = self;
        let of_chunk = transformed.last_mut().expect("a table for the chunk's products");
        of_chunk.resize(run.len(), own.num_cols());
        backend.copy(own.rows(run), of_chunk.view_mut());
    }
}

/// Buffers of computed rows.
#[derive(Default)]
pub(crate) struct Outputs {
    /// Rows or scores that are stored.
    pub(crate) rows: Matrix,
    /// Tables of the layer above.
    pub(super) tables: Tables,
    /// Rows of a chunk that are not stored.
    chunk: Matrix,
    /// Width of computed rows.
    width: usize,
    /// Rows of a chunk that are destinations above, and their places.
    own_rows: Matrix,
    places: Vec<NodeId>,
}

impl Outputs {
    /// Prepares the buffers for rows of `width` values.
    pub(super) fn start(&mut self, above: &Above, width: usize) {
        let (model, count) = (above.model, above.nodes.len());
        self.width = width;
        match above.consumer {
            Consumer::Head => self.rows.resize(count, model.classes()),
            _ => self.rows.resize(if above.stores_rows() { count } else { 0 }, width),
        }
        if let Consumer::Layer(l, destinations) = above.consumer {
            self.tables.resize(count, model.transformed_dims(l));
            let products = if model.has_own_product(l) { destinations.len() } else { 0 };
            self.tables.own.resize(products, model.layer_out_dim(l));
        }
    }

    /// Memory of the rows `run`. [`Outputs::pass_on`] must follow when they are computed.
    pub(super) fn chunk(&mut self, above: &Above, run: Range<usize>) -> ViewMut<'_> {
        if above.stores_rows() {
            return self.rows.rows_mut(run);
        }
        self.chunk.resize(run.len(), self.width);
        self.chunk.view_mut()
    }

    /// Passes the computed rows `run` on to their consumer.
    pub(super) fn pass_on(&mut self, above: &Above, run: Range<usize>, acts: &mut Activations) {
        let Above { model, pass, .. } = *above;
        match above.consumer {
            Consumer::Table => {}
            Consumer::Head => model.head_rows(pass, self.chunk.view(), acts, self.rows.rows_mut(run)),
            Consumer::Layer(l, destinations) => {
                let is_stored = above.stores_rows();
                let rows = if is_stored { self.rows.rows(run.clone()) } else { self.chunk.view() };
                model.transform_rows(l, pass, rows, run.start, &mut self.tables.transformed);
                if model.has_own_product(l) {
                    self.multiply_own(above, l, destinations, run);
                }
            }
        }
    }

    /// Computes the products of own rows for the `destinations` of layer `l` among the rows `run`.
    fn multiply_own(&mut self, above: &Above, l: usize, destinations: &NodeSet, run: Range<usize>) {
        let Above { model, pass, nodes, .. } = *above;
        let own = destinations.range_of(&nodes.ids()[run.clone()]);
        if own.is_empty() {
            return;
        }
        let mut rows = self.chunk.view();
        if own.len() < run.len() {
            self.places.clear();
            self.places.extend_from_slice(&destinations.ids()[own.clone()]);
            nodes.number(&mut self.places);
            self.places.iter_mut().for_each(|place| *place -= run.start as NodeId);
            gather_rows(pass.backend, rows, &self.places, &mut self.own_rows);
            rows = self.own_rows.view();
        }
        model.own_product(l, pass, rows, self.tables.own.rows_mut(own));
    }
}

/// Resizes `tables` to one per width in `dims`, of `rows` rows each.
pub(super) fn resize_tables(tables: &mut Vec<Matrix>, rows: usize, dims: &[usize]) {
    tables.resize_with(dims.len(), Matrix::default);
    for (table, &dim) in tables.iter_mut().zip(dims) {
        table.resize(rows, dim);
    }
}
