//! Projected reused rows against their formula, computed in f64.

use graphmill_nn::model::ResidualKind;

use graphmill_core::keyed::{Stream, key};
use graphmill_nn::{Projected, backend::ops::Add, model::ProjectedRows};

use super::*;

/// Configurations that support projection, with every norm and residual, with and without dropout.
fn projectable() -> Vec<(ModelConfig, Model, Vec<ProductOrder>)> {
    let mut projectable = Vec::new();
    for config in configs() {
        let model = model(&config);
        let all = all_orders(&model);
        let orders = all.into_iter().filter(|orders| !model.aggregate_dims(orders).is_empty());
        projectable.extend(orders.map(|orders| (config.clone(), model.clone(), orders)));
    }
    for name in ["gcn", "sage", "gat"] {
        assert!(projectable.iter().filter(|(config, ..)| config.model == name).count() >= 12, "{name}");
    }
    projectable
}

/// The same configurations without dropout, with uniform attention.
fn projectable_exactly() -> impl Iterator<Item = (ModelConfig, Model, Vec<ProductOrder>)> {
    projectable().into_iter().filter(|(config, ..)| config.dropout == 0.0).map(
        |(config, mut model, orders)| {
            make_attention_even(&mut model);
            (config, model, orders)
        },
    )
}

/// The model after updates of all parameters, or of those behind the aggregation only.
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

/// `k` orthonormal directions of concatenated rows of these widths, by Gram-Schmidt; all directions
/// if there are fewer.
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

/// A [`Table`] of projected rows.
struct ProjectedTable {
    rows: Matrix,
    coordinates: Matrix,
    basis: Vec<Matrix>,
}

impl ProjectedTable {
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
            let mut saved: Vec<Matrix> = dims.iter().map(|&dim| Matrix::zeros(ids.len(), dim)).collect();
            let (pass, x) = (pass(true), batch.x.view());
            let input = LayerInput { order: orders[0], block: &block, x, transformed: &[] };
            let to = BottomRows { rows: &mut rows, at, aggregates: &mut saved, aggregates_at: 0 };
            model.bottom_rows(&pass, &input, &mut scratch, to);
            let to = ProjectedRows { rows: &mut rows, coordinates: &mut coordinates, at };
            model.project_rows(&pass, &basis, &saved, &mut scratch, to);
        }
        Self { rows, coordinates, basis }
    }

    fn reused(&self, learns: bool) -> Reused<'_> {
        let (coordinates, basis) = (self.coordinates.view(), &self.basis[..]);
        let projected = Some(Projected { coordinates, basis, learns });
        Reused { rows: self.rows.view(), slots: &SLOTS, aggregates: &[], projected }
    }
}

/// Weights of the concatenated saved rows, and the bias.
fn plain_weights(model: &Model, heads: usize) -> (Vec<Vec<f64>>, Vec<f64>) {
    let rows = |m: &Matrix| -> Vec<Vec<f64>> {
        (0..m.num_rows()).map(|i| m.rows(i..i + 1).host().iter().map(|&x| f64::from(x)).collect()).collect()
    };
    let (mut weight, mut own, mut residual, mut bias) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    model.visit(&mut |name, p| match name {
        // a head's columns are computed from its own sums
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

/// Rows computed with `then` as `now` must read them: `(a - a Bᵀ B) W0 + (a Bᵀ)(B W1) + b1`, plus
/// an identity residual, which has no weights.
fn expected_rows(then: &Model, now: &Model, config: &ModelConfig, table: &Table, basis: &[Matrix]) -> Table {
    let heads = if config.model == "gat" { config.own.get::<GatOptions>().heads } else { 1 };
    let [(then_weight, then_bias), (now_weight, now_bias)] =
        [then, now].map(|model| plain_weights(model, heads));
    let side_by_side = |of: &[Matrix], i: usize| -> Vec<f64> {
        of.iter().flat_map(|part| part.rows(i..i + 1).host().iter().map(|&x| f64::from(x))).collect()
    };
    let mut rows = table.rows.clone();
    for slot in SLOTS.map(|slot| slot as usize) {
        let mut rest = side_by_side(&table.saved, slot);
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
    Table { rows, saved: Vec::new() }
}

fn output(model: &Model, orders: &[ProductOrder], batch: &Batch, reused: Reused) -> (Matrix, Matrix) {
    let mut acts = Activations::default();
    model.forward_step(&pass(true), &step(orders, &batch.reusing, batch.x.view(), reused), &mut acts);
    let copy = |of: View| Matrix::from_slice(of.num_rows(), of.num_cols(), of.host());
    (copy(acts.output(0)), copy(acts.logits()))
}

/// Asserts that gradients agree up to rounding.
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
fn projected_rows_match_their_formula() {
    for (config, model, orders) in projectable() {
        let batch = batch(&model);
        let now = later(&model, true);
        let table = Table::new(&model, &orders, &batch, true);
        for k in [1, 3, usize::MAX] {
            let projected = ProjectedTable::new(&model, &orders, &batch, k);
            let (rows, scores) = output(&now, &orders, &batch, projected.reused(false));
            let plain = expected_rows(&model, &now, &config, &table, &projected.basis);
            let (expected_rows, expected_scores) = output(&now, &orders, &batch, plain.reused());
            for (a, b) in [(rows, expected_rows), (scores, expected_scores)] {
                let far = distance(a.view(), b.view());
                assert!(far < 2e-5, "{config:?} {orders:?} {k}: {far}");
            }
        }
    }
}

#[test]
fn unchanged_parameters_give_exact_scores() {
    for (config, mut model, orders) in projectable().into_iter().filter(|(config, ..)| config.dropout == 0.0)
    {
        let batch = batch(&model);
        let (expected, _) = exact(&mut model, &orders, &batch);
        for k in [1, 4, usize::MAX] {
            let projected = ProjectedTable::new(&model, &orders, &batch, k);
            let (_, scores) = output(&model, &orders, &batch, projected.reused(true));
            let far = distance(scores.view(), expected.view());
            assert!(far < 1e-5, "{config:?} {orders:?} {k}: {far}");
        }
    }
}

#[test]
fn a_complete_basis_makes_scores_and_gradients_exact() {
    for (config, model, orders) in projectable_exactly() {
        let batch = batch(&model);
        let projected = ProjectedTable::new(&model, &orders, &batch, usize::MAX);
        let mut now = later(&model, false);
        let x = batch.x.view();
        let reused = projected.reused(true);
        let (scores, grads) = reusing(&mut now, &orders, &batch.reusing, x, reused, &batch.c);
        let (expected, expected_grads) = exact(&mut now, &orders, &batch);
        let far = distance(scores.view(), expected.view());
        assert!(far < 1e-5, "{config:?} {orders:?}: {far}");
        assert_same(&grads, &expected_grads, true, &format!("{config:?} {orders:?}"));
        // a smaller basis does not, so the test can detect an error
        let projected = ProjectedTable::new(&model, &orders, &batch, 1);
        let (_, scores) = output(&now, &orders, &batch, projected.reused(true));
        assert!(distance(scores.view(), expected.view()) > 1e-3, "{config:?} {orders:?}");
    }
}

#[test]
fn learning_projections_match_finite_differences() {
    for (config, mut model, orders) in projectable().into_iter().filter(|(config, ..)| config.dropout > 0.0) {
        if orders.contains(&ProductOrder::TransformFirst) {
            continue; // the layers above do not change the rows
        }
        let batch = batch(&model);
        let projected = ProjectedTable::new(&model, &orders, &batch, 3);
        model = later(&model, true);
        let (x, reused) = (batch.x.view(), projected.reused(true));
        let (_, grads) = reusing(&mut model, &orders, &batch.reusing, x, reused, &batch.c);
        let (mut checked, mut acts) = (Checked::default(), Activations::default());
        // parameters before the aggregation too: the coordinates are constants, so they receive no
        // gradient from the reused rows
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
fn fixed_projections_have_the_gradients_of_constants() {
    let mut restricted = 0;
    for (config, model, orders) in projectable() {
        let mut batch = batch(&model);
        let projected = ProjectedTable::new(&model, &orders, &batch, 3);
        let saved = Table::new(&model, &orders, &batch, true);
        let mut now = later(&model, true);
        let constants = expected_rows(&model, &now, &config, &saved, &projected.basis);
        let what = format!("{config:?} {orders:?}");
        let (x, reused) = (batch.x.view(), projected.reused(false));
        let (_, grads) = reusing(&mut now, &orders, &batch.reusing, x, reused, &batch.c);
        let (_, expected) = reusing(&mut now, &orders, &batch.reusing, x, constants.reused(), &batch.c);
        assert_same(&grads, &expected, false, &what);
        let (_, learned) = reusing(&mut now, &orders, &batch.reusing, x, projected.reused(true), &batch.c);
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
#[should_panic(expected = "saved aggregates require the gradients of all rows")]
fn learning_projections_require_all_gradients() {
    let mut model = model(&named("gcn"));
    let mut batch = batch(&model);
    let orders = [ProductOrder::AggregateFirst; 2];
    batch.reusing[1].grad_src = Some(batch.reusing[0].num_dst);
    batch.reusing[1].transpose();
    let projected = ProjectedTable::new(&model, &orders, &batch, 2);
    reusing(&mut model, &orders, &batch.reusing, batch.x.view(), projected.reused(true), &batch.c);
}
