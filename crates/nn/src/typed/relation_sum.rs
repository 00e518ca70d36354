//! The sum over relations of the neighbours' means, the common part of R-SAGE and R-GCN.

use graphmill_core::{Block, block::Aggregation};

use super::{
    Projected, ProjectionGrad, RelationWeights, Scope, TypedInput, TypedLayer, TypedLayerSpec,
    layer::{TypedGrads, resize_outputs},
    projected::FoldedWeight,
    weights::CombinedWeights,
};
use crate::{
    Epilogue, Matrix, Param, Pass, Saved, View, ViewMut,
    backend::{
        AggregationWeights, EdgeWeight, OwnWeight,
        Side::{Plain, Transposed},
        ops::{Aggregate, AggregateTransposed, Gemm},
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
/// `1 / degree`. Each relation multiplies first or aggregates first, whichever moves fewer bytes:
/// in training on the block at hand, in inference on the nodes of the graph.
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
    projected: ProjectedState,
}

/// Matrices of a pass over projected types.
#[derive(Clone, Debug, Default)]
struct ProjectedState {
    /// Weights of the relations and of the types' own rows, after the projection.
    relations: Vec<FoldedWeight>,
    own: Vec<FoldedWeight>,
    /// Sum of the weights of each destination's edges, `D x 1`, by relation.
    totals: Vec<Matrix>,
    /// Ones, as many as the sources of any relation.
    ones: Matrix,
}

impl ProjectedState {
    fn fit(&mut self, pass: &Pass, input: &TypedInput) {
        self.relations.resize_with(input.schema.num_relations(), FoldedWeight::default);
        self.totals.resize_with(input.schema.num_relations(), Matrix::default);
        self.own.resize_with(input.schema.num_types(), FoldedWeight::default);
        let most = input.block.num_src.iter().copied().max().unwrap_or(0);
        if !input.projected.is_empty() && self.ones.num_rows() < most {
            self.ones.resize(most, 1);
            pass.backend.fill(1.0, self.ones.view_mut());
        }
    }
}

impl RelationSum {
    /// Creates a layer from its weights, of widths `F` and `O`.
    pub fn new(in_dim: usize, out_dim: usize, own: OwnWeights, weights: RelationWeights) -> Self {
        Self { spec: TypedLayerSpec { in_dim, out_dim, aggregation: Aggregation::Mean }, own, weights }
    }

    /// Order of the products of relation `r`: in training the cheapest on the block, in inference
    /// that of the numbers of nodes, so that a row has the same bits in all blocks.
    fn order(&self, pass: &Pass, input: &TypedInput, r: usize) -> ProductOrder {
        let TypedLayerSpec { in_dim, out_dim, .. } = self.spec;
        let orders = [ProductOrder::AggregateFirst, ProductOrder::TransformFirst];
        let (shape, purpose) = if pass.training {
            (BlockShape::from(&input.block.relations[r]), Purpose::InnerLayer)
        } else {
            let [src, dst] = input.ends(r).map(|t| input.schema.types()[t].count);
            (BlockShape { dst, src, edges: src + dst }, Purpose::Inference)
        };
        cost::cheapest(&orders, |order| cost::cost(order, shape, in_dim, out_dim, purpose))
    }

    fn mean(block: &Block) -> AggregationWeights<'static> {
        AggregationWeights { edge: stored_or(block, EdgeWeight::Mean), own: OwnWeight::None }
    }
}

impl RelationSum {
    fn own(&self, t: usize) -> Option<&Linear> {
        match &self.own {
            OwnWeights::None(_) => None,
            OwnWeights::Shared(own) => Some(own),
            OwnWeights::ByType(own) => Some(&own[t]),
        }
    }

    fn own_mut(&mut self, t: usize) -> Option<&mut Linear> {
        match &mut self.own {
            OwnWeights::None(_) => None,
            OwnWeights::Shared(own) => Some(own),
            OwnWeights::ByType(own) => Some(&mut own[t]),
        }
    }

    /// Adds the sum of relation `r` from a projected type.
    fn forward_projected(
        &self,
        pass: &Pass,
        (r, block, x): (usize, &Block, Projected),
        (combined, mean, projected): (&CombinedWeights, &mut Matrix, &mut ProjectedState),
        mut out: ViewMut,
    ) {
        let (weights, backend) = (Self::mean(block), pass.backend);
        let ProjectedState { relations, totals, ones, .. } = projected;
        let (folded, total) = (&mut relations[r], &mut totals[r]);
        folded.fill(x, self.spec.out_dim, |x, to| self.weights.product(pass, r, combined, x, 0.0, to));
        mean.resize(block.num_dst, x.features.num_cols());
        Aggregate { block, weights, src: x.features, beta: 0.0, dst: mean.view_mut() }.run(backend);
        total.resize(block.num_dst, 1);
        let src = ones.rows(0..block.num_src);
        Aggregate { block, weights, src, beta: 0.0, dst: total.view_mut() }.run(backend);
        for (a, b) in [(mean.view(), folded.weight.view()), (total.view(), folded.bias.view())] {
            Gemm { a: (a, Plain), b: (b, Plain), beta: 1.0, c: out.reborrow() }.run(backend);
        }
    }

    /// Gradients of [`RelationSum::forward_projected`].
    fn backward_projected(
        &mut self,
        pass: &Pass,
        (r, x, grad): (usize, Projected, View),
        (combined, mean, projected): (&mut CombinedWeights, &Matrix, &mut ProjectedState),
        to: &mut ProjectionGrad,
    ) {
        let (folded, total) = (&mut projected.relations[r], &projected.totals[r]);
        folded.fit_grads();
        let FoldedWeight { weight_grad, bias_grad, .. } = folded;
        for (a, c) in [(mean.view(), weight_grad), (total.view(), bias_grad)] {
            let (a, b) = ((a, Transposed), (grad, Plain));
            Gemm { a, b, beta: 0.0, c: c.view_mut() }.run(pass.backend);
        }
        for (x, grad) in folded.pairs(x) {
            self.weights.backward_product(pass, r, combined, x, grad);
        }
        folded.add_to(to, |grad, to| self.weights.input_grad(pass, r, combined, grad, 1.0, to));
    }
}

impl TypedLayer for RelationSum {
    fn spec(&self) -> TypedLayerSpec {
        self.spec
    }

    fn reads_projections(&self) -> bool {
        true
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
        let State { combined, between, projected, .. } = saved.state();
        let backend = pass.backend;
        projected.fit(pass, input);
        between.resize_with(input.schema.num_relations(), Matrix::default);
        self.weights.combine(pass, |r| input.has_edges(r), combined);
        resize_outputs(pass, input, self.spec.out_dim, matches!(self.own, OwnWeights::None(_)), out);
        for (t, out) in out.iter_mut().enumerate() {
            let out = out.view_mut();
            match (&self.own, self.own(t), input.projection(t)) {
                (OwnWeights::None(biases), ..) => Epilogue::NONE.apply(backend, biases.get(t), out),
                (_, Some(own), Some(x)) => projected.own[t].forward(pass, own, x, out),
                (_, Some(own), None) => own.forward(pass, input.own_rows(t), 0.0, Epilogue::NONE, out),
                (_, None, _) => {}
            }
        }
        for (r, block) in input.block.relations.iter().enumerate().filter(|(_, block)| block.num_edges() > 0)
        {
            let [src, dst] = input.ends(r);
            if let Some(x) = input.projection(src) {
                let state = (&*combined, &mut between[r], &mut *projected);
                self.forward_projected(pass, (r, block, x), state, out[dst].view_mut());
                continue;
            }
            let (weights, x, between) = (Self::mean(block), input.x[src].view(), &mut between[r]);
            match self.order(pass, input, r) {
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
        let State { combined, between, through, projected } = saved.state();
        let TypedGrads { grad, x_grad, projections, .. } = grads;
        let backend = pass.backend;
        for (t, grad) in grad.iter().enumerate() {
            let (rows, grad) = (0..grad.num_rows(), grad.view());
            if let OwnWeights::None(biases) = &mut self.own {
                biases.get_mut(t).iter_mut().for_each(|p| backend.add_column_sums(grad, p.grad.view_mut()));
                continue;
            }
            let Some(own) = self.own_mut(t) else { continue };
            if let Some(x) = input.projection(t) {
                projected.own[t].backward(pass, own, x, grad, &mut projections[t]);
                continue;
            }
            own.backward_product(pass, input.own_rows(t), grad);
            own.bias_mut().iter_mut().for_each(|p| backend.add_column_sums(grad, p.grad.view_mut()));
            own.input_grad(pass, grad, 1.0, x_grad[t].rows_mut(rows));
        }
        self.weights.clear_grads(pass, combined);
        for (r, block) in input.block.relations.iter().enumerate().filter(|(_, block)| block.num_edges() > 0)
        {
            let [src, dst] = input.ends(r);
            let (weights, grad) = (Self::mean(block), grad[dst].view());
            if let Some(x) = input.projection(src) {
                let state = (&mut *combined, &between[r], &mut *projected);
                self.backward_projected(pass, (r, x, grad), state, &mut projections[src]);
                continue;
            }
            match self.order(pass, input, r) {
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
