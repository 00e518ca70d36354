//! Sums of gradients and losses over ranks.
//!
//! The gradient of a batch is the sum of the ranks' gradients, weighted by their seeds, or by the
//! nodes of the task's type in their subgraphs, or by their positives in a run on links. Dense
//! gradients are summed in rank order. The gradients of learned rows are sent to the owners of the
//! nodes, which add up those of a row that occurs on several ranks in rank order, and update it.

use graphmill_core::{Matrix, NodeId};
use graphmill_nn::{
    Param,
    optim::SparseAdam,
    typed::{TypedActivations, TypedModel},
};

use super::own_rows::{RowOwners, update_alone};
use crate::{Result, distributed::Ranks, learner::BatchShare, versions::Parameters};

/// Gradients of learned rows of a type.
pub(in crate::typed) struct RowGradients {
    /// Number of the type.
    pub(in crate::typed) node_type: usize,
    /// Nodes, which may repeat; of a rank that has the rows of its own nodes alone, their places.
    pub(in crate::typed) places: Vec<NodeId>,
    pub(in crate::typed) grad: Matrix,
}

/// Types with learned rows, and the width of their rows.
pub(in crate::typed) fn learned_types(model: &TypedModel) -> Vec<(usize, usize)> {
    model.learned_rows().map(|(t, rows)| (t, rows.table().num_cols())).collect()
}

/// Sums the gradients of a batch over ranks, of which `own` is this rank's share: those of `dense`
/// and of the rows of the `learned` types. `nodes` are the share's input nodes with the activations
/// of its backward pass, if it had one; without, its gradient is zero. Returns the mean loss and
/// the seeds of the batch, and the gradients of own learned rows; `None` if the subgraphs of all
/// ranks have no node of the task's type.
///
/// # Errors
/// A rank did not take part.
pub(in crate::typed) fn exchange(
    over: &RowOwners,
    (dense, learned): (&mut dyn Parameters, &[(usize, usize)]),
    own: BatchShare,
    (nodes, acts): (&[Vec<NodeId>], Option<&TypedActivations>),
) -> Result<Option<(f64, usize, Vec<RowGradients>)>> {
    let (loss, seeds, share) = over.ranks.batch_loss(own)?;
    let Some(share) = share else { return Ok(None) };
    sum_dense(&over.ranks, dense, share)?;
    let mut rows = Vec::new();
    for &(t, width) in learned {
        let grads: Vec<f32> = acts
            .map(|acts| acts.input_grad(t).host().iter().map(|&x| share * x).collect())
            .unwrap_or_default();
        let of_batch = if acts.is_some() { &nodes[t][..] } else { &[][..] };
        let (places, grad) = over.send_gradients(t, width, of_batch, &grads)?;
        rows.push(RowGradients { node_type: t, places, grad });
    }
    Ok(Some((loss, seeds, rows)))
}

/// Sums the gradients of a round of batches over ranks, of which this rank's shares add up to those
/// of `dense` and to `rows` by node. Returns the gradients of own learned rows.
///
/// # Errors
/// A rank did not take part.
pub(in crate::typed) fn exchange_round(
    over: &RowOwners,
    dense: &mut dyn Parameters,
    rows: Vec<RowGradients>,
) -> Result<Vec<RowGradients>> {
    sum_dense(&over.ranks, dense, 1.0)?;
    let at_owners = |RowGradients { node_type, places, grad }: RowGradients| {
        let (width, grads) = (grad.num_cols(), grad.view().host());
        let (places, grad) = over.send_gradients(node_type, width, &places, grads)?;
        Ok(RowGradients { node_type, places, grad })
    };
    rows.into_iter().map(at_owners).collect()
}

/// Replaces gradients, and values of running statistics, by their sum over ranks, this rank's times
/// `share`.
///
/// # Errors
/// A rank did not take part.
fn sum_dense(ranks: &Ranks, dense: &mut dyn Parameters, share: f32) -> Result<()> {
    let mut values: Vec<f32> = Vec::new();
    dense.each(&mut |param: &Param| {
        let from = if param.trainable { &param.grad } else { &param.value };
        values.extend(from.view().host().iter().map(|&x| share * x));
    });
    ranks.sum(&mut values)?;
    let mut rest = &values[..];
    dense.each_mut(&mut |param: &mut Param| {
        let to = if param.trainable { &mut param.grad } else { &mut param.value };
        let to = to.view_mut().host();
        let (these, others) = rest.split_at(to.len());
        to.copy_from_slice(these);
        rest = others;
    });
    Ok(())
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
