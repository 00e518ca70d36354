//! Every layer against its paper's formula over a dense adjacency matrix in f64.

use std::collections::HashMap;

use graphmill_core::{Block, options::OwnOptions};
use graphmill_nn::{
    Epilogue, Layer, LayerConfig, Matrix, ProductOrder, Saved,
    backend::Activation,
    layer::{
        self, Aggregator, Combine, GatOptions, LayerGrads, LayerInput, Norm, SageOptions, norm::BatchNorm,
    },
};

use crate::support::{pass, random, random_block};

/// A dense matrix.
#[derive(Clone)]
struct Dense(Vec<Vec<f64>>);

impl Dense {
    fn new(rows: usize, cols: usize, at: impl Fn(usize, usize) -> f64) -> Self {
        Self((0..rows).map(|r| (0..cols).map(|c| at(r, c)).collect()).collect())
    }

    fn of(m: &Matrix) -> Self {
        let cols = m.num_cols();
        Self::new(m.num_rows(), cols, |r, c| f64::from(m.view().host()[r * cols + c]))
    }

    fn rows(&self) -> usize {
        self.0.len()
    }

    fn cols(&self) -> usize {
        self.0[0].len()
    }

    fn times(&self, other: &Self) -> Self {
        Self::new(self.rows(), other.cols(), |r, c| {
            (0..self.cols()).map(|k| self.0[r][k] * other.0[k][c]).sum()
        })
    }

    fn plus(&self, other: &Self) -> Self {
        Self::new(self.rows(), self.cols(), |r, c| self.0[r][c] + other.0[r % other.rows()][c])
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self::new(self.rows(), self.cols(), |r, c| f(self.0[r][c]))
    }

    fn first(&self, rows: usize) -> Self {
        Self(self.0[..rows].to_vec())
    }
}

type Params = HashMap<&'static str, Dense>;

/// Number of edges from `u` to `v`, `D x S`.
fn adjacency(block: &Block) -> Dense {
    let mut a = Dense::new(block.num_dst, block.num_src, |_, _| 0.0);
    for v in 0..block.num_dst {
        for e in block.edges(v) {
            a.0[v][block.indices[e] as usize] += 1.0;
        }
    }
    a
}

fn sage_mean(block: &Block, x: &Dense, p: &Params) -> Dense {
    let mut mean = adjacency(block);
    for row in &mut mean.0 {
        let degree: f64 = row.iter().sum();
        row.iter_mut().for_each(|a| *a /= degree.max(1.0));
    }
    let own = x.first(block.num_dst).times(&p["self.weight"]).plus(&p["bias"]);
    mean.times(x).times(&p["neigh.weight"]).plus(&own)
}

/// The first columns of the weight belong to the own row, the others to the mean.
fn sage_concat(block: &Block, x: &Dense, p: &Params) -> Dense {
    let mut mean = adjacency(block);
    for row in &mut mean.0 {
        let degree: f64 = row.iter().sum();
        row.iter_mut().for_each(|a| *a /= degree.max(1.0));
    }
    let weight = &p["weight"];
    let own = x.first(block.num_dst).times(weight);
    let neigh = mean.times(x).times(weight);
    let half = weight.cols() / 2;
    let parts =
        Dense::new(block.num_dst, weight.cols(), |v, c| if c < half { own.0[v][c] } else { neigh.0[v][c] });
    parts.plus(&p["bias"])
}

fn sage_max_pool(block: &Block, x: &Dense, p: &Params) -> Dense {
    let a = adjacency(block);
    let pooled = x.times(&p["pool.weight"]).plus(&p["pool.bias"]).map(|x| x.max(0.0));
    let max = Dense::new(block.num_dst, pooled.cols(), |v, c| {
        (0..block.num_src).filter(|&u| a.0[v][u] > 0.0).map(|u| pooled.0[u][c]).fold(0.0, f64::max)
    });
    let own = x.first(block.num_dst).times(&p["self.weight"]).plus(&p["bias"]);
    max.times(&p["neigh.weight"]).plus(&own)
}

/// GCN on a square block of a symmetric graph, whose weights are those of the adjacency matrix.
fn gcn(block: &Block, x: &Dense, p: &Params) -> Dense {
    let n = block.num_dst;
    let a = adjacency(block).plus(&Dense::new(n, n, |r, c| f64::from(r == c)));
    let degree: Vec<f64> = a.0.iter().map(|row| row.iter().sum()).collect();
    let hat = Dense::new(n, n, |v, u| a.0[v][u] / (degree[u] * degree[v]).sqrt());
    hat.times(x).times(&p["weight"]).plus(&p["bias"])
}

fn gat(heads: usize, concat: bool, block: &Block, x: &Dense, p: &Params) -> Dense {
    let a = adjacency(block);
    let z = x.times(&p["weight"]);
    let dim = z.cols() / heads;
    let mut out = Dense::new(block.num_dst, z.cols(), |_, _| 0.0);
    for h in 0..heads {
        let columns = h * dim..(h + 1) * dim;
        let dot =
            |name: &str, u: usize| -> f64 { columns.clone().map(|c| z.0[u][c] * p[name].0[0][c]).sum() };
        for v in 0..block.num_dst {
            let score = |u: usize| {
                let s = dot("source", u) + dot("target", v);
                if s > 0.0 { s } else { 0.2 * s }
            };
            // repeated edges are separate messages, and v sends one to itself
            let count = |u: usize| a.0[v][u] + f64::from(u == v);
            let sum: f64 = (0..block.num_src).map(|u| count(u) * score(u).exp()).sum();
            for c in columns.clone() {
                out.0[v][c] = (0..block.num_src).map(|u| count(u) * score(u).exp() / sum * z.0[u][c]).sum();
            }
        }
    }
    if !concat {
        out = Dense::new(block.num_dst, dim, |v, c| {
            (0..heads).map(|h| out.0[v][h * dim + c]).sum::<f64>() / heads as f64
        });
    }
    out.plus(&p["bias"])
}

fn gin(batch_norm: bool, block: &Block, x: &Dense, p: &Params) -> Dense {
    let own = x.first(block.num_dst).map(|x| (1.0 + p["eps"].0[0][0]) * x);
    let h = adjacency(block).times(x).plus(&own);
    let mut inner = h.times(&p["mlp.0.weight"]).plus(&p["mlp.0.bias"]);
    if batch_norm {
        let n = inner.rows() as f64;
        for c in 0..inner.cols() {
            let mean = inner.0.iter().map(|row| row[c]).sum::<f64>() / n;
            let var = inner.0.iter().map(|row| (row[c] - mean).powi(2)).sum::<f64>() / n;
            for row in &mut inner.0 {
                let y = (row[c] - mean) / (var + 1e-5).sqrt();
                row[c] = y * p["mlp.gamma"].0[0][c] + p["mlp.beta"].0[0][c];
            }
        }
    }
    inner.map(|x| x.max(0.0)).times(&p["mlp.1.weight"]).plus(&p["mlp.1.bias"])
}

/// PinSAGE with the block's weights, or all 1.
fn pinsage(classifies: bool, block: &Block, x: &Dense, p: &Params) -> Dense {
    let elu = |x: f64| if x > 0.0 { x } else { x.exp() - 1.0 };
    let pooled = x.times(&p["pool.weight"]).plus(&p["pool.bias"]).map(elu);
    let mut mean = Dense::new(block.num_dst, pooled.cols(), |_, _| 0.0);
    for v in 0..block.num_dst {
        let weight = |e: usize| f64::from(block.edge_weight.get(e).copied().unwrap_or(1.0));
        let total: f64 = block.edges(v).map(weight).sum();
        for e in block.edges(v) {
            for c in 0..pooled.cols() {
                mean.0[v][c] += weight(e) * pooled.0[block.indices[e] as usize][c] / total.max(1.0);
            }
        }
    }
    let own = x.first(block.num_dst).times(&p["self.weight"]).plus(&p["bias"]);
    let z = mean.times(&p["neigh.weight"]).plus(&own);
    if classifies {
        return z;
    }
    let z = z.map(elu);
    let norm: Vec<f64> = z.0.iter().map(|row| row.iter().map(|x| x * x).sum::<f64>().sqrt()).collect();
    Dense::new(z.rows(), z.cols(), |r, c| z.0[r][c] / norm[r])
}

/// Columns `columns` of all rows.
fn columns(m: &Dense, columns: std::ops::Range<usize>) -> Dense {
    Dense::new(m.rows(), columns.len(), |r, c| m.0[r][columns.start + c])
}

/// A symmetric graph on `n` nodes without self-loops, as a square block with GCN's weights.
fn symmetric_block(n: usize) -> Block {
    let linked = |u: usize, v: usize| u != v && (u * v + u + v).is_multiple_of(3);
    let mut block = Block { num_dst: n, num_src: n, indptr: vec![0], ..Block::default() };
    for v in 0..n {
        block.indices.extend((0..n).filter(|&u| linked(u, v)).map(|u| u as u32));
        block.indptr.push(block.indices.len() as u32);
    }
    let degree: Vec<f32> = (0..n).map(|v| block.edges(v).len() as f32).collect();
    for v in 0..n {
        for e in block.edges(v) {
            let u = block.indices[e] as usize;
            block.edge_weight.push(1.0 / ((degree[u] + 1.0) * (degree[v] + 1.0)).sqrt());
        }
        block.self_weight.push(1.0 / (degree[v] + 1.0));
    }
    block
}

fn make(name: &str, config: &LayerConfig) -> Box<dyn Layer> {
    let mut layer = (layer::TABLE.find(name).unwrap().make.make)(config).unwrap();
    let mut seed = 20;
    layer.visit_mut(&mut |p| {
        if p.trainable {
            seed += 1;
            p.value = random(p.value.num_rows(), p.value.num_cols(), seed);
        }
    });
    layer
}

fn assert_formula(
    name: &str,
    config: &LayerConfig,
    block: &Block,
    formula: impl Fn(&Block, &Dense, &Params) -> Dense,
) {
    let layer = make(name, config);
    let x = random(block.num_src, config.in_dim, 30);
    let mut params = Params::new();
    layer.visit(&mut |p| {
        params.insert(p.name, Dense::of(&p.value));
    });
    let expected = formula(block, &Dense::of(&x), &params);
    for &order in layer.spec().orders {
        let mut out = Matrix::zeros(block.num_dst, config.out_dim);
        let saved = &mut Saved::default();
        let input = LayerInput { order, block, x: x.view(), transformed: &[] };
        layer.run_forward(&pass(true), &input, Epilogue::NONE, saved, out.view_mut());
        for (v, (row, expected)) in Dense::of(&out).0.iter().zip(&expected.0).enumerate() {
            for (y, e) in row.iter().zip(expected) {
                assert!((y - e).abs() < 1e-5 * (1.0 + e.abs()), "{name} {order:?} row {v}: {y}, not {e}");
            }
        }
    }
}

fn config() -> LayerConfig {
    LayerConfig { in_dim: 5, out_dim: 6, own: heads(1), ..LayerConfig::default() }
}

fn heads(heads: usize) -> OwnOptions {
    OwnOptions::default().with(GatOptions { heads, out_heads: heads, attention_dropout: 0.0 })
}

#[test]
fn sage_combines_the_mean_and_the_own_row() {
    assert_formula("sage", &config(), &random_block(9, 14, false, 1), sage_mean);
}

#[test]
fn sage_uses_stored_weights() {
    // weights of 1 / degree give the mean again
    let mut block = random_block(9, 14, false, 1);
    for v in 0..block.num_dst {
        for e in block.edges(v) {
            debug_assert_eq!(block.edge_weight.len(), e);
            block.edge_weight.push(1.0 / block.edges(v).len() as f32);
        }
    }
    assert_formula("sage", &config(), &block, sage_mean);
}

#[test]
fn sage_concatenates_the_own_row_and_the_mean() {
    let concat = SageOptions { sage_combine: Combine::Concat, ..SageOptions::default() };
    let config = LayerConfig { own: OwnOptions::default().with(concat), ..config() };
    assert_formula("sage", &config, &random_block(9, 14, false, 2), sage_concat);
}

#[test]
fn sage_max_pool_takes_the_maximum_of_dense_rows() {
    let own =
        OwnOptions::default().with(SageOptions { aggregator: Aggregator::MaxPool, ..SageOptions::default() });
    let config = LayerConfig { own, ..config() };
    assert_formula("sage", &config, &random_block(9, 14, false, 2), sage_max_pool);
}

#[test]
fn gcn_multiplies_by_the_normalized_adjacency() {
    assert_formula("gcn", &config(), &symmetric_block(8), gcn);
}

#[test]
fn gat_attends_to_neighbours_and_itself() {
    for (count, concat, out_dim) in [(1, true, 6), (3, true, 6), (2, false, 3), (1, false, 4)] {
        let config = LayerConfig { own: heads(count), concat, out_dim, ..config() };
        assert_formula("gat", &config, &random_block(9, 14, false, 3), |b, x, p| gat(count, concat, b, x, p));
    }
}

#[test]
fn gin_applies_an_mlp_to_the_sum() {
    for batch_norm in [false, true] {
        let config = LayerConfig { batch_norm, ..config() };
        assert_formula("gin", &config, &random_block(9, 14, false, 4), |b, x, p| gin(batch_norm, b, x, p));
    }
}

#[test]
fn pinsage_normalizes_the_weighted_mean_and_own_row() {
    for classifies in [false, true] {
        let config = LayerConfig { classifies, activation: Activation::Elu, ..config() };
        for weighted in [false, true] {
            let mut block = random_block(9, 14, weighted, 5);
            // visit counts, and sums below 1
            block.edge_weight.iter_mut().enumerate().for_each(|(e, w)| *w *= [0.3, 4.0][e / 6 % 2]);
            assert_formula("pinsage", &config, &block, |b, x, p| pinsage(classifies, b, x, p));
        }
    }
}

#[test]
fn zero_rows_remain_zero_in_pinsage() {
    let mut layer = (layer::TABLE.find("pinsage").unwrap().make.make)(&config()).unwrap();
    let block = random_block(5, 8, true, 6);
    let (x, saved) = (Matrix::zeros(8, 5), &mut Saved::default());
    let (mut y, mut grad) = (Matrix::zeros(5, 6), random(5, 6, 7));
    let order = ProductOrder::TransformFirst;
    let input = LayerInput { order, block: &block, x: x.view(), transformed: &[] };
    layer.run_forward(&pass(true), &input, Epilogue::NONE, saved, y.view_mut());
    assert!(y.view().host().iter().all(|&y| y == 0.0));
    let grads = LayerGrads { y: y.view(), grad: &mut grad, x_grad: None };
    layer.run_backward(&pass(true), &input, Epilogue::NONE, saved, grads);
    layer.visit(&mut |p| assert!(p.grad.view().host().iter().all(|g| g.is_finite())));
}

/// Compares the hops of one MixHop layer on a square block with explicit powers of the dense
/// matrix.
fn assert_mixhop(hops: usize, out_dim: usize, classifies: bool) {
    let block = symmetric_block(8);
    let x = random(8, 5, 30);
    let (mut rows, mut params) = (x.clone(), Params::new());
    for hop in 1..=hops {
        let layer = make("mixhop", &LayerConfig { out_dim, hops, hop, classifies, ..config() });
        layer.visit(&mut |p| {
            params.insert(p.name, Dense::of(&p.value));
        });
        let mut out = Matrix::zeros(8, layer.spec().out_dim);
        let saved = &mut Saved::default();
        let order = layer.spec().orders[0];
        let input = LayerInput { order, block: &block, x: rows.view(), transformed: &[] };
        layer.run_forward(&pass(true), &input, Epilogue::NONE, saved, out.view_mut());
        rows = out;
    }
    let a = adjacency(&block).plus(&Dense::new(8, 8, |r, c| f64::from(r == c)));
    let degree: Vec<f64> = a.0.iter().map(|row| row.iter().sum()).collect();
    let hat = Dense::new(8, 8, |v, u| a.0[v][u] / (degree[u] * degree[v]).sqrt());
    let powers = hops + 1;
    let mut expected = Dense::new(8, out_dim, |_, _| 0.0);
    let (mut power, mut at) = (Dense::new(8, 8, |r, c| f64::from(r == c)), 0);
    for k in 0..powers {
        let width = if classifies { out_dim } else { out_dim / powers + usize::from(k < out_dim % powers) };
        let part = power.times(&Dense::of(&x)).times(&columns(&params["weight"], at..at + width));
        for v in 0..8 {
            for c in 0..width {
                let (to, share) = if classifies { (c, 1.0 / powers as f64) } else { (at + c, 1.0) };
                expected.0[v][to] += share * part.0[v][c];
            }
        }
        at += width;
        power = hat.times(&power);
    }
    let expected = expected.plus(&params["bias"]);
    for (row, expected) in Dense::of(&rows).0.iter().zip(&expected.0) {
        for (y, e) in row.iter().zip(expected) {
            assert!((y - e).abs() < 1e-5 * (1.0 + e.abs()), "order {hops}, {out_dim} columns: {y}, not {e}");
        }
    }
}

#[test]
fn mixhop_concatenates_powers_of_the_normalized_adjacency() {
    for hops in 1..=4 {
        assert_mixhop(hops, 10, false);
        assert_mixhop(hops, 3, true);
    }
}

#[test]
fn batch_norm_running_statistics_match_pytorch() {
    let mut norm = BatchNorm::new(2);
    let x = Matrix::from_slice(4, 2, &[1., 2., 3., 2., 5., 2., 7., 2.]);
    let (mut saved, mut out) = ([Matrix::default(), Matrix::default()], Matrix::zeros(4, 2));
    norm.forward(&pass(true), x.view(), &mut saved, out.view_mut());
    norm.backward(&pass(true), x.view(), &mut saved, Matrix::zeros(4, 2).view_mut());
    // means 4 and 2, unbiased variances 20/3 and 0
    let mut running = Vec::new();
    norm.visit(&mut |p| {
        if !p.trainable {
            running = p.value.view().host().to_vec();
        }
    });
    let expected = [0.4, 0.2, 0.9 + 0.1 * 20.0 / 3.0, 0.9];
    assert!(running.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{running:?}");
    // evaluation uses them
    norm.forward(&pass(false), x.view(), &mut saved, out.view_mut());
    let first = (1.0 - 0.4) / (expected[2] + 1e-5f32).sqrt();
    assert!((out.view().host()[0] - first).abs() < 1e-6);
}

#[test]
fn every_layer_supports_an_order() {
    for entry in &layer::TABLE {
        let layer = make(entry.name, &config());
        assert_eq!((layer.spec().in_dim, layer.spec().out_dim), (5, 6));
        assert!(!layer.spec().orders.is_empty());
        let transforms = layer.spec().orders.contains(&ProductOrder::TransformFirst);
        assert_eq!(transforms, !layer.spec().transformed.is_empty(), "{}", entry.name);
        assert!(!entry.summary.is_empty() && !entry.source.is_empty());
    }
}

#[test]
fn heads_must_divide_the_width() {
    let make = |config: &LayerConfig| {
        (layer::TABLE.find("gat").unwrap().make.make)(config).err().map(|e| e.to_string())
    };
    let message = make(&LayerConfig { own: heads(4), ..config() }).unwrap();
    assert_eq!(message, "heads = 4: does not divide 6 columns; use a divisor");
    assert!(make(&LayerConfig { own: heads(0), ..config() }).is_some());
    assert!(make(&LayerConfig { own: heads(4), concat: false, ..config() }).is_none());
}
