//! Dense products.

use super::{Operation, shape};
use crate::{
    View, ViewMut,
    backend::{Activation, Dropout, Side},
};

/// Rows and columns of a factor seen from its side.
fn oriented((rows, cols): (usize, usize), side: Side) -> (usize, usize) {
    match side {
        Side::Plain => (rows, cols),
        Side::Transposed => (cols, rows),
    }
}

/// `c = beta c + op(a) op(b)`: `R x F` times `F x O` to `R x O`, each factor as it is or transposed.
///
/// With `a` transposed the sum is over its rows (a weight gradient).
///
/// # Panics
/// Both factors are transposed.
#[derive(Debug)]
pub struct Gemm<'a> {
    /// First factor, perhaps sparse.
    pub a: View<'a>,
    /// Side of the first factor.
    pub side_a: Side,
    /// Second factor.
    pub b: View<'a>,
    /// Side of the second factor.
    pub side_b: Side,
    /// Factor of the old result.
    pub beta: f32,
    /// Result.
    pub c: ViewMut<'a>,
}

impl Gemm<'_> {
    /// `[R, O, F]`: rows and columns of the result, and the terms of each sum.
    pub fn size(&self) -> [usize; 3] {
        let inner = oriented(shape::of(self.a), self.side_a).1;
        [self.c.num_rows(), self.c.num_cols(), inner]
    }
}

impl Operation for Gemm<'_> {
    fn check(&self) {
        let (a, b) = (oriented(shape::of(self.a), self.side_a), oriented(shape::of(self.b), self.side_b));
        assert!(self.side_a == Side::Plain || self.side_b == Side::Plain, "at most one factor is transposed");
        assert_eq!(a.1, b.0, "inner dimensions of a product");
        assert_eq!(shape::of(self.c.as_view()), (a.0, b.1), "result of a product");
    }
}

/// `c[h] = beta c[h] + op(a[h]) op(b[h])`: [`Gemm`] head by head, where every matrix is `H` runs of columns
/// side by side.
///
/// # Panics
/// Both factors are transposed, or columns do not make `H` heads.
#[derive(Debug)]
pub struct HeadGemm<'a> {
    /// `H`.
    pub heads: usize,
    /// First factor.
    pub a: View<'a>,
    /// Side of the first factor.
    pub side_a: Side,
    /// Second factor.
    pub b: View<'a>,
    /// Side of the second factor.
    pub side_b: Side,
    /// Factor of the old result.
    pub beta: f32,
    /// Result.
    pub c: ViewMut<'a>,
}

impl HeadGemm<'_> {
    /// The widths of a head in `a`, `b` and `c`.
    pub fn widths(&self) -> [usize; 3] {
        [self.a, self.b, self.c.as_view()].map(|x| shape::head_width(x.num_cols(), self.heads))
    }
}

impl Operation for HeadGemm<'_> {
    fn check(&self) {
        let [of_a, of_b, of_c] = self.widths();
        let a = oriented((self.a.num_rows(), of_a), self.side_a);
        let b = oriented((self.b.num_rows(), of_b), self.side_b);
        assert!(self.side_a == Side::Plain || self.side_b == Side::Plain, "at most one factor is transposed");
        assert_eq!(a.1, b.0, "inner dimensions of a product by heads");
        assert_eq!((self.c.num_rows(), of_c), (a.0, b.1), "result of a product by heads");
    }
}

/// `c[i] = beta c[i] + a[i]^T b`: the gradients (`F x O` each) of two weights whose products were added, so
/// that a backend prepares `b`, the gradient of the sum, only once.
#[derive(Debug)]
pub struct WeightGradients<'a> {
    /// Inputs of the two products, `R x F` each, perhaps of different widths.
    pub a: [View<'a>; 2],
    /// Gradient of the sum, `R x O`.
    pub b: View<'a>,
    /// Factor of the old results.
    pub beta: f32,
    /// Gradients of the two weights.
    pub c: [ViewMut<'a>; 2],
}

impl<'a> WeightGradients<'a> {
    /// The two products.
    pub fn products(self) -> [Gemm<'a>; 2] {
        let Self { a: [a0, a1], b, beta, c: [c0, c1] } = self;
        [(a0, c0), (a1, c1)].map(|(a, c)| Gemm {
            a,
            side_a: Side::Transposed,
            b,
            side_b: Side::Plain,
            beta,
            c,
        })
    }
}

impl Operation for WeightGradients<'_> {
    fn check(&self) {
        for (a, c) in self.a.iter().zip(&self.c) {
            assert_eq!(a.num_rows(), self.b.num_rows(), "inner dimensions of a product");
            let (rows, cols) = (a.num_cols(), self.b.num_cols());
            assert_eq!(shape::of(c.as_view()), (rows, cols), "result of a product");
        }
    }
}

/// `out = dropout(activation(beta out + x w + bias))`: [`Gemm`] and then [`super::EpilogueForward`], which a
/// backend may do while rows are still in its caches.
#[derive(Debug)]
pub struct Dense<'a> {
    /// Input rows, `R x F`, perhaps sparse.
    pub x: View<'a>,
    /// Weight, `F x O`.
    pub w: View<'a>,
    /// Factor of the old result.
    pub beta: f32,
    /// One row, `1 x O`, added to each.
    pub bias: Option<View<'a>>,
    /// Non-linearity.
    pub activation: Activation,
    /// Dropout after it.
    pub dropout: Dropout,
    /// Result, `R x O`.
    pub out: ViewMut<'a>,
}

impl Operation for Dense<'_> {
    fn check(&self) {
        assert_eq!(self.x.num_cols(), self.w.num_rows(), "inner dimensions of a product");
        let result = (self.x.num_rows(), self.w.num_cols());
        assert_eq!(shape::of(self.out.as_view()), result, "result of a product");
        if let Some(bias) = self.bias {
            shape::row(bias, self.w.num_cols());
        }
    }
}
