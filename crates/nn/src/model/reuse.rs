//! Bottom-layer rows that are read from a table instead of computed from a block.
//!
//! ```text
//!   C rows computed from block 0 ─┐
//!                                 ├─ norm, activation, dropout ── C + H sources of block 1
//!   H rows of the table          ──┘
//! ```
//!
//! [`Model::bottom_rows`] computes rows for a table, and
//! [`StepInput::reused`](super::StepInput::reused) appends rows of the table to those that a batch
//! computes. The caller's policy decides which rows the table contains, with which parameters they
//! were computed and how long they stay.
//!
//! A stored row is the sum of convolution, bias and residual, before the norm, because batch norm
//! spans all rows of a batch and every batch has its own dropout masks. If a convolution applies
//! its activation itself, its rows are stored activated.
//!
//! # Gradients
//!
//! - Rows without aggregates are constants: their gradient is dropped, and the bottom layer learns
//!   from computed rows alone.
//! - Rows with aggregates pass it to the weights behind the aggregation, as if the rows had just
//!   been computed from these aggregates. Parameters before the aggregation (attention vectors,
//!   input layer) receive none.
//! - Rows with coordinates in a basis ([`Projected`](super::Projected)) pass it to the same weights
//!   through the basis.
//!
//! # Cost
//!
//! O(H O) on top of the computed rows; with aggregates O(H F O), one product.
//!
//! # Source
//!
//! Ai et al., *NeutronOrch*, VLDB 2024, section 4.1.1 (aggregates are stored with the rows).

use super::{
    Activations, Model,
    activations::{SavedStage, StageActs},
};
use crate::{
    Epilogue, Matrix, Param, Pass, ProductOrder, ViewMut,
    backend::{
        Activation, Dropout, Side,
        ops::{EpilogueForward, Gemm},
    },
    layer::LayerInput,
};

/// Destination tables of [`Model::bottom_rows`].
#[derive(Debug)]
pub struct BottomRows<'a> {
    /// Rows before the norm, as wide as [`Model::layer_out_dim`] of layer 0.
    pub rows: &'a mut Matrix,
    /// First row that is written.
    pub at: usize,
    /// Aggregates of the rows, of widths [`Model::aggregate_dims`]; empty to skip them.
    pub aggregates: &'a mut [Matrix],
    /// First row of the aggregate tables that is written.
    pub aggregates_at: usize,
}

/// Rows of [`Model::bottom_rows`] that [`Model::project_rows`] rewrites.
#[derive(Debug)]
pub struct ProjectedRows<'a> {
    /// The rows.
    pub rows: &'a mut Matrix,
    /// Coordinates of the rows, one column per basis vector.
    pub coordinates: &'a mut Matrix,
    /// First row that is rewritten.
    pub at: usize,
}

impl Model {
    /// Computes the bottom layer's rows of a block before the norm, and the aggregates that they
    /// derive from: `D` rows each. `input` has no transformed rows, and its `x` is that of
    /// [`Model::forward`]. `scratch` is reused across calls.
    ///
    /// Dropout of features and attention depends on `pass`; output dropout is not applied.
    ///
    /// # Panics
    /// Aggregates are requested of a layer that transforms first.
    pub fn bottom_rows(&self, pass: &Pass, input: &LayerInput, scratch: &mut Activations, to: BottomRows) {
        let BottomRows { rows, at, aggregates, aggregates_at } = to;
        let count = input.block.num_dst;
        self.forward_input(pass, input.x, scratch);
        let Activations { dropped, input: input_rows, stages, .. } = scratch;
        let input = LayerInput { x: self.bottom_input(pass, input.x, dropped, &input_rows.out), ..*input };
        let (stage, pass) = (&self.stages[0], pass.part(0));
        let StageActs { saved: SavedStage { conv: saved, own, .. }, .. } = &mut stages[0];
        stage.rows(&pass, &input, Epilogue::NONE, (saved, own), rows.rows_mut(at..at + count));
        if aggregates.is_empty() {
            return;
        }
        assert_eq!(
            input.order,
            ProductOrder::AggregateFirst,
            "transformed rows have no aggregated inputs to save"
        );
        let (of_conv, of_residual) = aggregates.split_at_mut(aggregates.len() - stage.residual_aggregates());
        stage.reusable().save_aggregates(&pass, &input, saved, aggregates_at, of_conv);
        if let [rows] = of_residual {
            let own = input.saved_own_rows(own);
            pass.backend.copy(own, rows.rows_mut(aggregates_at..aggregates_at + count));
        }
    }

    /// Splits `D` rows of [`Model::bottom_rows`] by their aggregates (`D` rows each): writes the
    /// coordinates of the aggregates in `basis`, and subtracts their product with the basis and the
    /// weights, and the bias, from the rows.
    ///
    /// # Panics
    /// The bottom layer does not support aggregates ([`Model::aggregate_dims`] is empty).
    pub fn project_rows(
        &self,
        pass: &Pass,
        basis: &[Matrix],
        aggregates: &[Matrix],
        scratch: &mut Activations,
        to: ProjectedRows,
    ) {
        let ProjectedRows { rows, coordinates, at } = to;
        let places = at..at + aggregates[0].num_rows();
        for (i, (aggregates, basis)) in aggregates.iter().zip(basis).enumerate() {
            let beta = if i == 0 { 0.0 } else { 1.0 };
            let to = coordinates.rows_mut(places.clone());
            Gemm { a: (aggregates.view(), Side::Plain), b: (basis.view(), Side::Transposed), beta, c: to }
                .run(pass.backend);
        }
        let stage = &self.stages[0];
        let SavedStage { conv: saved, projected: [of_basis, ..], .. } = &mut scratch.stages[0].saved;
        stage.rows_of_basis(pass, basis, saved, of_basis);
        of_basis.view_mut().host().iter_mut().for_each(|x| *x = -*x);
        let coordinates = coordinates.rows(places.clone());
        let mut rows: ViewMut = rows.rows_mut(places);
        Gemm {
            a: (coordinates, Side::Plain),
            b: (of_basis.view(), Side::Plain),
            beta: 1.0,
            c: rows.reborrow(),
        }
        .run(pass.backend);
        if let Some(bias) = stage.reusable().bias() {
            of_basis.resize(1, bias.value.num_cols());
            let negative = of_basis.view_mut().host();
            negative.iter_mut().zip(bias.value.view().host()).for_each(|(to, &from)| *to = -from);
            EpilogueForward {
                bias: Some(of_basis.view()),
                activation: Activation::Identity,
                dropout: Dropout::NONE,
                x: rows,
            }
            .run(pass.backend);
        }
    }

    /// Widths of the aggregates that [`Model::bottom_rows`] saves with each row, for
    /// [`super::Reused::aggregates`]: the aggregated input rows, and the other rows that its
    /// weights multiply. Empty if the bottom layer transforms first, or is not linear behind its
    /// aggregation.
    pub fn aggregate_dims(&self, orders: &[ProductOrder]) -> Vec<usize> {
        let stage = &self.stages[0];
        match stage.conv.as_reusable() {
            Some(conv) if orders[0] == ProductOrder::AggregateFirst => {
                let of_residual = std::iter::repeat_n(stage.conv.spec().in_dim, stage.residual_aggregates());
                conv.aggregate_dims().into_iter().chain(of_residual).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Visits the parameters that a row of [`Model::bottom_rows`] depends on: those of the input
    /// layer, the bottom convolution and its residual. They are the first ones of [`Model::visit`],
    /// with its names and in its order.
    pub fn visit_bottom<'a>(&'a self, see: &mut dyn FnMut(&'a str, &'a Param)) {
        let mut names = self.names.iter();
        let mut see = |p: &'a Param| see(names.next().expect("as many names as parameters"), p);
        if let Some(input) = &self.input {
            input.visit(&mut see);
        }
        self.stages[0].visit_rows(&mut |_, p| see(p));
    }

    /// Visits the same parameters mutably.
    pub fn visit_bottom_mut(&mut self, see: &mut dyn FnMut(&str, &mut Param)) {
        let mut names = self.names.iter();
        let mut see = |p: &mut Param| see(names.next().expect("as many names as parameters"), p);
        if let Some(input) = &mut self.input {
            input.visit_mut(&mut see);
        }
        self.stages[0].visit_rows_mut(&mut see);
    }
}
