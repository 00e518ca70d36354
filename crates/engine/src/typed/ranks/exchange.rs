//! Sums of gradients and losses over ranks.
//!
//! The gradient of a batch is the sum of the ranks' gradients, weighted by their seeds, or by the
//! nodes of the task's type in their subgraphs, or by their positives in a run on links. Dense
//! gradients are summed in rank order. The gradients of learned rows are sent to the owners of the
//! nodes, which add up those of a row that occurs on several ranks in rank order, and update it.

use graphmill_core::{Matrix, NodeId};
use graphmill_nn::{
    Param,
    link::decoder::Decoder,
    optim::SparseAdam,
    typed::{TypedActivations, TypedModel},
};

use super::own_rows::{RowOwners, update_alone};
use crate::{Result, learner::BatchShare};

/// Gradients of own learned rows of a type from the batches of all ranks.
pub(in crate::typed) struct RowGradients {
    /// Number of the type.
    pub(in crate::typed) node_type: usize,
    /// Places of own nodes, which may repeat.
    pub(in crate::typed) places: Vec<NodeId>,
    pub(in crate::typed) grad: Matrix,
}

/// Sums the gradients of a batch over ranks, of which `own` is this rank's share: those of the
/// model and, in a run on links, of its decoder. `nodes` are the share's input nodes with the
/// activations of its backward pass, if it had one; without, its gradient is zero. Returns the mean
/// loss and the seeds of the batch, and the gradients of own learned rows; `None` if the subgraphs
/// of all ranks have no node of the task's type.
///
/// # Errors
/// A rank did not take part.
pub(in crate::typed) fn exchange(
    over: &RowOwners,
    (model, mut decoder): (&mut TypedModel, Option<&mut dyn Decoder>),
    own: BatchShare,
    (nodes, acts): (&[Vec<NodeId>], Option<&TypedActivations>),
) -> Result<Option<(f64, usize, Vec<RowGradients>)>> {
    let ranks = &over.ranks;
    let (loss, seeds, share) = ranks.batch_loss(own)?;
    let Some(share) = share else { return Ok(None) };
    let mut values: Vec<f32> = Vec::new();
    // running statistics have values instead of gradients
    let mut weigh = |param: &Param| {
        let from = if param.trainable { &param.grad } else { &param.value };
        values.extend(from.view().host().iter().map(|&x| share * x));
    };
    model.visit(&mut |_, param| weigh(param));
    if let Some(decoder) = &decoder {
        decoder.visit(&mut weigh);
    }
    ranks.sum(&mut values)?;
    let mut rest = &values[..];
    let mut replace = |param: &mut Param| {
        let to = if param.trainable { &mut param.grad } else { &mut param.value };
        let to = to.view_mut().host();
        let (these, others) = rest.split_at(to.len());
        to.copy_from_slice(these);
        rest = others;
    };
    model.visit_mut(&mut |_, param| replace(param));
    if let Some(decoder) = &mut decoder {
        decoder.visit_mut(&mut replace);
    }
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

/// Updates the learned rows of a model by `rows`; without, by the activations of the last pass for
/// its input nodes, in a process that has no gradients of other ranks.
///
/// # Errors
/// The state of rows is in files, for which the disk has too little space.
pub(in crate::typed) fn update_rows(
    model: &mut TypedModel,
    sparse: &mut SparseAdam,
    rows: Option<&[RowGradients]>,
    (nodes, acts): (&[Vec<NodeId>], &TypedActivations),
) -> Result<()> {
    let Some(rows) = rows else { return update_alone(model, sparse, nodes, acts) };
    for ((t, learned), of) in model.learned_rows_mut().zip(rows) {
        debug_assert_eq!(t, of.node_type);
        learned.update(sparse, t, &of.places, of.grad.view());
    }
    Ok(())
}
