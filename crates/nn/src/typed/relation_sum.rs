//! The sum over relations of the neighbours' means, the common part of R-SAGE and R-GCN.

use graphmill_core::{Block, block::Aggregation};

use super::{
    Projected, ProjectionGrad, RelationWeights, Scope, TypedInput, TypedLayer, TypedLayerSpec,
    layer::{TypedGrads, resize_outputs},
    occupied::Occupied,
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
/// in training on the block at hand, in inference on the nodes of the graph. A relation with edges
/// to few of the block's destinations computes the rows of these alone.
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
    /// Order of the products, and destinations with edges, by relation.
    orders: Vec<ProductOrder>,
    occupied: Vec<Occupied>,
    /// Rows of the occupied destinations of a relation, and their numbers.
    rows: Matrix,
    numbers: Vec<u32>,
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

    /// Order of the products of relation `r`, `dst` of whose destinations are computed: in training
    /// the cheapest on the block, in inference that of the numbers of nodes, so that a row has the
    /// same bits in all blocks.
    fn order(&self, pass: &Pass, input: &TypedInput, r: usize, dst: usize) -> ProductOrder {
        let TypedLayerSpec { in_dim, out_dim, .. } = self.spec;
        let orders = [ProductOrder::AggregateFirst, ProductOrder::TransformFirst];
        let (shape, purpose) = if pass.training {
            let shape = BlockShape::from(&input.block.relations[r]);
            (BlockShape { dst, ..shape }, Purpose::InnerLayer)
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

impl RelationSum {
    /// Adds the sum of relation `r`.
    fn forward_relation(
        &self,
        pass: &Pass,
        input: &TypedInput,
        (r, state): (usize, &mut State),
        mut out: ViewMut,
    ) {
        let State { combined, between, orders, occupied, rows, numbers, .. } = state;
        let (block, src, backend) = (&input.block.relations[r], input.ends(r)[0], pass.backend);
        let (x, between, occupied) = (input.x[src].view(), &mut between[r], &mut occupied[r]);
        let count = Occupied::count(block).filter(|_| !input.x[src].is_on_device());
        orders[r] = self.order(pass, input, r, count.unwrap_or(block.num_dst));
        occupied.clear();
        let weights = Self::mean(block);
        match orders[r] {
            ProductOrder::AggregateFirst if count.is_some() => {
                occupied.fill(block, numbers);
                let block = &occupied.block;
                between.resize(block.num_dst, self.spec.in_dim);
                Aggregate { block, weights, src: x, beta: 0.0, dst: between.view_mut() }.run(backend);
                occupied.gather(pass, out.as_view(), rows);
                self.weights.product(pass, r, combined, between.view(), 1.0, rows.view_mut());
                occupied.scatter(rows.view(), out.reborrow());
            }
            ProductOrder::AggregateFirst => {
                between.resize(block.num_dst, self.spec.in_dim);
                Aggregate { block, weights, src: x, beta: 0.0, dst: between.view_mut() }.run(backend);
                self.weights.product(pass, r, combined, between.view(), 1.0, out);
            }
            ProductOrder::TransformFirst => {
                between.resize(block.num_src, self.spec.out_dim);
                self.weights.product(pass, r, combined, x, 0.0, between.view_mut());
                Aggregate { block, weights, src: between.view(), beta: 1.0, dst: out }.run(backend);
            }
        }
    }

    /// Gradients of [`RelationSum::forward_relation`].
    fn backward_relation(
        &mut self,
        pass: &Pass,
        input: &TypedInput,
        (r, state): (usize, &mut State),
        grad: View,
        x_grad: ViewMut,
    ) {
        let State { combined, between, through, orders, occupied, rows, .. } = state;
        let (block, src, backend) = (&input.block.relations[r], input.ends(r)[0], pass.backend);
        let (weights, occupied) = (Self::mean(block), &occupied[r]);
        match orders[r] {
            ProductOrder::AggregateFirst => {
                let (block, grad) = match occupied.is_restricted() {
                    true => {
                        occupied.gather(pass, grad, rows);
                        (&occupied.block, rows.view())
                    }
                    false => (block, grad),
                };
                self.weights.backward_product(pass, r, combined, between[r].view(), grad);
                through.resize(block.num_dst, self.spec.in_dim);
                self.weights.input_grad(pass, r, combined, grad, 0.0, through.view_mut());
                let dst_grad = through.view();
                AggregateTransposed { block, weights, dst_grad, beta: 1.0, src_grad: x_grad }.run(backend);
            }
            ProductOrder::TransformFirst => {
                through.resize(block.num_src, self.spec.out_dim);
                let src_grad = through.view_mut();
                AggregateTransposed { block, weights, dst_grad: grad, beta: 0.0, src_grad }.run(backend);
                self.weights.backward_product(pass, r, combined, input.x[src].view(), through.view());
                self.weights.input_grad(pass, r, combined, through.view(), 1.0, x_grad);
            }
        }
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
        let state: &mut State = saved.state();
        let backend = pass.backend;
        state.projected.fit(pass, input);
        let relations = input.schema.num_relations();
        state.between.resize_with(relations, Matrix::default);
        state.occupied.resize_with(relations, Occupied::default);
        state.orders.resize(relations, ProductOrder::AggregateFirst);
        self.weights.combine(pass, |r| input.has_edges(r), &mut state.combined);
        resize_outputs(pass, input, self.spec.out_dim, matches!(self.own, OwnWeights::None(_)), out);
        for (t, out) in out.iter_mut().enumerate() {
            let out = out.view_mut();
            match (&self.own, self.own(t), input.projection(t)) {
                (OwnWeights::None(biases), ..) => Epilogue::NONE.apply(backend, biases.get(t), out),
                (_, Some(own), Some(x)) => state.projected.own[t].forward(pass, own, x, out),
                (_, Some(own), None) => own.forward(pass, input.own_rows(t), 0.0, Epilogue::NONE, out),
                (_, None, _) => {}
            }
        }
        for (r, block) in input.block.relations.iter().enumerate().filter(|(_, block)| block.num_edges() > 0)
        {
            let [src, dst] = input.ends(r);
            if let Some(x) = input.projection(src) {
                let State { combined, between, projected, .. } = &mut *state;
                let state = (&*combined, &mut between[r], projected);
                self.forward_projected(pass, (r, block, x), state, out[dst].view_mut());
                continue;
            }
            self.forward_relation(pass, input, (r, state), out[dst].view_mut());
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass, input: &TypedInput, saved: &mut Saved, mut grads: TypedGrads) {
        grads.clear_input(pass, input);
        let state: &mut State = saved.state();
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
                state.projected.own[t].backward(pass, own, x, grad, &mut projections[t]);
                continue;
            }
            own.backward_product(pass, input.own_rows(t), grad);
            own.bias_mut().iter_mut().for_each(|p| backend.add_column_sums(grad, p.grad.view_mut()));
            own.input_grad(pass, grad, 1.0, x_grad[t].rows_mut(rows));
        }
        self.weights.clear_grads(pass, &mut state.combined);
        for r in (0..input.block.relations.len()).filter(|&r| input.has_edges(r)) {
            let [src, dst] = input.ends(r);
            let grad = grad[dst].view();
            if let Some(x) = input.projection(src) {
                let State { combined, between, projected, .. } = &mut *state;
                let state = (combined, &between[r], projected);
                self.backward_projected(pass, (r, x, grad), state, &mut projections[src]);
                continue;
            }
            self.backward_relation(pass, input, (r, state), grad, x_grad[src].view_mut());
        }
        self.weights.backward_combined(pass, |r| input.has_edges(r), &state.combined);
    }
}
