//! Reused rows that follow the parameters in some directions: against the formula, computed plainly
//! in f64.

use graphmill_nn::model::ResidualKind;

use graphmill_core::keyed::{Stream, key};
use graphmill_nn::{Projected, backend::ops::Add, model::ProjectedRows};

use super::*;

/// Layers that can, with every norm and residual, with and without dropout.
fn able() -> Vec<(ModelConfig, Model, Vec<ProductOrder>)> {
    let mut able = Vec::new();
    for config in configs() {
        let model = model(&config);
        let all = all_orders(&model);
        let orders = all.into_iter().filter(|orders| !model.aggregate_dims(orders).is_empty());
        able.extend(orders.map(|orders| (config.clone(), model.clone(), orders)));
    }
    for name in ["gcn", "sage", "gat"] {
        assert!(able.iter().filter(|(config, ..)| config.model == name).count() >= 12, "{name}");
    }
    able
}

/// The same, without dropout and with even attention.
fn able_exactly() -> impl Iterator<Item = (ModelConfig, Model, Vec<ProductOrder>)> {
    able().into_iter().filter(|(config, ..)| config.dropout == 0.0).map(|(config, mut model, orders)| {
        make_attention_even(&mut model);
        (config, model, orders)
    })
}

/// The model after some updates, of what stands behind the aggregation at least.
fn later(model: &Model, all: bool) -> Model {
    let (mut later, mut seed) = (model.clone(), 900);
    later.visit_mut(&mut |name, p| {
        let behind = !is_attention(name) && !name.starts_with("input.");
        if p.trainable && (all || behind) {
            seed += 1;
            let by = random(p.value.num_rows(), p.value.num_cols(), seed);
            Add { alpha: 0.1, x: by.view(), y: p.value.view_mut() }.run(pass(true).backend);
        }
    });
    later
}

/// `k` orthonormal directions of rows of these widths side by side, by Gram and Schmidt; all of
/// them where there are fewer.
fn directions(widths: &[usize], k: usize) -> Vec<Matrix> {
    let all: usize = widths.iter().sum();
    let mut stream = Stream::new(key(&[all as u64, k as u64]));
    let mut found: Vec<Vec<f64>> = Vec::new();
    while found.len() < k.min(all) {
        let mut next: Vec<f64> = (0..all).map(|_| stream.normal()).collect();
        for other in found.iter().chain(&found) {
            let along: f64 = other.iter().zip(&next).map(|(a, b)| a * b).sum();
            next.iter_mut().zip(other).for_each(|(x, y)| *x -= along * y);
        }
        let norm = next.iter().map(|x| x * x).sum::<f64>().sqrt();
        found.push(next.iter().map(|x| x / norm).collect());
    }
    let mut from = 0;
    let part = |&width: &usize| {
        let data: Vec<f32> =
            found.iter().flat_map(|row| row[from..from + width].iter().map(|&x| x as f32)).collect();
        from += width;
        Matrix::from_slice(found.len(), width, &data)
    };
    widths.iter().map(part).collect()
}

/// A table like [`Table`], of rows that follow the parameters.
struct Following {
    rows: Matrix,
    coordinates: Matrix,
    basis: Vec<Matrix>,
}

impl Following {
    fn new(model: &Model, orders: &[ProductOrder], batch: &Batch, k: usize) -> Self {
        let dims = model.aggregate_dims(orders);
        let basis = directions(&dims, k);
        let k = basis[0].num_rows();
        let Table { mut rows, .. } = Table::new(model, orders, batch, false);
        rows.view_mut().host().fill(f32::NAN);
        let mut coordinates = Matrix::zeros(6, k);
        coordinates.view_mut().host().fill(f32::NAN);
        let computed = batch.reusing[0].num_dst as u32;
        let mut scratch = Activations::default();
        for (at, ids) in [(1, vec![computed + 2, computed + 1]), (4, vec![computed])] {
            let block = rows_of(&batch.exact[0], &ids);
            let mut kept: Vec<Matrix> = dims.iter().map(|&dim| Matrix::zeros(ids.len(), dim)).collect();
            let (pass, x) = (pass(true), batch.x.view());
            let input = LayerInput { order: orders[0], block: &block, x, transformed: &[] };
            let to = BottomRows { rows: &mut rows, at, aggregates: &mut kept, aggregates_at: 0 };
            model.bottom_rows(&pass, &input, &mut scratch, to);
            let to = ProjectedRows { rows: &mut rows, coordinates: &mut coordinates, at };
            model.project_rows(&pass, &basis, &kept, &mut scratch, to);
        }
        Self { rows, coordinates, basis }
    }

    fn reused(&self, learns: bool) -> Reused<'_> {
        let (coordinates, basis) = (self.coordinates.view(), &self.basis[..]);
        let projected = Some(Projected { coordinates, basis, learns });
        Reused { rows: self.rows.view(), slots: &SLOTS, aggregates: &[], projected }
    }
}

/// What multiplies the kept rows that stand side by side, and the bias.
fn plain_weights(model: &Model, heads: usize) -> (Vec<Vec<f64>>, Vec<f64>) {
    let rows = |m: &Matrix| -> Vec<Vec<f64>> {
        (0..m.num_rows()).map(|i| m.rows(i..i + 1).host().iter().map(|&x| f64::from(x)).collect()).collect()
    };
    let (mut weight, mut own, mut residual, mut bias) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    model.visit(&mut |name, p| match name {
        // a head's columns are made from its own sums
        "conv.0.weight" => {
            for h in 0..heads {
                weight.extend(rows(&p.value).into_iter().map(|mut row| {
                    let each = row.len() / heads;
                    let others = row.iter_mut().enumerate().filter(|(i, _)| i / each != h);
                    others.for_each(|(_, x)| *x = 0.0);
                    row
                }));
            }
        }
        "conv.0.neigh.weight" => weight = rows(&p.value),
        "conv.0.self.weight" => own = rows(&p.value),
        "conv.0.bias" => bias = rows(&p.value).remove(0),
        "residual.0.weight" => residual = rows(&p.value),
        _ => {}
    });
    weight.extend(own);
    weight.extend(residual);
    (weight, bias)
}

/// `a W`.
fn times(a: &[f64], weight: &[Vec<f64>]) -> Vec<f64> {
    assert_eq!(a.len(), weight.len());
    let mut y = vec![0.0; weight[0].len()];
    for (x, row) in a.iter().zip(weight) {
        y.iter_mut().zip(row).for_each(|(y, w)| *y += x * w);
    }
    y
}

/// The rows made with `then` as `now` is to read them: `(a - a Bᵀ B) W0 + (a Bᵀ)(B W1) + b1`, and
/// an identity residual, which has no weights.
fn plainly(then: &Model, now: &Model, config: &ModelConfig, table: &Table, basis: &[Matrix]) -> Table {
    let heads = if config.model == "gat" { config.own.get::<GatOptions>().heads } else { 1 };
    let [(then_weight, then_bias), (now_weight, now_bias)] =
        [then, now].map(|model| plain_weights(model, heads));
    let side_by_side = |of: &[Matrix], i: usize| -> Vec<f64> {
        of.iter().flat_map(|part| part.rows(i..i + 1).host().iter().map(|&x| f64::from(x))).collect()
    };
    let mut rows = table.rows.clone();
    for slot in SLOTS.map(|slot| slot as usize) {
        let mut rest = side_by_side(&table.kept, slot);
        let (stored, whole) = (rows.rows_mut(slot..slot + 1), times(&rest, &then_weight));
        let mut projection = vec![0.0; rest.len()];
        for i in 0..basis[0].num_rows() {
            let direction = side_by_side(basis, i);
            let along: f64 = rest.iter().zip(&direction).map(|(a, b)| a * b).sum();
            projection.iter_mut().zip(&direction).for_each(|(x, y)| *x += along * y);
            rest.iter_mut().zip(&direction).for_each(|(x, y)| *x -= along * y);
        }
        let (old, new) = (times(&rest, &then_weight), times(&projection, &now_weight));
        for (i, x) in stored.host().iter_mut().enumerate() {
            let residual = f64::from(*x) - whole[i] - then_bias[i];
            assert!(
                config.residual == ResidualKind::Identity || residual.abs() < 1e-5,
                "{config:?}: {residual} more"
            );
            *x = (old[i] + new[i] + now_bias[i] + residual) as f32;
        }
    }
    Table { rows, kept: Vec::new() }
}

fn output(model: &Model, orders: &[ProductOrder], batch: &Batch, reused: Reused) -> (Matrix, Matrix) {
    let mut acts = Activations::default();
    model.forward_step(&pass(true), &step(orders, &batch.reusing, batch.x.view(), reused), &mut acts);
    let copy = |of: View| Matrix::from_slice(of.num_rows(), of.num_cols(), of.host());
    (copy(acts.output(0)), copy(acts.logits()))
}

/// Gradients are those, but for rounding.
fn assert_same(grads: &[(String, Matrix)], expected: &[(String, Matrix)], skip_before: bool, what: &str) {
    assert_eq!(grads.len(), expected.len());
    for ((name, grad), (_, expected)) in grads.iter().zip(expected) {
        if skip_before && (is_attention(name) || name.starts_with("input.")) {
            continue; // before the aggregation
        }
        let largest = expected.view().host().iter().fold(1e-2, |m: f32, g| m.max(g.abs()));
        let far = distance(grad.view(), expected.view());
        assert!(far < 1e-4 * largest, "{what} {name}: {far} of {largest}");
    }
}

#[test]
fn rows_are_the_formula_s() {
    for (config, model, orders) in able() {
        let batch = batch(&model);
        let now = later(&model, true);
        let table = Table::new(&model, &orders, &batch, true);
        for k in [1, 3, usize::MAX] {
            let following = Following::new(&model, &orders, &batch, k);
            let (rows, scores) = output(&now, &orders, &batch, following.reused(false));
            let plain = plainly(&model, &now, &config, &table, &following.basis);
            let (expected_rows, expected_scores) = output(&now, &orders, &batch, plain.reused());
            for (a, b) in [(rows, expected_rows), (scores, expected_scores)] {
                let far = distance(a.view(), b.view());
                assert!(far < 2e-5, "{config:?} {orders:?} {k}: {far}");
            }
        }
    }
}

#[test]
fn with_the_parameters_they_were_made_with_they_are_exact() {
    for (config, mut model, orders) in able().into_iter().filter(|(config, ..)| config.dropout == 0.0) {
        let batch = batch(&model);
        let (expected, _) = exact(&mut model, &orders, &batch);
        for k in [1, 4, usize::MAX] {
            let following = Following::new(&model, &orders, &batch, k);
            let (_, scores) = output(&model, &orders, &batch, following.reused(true));
            let far = distance(scores.view(), expected.view());
            assert!(far < 1e-5, "{config:?} {orders:?} {k}: {far}");
        }
    }
}

#[test]
fn a_complete_basis_makes_scores_and_gradients_exact() {
    for (config, model, orders) in able_exactly() {
        let batch = batch(&model);
        let following = Following::new(&model, &orders, &batch, usize::MAX);
        let mut now = later(&model, false);
        let x = batch.x.view();
        let reused = following.reused(true);
        let (scores, grads) = reusing(&mut now, &orders, &batch.reusing, x, reused, &batch.c);
        let (expected, expected_grads) = exact(&mut now, &orders, &batch);
        let far = distance(scores.view(), expected.view());
        assert!(far < 1e-5, "{config:?} {orders:?}: {far}");
        assert_same(&grads, &expected_grads, true, &format!("{config:?} {orders:?}"));
        // a smaller one does not: the test would see it
        let following = Following::new(&model, &orders, &batch, 1);
        let (_, scores) = output(&now, &orders, &batch, following.reused(true));
        assert!(distance(scores.view(), expected.view()) > 1e-3, "{config:?} {orders:?}");
    }
}

#[test]
fn where_it_learns_gradients_match_finite_differences() {
    for (config, mut model, orders) in able().into_iter().filter(|(config, ..)| config.dropout > 0.0) {
        if orders.contains(&ProductOrder::TransformFirst) {
            continue; // what is above makes no difference to the rows
        }
        let batch = batch(&model);
        let following = Following::new(&model, &orders, &batch, 3);
        model = later(&model, true);
        let (x, reused) = (batch.x.view(), following.reused(true));
        let (_, grads) = reusing(&mut model, &orders, &batch.reusing, x, reused, &batch.c);
        let (mut checked, mut acts) = (Checked::default(), Activations::default());
        // before the aggregation too: the coordinates are constants, so nothing of the reused rows
        // arrives there
        for (name, grad) in &grads {
            checked += check(&format!("{config:?} {name}"), grad.view(), |i, delta| {
                let change = |model: &mut Model, delta| {
                    model.visit_mut(&mut |n, p| {
                        if n == name {
                            nudge(p, i, delta);
                        }
                    });
                };
                change(&mut model, delta);
                model.forward_step(&pass(true), &step(&orders, &batch.reusing, x, reused), &mut acts);
                change(&mut model, -delta);
                dot(acts.logits(), batch.c.view())
            });
        }
        checked.assert_all_but_one_in(6, &format!("{config:?}"));
    }
}

#[test]
fn where_it_does_not_learn_gradients_are_those_of_constants() {
    let mut restricted = 0;
    for (config, model, orders) in able() {
        let mut batch = batch(&model);
        let following = Following::new(&model, &orders, &batch, 3);
        let kept = Table::new(&model, &orders, &batch, true);
        let mut now = later(&model, true);
        let constants = plainly(&model, &now, &config, &kept, &following.basis);
        let what = format!("{config:?} {orders:?}");
        let (x, reused) = (batch.x.view(), following.reused(false));
        let (_, grads) = reusing(&mut now, &orders, &batch.reusing, x, reused, &batch.c);
        let (_, expected) = reusing(&mut now, &orders, &batch.reusing, x, constants.reused(), &batch.c);
        assert_same(&grads, &expected, false, &what);
        let (_, learned) = reusing(&mut now, &orders, &batch.reusing, x, following.reused(true), &batch.c);
        let bottom = |(name, _): &&(String, Matrix)| name.starts_with("conv.0.") && !is_attention(name);
        for ((name, some), (_, none)) in learned.iter().filter(bottom).zip(grads.iter().filter(bottom)) {
            assert!(distance(some.view(), none.view()) > 1e-4, "{what} {name}");
        }
        if now.may_restrict(&orders, 1) {
            restricted += 1;
            batch.reusing[1].grad_src = Some(batch.reusing[0].num_dst);
            batch.reusing[1].transpose();
            let x = batch.x.view();
            let (_, some) = reusing(&mut now, &orders, &batch.reusing, x, reused, &batch.c);
            for ((name, a), (_, b)) in grads.iter().zip(&some) {
                assert_eq!(a.view().host(), b.view().host(), "{what} {name}");
            }
        }
    }
    assert!(restricted >= 12, "{restricted}");
}

#[test]
#[should_panic(expected = "saved aggregates need the gradients of all rows")]
fn what_learns_is_not_left_without_its_gradients() {
    let mut model = model(&named("gcn"));
    let mut batch = batch(&model);
    let orders = [ProductOrder::AggregateFirst; 2];
    batch.reusing[1].grad_src = Some(batch.reusing[0].num_dst);
    batch.reusing[1].transpose();
    let following = Following::new(&model, &orders, &batch, 2);
    reusing(&mut model, &orders, &batch.reusing, batch.x.view(), following.reused(true), &batch.c);
}
