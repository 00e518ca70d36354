//! A typed layer with the norm, activation and dropout behind it.

use graphmill_core::Result;

use super::{ProjectionGrad, Scope, TypedGrads, TypedInput, TypedLayer, activations::StageActs};
use crate::{
    Epilogue, Matrix, Param, Pass, Reused,
    backend::{Activation, ops::Gather},
    layer::{Norm, site},
};

/// `dropout(activation(norm(conv(x))))`, with a norm for each type.
#[derive(Clone)]
pub(super) struct TypedStage {
    pub(super) conv: Box<dyn TypedLayer>,
    /// A norm for each type, or none.
    pub(super) norms: Vec<Box<dyn Norm>>,
    pub(super) activation: Activation,
    pub(super) dropout: f32,
}

impl TypedStage {
    /// Visits every parameter with its kind: "conv" or "norm".
    pub(super) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'static str, Scope, &'a Param)) {
        self.conv.visit(&mut |scope, p| see("conv", scope, p));
        for (t, norm) in self.norms.iter().enumerate() {
            norm.visit(&mut |p| see("norm", Scope::Type(t), p));
        }
    }

    /// Visits every parameter mutably, in the same order.
    pub(super) fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.conv.visit_mut(&mut |_, p| see(p));
        self.norms.iter_mut().for_each(|norm| norm.visit_mut(see));
    }

    fn epilogue(&self, pass: &Pass, t: usize) -> Epilogue {
        let dropout = pass.part(t as u64).dropout(self.dropout, site::OUTPUT);
        Epilogue { activation: self.activation, dropout }
    }

    /// Computes the output rows of all types in `acts.rows.out`. The `reused` rows of each type, if
    /// there are some, follow those that the layer computes, before the norm.
    pub(super) fn forward(
        &self,
        pass: &Pass,
        input: &TypedInput,
        reused: &[Reused],
        acts: &mut StageActs,
    ) -> Result<()> {
        let types = input.schema.num_types();
        acts.rows.fit(types);
        let StageActs { rows, saved, before, norms } = acts;
        if self.norms.is_empty() {
            self.conv.forward(pass, input, saved, &mut rows.out)?;
            append(pass, reused, &mut rows.out);
        } else {
            before.resize_with(types, Matrix::default);
            norms.resize_with(types, Default::default);
            self.conv.forward(pass, input, saved, before)?;
            append(pass, reused, before);
            for (t, norm) in self.norms.iter().enumerate() {
                let (x, out) = (&before[t], &mut rows.out[t]);
                out.resize(x.num_rows(), x.num_cols());
                if x.num_rows() > 0 {
                    norm.forward(pass, x.view(), &mut norms[t], out.view_mut());
                }
            }
        }
        for (t, out) in rows.out.iter_mut().enumerate() {
            self.epilogue(pass, t).apply(pass.backend, None, out.view_mut());
        }
        Ok(())
    }

    /// Computes the gradients of the last [`TypedStage::forward`] from `acts.rows.grad`. Reused
    /// rows are constants of the layer, but not of the norm, and leave `acts`.
    pub(super) fn backward(
        &mut self,
        pass: &Pass,
        input: &TypedInput,
        acts: &mut StageActs,
        x_grad: &mut [Matrix],
        projections: &mut [ProjectionGrad],
    ) {
        let StageActs { rows, saved, before, norms } = acts;
        for t in 0..rows.out.len() {
            let (out, grad) = (&rows.out[t], &mut rows.grad[t]);
            self.epilogue(pass, t).backward(pass.backend, None, out.view(), grad.view_mut());
            if let Some(norm) = self.norms.get_mut(t)
                && out.num_rows() > 0
            {
                norm.backward(pass, before[t].view(), &mut norms[t], grad.view_mut());
            }
        }
        let y = if self.norms.is_empty() { &mut rows.out[..] } else { &mut before[..] };
        for ((y, grad), &computed) in y.iter_mut().zip(&mut rows.grad).zip(&input.block.num_dst) {
            y.truncate(computed);
            grad.truncate(computed);
        }
        self.conv.backward(pass, input, saved, TypedGrads { y, grad: &mut rows.grad, x_grad, projections });
    }
}

/// Appends the reused rows of each type to the computed ones.
fn append(pass: &Pass, reused: &[Reused], rows: &mut [Matrix]) {
    for (reused, rows) in reused.iter().zip(rows).filter(|(reused, _)| !reused.slots.is_empty()) {
        let computed = rows.num_rows();
        rows.grow(computed + reused.slots.len());
        let dst = rows.rows_mut(computed..computed + reused.slots.len());
        Gather { src: reused.rows, ids: reused.slots, dst }.run(pass.backend);
    }
}
