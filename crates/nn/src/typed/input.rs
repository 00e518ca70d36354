//! Input rows of a typed model: features of each type projected to one width, or learned rows.

use graphmill_core::{Error, NodeId, Result, typed::Schema};

use super::{LearnedRows, Projected, ProjectionGrad, activations::TypedRows};
use crate::{
    Epilogue, Matrix, Pass,
    backend::{Activation, ops::Add},
    layer::{Linear, site},
};

/// Input rows of a node type.
#[derive(Clone, Debug)]
pub(super) enum TypeInput {
    /// Features times a learned matrix.
    Projected(Box<Linear>),
    /// A learned row for each node.
    Learned(Box<LearnedRows>),
}

/// Input rows of all node types, `dropout(activation(..))`.
#[derive(Clone, Debug)]
pub(super) struct TypedInputs {
    pub(super) types: Vec<TypeInput>,
    pub(super) activation: Activation,
    pub(super) dropout: f32,
    pub(super) dim: usize,
}

impl TypedInputs {
    fn epilogue(&self, pass: &Pass, t: usize) -> Epilogue {
        let dropout = pass.part(t as u64).dropout(self.dropout, site::OUTPUT);
        Epilogue { activation: self.activation, dropout }
    }

    /// Input rows that the first layer reads as projections of `features`, by type, if it `reads`
    /// projections: nothing follows these, and features are narrow enough that they are hardly more
    /// work to sum than rows.
    pub(super) fn projected<'a>(&'a self, features: &'a [Matrix], reads: bool) -> Vec<Option<Projected<'a>>> {
        if !reads || self.activation != Activation::Identity || self.dropout > 0.0 {
            return Vec::new();
        }
        let of_type = |(input, features): (&'a TypeInput, &'a Matrix)| match input {
            TypeInput::Projected(linear) if linear.in_dim() <= 2 * self.dim && !features.is_sparse() => {
                let (weight, bias) = (linear.weight().value.view(), linear.bias()?.value.view());
                Some(Projected { features: features.view(), weight, bias })
            }
            TypeInput::Projected(_) | TypeInput::Learned(_) => None,
        };
        self.types.iter().zip(features).map(of_type).collect()
    }

    /// Computes the input rows of the nodes of each type, except of those that the first layer
    /// reads as projections.
    ///
    /// # Errors
    /// As for [`TypedInputs::forward_type`].
    pub(super) fn forward(
        &self,
        pass: &Pass,
        schema: &Schema,
        features: &[Matrix],
        nodes: &[Vec<NodeId>],
        projected: &[Option<Projected>],
        rows: &mut TypedRows,
    ) -> Result<()> {
        rows.fit(self.types.len());
        for (t, out) in rows.out.iter_mut().enumerate() {
            if let (Some(Some(_)), TypeInput::Projected(linear)) = (projected.get(t), &self.types[t]) {
                check_rows(schema, t, linear.in_dim(), &features[t], nodes[t].len())?;
                out.resize(0, self.dim);
                continue;
            }
            self.forward_type(pass, schema, t, &features[t], &nodes[t], out)?;
        }
        Ok(())
    }

    /// Computes the input rows of `nodes` of type `t`.
    ///
    /// # Errors
    /// Features have another width than the model, or another number of rows than nodes.
    pub(super) fn forward_type(
        &self,
        pass: &Pass,
        schema: &Schema,
        t: usize,
        features: &Matrix,
        nodes: &[NodeId],
        out: &mut Matrix,
    ) -> Result<()> {
        match &self.types[t] {
            TypeInput::Learned(learned) if learned.is_partial() => {
                check_rows(schema, t, self.dim, features, nodes.len())?;
                out.resize(nodes.len(), self.dim);
                pass.backend.copy(features.view(), out.view_mut());
            }
            TypeInput::Learned(learned) => learned.gather(nodes, out)?,
            TypeInput::Projected(linear) => {
                check_rows(schema, t, linear.in_dim(), features, nodes.len())?;
                out.resize(nodes.len(), self.dim);
                linear.forward(pass, features.view(), 0.0, Epilogue::NONE, out.view_mut());
            }
        }
        self.epilogue(pass, t).apply(pass.backend, None, out.view_mut());
        Ok(())
    }

    /// Gradients of the projections. Afterwards `rows.grad` holds the gradients of learned rows.
    /// `projections` are the gradients of those that the first layer read, of the types
    /// where `is_projected` is true.
    pub(super) fn backward(
        &mut self,
        pass: &Pass,
        features: &[Matrix],
        rows: &mut TypedRows,
        (is_projected, projections): (&[bool], &[ProjectionGrad]),
    ) {
        for (t, (out, grad)) in rows.out.iter().zip(&mut rows.grad).enumerate() {
            self.epilogue(pass, t).backward(pass.backend, None, out.view(), grad.view_mut());
        }
        let rows = rows.out.iter().zip(&rows.grad).zip(features);
        for (t, (input, ((out, grad), features))) in self.types.iter_mut().zip(rows).enumerate() {
            let TypeInput::Projected(linear) = input else { continue };
            if is_projected.get(t) == Some(&true) {
                let of = linear.weight_mut().grad.view_mut();
                Add { alpha: 1.0, x: projections[t].weight.view(), y: of }.run(pass.backend);
                let of = linear.bias_mut().map(|bias| bias.grad.view_mut());
                of.into_iter().for_each(|y| {
                    Add { alpha: 1.0, x: projections[t].bias.view(), y }.run(pass.backend);
                });
            } else if out.num_rows() > 0 {
                project_backward(pass, linear, features, grad);
            }
        }
    }
}

/// Checks the features of `count` nodes of type `t`, of `width` values each.
fn check_rows(schema: &Schema, t: usize, width: usize, x: &Matrix, count: usize) -> Result<()> {
    if (x.num_rows(), x.num_cols()) == (count, width) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "features of type '{}': {} rows of {} values for {count} nodes and a model of {} features; pass the \
         rows of the batch's nodes",
        schema.types()[t].name,
        x.num_rows(),
        x.num_cols(),
        width
    )))
}

/// Gradients of a projection; the gradient of the features is not needed.
fn project_backward(pass: &Pass, linear: &mut Linear, x: &Matrix, grad: &Matrix) {
    linear.backward_product(pass, x.view(), grad.view());
    if let Some(bias) = linear.bias_mut() {
        pass.backend.add_column_sums(grad.view(), bias.grad.view_mut());
    }
}
