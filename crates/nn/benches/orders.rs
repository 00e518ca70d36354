//! Product order of `A X W` on sampled subgraphs: times of both orders, and the cost model's
//! choice.
//!
//! `cargo bench -p graphmill-nn --bench orders [-- THREADS]` prints, for a GraphSAGE layer of
//! widths `F` and `O` over a square block of `n` nodes, the best forward and backward pass of
//! several rounds in either order, their ratio, the ratio predicted by `graphmill_nn::cost`, and a
//! mark if the model chooses the slower order. Degrees are exponentially distributed, sources
//! uniform.

use std::time::Instant;

use graphmill_core::{Block, keyed::Stream};
use graphmill_nn::{
    Epilogue, LayerConfig, Matrix, Pass, ProductOrder, Saved,
    backend::Cpu,
    cost::{BlockShape, Purpose, cost},
    layer::{LayerGrads, LayerInput, Sage},
};

/// `n`, average degree.
const BLOCKS: [[usize; 2]; 4] = [[8000, 15], [8000, 5], [8000, 50], [2000, 15]];
/// `F`, `O`.
const WIDTHS: [[usize; 2]; 8] =
    [[512, 256], [1024, 256], [256, 512], [512, 512], [512, 400], [256, 256], [256, 128], [100, 256]];

const ORDERS: [ProductOrder; 2] = [ProductOrder::AggregateFirst, ProductOrder::TransformFirst];
const PURPOSES: [(&str, Purpose); 2] = [("bottom", Purpose::BottomLayer), ("inner", Purpose::InnerLayer)];
const ROUNDS: usize = 15;

fn main() {
    let threads = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(1);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    println!("{threads} threads; ms forward and backward, aggregate first / transform first");
    for [n, degree] in BLOCKS {
        let block = subgraph(n, degree);
        for [f, o] in WIDTHS {
            for (name, purpose) in PURPOSES {
                let times = pool.install(|| measure(&block, f, o, purpose));
                let costs = ORDERS.map(|order| cost(order, BlockShape::from(&block), f, o, purpose));
                let ratio = times[1] / times[0];
                let wrong = (costs[1] < costs[0]) != (ratio < 1.0);
                println!(
                    "n {n:>5} d {degree:>3} {f:>5} -> {o:>4} {name:<6} {:>7.2} / {:>7.2}   \
                     ratio {ratio:>5.2}, by the model {:>5.2}{}",
                    1e3 * times[0],
                    1e3 * times[1],
                    costs[1] / costs[0],
                    if wrong { "   wrong choice" } else { "" }
                );
            }
        }
    }
}

/// Seconds in either order: the best of several rounds that alternate between them.
fn measure(block: &Block, f: usize, o: usize, purpose: Purpose) -> [f64; 2] {
    let n = block.num_dst;
    let backend = Cpu::default();
    let pass = Pass { backend: &backend, training: true, key: 1 };
    let config = LayerConfig { in_dim: f, out_dim: o, ..LayerConfig::default() };
    let mut layer = Sage::make(&config).expect("a layer");
    let mut stream = Stream::new(2);
    let mut matrix = |cols: usize| {
        let data: Vec<f32> = (0..n * cols).map(|_| stream.uniform() as f32 - 0.5).collect();
        Matrix::from_slice(n, cols, &data)
    };
    let (x, mut grad, mut out, mut x_grad) = (matrix(f), matrix(o), Matrix::zeros(n, o), Matrix::default());
    let mut saved = [Saved::default(), Saved::default()];
    let mut best = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        for ((best, order), saved) in best.iter_mut().zip(ORDERS).zip(&mut saved) {
            let start = Instant::now();
            let input = LayerInput { order, block, x: x.view(), transformed: &[] };
            layer.run_forward(&pass, &input, Epilogue::NONE, saved, out.view_mut());
            let wanted = (purpose == Purpose::InnerLayer).then_some(&mut x_grad);
            let grads = LayerGrads { y: out.view(), grad: &mut grad, x_grad: wanted };
            layer.run_backward(&pass, &input, Epilogue::NONE, saved, grads);
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    best
}

/// A square block of `n` nodes.
fn subgraph(n: usize, degree: usize) -> Block {
    let mut stream = Stream::new(1);
    let mut block = Block { num_dst: n, num_src: n, indptr: vec![0], ..Block::default() };
    for _ in 0..n {
        let edges = (-(1.0 - stream.uniform()).ln() * degree as f64).round() as usize;
        block.indices.extend((0..edges).map(|_| stream.below(n as u64) as u32));
        block.indptr.push(block.indices.len() as u32);
    }
    block.edge_weight = block.indices.iter().map(|_| stream.uniform() as f32).collect();
    block.transpose();
    block
}
