//! Sums over edges of functions of the sources' rows and the edges' rows (GINE, edge gates).

use graphmill_core::Block;

use super::{Operation, pair_attention::on_host, shape};
use crate::{View, ViewMut};

/// Checks sources' rows, rows of the edges, and destinations' rows of the same width.
fn sums(block: &Block, x: View, edge: Option<View>, dst: View) {
    shape::block(block);
    assert_eq!(x.num_rows(), block.num_src, "sources of a sum over edges");
    if let Some(edge) = edge {
        assert_eq!(shape::of(edge), (block.num_edges(), x.num_cols()), "rows of the edges");
    }
    assert_eq!(shape::of(dst), (block.num_dst, x.num_cols()), "destinations of a sum over edges");
}

/// `out[v] = sum over edges e = (u, v) of relu(x[u] + edge[e])`.
#[derive(Debug)]
pub struct ReluSum<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Sources' rows, `S x F`.
    pub x: View<'a>,
    /// Rows of the edges, `E x F`.
    pub edge: View<'a>,
    /// Result, `D x F`.
    pub out: ViewMut<'a>,
}

impl Operation for ReluSum<'_> {
    fn check(&self) {
        sums(self.block, self.x, Some(self.edge), self.out.as_view());
    }
}

impl ReluSum<'_> {
    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let Self { block, x, edge, out } = self;
        let block = &*on_host(block);
        let (cols, x, edge) = (x.num_cols(), x.host(), edge.host());
        for (i, out) in out.host().iter_mut().enumerate() {
            let (v, c) = (i / cols, i % cols);
            let term = |e: usize| {
                let z = f64::from(x[block.indices[e] as usize * cols + c]) + f64::from(edge[e * cols + c]);
                z.max(0.0)
            };
            *out = block.edges(v).map(term).sum::<f64>() as f32;
        }
    }
}

/// Gradients of [`ReluSum`].
///
/// # Panics
/// The block is not local and transposed.
#[derive(Debug)]
pub struct ReluSumBackward<'a> {
    /// The edges, local and transposed.
    pub block: &'a Block,
    /// Sources' rows, `S x F`.
    pub x: View<'a>,
    /// Rows of the edges, `E x F`.
    pub edge: View<'a>,
    /// Gradient of the result, `D x F`.
    pub grad: View<'a>,
    /// Gradient of the sources' rows, `S' x F`, if requested.
    pub x_grad: Option<ViewMut<'a>>,
    /// Gradient of the edges' rows, `E x F`.
    pub edge_grad: ViewMut<'a>,
}

impl Operation for ReluSumBackward<'_> {
    fn check(&self) {
        sums(self.block, self.x, Some(self.edge), self.grad);
        shape::local(self.block);
        shape::same(self.edge, self.edge_grad.as_view());
        if let Some(x_grad) = &self.x_grad {
            shape::source_grad(self.block, self.x, x_grad.as_view());
        }
    }
}

impl ReluSumBackward<'_> {
    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let Self { block, x, edge, grad, x_grad, edge_grad } = self;
        let block = &*on_host(block);
        let (cols, x, edge, grad) = (x.num_cols(), x.host(), edge.host(), grad.host());
        let edge_grad = edge_grad.host();
        let mut of_sources = vec![0.0; x.len()];
        for v in 0..block.num_dst {
            for e in block.edges(v) {
                let u = block.indices[e] as usize;
                for c in 0..cols {
                    let z = f64::from(x[u * cols + c]) + f64::from(edge[e * cols + c]);
                    let g = if z > 0.0 { grad[v * cols + c] } else { 0.0 };
                    edge_grad[e * cols + c] = g;
                    of_sources[u * cols + c] += f64::from(g);
                }
            }
        }
        if let Some(x_grad) = x_grad {
            x_grad.host().iter_mut().zip(of_sources).for_each(|(x, sum)| *x = sum as f32);
        }
    }
}

/// Rows that a gated sum reads.
#[derive(Clone, Copy, Debug)]
pub struct Gated<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Destinations' part of the gates, `D x F`.
    pub target: View<'a>,
    /// Sources' part of the gates, `S x F`.
    pub source: View<'a>,
    /// Sources' values, `S x F`.
    pub value: View<'a>,
    /// Edges' parts of the gates and of the values, `E x F`, if there are any.
    pub edge: Option<[View<'a>; 2]>,
}

impl Gated<'_> {
    fn check(&self, dst: View) {
        let [gate, value] = [0, 1].map(|part| self.edge.map(|edge| edge[part]));
        sums(self.block, self.source, gate, dst);
        sums(self.block, self.value, value, dst);
        shape::same(self.target, dst);
        shape::same(self.source, self.value);
    }

    /// The gate and the gated value of column `c` of edge `e` from `u` to `v`, in f64.
    fn at(&self, [v, e, u]: [usize; 3], c: usize) -> (f64, f64) {
        let cols = self.source.num_cols();
        let read = |x: View, r: usize| f64::from(x.host()[r * cols + c]);
        let [gate, value] = [0, 1].map(|part| self.edge.map_or(0.0, |edge| read(edge[part], e)));
        let z = read(self.target, v) + read(self.source, u) + gate;
        (1.0 / (1.0 + (-z).exp()), read(self.value, u) + value)
    }
}

/// `out[v] = sum over edges e = (u, v) of sigmoid(target[v] + source[u] + gate[e]) * (value[u] +
/// value[e])`.
#[derive(Debug)]
pub struct GatedSum<'a> {
    /// Edges and rows.
    pub of: Gated<'a>,
    /// Result, `D x F`.
    pub out: ViewMut<'a>,
}

impl Operation for GatedSum<'_> {
    fn check(&self) {
        self.of.check(self.out.as_view());
    }
}

impl GatedSum<'_> {
    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let Self { of, out } = self;
        let block = &*on_host(of.block);
        let cols = of.source.num_cols();
        for (i, out) in out.host().iter_mut().enumerate() {
            let (v, c) = (i / cols, i % cols);
            let term = |e: usize| {
                let (gate, value) = of.at([v, e, block.indices[e] as usize], c);
                gate * value
            };
            *out = block.edges(v).map(term).sum::<f64>() as f32;
        }
    }
}

/// Gradients of [`GatedSum`].
///
/// # Panics
/// The block is not local and transposed.
#[derive(Debug)]
pub struct GatedSumBackward<'a> {
    /// Edges, local and transposed, and rows.
    pub of: Gated<'a>,
    /// Gradient of the result, `D x F`.
    pub grad: View<'a>,
    /// Gradient of the destinations' part of the gates, `D x F`.
    pub target_grad: ViewMut<'a>,
    /// Gradient of the sources' part of the gates, `S' x F`.
    pub source_grad: ViewMut<'a>,
    /// Gradient of the sources' values, `S' x F`.
    pub value_grad: ViewMut<'a>,
    /// Gradients of the edges' parts, if there are any.
    pub edge_grad: Option<[ViewMut<'a>; 2]>,
}

impl Operation for GatedSumBackward<'_> {
    fn check(&self) {
        self.of.check(self.grad);
        shape::local(self.of.block);
        shape::same(self.of.target, self.target_grad.as_view());
        shape::source_grad(self.of.block, self.of.source, self.source_grad.as_view());
        shape::source_grad(self.of.block, self.of.value, self.value_grad.as_view());
        match (self.of.edge, &self.edge_grad) {
            (None, None) => {}
            (Some(edge), Some(grad)) => {
                edge.into_iter().zip(grad).for_each(|(edge, grad)| shape::same(edge, grad.as_view()));
            }
            _ => panic!("gradients of the edges' parts"),
        }
    }
}

impl GatedSumBackward<'_> {
    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let Self { of, grad, target_grad, source_grad, value_grad, edge_grad } = self;
        let block = &*on_host(of.block);
        let (cols, grad) = (of.source.num_cols(), grad.host());
        let mut sums = [
            vec![0.0; block.num_dst * cols],
            vec![0.0; block.num_src * cols],
            vec![0.0; block.num_src * cols],
        ];
        let mut of_edges = [vec![0.0; block.num_edges() * cols], vec![0.0; block.num_edges() * cols]];
        for v in 0..block.num_dst {
            for e in block.edges(v) {
                let u = block.indices[e] as usize;
                for c in 0..cols {
                    let (gate, value) = of.at([v, e, u], c);
                    let g = f64::from(grad[v * cols + c]);
                    let (of_gate, of_value) = (g * value * gate * (1.0 - gate), g * gate);
                    sums[0][v * cols + c] += of_gate;
                    sums[1][u * cols + c] += of_gate;
                    sums[2][u * cols + c] += of_value;
                    of_edges[0][e * cols + c] = of_gate;
                    of_edges[1][e * cols + c] = of_value;
                }
            }
        }
        let set = |grad: ViewMut, sums: &[f64]| {
            grad.host().iter_mut().zip(sums).for_each(|(x, sum)| *x = *sum as f32);
        };
        set(target_grad, &sums[0]);
        set(source_grad, &sums[1]);
        set(value_grad, &sums[2]);
        if let Some([gate, value]) = edge_grad {
            set(gate, &of_edges[0]);
            set(value, &of_edges[1]);
        }
    }
}
