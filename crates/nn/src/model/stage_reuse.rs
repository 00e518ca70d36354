//! Table rows in the bottom stage: the forward pass appends them to the computed rows, and the
//! backward pass passes their gradient to the weights.

use super::{
    activations::SavedStage,
    reused::{Projected, Reused},
    stage::{Residual, Stage},
};
use crate::{
    Epilogue, Matrix, Pass, Saved, View, ViewMut,
    backend::{
        Side,
        ops::{Gather, Gemm},
    },
    layer::{ReusableLayer, site},
};

const NOT_REUSABLE: &str = "aggregates require a layer that saves them";

impl Stage {
    /// The convolution, as a layer that computes rows from aggregates.
    ///
    /// # Panics
    /// The convolution does not save aggregates ([`super::Model::aggregate_dims`] is empty).
    pub(super) fn reusable(&self) -> &dyn ReusableLayer {
        self.conv.as_reusable().expect(NOT_REUSABLE)
    }

    fn reusable_mut(&mut self) -> &mut dyn ReusableLayer {
        self.conv.as_reusable_mut().expect(NOT_REUSABLE)
    }

    /// Number of matrices that the residual's gradient needs: the own rows, if they are multiplied.
    pub(super) fn residual_aggregates(&self) -> usize {
        usize::from(matches!(self.residual, Some(Residual::Linear(_))))
    }

    /// Appends reused rows to the `computed` ones in `rows`, and finishes them if the computed ones
    /// are finished already. Their row numbers, or a separate site, make their dropout masks differ
    /// from those of the computed rows.
    pub(super) fn append_reused(
        &self,
        pass: &Pass,
        reused: Reused,
        computed: usize,
        saved: &mut SavedStage,
        rows: ViewMut,
    ) {
        let behind = computed..computed + reused.slots.len();
        let mut behind = rows.rows(behind);
        Gather { src: reused.rows, ids: reused.slots, dst: behind.reborrow() }.run(pass.backend);
        let mut bias = None;
        if let Some(Projected { coordinates, basis, .. }) = reused.projected {
            let SavedStage { conv: saved, projected: [of_basis, of_rows, ..], .. } = saved;
            self.rows_of_basis(pass, basis, saved, of_basis);
            of_rows.resize(reused.slots.len(), coordinates.num_cols());
            Gather { src: coordinates, ids: reused.slots, dst: of_rows.view_mut() }.run(pass.backend);
            let (of_rows, of_basis) = (of_rows.view(), of_basis.view());
            Gemm { a: (of_rows, Side::Plain), b: (of_basis, Side::Plain), beta: 1.0, c: behind.reborrow() }
                .run(pass.backend);
            bias = self.reusable().bias();
        }
        let epilogue = if self.is_plain() { self.epilogue(pass, site::REUSED) } else { Epilogue::NONE };
        epilogue.apply(pass.backend, bias, behind);
    }

    /// Products of a basis with the weights, without the bias, `k x O`.
    pub(super) fn rows_of_basis(&self, pass: &Pass, basis: &[Matrix], saved: &mut Saved, out: &mut Matrix) {
        let (of_conv, of_residual) = basis.split_at(basis.len() - self.residual_aggregates());
        out.resize(basis[0].num_rows(), self.conv.spec().out_dim);
        self.reusable().apply_aggregates(pass, of_conv, saved, out.view_mut());
        if let (Some(Residual::Linear(linear)), [own]) = (&self.residual, of_residual) {
            linear.forward_product(pass, own.view(), 1.0, out.view_mut());
        }
    }

    /// Passes the gradient of reused rows to the weights if they have aggregates, and truncates
    /// `grad` to the `computed` rows. `y` holds all output rows.
    pub(super) fn backward_reused(
        &mut self,
        pass: &Pass,
        reused: Reused,
        computed: usize,
        y: View,
        saved: &mut SavedStage,
        grad: &mut Matrix,
    ) {
        let projected = reused.projected.filter(|projected| projected.learns);
        if !reused.aggregates.is_empty() || projected.is_some() {
            let behind = computed..computed + reused.slots.len();
            assert_eq!(grad.num_rows(), behind.end, "saved aggregates require the gradients of all rows");
            if self.is_plain() {
                let epilogue = self.epilogue(pass, site::REUSED);
                epilogue.backward(pass.backend, None, y.rows(behind.clone()), grad.rows_mut(behind.clone()));
            }
            let grad = grad.rows(behind);
            if let Some(bias) = self.conv.as_reusable_mut().and_then(|conv| conv.bias_mut()) {
                pass.backend.add_column_sums(grad, bias.grad.view_mut());
            }
            let SavedStage { conv: saved, reused: gathered, projected: [_, of_rows, of_basis], .. } = saved;
            if let Some(Projected { coordinates, basis, .. }) = projected {
                // the saved coordinates of the rows are still valid
                of_basis.resize(coordinates.num_cols(), grad.num_cols());
                let to = of_basis.view_mut();
                Gemm { a: (of_rows.view(), Side::Transposed), b: (grad, Side::Plain), beta: 0.0, c: to }
                    .run(pass.backend);
                self.backward_aggregates(pass, basis, saved, of_basis.view());
            }
            let count = reused.aggregates.len();
            gathered.resize_with(count.max(gathered.len()), Matrix::default);
            let gathered = &mut gathered[..count];
            for (gathered, table) in gathered.iter_mut().zip(reused.aggregates) {
                gathered.resize(reused.slots.len(), table.num_cols());
                Gather { src: table.view(), ids: reused.slots, dst: gathered.view_mut() }.run(pass.backend);
            }
            if !gathered.is_empty() {
                self.backward_aggregates(pass, gathered, saved, grad);
            }
        }
        grad.truncate(computed);
    }

    /// Adds the gradient of rows that were computed from `aggregates` to the gradients of the
    /// weights.
    fn backward_aggregates(&mut self, pass: &Pass, aggregates: &[Matrix], saved: &mut Saved, grad: View) {
        let (of_conv, of_residual) = aggregates.split_at(aggregates.len() - self.residual_aggregates());
        self.reusable_mut().backward_aggregates(pass, of_conv, saved, grad);
        if let (Some(Residual::Linear(linear)), [own]) = (&mut self.residual, of_residual) {
            linear.backward_product(pass, own.view(), grad);
        }
    }
}
