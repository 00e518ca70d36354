//! The CPU backend against the reference backend, on every instruction set of this machine, and
//! against itself with other numbers of threads.

use graphmill_nn::backend::{
    Cpu, Reference,
    cpu::{Level, with_level},
};
use proptest::prelude::*;

use crate::operations::{OPERATIONS, Shape};

/// Asserts that the outputs of every operation agree within its tolerance.
fn compare(shape: impl Fn(&str) -> Shape) {
    for &(name, tolerance, run) in OPERATIONS {
        let shape = shape(name);
        let expected = run(&Reference, shape);
        let largest = expected.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let got = with_level(level, || run(&Cpu::default(), shape));
            assert_eq!(got.len(), expected.len(), "{name}");
            for (i, (x, y)) in got.iter().zip(&expected).enumerate() {
                // written so that NaN fails
                let close = (x - y).abs() <= tolerance * largest;
                assert!(close, "{name} on {level:?}, {shape:?}: output {i} is {x}, should be {y}");
            }
        }
    }
}

fn width() -> impl Strategy<Value = usize> {
    prop_oneof![
        1usize..20,
        prop::sample::select(vec![1, 7, 8, 15, 16, 17, 31, 32, 33, 47, 64, 65, 100, 127, 128, 129]),
    ]
}

fn shapes() -> impl Strategy<Value = Shape> {
    ((0usize..50, width(), 0usize..20), (1usize..5, 0usize..30, 0usize..20, 0usize..9), any::<u64>())
        .prop_map(|((rows, cols, inner), (heads, dst, extra_src, degree), seed)| {
            // without sources, destinations have no edges
            Shape { rows, cols, inner, heads, dst, extra_src, degree, seed }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_operation_agrees_with_the_reference(shape in shapes()) {
        compare(|_| shape);
    }
}

#[test]
fn wide_rows_agree_with_the_reference() {
    if cfg!(miri) {
        // Miri, which interprets the tests, takes fewer rows, of whole vectors and a part
        let few = Shape { rows: 3, cols: 37, inner: 2, heads: 2, dst: 2, extra_src: 1, degree: 2, seed: 5 };
        return compare(|_| few);
    }
    for (cols, seed) in [(37, 5), (200, 1), (256, 2), (257, 3), (602, 4)] {
        compare(|_| Shape { rows: 9, cols, inner: 5, heads: 2, dst: 6, extra_src: 5, degree: 4, seed });
    }
}

#[test]
fn empty_inputs_agree_with_the_reference() {
    let nothing = Shape { rows: 0, cols: 3, inner: 0, heads: 1, dst: 0, extra_src: 0, degree: 0, seed: 0 };
    compare(|_| nothing);
    compare(|_| Shape { rows: 4, inner: 2, dst: 5, ..nothing });
    compare(|_| Shape { rows: 1, inner: 1, dst: 1, extra_src: 1, degree: 2, cols: 1, ..nothing });
}

/// Large enough to split every operation into tasks; chunks, blocks and vectors all end unevenly.
const BIG: Shape =
    Shape { rows: 2301, cols: 67, inner: 45, heads: 3, dst: 1201, extra_src: 777, degree: 19, seed: 5 };

/// [`BIG`], with more rows for products, which are split later than other operations.
fn big(name: &str) -> Shape {
    if name.starts_with("gemm") { Shape { rows: 9001, ..BIG } } else { BIG }
}

#[test]
fn large_inputs_agree_with_the_reference() {
    // sums of thousands of terms: the tolerances are relative to the largest output
    compare(big);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let pools: Vec<_> = [1, 2, 3]
        .map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap())
        .into_iter()
        .collect();
    for &(name, _, run) in OPERATIONS {
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let run = || -> Vec<u64> {
                with_level(level, || run(&Cpu::default(), big(name))).into_iter().map(f64::to_bits).collect()
            };
            let one = pools[0].install(run);
            for pool in &pools[1..] {
                let threads = pool.current_num_threads();
                assert!(pool.install(run) == one, "{name} on {level:?} with {threads} threads");
            }
        }
    }
}
