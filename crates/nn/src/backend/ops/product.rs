//! Dense products.

use super::{Operation, shape};
use crate::{
    View, ViewMut,
    backend::{Activation, Dropout, Side},
};

/// Size `[rows, columns, terms]` of a product of factors with these shapes and sides.
fn size(a: ([usize; 2], Side), b: ([usize; 2], Side)) -> [usize; 3] {
    let oriented = |([rows, cols], side): ([usize; 2], Side)| match side {
        Side::Plain => [rows, cols],
        Side::Transposed => [cols, rows],
    };
    assert!(a.1 == Side::Plain || b.1 == Side::Plain, "at most one factor is transposed");
    let ([rows, terms], [inner, cols]) = (oriented(a), oriented(b));
    assert_eq!(terms, inner, "inner dimensions of a product");
    [rows, cols, terms]
}

/// `c = beta c + op(a) op(b)`: `R x F` times `F x O` to `R x O`, each factor as stored or
/// transposed.
///
/// If `a` is transposed, the sum runs over its rows (a weight gradient).
///
/// # Panics
/// Both factors are transposed.
#[derive(Debug)]
pub struct Gemm<'a> {
    /// First factor, possibly sparse, and its side.
    pub a: (View<'a>, Side),
    /// Second factor and its side.
    pub b: (View<'a>, Side),
    /// Factor of the old result.
    pub beta: f32,
    /// Result.
    pub c: ViewMut<'a>,
}

impl Gemm<'_> {
    /// `[R, O, F]`: rows and columns of the result, and the terms of each sum.
    pub fn size(&self) -> [usize; 3] {
        let factor = |(x, side): (View, Side)| ([x.num_rows(), x.num_cols()], side);
        size(factor(self.a), factor(self.b))
    }
}

impl Operation for Gemm<'_> {
    fn check(&self) {
        let [rows, cols, _] = self.size();
        assert_eq!(shape::of(self.c.as_view()), (rows, cols), "result of a product");
    }
}

/// [`Gemm`] head by head, `c[h] = beta c[h] + op(a[h]) op(b[h])`, where every matrix consists of
/// `H` adjacent column ranges.
///
/// # Panics
/// Both factors are transposed, or the columns do not form `H` heads.
#[derive(Debug)]
pub struct HeadGemm<'a> {
    /// Number of heads, `H`.
    pub heads: usize,
    /// First factor and its side.
    pub a: (View<'a>, Side),
    /// Second factor and its side.
    pub b: (View<'a>, Side),
    /// Factor of the old result.
    pub beta: f32,
    /// Result.
    pub c: ViewMut<'a>,
}

impl HeadGemm<'_> {
    /// Widths of a head in `a`, `b` and `c`.
    pub fn widths(&self) -> [usize; 3] {
        [self.a.0, self.b.0, self.c.as_view()].map(|x| shape::head_width(x.num_cols(), self.heads))
    }

    /// `[R, O, F]` of each head, as in [`Gemm::size`].
    pub fn size(&self) -> [usize; 3] {
        let [of_a, of_b, _] = self.widths();
        let factor = |(x, side): (View, Side), width| ([x.num_rows(), width], side);
        size(factor(self.a, of_a), factor(self.b, of_b))
    }
}

impl Operation for HeadGemm<'_> {
    fn check(&self) {
        let ([rows, cols, _], [_, _, of_c]) = (self.size(), self.widths());
        assert_eq!((self.c.num_rows(), of_c), (rows, cols), "result of a product by heads");
    }
}

/// `c[i] = beta c[i] + a[i]^T b`: gradients (`F x O` each) of two weights whose products were
/// added. A backend prepares `b`, the gradient of the sum, only once.
#[derive(Debug)]
pub struct WeightGradients<'a> {
    /// Inputs of the two products, `R x F` each, possibly of different widths.
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
        [(a0, c0), (a1, c1)].map(|(a, c)| Gemm { a: (a, Side::Transposed), b: (b, Side::Plain), beta, c })
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

/// `out = dropout(activation(beta out + x w + bias))`: [`Gemm`] followed by
/// [`super::EpilogueForward`], which a backend may run while rows are still cached. A second
/// product may be added, whose terms follow those of the first.
#[derive(Debug)]
pub struct Dense<'a> {
    /// Input rows, `R x F`, possibly sparse.
    pub x: View<'a>,
    /// Weight, `F x O`.
    pub w: View<'a>,
    /// Input rows and weight of a second product, if one is added: `R x G`, possibly sparse, and
    /// `G x O`.
    pub plus: Option<(View<'a>, View<'a>)>,
    /// Factor of the old result.
    pub beta: f32,
    /// Row `1 x O` added to each row.
    pub bias: Option<View<'a>>,
    /// Non-linearity.
    pub activation: Activation,
    /// Dropout after the non-linearity.
    pub dropout: Dropout,
    /// Result, `R x O`.
    pub out: ViewMut<'a>,
}

impl Operation for Dense<'_> {
    fn check(&self) {
        for (x, w) in [(self.x, self.w)].into_iter().chain(self.plus) {
            assert_eq!(x.num_cols(), w.num_rows(), "inner dimensions of a product");
            let result = (x.num_rows(), w.num_cols());
            assert_eq!(shape::of(self.out.as_view()), result, "result of a product");
        }
        if let Some(bias) = self.bias {
            shape::row(bias, self.w.num_cols());
        }
    }
}
