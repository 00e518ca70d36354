//! A block of an MLP-mixer.

use graphmill_core::keyed;
use rayon::prelude::*;

use crate::{
    Epilogue, Matrix, Param, Pass,
    backend::{
        Activation,
        ops::{Add, GeluBackward, GeluForward},
    },
    layer::{
        Linear,
        norm::{LayerNorm, Norm},
        site,
    },
};

/// Names of the parameters of each block: those that mix slots, then those that mix columns.
const NAMES: [[[&str; 6]; 2]; 2] = [
    [
        [
            "blocks.0.slots.gamma",
            "blocks.0.slots.beta",
            "blocks.0.slots.0.weight",
            "blocks.0.slots.0.bias",
            "blocks.0.slots.1.weight",
            "blocks.0.slots.1.bias",
        ],
        [
            "blocks.0.columns.gamma",
            "blocks.0.columns.beta",
            "blocks.0.columns.0.weight",
            "blocks.0.columns.0.bias",
            "blocks.0.columns.1.weight",
            "blocks.0.columns.1.bias",
        ],
    ],
    [
        [
            "blocks.1.slots.gamma",
            "blocks.1.slots.beta",
            "blocks.1.slots.0.weight",
            "blocks.1.slots.0.bias",
            "blocks.1.slots.1.weight",
            "blocks.1.slots.1.bias",
        ],
        [
            "blocks.1.columns.gamma",
            "blocks.1.columns.beta",
            "blocks.1.columns.0.weight",
            "blocks.1.columns.0.bias",
            "blocks.1.columns.1.weight",
            "blocks.1.columns.1.bias",
        ],
    ],
];

/// A residual branch of two dense layers: `y = x + dropout(gelu(norm(x) W_0 + b_0) W_1 + b_1)`.
#[derive(Clone, Debug)]
struct Branch {
    norm: LayerNorm,
    first: Linear,
    second: Linear,
    dropout: f32,
    /// Number of the branch within its layer.
    number: u64,
}

/// Matrices of a pass of a [`Branch`].
#[derive(Clone, Debug, Default)]
struct BranchState {
    stats: [Matrix; 2],
    normed: Matrix,
    /// Hidden rows before and after the unit.
    before: Matrix,
    hidden: Matrix,
    /// Rows to add to the input.
    added: Matrix,
    added_grad: Matrix,
    hidden_grad: Matrix,
    normed_grad: Matrix,
}

impl Branch {
    fn new(
        names: [&'static str; 6],
        [width, hidden]: [usize; 2],
        dropout: f32,
        number: u64,
        key: u64,
    ) -> Self {
        let [gamma, beta, w0, b0, w1, b1] = names;
        let key = |part| keyed::key(&[key, part]);
        Self {
            norm: LayerNorm::named([gamma, beta], width),
            first: Linear::named([w0, b0], width, hidden, true, key(0)),
            second: Linear::named([w1, b1], hidden, width, true, key(1)),
            dropout,
            number,
        }
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.norm.visit(see);
        [&self.first, &self.second].into_iter().for_each(|linear| linear.visit(see));
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.norm.visit_mut(see);
        [&mut self.first, &mut self.second].into_iter().for_each(|linear| linear.visit_mut(see));
    }

    fn epilogue(&self, pass: &Pass) -> Epilogue {
        let dropout = pass.part(self.number).dropout(self.dropout, site::OUTPUT);
        Epilogue { activation: Activation::Identity, dropout }
    }

    /// Computes `out`, of the shape of `x`.
    fn forward(&self, pass: &Pass, x: &Matrix, state: &mut BranchState, out: &mut Matrix) {
        let BranchState { stats, normed, before, hidden, added, .. } = state;
        let (rows, width, backend) = (x.num_rows(), x.num_cols(), pass.backend);
        normed.resize(rows, width);
        self.norm.forward(pass, x.view(), stats, normed.view_mut());
        [&mut *before, hidden].into_iter().for_each(|to| to.resize(rows, self.first.out_dim()));
        self.first.forward(pass, normed.view(), 0.0, Epilogue::NONE, before.view_mut());
        GeluForward { x: before.view(), out: hidden.view_mut() }.run(backend);
        added.resize(rows, width);
        self.second.forward(pass, hidden.view(), 0.0, self.epilogue(pass), added.view_mut());
        out.resize(rows, width);
        backend.copy(x.view(), out.view_mut());
        Add { alpha: 1.0, x: added.view(), y: out.view_mut() }.run(backend);
    }

    /// Replaces the gradient of the result by that of `x`, and adds to those of the parameters.
    fn backward(&mut self, pass: &Pass, x: &Matrix, state: &mut BranchState, grad: &mut Matrix) {
        let BranchState { stats, normed, before, hidden, added, added_grad, hidden_grad, normed_grad } =
            state;
        let (epilogue, backend) = (self.epilogue(pass), pass.backend);
        added_grad.resize(grad.num_rows(), grad.num_cols());
        backend.copy(grad.view(), added_grad.view_mut());
        self.second.backward(pass, hidden.view(), added.view(), epilogue, added_grad, Some(hidden_grad));
        GeluBackward { x: before.view(), grad: hidden_grad.view_mut() }.run(backend);
        let plain = Epilogue::NONE;
        self.first.backward(pass, normed.view(), before.view(), plain, hidden_grad, Some(normed_grad));
        self.norm.backward(pass, x.view(), stats, normed_grad.view_mut());
        Add { alpha: 1.0, x: normed_grad.view(), y: grad.view_mut() }.run(backend);
    }
}

/// A block of an MLP-mixer (Tolstikhin et al., *MLP-Mixer: an all-MLP architecture for vision*,
/// NeurIPS 2021) over `N` slots of `C` columns: a branch over the slots of each column, with
/// `N / 2` hidden units, then one over the columns of each slot, with `4 C`.
///
/// # Shapes
/// - `slots.0.weight`: `N x N/2`; `slots.1.weight`: `N/2 x N`; `columns.0.weight`: `C x 4C`;
///   `columns.1.weight`: `4C x C`; norms and biases: `1 x` the width
#[derive(Clone, Debug)]
pub(super) struct MixerBlock {
    slots: Branch,
    columns: Branch,
}

/// Matrices of a pass of a [`MixerBlock`].
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    slots: BranchState,
    columns: BranchState,
    /// Columns of each destination as rows, `D C x N`, before and after the branch over slots.
    turned: [Matrix; 2],
    /// Rows between the branches, `D N x C`.
    between: Matrix,
}

impl MixerBlock {
    /// Creates block number `number` of a layer.
    pub(super) fn new(number: usize, slots: usize, columns: usize, dropout: f32, key: u64) -> Self {
        let [of_slots, of_columns] = NAMES[number];
        let (key, first) = (|part| keyed::key(&[key, part]), 2 * number as u64);
        Self {
            slots: Branch::new(of_slots, [slots, (slots / 2).max(1)], dropout, first, key(0)),
            columns: Branch::new(of_columns, [columns, 4 * columns], dropout, first + 1, key(1)),
        }
    }

    /// Visits every parameter, always in the same order.
    pub(super) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.slots.visit(see);
        self.columns.visit(see);
    }

    /// Visits every parameter mutably, in the order of [`MixerBlock::visit`].
    pub(super) fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.slots.visit_mut(see);
        self.columns.visit_mut(see);
    }

    /// Mixes the rows of all destinations, `D N x C`.
    pub(super) fn forward(&self, pass: &Pass, x: &Matrix, state: &mut State, out: &mut Matrix) {
        let State { slots, columns, turned: [turned, mixed], between } = state;
        let (n, c) = (self.slots.first.in_dim(), x.num_cols());
        turn(x, [n, c], turned);
        self.slots.forward(pass, turned, slots, mixed);
        turn(mixed, [c, n], between);
        self.columns.forward(pass, between, columns, out);
    }

    /// Replaces the gradient of the result by that of `x`, and adds to those of the parameters.
    pub(super) fn backward(&mut self, pass: &Pass, x: &Matrix, state: &mut State, grad: &mut Matrix) {
        let State { slots, columns, turned: [turned, mixed], between } = state;
        let (n, c) = (self.slots.first.in_dim(), x.num_cols());
        self.columns.backward(pass, between, columns, grad);
        // the rows after the branch are not needed any more
        turn(grad, [n, c], mixed);
        self.slots.backward(pass, turned, slots, mixed);
        turn(mixed, [c, n], grad);
    }
}

/// Transposes each group of `rows` rows of `cols` columns.
fn turn(from: &Matrix, [rows, cols]: [usize; 2], to: &mut Matrix) {
    let groups = from.num_rows() / rows.max(1);
    to.resize(groups * cols, rows);
    let size = (rows * cols).max(1);
    let pairs = to.view_mut().host().par_chunks_mut(size).zip(from.view().host().par_chunks(size));
    pairs.with_min_len(16).for_each(|(to, from)| {
        for (c, line) in to.chunks_exact_mut(rows.max(1)).enumerate() {
            line.iter_mut().enumerate().for_each(|(r, x)| *x = from[r * cols + c]);
        }
    });
}
