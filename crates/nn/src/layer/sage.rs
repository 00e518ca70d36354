//! GraphSAGE with the mean aggregator, and the table of GraphSAGE's aggregators.

use graphmill_graph::{
    Block,
    block::Aggregation,
    keyed,
    table::{self, Entry},
};

use super::{Finish, Layer, LayerConfig, Linear, Make, Order, Param, Pass, SagePool, Saved};
use crate::{
    Matrix, Result, View, ViewMut,
    backend::{EdgeWeight, OwnWeight, Weighting},
};

/// What GraphSAGE makes of the neighbours' rows.
pub const AGGREGATORS: &[Entry<Make>] = &[
    Entry {
        name: "mean",
        summary: "their mean",
        source: "Hamilton, Ying and Leskovec, NeurIPS 2017, section 3.3",
        make: Sage::make,
    },
    Entry {
        name: "max-pool",
        summary: "the elementwise maximum after a dense layer",
        source: "Hamilton, Ying and Leskovec, NeurIPS 2017, section 3.3, equation 3",
        make: SagePool::make,
    },
];

/// The GraphSAGE layer with the aggregator that the configuration names.
pub(super) fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
    (table::find("aggregator", AGGREGATORS, &config.aggregator)?.make)(config)
}

/// The GraphSAGE operator with the mean aggregator, from *Inductive Representation Learning on Large
/// Graphs* (Hamilton, Ying and Leskovec, NeurIPS 2017, algorithm 1 with the mean of section 3.3):
///
/// ```text
/// out[v] = mean over in-neighbours u of (x[u]) W_neigh + x[v] W_self + b
/// ```
///
/// The paper writes one matrix for the concatenation of both rows; its two halves are `W_self` and
/// `W_neigh`. A destination without neighbours keeps its own part only. Where the block stores edge
/// weights (an estimator's coefficients) they replace the mean's `1 / degree`.
///
/// Aggregate first costs `E F + 2 D F O` multiplications, transform first `E O + (S + D) F O`.
///
/// # Shapes
/// - `neigh.weight`, `self.weight`: `F x O`; `bias`: `1 x O`
/// - in `S x F`, out `D x O`
#[derive(Clone, Debug)]
pub struct Sage {
    neigh: Linear,
    own: Linear,
    out_dim: usize,
}

impl Sage {
    /// A layer `F` to `O`.
    ///
    /// # Errors
    /// None; the signature is the table's.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, bias, key, .. } = config;
        Ok(Box::new(Self {
            neigh: Linear::named(["neigh.weight", ""], in_dim, out_dim, false, keyed::key(&[key, 0])),
            own: Linear::named(["self.weight", "bias"], in_dim, out_dim, bias, keyed::key(&[key, 1])),
            out_dim,
        }))
    }

    fn weighting(block: &Block) -> Weighting<'static> {
        Weighting { edge: super::stored_or(block, EdgeWeight::Mean), own: OwnWeight::None }
    }
}

// In `Saved::m`: the mean (D x F), own rows (D x F, only of a global block), the gradient on its
// way through the aggregation (D x F or S x O).
impl Layer for Sage {
    fn in_dim(&self) -> usize {
        self.neigh.in_dim()
    }

    fn out_dim(&self) -> usize {
        self.out_dim
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.neigh.visit(see);
        self.own.visit(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.neigh.visit_mut(see);
        self.own.visit_mut(see);
    }

    fn boxed(&self) -> Box<dyn Layer> {
        Box::new(self.clone())
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::Mean
    }

    fn orders(&self) -> &'static [Order] {
        &[Order::AggregateFirst, Order::TransformFirst]
    }

    fn transformed_dims(&self) -> &[usize] {
        std::slice::from_ref(&self.out_dim)
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, t: &mut [Matrix]) {
        self.neigh.forward(pass, x, 0.0, Finish::NONE, t[0].rows_mut(at..at + x.num_rows()));
    }

    fn combine(
        &self,
        pass: &Pass,
        block: &Block,
        x: View,
        t: &[Matrix],
        finish: Finish,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        let [_, room, ..] = &mut saved.m;
        let own = super::own_rows(pass, block, x, room);
        pass.backend.aggregate(block, Self::weighting(block), t[0].view(), 0.0, out.reborrow());
        self.own.forward(pass, own, 1.0, finish, out);
    }

    fn aggregate_first(
        &self,
        pass: &Pass,
        block: &Block,
        x: View,
        finish: Finish,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        let [mean, room, ..] = &mut saved.m;
        mean.resize(block.num_dst, x.num_cols());
        pass.backend.aggregate(block, Self::weighting(block), x, 0.0, mean.view_mut());
        self.neigh.forward(pass, mean.view(), 0.0, Finish::NONE, out.reborrow());
        self.own.forward(pass, super::own_rows(pass, block, x, room), 1.0, finish, out);
    }

    fn kept_dims(&self) -> Vec<usize> {
        vec![self.in_dim(); 2]
    }

    fn keep(&self, pass: &Pass, block: &Block, x: View, saved: &Saved, at: usize, kept: &mut [Matrix]) {
        let [mean, room, ..] = &saved.m;
        let rows = at..at + block.num_dst;
        pass.backend.copy(mean.view(), kept[0].rows_mut(rows.clone()));
        pass.backend.copy(super::own_rows_again(block, x, room), kept[1].rows_mut(rows));
    }

    fn rows_of_kept(&self, pass: &Pass, kept: &[Matrix], _saved: &mut Saved, mut out: ViewMut) {
        self.neigh.forward_product(pass, kept[0].view(), 0.0, out.reborrow());
        self.own.forward_product(pass, kept[1].view(), 1.0, out);
    }

    fn kept_bias(&self) -> Option<&Param> {
        self.own.bias()
    }

    fn kept_bias_mut(&mut self) -> Option<&mut Param> {
        self.own.bias_mut()
    }

    fn backward_kept(&mut self, pass: &Pass, kept: &[Matrix], _saved: &mut Saved, grad: View) {
        let both = [&mut self.neigh, &mut self.own];
        Linear::backward_products(pass, both, [kept[0].view(), kept[1].view()], grad);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        y: View,
        finish: Finish,
        saved: &mut Saved,
        grad: &mut Matrix,
        mut x_grad: Option<&mut Matrix>,
    ) {
        let weighting = Self::weighting(block);
        let [mean, room, through, ..] = &mut saved.m;
        finish.backward(pass.backend, self.own.bias_mut(), y, grad.view_mut());
        let own = super::own_rows_again(block, x, room);
        match order {
            Order::AggregateFirst => {
                let both = [&mut self.neigh, &mut self.own];
                Linear::backward_products(pass, both, [mean.view(), own], grad.view());
                if let Some(x_grad) = &mut x_grad {
                    through.resize(block.num_dst, self.in_dim());
                    self.neigh.input_grad(pass, grad.view(), 0.0, through.view_mut());
                    x_grad.resize(block.num_grad_src(), self.in_dim());
                    let to = x_grad.view_mut();
                    pass.backend.aggregate_transposed(block, weighting, through.view(), 0.0, to);
                }
            }
            Order::TransformFirst => {
                super::assert_unrestricted(block);
                self.own.backward_product(pass, own, grad.view());
                through.resize(block.num_src, self.out_dim);
                let to = through.view_mut();
                pass.backend.aggregate_transposed(block, weighting, grad.view(), 0.0, to);
                self.neigh.backward_product(pass, x, through.view());
                if let Some(x_grad) = &mut x_grad {
                    x_grad.resize(block.num_src, self.in_dim());
                    self.neigh.input_grad(pass, through.view(), 0.0, x_grad.view_mut());
                }
            }
        }
        if let Some(x_grad) = x_grad {
            self.own.input_grad(pass, grad.view(), 1.0, x_grad.rows_mut(0..block.num_dst));
        }
    }
}
