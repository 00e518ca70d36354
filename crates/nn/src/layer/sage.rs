//! GraphSAGE with the mean aggregator, and the choice among GraphSAGE's aggregators.

use clap::{Args, ValueEnum};
use graphmill_core::{Block, block::Aggregation, by_name, keyed, options::OptionSet};
use serde::{Deserialize, Serialize};

use super::{
    Epilogue, Layer, LayerConfig, LayerGrads, LayerInput, LayerSpec, Linear, LinearPropagation, MixHop,
    Param, Pass, Products, ReusableLayer, SagePool, Saved, propagation::Propagated,
};
use crate::{
    Error, Matrix, Result, View, ViewMut,
    backend::{AggregationWeights, EdgeWeight, ONE_PIECE, OwnWeight, ops::Add},
    cost::ProductOrder,
};

/// Aggregator of GraphSAGE over the neighbours' rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregator {
    /// Mean (Hamilton, Ying and Leskovec, NeurIPS 2017, section 3.3).
    #[default]
    Mean,
    /// Elementwise maximum after a dense layer (section 3.3, equation 3).
    MaxPool,
}

/// Combination of a node's own row with its neighbours' aggregate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Combine {
    /// Sum, each with weights of the full width.
    #[default]
    Add,
    /// Concatenation, each with weights of half the width (Zeng et al., *GraphSAINT*, ICLR 2020,
    /// equation 1). In the layer that computes the scores, the mean of both.
    Concat,
}

by_name!(Aggregator, Combine);

/// Options of GraphSAGE.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SageOptions {
    /// Aggregation of the neighbours: mean or max-pool.
    #[arg(long, value_name = "NAME")]
    pub aggregator: Aggregator,
    /// Combination of a node's own row with its neighbours: add or concat.
    ///
    /// Concat is the layer of the GraphSAGE and GraphSAINT papers: each part has half of --hidden.
    /// It has half the weights of add, and needs --aggregator mean.
    #[arg(long, value_name = "NAME")]
    pub sage_combine: Combine,
}

impl OptionSet for SageOptions {}

/// Creates the GraphSAGE layer with the aggregator of its options.
pub(super) fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
    let SageOptions { aggregator, sage_combine } = config.own.get();
    match (aggregator, sage_combine) {
        (Aggregator::Mean, Combine::Add) => Sage::make(config),
        (Aggregator::Mean, Combine::Concat) => MixHop::concatenated_mean(config),
        (Aggregator::MaxPool, Combine::Add) => SagePool::make(config),
        (Aggregator::MaxPool, Combine::Concat) => {
            let message = "--aggregator max-pool adds its two parts; use --aggregator mean, or add";
            Err(Error::config("sage_combine", sage_combine, message))
        }
    }
}

/// The GraphSAGE operator with the mean aggregator (Hamilton, Ying and Leskovec, *Inductive
/// Representation Learning on Large Graphs*, NeurIPS 2017, algorithm 1 with the mean of section
/// 3.3):
///
/// ```text
/// out[v] = mean over in-neighbours u of (x[u]) W_neigh + x[v] W_self + b
/// ```
///
/// The paper writes one matrix for the concatenation of both rows; its two halves are `W_self` and
/// `W_neigh`. A destination without neighbours has only its own term. If the block stores edge
/// weights (an estimator's coefficients), they replace the mean's `1 / degree`.
///
/// Aggregate first costs `E F + 2 D F O` multiplications, transform first `E O + (S + D) F O`.
///
/// # Shapes
/// - `neigh.weight`, `self.weight`: `F x O`; `bias`: `1 x O`
/// - in `S x F`, out `D x O`
#[derive(Clone, Debug)]
pub struct Sage {
    spec: LayerSpec,
    mean: LinearPropagation,
    own: Linear,
}

impl Sage {
    /// Creates a layer of widths `F` and `O`.
    ///
    /// # Errors
    /// Never; the table requires the signature.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, bias, key, .. } = config;
        let spec = LayerSpec {
            aggregation: Aggregation::Mean,
            has_own_product: ONE_PIECE.contains(&in_dim),
            has_fixed_aggregation: true,
            products: Some(Products { neighbors: 1, own: 1 }),
            ..LayerSpec::both_orders(in_dim, out_dim, vec![out_dim])
        };
        let neigh = Linear::named(["neigh.weight", ""], in_dim, out_dim, false, keyed::key(&[key, 0]));
        let own = Linear::named(["self.weight", "bias"], in_dim, out_dim, bias, keyed::key(&[key, 1]));
        Ok(Box::new(Self { spec, mean: LinearPropagation::new(neigh), own }))
    }

    fn weights(block: &Block) -> AggregationWeights<'static> {
        AggregationWeights { edge: super::stored_or(block, EdgeWeight::Mean), own: OwnWeight::None }
    }
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    mean: Propagated,
    /// Own rows, `D x F`; only for a global block.
    own: Matrix,
}

impl Layer for Sage {
    fn spec(&self) -> &LayerSpec {
        &self.spec
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.mean.linear.visit(see);
        self.own.visit(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.mean.linear.visit_mut(see);
        self.own.visit_mut(see);
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, tables: &mut [Matrix]) {
        self.mean.transform(pass, x, at, &mut tables[0]);
    }

    fn own_product(&self, pass: &Pass, x: View, out: ViewMut) {
        self.own.forward_product(pass, x, 0.0, out);
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        let State { mean, own } = saved.state();
        let weights = Self::weights(input.block);
        if let [_, product] = input.transformed {
            self.mean.forward(pass, input, weights, Epilogue::NONE, mean, out.reborrow());
            Add { alpha: 1.0, x: product.view(), y: out.reborrow() }.run(pass.backend);
            return epilogue.apply(pass.backend, self.own.bias(), out);
        }
        let own = input.own_rows(pass, own);
        match input.order {
            ProductOrder::AggregateFirst => {
                let rows = [mean.aggregate(pass, input, weights), own];
                Linear::forward_sum(pass, [&self.mean.linear, &self.own], rows, epilogue, out);
            }
            ProductOrder::TransformFirst => {
                self.mean.forward(pass, input, weights, Epilogue::NONE, mean, out.reborrow());
                self.own.forward(pass, own, 1.0, epilogue, out);
            }
        }
    }

    fn backward(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        LayerGrads { y, grad, mut x_grad }: LayerGrads,
    ) {
        let State { mean, own } = saved.state();
        epilogue.backward(pass.backend, self.own.bias_mut(), y, grad.view_mut());
        let (own, grad) = (input.saved_own_rows(own), grad.view());
        match input.order {
            ProductOrder::AggregateFirst => {
                let weights = [&mut self.mean.linear, &mut self.own];
                Linear::backward_products(pass, weights, [mean.aggregated.view(), own], grad);
            }
            ProductOrder::TransformFirst => self.own.backward_product(pass, own, grad),
        }
        let needed = x_grad.as_deref_mut();
        self.mean.backward_input(pass, input, Self::weights(input.block), grad, mean, needed);
        if let Some(x_grad) = x_grad {
            self.own.input_grad(pass, grad, 1.0, x_grad.rows_mut(0..input.block.num_dst));
        }
    }

    fn as_reusable(&self) -> Option<&dyn ReusableLayer> {
        Some(self)
    }

    fn as_reusable_mut(&mut self) -> Option<&mut dyn ReusableLayer> {
        Some(self)
    }
}

/// The aggregates of a row are the mean and the own row.
impl ReusableLayer for Sage {
    fn aggregate_dims(&self) -> Vec<usize> {
        vec![self.spec.in_dim; 2]
    }

    fn save_aggregates(
        &self,
        pass: &Pass,
        input: &LayerInput,
        saved: &mut Saved,
        at: usize,
        aggregates: &mut [Matrix],
    ) {
        let State { mean, own } = saved.state();
        let rows = at..at + input.block.num_dst;
        pass.backend.copy(mean.aggregated.view(), aggregates[0].rows_mut(rows.clone()));
        pass.backend.copy(input.saved_own_rows(own), aggregates[1].rows_mut(rows));
    }

    fn apply_aggregates(&self, pass: &Pass, aggregates: &[Matrix], _saved: &mut Saved, mut out: ViewMut) {
        self.mean.linear.forward_product(pass, aggregates[0].view(), 0.0, out.reborrow());
        self.own.forward_product(pass, aggregates[1].view(), 1.0, out);
    }

    fn backward_aggregates(&mut self, pass: &Pass, aggregates: &[Matrix], _saved: &mut Saved, grad: View) {
        let weights = [&mut self.mean.linear, &mut self.own];
        Linear::backward_products(pass, weights, [aggregates[0].view(), aggregates[1].view()], grad);
    }

    fn bias(&self) -> Option<&Param> {
        self.own.bias()
    }

    fn bias_mut(&mut self) -> Option<&mut Param> {
        self.own.bias_mut()
    }
}
