//! Operations on a simulated device against the reference backend, and against themselves in other
//! orders of threads and blocks; and whole models.

use graphmill_core::{
    Block, SparseRows,
    keyed::{Stream, key},
};
use graphmill_cuda::{
    Cuda, Device,
    driver::{
        Arithmetic,
        shim::{Options, Order as Threads},
    },
};
use graphmill_nn::{
    Activations, Backend, Matrix, Model, ModelConfig, Pass, ProductOrder,
    backend::{
        AdamStep, AggregationWeights, ArgMax, Dropout, EdgeWeight, ElementOps, OwnWeight, Reference, Side,
        ops::{
            AdamUpdate, Add, Aggregate, AggregateMax, AggregateMaxTransposed, AggregateTransposed, Attend,
            AttendBackward, AttendInput, AttendInputBackward, AttendInputTransposed, EdgeSoftmax,
            EdgeSoftmaxBackward, Gather, Gemm, SoftmaxCrossEntropy,
        },
    },
    cost::BlockShape,
    layer::{Aggregator, Combine, GatOptions, SageOptions},
};
use proptest::prelude::*;

use crate::counting::Counting;
use crate::device;
use crate::operations::{OPERATIONS, Shape};

/// Backend on a simulated device with this order of threads.
fn backend(order: Threads) -> Cuda {
    let device = device::device(0, Options { memory: 1 << 30, guard: true, order, ..Options::default() });
    Cuda::new(&device, Arithmetic::F32).unwrap()
}

/// Asserts that the outputs of every operation agree within its tolerance.
fn compare(shape: impl Fn(&str) -> Shape) {
    let cuda = backend(Threads::Forward);
    for &(name, tolerance, run) in OPERATIONS {
        let shape = shape(name);
        let expected = run(&Reference, shape);
        let largest = expected.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
        let got = run(&cuda, shape);
        cuda.check().unwrap_or_else(|error| panic!("{name}, {shape:?}: {error}"));
        assert_eq!(got.len(), expected.len(), "{name}");
        for (i, (x, y)) in got.iter().zip(&expected).enumerate() {
            // written so that NaN fails
            let close = (x - y).abs() <= tolerance * largest;
            assert!(close, "{name}, {shape:?}: output {i} is {x}, should be {y}");
        }
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let width = prop_oneof![1usize..20, prop::sample::select(vec![31, 32, 33, 64, 65, 100, 128, 129])];
    ((0usize..40, width, 0usize..20), (1usize..6, 0usize..24, 0usize..20, 0usize..9), any::<u64>()).prop_map(
        |((rows, cols, inner), (heads, dst, extra_src, degree), seed)| {
            // without sources, destinations have no edges
            Shape { rows, cols, inner, heads, dst, extra_src, degree, seed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_operation_agrees_with_the_reference(shape in shapes()) {
        compare(|_| shape);
    }
}

#[test]
fn wide_rows_agree_with_the_reference() {
    for (cols, seed) in [(256, 2), (257, 3), (602, 4)] {
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

/// Large enough to split every sum, and for a destination whose edges a block of threads shares;
/// all sizes are uneven.
const BIG: Shape =
    Shape { rows: 601, cols: 37, inner: 70, heads: 3, dst: 31, extra_src: 77, degree: 140, seed: 5 };

/// [`BIG`], with other sizes for products, which are split later than other operations.
fn big(name: &str) -> Shape {
    if name.starts_with("gemm") { Shape { rows: 1301, heads: 2, ..BIG } } else { BIG }
}

#[test]
fn large_inputs_agree_with_the_reference() {
    compare(big);
}

#[test]
fn results_do_not_depend_on_the_order_of_threads() {
    let orders = [Threads::Forward, Threads::Reverse, Threads::Shuffled(1), Threads::Shuffled(2)];
    let all = orders.map(backend);
    for &(name, _, run) in OPERATIONS {
        let shape = Shape { rows: big(name).rows / 2, heads: 2, ..BIG };
        let bits = |cuda: &Cuda| -> Vec<u64> { run(cuda, shape).into_iter().map(f64::to_bits).collect() };
        let first = bits(&all[0]);
        for (cuda, order) in all.iter().zip(orders).skip(1) {
            assert!(bits(cuda) == first, "{name} in the order {order:?}");
        }
    }
    all.iter().for_each(|cuda| cuda.check().unwrap());
}

/// Standard normal values.
fn random(rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut stream = Stream::new(key(&[seed, 1]));
    let data: Vec<f32> = (0..rows * cols).map(|_| stream.normal() as f32).collect();
    Matrix::from_slice(rows, cols, &data)
}

/// Largest absolute difference.
fn distance(x: &Matrix, y: &Matrix) -> f32 {
    assert_eq!((x.num_rows(), x.num_cols()), (y.num_rows(), y.num_cols()));
    let gaps = x.view().host().iter().zip(y.view().host()).map(|(a, b)| (a - b).abs());
    // a NaN must survive the maximum
    gaps.fold(0.0, |most, gap| if gap <= most { most } else { gap })
}

#[test]
fn sparse_rows_match_dense_rows() {
    let (rows, cols, width) = (70, 40, 33);
    let mut x = random(rows, cols, 1);
    x.view_mut().host().iter_mut().filter(|x| **x < 0.6).for_each(|x| *x = 0.0);
    let table = Matrix::sparse_table(SparseRows::from_dense(cols, x.view().host()).unwrap());
    let mut gathered = Matrix::default();
    gathered.gather_sparse(table.view(), &(0..rows as u32).collect::<Vec<_>>());
    gathered.transpose_sparse();
    let cuda = backend(Threads::Forward);
    let (w, y) = (random(cols, width, 3), random(rows, width, 4));
    let both = |run: &dyn Fn(&dyn Backend, &Matrix) -> Matrix| {
        let found = run(&cuda, &gathered);
        assert!(distance(&found, &run(&Reference, &x)) < 1e-4);
        cuda.check().unwrap();
    };
    both(&|backend, x| {
        let mut out = random(rows - 3, width, 5);
        Gemm { a: (x.rows(3..rows), Side::Plain), b: (w.view(), Side::Plain), beta: 0.5, c: out.view_mut() }
            .run(backend);
        out
    });
    both(&|backend, x| {
        let mut out = Matrix::default();
        out.resize(cols, width);
        Gemm { a: (x.view(), Side::Transposed), b: (y.view(), Side::Plain), beta: 0.0, c: out.view_mut() }
            .run(backend);
        out
    });
    both(&|backend, x| {
        let mut out = random(rows, cols, 6);
        Add { alpha: 0.5, x: x.view(), y: out.view_mut() }.run(backend);
        out
    });
    both(&|backend, x| {
        let mut out = random(3, cols, 7);
        Gather { src: x.view(), ids: &[69, 0, 69], dst: out.view_mut() }.run(backend);
        out
    });
    let mut out = Matrix::zeros(2, cols);
    Gather { src: table.view(), ids: &[5, 4], dst: out.view_mut() }.run(&cuda);
    assert_eq!(out.view().host(), [x.rows(5..6).host(), x.rows(4..5).host()].concat());
}

/// A transposed local block whose destinations have 0, 1, 2, 3, 0, 1, ... random in-neighbours.
fn block(num_dst: usize, num_src: usize, weighted: bool, seed: u64) -> Block {
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

/// Three destinations, the second of 3000 edges, of five sources.
fn long_rows() -> Block {
    let mut stream = Stream::new(9);
    let indices: Vec<u32> = (0..3600).map(|_| stream.below(5) as u32).collect();
    let edge_weight = (0..3600).map(|_| stream.uniform() as f32 / 100.0).collect();
    let indptr = vec![0, 500, 3500, 3600];
    let self_weight = vec![0.5, 1.5, 2.0];
    let mut block =
        Block { num_dst: 3, num_src: 5, indptr, indices, edge_weight, self_weight, ..Block::default() };
    block.transpose();
    block
}

/// Asserts that all matrices are close, relative to their size.
fn assert_close(found: &[Matrix], expected: &[Matrix], what: &str) {
    for (i, (x, y)) in found.iter().zip(expected).enumerate() {
        let largest = y.view().host().iter().fold(1.0, |m: f32, x| m.max(x.abs()));
        assert!(distance(x, y) < 1e-5 * largest, "{what}: output {i} is {} off of {largest}", distance(x, y));
    }
}

const ORDERS: [Threads; 4] = [Threads::Forward, Threads::Reverse, Threads::Shuffled(1), Threads::Shuffled(3)];

#[test]
fn maxima_over_long_rows_match_the_reference() {
    let block = long_rows();
    for cols in [3, 8, 150, 132] {
        let (mut src, grad) = (random(5, cols, 1), random(3, cols, 2));
        // some values are equal: the first edge must be chosen
        src.view_mut().host().iter_mut().for_each(|x| *x = (2.0 * *x).round());
        let run = |backend: &dyn Backend| {
            let (mut dst, mut back, mut arg) = (random(3, cols, 3), random(5, cols, 4), ArgMax::default());
            AggregateMax { block: &block, src: src.view(), dst: dst.view_mut(), arg: &mut arg }.run(backend);
            AggregateMaxTransposed {
                block: &block,
                arg: &arg,
                dst_grad: grad.view(),
                src_grad: back.view_mut(),
            }
            .run(backend);
            ([dst, back], arg)
        };
        let (expected, winners) = run(&Reference);
        for order in ORDERS {
            let cuda = backend(order);
            let (found, arg) = run(&cuda);
            cuda.check().unwrap();
            assert_close(&found, &expected, &format!("{cols} columns, {order:?}"));
            assert_eq!(arg.host(), winners.host(), "{cols} columns, {order:?}");
        }
    }
}

#[test]
fn attention_over_long_rows_matches_the_reference() {
    let block = long_rows();
    let entries = block.num_edges() + block.num_dst;
    for (heads, width) in [(1, 7), (3, 8), (2, 50)] {
        let cols = heads * width;
        let (z, grad) = (random(5, cols, 1), random(3, cols, 2));
        let (source, target) = (random(5, heads, 3), random(5, heads, 4));
        let (x, w) = (random(5, width, 5), [random(width, heads, 6), random(width, heads, 7)]);
        let run = |backend: &dyn Backend| {
            let of = |rows: usize, cols: usize| Matrix::zeros(rows, cols);
            let [mut alpha, mut alpha_grad, mut scratch] = [0; 3].map(|_| of(entries, heads));
            let (mut out, mut z_grad) = (of(3, cols), of(5, cols));
            let (mut source_grad, mut target_grad) = (of(5, heads), of(5, heads));
            EdgeSoftmax {
                block: &block,
                source: source.view(),
                target: target.view(),
                slope: 0.2,
                alpha: alpha.view_mut(),
            }
            .run(backend);
            Attend { block: &block, alpha: alpha.view(), z: z.view(), out: out.view_mut() }.run(backend);
            let to = (alpha_grad.view_mut(), z_grad.view_mut());
            AttendBackward {
                block: &block,
                alpha: alpha.view(),
                z: z.view(),
                grad: grad.view(),
                alpha_grad: to.0,
                z_grad: to.1,
            }
            .run(backend);
            EdgeSoftmaxBackward {
                block: &block,
                source: source.view(),
                target: target.view(),
                slope: 0.2,
                alpha: alpha.view(),
                alpha_grad: alpha_grad.view(),
                scratch: scratch.view_mut(),
                source_grad: source_grad.view_mut(),
                target_grad: target_grad.view_mut(),
            }
            .run(backend);
            let [mut score, mut input_alpha, mut used, mut score_grad] = [0; 4].map(|_| of(entries, heads));
            let (mut rows, mut x_grad) = (of(3, cols), of(5, width));
            let mut w_grad = [of(width, heads), of(width, heads)];
            AttendInput {
                block: &block,
                x: x.view(),
                source: w[0].view(),
                target: w[1].view(),
                slope: 0.2,
                dropout: Dropout { p: 0.3, key: 5 },
                score: score.view_mut(),
                alpha: input_alpha.view_mut(),
                used: used.view_mut(),
                out: rows.view_mut(),
            }
            .run(backend);
            let [of_source, of_target] = &mut w_grad;
            AttendInputBackward {
                block: &block,
                x: x.view(),
                slope: 0.2,
                score: score.view(),
                alpha: input_alpha.view(),
                used: used.view(),
                grad: grad.view(),
                score_grad: score_grad.view_mut(),
                source_grad: of_source.view_mut(),
                target_grad: of_target.view_mut(),
            }
            .run(backend);
            AttendInputTransposed {
                block: &block,
                source: w[0].view(),
                target: w[1].view(),
                used: used.view(),
                grad: grad.view(),
                score_grad: score_grad.view(),
                x_grad: x_grad.view_mut(),
            }
            .run(backend);
            let of_input = [score, input_alpha, used, rows, score_grad, x_grad].into_iter().chain(w_grad);
            let of_rows = [alpha, alpha_grad, out, z_grad, source_grad, target_grad];
            of_rows.into_iter().chain(of_input).collect::<Vec<Matrix>>()
        };
        let expected = run(&Reference);
        let bits = |found: &[Matrix]| -> Vec<u32> {
            found.iter().flat_map(|x| x.view().host()).map(|x| x.to_bits()).collect()
        };
        let mut first = None;
        for order in ORDERS {
            let cuda = backend(order);
            let found = run(&cuda);
            cuda.check().unwrap();
            assert_close(&found, &expected, &format!("{heads} heads of {width}, {order:?}"));
            let found = bits(&found);
            assert!(*first.get_or_insert_with(|| found.clone()) == found, "bits in the order {order:?}");
        }
    }
}

#[test]
fn squares_are_downloaded_once() {
    let driver = Counting::new(device::driver(0, Options { memory: 1 << 28, ..Options::default() }));
    let cuda = Cuda::new(&Device::new(driver.clone(), 0, 0).unwrap(), Arithmetic::F32).unwrap();
    let all = [random(70, 40, 1), random(1, 1, 2), random(3000, 9, 3)];
    let run = |backend: &dyn Backend| backend.squares(&mut |see| all.iter().for_each(|x| see(x.view())));
    let (found, expected) = (run(&cuda), run(&Reference));
    assert!((found - expected).abs() < 1e-9 * expected, "{found}, should be {expected}");
    assert_eq!(driver.downloads(), 1);
}

#[test]
fn sums_over_long_rows_match_the_reference() {
    let block = long_rows();
    for (edge, own) in [
        (EdgeWeight::One, OwnWeight::Constant(0.5)),
        (EdgeWeight::Mean, OwnWeight::Stored),
        (EdgeWeight::Stored, OwnWeight::None),
        (EdgeWeight::Normalized, OwnWeight::None),
    ] {
        let weighting = AggregationWeights { edge, own };
        for cols in [3, 8, 150, 132] {
            let (src, grad) = (random(5, cols, 1), random(3, cols, 2));
            let run = |backend: &dyn Backend| {
                let (mut dst, mut back) = (random(3, cols, 3), random(5, cols, 4));
                Aggregate {
                    block: &block,
                    weights: weighting,
                    src: src.view(),
                    beta: 0.5,
                    dst: dst.view_mut(),
                }
                .run(backend);
                AggregateTransposed {
                    block: &block,
                    weights: weighting,
                    dst_grad: grad.view(),
                    beta: 0.5,
                    src_grad: back.view_mut(),
                }
                .run(backend);
                [dst, back]
            };
            let expected = run(&Reference);
            for order in ORDERS {
                let cuda = backend(order);
                assert_close(&run(&cuda), &expected, &format!("{weighting:?}, {cols} columns, {order:?}"));
                cuda.check().unwrap();
            }
        }
    }
}

/// Training batch of a model.
struct Batch {
    blocks: Vec<Block>,
    orders: Vec<ProductOrder>,
    x: Matrix,
    label: Vec<i32>,
}

/// Moments of Adam, by parameter.
type Moments = Vec<[Matrix; 2]>;

const CLASSES: usize = 5;
const SEEDS: usize = 12;

/// Runs one training step and returns the loss.
fn step(backend: &dyn Backend, model: &mut Model, moments: &mut Moments, batch: &Batch, t: i32) -> f64 {
    let Batch { blocks, orders, x, label } = batch;
    let pass = Pass { backend, training: true, key: 42 + t as u64 };
    let mut acts = Activations::default();
    model.zero_grad(backend);
    model.forward(&pass, orders, blocks, x.view(), &mut acts);
    let (logits, grad) = acts.logits_and_grad();
    let loss =
        SoftmaxCrossEntropy { logits, label, weight: &[], scale: 1.0 / SEEDS as f32, grad }.run(backend);
    model.backward(&pass, orders, blocks, x.view(), &mut acts);
    let loss = backend.resolve_loss(loss);
    let (beta1, beta2) = (0.9f32, 0.999f32);
    let step = AdamStep {
        lr: 0.01,
        beta1,
        beta2,
        eps: 1e-3,
        weight_decay: 0.0,
        decoupled: false,
        correction1: 1.0 - beta1.powi(t),
        correction2: 1.0 - beta2.powi(t),
    };
    let mut moments = moments.iter_mut();
    model.visit_mut(&mut |_, p| {
        let [m, v] = moments.next().unwrap();
        if p.trainable {
            AdamUpdate {
                step,
                grad: p.grad.view(),
                m: m.view_mut(),
                v: v.view_mut(),
                value: p.value.view_mut(),
            }
            .run(backend);
        }
    });
    loss
}

/// Losses and parameters of a model after several steps.
fn train(
    backend: &dyn Backend,
    model: &mut Model,
    batch: &Batch,
    after: &mut dyn FnMut(i32),
) -> (Vec<f64>, Vec<Matrix>) {
    let mut moments = Moments::new();
    model.visit(&mut |_, p| {
        let [rows, cols] = [p.value.num_rows(), p.value.num_cols()];
        moments.push([Matrix::zeros(rows, cols), Matrix::zeros(rows, cols)]);
    });
    let losses = (1..=4)
        .map(|t| {
            let loss = step(backend, model, &mut moments, batch, t);
            after(t);
            loss
        })
        .collect();
    let mut parameters = Vec::new();
    model.visit(&mut |_, p| parameters.push(p.value.clone()));
    (losses, parameters)
}

#[test]
fn training_matches_the_reference_and_downloads_only_losses() {
    let named =
        |model: &str| ModelConfig { model: model.into(), hidden: 8, dropout: 0.3, ..ModelConfig::default() };
    let configs = [
        named("sage"),
        named("sage").with(SageOptions { aggregator: Aggregator::MaxPool, ..SageOptions::default() }),
        named("sage").with(SageOptions { sage_combine: Combine::Concat, ..SageOptions::default() }),
        named("gcn"),
        named("gat").with(GatOptions { heads: 2, out_heads: 1, attention_dropout: 0.2 }),
        named("gin"),
        ModelConfig { norm: "batch".parse().unwrap(), ..named("gin") },
        ModelConfig {
            norm: "layer".parse().unwrap(),
            residual: "linear".parse().unwrap(),
            activation: "elu".parse().unwrap(),
            ..named("sage")
        },
    ];
    for config in configs {
        let new = || Model::new(&config, 7, CLASSES, 3).unwrap();
        let mut model = new();
        let sizes = [SEEDS, 25, 40, 60];
        let weighted = model.needs_symmetric_weights();
        let blocks: Vec<Block> = (0..model.num_layers())
            .rev()
            .map(|l| block(sizes[l], sizes[l + 1], weighted, l as u64))
            .collect();
        let orders = model.orders(&blocks.iter().map(BlockShape::from).collect::<Vec<_>>());
        let x = random(blocks[0].num_src, 7, 8);
        let label = (0..SEEDS).map(|i| (i % CLASSES) as i32).collect();
        let batch = Batch { blocks, orders, x, label };
        let (losses, parameters) = train(&Reference, &mut model, &batch, &mut |_| ());

        let driver = Counting::new(device::driver(0, Options { memory: 1 << 28, ..Options::default() }));
        let cuda = Cuda::new(&Device::new(driver.clone(), 0, 0).unwrap(), Arithmetic::F32).unwrap();
        let (found, values) = train(&cuda, &mut new(), &batch, &mut |t| {
            assert_eq!(driver.downloads(), t as usize, "{config:?}: after {t} steps");
        });
        cuda.check().unwrap();
        for (a, b) in losses.iter().zip(&found) {
            assert!((a - b).abs() < 1e-4, "{config:?}: {losses:?} but {found:?}");
        }
        for (a, b) in parameters.iter().zip(&values) {
            assert!(distance(a, b) < 1e-4, "{config:?}");
        }
    }
}

#[test]
fn the_first_error_is_sticky() {
    let device = device::device(0, Options { memory: 1 << 20, ..Options::default() });
    let cuda = Cuda::new(&device, Arithmetic::F32).unwrap();
    let mut x = Matrix::zeros(4, 4);
    cuda.fill(1.0, x.view_mut());
    cuda.check().unwrap();
    let mut large = Matrix::default();
    large.resize(1 << 10, 1 << 10);
    cuda.fill(1.0, large.view_mut());
    let error = cuda.check().unwrap_err();
    assert!(error.to_string().contains("is out of memory"), "{error}");
    cuda.scale(2.0, x.view_mut());
    assert_eq!(cuda.dot(x.view(), x.view()), 0.0);
    assert_eq!(cuda.check().unwrap_err().to_string(), error.to_string());
}
