//! Sums of gradients and losses over ranks.
//!
//! The gradient of a batch is the sum of the ranks' gradients, weighted by their seeds, or by the
//! nodes of the task's type in their subgraphs. Dense
//! gradients are summed in rank order. The gradients of learned rows are sent to the owners of the
//! nodes, which add up those of a row that occurs on several ranks in rank order, and update it.

use graphmill_core::{Matrix, NodeId};
use graphmill_nn::typed::{TypedActivations, TypedModel};

use super::own_rows::RowOwners;
use crate::{Result, learner::BatchShare};

/// Gradients of own learned rows of a type from the batches of all ranks.
pub(in crate::typed) struct RowGradients {
    /// Number of the type.
    pub(in crate::typed) node_type: usize,
    /// Places of own nodes, which may repeat.
    pub(in crate::typed) places: Vec<NodeId>,
    pub(in crate::typed) grad: Matrix,
}

/// Sums the gradients of a batch over ranks, of which `own` is this rank's share. `nodes` are its
/// input nodes with the activations of its backward pass, if it had one; without, its gradient is
/// zero. Returns the mean loss and the seeds of the batch, and the gradients of own learned rows;
/// `None` if the subgraphs of all ranks have no node of the task's type.
///
/// # Errors
/// A rank did not take part.
pub(in crate::typed) fn exchange(
    over: &RowOwners,
    model: &mut TypedModel,
    own: BatchShare,
    (nodes, acts): (&[Vec<NodeId>], Option<&TypedActivations>),
) -> Result<Option<(f64, usize, Vec<RowGradients>)>> {
    let ranks = &over.ranks;
    let (loss, seeds, share) = ranks.batch_loss(own)?;
    let Some(share) = share else { return Ok(None) };
    let mut values: Vec<f32> = Vec::new();
    // running statistics have values instead of gradients
    model.visit(&mut |_, param| {
        let from = if param.trainable { &param.grad } else { &param.value };
        values.extend(from.view().host().iter().map(|&x| share * x));
    });
    ranks.sum(&mut values)?;
    let mut rest = &values[..];
    model.visit_mut(&mut |_, param| {
        let to = if param.trainable { &mut param.grad } else { &mut param.value };
        let to = to.view_mut().host();
        let (these, others) = rest.split_at(to.len());
        to.copy_from_slice(these);
        rest = others;
    });
    let mut rows = Vec::new();
    for (t, learned) in model.learned_rows() {
        let width = learned.table().num_cols();
        let grads: Vec<f32> = acts
            .map(|acts| acts.input_grad(t).host().iter().map(|&x| share * x).collect())
            .unwrap_or_default();
        let of_batch = if acts.is_some() { &nodes[t][..] } else { &[][..] };
        let (places, grad) = over.send_gradients(t, width, of_batch, &grads)?;
        rows.push(RowGradients { node_type: t, places, grad });
    }
    Ok(Some((loss, seeds, rows)))
}
