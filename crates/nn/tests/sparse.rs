//! Sparse feature rows against the equal dense rows: every operation that reads them, and whole
//! models.

use graphmill_core::{Block, SparseRows};
use graphmill_nn::{
    Activations, Backend, Matrix, Model, ModelConfig, Pass, ProductOrder, View,
    backend::{
        Activation, Cpu, Dropout, Precision, Reference,
        Side::{Plain, Transposed},
        ops::{Add, DropStored, EpilogueForward, Gather, Gemm},
    },
    cost::BlockShape,
    layer::{Aggregator, GatOptions, SageOptions},
};

use crate::support::{Checked, check, distance, dot, nudge, pass, random, random_block};

const F: usize = 9;
const C: usize = 3;

/// Normal values with seven zeros in ten; row 1 and column 2 are empty.
fn holey(rows: usize, cols: usize, seed: u64) -> Matrix {
    let (mut x, gaps) = (random(rows, cols, seed), random(rows, cols, seed + 1));
    for (i, (x, gap)) in x.view_mut().host().iter_mut().zip(gaps.view().host()).enumerate() {
        if *gap < 0.5 || i / cols == 1 || i % cols == 2 {
            *x = 0.0;
        }
    }
    x
}

/// The same rows as sparse matrices: as a table, and gathered and transposed.
fn sparse(x: &Matrix) -> (Matrix, Matrix) {
    let table = Matrix::sparse_table(SparseRows::from_dense(x.num_cols(), x.view().host()).unwrap());
    let mut gathered = Matrix::default();
    gathered.gather_sparse(table.view(), &(0..x.num_rows() as u32).collect::<Vec<_>>());
    gathered.transpose_sparse();
    (table, gathered)
}

fn backends() -> [Box<dyn Backend>; 3] {
    [Box::new(Reference), Box::new(Cpu::default()), Box::new(Cpu { precision: Precision::Bf16 })]
}

#[test]
fn operations_read_sparse_rows_as_dense_ones() {
    for (rows, cols, width) in [(5, F, 4), (70, 40, 33), (3, 200, 1), (300, 31, 130)] {
        let x = holey(rows, cols, 1);
        let (table, gathered) = sparse(&x);
        let (w, y) = (random(cols, width, 3), random(rows, width, 4));
        let ids: Vec<u32> = (0..2 * rows as u32).map(|i| i * 7 % rows as u32).collect();
        for backend in backends() {
            let product = |x: View, side, other: View, beta| {
                let n = if side == Plain { x.num_rows() } else { x.num_cols() };
                let mut out = random(n, width, 5);
                if beta == 0.0 {
                    out.view_mut().host().fill(f32::NAN);
                }
                Gemm { a: (x, side), b: (other, Plain), beta, c: out.view_mut() }.run(&*backend);
                out
            };
            let expect = |x: View, side, other: View, beta| {
                let n = if side == Plain { x.num_rows() } else { x.num_cols() };
                let mut out = random(n, width, 5);
                Gemm { a: (x, side), b: (other, Plain), beta, c: out.view_mut() }.run(&Reference);
                out
            };
            for part in [0..rows, 0..rows / 2, 0..0] {
                for beta in [0.0, 1.0] {
                    let other = y.rows(part.clone());
                    let found = product(gathered.rows(part.clone()), Transposed, other, beta);
                    let expected = expect(x.rows(part.clone()), Transposed, other, beta);
                    assert!(distance(found.view(), expected.view()) < 1e-4, "{} {rows}", backend.name());
                }
            }
            for part in [0..rows, 1..rows, rows / 2..rows] {
                for beta in [0.0, 0.5] {
                    let found = product(gathered.rows(part.clone()), Plain, w.view(), beta);
                    let expected = expect(x.rows(part.clone()), Plain, w.view(), beta);
                    assert!(distance(found.view(), expected.view()) < 1e-4, "{} {rows}", backend.name());
                }
            }
            for from in [&table, &gathered] {
                let mut out = random(ids.len(), cols, 6);
                Gather { src: from.view(), ids: &ids, dst: out.view_mut() }.run(&*backend);
                let mut expected = Matrix::zeros(ids.len(), cols);
                Gather { src: x.view(), ids: &ids, dst: expected.view_mut() }.run(&Reference);
                assert_eq!(distance(out.view(), expected.view()), 0.0);
            }
            let [mut sum, mut expected] = [random(rows, cols, 7), random(rows, cols, 7)];
            Add { alpha: 0.5, x: gathered.view(), y: sum.view_mut() }.run(&*backend);
            Add { alpha: 0.5, x: x.view(), y: expected.view_mut() }.run(&Reference);
            assert!(distance(sum.view(), expected.view()) < 1e-6);
            // dropout drops the same elements as in the dense rows
            let dropout = Dropout { p: 0.4, key: 8 };
            let stored = gathered.view().sparse().unwrap().values.len();
            let (mut values, mut dropped) = (Matrix::zeros(stored, 1), x.clone());
            DropStored { x: gathered.view(), dropout, out: values.view_mut() }.run(&*backend);
            EpilogueForward { bias: None, activation: Activation::Identity, dropout, x: dropped.view_mut() }
                .run(&*backend);
            let mut out = Matrix::zeros(rows, cols);
            let all: Vec<u32> = (0..rows as u32).collect();
            Gather { src: gathered.view().with_values(values.view().host()), ids: &all, dst: out.view_mut() }
                .run(&*backend);
            assert_eq!(distance(out.view(), dropped.view()), 0.0);
            assert!(values.view().host().contains(&0.0) || stored < 10);
        }
    }
}

fn named(model: &str) -> ModelConfig {
    ModelConfig { model: model.into(), hidden: 4, dropout: 0.3, ..ModelConfig::default() }
        .with(GatOptions { heads: 2, ..GatOptions::default() })
}

/// Every layer, and every part of a model that reads features.
fn configs() -> Vec<ModelConfig> {
    let sage = ModelConfig { activation: "elu".parse().unwrap(), ..named("sage") };
    vec![
        sage.clone(),
        sage.clone().with(SageOptions { aggregator: Aggregator::MaxPool, ..SageOptions::default() }),
        ModelConfig {
            norm: "layer".parse().unwrap(),
            residual: "linear".parse().unwrap(),
            input_dropout: 0.4,
            ..sage.clone()
        },
        ModelConfig {
            residual: "identity".parse().unwrap(),
            hidden: F,
            layers: 1,
            head_layers: 1,
            ..sage.clone()
        },
        ModelConfig { residual: "identity".parse().unwrap(), input_layer: true, input_dropout: 0.4, ..sage },
        ModelConfig { input_dropout: 0.4, ..named("gcn") },
        ModelConfig {
            norm: "batch".parse().unwrap(),
            layers: 1,
            residual: "linear".parse().unwrap(),
            ..named("gcn")
        },
        ModelConfig { input_dropout: 0.4, ..named("gat") }.with(GatOptions {
            heads: 2,
            out_heads: 1,
            attention_dropout: 0.2,
        }),
        ModelConfig { residual: "linear".parse().unwrap(), head_layers: 1, ..named("gat") },
        ModelConfig { input_dropout: 0.4, ..named("gin") },
        ModelConfig {
            norm: "batch".parse().unwrap(),
            residual: "linear".parse().unwrap(),
            activation: "elu".parse().unwrap(),
            ..named("gin")
        },
    ]
}

fn blocks(layers: usize, weighted: bool) -> Vec<Block> {
    let sizes = [4, 9, 14];
    (0..layers).rev().map(|l| random_block(sizes[l], sizes[l + 1], weighted, l as u64)).collect()
}

fn step(
    backend: &dyn Backend,
    model: &mut Model,
    orders: &[ProductOrder],
    blocks: &[Block],
    x: View,
    c: &Matrix,
) -> (Matrix, Vec<(String, Matrix)>) {
    let pass = Pass { backend, ..pass(true) };
    let mut acts = Activations::default();
    model.zero_grad(backend);
    model.forward(&pass, orders, blocks, x, &mut acts);
    let mut logits = Matrix::zeros(c.num_rows(), c.num_cols());
    backend.copy(acts.logits(), logits.view_mut());
    acts.logits_and_grad().1.host().copy_from_slice(c.view().host());
    model.backward(&pass, orders, blocks, x, &mut acts);
    let mut grads = Vec::new();
    model.visit(&mut |name, p| {
        if p.trainable {
            grads.push((name.to_string(), p.grad.clone()));
        }
    });
    (logits, grads)
}

fn orders(model: &Model, blocks: &[Block]) -> Vec<ProductOrder> {
    let mut orders = model.orders(&blocks.iter().map(BlockShape::from).collect::<Vec<_>>());
    assert!(model.start_with_product(&mut orders));
    orders
}

#[test]
fn sparse_steps_match_dense_rows_and_finite_differences() {
    for config in configs() {
        let mut model = Model::new(&config, F, C, 7).unwrap();
        let blocks = blocks(config.layers, model.needs_symmetric_weights());
        let x = holey(blocks[0].num_src, F, 1);
        let (_, rows) = sparse(&x);
        let c = random(4, C, 2);
        let orders = orders(&model, &blocks);
        for backend in &backends()[..2] {
            let (y, grads) = step(&**backend, &mut model, &orders, &blocks, x.view(), &c);
            let (sparse_y, sparse_grads) = step(&**backend, &mut model, &orders, &blocks, rows.view(), &c);
            assert!(distance(y.view(), sparse_y.view()) < 1e-5, "{config:?}");
            for ((name, a), (_, b)) in grads.iter().zip(&sparse_grads) {
                assert!(distance(a.view(), b.view()) < 2e-5, "{} {config:?} {name}", backend.name());
            }
        }
        let (_, grads) = step(&Reference, &mut model, &orders, &blocks, rows.view(), &c);
        let mut checked = Checked::default();
        for (name, grad) in grads.iter().filter(|(name, _)| !name.starts_with("head")) {
            checked += check(&format!("{config:?} {name}"), grad.view(), |i, delta| {
                let change = |model: &mut Model, delta| {
                    model.visit_mut(&mut |n, p| {
                        if n == name {
                            nudge(p, i, delta);
                        }
                    });
                };
                change(&mut model, delta);
                let mut acts = Activations::default();
                model.forward(&pass(true), &orders, &blocks, rows.view(), &mut acts);
                change(&mut model, -delta);
                dot(acts.logits(), c.view())
            });
        }
        checked.assert_all_but_one_in(6, &format!("{config:?}"));
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let config = ModelConfig { hidden: 24, input_dropout: 0.4, layers: 1, head_layers: 1, ..named("sage") };
    let mut model = Model::new(&config, 300, C, 7).unwrap();
    let block = [random_block(2000, 3000, false, 1)];
    let (_, rows) = sparse(&holey(3000, 300, 2));
    let c = random(2000, C, 3);
    let orders = orders(&model, &block);
    let mut run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| step(&Cpu::default(), &mut model, &orders, &block, rows.view(), &c))
    };
    let (y, grads) = run(1);
    for threads in [2, 3] {
        let (other_y, other) = run(threads);
        assert_eq!(y.view().host(), other_y.view().host());
        for ((name, a), (_, b)) in grads.iter().zip(&other) {
            assert_eq!(a.view().host(), b.view().host(), "{name}");
        }
    }
}
