//! A training step through a model, forward and backward, in whole or layer by layer.

use graphmill_graph::Block;

use super::{
    Activations, Model, Part, Reused,
    activations::{Rows, StageActs},
    of_layer, part,
};
use crate::{Finish, Matrix, Order, Pass, View, backend::Activation, layer::site};

impl Model {
    /// The scores of a minibatch, `B x C`, left in `acts.logits()`.
    ///
    /// `blocks` are the layers' from the bottom up, or a single one for all; `x` is `S x F`, the
    /// features of the bottom block's sources, or the whole table where that block is global
    /// ([`Model::can_read_table`]). They may be sparse, and transposed, after [`Model::start_with_product`].
    pub fn forward(&self, pass: &Pass, orders: &[Order], blocks: &[Block], x: View, acts: &mut Activations) {
        self.forward_over(pass, orders, blocks, x, None, acts);
    }

    /// [`Model::forward`], with rows behind the bottom layer's own.
    pub(super) fn forward_over(
        &self,
        pass: &Pass,
        orders: &[Order],
        blocks: &[Block],
        x: View,
        mut reused: Option<Reused>,
        acts: &mut Activations,
    ) {
        self.forward_input(pass, x, acts);
        for (l, &order) in orders.iter().enumerate() {
            self.forward_layer_over(l, pass, order, of_layer(blocks, l), x, reused.take(), acts);
        }
        self.forward_head(pass, acts);
    }

    /// The first step of [`Model::forward`]: dropout of the features and the input layer.
    pub fn forward_input(&self, pass: &Pass, x: View, acts: &mut Activations) {
        acts.fit(self.stages.len(), self.head.len());
        let dropout = self.feature_finish(pass);
        if dropout != Finish::NONE {
            match x.sparse() {
                Some(rows) => {
                    acts.dropped.resize(rows.values.len(), 1);
                    pass.backend.drop_stored(x, dropout.dropout, acts.dropped.view_mut());
                }
                None => {
                    acts.dropped.resize(x.num_rows(), x.num_cols());
                    pass.backend.copy(x, acts.dropped.view_mut());
                    dropout.apply(pass.backend, None, acts.dropped.view_mut());
                }
            }
        }
        if let Some(input) = &self.input {
            let x = if dropout == Finish::NONE { x } else { after_dropout(x, &acts.dropped) };
            acts.input.out.resize(x.num_rows(), input.out_dim());
            input.forward(pass, x, 0.0, self.finish(pass, part::INPUT), acts.input.out.view_mut());
        }
    }

    /// One layer's step of [`Model::forward`]: reads the output of the one below from `acts`. `x` are
    /// the features, as given to [`Model::forward_input`].
    pub fn forward_layer(
        &self,
        l: usize,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        acts: &mut Activations,
    ) {
        self.forward_layer_over(l, pass, order, block, x, None, acts);
    }

    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    fn forward_layer_over(
        &self,
        l: usize,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        reused: Option<Reused>,
        acts: &mut Activations,
    ) {
        let stage = &self.stages[l];
        let (below, this) = acts.stages.split_at_mut(l);
        let x = match below.last() {
            Some(below) => below.rows.out.view(),
            None => self.bottom_input(pass, x, &acts.dropped, &acts.input.out),
        };
        let StageActs { rows, kept } = &mut this[0];
        let behind = reused.map_or(0, |reused| reused.slots.len());
        rows.out.resize(block.num_dst + behind, stage.conv.out_dim());
        stage.forward(&pass.part(l as u64), order, block, x, None, reused, kept, rows.out.view_mut());
    }

    /// The last step of [`Model::forward`]: the dense layers after the convolutions.
    pub fn forward_head(&self, pass: &Pass, acts: &mut Activations) {
        let mut x = acts.stages.last().expect("a model has a layer").rows.out.view();
        for (i, (linear, rows)) in self.head.iter().zip(&mut acts.head).enumerate() {
            rows.out.resize(x.num_rows(), linear.out_dim());
            linear.forward(pass, x, 0.0, self.head_finish(pass, i), rows.out.view_mut());
            x = rows.out.view();
        }
    }

    /// Adds to every parameter's gradient, from that of the scores
    /// ([`Activations::logits_and_grad`]) of the last training [`Model::forward`], whose arguments are
    /// given again. The features' gradient is never computed.
    ///
    /// Local blocks are transposed where [`Model::needs_transposed`] says so.
    pub fn backward(
        &mut self,
        pass: &Pass,
        orders: &[Order],
        blocks: &[Block],
        x: View,
        acts: &mut Activations,
    ) {
        self.backward_over(pass, orders, blocks, x, None, acts, &mut |_, _| {});
    }

    /// [`Model::backward`] of [`Model::forward_over`]; `after` is told of each part when its gradient is complete.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    pub(super) fn backward_over(
        &mut self,
        pass: &Pass,
        orders: &[Order],
        blocks: &[Block],
        x: View,
        reused: Option<Reused>,
        acts: &mut Activations,
        after: &mut dyn FnMut(&mut Self, Part),
    ) {
        self.backward_head(pass, acts);
        after(self, Part::Head);
        for (l, &order) in orders.iter().enumerate().rev() {
            let reused = reused.filter(|_| l == 0);
            self.backward_layer_over(l, pass, order, of_layer(blocks, l), x, reused, acts);
            after(self, Part::Layer(l));
        }
        self.backward_input(pass, x, acts);
        after(self, Part::Input);
    }

    /// The first step of [`Model::backward`].
    pub fn backward_head(&mut self, pass: &Pass, acts: &mut Activations) {
        for i in (0..self.head.len()).rev() {
            let finish = self.head_finish(pass, i);
            let (below, this) = acts.head.split_at_mut(i);
            let below = match below.last_mut() {
                Some(rows) => rows,
                None => &mut acts.stages.last_mut().expect("a model has a layer").rows,
            };
            let Rows { out, grad } = &mut this[0];
            self.head[i].backward(pass, below.out.view(), out.view(), finish, grad, Some(&mut below.grad));
        }
    }

    /// One layer's step of [`Model::backward`]: from the gradient of its output
    /// ([`Activations::output_grad_mut`]) to that of the output of the layer below.
    pub fn backward_layer(
        &mut self,
        l: usize,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        acts: &mut Activations,
    ) {
        self.backward_layer_over(l, pass, order, block, x, None, acts);
    }

    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    fn backward_layer_over(
        &mut self,
        l: usize,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        reused: Option<Reused>,
        acts: &mut Activations,
    ) {
        let wanted = self.wants_input_grad(l);
        let (below, this) = acts.stages.split_at_mut(l);
        let (x, x_grad) = match below.last_mut() {
            Some(StageActs { rows: Rows { out, grad }, .. }) => (out.view(), grad),
            None => {
                let Rows { out, grad } = &mut acts.input;
                (self.bottom_input(pass, x, &acts.dropped, out), grad)
            }
        };
        let StageActs { rows: Rows { out, grad }, kept } = &mut this[0];
        let pass = pass.part(l as u64);
        let x_grad = wanted.then_some(x_grad);
        self.stages[l].backward(&pass, order, block, x, out.view(), reused, kept, grad, x_grad);
    }

    /// The last step of [`Model::backward`]: the input layer.
    pub fn backward_input(&mut self, pass: &Pass, x: View, acts: &mut Activations) {
        let finish = self.finish(pass, part::INPUT);
        let dropped = self.feature_finish(pass) != Finish::NONE;
        if let Some(input) = &mut self.input {
            let x = if dropped { after_dropout(x, &acts.dropped) } else { x };
            let Rows { out, grad } = &mut acts.input;
            input.backward(pass, x, out.view(), finish, grad, None);
        }
    }

    /// The rows that the bottom layer reads, given the features and what became of them.
    pub(super) fn bottom_input<'a>(
        &self,
        pass: &Pass,
        x: View<'a>,
        dropped: &'a Matrix,
        input: &'a Matrix,
    ) -> View<'a> {
        if self.input.is_some() {
            input.view()
        } else if self.feature_finish(pass) != Finish::NONE {
            after_dropout(x, dropped)
        } else {
            x
        }
    }

    fn feature_finish(&self, pass: &Pass) -> Finish {
        let dropout = pass.part(part::FEATURES).dropout(self.input_dropout, site::OUTPUT);
        Finish { activation: Activation::Identity, dropout }
    }

    /// What follows the dense layer of this part.
    pub(super) fn finish(&self, pass: &Pass, part: u64) -> Finish {
        Finish { activation: self.activation, dropout: pass.part(part).dropout(self.dropout, site::OUTPUT) }
    }

    /// What follows layer `i` of the head: nothing after the last.
    pub(super) fn head_finish(&self, pass: &Pass, i: usize) -> Finish {
        if i + 1 == self.head.len() { Finish::NONE } else { self.finish(pass, part::HEAD + i as u64) }
    }
}

/// The features after dropout: `dropped`, or sparse rows with the values that are there.
fn after_dropout<'a>(x: View<'a>, dropped: &'a Matrix) -> View<'a> {
    if x.is_sparse() { x.with_values(dropped.view().host()) } else { dropped.view() }
}
