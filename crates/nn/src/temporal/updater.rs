//! Parameters that turn the waiting messages of a memory into rows of it.

use graphmill_core::{NodeId, Result, keyed, memory};

use super::{CellInput, CellKind, MemoryState, NodeMemory, RecurrentCell, TimeEncoding};
use crate::{Param, Pass, View};

/// Parameters that turn waiting messages into memory: a recurrent cell over `[message | phi(t -
/// last update)]`.
#[derive(Clone, Debug)]
pub struct MemoryUpdater {
    encoding: TimeEncoding,
    cell: RecurrentCell,
}

impl MemoryUpdater {
    /// Creates the parameters for memory of `width` columns, events of `edge_dim` features and a
    /// time encoding of `time_dim` columns.
    pub fn new(kind: CellKind, width: usize, edge_dim: usize, time_dim: usize, key: u64) -> Self {
        let input = 2 * width + edge_dim + time_dim;
        let cell = RecurrentCell::new(kind, input, width, keyed::key(&[key, 0]));
        Self { encoding: TimeEncoding::new(time_dim), cell }
    }

    /// Visits every parameter, always in the same order.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.encoding.visit(see);
        self.cell.visit(see);
    }

    /// Visits every parameter mutably, in the order of [`MemoryUpdater::visit`].
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.encoding.visit_mut(see);
        self.cell.visit_mut(see);
    }

    /// Computes the memory of `nodes` (distinct) after their waiting messages. `store` is
    /// unchanged; nodes without a message have the stored row.
    ///
    /// # Errors
    /// A node is unknown.
    pub fn update(
        &self,
        pass: &Pass,
        store: &NodeMemory,
        nodes: &[NodeId],
        state: &mut MemoryState,
    ) -> Result<()> {
        self.read(store, nodes, state)?;
        self.apply(pass, state);
        Ok(())
    }

    /// Reads the rows and waiting messages of `nodes` (distinct), the first part of
    /// [`MemoryUpdater::update`].
    ///
    /// # Errors
    /// A node is unknown.
    pub fn read(&self, store: &NodeMemory, nodes: &[NodeId], state: &mut MemoryState) -> Result<()> {
        store.check(nodes)?;
        store.hold(nodes.len());
        let MemoryState { rows, times, updated, differences, input, old, .. } = state;
        memory::demand_copy(&mut state.nodes, nodes);
        times.clear();
        updated.clear();
        differences.clear();
        memory::demand(times, nodes.len());
        memory::demand(updated, nodes.len());
        memory::demand(differences, nodes.len());
        let (width, stride) = (store.width(), store.message.num_cols());
        rows.resize(nodes.len(), width);
        let (stored, messages) = (store.memory.view().host(), store.message.view().host());
        for (at, (&v, row)) in
            nodes.iter().zip(rows.view_mut().host().chunks_exact_mut(width.max(1))).enumerate()
        {
            let v = v as usize;
            row.copy_from_slice(&stored[v * width..(v + 1) * width]);
            let last = store.times.last(v);
            let Some(time) = store.times.waiting(v) else {
                times.push(last);
                continue;
            };
            times.push(time);
            updated.push(at as u32);
            differences.push((i128::from(time) - i128::from(last)) as f64);
        }
        // a waiting message begins with the stored memory of its node, which is the cell's state
        let (rest, dim) = (stride - width, stride - width + self.encoding.dim());
        input.resize(updated.len(), dim);
        old.resize(updated.len(), width);
        let lines = input.view_mut().host().chunks_exact_mut(dim.max(1));
        let lines = lines.zip(old.view_mut().host().chunks_exact_mut(width.max(1))).zip(updated.iter());
        for ((line, old), &at) in lines {
            let v = nodes[at as usize] as usize;
            line[..rest].copy_from_slice(&messages[v * stride + width..(v + 1) * stride]);
            old.copy_from_slice(&stored[v * width..(v + 1) * width]);
        }
        Ok(())
    }

    /// Computes the memory of the nodes that [`MemoryUpdater::read`] read last into
    /// [`MemoryState::rows`], the second part of [`MemoryUpdater::update`].
    pub fn apply(&self, pass: &Pass, state: &mut MemoryState) {
        let MemoryState { rows, updated, differences, input, old, new, cell, .. } = state;
        let width = rows.num_cols();
        self.encoding.forward_into(differences, input.num_cols() - self.encoding.dim(), input);
        let of_cell = CellInput { x: input.view(), h: old.view(), repeats_state: true };
        self.cell.forward(pass, of_cell, cell, new);
        let all = rows.view_mut().host();
        for (&at, new) in updated.iter().zip(new.view().host().chunks_exact(width.max(1))) {
            all[at as usize * width..(at as usize + 1) * width].copy_from_slice(new);
        }
    }

    /// Adds to the gradients of all parameters, from that of the updated rows (`R x M`). Stored
    /// memory and messages are constants.
    pub fn backward(&mut self, pass: &Pass, state: &mut MemoryState, rows_grad: View) {
        let MemoryState { updated, differences, input, old, grad, input_grad, encoded_grad, cell, .. } =
            state;
        let (width, time_dim) = (self.cell.width(), self.encoding.dim());
        grad.resize(updated.len(), width);
        let from = rows_grad.host();
        for (&at, to) in updated.iter().zip(grad.view_mut().host().chunks_exact_mut(width.max(1))) {
            to.copy_from_slice(&from[at as usize * width..(at as usize + 1) * width]);
        }
        let mut input_grad = self.encoding.is_learned().then_some(input_grad);
        let of_cell = CellInput { x: input.view(), h: old.view(), repeats_state: true };
        self.cell.backward(pass, of_cell, cell, grad.view(), input_grad.as_deref_mut());
        let Some(input_grad) = input_grad else { return };
        encoded_grad.resize(updated.len(), time_dim);
        let (dim, from) = (input.num_cols(), input_grad.view().host());
        let lines = encoded_grad.view_mut().host().chunks_exact_mut(time_dim.max(1));
        for (to, from) in lines.zip(from.chunks_exact(dim.max(1))) {
            to.copy_from_slice(&from[dim - time_dim..]);
        }
        self.encoding.backward(differences, encoded_grad.view());
    }
}
