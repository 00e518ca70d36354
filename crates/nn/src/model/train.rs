//! A training step through a model, forward and backward, as a whole or layer by layer.

use graphmill_core::Block;

use super::{
    Activations, Model, Part,
    activations::{Rows, StageActs},
    entry_of, part,
    reused::Reused,
};
use crate::{
    Epilogue, Matrix, Pass, ProductOrder, View,
    backend::{Activation, ops::DropStored},
    layer::{LayerGrads, LayerInput, site},
};

/// Input of a training step that may reuse rows of the bottom layer.
#[derive(Clone, Copy, Debug)]
pub struct StepInput<'a> {
    /// Order of each layer's products.
    pub orders: &'a [ProductOrder],
    /// Blocks of the layers, from the bottom up, or a single block for all.
    pub blocks: &'a [Block],
    /// Features, as in [`Model::forward`].
    pub x: View<'a>,
    /// Rows appended to those that the bottom layer computes: its `C` destinations are the first
    /// `C` sources of block 1, and the reused rows are the other `H`.
    pub reused: Option<Reused<'a>>,
}

impl<'a> StepInput<'a> {
    /// Reused rows, if any; block 1 must name them as sources.
    fn reused_rows(&self) -> Option<Reused<'a>> {
        let reused = self.reused.filter(|reused| !reused.slots.is_empty())?;
        let blocks = self.blocks;
        assert!(blocks.len() > 1, "reused rows require a separate block for the layer above");
        let rows = blocks[0].num_dst + reused.slots.len();
        assert_eq!(blocks[1].num_src, rows, "block 1 must read the computed rows, then the reused ones");
        Some(reused)
    }
}

impl Model {
    /// Computes the scores of a minibatch, `B x C`, in `acts.logits()`.
    ///
    /// `blocks` are those of the layers from the bottom up, or a single block for all. `x`
    /// (`S x F`) holds the features of the bottom block's sources, or the whole table if that block
    /// is global ([`Model::can_read_table`]). It may be sparse, and transposed, after
    /// [`Model::start_with_product`].
    pub fn forward(
        &self,
        pass: &Pass,
        orders: &[ProductOrder],
        blocks: &[Block],
        x: View,
        acts: &mut Activations,
    ) {
        self.forward_step(pass, &StepInput { orders, blocks, x, reused: None }, acts);
    }

    /// [`Model::forward`] with reused rows after those of the bottom layer. Without reused rows it
    /// equals [`Model::forward`] to the bit.
    ///
    /// # Panics
    /// Rows are reused, and the layer above does not have a separate block.
    pub fn forward_step(&self, pass: &Pass, input: &StepInput, acts: &mut Activations) {
        let mut reused = input.reused_rows();
        self.forward_input(pass, input.x, acts);
        for (l, &order) in input.orders.iter().enumerate() {
            let (block, x) = (entry_of(input.blocks, l), input.x);
            self.forward_stage(
                l,
                pass,
                &LayerInput { order, block, x, transformed: &[] },
                reused.take(),
                acts,
            );
        }
        self.forward_head(pass, acts);
    }

    /// First step of [`Model::forward`]: dropout of the features, and the input layer.
    pub fn forward_input(&self, pass: &Pass, x: View, acts: &mut Activations) {
        acts.fit(self.stages.len(), self.head.len());
        let dropout = self.feature_epilogue(pass);
        if dropout != Epilogue::NONE {
            match x.sparse() {
                Some(rows) => {
                    acts.dropped.resize(rows.values.len(), 1);
                    DropStored { x, dropout: dropout.dropout, out: acts.dropped.view_mut() }
                        .run(pass.backend);
                }
                None => {
                    acts.dropped.resize(x.num_rows(), x.num_cols());
                    pass.backend.copy(x, acts.dropped.view_mut());
                    dropout.apply(pass.backend, None, acts.dropped.view_mut());
                }
            }
        }
        if let Some(input) = &self.input {
            let x = if dropout == Epilogue::NONE { x } else { after_dropout(x, &acts.dropped) };
            acts.input.out.resize(x.num_rows(), input.out_dim());
            input.forward(pass, x, 0.0, self.epilogue(pass, part::INPUT), acts.input.out.view_mut());
        }
    }

    /// One layer of [`Model::forward`]: reads the output of the layer below from `acts`. `x` holds
    /// the features, as in [`Model::forward_input`].
    pub fn forward_layer(
        &self,
        l: usize,
        pass: &Pass,
        order: ProductOrder,
        block: &Block,
        x: View,
        acts: &mut Activations,
    ) {
        self.forward_stage(l, pass, &LayerInput { order, block, x, transformed: &[] }, None, acts);
    }

    fn forward_stage(
        &self,
        l: usize,
        pass: &Pass,
        input: &LayerInput,
        reused: Option<Reused>,
        acts: &mut Activations,
    ) {
        let stage = &self.stages[l];
        let (below, this) = acts.stages.split_at_mut(l);
        let x = match below.last() {
            Some(below) => below.rows.out.view(),
            None => self.bottom_input(pass, input.x, &acts.dropped, &acts.input.out),
        };
        let StageActs { rows, saved } = &mut this[0];
        let behind = reused.map_or(0, |reused| reused.slots.len());
        rows.out.resize(input.block.num_dst + behind, stage.conv.spec().out_dim);
        let (pass, input) = (pass.part(l as u64), LayerInput { x, ..*input });
        stage.forward(&pass, &input, reused, saved, rows.out.view_mut());
    }

    /// Last step of [`Model::forward`]: the dense layers after the convolutions.
    pub fn forward_head(&self, pass: &Pass, acts: &mut Activations) {
        let mut x = acts.stages.last().expect("a model has at least one layer").rows.out.view();
        for (i, (linear, rows)) in self.head.iter().zip(&mut acts.head).enumerate() {
            rows.out.resize(x.num_rows(), linear.out_dim());
            linear.forward(pass, x, 0.0, self.head_epilogue(pass, i), rows.out.view_mut());
            x = rows.out.view();
        }
    }

    /// Adds to every parameter's gradient, from the gradient of the scores
    /// ([`Activations::logits_and_grad`]). The arguments are those of the last training
    /// [`Model::forward`]. The gradient of the features is never computed.
    ///
    /// Local blocks must be transposed if [`Model::needs_transposed`] returns true.
    pub fn backward(
        &mut self,
        pass: &Pass,
        orders: &[ProductOrder],
        blocks: &[Block],
        x: View,
        acts: &mut Activations,
    ) {
        self.backward_step(pass, &StepInput { orders, blocks, x, reused: None }, acts, &mut |_, _| {});
    }

    /// [`Model::backward`] of [`Model::forward_step`], with the same arguments. Calls `after` with
    /// each part when its gradient is complete, from the head down, so that work on it may overlap
    /// the rest.
    ///
    /// If reused rows are constants and [`Model::may_restrict`] allows it for layer 1, block 1 may
    /// leave them out of its gradients ([`Block::grad_src`] is at least `C`). With aggregates it
    /// must not.
    ///
    /// # Panics
    /// Required gradients were left out.
    pub fn backward_step(
        &mut self,
        pass: &Pass,
        input: &StepInput,
        acts: &mut Activations,
        after: &mut dyn FnMut(&mut Self, Part),
    ) {
        let reused = input.reused_rows();
        self.backward_head(pass, acts);
        after(self, Part::Head);
        for (l, &order) in input.orders.iter().enumerate().rev() {
            let (block, x) = (entry_of(input.blocks, l), input.x);
            let reused = reused.filter(|_| l == 0);
            self.backward_stage(l, pass, &LayerInput { order, block, x, transformed: &[] }, reused, acts);
            after(self, Part::Layer(l));
        }
        self.backward_input(pass, input.x, acts);
        after(self, Part::Input);
    }

    /// First step of [`Model::backward`]: the head.
    pub fn backward_head(&mut self, pass: &Pass, acts: &mut Activations) {
        for i in (0..self.head.len()).rev() {
            let epilogue = self.head_epilogue(pass, i);
            let (below, this) = acts.head.split_at_mut(i);
            let below = match below.last_mut() {
                Some(rows) => rows,
                None => &mut acts.stages.last_mut().expect("a model has at least one layer").rows,
            };
            let Rows { out, grad } = &mut this[0];
            self.head[i].backward(pass, below.out.view(), out.view(), epilogue, grad, Some(&mut below.grad));
        }
    }

    /// One layer of [`Model::backward`]: from the gradient of its output
    /// ([`Activations::output_grad_mut`]) to that of the output of the layer below.
    pub fn backward_layer(
        &mut self,
        l: usize,
        pass: &Pass,
        order: ProductOrder,
        block: &Block,
        x: View,
        acts: &mut Activations,
    ) {
        self.backward_stage(l, pass, &LayerInput { order, block, x, transformed: &[] }, None, acts);
    }

    fn backward_stage(
        &mut self,
        l: usize,
        pass: &Pass,
        input: &LayerInput,
        reused: Option<Reused>,
        acts: &mut Activations,
    ) {
        let needed = self.needs_input_grad(l);
        let (below, this) = acts.stages.split_at_mut(l);
        let (x, x_grad) = match below.last_mut() {
            Some(StageActs { rows: Rows { out, grad }, .. }) => (out.view(), grad),
            None => {
                let Rows { out, grad } = &mut acts.input;
                (self.bottom_input(pass, input.x, &acts.dropped, out), grad)
            }
        };
        let StageActs { rows: Rows { out, grad }, saved } = &mut this[0];
        let (pass, input) = (pass.part(l as u64), LayerInput { x, ..*input });
        let grads = LayerGrads { y: out.view(), grad, x_grad: needed.then_some(x_grad) };
        self.stages[l].backward(&pass, &input, reused, saved, grads);
    }

    /// Last step of [`Model::backward`]: the input layer.
    pub fn backward_input(&mut self, pass: &Pass, x: View, acts: &mut Activations) {
        let epilogue = self.epilogue(pass, part::INPUT);
        let dropped = self.feature_epilogue(pass) != Epilogue::NONE;
        if let Some(input) = &mut self.input {
            let x = if dropped { after_dropout(x, &acts.dropped) } else { x };
            let Rows { out, grad } = &mut acts.input;
            input.backward(pass, x, out.view(), epilogue, grad, None);
        }
    }

    /// Rows that the bottom layer reads: the features, or the output of the input layer.
    pub(super) fn bottom_input<'a>(
        &self,
        pass: &Pass,
        x: View<'a>,
        dropped: &'a Matrix,
        input: &'a Matrix,
    ) -> View<'a> {
        if self.input.is_some() {
            input.view()
        } else if self.feature_epilogue(pass) != Epilogue::NONE {
            after_dropout(x, dropped)
        } else {
            x
        }
    }

    fn feature_epilogue(&self, pass: &Pass) -> Epilogue {
        let dropout = pass.part(part::FEATURES).dropout(self.input_dropout, site::OUTPUT);
        Epilogue { activation: Activation::Identity, dropout }
    }

    /// Activation and dropout after the dense layer of this part.
    pub(super) fn epilogue(&self, pass: &Pass, part: u64) -> Epilogue {
        Epilogue { activation: self.activation, dropout: pass.part(part).dropout(self.dropout, site::OUTPUT) }
    }

    /// Activation and dropout after layer `i` of the head: none after the last.
    pub(super) fn head_epilogue(&self, pass: &Pass, i: usize) -> Epilogue {
        if i + 1 == self.head.len() { Epilogue::NONE } else { self.epilogue(pass, part::HEAD + i as u64) }
    }
}

/// Features after dropout: `dropped`, or sparse rows with the values of `dropped`.
fn after_dropout<'a>(x: View<'a>, dropped: &'a Matrix) -> View<'a> {
    if x.is_sparse() { x.with_values(dropped.view().host()) } else { dropped.view() }
}
