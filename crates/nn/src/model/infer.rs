//! Evaluation over all neighbours, layer by layer. All rows of a layer are computed, in chunks of
//! nodes, before the next layer begins, so nothing is computed twice and memory is one table per
//! layer. (Hamilton et al. 2017 sample at inference too; this is exact, as in the examples of PyG
//! and DGL.)
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
//! If only some nodes' scores are requested, the last layer and the head process only the chunks of
//! those nodes.
//!
//! A chunk of rows may be passed on as soon as it is computed: to `transform_rows` of the next
//! layer, if that transforms first, or to `head_rows`. The table of these rows is then needed only
//! if the next layer combines own rows in another way than by a product
//! ([`Model::has_own_product`]), which `own_product` computes from the same chunk:
//!
//! ```text
//! for each chunk of the rows below layer l:
//!     t   = transform_rows(l, chunk)                             V x transformed_dims(l)
//!     own = own_product(l, rows of destinations in chunk)        D x layer_out_dim(l)
//! for each chunk of destinations:
//!     infer(l, block of the chunk, no rows, t and own of the chunk)
//! ```

use super::{Activations, Model, part};
use crate::{
    Matrix, Pass, ProductOrder, View, ViewMut,
    cost::{BlockShape, Purpose},
    layer::LayerInput,
};

impl Model {
    /// Cheapest order of each layer for [`Model::infer`] over all nodes and edges of a graph.
    pub fn inference_orders(&self, nodes: usize, edges: usize) -> Vec<ProductOrder> {
        self.choose(&[BlockShape { dst: nodes, src: nodes, edges }], |_, _| Purpose::Inference)
    }

    /// Cheapest order of the bottom layer for [`Model::infer`] on stored aggregates: a block of
    /// `nodes` destinations with an edge each.
    pub fn exact_bottom_order(&self, nodes: usize) -> ProductOrder {
        let shape = BlockShape { dst: nodes, src: 2 * nodes, edges: nodes };
        self.choose(&[shape], |_, _| Purpose::Inference)[0]
    }

    /// Returns true if the model has an input layer, so that [`Model::input_rows`] must run.
    pub fn has_input_layer(&self) -> bool {
        self.input.is_some()
    }

    /// Returns true if the model has a head, so that [`Model::head_rows`] must run.
    pub fn has_head(&self) -> bool {
        !self.head.is_empty()
    }

    /// Widths of the tables that [`Model::transform_rows`] fills for layer `l`.
    pub fn transformed_dims(&self, l: usize) -> &[usize] {
        &self.stages[l].conv.spec().transformed
    }

    /// Returns true if layer `l`, in [`ProductOrder::TransformFirst`], reads the destinations' own
    /// input rows besides the transformed ones.
    pub fn combines_own_rows(&self, l: usize) -> bool {
        self.stages[l].combines_own_rows()
    }

    /// Returns true if the destinations' own rows enter layer `l` only by [`Model::own_product`],
    /// which [`Model::infer`] may then be given instead of them, with the same bits on the CPU.
    pub fn has_own_product(&self, l: usize) -> bool {
        let stage = &self.stages[l];
        stage.residual.is_none() && stage.conv.spec().has_own_product
    }

    /// Computes the product of own rows of layer `l`: `x` (`R x layer_in_dim`) to `out`
    /// (`R x layer_out_dim`). Only for a layer with [`Model::has_own_product`] that runs in
    /// [`ProductOrder::TransformFirst`].
    pub fn own_product(&self, l: usize, pass: &Pass, x: View, out: ViewMut) {
        self.stages[l].conv.own_product(&pass.part(l as u64), x, out);
    }

    /// Upper bound on the values per node that inference over all nodes holds at once besides the
    /// features and one chunk, if the layers have these orders: twice the widest rows and twice the
    /// widest tables, those that a layer reads and those that it writes. Their memory is reused
    /// from layer to layer and from call to call, so a layer that needs only one of the two frees
    /// nothing.
    pub fn inference_values(&self, orders: &[ProductOrder]) -> usize {
        let read = |(l, &order): (usize, &ProductOrder)| {
            let transforms = order == ProductOrder::TransformFirst;
            let tables = if transforms { self.transformed_dims(l).iter().sum::<usize>() } else { 0 };
            match (transforms, self.combines_own_rows(l), self.has_own_product(l)) {
                // the features
                _ if l == 0 && self.input.is_none() => [0, tables],
                (true, false, _) => [0, tables],
                (true, true, true) => [0, tables + self.layer_out_dim(l)],
                (true, true, false) | (false, ..) => [self.layer_in_dim(l), tables],
            }
        };
        let top = self.classes().max(self.layer_out_dim(self.stages.len() - 1));
        let widest = |[a, b]: [usize; 2], [rows, tables]: [usize; 2]| [a.max(rows), b.max(tables)];
        2 * orders.iter().enumerate().map(read).fold([top, 0], widest).iter().sum::<usize>()
    }

    /// Applies the input layer to any rows, `R x F` to `R x hidden`. `pass` is not training.
    ///
    /// # Panics
    /// The model has no input layer.
    pub fn input_rows(&self, pass: &Pass, x: View, out: ViewMut) {
        let input = self.input.as_ref().expect("the model has an input layer");
        input.forward(pass, x, 0.0, self.epilogue(pass, part::INPUT), out);
    }

    /// Transforms rows for layer `l` before aggregation: `x` (`R x layer_in_dim`) to rows
    /// `at..at + R` of the tables `t`, whose widths are [`Model::transformed_dims`]. Only for a
    /// layer that runs in [`ProductOrder::TransformFirst`].
    pub fn transform_rows(&self, l: usize, pass: &Pass, x: View, at: usize, t: &mut [Matrix]) {
        self.stages[l].conv.transform(&pass.part(l as u64), x, at, t);
    }

    /// Computes layer `l`, with residual, norm and activation, on a chunk of nodes. The block is
    /// global: its destinations are the chunk, and its sources are rows of the tables. `input.x` is
    /// the whole table of the layer's input rows, and `input.transformed` the tables from
    /// [`Model::transform_rows`] in [`ProductOrder::TransformFirst`]. In that order, `input.x` is
    /// not read, and may be empty, unless [`Model::combines_own_rows`] returns true; even then it
    /// is not read if the destinations' [`Model::own_product`] follows the tables. `out` is
    /// `D x layer_out_dim`. `scratch` is reused across chunks. `pass` is not training.
    pub fn infer(&self, l: usize, pass: &Pass, input: &LayerInput, scratch: &mut Activations, out: ViewMut) {
        debug_assert!(!pass.training, "inference does not apply dropout");
        scratch.fit(self.stages.len(), self.head.len());
        let saved = &mut scratch.stages[l].saved;
        self.stages[l].forward(&pass.part(l as u64), input, None, saved, out);
    }

    /// Applies the head to any rows, `R x hidden` to `R x C`. `pass` is not training.
    ///
    /// # Panics
    /// The model has no head.
    pub fn head_rows(&self, pass: &Pass, x: View, scratch: &mut Activations, out: ViewMut) {
        scratch.fit(self.stages.len(), self.head.len());
        let last = self.head.len().checked_sub(1).expect("the model has a head");
        let mut x = x;
        for (i, (linear, rows)) in self.head.iter().zip(&mut scratch.head).take(last).enumerate() {
            rows.out.resize(x.num_rows(), linear.out_dim());
            linear.forward(pass, x, 0.0, self.head_epilogue(pass, i), rows.out.view_mut());
            x = rows.out.view();
        }
        self.head[last].forward(pass, x, 0.0, self.head_epilogue(pass, last), out);
    }
}
