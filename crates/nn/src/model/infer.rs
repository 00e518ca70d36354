//! Evaluation over all neighbours, layer by layer: every node's rows of one layer are computed before
//! the next begins, in chunks of nodes, so that nothing is computed twice and memory is a table per
//! layer (Hamilton et al. 2017 sample also at inference; this is the exact answer, as in PyG's and
//! DGL's examples).
//!
//! ```text
//! table = features                                               V x F
//! table = input_rows(table)        chunks of rows                V x hidden     (if there is an input layer)
//! for each layer l:
//!     t = transform_rows(l, table) chunks of rows                V x transformed_dims(l) (transform first)
//!     table = infer(l, block of the chunk, table, t)             V x layer_out_dim(l)
//! table = head_rows(table)         chunks of rows                V x C          (if there is a head)
//! ```
//!
//! Where only some nodes' scores are wanted, the last layer and the head need chunks of those only.

use graphmill_graph::Block;

use super::{Activations, Model, part};
use crate::{
    Matrix, Order, Pass, View, ViewMut,
    cost::{BlockShape, Purpose},
};

impl Model {
    /// The cheapest order of each layer for [`Model::infer`] over all of a graph's nodes and edges.
    pub fn inference_orders(&self, nodes: usize, edges: usize) -> Vec<Order> {
        self.choose(&[BlockShape { dst: nodes, src: nodes, edges }], |_, _| Purpose::Inference)
    }

    /// Whether there is an input layer: [`Model::input_rows`] is to be called.
    pub fn has_input_layer(&self) -> bool {
        self.input.is_some()
    }

    /// Whether there is a head: [`Model::head_rows`] is to be called.
    pub fn has_head(&self) -> bool {
        !self.head.is_empty()
    }

    /// The widths of the tables that [`Model::transform_rows`] fills for layer `l`.
    pub fn transformed_dims(&self, l: usize) -> &[usize] {
        self.stages[l].conv.transformed_dims()
    }

    /// Whether layer `l` in [`Order::TransformFirst`] reads the destinations' own input rows beside the transformed ones.
    pub fn combines_own_rows(&self, l: usize) -> bool {
        self.stages[l].combines_own_rows()
    }

    /// The input layer on any rows: `R x F` to `R x hidden`. `pass` is not training.
    ///
    /// # Panics
    /// There is none.
    pub fn input_rows(&self, pass: &Pass, x: View, out: ViewMut) {
        let input = self.input.as_ref().expect("the model has an input layer");
        input.forward(pass, x, 0.0, self.finish(pass, part::INPUT), out);
    }

    /// What layer `l` does with rows before it aggregates them: `x` (`R x layer_in_dim`) to rows
    /// `at..at + R` of the tables `t`, of widths [`Model::transformed_dims`]. Only for a layer run in
    /// [`Order::TransformFirst`].
    pub fn transform_rows(&self, l: usize, pass: &Pass, x: View, at: usize, t: &mut [Matrix]) {
        self.stages[l].conv.transform(&pass.part(l as u64), x, at, t);
    }

    /// Layer `l`, with residual, norm and activation, on a chunk of nodes: `block` is global, its
    /// destinations are the chunk, its sources rows of the tables. `x` is the whole table of the layer's
    /// input rows; `t` the tables from [`Model::transform_rows`] in [`Order::TransformFirst`],
    /// and empty otherwise. `out` is `D x layer_out_dim`. `scratch` is reused from chunk to chunk.
    /// `pass` is not training.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    pub fn infer(
        &self,
        l: usize,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        t: &[Matrix],
        scratch: &mut Activations,
        out: ViewMut,
    ) {
        debug_assert!(!pass.training, "dropout has no place in inference");
        scratch.fit(self.stages.len(), self.head.len());
        let t = (order == Order::TransformFirst).then_some(t);
        let kept = &mut scratch.stages[l].kept;
        self.stages[l].forward(&pass.part(l as u64), order, block, x, t, None, kept, out);
    }

    /// The head on any rows: `R x hidden` to `R x C`. `pass` is not training.
    ///
    /// # Panics
    /// There is none.
    pub fn head_rows(&self, pass: &Pass, x: View, scratch: &mut Activations, out: ViewMut) {
        scratch.fit(self.stages.len(), self.head.len());
        let last = self.head.len().checked_sub(1).expect("the model has a head");
        let mut x = x;
        for (i, (linear, rows)) in self.head.iter().zip(&mut scratch.head).take(last).enumerate() {
            rows.out.resize(x.num_rows(), linear.out_dim());
            linear.forward(pass, x, 0.0, self.head_finish(pass, i), rows.out.view_mut());
            x = rows.out.view();
        }
        self.head[last].forward(pass, x, 0.0, self.head_finish(pass, last), out);
    }
}
