//! Training steps on batches of known shapes allocate nothing after a warm-up, and a step whose
//! memory is refused ends with an error.

#![allow(unsafe_code, reason = "allocators of tests")]

mod support;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
};

use graphmill_core::{Block, Error, SparseRows, memory};
use graphmill_nn::{
    Activations, Matrix, Model, ModelConfig, ProductOrder, Projected, Reused,
    backend::Reference,
    cost::BlockShape,
    layer::{
        Aggregator::{MaxPool, Mean},
        LayerInput, SageOptions,
    },
    model::{BottomRows, ProjectedRows, StepInput},
};
use support::{pass, random, random_block};

/// Counts this thread's allocations. Zeroed allocations are excluded, because the reference backend
/// makes them for its f64 sums (`vec![0.0; n]`) and a model never does.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    /// Number of requests of this thread until two are refused, if any are: one that asks for more
    /// than is needed, and one for what is needed. Requests below [`LARGE`] are left out.
    static LEFT: Cell<Option<isize>> = const { Cell::new(None) };
}

/// Bytes from which on a request may be refused: those of matrices, and not of the list of layers
/// that hold them.
const LARGE: usize = 8192;

fn count() {
    COUNT.set(COUNT.get() + 1);
}

/// Returns true if a request of this size is refused.
fn is_refused(bytes: usize) -> bool {
    match LEFT.get().filter(|_| bytes >= LARGE) {
        None => false,
        Some(left) => {
            LEFT.set(Some(left - 1));
            left == 0 || left == -1
        }
    }
}

// SAFETY: every call is forwarded unchanged to the system's allocator, or refused by null; counting
// does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        if is_refused(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: by the caller's guarantee.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's guarantee.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: by the caller's guarantee.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        if is_refused(size) {
            return ptr::null_mut();
        }
        // SAFETY: by the caller's guarantee.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn training_steps_do_not_allocate_in_steady_state() {
    let s = String::from;
    let base = ModelConfig { hidden: 16, ..ModelConfig::default() };
    let full = ModelConfig {
        norm: "batch".parse().unwrap(),
        residual: "linear".parse().unwrap(),
        input_layer: true,
        head_layers: 2,
        input_dropout: 0.1,
        ..base.clone()
    };
    // one value in every row
    let (ends, columns) = ((0..=90).collect::<Vec<u64>>(), (0..90).map(|i| i % 10).collect::<Vec<u32>>());
    let rows = SparseRows::new(10, ends.into(), columns.into(), vec![1.5; 90].into()).unwrap();
    let (table, ids) = (Matrix::sparse_table(rows), (0..90).rev().collect::<Vec<u32>>());
    let l2 = ModelConfig { norm: "l2".parse().unwrap(), ..base.clone() };
    for (name, aggregator) in [("sage", Mean), ("sage", MaxPool), ("gcn", Mean), ("gat", Mean), ("gin", Mean)]
    {
        for config in [&base, &full, &l2] {
            let config = ModelConfig { model: s(name), ..config.clone() }
                .with(SageOptions { aggregator, ..SageOptions::default() });
            let mut model = Model::new(&config, 10, 5, 1).unwrap();
            let weighted = model.needs_symmetric_weights();
            let batches = [1.0, 0.5].map(|part: f64| {
                let size = |n: f64| (n * part) as usize;
                let blocks = [
                    random_block(size(40.0), size(90.0), weighted, 1),
                    random_block(size(8.0), size(40.0), weighted, 2),
                ];
                let x = random(blocks[0].num_src, 10, 3);
                (blocks, x)
            });
            let sides = [[9, 1, 99], [1, 9, 9]].map(|[dst, src, edges]| BlockShape { dst, src, edges });
            let orders = [0, 1].map(|i| model.orders(&[sides[i], sides[1 - i]]));
            for sparse in [false, true] {
                let mut orders = orders.clone();
                if sparse {
                    orders.iter_mut().for_each(|orders| assert!(model.start_with_product(orders)));
                }
                let (mut acts, mut gathered) = (Activations::default(), Matrix::default());
                let mut steps = || {
                    for (orders, (blocks, x)) in
                        orders.iter().flat_map(|o| batches.iter().map(move |b| (o, b)))
                    {
                        let x = if sparse {
                            gathered.gather_sparse(table.view(), &ids[..blocks[0].num_src]);
                            gathered.transpose_sparse();
                            gathered.view()
                        } else {
                            x.view()
                        };
                        model.zero_grad(&Reference);
                        model.forward(&pass(true), orders, blocks, x, &mut acts);
                        acts.logits_and_grad().1.host().fill(0.1);
                        model.backward(&pass(true), orders, blocks, x, &mut acts);
                    }
                };
                steps();
                assert!(COUNT.get() > 0, "the warm-up allocates");
                COUNT.set(0);
                steps();
                assert_eq!(COUNT.get(), 0, "{config:?} {sparse}");
            }
        }
    }
}

#[test]
fn a_step_without_memory_ends_with_an_error_and_the_next_one_is_right() {
    for name in ["sage", "gcn", "gat", "gin"] {
        let config = ModelConfig { model: name.into(), hidden: 32, ..ModelConfig::default() };
        let mut model = Model::new(&config, 24, 5, 1).unwrap();
        let weighted = model.needs_symmetric_weights();
        let blocks = [random_block(300, 700, weighted, 1), random_block(40, 300, weighted, 2)];
        let x = random(blocks[0].num_src, 24, 3);
        let orders = model.orders(&[[300, 700, 3000], [40, 300, 400]].map(|[dst, src, edges]| BlockShape {
            dst,
            src,
            edges,
        }));
        let mut step = |acts: &mut Activations| -> Vec<u32> {
            model.zero_grad(&Reference);
            model.forward(&pass(true), &orders, &blocks, x.view(), acts);
            acts.logits_and_grad().1.host().fill(0.1);
            model.backward(&pass(true), &orders, &blocks, x.view(), acts);
            acts.logits_and_grad().0.host().iter().map(|value| value.to_bits()).collect()
        };
        let expected = step(&mut Activations::default());
        let mut allowed = 0;
        loop {
            let mut acts = Activations::default();
            LEFT.set(Some(allowed));
            let done = memory::catch(|| step(&mut acts));
            LEFT.set(None);
            match done {
                Ok(bits) => {
                    assert_eq!(bits, expected);
                    break;
                }
                Err(error) => {
                    assert!(matches!(error, Error::Memory(_)), "{error}");
                    assert!(error.to_string().contains("bytes of memory"), "{error}");
                }
            }
            assert_eq!(step(&mut acts), expected, "{name} after {allowed} requests");
            allowed += 1;
        }
        assert!(allowed > 2, "{name}: {allowed} requests");
    }
}

#[test]
fn reused_rows_do_not_allocate_in_steady_state() {
    let s = String::from;
    let base = ModelConfig { hidden: 16, ..ModelConfig::default() };
    let full = ModelConfig {
        norm: "batch".parse().unwrap(),
        residual: "linear".parse().unwrap(),
        input_layer: true,
        ..base.clone()
    };
    let l2 = ModelConfig { norm: "l2".parse().unwrap(), ..base.clone() };
    for name in ["sage", "gcn", "gat"] {
        for config in [&base, &full, &l2] {
            let mut model = Model::new(&ModelConfig { model: s(name), ..config.clone() }, 10, 5, 1).unwrap();
            let weighted = model.needs_symmetric_weights();
            let orders = [ProductOrder::AggregateFirst; 2];
            let batches = [40, 25].map(|computed| {
                let mut blocks =
                    [random_block(computed, 90, weighted, 1), random_block(8, computed + 12, weighted, 2)];
                if model.may_restrict(&orders, 1) {
                    blocks[1].grad_src = Some(computed);
                    blocks[1].transpose();
                }
                let whole = [blocks[0].clone(), random_block(8, computed + 12, weighted, 2)];
                (blocks, whole)
            });
            let (x, slots) = (random(90, 10, 3), (3..15).collect::<Vec<u32>>());
            let mut rows = Matrix::zeros(40, model.layer_out_dim(0));
            let mut saved: Vec<Matrix> =
                model.aggregate_dims(&orders).into_iter().map(|dim| Matrix::zeros(40, dim)).collect();
            assert!(!saved.is_empty(), "{name}");
            let basis: Vec<Matrix> = saved.iter().map(|saved| random(4, saved.num_cols(), 5)).collect();
            let (mut copies, mut coordinates) = (saved.clone(), Matrix::zeros(40, 4));
            let (mut acts, mut scratch) = (Activations::default(), Activations::default());
            let mut steps = || {
                for (blocks, whole) in &batches {
                    let (x, bottom) = (x.view(), &blocks[0]);
                    let input = LayerInput { order: orders[0], block: bottom, x, transformed: &[] };
                    let to = BottomRows { rows: &mut rows, at: 0, aggregates: &mut saved, aggregates_at: 0 };
                    model.bottom_rows(&pass(true), &input, &mut scratch, to);
                    let mut step = |model: &mut Model, blocks: &[Block], reused: Reused| {
                        model.zero_grad(&Reference);
                        let input = StepInput { orders: &orders, blocks, x, reused: Some(reused) };
                        model.forward_step(&pass(true), &input, &mut acts);
                        acts.logits_and_grad().1.host().fill(0.1);
                        model.backward_step(&pass(true), &input, &mut acts, &mut |_, _| {});
                    };
                    for (blocks, saved) in [(blocks, &[][..]), (whole, &saved[..])] {
                        step(
                            &mut model,
                            blocks,
                            Reused { rows: rows.view(), slots: &slots, aggregates: saved, projected: None },
                        );
                    }
                    for copy in &mut copies {
                        copy.resize(bottom.num_dst, copy.num_cols());
                    }
                    let pass = pass(true);
                    let to = BottomRows { rows: &mut rows, at: 0, aggregates: &mut copies, aggregates_at: 0 };
                    model.bottom_rows(&pass, &input, &mut scratch, to);
                    let to = ProjectedRows { rows: &mut rows, coordinates: &mut coordinates, at: 0 };
                    model.project_rows(&pass, &basis, &copies, &mut scratch, to);
                    for (blocks, learns) in [(blocks, false), (whole, true)] {
                        let projected = Projected { coordinates: coordinates.view(), basis: &basis, learns };
                        let (rows, projected) = (rows.view(), Some(projected));
                        step(&mut model, blocks, Reused { rows, slots: &slots, aggregates: &[], projected });
                    }
                }
            };
            steps();
            assert!(COUNT.get() > 0, "the warm-up allocates");
            COUNT.set(0);
            steps();
            assert_eq!(COUNT.get(), 0, "{config:?}");
        }
    }
}
