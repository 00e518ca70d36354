//! Operations by hand.

use super::*;
use crate::{
    Matrix,
    backend::{ArgMax, EdgeWeight, OwnWeight},
};

/// Destinations 0 and 1 of sources 0..3; destination 0 has edges from 1 and 2, destination 1 none.
fn block() -> Block {
    let mut block =
        Block { num_dst: 2, num_src: 3, indptr: vec![0, 2, 2], indices: vec![1, 2], ..Block::default() };
    block.transpose();
    block
}

#[test]
fn products_by_hand() {
    let a = Matrix::from_slice(2, 2, &[1., 2., 3., 4.]);
    let b = Matrix::from_slice(2, 2, &[5., 6., 7., 8.]);
    let product = |side_a, side_b, beta| {
        let mut c = Matrix::from_slice(2, 2, &[1.0; 4]);
        Reference.gemm(a.view(), side_a, b.view(), side_b, beta, c.view_mut());
        c.view().host().to_vec()
    };
    assert_eq!(product(Side::Plain, Side::Plain, 0.0), [19., 22., 43., 50.]);
    assert_eq!(product(Side::Plain, Side::Transposed, 0.0), [17., 23., 39., 53.]);
    assert_eq!(product(Side::Transposed, Side::Plain, 2.0), [28., 32., 40., 46.]);
}

#[test]
fn aggregations_by_hand() {
    let x = Matrix::from_slice(3, 1, &[1., 4., 2.]);
    let mut out = Matrix::zeros(2, 1);
    Reference.aggregate(&block(), AggregationWeights::MEAN, x.view(), 0.0, out.view_mut());
    assert_eq!(out.view().host(), [3., 0.]);
    let own = AggregationWeights { edge: EdgeWeight::One, own: OwnWeight::Constant(10.0) };
    Reference.aggregate(&block(), own, x.view(), 1.0, out.view_mut());
    assert_eq!(out.view().host(), [19., 40.]);
    let mut arg = ArgMax::default();
    Reference.aggregate_max(&block(), x.view(), out.view_mut(), &mut arg);
    assert_eq!((out.view().host(), arg.host()), (&[4.0, 0.0][..], &[0, u32::MAX][..]));
    let mut back = Matrix::zeros(3, 1);
    let grad = Matrix::from_slice(2, 1, &[1., 2.]);
    Reference.aggregate_transposed(&block(), own, grad.view(), 0.0, back.view_mut());
    assert_eq!(back.view().host(), [10., 21., 1.]);
    Reference.aggregate_max_transposed(&block(), &arg, grad.view(), back.view_mut());
    assert_eq!(back.view().host(), [0., 1., 0.]);
}

#[test]
fn a_destination_attends_to_its_edges_and_itself() {
    let zero = Matrix::zeros(3, 1);
    let mut alpha = Matrix::zeros(4, 1);
    Reference.edge_softmax(&block(), zero.view(), zero.view(), 0.2, alpha.view_mut());
    let third = 1.0f32 / 3.0;
    assert_eq!(alpha.view().host(), [third, third, third, 1.0]);
    let z = Matrix::from_slice(3, 2, &[3., 0., 6., 3., 9., 0.]);
    let mut out = Matrix::zeros(2, 2);
    Reference.attend(&block(), alpha.view(), z.view(), out.view_mut());
    let expected = [6.0f32, 1.0, 6.0, 3.0];
    assert!(out.view().host().iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-6), "{out:?}");
}

#[test]
fn losses_by_hand() {
    let logits = Matrix::from_slice(2, 2, &[0., 0., 5., 1.]);
    let mut grad = Matrix::zeros(2, 2);
    let loss = Reference.softmax_cross_entropy(logits.view(), &[1, -1], &[], 1.0, grad.view_mut());
    assert!((loss - 2f64.ln()).abs() < 1e-12);
    assert_eq!(grad.view().host(), [0.5, -0.5, 0.0, 0.0]);
    let loss = Reference.sigmoid_cross_entropy(logits.rows(0..1), &[1, 0], &[3.0], 0.5, grad.rows_mut(0..1));
    assert!((loss - 3.0 * 2f64.ln()).abs() < 1e-12);
    assert_eq!(grad.view().host()[..2], [-0.75, 0.75]);
}

#[test]
fn dropout_keeps_the_mean_and_backward_uses_the_same_mask() {
    let dropout = Dropout { p: 0.25, key: 7 };
    let mut x = Matrix::from_slice(100, 100, &[1.0; 10_000]);
    Reference.epilogue(None, Activation::Relu, dropout, x.view_mut());
    let survivors = x.view().host().iter().filter(|&&x| x != 0.0).count();
    // binomial(1e4, 0.75): sigma 43; five sigma
    assert!(survivors.abs_diff(7500) < 217, "{survivors}");
    let mut grad = Matrix::from_slice(100, 100, &[1.0; 10_000]);
    Reference.epilogue_backward(Activation::Relu, dropout, x.view(), grad.view_mut(), None);
    assert_eq!(grad.view().host(), x.view().host());
}
