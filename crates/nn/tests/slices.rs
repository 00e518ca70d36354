//! Aggregation by slices of columns against whole rows: the same bits, for any width and any number
//! of threads.

use graphmill_core::{Block, matrix::Tally};
use graphmill_nn::{
    Matrix,
    backend::{
        AggregationWeights, Cpu, EdgeWeight, OwnWeight,
        cpu::{Level, Slicing, with_level, with_slicing},
        ops::{Aggregate, AggregateTransposed},
    },
};

use crate::support::{random, random_block};

const WEIGHTINGS: [AggregationWeights; 6] = [
    AggregationWeights { edge: EdgeWeight::Normalized, own: OwnWeight::None },
    AggregationWeights::MEAN,
    AggregationWeights::STORED,
    AggregationWeights { edge: EdgeWeight::One, own: OwnWeight::Constant(1.5) },
    AggregationWeights { edge: EdgeWeight::Mean, own: OwnWeight::Stored },
    AggregationWeights { edge: EdgeWeight::Stored, own: OwnWeight::None },
];

/// Bits of both directions with every weighting.
fn run(block: &Block, cols: usize, slicing: Slicing) -> Vec<u32> {
    let (x, grad) = (random(block.num_src, cols, 1), random(block.num_dst, cols, 2));
    let mut bits = Vec::new();
    for (i, weighting) in WEIGHTINGS.into_iter().enumerate() {
        let beta = [0.0, 1.0, 0.7][i % 3];
        let (mut out, mut back) = (grad.clone(), x.clone());
        with_slicing(slicing, || {
            Aggregate { block, weights: weighting, src: x.view(), beta, dst: out.view_mut() }
                .run(&Cpu::default());
            AggregateTransposed {
                block,
                weights: weighting,
                dst_grad: grad.view(),
                beta,
                src_grad: back.view_mut(),
            }
            .run(&Cpu::default());
        });
        let all = [&out, &back].map(|m: &Matrix| m.view().host().to_vec());
        bits.extend(all.iter().flatten().map(|x| x.to_bits()));
    }
    bits
}

#[test]
fn slices_of_any_width_match_whole_rows() {
    let shapes = [(1, 1, 33), (0, 3, 40), (7, 12, 35), (40, 90, 67), (33, 33, 16), (7, 12, 5), (50, 50, 300)];
    // Miri, which interprets the tests, takes small ones: of whole vectors and slices, and parts
    let small = [(1, 1, 33), (0, 3, 40), (3, 4, 35)];
    let (shapes, widths) =
        if cfg!(miri) { (&small[..], &[16, 48][..]) } else { (&shapes[..], &[1, 16, 32, 48, 64, 1000][..]) };
    for &(dst, src, cols) in shapes {
        let block = random_block(dst, src, true, 3);
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let rows = with_level(level, || run(&block, cols, Slicing::Rows));
            for &width in widths {
                let sliced = with_level(level, || run(&block, cols, Slicing::Columns(width)));
                assert!(sliced == rows, "{dst} from {src}, {cols} columns by {width} on {level:?}");
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    // large enough for several tasks, also within slices
    let block = random_block(1201, 1978, true, 4);
    let rows = run(&block, 133, Slicing::Rows);
    for threads in [1, 2, 3, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for slicing in [Slicing::Columns(48), Slicing::Columns(16), Slicing::Auto] {
            assert!(pool.install(|| run(&block, 133, slicing)) == rows, "{slicing:?}, {threads} threads");
        }
    }
}

#[test]
fn automatic_slicing_matches_whole_rows() {
    // 10 MB of rows with 14 edges each: with usual cache sizes, slices are faster and chosen
    let mut block = random_block(5000, 5000, true, 5);
    block.indptr = (0..=5000).map(|v| 14 * v).collect();
    block.indices = (0..70_000_u32).map(|e| e * 7919 % 5000).collect();
    block.edge_weight = (0..70_000).map(|e| 0.1 + (e % 13) as f32).collect();
    block.transpose();
    assert!(run(&block, 512, Slicing::Auto) == run(&block, 512, Slicing::Rows));
}

#[test]
fn counted_memory_does_not_depend_on_slices() {
    // the number of threads decides the slices
    let block = random_block(200, 300, true, 6);
    let count = |slicing| {
        Tally::count(|tally| {
            run(&block, 133, slicing);
            tally.most()
        })
        .unwrap()
    };
    let rows = count(Slicing::Rows);
    assert_eq!([16, 48].map(|width| count(Slicing::Columns(width))), [rows; 2]);
}
