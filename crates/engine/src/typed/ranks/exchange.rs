//! Sums of gradients and losses over ranks.
//!
//! The gradient of a batch is the sum of the ranks' gradients, weighted by their seeds. Dense
//! gradients are summed in rank order. The gradients of learned rows are gathered in rank order,
//! and each rank adds up those of a row that occurs on several ranks, so all ranks make the same
//! update of the same rows as a single process.

use graphmill_core::{Matrix, NodeId};
use graphmill_nn::typed::{TypedActivations, TypedModel};

use crate::{Result, distributed::Ranks, learner::BatchShare};

/// Gradients of learned rows of a type: nodes of all ranks, which may repeat.
pub(in crate::typed) struct RowGradients {
    /// Number of the type.
    pub(in crate::typed) node_type: usize,
    pub(in crate::typed) nodes: Vec<NodeId>,
    pub(in crate::typed) grad: Matrix,
}

/// Sums the gradients of a batch over ranks, of which `own` is this rank's share. `nodes` are its
/// input nodes with the activations of its backward pass, if it had one; without, its gradient is
/// zero. Returns the mean loss and the seeds of the batch, and the gradients of learned rows.
///
/// # Errors
/// A rank did not take part.
pub(in crate::typed) fn exchange(
    ranks: &Ranks,
    model: &mut TypedModel,
    own: BatchShare,
    (nodes, acts): (&[Vec<NodeId>], Option<&TypedActivations>),
) -> Result<(f64, usize, Vec<RowGradients>)> {
    let share = own.nodes as f32 / own.global.unwrap_or(own.nodes).max(1) as f32;
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
        let mut words: Vec<u32> = Vec::new();
        if let Some(acts) = acts {
            words.extend_from_slice(&nodes[t]);
            words.extend(acts.input_grad(t).host().iter().map(|&x| (share * x).to_bits()));
        }
        let mut gathered = RowGradients { node_type: t, nodes: Vec::new(), grad: Matrix::default() };
        let mut grads: Vec<f32> = Vec::new();
        for words in ranks.gather(&words)? {
            // a row has its node and its values
            let (nodes, bits) = words.split_at(words.len() / (width + 1));
            gathered.nodes.extend_from_slice(nodes);
            grads.extend(bits.iter().map(|&bits| f32::from_bits(bits)));
        }
        gathered.grad = Matrix::from_slice(gathered.nodes.len(), width, &grads);
        rows.push(gathered);
    }
    let (loss, seeds) = ranks.batch_loss(own)?;
    Ok((loss, seeds, rows))
}
