//! Small random inputs, gradient checks against finite differences, and the conformance tests of
//! layers ([`conformance`]), for the tests of this crate and of crates with their own layers.
//!
//! Everything here panics on a failed check. Requires the feature `testing`.

#![forbid(unsafe_code)]

use graphmill_core::{
    Block,
    keyed::{Stream, key},
};

use crate::{Matrix, Param, Pass, View, backend::Reference};

pub mod conformance;

/// A pass on the reference backend.
pub fn pass(training: bool) -> Pass<'static> {
    Pass { backend: &Reference, training, key: 42 }
}

/// Standard normal values.
pub fn random(rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut stream = Stream::new(key(&[seed, 1]));
    let data: Vec<f32> = (0..rows * cols).map(|_| stream.normal() as f32).collect();
    Matrix::from_slice(rows, cols, &data)
}

/// A transposed local block whose destinations have `0, 1, 2, 3, 0, 1, ...` random in-neighbours
/// (with repeated edges and self-loops), and random weights between 0.2 and 1 if `weighted`.
pub fn random_block(num_dst: usize, num_src: usize, weighted: bool, seed: u64) -> Block {
    let mut stream = Stream::new(key(&[seed, 2]));
    let mut block = Block { num_dst, num_src, indptr: vec![0], ..Block::default() };
    for v in 0..num_dst {
        block.indices.extend((0..v % 4).map(|_| stream.below(num_src as u64) as u32));
        block.indptr.push(block.indices.len() as u32);
    }
    if weighted {
        let mut weight = || 0.2 + 0.8 * stream.uniform() as f32;
        block.edge_weight = block.indices.iter().map(|_| weight()).collect();
        block.self_weight = (0..num_dst).map(|_| weight()).collect();
    }
    block.transpose();
    block
}

/// The same block over a table of `2 S + 1` rows in which source `u` is row `2 (S - u)`, and that
/// table around the sources' rows `x`. The other rows are NaN, so a read of them is detected.
pub fn global(block: &Block, x: &Matrix) -> (Block, Matrix) {
    let (s, f) = (block.num_src, x.num_cols());
    let at = |u: usize| 2 * (s - u);
    let mut table = Matrix::zeros(2 * s + 1, f);
    table.view_mut().host().fill(f32::NAN);
    for u in 0..s {
        table.rows_mut(at(u)..at(u) + 1).host().copy_from_slice(x.rows(u..u + 1).host());
    }
    let global = Block {
        num_src: 2 * s + 1,
        indices: block.indices.iter().map(|&u| at(u as usize) as u32).collect(),
        dst_ids: Some((0..block.num_dst).map(|v| at(v) as u32).collect()),
        transposed: Default::default(),
        ..block.clone()
    };
    (global, table)
}

/// `sum x * y` in f64, the objective of the gradient checks.
pub fn dot(x: View, y: View) -> f64 {
    x.host().iter().zip(y.host()).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// Largest absolute difference.
pub fn distance(x: View, y: View) -> f32 {
    assert_eq!((x.num_rows(), x.num_cols()), (y.num_rows(), y.num_cols()));
    // a NaN must survive the maximum
    x.host().iter().zip(y.host()).map(|(a, b)| (a - b).abs()).fold(0.0, |m, d| if d <= m { m } else { d })
}

/// Numbers of compared and of skipped elements.
#[derive(Default)]
#[must_use]
pub struct Checked {
    elements: usize,
    kinks: usize,
}

impl std::ops::AddAssign for Checked {
    fn add_assign(&mut self, other: Self) {
        self.elements += other.elements;
        self.kinks += other.kinks;
    }
}

impl Checked {
    /// Asserts that at most one in `n` elements was skipped.
    pub fn assert_all_but_one_in(&self, n: usize, what: &str) {
        assert!(self.kinks * n <= self.elements, "{what}: {} kinks in {}", self.kinks, self.elements);
    }
}

/// Compares `grad` with central differences of `objective(i, delta)`, the objective with element
/// `i` moved by `delta`.
///
/// Two steps are extrapolated, which leaves an error of fourth order. Within a step of a kink
/// (ReLU, maximum) difference quotients are meaningless: the central differences of the two steps
/// disagree, or the second differences do not shrink with the step. Such elements are skipped, and
/// the caller asserts ([`Checked`]) that they are few.
pub fn check(what: &str, grad: View, mut objective: impl FnMut(usize, f32) -> f64) -> Checked {
    const STEP: f32 = 1.0 / 128.0;
    let grad = grad.host();
    let mut differences = |i| {
        let here = objective(i, 0.0);
        [STEP, STEP / 2.0].map(|h| {
            let (after, before, h) = (objective(i, h), objective(i, -h), f64::from(h));
            [(after - before) / (2.0 * h), (after - 2.0 * here + before) / h]
        })
    };
    let all: Vec<[[f64; 2]; 2]> = (0..grad.len()).map(&mut differences).collect();
    let size = all.iter().map(|d| d[1][0].abs()).fold(0.0, f64::max).max(0.1);
    let mut kinks = 0;
    for (i, [wide, narrow]) in all.iter().enumerate() {
        if (wide[0] - narrow[0]).abs().max((wide[1] - 2.0 * narrow[1]).abs()) > 0.0015 * size {
            kinks += 1;
            continue;
        }
        let expected = (4.0 * narrow[0] - wide[0]) / 3.0;
        let error = (f64::from(grad[i]) - expected).abs();
        assert!(error < 0.002 * size, "{what}[{i}]: {} but differences give {expected}", grad[i]);
    }
    Checked { elements: grad.len(), kinks }
}

/// Moves the `i`-th element of `param` by `delta`.
pub fn nudge(param: &mut Param, i: usize, delta: f32) {
    param.value.view_mut().host()[i] += delta;
}
