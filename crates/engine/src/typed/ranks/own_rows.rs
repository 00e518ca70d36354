//! Learned rows at their owners.
//!
//! # Algorithm
//!
//! Each rank has the rows of its own nodes, with the optimiser's state. Before the forward pass of
//! a batch, each rank sends the ids of its input nodes to their owners and gets their rows, which
//! are those after the last update, because an owner replies between its updates. The gradients go
//! back to the owners, which add up those of the same row in rank order. A row therefore has the
//! bits that it has if every rank makes all updates.
//!
//! # Source
//!
//! Ours; the rows' owners are the parameter servers of Li et al., *Scaling distributed machine
//! learning with the parameter server*, OSDI 2014, with updates in lockstep.
//!
//! # Cost
//!
//! Two messages between each two ranks and a row each way for each remote input node of a batch.
//!
//! # Memory
//!
//! The own rows. Rank 0 has all rows while it writes a checkpoint, and every rank while it reads
//! one.

use std::sync::Arc;

use graphmill_core::{Error as CoreError, NodeId};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::typed::TypedExtracted;
use graphmill_nn::{
    Backend, Matrix,
    optim::SparseAdam,
    typed::{LearnedRows, TypedActivations, TypedModel},
};

use crate::{Result, checkpoint::tensors::Tensor, distributed::Ranks};

/// The ranks that learn rows together, and the owners of the nodes of each type.
#[derive(Clone)]
pub(in crate::typed) struct RowOwners {
    pub(in crate::typed) ranks: Arc<Ranks>,
    pub(in crate::typed) owners: Vec<Arc<NodeOwnership>>,
}

/// Learned rows of all ranks, their moments, and earlier versions of the parameters, while a
/// checkpoint is written.
pub(in crate::typed) type JoinedRows = [Vec<Tensor>; 3];

/// Own nodes of the types without features, of which `dims` are the widths; empty for others.
pub(in crate::typed) fn own_nodes(owners: &[Arc<NodeOwnership>], dims: &[usize]) -> Arc<[Vec<NodeId>]> {
    let of_type = |(owners, dim): (&Arc<NodeOwnership>, &usize)| match dim {
        0 => owners.own().collect(),
        _ => Vec::new(),
    };
    owners.iter().zip(dims).map(of_type).collect()
}

/// Fetches the learned rows of a batch to its features, if each rank has those of its own nodes
/// alone. A rank that measures a step on its own, without `over`, reads zeros.
///
/// # Errors
/// A rank did not take part.
pub(in crate::typed) fn fetch_rows(
    over: Option<&RowOwners>,
    (model, backend): (&TypedModel, &dyn Backend),
    batch: &mut TypedExtracted,
) -> Result<()> {
    if let Some(over) = over {
        return over.fetch_batch(model, batch);
    }
    for (t, rows) in model.learned_rows().filter(|(_, rows)| rows.is_partial()) {
        let out = &mut batch.features[t];
        out.resize(batch.sampled.input_nodes[t].len(), rows.table().num_cols());
        backend.fill(0.0, out.view_mut());
    }
    Ok(())
}

/// Updates the learned rows of a batch with these input nodes in a process that has no gradients of
/// other ranks. If it measures a step of a rank on its own, the state of the rows is allocated.
///
/// # Errors
/// The state is in files, for which the disk has too little space.
pub(super) fn update_alone(
    model: &mut TypedModel,
    sparse: &mut SparseAdam,
    nodes: &[Vec<NodeId>],
    acts: &TypedActivations,
) -> Result<()> {
    for (t, rows) in model.learned_rows_mut() {
        match rows.is_partial() {
            true => sparse.prepare(t, rows.table())?,
            false => rows.update(sparse, t, &nodes[t], acts.input_grad(t)),
        }
    }
    Ok(())
}

impl RowOwners {
    /// Fetches the learned rows of a batch to its features. All ranks call this at the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    fn fetch_batch(&self, model: &TypedModel, batch: &mut TypedExtracted) -> Result<()> {
        let TypedExtracted { sampled, features, .. } = batch;
        let mut learned = model.learned_rows();
        learned.try_for_each(|(t, rows)| self.fetch(t, rows, &sampled.input_nodes[t], &mut features[t]))
    }

    /// Fetches the rows of `nodes` of type `t`, which may repeat, to `out`. All ranks call this at
    /// the same time, each with its own part `rows`.
    ///
    /// # Errors
    /// A rank did not take part.
    fn fetch(&self, t: usize, rows: &LearnedRows, nodes: &[NodeId], out: &mut Matrix) -> Result<()> {
        let (owners, table) = (&self.owners[t], rows.table());
        let width = table.num_cols();
        let mut asked = vec![Vec::new(); self.ranks.size()];
        nodes.iter().for_each(|&v| asked[owners.owner(v)].push(v));
        let asked = self.ranks.exchange_words(asked)?;
        let view = table.view();
        let own: &[u32] = bytemuck::cast_slice(view.host());
        let reply = |ids: &Vec<NodeId>| {
            let mut words = Vec::with_capacity(ids.len() * width);
            for place in owners.places(ids)? {
                words.extend_from_slice(&own[place as usize * width..][..width]);
            }
            Ok::<_, CoreError>(words)
        };
        let replies = asked.iter().map(reply).collect::<Result<Vec<_>, _>>()?;
        let replies = self.ranks.exchange_words(replies)?;
        let mut replies: Vec<_> = replies.iter().map(|words| words.chunks_exact(width.max(1))).collect();
        out.resize(nodes.len(), width);
        for (to, &v) in out.view_mut().host().chunks_exact_mut(width.max(1)).zip(nodes) {
            let rank = owners.owner(v);
            let Some(row) = replies[rank].next() else {
                let message = "fewer learned rows than nodes; use the same build on all machines".into();
                return Err(CoreError::Peer { rank, message }.into());
            };
            to.copy_from_slice(bytemuck::cast_slice(row));
        }
        Ok(())
    }

    /// Sends the gradients of rows of type `t` of `width` values to the owners of `nodes`. Returns
    /// the places of own nodes, which may repeat, and their gradients, by rank. All ranks call this
    /// at the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(super) fn send_gradients(
        &self,
        t: usize,
        width: usize,
        nodes: &[NodeId],
        grads: &[f32],
    ) -> Result<(Vec<NodeId>, Matrix)> {
        let owners = &self.owners[t];
        let mut parts = vec![(Vec::new(), Vec::new()); self.ranks.size()];
        for (&v, grad) in nodes.iter().zip(grads.chunks_exact(width.max(1))) {
            let (ids, words) = &mut parts[owners.owner(v)];
            ids.push(v);
            words.extend(grad.iter().map(|x| x.to_bits()));
        }
        let parts = parts.into_iter().map(|(mut ids, words)| {
            ids.extend(words);
            ids
        });
        let (mut places, mut grads): (Vec<NodeId>, Vec<f32>) = Default::default();
        for words in self.ranks.exchange_words(parts.collect())? {
            // a row has its node and its values
            let (ids, bits) = words.split_at(words.len() / (width + 1));
            places.extend(owners.places(ids)?);
            grads.extend(bits.iter().map(|&bits| f32::from_bits(bits)));
        }
        let grads = Matrix::from_slice(places.len(), width, &grads);
        Ok((places, grads))
    }

    /// Replaces a tensor of the own rows of type `t` by all rows on rank 0, and leaves it on the
    /// others. All ranks call this at the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(in crate::typed) fn join(&self, t: usize, tensor: &mut Tensor) -> Result<()> {
        let (owners, [_, width]) = (&self.owners[t], tensor.shape);
        let mut counts = vec![0; self.ranks.size()];
        (0..owners.num_nodes() as NodeId).for_each(|v| counts[owners.owner(v)] += width);
        let all = self.ranks.collect_words(bytemuck::cast_slice(&tensor.data), &counts)?;
        let Some(all) = all else { return Ok(()) };
        let mut rows: Vec<_> = all.iter().map(|words| words.chunks_exact(width.max(1))).collect();
        let mut whole = Vec::with_capacity(owners.num_nodes() * width);
        for v in 0..owners.num_nodes() as NodeId {
            whole
                .extend(rows[owners.owner(v)].next().into_iter().flatten().map(|&bits| f32::from_bits(bits)));
        }
        (tensor.shape, tensor.data) = ([owners.num_nodes(), width], whole.into());
        Ok(())
    }

    /// Replaces a tensor of all rows of type `t` by the own rows.
    pub(in crate::typed) fn split(&self, t: usize, tensor: &mut Tensor) {
        self.split_known(t, tensor, self.owners[t].num_nodes());
    }

    /// Replaces a tensor of the first `count` rows of type `t` by the own rows among them.
    pub(in crate::typed) fn split_known(&self, t: usize, tensor: &mut Tensor, count: usize) {
        let [rows, width] = tensor.shape;
        if rows == count {
            let row = |v: NodeId| &tensor.data[v as usize * width..][..width];
            let own: Vec<f32> = self.own_below(t, count).flat_map(row).copied().collect();
            (tensor.shape, tensor.data) = ([own.len() / width.max(1), width], own.into());
        }
    }

    /// Joins some rows of type `t` on rank 0: `rows` of `width` values of these ascending `places`
    /// of own nodes, and those of the other ranks. Returns the nodes, ascending, with their rows;
    /// none on the other ranks. All ranks call this at the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(in crate::typed) fn join_rows(
        &self,
        t: usize,
        places: &[NodeId],
        (rows, width): (&Matrix, usize),
    ) -> Result<(Vec<NodeId>, Matrix)> {
        let own: Vec<NodeId> = self.owners[t].own().collect();
        let mut words: Vec<u32> = places.iter().map(|&place| own[place as usize]).collect();
        words.extend(rows.view().host().iter().map(|x| x.to_bits()));
        let counts = self.ranks.gather(&[words.len() as u32])?;
        let counts: Vec<usize> = counts.into_iter().flatten().map(|count| count as usize).collect();
        let Some(all) = self.ranks.collect_words(&words, &counts)? else { return Ok(Default::default()) };
        let mut of_nodes: Vec<(NodeId, &[u32])> = Vec::new();
        for words in &all {
            let (ids, bits) = words.split_at(words.len() / (width + 1));
            of_nodes.extend(ids.iter().copied().zip(bits.chunks_exact(width.max(1))));
        }
        of_nodes.sort_unstable_by_key(|&(v, _)| v);
        let bits = of_nodes.iter().flat_map(|&(_, bits)| bits);
        let values: Vec<f32> = bits.map(|&bits| f32::from_bits(bits)).collect();
        let nodes = of_nodes.iter().map(|&(v, _)| v).collect();
        Ok((nodes, Matrix::from_slice(of_nodes.len(), width, &values)))
    }

    /// The inverse of [`RowOwners::join_rows`]: places of the own ones of `nodes`, with their rows.
    pub(in crate::typed) fn split_rows(
        &self,
        t: usize,
        nodes: &[NodeId],
        rows: &Matrix,
    ) -> (Vec<NodeId>, Matrix) {
        let (owners, width) = (&self.owners[t], rows.num_cols());
        let (mut places, mut values): (Vec<NodeId>, Vec<f32>) = Default::default();
        for (&v, row) in nodes.iter().zip(rows.view().host().chunks_exact(width.max(1))) {
            if owners.is_own(v) {
                places.push(owners.place(v));
                values.extend_from_slice(row);
            }
        }
        let rows = Matrix::from_slice(places.len(), width, &values);
        (places, rows)
    }

    /// Own nodes among the first `count` of type `t`, ascending.
    pub(in crate::typed) fn own_below(&self, t: usize, count: usize) -> impl Iterator<Item = NodeId> {
        self.owners[t].own().take_while(move |&v| (v as usize) < count)
    }
}
