//! Input rows of a typed model: features of each type projected to one width, or learned rows.

use graphmill_core::{Error, NodeId, Result, typed::Schema};

use super::{LearnedRows, activations::TypedRows};
use crate::{
    Epilogue, Matrix, Pass,
    backend::Activation,
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

    /// Computes the input rows of the nodes of each type.
    ///
    /// # Errors
    /// As for [`TypedInputs::forward_type`].
    pub(super) fn forward(
        &self,
        pass: &Pass,
        schema: &Schema,
        features: &[Matrix],
        nodes: &[Vec<NodeId>],
        rows: &mut TypedRows,
    ) -> Result<()> {
        rows.fit(self.types.len());
        for (t, out) in rows.out.iter_mut().enumerate() {
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
            TypeInput::Learned(learned) => learned.gather(pass.backend, nodes, out)?,
            TypeInput::Projected(linear) => {
                let (x, count) = (features, nodes.len());
                if (x.num_rows(), x.num_cols()) != (count, linear.in_dim()) {
                    return Err(Error::invalid(format!(
                        "features of type '{}': {} rows of {} values for {count} nodes and a model of {} \
                         features; pass the rows of the batch's nodes",
                        schema.types()[t].name,
                        x.num_rows(),
                        x.num_cols(),
                        linear.in_dim()
                    )));
                }
                out.resize(count, self.dim);
                linear.forward(pass, x.view(), 0.0, Epilogue::NONE, out.view_mut());
            }
        }
        self.epilogue(pass, t).apply(pass.backend, None, out.view_mut());
        Ok(())
    }

    /// Gradients of the projections. Afterwards `rows.grad` holds the gradients of learned rows.
    pub(super) fn backward(&mut self, pass: &Pass, features: &[Matrix], rows: &mut TypedRows) {
        for (t, (out, grad)) in rows.out.iter().zip(&mut rows.grad).enumerate() {
            self.epilogue(pass, t).backward(pass.backend, None, out.view(), grad.view_mut());
        }
        let rows = rows.out.iter().zip(&rows.grad).zip(features);
        for (input, ((out, grad), features)) in self.types.iter_mut().zip(rows) {
            if let TypeInput::Projected(linear) = input
                && out.num_rows() > 0
            {
                project_backward(pass, linear, features, grad);
            }
        }
    }
}

/// Gradients of a projection; the gradient of the features is not needed.
fn project_backward(pass: &Pass, linear: &mut Linear, x: &Matrix, grad: &Matrix) {
    linear.backward_product(pass, x.view(), grad.view());
    if let Some(bias) = linear.bias_mut() {
        pass.backend.add_column_sums(grad.view(), bias.grad.view_mut());
    }
}
