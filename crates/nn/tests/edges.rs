//! Layers with rows of edges: gradients against finite differences, formulas against plain loops,
//! and the number of threads.

use graphmill_core::{Block, options::OwnOptions};
use graphmill_nn::{
    Epilogue, LayerConfig, Matrix, Pass, Saved,
    backend::{Activation, Backend, Cpu, Dropout, Reference},
    layer::{
        GatOptions,
        edge::{EdgeGrads, EdgeInput, EdgeLayer, EdgeLayerConfig, EdgeRows, TABLE},
    },
};
use proptest::prelude::*;

use crate::support::{Checked, check, distance, dot, nudge, pass, random, random_block};

const F: usize = 5;
const K: usize = 3;

fn config(out_dim: usize, heads: usize, concat: bool) -> EdgeLayerConfig {
    let gat = GatOptions { heads, out_heads: heads, attention_dropout: 0.0 };
    let own = OwnOptions::default().with(gat);
    let nodes = LayerConfig { in_dim: F, out_dim, concat, key: 3, own, ..LayerConfig::default() };
    // blocks of the tests have at most 3 edges of a destination
    EdgeLayerConfig { nodes, edge_dim: K, slots: 4, dropout: 0.0 }
}

/// Every layer of the table in its variants, with parameters away from their first values.
fn every_layer() -> Vec<(String, Box<dyn EdgeLayer>)> {
    let plain = config(6, 2, true);
    let unbiased = EdgeLayerConfig { nodes: LayerConfig { bias: false, ..plain.nodes.clone() }, ..plain };
    let norm = EdgeLayerConfig { nodes: LayerConfig { batch_norm: true, ..plain.nodes.clone() }, ..plain };
    let dropout = GatOptions { heads: 2, out_heads: 2, attention_dropout: 0.4 };
    let own = OwnOptions::default().with(dropout);
    let dropped = EdgeLayerConfig { nodes: LayerConfig { own, ..plain.nodes.clone() }, ..plain };
    let mut layers = Vec::new();
    for entry in &TABLE {
        let mut of = vec![("plain", plain.clone()), ("unbiased", unbiased.clone())];
        match entry.name {
            "gine" => of.push(("norm", norm.clone())),
            "mixer" => of.push(("inner dropout", EdgeLayerConfig { dropout: 0.3, ..plain.clone() })),
            "gatv2" => of.extend([("mean", config(3, 2, false)), ("dropout", dropped.clone())]),
            _ => {}
        }
        for (name, config) in of {
            let mut layer = (entry.make)(&config).unwrap();
            let mut seed = 50;
            layer.visit_mut(&mut |p| {
                seed += 1;
                let moved = random(p.value.num_rows(), p.value.num_cols(), seed);
                let values = p.value.view_mut().host().iter_mut().zip(moved.view().host());
                // statistics of a norm stay positive
                values.for_each(|(x, y)| *x += if p.trainable { 0.3 * y } else { 0.0 });
            });
            layers.push((format!("{} {name}", entry.name), layer));
        }
    }
    layers
}

fn forward(
    layer: &dyn EdgeLayer,
    pass: &Pass,
    block: &Block,
    [x, edges]: [&Matrix; 2],
    epilogue: Epilogue,
    saved: &mut Saved,
) -> Matrix {
    let mut out = Matrix::zeros(block.num_dst, layer.spec().out_dim);
    let input = EdgeInput { block, x: x.view(), edges: edges.view() };
    layer.forward(pass, &input, epilogue, saved, out.view_mut());
    out
}

#[test]
fn layers_match_finite_differences() {
    let block = random_block(7, 12, false, 1);
    let elu = Epilogue { activation: Activation::Elu, dropout: Dropout { p: 0.3, key: 77 } };
    for (name, mut layer) in every_layer() {
        let (mut x, mut edges) = (random(12, F, 2), random(block.num_edges(), K, 3));
        let c = random(7, layer.spec().out_dim, 4);
        for epilogue in [Epilogue::NONE, elu] {
            let mut checked = Checked::default();
            let mut saved = Saved::default();
            let run = |layer: &dyn EdgeLayer, x: &Matrix, edges: &Matrix| {
                let out = forward(layer, &pass(true), &block, [x, edges], epilogue, &mut Saved::default());
                dot(out.view(), c.view())
            };
            let y = forward(layer.as_ref(), &pass(true), &block, [&x, &edges], epilogue, &mut saved);
            layer.visit_mut(&mut |p| p.zero_grad(&Reference));
            let (mut grad, mut x_grad, mut edge_grad) = (c.clone(), Matrix::default(), Matrix::default());
            let input = EdgeInput { block: &block, x: x.view(), edges: edges.view() };
            let grads = EdgeGrads {
                y: y.view(),
                grad: &mut grad,
                x_grad: Some(&mut x_grad),
                edge_grad: Some(&mut edge_grad),
            };
            layer.clone().backward(&pass(true), &input, epilogue, &mut saved.clone(), grads);
            let before = layer.clone();
            let mut grad = c.clone();
            let grads = EdgeGrads { y: y.view(), grad: &mut grad, x_grad: None, edge_grad: None };
            layer.backward(&pass(true), &input, epilogue, &mut saved, grads);
            let mut params = Vec::new();
            layer.visit(&mut |p| params.push((p.name, p.grad.clone(), p.trainable)));
            for (n, (param, grad, _)) in params.iter().enumerate().filter(|(_, p)| p.2) {
                checked += check(&format!("{name} {param}"), grad.view(), |i, delta| {
                    let mut moved = before.clone();
                    let mut m = 0;
                    moved.visit_mut(&mut |p| {
                        if m == n {
                            nudge(p, i, delta);
                        }
                        m += 1;
                    });
                    run(moved.as_ref(), &x, &edges)
                });
            }
            checked += check(&format!("{name} x"), x_grad.view(), |i, delta| {
                x.view_mut().host()[i] += delta;
                let value = run(before.as_ref(), &x, &edges);
                x.view_mut().host()[i] -= delta;
                value
            });
            checked += check(&format!("{name} edges"), edge_grad.view(), |i, delta| {
                edges.view_mut().host()[i] += delta;
                let value = run(before.as_ref(), &x, &edges);
                edges.view_mut().host()[i] -= delta;
                value
            });
            checked.assert_all_but_one_in(6, &name);
        }
    }
}

#[test]
fn gradients_accumulate_and_backends_agree() {
    let block = random_block(40, 60, false, 9);
    for (name, layer) in every_layer() {
        let (x, edges) = (random(60, F, 2), random(block.num_edges(), K, 3));
        let c = random(40, layer.spec().out_dim, 4);
        let run = |backend: &dyn Backend, times: usize| {
            let pass = Pass { backend, training: true, key: 42 };
            let (mut layer, mut saved) = (layer.clone(), Saved::default());
            layer.visit_mut(&mut |p| p.zero_grad(backend));
            let (mut x_grad, mut edge_grad) = (Matrix::default(), Matrix::default());
            let mut out = Vec::new();
            for _ in 0..times {
                let y = forward(layer.as_ref(), &pass, &block, [&x, &edges], Epilogue::NONE, &mut saved);
                let mut grad = c.clone();
                let input = EdgeInput { block: &block, x: x.view(), edges: edges.view() };
                let grads = EdgeGrads {
                    y: y.view(),
                    grad: &mut grad,
                    x_grad: Some(&mut x_grad),
                    edge_grad: Some(&mut edge_grad),
                };
                layer.backward(&pass, &input, Epilogue::NONE, &mut saved, grads);
                out = vec![y, x_grad.clone(), edge_grad.clone()];
            }
            layer.visit(&mut |p| out.extend(p.trainable.then(|| p.grad.clone())));
            out
        };
        // destinations without edges have equal slots, whose norms multiply rounding by 300
        let limit = if name.starts_with("mixer") { 1e-3 } else { 2e-4 };
        let reference = run(&Reference, 1);
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let found = pool.install(|| run(&Cpu::default(), 1));
            for (i, (a, b)) in found.iter().zip(&reference).enumerate() {
                let error = distance(a.view(), b.view());
                assert!(error < limit, "{name}: result {i} differs by {error}");
            }
        }
        let twice = run(&Reference, 2);
        for (a, b) in twice.iter().zip(&reference).skip(3) {
            let factor = b.view().host().iter().zip(a.view().host());
            assert!(factor.clone().all(|(one, two)| (2.0 * one - two).abs() < 1e-3), "{name}");
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let block = random_block(3000, 4000, false, 9);
    for (name, layer) in every_layer() {
        let (x, edges) = (random(4000, F, 2), random(block.num_edges(), K, 3));
        let c = random(3000, layer.spec().out_dim, 4);
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let backend = Cpu::default();
                let pass = Pass { backend: &backend, training: true, key: 42 };
                let (mut layer, mut saved) = (layer.clone(), Saved::default());
                let y = forward(layer.as_ref(), &pass, &block, [&x, &edges], Epilogue::NONE, &mut saved);
                let (mut grad, mut x_grad, mut edge_grad) = (c.clone(), Matrix::default(), Matrix::default());
                let input = EdgeInput { block: &block, x: x.view(), edges: edges.view() };
                let grads = EdgeGrads {
                    y: y.view(),
                    grad: &mut grad,
                    x_grad: Some(&mut x_grad),
                    edge_grad: Some(&mut edge_grad),
                };
                layer.backward(&pass, &input, Epilogue::NONE, &mut saved, grads);
                let mut bits: Vec<u32> = Vec::new();
                let mut take = |x: &Matrix| bits.extend(x.view().host().iter().map(|x| x.to_bits()));
                [&y, &x_grad, &edge_grad].into_iter().for_each(&mut take);
                layer.visit(&mut |p| take(&p.grad));
                bits
            })
        };
        assert!(run(1) == run(3), "{name}");
    }
}

#[test]
fn formulas_hold_on_a_small_block() {
    // destination 0 with edges from sources 1 and 2
    let mut block =
        Block { num_dst: 1, num_src: 3, indptr: vec![0, 2], indices: vec![1, 2], ..Block::default() };
    block.transpose();
    let x = Matrix::from_slice(3, 1, &[1.0, 2.0, -3.0]);
    let edges = Matrix::from_slice(2, 1, &[0.5, 1.0]);
    let nodes = LayerConfig {
        in_dim: 1,
        out_dim: 1,
        own: OwnOptions::default().with(GatOptions { heads: 1, ..GatOptions::default() }),
        ..LayerConfig::default()
    };
    let run = |name: &str, values: &[(&str, f32)]| {
        let config = EdgeLayerConfig { nodes: nodes.clone(), edge_dim: 1, ..EdgeLayerConfig::default() };
        let mut layer = (TABLE.find(name).unwrap().make)(&config).unwrap();
        layer.visit_mut(&mut |p| {
            let value = values.iter().find(|(name, _)| *name == p.name);
            p.value.view_mut().host()[0] = value.unwrap_or_else(|| panic!("no value of {}", p.name)).1;
        });
        let out = forward(
            layer.as_ref(),
            &pass(false),
            &block,
            [&x, &edges],
            Epilogue::NONE,
            &mut Saved::default(),
        );
        out.view().host()[0]
    };
    let relu = |x: f32| x.max(0.0);
    let sum = 1.5 + relu(2.0 + 2.0 * 0.5 + 0.1) + relu(-3.0 + 2.0 + 0.1);
    let gine = [
        ("eps", 0.5),
        ("edge.weight", 2.0),
        ("edge.bias", 0.1),
        ("mlp.0.weight", 3.0),
        ("mlp.0.bias", -1.0),
        ("mlp.1.weight", 0.5),
        ("mlp.1.bias", 0.25),
    ];
    assert!((run("gine", &gine) - (0.5 * relu(3.0 * sum - 1.0) + 0.25)).abs() < 1e-5);
    let sage = [("neigh.weight", 2.0), ("edge.weight", 3.0), ("self.weight", 5.0), ("bias", 0.5)];
    assert!((run("sage", &sage) - (2.0 * -0.5 + 3.0 * 0.75 + 5.0 + 0.5)).abs() < 1e-5);
    let gat = [
        ("left.weight", 2.0),
        ("right.weight", -1.0),
        ("right.bias", 0.2),
        ("edge.weight", 4.0),
        ("attention", 0.3),
        ("bias", 1.0),
    ];
    // the own entry has the mean of the edges
    let scores = [(4.0, 2.0), (-6.0, 4.0), (2.0, 3.0)].map(|(left, edge): (f32, f32)| {
        let z = left - 1.0 + 0.2 + edge;
        (0.3 * if z > 0.0 { z } else { 0.2 * z }).exp()
    });
    let expected = (scores[0] * 4.0 + scores[1] * -6.0 + scores[2] * 2.0) / scores.iter().sum::<f32>() + 1.0;
    assert!((run("gatv2", &gat) - expected).abs() < 1e-5);
    let gated = [
        ("target.weight", 0.5),
        ("gate.bias", 0.1),
        ("source.weight", -0.25),
        ("value.weight", 2.0),
        ("edge.weight", 0.75),
        ("edge.value.weight", -1.0),
        ("self.weight", 3.0),
        ("bias", 0.5),
    ];
    let term = |x: f32, e: f32| {
        let gate = 1.0 / (1.0 + (-(0.5 + 0.1 - 0.25 * x + 0.75 * e)).exp());
        gate * (2.0 * x - e)
    };
    let expected = 3.0 + 0.5 + term(2.0, 0.5) + term(-3.0, 1.0);
    assert!((run("edge-gated", &gated) - expected).abs() < 1e-5);
}

/// The mixer by plain loops in f64, a destination at a time.
#[test]
fn mixers_agree_with_plain_loops() {
    const SLOTS: usize = 4;
    let block = random_block(7, 12, false, 1);
    let (x, edges) = (random(12, F, 2), random(block.num_edges(), K, 3));
    let layers = every_layer();
    let (_, layer) = layers.iter().find(|(name, _)| name == "mixer plain").unwrap();
    let input = [&x, &edges];
    let found = forward(layer.as_ref(), &pass(true), &block, input, Epilogue::NONE, &mut Saved::default());
    let mut params = std::collections::HashMap::new();
    layer.visit(&mut |p| {
        params.insert(p.name, p.value.clone());
    });
    let values = |x: &Matrix, r: usize| -> Vec<f64> {
        x.view().host()[r * x.num_cols()..(r + 1) * x.num_cols()].iter().map(|&x| x.into()).collect()
    };
    let dense = |x: &[f64], weight: &str, bias: &str| -> Vec<f64> {
        let (w, cols) = (&params[weight], params[weight].num_cols());
        let of = |c: usize| x.iter().enumerate().map(|(r, x)| x * values(w, r)[c]).sum::<f64>();
        let bias = params.get(bias).map_or_else(|| vec![0.0; cols], |bias| values(bias, 0));
        (0..cols).map(|c| of(c) + bias[c]).collect()
    };
    // x + W_1 gelu(W_0 norm(x))
    let branch = |x: &[f64], part: &str| -> Vec<f64> {
        let name = |of: &str| format!("{part}.{of}");
        let [gamma, beta] = ["gamma", "beta"].map(|of| values(&params[&name(of)[..]], 0));
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let of = |(i, x): (usize, &f64)| gamma[i] * (x - mean) / (variance + 1e-5).sqrt() + beta[i];
        let normed: Vec<f64> = x.iter().enumerate().map(of).collect();
        let hidden = dense(&normed, &name("0.weight"), &name("0.bias"));
        let gelu = |x: f64| f64::from(graphmill_nn::backend::ops::gelu::gelu(x as f32));
        let hidden: Vec<f64> = hidden.into_iter().map(gelu).collect();
        let added = dense(&hidden, &name("1.weight"), &name("1.bias"));
        x.iter().zip(added).map(|(x, added)| x + added).collect()
    };
    for v in 0..7 {
        let of_v = block.edges(v);
        let empty = SLOTS - of_v.len();
        let token = |slot: usize| match slot.checked_sub(empty) {
            Some(i) => values(&edges, of_v.start + i),
            None => vec![0.0; K],
        };
        let mut rows: Vec<Vec<f64>> =
            (0..SLOTS).map(|slot| dense(&token(slot), "edge.weight", "edge.bias")).collect();
        for number in 0..2 {
            for c in 0..rows[0].len() {
                let column: Vec<f64> = rows.iter().map(|row| row[c]).collect();
                let mixed = branch(&column, &format!("blocks.{number}.slots"));
                rows.iter_mut().zip(mixed).for_each(|(row, x)| row[c] = x);
            }
            rows.iter_mut().for_each(|row| *row = branch(row, &format!("blocks.{number}.columns")));
        }
        let mean = |c: usize| rows.iter().map(|row| row[c]).sum::<f64>() / SLOTS as f64;
        let mixed: Vec<f64> = (0..rows[0].len()).map(mean).collect();
        let mut node = values(&x, v);
        for e in of_v.clone() {
            let neighbor = values(&x, block.indices[e] as usize);
            node.iter_mut().zip(neighbor).for_each(|(to, x)| *to += x / of_v.len() as f64);
        }
        let parts = [dense(&mixed, "mixed.weight", ""), dense(&node, "node.weight", "bias")];
        for (c, found) in values(&found, v).into_iter().enumerate() {
            let expected = parts[0][c] + parts[1][c];
            assert!((found - expected).abs() < 1e-4, "row {v}: {found}, {expected}");
        }
    }
    let unlimited = EdgeLayerConfig { slots: 0, ..config(6, 2, true) };
    let error = (TABLE.find("mixer").unwrap().make)(&unlimited).err().unwrap().to_string();
    assert!(error.contains("a slot for each neighbour"), "{error}");
}

#[test]
fn without_edges_gatv2_equals_the_layer_of_nodes() {
    let block = random_block(7, 12, false, 1);
    let with = EdgeLayerConfig { edge_dim: 1, ..config(6, 2, true) };
    let edged = (TABLE.find("gatv2").unwrap().make)(&with).unwrap();
    let plain = graphmill_nn::layer::Gatv2::make(&with.nodes).unwrap();
    let x = random(12, F, 2);
    // rows of zeros add nothing to the scores
    let zeros = Matrix::zeros(block.num_edges(), 1);
    let expected =
        forward(edged.as_ref(), &pass(false), &block, [&x, &zeros], Epilogue::NONE, &mut Saved::default());
    let mut tables = [Matrix::zeros(12, 6), Matrix::zeros(12, 6)];
    plain.transform(&pass(false), x.view(), 0, &mut tables);
    let input = graphmill_nn::layer::LayerInput {
        order: graphmill_nn::ProductOrder::TransformFirst,
        block: &block,
        x: x.view(),
        transformed: &tables,
    };
    let mut out = Matrix::zeros(7, 6);
    plain.forward(&pass(false), &input, Epilogue::NONE, &mut Saved::default(), out.view_mut());
    assert!(distance(out.view(), expected.view()) < 1e-6);
}

#[test]
fn edge_heads_match_finite_differences_and_a_plain_loop() {
    use graphmill_nn::link::{EdgeHead, EdgeHeadState, EdgePairs};
    let (source, destination) = ([0, 3, 3, 1], [2, 2, 0, 1]);
    let (nodes, features) = (random(4, F, 1), random(4, K, 2));
    for edge_dim in [0, K] {
        let mut head = EdgeHead::new([F, edge_dim], 6, 3, 9);
        let c = random(4, 3, 4);
        let edges = (edge_dim > 0).then(|| features.view());
        let run = |head: &EdgeHead, nodes: &Matrix, state: &mut EdgeHeadState| {
            let mut out = Matrix::default();
            let pairs = EdgePairs { nodes: nodes.view(), source: &source, destination: &destination, edges };
            head.forward(&pass(true), &pairs, state, &mut out);
            out
        };
        let value = |head: &EdgeHead, nodes: &Matrix| {
            dot(run(head, nodes, &mut EdgeHeadState::default()).view(), c.view())
        };
        let mut state = EdgeHeadState::default();
        let out = run(&head, &nodes, &mut state);
        let (mut grad, mut nodes_grad) = (c.clone(), Matrix::default());
        let pairs = EdgePairs { nodes: nodes.view(), source: &source, destination: &destination, edges };
        head.backward(&pass(true), &pairs, &mut state, out.view(), &mut grad, &mut nodes_grad);
        let mut grads = Vec::new();
        head.visit(&mut |p| grads.push((p.name, p.grad.clone())));
        let mut checked = Checked::default();
        for (n, (name, grad)) in grads.iter().enumerate() {
            checked += check(name, grad.view(), |i, delta| {
                let (mut moved, mut m) = (head.clone(), 0);
                moved.visit_mut(&mut |p| {
                    if m == n {
                        nudge(p, i, delta);
                    }
                    m += 1;
                });
                value(&moved, &nodes)
            });
        }
        let mut moved = nodes.clone();
        checked += check("nodes", nodes_grad.view(), |i, delta| {
            moved.view_mut().host()[i] += delta;
            let value = value(&head, &moved);
            moved.view_mut().host()[i] -= delta;
            value
        });
        checked.assert_all_but_one_in(6, "edge head");
    }
}

/// Times of an epoch's layers beside GAT; run it by hand:
/// `cargo test -p graphmill-nn --test main edges:: -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a test"]
fn times_beside_gat() {
    use graphmill_nn::layer::{self, LayerGrads, LayerInput};
    let block = {
        let mut stream = graphmill_core::keyed::Stream::new(1);
        let mut block = Block { num_dst: 5000, num_src: 30_000, indptr: vec![0], ..Block::default() };
        for _ in 0..5000 {
            block.indices.extend((0..10).map(|_| stream.below(30_000) as u32));
            block.indptr.push(block.indices.len() as u32);
        }
        block.transpose();
        block
    };
    let gat = GatOptions { heads: 4, out_heads: 4, attention_dropout: 0.0 };
    let own = OwnOptions::default().with(gat);
    let nodes = LayerConfig { in_dim: 64, out_dim: 64, own, ..LayerConfig::default() };
    let (x, edges, c) = (random(30_000, 64, 1), random(50_000, 16, 2), random(5000, 64, 3));
    let backend = Cpu::default();
    let pass = Pass { backend: &backend, training: true, key: 42 };
    let best = |run: &mut dyn FnMut()| {
        run();
        let time = |_| {
            let start = std::time::Instant::now();
            run();
            start.elapsed().as_secs_f64()
        };
        (0..9).map(time).fold(f64::INFINITY, f64::min)
    };
    let of_nodes = |name: &str| {
        let mut layer = (layer::TABLE.find(name).unwrap().make.make)(&nodes).unwrap();
        let (mut saved, mut x_grad) = (Saved::default(), Matrix::default());
        let widths = layer.spec().transformed.clone();
        let mut tables: Vec<Matrix> = widths.iter().map(|&width| Matrix::zeros(30_000, width)).collect();
        let mut y = Matrix::zeros(5000, 64);
        best(&mut || {
            layer.transform(&pass, x.view(), 0, &mut tables);
            let order = graphmill_nn::ProductOrder::TransformFirst;
            let input = LayerInput { order, block: &block, x: x.view(), transformed: &tables };
            layer.forward(&pass, &input, Epilogue::NONE, &mut saved, y.view_mut());
            let mut grad = c.clone();
            let grads = LayerGrads { y: y.view(), grad: &mut grad, x_grad: Some(&mut x_grad) };
            layer.backward(&pass, &input, Epilogue::NONE, &mut saved, grads);
        })
    };
    let gat = of_nodes("gat");
    println!("gatv2 without edges: {:.2} times GAT", of_nodes("gatv2") / gat);
    for entry in &TABLE {
        let config =
            EdgeLayerConfig { nodes: nodes.clone(), edge_dim: 16, slots: 10, ..EdgeLayerConfig::default() };
        let (mut layer, mut saved) = ((entry.make)(&config).unwrap(), Saved::default());
        let (mut x_grad, mut y) = (Matrix::default(), Matrix::zeros(5000, 64));
        let time = best(&mut || {
            let input = EdgeInput { block: &block, x: x.view(), edges: edges.view() };
            layer.forward(&pass, &input, Epilogue::NONE, &mut saved, y.view_mut());
            let mut grad = c.clone();
            let grads =
                EdgeGrads { y: y.view(), grad: &mut grad, x_grad: Some(&mut x_grad), edge_grad: None };
            layer.backward(&pass, &input, Epilogue::NONE, &mut saved, grads);
        });
        println!("{} with 16 features of edges: {:.2} times GAT", entry.name, time / gat);
    }
}

proptest! {
    #[test]
    fn means_of_edges_have_the_gradient_of_a_mean(seed in any::<u64>(), rows in 0usize..9) {
        let block = random_block(rows, rows + 3, false, seed);
        let mut edges = EdgeRows::default();
        edges.fill(&block);
        let (values, grad) = (random(block.num_edges(), 2, seed ^ 1), random(rows, 2, seed ^ 2));
        let mut mean = Matrix::zeros(rows, 2);
        edges.mean(&pass(false), values.view(), mean.view_mut());
        let mut edge_grad = values.clone();
        edges.mean_backward(&pass(false), grad.view(), 1.0, &mut edge_grad);
        for v in 0..rows {
            let degree = block.edges(v).len().max(1) as f32;
            for c in 0..2 {
                let sum: f32 = block.edges(v).map(|e| values.view().host()[2 * e + c]).sum();
                prop_assert!((mean.view().host()[2 * v + c] - sum / degree).abs() < 1e-5);
                for e in block.edges(v) {
                    let expected = values.view().host()[2 * e + c] + grad.view().host()[2 * v + c] / degree;
                    prop_assert!((edge_grad.view().host()[2 * e + c] - expected).abs() < 1e-5);
                }
            }
        }
    }
}
