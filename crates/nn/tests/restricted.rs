//! Gradients of a block's first sources equal those among all sources, to the bit.

use graphmill_core::Block;
use graphmill_nn::{
    Matrix,
    backend::{
        AggregationWeights, ArgMax, Backend, Cpu, EdgeWeight, OwnWeight, Reference,
        cpu::{Level, Slicing, with_level, with_slicing},
        ops::{
            AggregateMax, AggregateMaxTransposed, AggregateTransposed, AttendBackward, AttendInputTransposed,
            EdgeSoftmaxBackward, HopTransposed,
        },
    },
};

use crate::support::{random, random_block};

const D: usize = 21;
const S: usize = 60;
const COLS: usize = 36;
const HEADS: usize = 4;

/// Gradients of the sources from each operation.
fn gradients(backend: &dyn Backend, block: &Block) -> Vec<Matrix> {
    let entries = block.num_edges() + block.num_dst;
    let of_sources = |cols| random(block.num_grad_src(), cols, 1);
    let grad = random(D, COLS, 2);
    let mut out = Vec::new();
    for edge in [EdgeWeight::One, EdgeWeight::Mean, EdgeWeight::Stored, EdgeWeight::Normalized] {
        for own in [OwnWeight::None, OwnWeight::Constant(1.5), OwnWeight::Stored] {
            for beta in [0.0, 0.5] {
                let mut to = of_sources(COLS);
                AggregateTransposed {
                    block,
                    weights: AggregationWeights { edge, own },
                    dst_grad: grad.view(),
                    beta,
                    src_grad: to.view_mut(),
                }
                .run(backend);
                out.push(to);
            }
        }
    }
    let mut to = of_sources(COLS);
    let weights = AggregationWeights { edge: EdgeWeight::Normalized, own: OwnWeight::None };
    HopTransposed { first: 7, block, weights, dst_grad: grad.view(), src_grad: to.view_mut() }.run(backend);
    out.push(to);

    let (x, mut arg) = (random(S, COLS, 3), ArgMax::default());
    let mut to = of_sources(COLS);
    AggregateMax { block, src: x.view(), dst: Matrix::zeros(D, COLS).view_mut(), arg: &mut arg }.run(backend);
    AggregateMaxTransposed { block, arg: &arg, dst_grad: grad.view(), src_grad: to.view_mut() }.run(backend);
    out.push(to);

    let (alpha, alpha_grad) = (random(entries, HEADS, 4), random(entries, HEADS, 5));
    let (source, target) = (random(S, HEADS, 6), random(S, HEADS, 7));
    let (mut scratch, mut to, mut also_to) = (alpha.clone(), of_sources(HEADS), of_sources(HEADS));
    EdgeSoftmaxBackward {
        block,
        source: source.view(),
        target: target.view(),
        slope: 0.2,
        alpha: alpha.view(),
        alpha_grad: alpha_grad.view(),
        scratch: scratch.view_mut(),
        source_grad: to.view_mut(),
        target_grad: also_to.view_mut(),
    }
    .run(backend);
    out.extend([to, also_to]);

    let (mut to, mut alpha_grad) = (of_sources(COLS), alpha.clone());
    AttendBackward {
        block,
        alpha: alpha.view(),
        z: x.view(),
        grad: grad.view(),
        alpha_grad: alpha_grad.view_mut(),
        z_grad: to.view_mut(),
    }
    .run(backend);
    out.push(to);

    let (source, target) = (random(COLS, HEADS, 8), random(COLS, HEADS, 9));
    let (wide, score_grad, mut to) =
        (random(D, HEADS * COLS, 10), random(entries, HEADS, 11), of_sources(COLS));
    AttendInputTransposed {
        block,
        source: source.view(),
        target: target.view(),
        used: alpha.view(),
        grad: wide.view(),
        score_grad: score_grad.view(),
        x_grad: to.view_mut(),
    }
    .run(backend);
    out.push(to);
    out
}

fn compare(what: &str, backend: &dyn Backend) {
    let mut block = random_block(D, S, true, 12);
    let all = gradients(backend, &block);
    for wanting in [D, D + 1, 50, S] {
        block.grad_src = Some(wanting);
        block.par_transpose();
        for (i, (some, all)) in gradients(backend, &block).iter().zip(&all).enumerate() {
            assert_eq!(some.view().host(), all.rows(0..wanting).host(), "{what}: gradient {i} of {wanting}");
        }
    }
}

#[test]
fn restricted_gradients_match_the_first_rows() {
    compare("reference", &Reference);
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        for slicing in [Slicing::Auto, Slicing::Columns(16)] {
            with_level(level, || {
                with_slicing(slicing, || compare(&format!("{level:?} {slicing:?}"), &Cpu::default()))
            });
        }
    }
}

#[test]
#[should_panic(expected = "sources that receive a gradient")]
fn restrictions_must_include_the_destinations() {
    let mut block = random_block(D, S, true, 13);
    block.grad_src = Some(D - 1);
    block.transpose();
    gradients(&Reference, &block);
}
