//! Every backward pass against finite differences of its forward pass, and the conformance tests
//! for every layer of the table.

use clap::ValueEnum;
use graphmill_nn::{
    Epilogue, Matrix, Pass,
    backend::{Activation, Dropout, Reference, ops::Add},
    layer::{self, Linear, NormKind},
    testing::conformance::{self, Case},
};

use crate::support::{Checked, check, dot, nudge, pass, random};

fn epilogues() -> [Epilogue; 2] {
    let dropout = Dropout { p: 0.3, key: 77 };
    [Epilogue::NONE, Epilogue { activation: Activation::Elu, dropout }]
}

/// Calls `assert` with every layer of the table in every variant.
fn every_layer(assert: impl Fn(&mut Case)) {
    for mut case in layer::TABLE.iter().flat_map(conformance::cases) {
        assert(&mut case);
    }
}

#[test]
fn layers_match_finite_differences() {
    every_layer(Case::assert_gradients);
}

#[test]
fn both_orders_compute_the_same_function() {
    every_layer(Case::assert_orders_agree);
}

#[test]
fn global_and_local_blocks_give_the_same_results() {
    every_layer(Case::assert_global_blocks_agree);
}

#[test]
fn restricted_gradients_match_unrestricted_ones() {
    every_layer(Case::assert_restricted_gradients_agree);
}

#[test]
fn transform_first_layers_reject_restricted_blocks() {
    every_layer(Case::assert_restriction_is_refused);
}

#[test]
fn saved_aggregates_give_the_gradients_behind_the_aggregation() {
    every_layer(Case::assert_aggregates_suffice);
    let reusable = |name| {
        let cases = conformance::cases(layer::TABLE.find(name).unwrap());
        cases.iter().any(|case| case.layer.as_reusable().is_some())
    };
    assert!(["sage", "gcn", "gat"].into_iter().all(reusable));
}

#[test]
fn gradients_accumulate() {
    every_layer(Case::assert_gradients_add_up);
}

#[test]
fn empty_blocks_give_zero_gradients() {
    every_layer(Case::assert_empty_blocks);
}

#[test]
fn layers_read_own_rows_only_if_their_spec_declares_it() {
    every_layer(Case::assert_own_rows_are_declared);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    every_layer(Case::assert_threads_agree);
}

#[test]
fn linear_matches_finite_differences() {
    let mut linear = Linear::new(5, 4, true, 1);
    let (mut x, c) = (random(6, 5, 2), random(6, 4, 3));
    for epilogue in epilogues() {
        let mut checked = Checked::default();
        let run = |linear: &Linear, x: &Matrix| {
            let mut out = Matrix::zeros(6, 4);
            linear.forward(&pass(true), x.view(), 0.0, epilogue, out.view_mut());
            out
        };
        let y = run(&linear, &x);
        let (mut grad, mut x_grad) = (c.clone(), Matrix::default());
        linear.visit_mut(&mut |p| p.zero_grad(&Reference));
        linear.backward(&pass(true), x.view(), y.view(), epilogue, &mut grad, Some(&mut x_grad));
        let mut grads = Vec::new();
        linear.visit(&mut |p| grads.push(p.grad.clone()));
        for (n, grad) in grads.iter().enumerate() {
            checked += check("linear", grad.view(), |i, delta| {
                let mut moved = linear.clone();
                let mut m = 0;
                moved.visit_mut(&mut |p| {
                    if m == n {
                        nudge(p, i, delta);
                    }
                    m += 1;
                });
                dot(run(&moved, &x).view(), c.view())
            });
        }
        checked += check("linear x", x_grad.view(), |i, delta| {
            x.view_mut().host()[i] += delta;
            let out = run(&linear, &x);
            x.view_mut().host()[i] -= delta;
            dot(out.view(), c.view())
        });
        checked.assert_all_but_one_in(20, "smooth");
    }
}

#[test]
fn norms_match_finite_differences() {
    let pass: Pass = pass(true);
    for kind in NormKind::value_variants() {
        let Some(mut norm) = kind.make(4) else { continue };
        norm.visit_mut(&mut |p| {
            let moved = random(p.value.num_rows(), 4, 5);
            Add { alpha: 0.3, x: moved.view(), y: p.value.view_mut() }.run(pass.backend);
        });
        let (mut x, c) = (random(6, 4, 6), random(6, 4, 7));
        let mut checked = Checked::default();
        let run = |norm: &dyn layer::Norm, x: &Matrix| {
            let (mut out, mut saved) = (Matrix::zeros(6, 4), [Matrix::default(), Matrix::default()]);
            norm.forward(&pass, x.view(), &mut saved, out.view_mut());
            (out, saved)
        };
        let (_, mut saved) = run(norm.as_ref(), &x);
        let mut grad = c.clone();
        norm.backward(&pass, x.view(), &mut saved, grad.view_mut());
        let mut grads = Vec::new();
        norm.visit(&mut |p| grads.push((p.name, p.grad.clone(), p.trainable)));
        for (n, (param, grad, _)) in grads.iter().enumerate().filter(|(_, g)| g.2) {
            checked += check(&format!("{} {param}", kind), grad.view(), |i, delta| {
                let mut moved = norm.clone();
                let mut m = 0;
                moved.visit_mut(&mut |p| {
                    if m == n {
                        nudge(p, i, delta);
                    }
                    m += 1;
                });
                dot(run(moved.as_ref(), &x).0.view(), c.view())
            });
        }
        checked += check(&format!("{} x", kind), grad.view(), |i, delta| {
            x.view_mut().host()[i] += delta;
            let out = run(norm.as_ref(), &x).0;
            x.view_mut().host()[i] -= delta;
            dot(out.view(), c.view())
        });
        checked.assert_all_but_one_in(20, "smooth");
    }
}
