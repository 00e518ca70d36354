//! Bottom-layer rows that come from a table instead of a block.
//!
//! ```text
//!   C rows computed from block 0 ─┐
//!                                 ├─ norm, activation, dropout ── C + H sources of block 1
//!   H rows of the table          ──┘
//! ```
//!
//! [`Model::bottom_rows`] makes rows for a table, and
//! [`StepInput::reused`](super::StepInput::reused) puts rows of it behind those that a batch
//! computes. The model does not know which rows are in the table, which parameters they were made
//! with, or how long they stay there: that is the caller's policy.
//!
//! A stored row is the sum of convolution, bias and residual, before the norm: a norm over the
//! batch sees all rows of the batch, and every batch has its own dropout masks. A convolution that
//! activates its rows itself is stored activated.
//!
//! # Gradients
//!
//! - Rows without aggregates are constants: their gradient ends, and the bottom layer learns from
//!   computed rows alone.
//! - Rows with their aggregates hand it to the weights behind the aggregation, as if the rows had
//!   been computed from these aggregates now. Parameters before the aggregation (attention's
//!   vectors, the input layer) get none.
//! - Rows with coordinates in a basis ([`Projected`](super::Projected)) hand it to these weights
//!   through the basis.
//!
//! # Cost
//!
//! O(H O) more than the computed rows take; with aggregates O(H F O), a product.
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

/// Tables that [`Model::bottom_rows`] fills.
#[derive(Debug)]
pub struct BottomRows<'a> {
    /// The rows before the norm, as wide as [`Model::layer_out_dim`] of layer 0.
    pub rows: &'a mut Matrix,
    /// The first of them that is written.
    pub at: usize,
    /// Their aggregates, of the widths [`Model::aggregate_dims`]; empty: they are not saved.
    pub aggregates: &'a mut [Matrix],
    /// The first row of those tables that is written.
    pub aggregates_at: usize,
}

/// Rows from [`Model::bottom_rows`] that [`Model::project_rows`] changes.
#[derive(Debug)]
pub struct ProjectedRows<'a> {
    /// The rows.
    pub rows: &'a mut Matrix,
    /// Their coordinates, as wide as the basis has rows.
    pub coordinates: &'a mut Matrix,
    /// The first row that is changed.
    pub at: usize,
}

impl Model {
    /// The bottom layer's rows before its norm, of a block alone, and the aggregates they are made
    /// from: `D` rows each. `input` is without transformed rows, its `x` as for [`Model::forward`];
    /// `scratch` is reused from call to call.
    ///
    /// Dropout of features and attention depends on `pass`; nothing drops from the rows.
    ///
    /// # Panics
    /// Aggregates are wanted of a layer that transforms first.
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

    /// Splits `D` rows from [`Model::bottom_rows`] with their aggregates (`D` rows each) in two:
    /// writes the coordinates of the aggregates in `basis`, and subtracts their product with the
    /// basis and the weights, and the bias, from the rows.
    ///
    /// # Panics
    /// The bottom layer has no aggregates ([`Model::aggregate_dims`] is empty).
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

    /// The widths of the aggregates that [`Model::bottom_rows`] saves with each row, for
    /// [`super::Reused::aggregates`]: the aggregated input rows, and the other rows that its weights are multiplied by. Empty
    /// if the bottom layer transforms first, or is not linear behind its aggregation.
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

    /// Shows the parameters that a row of [`Model::bottom_rows`] depends on: the input layer's, the
    /// bottom convolution's and residual's. They are the first ones of [`Model::visit`], with its
    /// names and in its order.
    pub fn visit_bottom<'a>(&'a self, see: &mut dyn FnMut(&'a str, &'a Param)) {
        let mut names = self.names.iter();
        let mut see = |p: &'a Param| see(names.next().expect("as many names as parameters"), p);
        if let Some(input) = &self.input {
            input.visit(&mut see);
        }
        self.stages[0].visit_rows(&mut |_, p| see(p));
    }

    /// Shows the same for change.
    pub fn visit_bottom_mut(&mut self, see: &mut dyn FnMut(&str, &mut Param)) {
        let mut names = self.names.iter();
        let mut see = |p: &mut Param| see(names.next().expect("as many names as parameters"), p);
        if let Some(input) = &mut self.input {
            input.visit_mut(&mut see);
        }
        self.stages[0].visit_rows_mut(&mut see);
    }
}
