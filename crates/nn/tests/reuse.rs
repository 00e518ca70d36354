//! Reused rows of the bottom layer: against exact passes, finite differences, and passes without
//! reuse.

#[path = "reuse/kept.rs"]
mod kept;
#[path = "reuse/projected.rs"]
mod projected;

use graphmill_core::Block;
use graphmill_nn::{
    Activations, Matrix, Model, ModelConfig, ProductOrder, Reused, View,
    backend::{Reference, ops::Add},
    layer::{Aggregator, GatOptions, LayerInput, MixHopOptions, SageOptions},
    model::{BottomRows, StepInput},
};

use crate::support::{Checked, all_orders, check, distance, dot, nudge, pass, random, random_block};

const F: usize = 5;
const CLASSES: usize = 3;
/// Number of reused rows.
const H: usize = 3;

fn named(model: &str) -> ModelConfig {
    // a smooth activation, so that finite differences are meaningful everywhere
    ModelConfig {
        model: model.into(),
        hidden: 4,
        dropout: 0.0,
        activation: "elu".parse().unwrap(),
        ..ModelConfig::default()
    }
    .with(GatOptions { heads: 2, ..GatOptions::default() })
}

/// Layers with every norm and residual, with and without dropout.
fn configs() -> Vec<ModelConfig> {
    let mut all = Vec::new();
    for dropout in [0.0, 0.3] {
        for name in ["gcn", "sage", "gat", "gin", "pinsage"] {
            let base = ModelConfig { dropout, ..named(name) };
            all.push(base.clone());
            all.push(ModelConfig {
                norm: "layer".parse().unwrap(),
                residual: "linear".parse().unwrap(),
                ..base.clone()
            });
            all.push(ModelConfig { norm: "l2".parse().unwrap(), head_layers: 1, ..base.clone() });
            all.push(ModelConfig {
                residual: "identity".parse().unwrap(),
                input_layer: true,
                ..base.clone()
            });
            all.push(ModelConfig { residual: "linear".parse().unwrap(), input_layer: true, ..base.clone() });
            if name != "gin" {
                // the statistics of its inner norm are those of the computed rows
                all.push(ModelConfig { norm: "batch".parse().unwrap(), ..base });
            }
        }
        let pool = ModelConfig { dropout, ..named("sage") }
            .with(SageOptions { aggregator: Aggregator::MaxPool, ..SageOptions::default() });
        all.push(pool);
        all.push(ModelConfig { dropout, layers: 1, ..named("mixhop") }.with(MixHopOptions { hops: 3 }));
        all.push(
            ModelConfig { dropout, norm: "layer".parse().unwrap(), ..named("mixhop") }
                .with(MixHopOptions { hops: 1 }),
        );
    }
    all
}

fn model(config: &ModelConfig) -> Model {
    let mut model = Model::new(config, F, CLASSES, 7).unwrap();
    let mut seed = 50;
    model.visit_mut(&mut |_, p| {
        if p.value.num_rows() == 1 {
            seed += 1; // move parameters away from zero and one
            Add { alpha: 0.2, x: random(1, p.value.num_cols(), seed).view(), y: p.value.view_mut() }
                .run(pass(true).backend);
        }
    });
    model
}

/// A batch whose bottom layer computes all rows, and the same batch with the last `H` rows left
/// out.
struct Batch {
    exact: Vec<Block>,
    reusing: Vec<Block>,
    x: Matrix,
    /// Gradient of the scores.
    c: Matrix,
}

fn batch(model: &Model) -> Batch {
    let sizes = [4, 9, 14, 20];
    let layers = model.num_layers();
    let block = |l| random_block(sizes[l], sizes[l + 1], model.needs_symmetric_weights(), l as u64);
    let exact: Vec<Block> = (0..layers).rev().map(block).collect();
    let computed = exact[0].num_dst - H;
    let mut reusing = exact.clone();
    reusing[0] = rows_of(&exact[0], &(0..computed as u32).collect::<Vec<_>>());
    reusing[0].dst_ids = None;
    reusing[0].transpose();
    Batch { x: random(exact[0].num_src, F, 1), c: random(4, CLASSES, 2), exact, reusing }
}

/// Global block of some destinations of a local block.
fn rows_of(block: &Block, ids: &[u32]) -> Block {
    let mut rows = Block {
        num_dst: ids.len(),
        num_src: block.num_src,
        indptr: vec![0],
        dst_ids: Some(ids.to_vec()),
        ..Block::default()
    };
    for &v in ids {
        let edges = block.edges(v as usize);
        rows.indices.extend_from_slice(&block.indices[edges.clone()]);
        rows.edge_weight.extend(block.edge_weight.get(edges).into_iter().flatten());
        rows.self_weight.extend(block.self_weight.get(v as usize));
        rows.indptr.push(rows.indices.len() as u32);
    }
    rows
}

/// Table of the rows left out, in another order, at [`SLOTS`], and of their aggregates.
struct Table {
    rows: Matrix,
    saved: Vec<Matrix>,
}

const SLOTS: [u32; H] = [4, 2, 1];

impl Table {
    fn new(model: &Model, orders: &[ProductOrder], batch: &Batch, keep: bool) -> Self {
        let computed = batch.reusing[0].num_dst as u32;
        let dims = if keep { model.aggregate_dims(orders) } else { Vec::new() };
        let nan = |cols| {
            let mut table = Matrix::zeros(6, cols);
            table.view_mut().host().fill(f32::NAN);
            table
        };
        let mut table =
            Self { rows: nan(model.layer_out_dim(0)), saved: dims.into_iter().map(nan).collect() };
        let mut scratch = Activations::default();
        // two rows at once, and one alone
        for (at, ids) in [(1, vec![computed + 2, computed + 1]), (4, vec![computed])] {
            let block = rows_of(&batch.exact[0], &ids);
            let (rows, saved) = (&mut table.rows, &mut table.saved[..]);
            let input = LayerInput { order: orders[0], block: &block, x: batch.x.view(), transformed: &[] };
            let to = BottomRows { rows, at, aggregates: saved, aggregates_at: at };
            model.bottom_rows(&pass(true), &input, &mut scratch, to);
        }
        table
    }

    fn reused(&self) -> Reused<'_> {
        Reused { rows: self.rows.view(), slots: &SLOTS, aggregates: &self.saved, projected: None }
    }
}

fn named_gradients(model: &Model) -> Vec<(String, Matrix)> {
    let mut grads = Vec::new();
    model.visit(&mut |name, p| {
        if p.trainable {
            grads.push((name.to_string(), p.grad.clone()));
        }
    });
    grads
}

fn step<'a>(
    orders: &'a [ProductOrder],
    blocks: &'a [Block],
    x: View<'a>,
    reused: Reused<'a>,
) -> StepInput<'a> {
    StepInput { orders, blocks, x, reused: Some(reused) }
}

/// Scores and gradients of `dot(scores, c)`.
fn reusing(
    model: &mut Model,
    orders: &[ProductOrder],
    blocks: &[Block],
    x: View,
    reused: Reused,
    c: &Matrix,
) -> (Matrix, Vec<(String, Matrix)>) {
    let mut acts = Activations::default();
    model.zero_grad(&Reference);
    model.forward_step(&pass(true), &step(orders, blocks, x, reused), &mut acts);
    let (logits, grad) = acts.logits_and_grad();
    let scores = Matrix::from_slice(logits.num_rows(), logits.num_cols(), logits.host());
    grad.host().copy_from_slice(c.view().host());
    model.backward_step(&pass(true), &step(orders, blocks, x, reused), &mut acts, &mut |_, _| {});
    (scores, named_gradients(model))
}

fn exact(model: &mut Model, orders: &[ProductOrder], batch: &Batch) -> (Matrix, Vec<(String, Matrix)>) {
    let mut acts = Activations::default();
    let x = batch.x.view();
    model.zero_grad(&Reference);
    model.forward(&pass(true), orders, &batch.exact, x, &mut acts);
    let (logits, grad) = acts.logits_and_grad();
    let scores = Matrix::from_slice(logits.num_rows(), logits.num_cols(), logits.host());
    grad.host().copy_from_slice(batch.c.view().host());
    model.backward(&pass(true), orders, &batch.exact, x, &mut acts);
    (scores, named_gradients(model))
}

/// Makes attention uniform, so that the weights' gradient passes through the sums alone.
fn make_attention_even(model: &mut Model) {
    model.visit_mut(&mut |name, p| {
        if is_attention(name) {
            p.value.view_mut().host().fill(0.0);
        }
    });
}

fn is_attention(name: &str) -> bool {
    name == "conv.0.source" || name == "conv.0.target"
}

/// Loss with one parameter moved; `table` computes the reused rows.
fn moved_loss(
    model: &mut Model,
    orders: &[ProductOrder],
    batch: &Batch,
    (name, i, delta): (&str, usize, f32),
    table: impl Fn(&Model) -> Table,
) -> f64 {
    let change = |model: &mut Model, delta| {
        model.visit_mut(&mut |n, p| {
            if n == name {
                nudge(p, i, delta);
            }
        });
    };
    change(model, delta);
    let (table, mut acts) = (table(model), Activations::default());
    let input = step(orders, &batch.reusing, batch.x.view(), table.reused());
    model.forward_step(&pass(true), &input, &mut acts);
    change(model, -delta);
    dot(acts.logits(), batch.c.view())
}

#[test]
fn rows_of_current_parameters_give_exact_scores() {
    for config in configs().iter().filter(|config| config.dropout == 0.0) {
        let mut model = model(config);
        let batch = batch(&model);
        for orders in all_orders(&model) {
            let table = Table::new(&model, &orders, &batch, false);
            let x = batch.x.view();
            let (scores, _) = reusing(&mut model, &orders, &batch.reusing, x, table.reused(), &batch.c);
            let (expected, _) = exact(&mut model, &orders, &batch);
            let far = distance(scores.view(), expected.view());
            assert!(far < 1e-5, "{config:?} {orders:?}: {far}");
        }
    }
}

#[test]
fn saved_aggregates_give_exact_gradients() {
    let mut seen = 0;
    for config in configs().iter().filter(|config| config.dropout == 0.0) {
        let mut model = model(config);
        make_attention_even(&mut model);
        let batch = batch(&model);
        for orders in all_orders(&model) {
            if model.aggregate_dims(&orders).is_empty() {
                continue;
            }
            seen += 1;
            let table = Table::new(&model, &orders, &batch, true);
            let x = batch.x.view();
            let (_, grads) = reusing(&mut model, &orders, &batch.reusing, x, table.reused(), &batch.c);
            let (_, expected) = exact(&mut model, &orders, &batch);
            for ((name, grad), (_, expected)) in grads.iter().zip(&expected) {
                if is_attention(name) || name.starts_with("input.") {
                    continue; // before the aggregation
                }
                let largest = expected.view().host().iter().fold(1e-2, |m: f32, g| m.max(g.abs()));
                let far = distance(grad.view(), expected.view());
                assert!(far < 1e-4 * largest, "{config:?} {orders:?} {name}: {far}");
            }
        }
    }
    assert!(seen >= 24, "{seen}");
}

#[test]
fn saved_aggregates_match_finite_differences() {
    for config in configs().iter().filter(|config| config.dropout > 0.0) {
        let mut model = model(config);
        make_attention_even(&mut model);
        let batch = batch(&model);
        let all = all_orders(&model);
        let Some(orders) = all.iter().find(|orders| !model.aggregate_dims(orders).is_empty()) else {
            continue;
        };
        let table = Table::new(&model, orders, &batch, true);
        let x = batch.x.view();
        let (_, grads) = reusing(&mut model, orders, &batch.reusing, x, table.reused(), &batch.c);
        let mut checked = Checked::default();
        for (name, grad) in
            grads.iter().filter(|(name, _)| !is_attention(name) && !name.starts_with("input."))
        {
            checked += check(&format!("{config:?} {name}"), grad.view(), |i, delta| {
                moved_loss(&mut model, orders, &batch, (name, i, delta), |model| {
                    Table::new(model, orders, &batch, false)
                })
            });
        }
        checked.assert_all_but_one_in(6, &format!("{config:?}"));
    }
}

#[test]
fn constant_rows_match_finite_differences_of_the_rest() {
    let mut restricted = 0;
    for config in configs() {
        let mut model = model(&config);
        let mut batch = batch(&model);
        let computed = batch.reusing[0].num_dst;
        let mut first: Option<Vec<(String, Matrix)>> = None;
        for orders in all_orders(&model) {
            let fixed = || Table::new(&self::model(&config), &orders, &batch, false);
            let table = fixed();
            let x = batch.x.view();
            let (_, grads) = reusing(&mut model, &orders, &batch.reusing, x, table.reused(), &batch.c);
            if model.may_restrict(&orders, 1) {
                restricted += 1;
                for wanting in [computed, computed + 1] {
                    batch.reusing[1].grad_src = Some(wanting);
                    batch.reusing[1].transpose();
                    let x = batch.x.view();
                    let (_, some) = reusing(&mut model, &orders, &batch.reusing, x, table.reused(), &batch.c);
                    for ((name, a), (_, b)) in grads.iter().zip(&some) {
                        assert_eq!(
                            a.view().host(),
                            b.view().host(),
                            "{config:?} {orders:?} {name} {wanting}"
                        );
                    }
                }
                batch.reusing[1].grad_src = None;
                batch.reusing[1].transpose();
            }
            if let Some(first) = &first {
                for ((name, a), (_, b)) in grads.iter().zip(first) {
                    assert!(distance(a.view(), b.view()) < 2e-5, "{config:?} {orders:?} {name}");
                }
                continue;
            }
            let mut checked = Checked::default();
            for (name, grad) in &grads {
                checked += check(&format!("{config:?} {name}"), grad.view(), |i, delta| {
                    moved_loss(&mut model, &orders, &batch, (name, i, delta), |_| Table {
                        rows: table.rows.clone(),
                        saved: Vec::new(),
                    })
                });
            }
            checked.assert_all_but_one_in(5, &format!("{config:?}"));
            first = Some(grads);
        }
    }
    assert!(restricted >= 20, "{restricted}");
}

#[test]
fn empty_reuse_is_bit_identical_to_no_reuse() {
    for config in configs() {
        let mut model = model(&config);
        let batch = batch(&model);
        for orders in all_orders(&model) {
            let (scores, grads) = exact(&mut model, &orders, &batch);
            let empty = Matrix::default();
            let none = Reused { rows: empty.view(), slots: &[], aggregates: &[], projected: None };
            let (same, also) = reusing(&mut model, &orders, &batch.exact, batch.x.view(), none, &batch.c);
            assert_eq!(scores.view().host(), same.view().host(), "{config:?} {orders:?}");
            for ((name, a), (_, b)) in grads.iter().zip(&also) {
                assert_eq!(a.view().host(), b.view().host(), "{config:?} {orders:?} {name}");
            }
        }
    }
}

#[test]
fn local_and_global_blocks_save_the_same_rows() {
    for config in configs().iter().filter(|config| config.dropout == 0.0) {
        let model = model(config);
        let batch = batch(&model);
        for orders in all_orders(&model) {
            let table = Table::new(&model, &orders, &batch, true);
            let block = &batch.exact[0];
            let mut rows = Matrix::zeros(block.num_dst, model.layer_out_dim(0));
            let mut saved: Vec<Matrix> = model
                .aggregate_dims(&orders)
                .into_iter()
                .map(|dim| Matrix::zeros(block.num_dst, dim))
                .collect();
            let mut scratch = Activations::default();
            let input = LayerInput { order: orders[0], block, x: batch.x.view(), transformed: &[] };
            let to = BottomRows { rows: &mut rows, at: 0, aggregates: &mut saved, aggregates_at: 0 };
            model.bottom_rows(&pass(true), &input, &mut scratch, to);
            let pairs = std::iter::once((&rows, &table.rows)).chain(saved.iter().zip(&table.saved));
            for (local, global) in pairs {
                for (v, slot) in (block.num_dst - H..).zip(SLOTS.map(|slot| slot as usize)) {
                    let (a, b) = (local.rows(v..v + 1), global.rows(slot..slot + 1));
                    assert_eq!(a.host(), b.host(), "{config:?} {orders:?}");
                }
            }
        }
    }
}

#[test]
fn reused_rows_have_separate_dropout_masks() {
    for name in ["gcn", "pinsage"] {
        for residual in ["none", "linear"] {
            let config = ModelConfig {
                dropout: 0.5,
                hidden: 64,
                activation: "identity".parse().unwrap(),
                residual: residual.parse().unwrap(),
                ..named(name)
            };
            let model = model(&config);
            let batch = batch(&model);
            let orders = &all_orders(&model)[0];
            // reused rows equal computed rows, so any difference is due to the mask
            let mut acts = Activations::default();
            let table = Table::new(&model, orders, &batch, false);
            let pass = pass(true);
            let input = step(orders, &batch.reusing, batch.x.view(), table.reused());
            model.forward_step(&pass, &input, &mut acts);
            let rows = acts.output(0);
            let zeros = |v: usize| rows.rows(v..v + 1).host().iter().map(|&x| x == 0.0).collect::<Vec<_>>();
            let computed = rows.num_rows() - H;
            for behind in computed..rows.num_rows() {
                let dropped = zeros(behind).iter().filter(|&&zero| zero).count();
                assert!((16..=48).contains(&dropped), "{name} {residual}: {dropped} of 64");
                assert!((0..behind).all(|v| zeros(v) != zeros(behind)), "{name} {residual}");
            }
        }
    }
}

#[test]
fn bottom_parameters_are_those_that_rows_depend_on() {
    for config in configs() {
        let mut model = model(&config);
        let batch = batch(&model);
        let orders = all_orders(&model).remove(0);
        let (mut all, mut bottom) = (Vec::new(), Vec::new());
        model.visit(&mut |name, p| all.push((name.to_string(), p.trainable)));
        model.visit_bottom(&mut |name, _| bottom.push(name.to_string()));
        let mut for_change = Vec::new();
        model.visit_bottom_mut(&mut |name, _| for_change.push(name.to_string()));
        assert_eq!(bottom, for_change);
        let before = Table::new(&model, &orders, &batch, false);
        for (i, (name, trainable)) in all.iter().enumerate() {
            if !trainable {
                continue; // running statistics, which training does not read
            }
            let mut moved = model.clone();
            moved.visit_mut(&mut |n, p| {
                if n == name {
                    p.value.view_mut().host().iter_mut().for_each(|x| *x += 0.1);
                }
            });
            let after = Table::new(&moved, &orders, &batch, false);
            let rows = |table: &Table| {
                SLOTS.map(|slot| table.rows.rows(slot as usize..slot as usize + 1).host().to_vec())
            };
            assert_eq!(rows(&before) != rows(&after), bottom.get(i) == Some(name), "{config:?} {name}");
        }
    }
}

/// Runs a step that reuses rows while block 1 leaves out their gradients.
fn restricted_step(config: &ModelConfig, keep: bool) {
    let mut model = model(config);
    let mut batch = batch(&model);
    let orders = [ProductOrder::AggregateFirst; 2];
    batch.reusing[1].grad_src = Some(batch.reusing[0].num_dst);
    batch.reusing[1].transpose();
    let table = Table::new(&model, &orders, &batch, keep);
    reusing(&mut model, &orders, &batch.reusing, batch.x.view(), table.reused(), &batch.c);
}

#[test]
#[should_panic(expected = "saved aggregates require the gradients of all rows")]
fn saved_aggregates_require_all_gradients() {
    restricted_step(&named("gcn"), true);
}

#[test]
#[should_panic(expected = "the norm of layer 0 requires the gradients of all rows")]
fn norms_with_parameters_require_all_gradients() {
    restricted_step(&ModelConfig { norm: "layer".parse().unwrap(), ..named("gcn") }, false);
}
