//! Cells that update the memory of nodes.

use super::{GruCell, GruState, RnnCell, RnnState};
use crate::{Matrix, Param, Pass, View};

/// Kind of the cell that updates the memory of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryCellKind {
    /// [`GruCell`], as in TGN.
    Gru,
    /// [`RnnCell`], as in JODIE.
    Rnn,
}

/// Cell that updates the memory of nodes.
#[derive(Clone, Debug)]
pub(super) enum MemoryCell {
    Gru(GruCell),
    Rnn(RnnCell),
}

/// Matrices that a forward pass of a [`MemoryCell`] saves.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryCellState {
    gru: GruState,
    rnn: RnnState,
}

impl MemoryCell {
    /// Creates a cell for inputs of width `input` and memory of width `state`.
    pub(super) fn new(kind: MemoryCellKind, input: usize, state: usize, key: u64) -> Self {
        match kind {
            MemoryCellKind::Gru => Self::Gru(GruCell::new(input, state, key)),
            MemoryCellKind::Rnn => Self::Rnn(RnnCell::new(input, state, key)),
        }
    }

    pub(super) fn width(&self) -> usize {
        match self {
            Self::Gru(cell) => cell.width(),
            Self::Rnn(cell) => cell.width(),
        }
    }

    pub(super) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        match self {
            Self::Gru(cell) => cell.visit(see),
            Self::Rnn(cell) => cell.visit(see),
        }
    }

    pub(super) fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        match self {
            Self::Gru(cell) => cell.visit_mut(see),
            Self::Rnn(cell) => cell.visit_mut(see),
        }
    }

    pub(super) fn forward(
        &self,
        pass: &Pass,
        [x, h]: [View; 2],
        saved: &mut MemoryCellState,
        out: &mut Matrix,
    ) {
        match self {
            Self::Gru(cell) => cell.forward(pass, x, h, &mut saved.gru, out),
            Self::Rnn(cell) => cell.forward(pass, x, h, &mut saved.rnn, out),
        }
    }

    pub(super) fn backward(
        &mut self,
        pass: &Pass,
        inputs: [View; 2],
        saved: &mut MemoryCellState,
        grad: View,
        x_grad: &mut Matrix,
    ) {
        match self {
            Self::Gru(cell) => cell.backward(pass, inputs, &mut saved.gru, grad, Some(x_grad)),
            Self::Rnn(cell) => cell.backward(pass, inputs, &mut saved.rnn, grad, Some(x_grad)),
        }
    }
}
