//! Results of operations computed by hand.

use graphmill_core::Block;

use super::Reference;
use crate::{
    Matrix,
    backend::{
        Activation, AggregationWeights, ArgMax, Dropout, EdgeWeight, OwnWeight, Side,
        ops::{
            Aggregate, AggregateMax, AggregateMaxTransposed, AggregateTransposed, Attend, EdgeSoftmax,
            EpilogueBackward, EpilogueForward, Gemm, SigmoidCrossEntropy, SoftmaxCrossEntropy,
        },
    },
};

/// Destinations 0 and 1 of sources 0..3; destination 0 has edges from 1 and 2, destination 1 none.
fn block() -> Block {
    let mut block =
        Block { num_dst: 2, num_src: 3, indptr: vec![0, 2, 2], indices: vec![1, 2], ..Block::default() };
    block.transpose();
    block
}

#[test]
fn products_match_results_by_hand() {
    let a = Matrix::from_slice(2, 2, &[1., 2., 3., 4.]);
    let b = Matrix::from_slice(2, 2, &[5., 6., 7., 8.]);
    let product = |side_a, side_b, beta| {
        let mut c = Matrix::from_slice(2, 2, &[1.0; 4]);
        Gemm { a: (a.view(), side_a), b: (b.view(), side_b), beta, c: c.view_mut() }.run(&Reference);
        c.view().host().to_vec()
    };
    assert_eq!(product(Side::Plain, Side::Plain, 0.0), [19., 22., 43., 50.]);
    assert_eq!(product(Side::Plain, Side::Transposed, 0.0), [17., 23., 39., 53.]);
    assert_eq!(product(Side::Transposed, Side::Plain, 2.0), [28., 32., 40., 46.]);
}

#[test]
fn aggregations_match_results_by_hand() {
    let x = Matrix::from_slice(3, 1, &[1., 4., 2.]);
    let mut out = Matrix::zeros(2, 1);
    Aggregate {
        block: &block(),
        weights: AggregationWeights::MEAN,
        src: x.view(),
        beta: 0.0,
        dst: out.view_mut(),
    }
    .run(&Reference);
    assert_eq!(out.view().host(), [3., 0.]);
    let own = AggregationWeights { edge: EdgeWeight::One, own: OwnWeight::Constant(10.0) };
    Aggregate { block: &block(), weights: own, src: x.view(), beta: 1.0, dst: out.view_mut() }
        .run(&Reference);
    assert_eq!(out.view().host(), [19., 40.]);
    let mut arg = ArgMax::default();
    AggregateMax { block: &block(), src: x.view(), dst: out.view_mut(), arg: &mut arg }.run(&Reference);
    assert_eq!((out.view().host(), arg.host()), (&[4.0, 0.0][..], &[0, u32::MAX][..]));
    let mut back = Matrix::zeros(3, 1);
    let grad = Matrix::from_slice(2, 1, &[1., 2.]);
    AggregateTransposed {
        block: &block(),
        weights: own,
        dst_grad: grad.view(),
        beta: 0.0,
        src_grad: back.view_mut(),
    }
    .run(&Reference);
    assert_eq!(back.view().host(), [10., 21., 1.]);
    AggregateMaxTransposed { block: &block(), arg: &arg, dst_grad: grad.view(), src_grad: back.view_mut() }
        .run(&Reference);
    assert_eq!(back.view().host(), [0., 1., 0.]);
}

#[test]
fn a_destination_attends_to_its_edges_and_itself() {
    let zero = Matrix::zeros(3, 1);
    let mut alpha = Matrix::zeros(4, 1);
    EdgeSoftmax {
        block: &block(),
        source: zero.view(),
        target: zero.view(),
        slope: 0.2,
        alpha: alpha.view_mut(),
    }
    .run(&Reference);
    let third = 1.0f32 / 3.0;
    assert_eq!(alpha.view().host(), [third, third, third, 1.0]);
    let z = Matrix::from_slice(3, 2, &[3., 0., 6., 3., 9., 0.]);
    let mut out = Matrix::zeros(2, 2);
    Attend { block: &block(), alpha: alpha.view(), z: z.view(), out: out.view_mut() }.run(&Reference);
    let expected = [6.0f32, 1.0, 6.0, 3.0];
    assert!(out.view().host().iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-6), "{out:?}");
}

#[test]
fn losses_match_results_by_hand() {
    let logits = Matrix::from_slice(2, 2, &[0., 0., 5., 1.]);
    let mut grad = Matrix::zeros(2, 2);
    let loss = SoftmaxCrossEntropy {
        logits: logits.view(),
        label: &[1, -1],
        weight: &[],
        scale: 1.0,
        grad: grad.view_mut(),
    }
    .run(&Reference);
    assert!((loss - 2f64.ln()).abs() < 1e-12);
    assert_eq!(grad.view().host(), [0.5, -0.5, 0.0, 0.0]);
    let loss = SigmoidCrossEntropy {
        logits: logits.rows(0..1),
        target: &[1, 0],
        weight: &[3.0],
        scale: 0.5,
        grad: grad.rows_mut(0..1),
    }
    .run(&Reference);
    assert!((loss - 3.0 * 2f64.ln()).abs() < 1e-12);
    assert_eq!(grad.view().host()[..2], [-0.75, 0.75]);
}

#[test]
fn dropout_preserves_the_mean_and_backward_uses_the_same_mask() {
    let dropout = Dropout { p: 0.25, key: 7 };
    let mut x = Matrix::from_slice(100, 100, &[1.0; 10_000]);
    EpilogueForward { bias: None, activation: Activation::Relu, dropout, x: x.view_mut() }.run(&Reference);
    let survivors = x.view().host().iter().filter(|&&x| x != 0.0).count();
    // binomial(1e4, 0.75) has sigma 43; the bound is five sigma
    assert!(survivors.abs_diff(7500) < 217, "{survivors}");
    let mut grad = Matrix::from_slice(100, 100, &[1.0; 10_000]);
    EpilogueBackward {
        activation: Activation::Relu,
        dropout,
        y: x.view(),
        grad: grad.view_mut(),
        bias_grad: None,
    }
    .run(&Reference);
    assert_eq!(grad.view().host(), x.view().host());
}
