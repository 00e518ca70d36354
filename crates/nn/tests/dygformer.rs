//! DyGFormer: gradients against finite differences, a plain loop, and pairs that do not depend on
//! their batch.

use graphmill_core::Block;
use graphmill_nn::{
    Matrix, Pass,
    backend::{Cpu, Reference},
    temporal::{DygFormer, DygFormerConfig, DygFormerState, PairInput},
};

use crate::support::{Checked, check, distance, dot, nudge, pass, random, random_block};

const CONFIG: DygFormerConfig = DygFormerConfig {
    node_dim: 2,
    edge_dim: 3,
    time_dim: 4,
    channel_dim: 2,
    patch: 1,
    layers: 2,
    heads: 2,
    out_dim: 3,
    dropout: 0.0,
    key: 5,
};

/// Histories of six rows, and the pairs of some of them.
struct Histories {
    block: Block,
    nodes: Vec<u32>,
    x: Matrix,
    edges: Matrix,
    differences: Vec<f64>,
    source: Vec<u32>,
    destination: Vec<u32>,
}

impl Histories {
    fn new(config: &DygFormerConfig) -> Self {
        let block = random_block(6, 14, false, 1);
        let (sources, events) = (block.num_src, block.num_edges());
        Self {
            nodes: (0..sources as u32).map(|row| row * 5 % 7).collect(),
            x: random(sources, config.node_dim, 2),
            edges: random(events, config.edge_dim, 3),
            differences: (0..events).map(|e| e as f64 * 0.7).collect(),
            source: vec![0, 0, 3, 5],
            destination: vec![1, 2, 4, 4],
            block,
        }
    }

    fn input(&self) -> PairInput<'_> {
        PairInput {
            block: &self.block,
            nodes: &self.nodes,
            x: self.x.view(),
            edges: self.edges.view(),
            differences: &self.differences,
            source: &self.source,
            destination: &self.destination,
        }
    }

    fn run(&self, model: &DygFormer, pass: &Pass, state: &mut DygFormerState) -> Matrix {
        let mut out = Matrix::default();
        model.forward(pass, &self.input(), state, &mut out);
        out
    }
}

/// A model with parameters away from their first values.
fn moved_model(config: DygFormerConfig) -> DygFormer {
    let (mut model, mut seed) = (DygFormer::new(config).unwrap(), 50);
    model.visit_mut(&mut |_, p| {
        seed += 1;
        let moved = random(p.value.num_rows(), p.value.num_cols(), seed);
        p.value.view_mut().host().iter_mut().zip(moved.view().host()).for_each(|(x, y)| *x += 0.3 * y);
    });
    model
}

#[test]
fn gradients_match_finite_differences() {
    for (patch, layers, dropout, edge_dim) in [(1, 2, 0.0, 3), (2, 1, 0.3, 0)] {
        let config = DygFormerConfig { patch, layers, dropout, edge_dim, channel_dim: 1, ..CONFIG };
        let (of, mut model) = (Histories::new(&config), moved_model(config));
        let (mut state, c) = (DygFormerState::default(), random(8, config.out_dim, 4));
        let out = of.run(&model, &pass(true), &mut state);
        model.visit_mut(&mut |_, p| p.zero_grad(&Reference));
        model.backward(&pass(true), &mut state, [out.view(), c.view()]);
        let mut grads = Vec::new();
        model.visit(&mut |name, p| grads.push((name.to_string(), p.grad.clone())));
        let mut checked = Checked::default();
        for (n, (name, grad)) in grads.iter().enumerate() {
            checked += check(name, grad.view(), |i, by| {
                let (mut model, mut m) = (model.clone(), 0);
                model.visit_mut(&mut |_, p| {
                    if m == n {
                        nudge(p, i, by);
                    }
                    m += 1;
                });
                dot(of.run(&model, &pass(true), &mut DygFormerState::default()).view(), c.view())
            });
        }
        checked.assert_all_but_one_in(8, "dygformer");
        let backend = Cpu::default();
        let cpu = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let pass = Pass { backend: &backend, training: true, key: 42 };
                let (mut model, mut state) = (model.clone(), DygFormerState::default());
                model.visit_mut(&mut |_, p| p.zero_grad(&Reference));
                let out = of.run(&model, &pass, &mut state);
                model.backward(&pass, &mut state, [out.view(), c.view()]);
                let mut all = vec![out];
                model.visit(&mut |_, p| all.push(p.grad.clone()));
                all
            })
        };
        let (one, three) = (cpu(1), cpu(3));
        for (i, (one, three)) in one.iter().zip(&three).enumerate() {
            assert_eq!(one.view().host(), three.view().host(), "{i}");
            let reference = if i == 0 { &out } else { &grads[i - 1].1 };
            assert!(distance(one.view(), reference.view()) < 1e-4, "{i}: backends");
        }
    }
}

#[test]
fn rows_of_a_pair_depend_on_both_ends_and_on_no_other_pair() {
    let (of, model) = (Histories::new(&CONFIG), moved_model(CONFIG));
    let all = of.run(&model, &pass(false), &mut DygFormerState::default());
    let row = |of: &Matrix, r: usize| of.rows(r..r + 1).host().to_vec();
    for pair in 0..4 {
        let mut single = Histories::new(&CONFIG);
        single.source = vec![of.source[pair]];
        single.destination = vec![of.destination[pair]];
        let single = single.run(&model, &pass(false), &mut DygFormerState::default());
        assert_eq!([row(&single, 0), row(&single, 1)], [row(&all, pair), row(&all, 4 + pair)], "{pair}");
    }
    assert_ne!(row(&all, 0), row(&all, 1), "the source of both pairs is the same");
    assert_ne!(row(&all, 6), row(&all, 7), "their destination is the same");
}

#[test]
fn rows_agree_with_a_plain_loop() {
    // one layer, one head: every formula by name, in f64
    let config = DygFormerConfig { layers: 1, heads: 1, ..CONFIG };
    let (of, model) = (Histories::new(&config), moved_model(config));
    let out = of.run(&model, &pass(false), &mut DygFormerState::default());
    let mut params = std::collections::HashMap::new();
    model.visit(&mut |name, p| {
        let rows: Vec<Vec<f64>> = (0..p.value.num_rows())
            .map(|r| p.value.rows(r..r + 1).host().iter().map(|&x| f64::from(x)).collect())
            .collect();
        params.insert(name.to_string(), rows);
    });
    let dense = |name: &str, x: &[f64]| -> Vec<f64> {
        let (w, b) = (&params[&format!("{name}.weight")], &params[&format!("{name}.bias")][0]);
        (0..b.len()).map(|c| b[c] + x.iter().zip(w).map(|(x, w)| x * w[c]).sum::<f64>()).collect()
    };
    let norm = |name: &str, x: &[f64]| -> Vec<f64> {
        let (gamma, beta) = (&params[&format!("{name}.gamma")][0], &params[&format!("{name}.beta")][0]);
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let scaled = |(c, x): (usize, &f64)| (x - mean) / (variance + 1e-5).sqrt() * gamma[c] + beta[c];
        x.iter().enumerate().map(scaled).collect()
    };
    let relu = |x: Vec<f64>| x.into_iter().map(|x| x.max(0.0)).collect::<Vec<f64>>();
    let add = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x + y).collect::<Vec<f64>>();
    let count = |c: usize| dense("common.1", &relu(dense("common.0", &[c as f64])));
    for pair in 0..4 {
        let ends = [of.source[pair] as usize, of.destination[pair] as usize];
        // row and event of each node of a history
        let history = |row: usize| -> Vec<(usize, Option<usize>)> {
            let events = of.block.edges(row).map(|e| (of.block.indices[e] as usize, Some(e)));
            std::iter::once((row, None)).chain(events).collect()
        };
        let occurs = |row: usize, end: usize| {
            history(ends[end]).iter().filter(|(other, _)| of.nodes[*other] == of.nodes[row]).count()
        };
        let mut x: Vec<Vec<f64>> = Vec::new();
        for (row, event) in ends.into_iter().flat_map(history) {
            let float =
                |of: &Matrix, r: usize| of.rows(r..r + 1).host().iter().map(|&x| f64::from(x)).collect();
            let features: Vec<f64> = float(&of.x, row);
            let edge: Vec<f64> = event.map_or(vec![0.0; 3], |e| float(&of.edges, e));
            let since = event.map_or(0.0, |e| of.differences[e]);
            let phase = |(w, b): (&f64, &f64)| (w * since + b).cos();
            let time: Vec<f64> =
                params["time.weight"][0].iter().zip(&params["time.bias"][0]).map(phase).collect();
            let common = add(&count(occurs(row, 0)), &count(occurs(row, 1)));
            let channels = [("node", features), ("event", edge), ("since", time), ("common", common)];
            x.push(channels.iter().flat_map(|(name, x)| dense(&format!("channels.{name}"), x)).collect());
        }
        let normed: Vec<Vec<f64>> = x.iter().map(|x| norm("layers.0.norm.0", x)).collect();
        let of_rows = |name: &str| -> Vec<Vec<f64>> {
            normed.iter().map(|x| dense(&format!("layers.0.{name}"), x)).collect()
        };
        let (query, key, value) = (of_rows("query"), of_rows("key"), of_rows("value"));
        for (i, x) in x.iter_mut().enumerate() {
            let score = |k: &Vec<f64>| {
                (query[i].iter().zip(k).map(|(q, k)| q * k).sum::<f64>() / (k.len() as f64).sqrt()).exp()
            };
            let scores: Vec<f64> = key.iter().map(score).collect();
            let sum: f64 = scores.iter().sum();
            let attended: Vec<f64> =
                (0..x.len()).map(|c| scores.iter().zip(&value).map(|(s, v)| s / sum * v[c]).sum()).collect();
            let between = add(x, &dense("layers.0.merge", &attended));
            let hidden = dense("layers.0.dense.0", &norm("layers.0.norm.1", &between));
            let gelu = |&x: &f64| f64::from(graphmill_nn::backend::ops::gelu::gelu(x as f32));
            let hidden: Vec<f64> = hidden.iter().map(gelu).collect();
            *x = add(&between, &dense("layers.0.dense.1", &hidden));
        }
        let first = history(ends[0]).len();
        for (rows, r) in [(&x[..first], pair), (&x[first..], 4 + pair)] {
            let mean = |c: usize| rows.iter().map(|row| row[c]).sum::<f64>() / rows.len() as f64;
            let means: Vec<f64> = (0..rows[0].len()).map(mean).collect();
            let found = out.rows(r..r + 1).host();
            for (x, y) in dense("out", &means).iter().zip(found) {
                assert!((x - f64::from(*y)).abs() < 1e-4 * x.abs().max(1.0), "{pair}: {x} {y}");
            }
        }
    }
}

#[test]
fn impossible_sizes_are_refused() {
    for (config, why) in [
        (DygFormerConfig { patch: 0, ..CONFIG }, "a patch has tokens"),
        (DygFormerConfig { heads: 5, ..CONFIG }, "does not divide the 8 columns of 4 channels"),
    ] {
        let error = DygFormer::new(config).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
