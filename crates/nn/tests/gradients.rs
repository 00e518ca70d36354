//! Every backward pass against finite differences of its forward pass, and the two orders and
//! the two kinds of blocks against each other.

mod support;

use graphmill_graph::{Block, table};
use graphmill_nn::{
    Finish, Layer, LayerConfig, Matrix, Order, Param, Pass, Saved, View,
    backend::{Activation, Dropout, Reference},
    layer::{self, Linear, norm},
};
use support::{Checked, check, distance, dot, global, nudge, pass, random, random_block};

const D: usize = 7;
const S: usize = 12;

/// Every layer in the forms it has, with whether its block is weighted.
fn layers() -> Vec<(&'static str, Box<dyn Layer>, bool)> {
    let base = LayerConfig { in_dim: 5, out_dim: 6, key: 3, ..LayerConfig::default() };
    let pool = LayerConfig { aggregator: "max-pool".into(), ..base.clone() };
    let heads = LayerConfig { heads: 3, attention_dropout: 0.4, ..base.clone() };
    let mean = LayerConfig { heads: 2, concat: false, out_dim: 3, ..base.clone() };
    let one_head = LayerConfig { concat: false, ..base.clone() };
    let batch = LayerConfig { batch_norm: true, ..base.clone() };
    let smooth = LayerConfig { activation: Activation::Elu, ..base.clone() };
    let classes = LayerConfig { classifies: true, ..smooth.clone() };
    // a layer of one hop; hops of one of three, whose four parts of 10 columns are unequal; scores of two powers
    let hop = LayerConfig { in_dim: 5, out_dim: 5, ..base.clone() };
    let first = LayerConfig { out_dim: 10, hops: 3, ..base.clone() };
    let between = LayerConfig { hop: 2, ..first.clone() };
    let last = LayerConfig { hop: 3, ..first.clone() };
    let scores = LayerConfig { out_dim: 3, classifies: true, ..base.clone() };
    let unbiased = LayerConfig { bias: false, ..base.clone() };
    [
        ("sage", &base, false),
        ("sage", &base, true),
        ("sage", &unbiased, false),
        ("sage", &pool, false),
        ("gcn", &base, true),
        ("gcn", &unbiased, true),
        ("gat", &base, false),
        ("gat", &heads, false),
        ("gat", &mean, false),
        ("gat", &one_head, false),
        ("gin", &base, false),
        ("gin", &base, true),
        ("gin", &batch, false),
        ("mixhop", &hop, true),
        ("mixhop", &first, true),
        ("mixhop", &between, true),
        ("mixhop", &last, true),
        ("mixhop", &scores, true),
        ("pinsage", &smooth, false),
        ("pinsage", &smooth, true),
        ("pinsage", &base, true),
        ("pinsage", &classes, true),
    ]
    .map(|(name, config, weighted)| {
        let mut layer = (table::find("layer", layer::TABLE, name).unwrap().make)(config).unwrap();
        away_from_zero(layer.as_mut());
        (name, layer, weighted)
    })
    .into()
}

/// Moves what starts at zero or one: a gradient that is right only there is wrong.
fn away_from_zero(layer: &mut dyn Layer) {
    let mut seed = 100;
    layer.visit_mut(&mut |p| {
        if p.trainable && p.value.num_rows() == 1 {
            seed += 1;
            let moved = random(1, p.value.num_cols(), seed);
            for (x, m) in p.value.view_mut().host().iter_mut().zip(moved.view().host()) {
                *x += 0.3 * m;
            }
        }
    });
}

fn finishes() -> [Finish; 2] {
    let dropout = Dropout { p: 0.3, key: 77 };
    [Finish::NONE, Finish { activation: Activation::Elu, dropout }]
}

fn forward(
    layer: &dyn Layer,
    order: Order,
    block: &Block,
    x: View,
    finish: Finish,
    saved: &mut Saved,
) -> Matrix {
    let mut out = Matrix::zeros(block.num_dst, layer.out_dim());
    layer.forward(&pass(true), order, block, x, finish, saved, out.view_mut());
    out
}

/// All gradients of `dot(forward, c)`, and the input's.
fn backward(
    layer: &mut dyn Layer,
    order: Order,
    block: &Block,
    x: View,
    finish: Finish,
    c: &Matrix,
    input: bool,
) -> (Vec<Matrix>, Matrix) {
    let (mut saved, mut grad, mut x_grad) = (Saved::default(), c.clone(), Matrix::default());
    let y = forward(layer, order, block, x, finish, &mut saved);
    layer.visit_mut(&mut |p| p.zero_grad(&Reference));
    let wanted = input.then_some(&mut x_grad);
    layer.backward(&pass(true), order, block, x, y.view(), finish, &mut saved, &mut grad, wanted);
    if finish == Finish::NONE {
        assert_eq!(distance(grad.view(), c.view()), 0.0, "the gradient is to stay where there is no finish");
    }
    let mut grads = Vec::new();
    layer.visit(&mut |p| grads.push(p.grad.clone()));
    (grads, x_grad)
}

fn nth(layer: &mut dyn Layer, n: usize, change: impl Fn(&mut Param)) {
    let mut i = 0;
    layer.visit_mut(&mut |p| {
        if i == n {
            change(p);
        }
        i += 1;
    });
}

#[test]
fn layers_match_finite_differences() {
    for (name, mut layer, weighted) in layers() {
        let block = random_block(D, S, weighted, 5);
        let mut x = random(S, layer.in_dim(), 6);
        let c = random(D, layer.out_dim(), 7);
        for &order in layer.orders() {
            for finish in finishes() {
                let mut checked = Checked::default();
                let (grads, x_grad) = backward(layer.as_mut(), order, &block, x.view(), finish, &c, true);
                let mut params = Vec::new();
                layer.visit(&mut |p| params.push((p.name, p.trainable)));
                for (n, (param, trainable)) in params.into_iter().enumerate() {
                    if !trainable {
                        assert!(grads[n].view().host().iter().all(|&g| g == 0.0));
                        continue;
                    }
                    let what = format!("{name} {order:?} {finish:?} {param}");
                    checked += check(&what, grads[n].view(), |i, delta| {
                        nth(layer.as_mut(), n, |p| nudge(p, i, delta));
                        let out =
                            forward(layer.as_ref(), order, &block, x.view(), finish, &mut Saved::default());
                        nth(layer.as_mut(), n, |p| nudge(p, i, -delta));
                        dot(out.view(), c.view())
                    });
                }
                checked += check(&format!("{name} {order:?} {finish:?} x"), x_grad.view(), |i, delta| {
                    x.view_mut().host()[i] += delta;
                    let out = forward(layer.as_ref(), order, &block, x.view(), finish, &mut Saved::default());
                    x.view_mut().host()[i] -= delta;
                    dot(out.view(), c.view())
                });
                checked.assert_all_but_one_in(6, &format!("{name} {order:?} {finish:?}"));
            }
        }
    }
}

#[test]
fn both_orders_are_the_same_function() {
    for (name, mut layer, weighted) in layers() {
        let &[one, other] = layer.orders() else { continue };
        let block = random_block(D, S, weighted, 8);
        let (x, c) = (random(S, layer.in_dim(), 9), random(D, layer.out_dim(), 10));
        for finish in finishes() {
            let y = [one, other]
                .map(|order| forward(layer.as_ref(), order, &block, x.view(), finish, &mut Saved::default()));
            assert!(distance(y[0].view(), y[1].view()) < 1e-5, "{name}");
            let [(grads, x_grad), (other_grads, other_x_grad)] =
                [one, other].map(|order| backward(layer.as_mut(), order, &block, x.view(), finish, &c, true));
            assert!(distance(x_grad.view(), other_x_grad.view()) < 1e-5, "{name}");
            for (a, b) in grads.iter().zip(&other_grads) {
                assert!(distance(a.view(), b.view()) < 1e-5, "{name}");
            }
        }
    }
}

#[test]
fn global_and_local_blocks_are_the_same_function() {
    for (name, mut layer, weighted) in layers() {
        let block = random_block(D, S, weighted, 11);
        let (x, c) = (random(S, layer.in_dim(), 12), random(D, layer.out_dim(), 13));
        let (table_block, table) = global(&block, &x);
        let finish = finishes()[1];
        for &order in layer.orders() {
            let y = forward(layer.as_ref(), order, &block, x.view(), finish, &mut Saved::default());
            let saved = &mut Saved::default();
            let global_y = forward(layer.as_ref(), order, &table_block, table.view(), finish, saved);
            assert_eq!(distance(y.view(), global_y.view()), 0.0, "{name} {order:?}");
            if order == Order::AggregateFirst {
                let (grads, _) = backward(layer.as_mut(), order, &block, x.view(), finish, &c, false);
                let (global_grads, _) =
                    backward(layer.as_mut(), order, &table_block, table.view(), finish, &c, false);
                for (a, b) in grads.iter().zip(&global_grads) {
                    assert_eq!(distance(a.view(), b.view()), 0.0, "{name}");
                }
            }
        }
    }
}

#[test]
fn a_gradient_of_the_first_sources_is_the_same_as_among_all() {
    for (name, mut layer, weighted) in layers() {
        let mut block = random_block(D, S, weighted, 18);
        let (x, c) = (random(S, layer.in_dim(), 19), random(D, layer.out_dim(), 20));
        if !layer.orders().contains(&Order::AggregateFirst) {
            continue;
        }
        let order = Order::AggregateFirst;
        for finish in finishes() {
            let (grads, x_grad) = backward(layer.as_mut(), order, &block, x.view(), finish, &c, true);
            for wanting in [D, D + 2, S] {
                block.grad_src = Some(wanting);
                block.transpose();
                let (some, x_some) = backward(layer.as_mut(), order, &block, x.view(), finish, &c, true);
                assert_eq!(x_some.view().host(), x_grad.rows(0..wanting).host(), "{name} {wanting}");
                for (a, b) in grads.iter().zip(&some) {
                    assert_eq!(a.view().host(), b.view().host(), "{name} {wanting}");
                }
            }
        }
    }
}

#[test]
fn a_layer_that_transforms_first_says_that_it_needs_all_gradients() {
    for (name, mut layer, weighted) in layers() {
        if !layer.orders().contains(&Order::TransformFirst) {
            continue;
        }
        let mut block = random_block(D, S, weighted, 21);
        block.grad_src = Some(D);
        block.transpose();
        let (x, c) = (random(S, layer.in_dim(), 22), random(D, layer.out_dim(), 23));
        let run =
            || backward(layer.as_mut(), Order::TransformFirst, &block, x.view(), Finish::NONE, &c, true);
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
        assert!(panic.downcast_ref::<String>().unwrap().contains("may_restrict"), "{name}");
    }
}

#[test]
fn what_was_kept_gives_the_gradients_behind_the_aggregation() {
    let mut seen = 0;
    for (name, mut layer, weighted) in
        layers().into_iter().filter(|(_, layer, _)| !layer.kept_dims().is_empty())
    {
        seen += 1;
        // attention that is the same for all hands the weights no gradient of its own
        let is_attention = |p: &Param| ["source", "target"].contains(&p.name);
        layer.visit_mut(&mut |p| {
            if is_attention(p) {
                p.value.view_mut().host().fill(0.0);
            }
        });
        let block = random_block(D, S, weighted, 24);
        let (x, c) = (random(S, layer.in_dim(), 25), random(D, layer.out_dim(), 26));
        let order = Order::AggregateFirst;
        let (grads, _) = backward(layer.as_mut(), order, &block, x.view(), Finish::NONE, &c, false);
        let mut kept: Vec<Matrix> =
            layer.kept_dims().into_iter().map(|dim| Matrix::zeros(D + 2, dim)).collect();
        let mut saved = Saved::default();
        let y = forward(layer.as_ref(), order, &block, x.view(), Finish::NONE, &mut saved);
        layer.keep(&pass(true), &block, x.view(), &saved, 2, &mut kept);
        let rows = |m: &Matrix| Matrix::from_slice(D, m.num_cols(), m.rows(2..D + 2).host());
        let kept: Vec<Matrix> = kept.iter().map(rows).collect();
        let mut made = Matrix::zeros(D, layer.out_dim());
        layer.rows_of_kept(&pass(true), &kept, &mut Saved::default(), made.view_mut());
        Finish::NONE.apply(&Reference, layer.kept_bias(), made.view_mut());
        assert!(distance(made.view(), y.view()) < 1e-5, "{name}: rows of what was kept");
        layer.visit_mut(&mut |p| p.zero_grad(&Reference));
        layer.backward_kept(&pass(true), &kept, &mut Saved::default(), c.view());
        let mut n = 0;
        layer.visit(&mut |p| {
            let far = distance(p.grad.view(), grads[n].view());
            // the bias is handed its gradient by who finishes the rows
            let apart = is_attention(p) || p.name == "bias";
            assert!(apart || far < 1e-5, "{name} {}: {far}", p.name);
            n += 1;
        });
    }
    assert_eq!(seen, 9);
}

#[test]
fn gradients_add_up() {
    for (name, mut layer, weighted) in layers() {
        let block = random_block(D, S, weighted, 14);
        let (x, c) = (random(S, layer.in_dim(), 15), random(D, layer.out_dim(), 16));
        let order = layer.orders()[0];
        let (once, _) = backward(layer.as_mut(), order, &block, x.view(), Finish::NONE, &c, true);
        let (mut saved, mut grad) = (Saved::default(), c.clone());
        let y = forward(layer.as_ref(), order, &block, x.view(), Finish::NONE, &mut saved);
        let y = y.view();
        layer.backward(&pass(true), order, &block, x.view(), y, Finish::NONE, &mut saved, &mut grad, None);
        let mut n = 0;
        layer.visit(&mut |p| {
            let twice: Vec<f32> = once[n].view().host().iter().map(|g| 2.0 * g).collect();
            let twice = Matrix::from_slice(p.grad.num_rows(), p.grad.num_cols(), &twice);
            assert!(distance(p.grad.view(), twice.view()) < 1e-4, "{name} {}", p.name);
            n += 1;
        });
    }
}

#[test]
fn a_block_without_rows_is_no_trouble() {
    for (name, mut layer, _) in layers() {
        let mut block = Block { num_src: 3, indptr: vec![0], ..Block::default() };
        block.transpose();
        let x = random(3, layer.in_dim(), 17);
        let c = Matrix::zeros(0, layer.out_dim());
        for &order in layer.orders() {
            let (_, x_grad) = backward(layer.as_mut(), order, &block, x.view(), Finish::NONE, &c, true);
            assert!(x_grad.view().host().iter().all(|&g| g == 0.0), "{name}");
        }
    }
}

#[test]
fn linear_matches_finite_differences() {
    let mut linear = Linear::new(5, 4, true, 1);
    let (mut x, c) = (random(6, 5, 2), random(6, 4, 3));
    for finish in finishes() {
        let mut checked = Checked::default();
        let run = |linear: &Linear, x: &Matrix| {
            let mut out = Matrix::zeros(6, 4);
            linear.forward(&pass(true), x.view(), 0.0, finish, out.view_mut());
            out
        };
        let y = run(&linear, &x);
        let (mut grad, mut x_grad) = (c.clone(), Matrix::default());
        linear.visit_mut(&mut |p| p.zero_grad(&Reference));
        linear.backward(&pass(true), x.view(), y.view(), finish, &mut grad, Some(&mut x_grad));
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
    for entry in norm::NORMS {
        let Some(mut norm) = (entry.make)(4) else { continue };
        norm.visit_mut(&mut |p| {
            let moved = random(p.value.num_rows(), 4, 5);
            pass.backend.add(0.3, moved.view(), p.value.view_mut());
        });
        let (mut x, c) = (random(6, 4, 6), random(6, 4, 7));
        let mut checked = Checked::default();
        let run = |norm: &dyn layer::Norm, x: &Matrix| {
            let (mut out, mut kept) = (Matrix::zeros(6, 4), [Matrix::default(), Matrix::default()]);
            norm.forward(&pass, x.view(), &mut kept, out.view_mut());
            (out, kept)
        };
        let (_, mut kept) = run(norm.as_ref(), &x);
        let mut grad = c.clone();
        norm.backward(&pass, x.view(), &mut kept, grad.view_mut());
        let mut grads = Vec::new();
        norm.visit(&mut |p| grads.push((p.name, p.grad.clone(), p.trainable)));
        for (n, (param, grad, _)) in grads.iter().enumerate().filter(|(_, g)| g.2) {
            checked += check(&format!("{} {param}", entry.name), grad.view(), |i, delta| {
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
        checked += check(&format!("{} x", entry.name), grad.view(), |i, delta| {
            x.view_mut().host()[i] += delta;
            let out = run(norm.as_ref(), &x).0;
            x.view_mut().host()[i] -= delta;
            dot(out.view(), c.view())
        });
        checked.assert_all_but_one_in(20, "smooth");
    }
}
