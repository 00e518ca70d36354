//! Rows of the bottom layer that are read instead of computed: made once for many batches ([`Model::bottom_rows`]), perhaps
//! with older parameters, and put behind the rows that a batch computes (Ai et al., *NeutronOrch*, VLDB 2024, section 4.1).
//!
//! ```text
//!   C rows computed from block 0 ─┐
//!                                 ├─ norm, activation, dropout ── C + H sources of block 1
//!   H rows read by their slots  ──┘
//! ```
//!
//! What is stored stands before the norm: the convolution with its bias, and the residual. A norm over the batch sees all rows
//! of the batch, and every batch has dropout masks of its own. A convolution that activates its rows itself is stored activated.
//!
//! Their gradient goes one of two ways. They are constants: it ends, and the bottom layer learns from computed rows alone, as in
//! the released code of NeutronOrch. Or what they were made from was kept with them (section 4.1.1: "the aggregated
//! representation and the embedding are both transferred"): then the weights behind the aggregation get it as if the rows had
//! been computed from those aggregates now. What stands before the aggregation, attention's vectors and the input layer, gets
//! none of it either way.
//!
//! O(H O) more than the rows that are computed; with what was kept O(H F O), a product.

use graphmill_graph::Block;

use super::{
    Activations, Model, Part,
    activations::{Kept, StageActs},
    stage::{Residual, Stage},
};
use crate::{
    Finish, Matrix, Order, Param, Pass, Saved, View, ViewMut,
    backend::{Activation, Dropout, Side},
    layer::{self, site},
};

/// Rows of the bottom layer's output that are read instead of computed.
#[derive(Clone, Copy, Debug)]
pub struct Reused<'a> {
    /// A table of rows from [`Model::bottom_rows`], `K x O`.
    pub rows: View<'a>,
    /// Which of them stand behind the computed ones, `H`.
    pub slots: &'a [u32],
    /// What they were made from, where the layer's weights get their gradient: tables of as many rows, of the widths
    /// [`Model::kept_dims`]. Empty: they are constants.
    pub kept: &'a [Matrix],
    /// The part of them that is not as old as they are.
    pub projected: Option<Projected<'a>>,
}

/// The part of reused rows that follows the parameters: what the weights of now make of the projection of the aggregated input rows on
/// a few directions. `rows` of [`Reused`] are then what is left of them without that part and the bias ([`Model::project_rows`]).
///
/// A row is linear in its aggregated inputs `a`: with an orthonormal basis `B` of `k` directions, `a W = (a - a Bᵀ B) W + (a Bᵀ)(B W)`.
/// The first term is made with old weights; the second costs `k` rows of the product and `O(H k O)` to add.
#[derive(Clone, Copy, Debug)]
pub struct Projected<'a> {
    /// The projection of every row, `K x k`.
    pub coordinates: View<'a>,
    /// The basis: `k` rows of each table of widths [`Model::kept_dims`], orthonormal side by side.
    pub basis: &'a [Matrix],
    /// Whether the weights and the bias get the gradient of that part.
    pub learns: bool,
}

impl Model {
    /// The bottom layer's rows before its norm, of a block alone, to rows `at..at + D` of `rows` (as wide as
    /// [`Model::layer_out_dim`] of layer 0), and what they are made from to rows `kept_at..kept_at + D` of the tables `kept` (of widths
    /// [`Model::kept_dims`]; none: it is not kept). `x` is as for [`Model::forward`]; `scratch` is reused from call to call.
    ///
    /// Whether the features and the attention drop is the pass' affair; nothing drops from the rows.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    pub fn bottom_rows(
        &self,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        scratch: &mut Activations,
        at: usize,
        rows: &mut Matrix,
        kept_at: usize,
        kept: &mut [Matrix],
    ) {
        self.forward_input(pass, x, scratch);
        let Activations { dropped, input, stages, .. } = scratch;
        let x = self.bottom_input(pass, x, dropped, &input.out);
        let (stage, pass) = (&self.stages[0], pass.part(0));
        let StageActs { kept: Kept { conv: saved, own, .. }, .. } = &mut stages[0];
        let out = rows.rows_mut(at..at + block.num_dst);
        stage.rows(&pass, order, block, x, None, Finish::NONE, saved, own, out);
        if !kept.is_empty() {
            assert_eq!(order, Order::AggregateFirst, "transformed rows have no aggregated inputs to keep");
            let (of_conv, of_residual) = kept.split_at_mut(kept.len() - stage.kept_by_residual());
            stage.conv.keep(&pass, block, x, saved, kept_at, of_conv);
            if let [rows] = of_residual {
                let from = layer::own_rows_again(block, x, own);
                pass.backend.copy(from, rows.rows_mut(kept_at..kept_at + block.num_dst));
            }
        }
    }

    /// Turns rows `at..at + D` from [`Model::bottom_rows`], with what they were made from in `kept` (`D` rows each), into those that follow
    /// the parameters in the directions of `basis`: writes their coordinates to the same rows of `coordinates` (as wide as the basis has
    /// rows), and takes that part and the bias from `rows`.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    pub fn project_rows(
        &self,
        pass: &Pass,
        basis: &[Matrix],
        kept: &[Matrix],
        scratch: &mut Activations,
        at: usize,
        rows: &mut Matrix,
        coordinates: &mut Matrix,
    ) {
        let places = at..at + kept[0].num_rows();
        for (i, (kept, basis)) in kept.iter().zip(basis).enumerate() {
            let beta = if i == 0 { 0.0 } else { 1.0 };
            let to = coordinates.rows_mut(places.clone());
            pass.backend.gemm(kept.view(), Side::Plain, basis.view(), Side::Transposed, beta, to);
        }
        let stage = &self.stages[0];
        let Kept { conv: saved, projected: [of_basis, ..], .. } = &mut scratch.stages[0].kept;
        stage.rows_of_basis(pass, basis, saved, of_basis);
        of_basis.view_mut().host().iter_mut().for_each(|x| *x = -*x);
        let coordinates = coordinates.rows(places.clone());
        let mut rows = rows.rows_mut(places);
        pass.backend.gemm(coordinates, Side::Plain, of_basis.view(), Side::Plain, 1.0, rows.reborrow());
        if let Some(bias) = stage.conv.kept_bias() {
            of_basis.resize(1, bias.value.num_cols());
            let negative = of_basis.view_mut().host();
            negative.iter_mut().zip(bias.value.view().host()).for_each(|(to, &from)| *to = -from);
            pass.backend.epilogue(Some(of_basis.view()), Activation::Identity, Dropout::NONE, rows);
        }
    }

    /// The widths of what [`Model::bottom_rows`] keeps with each row, for [`Reused::kept`]: the aggregated input rows, and what
    /// else its weights are multiplied by. None where the bottom layer cannot: it transforms first, or is not linear behind
    /// its aggregation.
    pub fn kept_dims(&self, orders: &[Order]) -> Vec<usize> {
        let stage = &self.stages[0];
        let mut dims = if orders[0] == Order::AggregateFirst { stage.conv.kept_dims() } else { Vec::new() };
        if !dims.is_empty() {
            dims.extend((0..stage.kept_by_residual()).map(|_| stage.conv.in_dim()));
        }
        dims
    }

    /// [`Model::forward`], with rows behind those that the bottom layer computes: its `D` rows are the first `C` sources of
    /// block 1, the reused ones the `H` others. Without any it is [`Model::forward`], to the bit.
    ///
    /// # Panics
    /// Rows are reused, and there is no block of its own for a layer above.
    pub fn forward_reusing(
        &self,
        pass: &Pass,
        orders: &[Order],
        blocks: &[Block],
        x: View,
        reused: Reused,
        acts: &mut Activations,
    ) {
        self.forward_over(pass, orders, blocks, x, self.among(blocks, reused), acts);
    }

    /// [`Model::backward`] of [`Model::forward_reusing`], whose arguments are given again.
    ///
    /// Where the rows are constants, block 1 may leave them out of its gradients ([`Block::grad_src`] is `C` or more), if
    /// [`Model::may_restrict`] says so of layer 1; with what was kept it leaves out none.
    ///
    /// # Panics
    /// Gradients that are needed were left out.
    pub fn backward_reusing(
        &mut self,
        pass: &Pass,
        orders: &[Order],
        blocks: &[Block],
        x: View,
        reused: Reused,
        acts: &mut Activations,
    ) {
        self.backward_telling(pass, orders, blocks, x, reused, acts, &mut |_, _| {});
    }

    /// [`Model::backward_reusing`] that tells `after` of each part when its gradient is complete, from the head down: what is done
    /// with it may go on beside the rest.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    pub fn backward_telling(
        &mut self,
        pass: &Pass,
        orders: &[Order],
        blocks: &[Block],
        x: View,
        reused: Reused,
        acts: &mut Activations,
        after: &mut dyn FnMut(&mut Self, Part),
    ) {
        self.backward_over(pass, orders, blocks, x, self.among(blocks, reused), acts, after);
    }

    /// Whether there are any, which block 1 must name.
    fn among<'a>(&self, blocks: &[Block], reused: Reused<'a>) -> Option<Reused<'a>> {
        let some = !reused.slots.is_empty();
        if some {
            assert!(blocks.len() > 1, "rows are reused by a layer above, which has a block of its own");
            let rows = blocks[0].num_dst + reused.slots.len();
            assert_eq!(blocks[1].num_src, rows, "block 1 reads computed rows, then reused ones");
        }
        some.then_some(reused)
    }

    /// Shows the parameters that a row of [`Model::bottom_rows`] depends on: the input layer's, the bottom convolution's and
    /// residual's. They are the first ones of [`Model::visit`], with its names and in its order.
    pub fn visit_bottom<'a>(&'a self, see: &mut dyn FnMut(&'a str, &'a Param)) {
        let mut names = self.names.iter();
        let mut see = |p: &'a Param| see(names.next().expect("as many names as parameters"), p);
        if let Some(input) = &self.input {
            input.visit(&mut see);
        }
        self.stages[0].visit_rows(&mut |_, p| see(p));
    }

    /// Shows the same for change.
    pub fn visit_bottom_mut(&mut self, see: &mut dyn FnMut(&str, &mut Param)) {
        let mut names = self.names.iter();
        let mut see = |p: &mut Param| see(names.next().expect("as many names as parameters"), p);
        if let Some(input) = &mut self.input {
            input.visit_mut(&mut see);
        }
        self.stages[0].visit_rows_mut(&mut see);
    }
}

impl Stage {
    /// How many matrices the residual's gradient needs: the own rows, where they are multiplied.
    fn kept_by_residual(&self) -> usize {
        usize::from(matches!(self.residual, Some(Residual::Linear(_))))
    }

    /// Puts reused rows behind the `computed` ones in `rows`, and finishes them where those are finished already. Their places
    /// among all rows, or a site of their own, make their dropout masks others than the computed rows'.
    pub(super) fn put_behind(
        &self,
        pass: &Pass,
        reused: Reused,
        computed: usize,
        kept: &mut Kept,
        rows: ViewMut,
    ) {
        let behind = computed..computed + reused.slots.len();
        let mut behind = rows.rows(behind);
        pass.backend.gather(reused.rows, reused.slots, behind.reborrow());
        let mut bias = None;
        if let Some(Projected { coordinates, basis, .. }) = reused.projected {
            let Kept { conv: saved, projected: [of_basis, of_rows, ..], .. } = kept;
            self.rows_of_basis(pass, basis, saved, of_basis);
            of_rows.resize(reused.slots.len(), coordinates.num_cols());
            pass.backend.gather(coordinates, reused.slots, of_rows.view_mut());
            let (of_rows, of_basis) = (of_rows.view(), of_basis.view());
            pass.backend.gemm(of_rows, Side::Plain, of_basis, Side::Plain, 1.0, behind.reborrow());
            bias = self.conv.kept_bias();
        }
        let finish = if self.is_plain() { self.finish(pass, site::REUSED) } else { Finish::NONE };
        finish.apply(pass.backend, bias, behind);
    }

    /// What the weights make of a basis, without the bias, `k x O`.
    fn rows_of_basis(&self, pass: &Pass, basis: &[Matrix], saved: &mut Saved, out: &mut Matrix) {
        let (of_conv, of_residual) = basis.split_at(basis.len() - self.kept_by_residual());
        out.resize(basis[0].num_rows(), self.conv.out_dim());
        self.conv.rows_of_kept(pass, of_conv, saved, out.view_mut());
        if let (Some(Residual::Linear(linear)), [own]) = (&self.residual, of_residual) {
            linear.forward_product(pass, own.view(), 1.0, out.view_mut());
        }
    }

    /// Hands the gradient of reused rows on to the weights, where what they were made from is there, and leaves `grad` to the
    /// `computed` rows. `y` are all output rows.
    pub(super) fn backward_behind(
        &mut self,
        pass: &Pass,
        reused: Reused,
        computed: usize,
        y: View,
        kept: &mut Kept,
        grad: &mut Matrix,
    ) {
        let projected = reused.projected.filter(|projected| projected.learns);
        if !reused.kept.is_empty() || projected.is_some() {
            let behind = computed..computed + reused.slots.len();
            assert_eq!(grad.num_rows(), behind.end, "kept aggregates need the gradients of all rows");
            if self.is_plain() {
                let finish = self.finish(pass, site::REUSED);
                finish.backward(pass.backend, None, y.rows(behind.clone()), grad.rows_mut(behind.clone()));
            }
            let grad = grad.rows(behind);
            layer::add_bias_grad(pass, self.conv.kept_bias_mut(), grad);
            let Kept { conv: saved, reused: room, projected: [_, of_rows, of_basis], .. } = kept;
            if let Some(Projected { coordinates, basis, .. }) = projected {
                // the rows' coordinates are still there
                of_basis.resize(coordinates.num_cols(), grad.num_cols());
                let to = of_basis.view_mut();
                pass.backend.gemm(of_rows.view(), Side::Transposed, grad, Side::Plain, 0.0, to);
                self.backward_kept(pass, basis, saved, of_basis.view());
            }
            let room = &mut room[..reused.kept.len()];
            for (room, table) in room.iter_mut().zip(reused.kept) {
                room.resize(reused.slots.len(), table.num_cols());
                pass.backend.gather(table.view(), reused.slots, room.view_mut());
            }
            if !room.is_empty() {
                self.backward_kept(pass, room, saved, grad);
            }
        }
        grad.truncate(computed);
    }

    /// Adds to the gradients of the weights that of rows that were made from `kept`.
    fn backward_kept(&mut self, pass: &Pass, kept: &[Matrix], saved: &mut Saved, grad: View) {
        let (of_conv, of_residual) = kept.split_at(kept.len() - self.kept_by_residual());
        self.conv.backward_kept(pass, of_conv, saved, grad);
        if let (Some(Residual::Linear(linear)), [own]) = (&mut self.residual, of_residual) {
            linear.backward_product(pass, own.view(), grad);
        }
    }
}
