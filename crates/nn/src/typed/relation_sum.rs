//! The sum over relations of the neighbours' means, the common part of R-SAGE and R-GCN.

use graphmill_core::{Block, block::Aggregation};

use super::{
    RelationWeights, Scope, TypedInput, TypedLayer, TypedLayerSpec, layer::TypedGrads, layer::resize_outputs,
    weights::CombinedWeights,
};
use crate::{
    Matrix, Param, Pass, Saved,
    backend::{
        AggregationWeights, EdgeWeight, OwnWeight,
        ops::{Aggregate, AggregateTransposed},
    },
    cost::{self, BlockShape, ProductOrder, Purpose},
    layer::{Linear, stored_or},
};

/// Weights of the destinations' own rows.
#[derive(Clone, Debug)]
pub enum OwnWeights {
    /// Own rows are left out; the biases, if any, stand alone.
    None(Vec<Param>),
    /// One matrix and bias for all types.
    Shared(Box<Linear>),
    /// A matrix and a bias for each type.
    ByType(Vec<Linear>),
}

/// The sum of a node's own row and of the means over its in-neighbours by each relation, each with
/// weights:
///
/// ```text
/// out[v] = x[v] W_own + sum over relations r of (mean over in-neighbours u by r of x[u]) W_r + b
/// ```
///
/// If a block stores edge weights (an estimator's coefficients), they replace the mean's
/// `1 / degree`. Each relation multiplies first or aggregates first, whichever moves fewer bytes on
/// the block at hand.
///
/// # Shapes
/// - in `S_t x F`, out `D_t x O`
#[derive(Clone, Debug)]
pub struct RelationSum {
    spec: TypedLayerSpec,
    own: OwnWeights,
    weights: RelationWeights,
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    combined: CombinedWeights,
    /// Mean of the neighbours' rows (`D x F`), or the transformed sources (`S x O`), by relation.
    between: Vec<Matrix>,
    /// Gradient of the same shape.
    through: Matrix,
}

impl RelationSum {
    /// Creates a layer from its weights, of widths `F` and `O`.
    pub fn new(in_dim: usize, out_dim: usize, own: OwnWeights, weights: RelationWeights) -> Self {
        Self { spec: TypedLayerSpec { in_dim, out_dim, aggregation: Aggregation::Mean }, own, weights }
    }

    fn order(&self, block: &Block) -> ProductOrder {
        let TypedLayerSpec { in_dim, out_dim, .. } = self.spec;
        let orders = [ProductOrder::AggregateFirst, ProductOrder::TransformFirst];
        let shape = BlockShape::from(block);
        cost::cheapest(&orders, |order| cost::cost(order, shape, in_dim, out_dim, Purpose::InnerLayer))
    }

    fn mean(block: &Block) -> AggregationWeights<'static> {
        AggregationWeights { edge: stored_or(block, EdgeWeight::Mean), own: OwnWeight::None }
    }
}

impl TypedLayer for RelationSum {
    fn spec(&self) -> TypedLayerSpec {
        self.spec
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(Scope, &'a Param)) {
        match &self.own {
            OwnWeights::None(biases) => biases.iter().enumerate().for_each(|(t, p)| see(Scope::Type(t), p)),
            OwnWeights::Shared(own) => own.visit(&mut |p| see(Scope::Shared, p)),
            OwnWeights::ByType(own) => {
                own.iter().enumerate().for_each(|(t, own)| own.visit(&mut |p| see(Scope::Type(t), p)));
            }
        }
        self.weights.visit(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(Scope, &mut Param)) {
        match &mut self.own {
            OwnWeights::None(biases) => {
                biases.iter_mut().enumerate().for_each(|(t, p)| see(Scope::Type(t), p))
            }
            OwnWeights::Shared(own) => own.visit_mut(&mut |p| see(Scope::Shared, p)),
            OwnWeights::ByType(own) => {
                own.iter_mut()
                    .enumerate()
                    .for_each(|(t, own)| own.visit_mut(&mut |p| see(Scope::Type(t), p)));
            }
        }
        self.weights.visit_mut(see);
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &TypedInput,
        saved: &mut Saved,
        out: &mut [Matrix],
    ) -> graphmill_core::Result<()> {
        let State { combined, between, .. } = saved.state();
        let backend = pass.backend;
        between.resize_with(input.schema.num_relations(), Matrix::default);
        self.weights.combine(pass, |r| input.has_edges(r), combined);
        resize_outputs(pass, input, self.spec.out_dim, matches!(self.own, OwnWeights::None(_)), out);
        for (t, out) in out.iter_mut().enumerate() {
            let (x, out) = (input.own_rows(t), out.view_mut());
            match &self.own {
                OwnWeights::None(biases) => crate::Epilogue::NONE.apply(backend, biases.get(t), out),
                OwnWeights::Shared(own) => own.forward(pass, x, 0.0, crate::Epilogue::NONE, out),
                OwnWeights::ByType(own) => own[t].forward(pass, x, 0.0, crate::Epilogue::NONE, out),
            }
        }
        for (r, block) in input.block.relations.iter().enumerate().filter(|(_, block)| block.num_edges() > 0)
        {
            let [src, dst] = input.ends(r);
            let (weights, x, between) = (Self::mean(block), input.x[src].view(), &mut between[r]);
            match self.order(block) {
                ProductOrder::AggregateFirst => {
                    between.resize(block.num_dst, self.spec.in_dim);
                    Aggregate { block, weights, src: x, beta: 0.0, dst: between.view_mut() }.run(backend);
                    self.weights.product(pass, r, combined, between.view(), 1.0, out[dst].view_mut());
                }
                ProductOrder::TransformFirst => {
                    between.resize(block.num_src, self.spec.out_dim);
                    self.weights.product(pass, r, combined, x, 0.0, between.view_mut());
                    let (src, dst) = (between.view(), out[dst].view_mut());
                    Aggregate { block, weights, src, beta: 1.0, dst }.run(backend);
                }
            }
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass, input: &TypedInput, saved: &mut Saved, mut grads: TypedGrads) {
        grads.clear_input(pass, input);
        let State { combined, between, through } = saved.state();
        let TypedGrads { grad, x_grad, .. } = grads;
        let backend = pass.backend;
        for (t, grad) in grad.iter().enumerate() {
            let (rows, grad) = (0..grad.num_rows(), grad.view());
            let own = match &mut self.own {
                OwnWeights::None(biases) => {
                    biases
                        .get_mut(t)
                        .iter_mut()
                        .for_each(|p| backend.add_column_sums(grad, p.grad.view_mut()));
                    continue;
                }
                OwnWeights::Shared(own) => own,
                OwnWeights::ByType(own) => &mut own[t],
            };
            own.backward_product(pass, input.own_rows(t), grad);
            own.bias_mut().iter_mut().for_each(|p| backend.add_column_sums(grad, p.grad.view_mut()));
            own.input_grad(pass, grad, 1.0, x_grad[t].rows_mut(rows));
        }
        self.weights.clear_grads(pass, combined);
        for (r, block) in input.block.relations.iter().enumerate().filter(|(_, block)| block.num_edges() > 0)
        {
            let [src, dst] = input.ends(r);
            let (weights, grad) = (Self::mean(block), grad[dst].view());
            match self.order(block) {
                ProductOrder::AggregateFirst => {
                    self.weights.backward_product(pass, r, combined, between[r].view(), grad);
                    through.resize(block.num_dst, self.spec.in_dim);
                    self.weights.input_grad(pass, r, combined, grad, 0.0, through.view_mut());
                    let (dst_grad, src_grad) = (through.view(), x_grad[src].view_mut());
                    AggregateTransposed { block, weights, dst_grad, beta: 1.0, src_grad }.run(backend);
                }
                ProductOrder::TransformFirst => {
                    through.resize(block.num_src, self.spec.out_dim);
                    let src_grad = through.view_mut();
                    AggregateTransposed { block, weights, dst_grad: grad, beta: 0.0, src_grad }.run(backend);
                    self.weights.backward_product(pass, r, combined, input.x[src].view(), through.view());
                    let x_grad = x_grad[src].view_mut();
                    self.weights.input_grad(pass, r, combined, through.view(), 1.0, x_grad);
                }
            }
        }
        self.weights.backward_combined(pass, |r| input.has_edges(r), combined);
    }
}
