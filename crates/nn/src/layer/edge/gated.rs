//! Edge-gated convolution.

use graphmill_core::keyed;

use super::{EdgeGrads, EdgeInput, EdgeLayer, EdgeLayerConfig, EdgeLayerSpec};
use crate::{
    Epilogue, Matrix, Param, Pass, Result, Saved, ViewMut,
    backend::ops::{Add, Gated, GatedSum, GatedSumBackward},
    layer::Linear,
};

/// The residual gated graph convolution (Bresson and Laurent, *Residual gated graph ConvNets*,
/// 2017) with edge features, without the normalization of later versions:
///
/// ```text
/// gate[e] = sigmoid(x[v] W_target + b_gate + x[u] W_source + edge[e] W_edge)
/// out[v] = x[v] W_self + b + sum over edges e = (u, v) of gate[e] * (x[u] W_value + edge[e] W_edge_value)
/// ```
///
/// # Shapes
/// - weights of nodes: `F x O`; weights of edges: `K x O`; biases: `1 x O`
#[derive(Clone, Debug)]
pub struct EdgeGated {
    target: Linear,
    source: Linear,
    value: Linear,
    edge: [Linear; 2],
    own: Linear,
}

impl EdgeGated {
    /// Creates a layer.
    ///
    /// # Errors
    /// Never; the table requires the signature.
    pub fn make(config: &EdgeLayerConfig) -> Result<Box<dyn EdgeLayer>> {
        let EdgeLayerConfig { nodes, edge_dim, .. } = config;
        let key = |part| keyed::key(&[nodes.key, part]);
        let (from, to) = (nodes.in_dim, nodes.out_dim);
        let plain = |name, from, part| Linear::named([name, ""], from, to, false, key(part));
        Ok(Box::new(Self {
            target: Linear::named(["target.weight", "gate.bias"], from, to, nodes.bias, key(0)),
            source: plain("source.weight", from, 1),
            value: plain("value.weight", from, 2),
            edge: [plain("edge.weight", *edge_dim, 3), plain("edge.value.weight", *edge_dim, 4)],
            own: Linear::named(["self.weight", "bias"], from, to, nodes.bias, key(5)),
        }))
    }

    fn parts(&self) -> [&Linear; 6] {
        [&self.target, &self.source, &self.value, &self.edge[0], &self.edge[1], &self.own]
    }
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    target: Matrix,
    source: Matrix,
    value: Matrix,
    edge: [Matrix; 2],
    sum: Matrix,
    grads: [Matrix; 5],
}

impl EdgeLayer for EdgeGated {
    fn spec(&self) -> EdgeLayerSpec {
        let (in_dim, edge_dim, out_dim) = (self.own.in_dim(), self.edge[0].in_dim(), self.own.out_dim());
        EdgeLayerSpec { in_dim, edge_dim, out_dim }
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.parts().into_iter().for_each(|linear| linear.visit(see));
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        let Self { target, source, value, edge: [gate, edge_value], own } = self;
        [target, source, value, gate, edge_value, own].into_iter().for_each(|linear| linear.visit_mut(see));
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &EdgeInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        input.check(self.spec());
        let State { target, source, value, edge, sum, .. } = saved.state();
        let (block, width) = (input.block, self.own.out_dim());
        let rows = |linear: &Linear, x: crate::View, to: &mut Matrix| {
            to.resize(x.num_rows(), width);
            linear.forward(pass, x, 0.0, Epilogue::NONE, to.view_mut());
        };
        rows(&self.target, input.own_rows(), target);
        rows(&self.source, input.x, source);
        rows(&self.value, input.x, value);
        self.edge.iter().zip(edge.iter_mut()).for_each(|(linear, to)| rows(linear, input.edges, to));
        sum.resize(block.num_dst, width);
        GatedSum { of: gated(input, [target, source, value], edge), out: sum.view_mut() }.run(pass.backend);
        // the epilogue follows the sum of both parts
        self.own.forward_product(pass, input.own_rows(), 0.0, out.reborrow());
        Add { alpha: 1.0, x: sum.view(), y: out.reborrow() }.run(pass.backend);
        epilogue.apply(pass.backend, self.own.bias(), out);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        input: &EdgeInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        EdgeGrads { y, grad, x_grad, edge_grad }: EdgeGrads,
    ) {
        let State { target, source, value, edge, grads, .. } = saved.state();
        let (block, width) = (input.block, self.own.out_dim());
        epilogue.backward(pass.backend, self.own.bias_mut(), y, grad.view_mut());
        let (grad, own_rows) = (grad.view(), input.own_rows());
        self.own.backward_product(pass, own_rows, grad);
        let [target_grad, source_grad, value_grad, gate_grad, edge_value_grad] = grads;
        target_grad.resize(block.num_dst, width);
        [&mut *source_grad, value_grad].into_iter().for_each(|grad| grad.resize(block.num_src, width));
        [&mut *gate_grad, edge_value_grad].into_iter().for_each(|grad| grad.resize(block.num_edges(), width));
        GatedSumBackward {
            of: gated(input, [target, source, value], edge),
            grad,
            target_grad: target_grad.view_mut(),
            source_grad: source_grad.view_mut(),
            value_grad: value_grad.view_mut(),
            edge_grad: Some([gate_grad.view_mut(), edge_value_grad.view_mut()]),
        }
        .run(pass.backend);
        if let Some(bias) = self.target.bias_mut() {
            pass.backend.add_column_sums(target_grad.view(), bias.grad.view_mut());
        }
        self.target.backward_product(pass, own_rows, target_grad.view());
        self.source.backward_product(pass, input.x, source_grad.view());
        self.value.backward_product(pass, input.x, value_grad.view());
        self.edge[0].backward_product(pass, input.edges, gate_grad.view());
        self.edge[1].backward_product(pass, input.edges, edge_value_grad.view());
        if let Some(x_grad) = x_grad {
            x_grad.resize(block.num_src, self.own.in_dim());
            self.source.input_grad(pass, source_grad.view(), 0.0, x_grad.view_mut());
            self.value.input_grad(pass, value_grad.view(), 1.0, x_grad.view_mut());
            self.target.input_grad(pass, target_grad.view(), 1.0, x_grad.rows_mut(0..block.num_dst));
            self.own.input_grad(pass, grad, 1.0, x_grad.rows_mut(0..block.num_dst));
        }
        if let Some(edge_grad) = edge_grad {
            edge_grad.resize(block.num_edges(), self.edge[0].in_dim());
            self.edge[0].input_grad(pass, gate_grad.view(), 0.0, edge_grad.view_mut());
            self.edge[1].input_grad(pass, edge_value_grad.view(), 1.0, edge_grad.view_mut());
        }
    }
}

/// Rows of the gated sum: those of destinations, sources and values, and of the edges.
fn gated<'a>(input: &EdgeInput<'a>, rows: [&'a Matrix; 3], edge: &'a [Matrix; 2]) -> Gated<'a> {
    let [target, source, value] = rows.map(Matrix::view);
    Gated { block: input.block, target, source, value, edge: Some(edge.each_ref().map(Matrix::view)) }
}
