//! Speed of the CPU kernels that dominate training, at the sizes of one large minibatch.
//!
//! `cargo bench -p graphmill-nn --bench kernels [-- NAME]` prints, for one and for all threads, the
//! best time of a few runs as GFLOP/s, or as GB/s of the bytes that a kernel must read and write,
//! and a memory copy for comparison.

use std::{hint::black_box, time::Instant};

use graphmill_core::{Block, SparseRows, keyed::Stream};
use graphmill_nn::backend::{
    Activation, AdamStep, AggregationWeights, ArgMax, Cpu, Dropout, ElementOps, Precision, Side,
    cpu::{Level, with_level},
    ops::{
        AdamUpdate, Aggregate, AggregateMax, AggregateTransposed, Attend, BatchNormForward, EdgeSoftmax,
        EpilogueBackward, EpilogueForward, Gather, Gemm, SoftmaxCrossEntropy,
    },
};
use graphmill_nn::{Matrix, View, layer::gather_rows, matrix::TableData};
use half::bf16;

/// Backend of all rows, unless a row names another precision.
const CPU: Cpu = Cpu { precision: Precision::F32 };
/// Rows of a dense operation.
const ROWS: usize = 100_000;

fn random(rows: usize, cols: usize) -> Matrix {
    let mut stream = Stream::new(rows as u64 * 31 + cols as u64);
    let data: Vec<f32> = (0..rows * cols).map(|_| stream.uniform() as f32 - 0.5).collect();
    Matrix::from_slice(rows, cols, &data)
}

/// 20 000 destinations with 10 edges each out of 200 000 sources, at random or numbered in order of
/// first occurrence.
fn block(first_seen: bool) -> Block {
    let mut stream = Stream::new(1);
    let mut block = Block { num_dst: 20_000, num_src: 200_000, ..Block::default() };
    block.indptr = (0..=20_000).map(|v| v * 10).collect();
    block.indices = (0..200_000).collect();
    if !first_seen {
        stream.shuffle(&mut block.indices);
    }
    block.transpose();
    block
}

struct Bench {
    filter: String,
    pools: Vec<rayon::ThreadPool>,
}

impl Bench {
    /// Times `run`, whose work is `amount` (in units of 1e9 after division by time in ns).
    fn time(&self, name: &str, unit: &str, amount: f64, mut run: impl FnMut() + Send) {
        if !name.contains(&self.filter) {
            return;
        }
        print!("{name:<44}");
        for pool in &self.pools {
            let mut best = f64::INFINITY;
            pool.install(|| {
                run();
                let begin = Instant::now();
                for i in 0.. {
                    let start = Instant::now();
                    run();
                    best = best.min(start.elapsed().as_nanos() as f64);
                    if i >= 4 && begin.elapsed().as_millis() > 300 {
                        break;
                    }
                }
            });
            print!("{:9.3} ms {:7.1} {unit}", best / 1e6, amount / best);
        }
        println!();
    }

    fn bytes(&self, name: &str, values: usize, run: impl FnMut() + Send) {
        self.time(name, "GB/s ", 4.0 * values as f64, run);
    }

    /// Times a product of two factors, each with its side.
    fn gemm(&self, name: &str, (a, side_a): (View, Side), (b, side_b): (View, Side), c: &mut Matrix) {
        let terms = if side_a == Side::Plain { a.num_cols() } else { a.num_rows() };
        let work = 2.0 * c.num_rows() as f64 * c.num_cols() as f64 * terms as f64;
        for (kind, precision) in [("", Precision::F32), (" bf16", Precision::Bf16)] {
            let cpu = Cpu { precision };
            self.time(&format!("gemm{kind} {name}"), "GF/s ", work, || {
                Gemm { a: (a, side_a), b: (b, side_b), beta: 0.0, c: c.view_mut() }.run(&cpu);
            });
        }
    }
}

/// First layer on a batch of rows gathered from a table: the product and its gradient, with dense
/// rows and with sparse rows of a few percent of non-zeros. The crossover of the two is the rule of
/// `--sparse auto`.
fn sparse_rows(bench: &Bench) {
    use Side::{Plain, Transposed};
    const ROWS: usize = 4000;
    let mut stream = Stream::new(9);
    let ids: Vec<u32> = (0..ROWS as u32).map(|i| i * 7 % ROWS as u32).collect();
    for (dim, width) in [(100, 64), (700, 16), (700, 64), (700, 256), (3000, 16), (3000, 64), (3000, 256)] {
        let (w, grad, mut out) = (random(dim, width), random(ROWS, width), Matrix::zeros(ROWS, width));
        let mut w_grad = Matrix::zeros(dim, width);
        let mut rows = Matrix::default();
        for percent in [100, 1, 3, 6, 10, 15, 25] {
            let mut value = |_| if stream.below(100) < percent { stream.uniform() as f32 } else { 0.0 };
            let data: Vec<f32> = (0..ROWS * dim).map(&mut value).collect();
            let dense = percent == 100;
            let table = match dense {
                true => Matrix::from_slice(ROWS, dim, &data),
                false => Matrix::sparse_table(SparseRows::from_dense(dim, &data).expect("finite values")),
            };
            let name = format!("sparse rows {percent} % of {dim}, times {dim} x {width}");
            bench.time(&name, "M rows/s", 1e3 * ROWS as f64, || {
                gather_rows(&CPU, table.view(), &ids, &mut rows);
                if !dense {
                    rows.transpose_sparse();
                }
                Gemm { a: (rows.view(), Plain), b: (w.view(), Plain), beta: 0.0, c: out.view_mut() }
                    .run(&CPU);
                Gemm {
                    a: (rows.view(), Transposed),
                    b: (grad.view(), Plain),
                    beta: 0.0,
                    c: w_grad.view_mut(),
                }
                .run(&CPU);
            });
        }
    }
}

fn main() {
    // cargo passes `--bench`
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let pool = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("threads");
    let bench = Bench { filter, pools: vec![pool(1), pool(threads)] };
    println!("{:?}; 1 thread, then {threads}; GB/s counts values read and written", Level::best());

    let (src, mut dst) = (random(200_000, 256), Matrix::zeros(200_000, 256));
    bench.bytes("copy 200k x 256", 2 * 200_000 * 256, || CPU.copy(src.view(), dst.view_mut()));

    for cols in [100, 128, 256] {
        let (src, mut dst) = (random(200_000, cols), Matrix::zeros(20_000, cols));
        for (order, first_seen) in [("random", false), ("first-seen", true)] {
            let block = block(first_seen);
            let values = 220_000 * cols + 200_000;
            bench.bytes(&format!("aggregate mean {order} F={cols}"), values, || {
                Aggregate {
                    block: &block,
                    weights: AggregationWeights::MEAN,
                    src: src.view(),
                    beta: 0.0,
                    dst: dst.view_mut(),
                }
                .run(&CPU);
            });
        }
        let half: Vec<bf16> = src.view().host().iter().map(|&x| bf16::from_f32(x)).collect();
        let half = Matrix::shared(TableData::Bf16(half.into()), cols);
        let block = block(false);
        // half the bytes of each value read
        bench.bytes(&format!("aggregate mean of bf16 random F={cols}"), 120_000 * cols + 200_000, || {
            Aggregate {
                block: &block,
                weights: AggregationWeights::MEAN,
                src: half.view(),
                beta: 0.0,
                dst: dst.view_mut(),
            }
            .run(&CPU);
        });
        let (grad, mut back) = (random(20_000, cols), Matrix::zeros(200_000, cols));
        bench.bytes(&format!("aggregate_transposed F={cols}"), 400_000 * cols + 200_000, || {
            AggregateTransposed {
                block: &block,
                weights: AggregationWeights::MEAN,
                dst_grad: grad.view(),
                beta: 0.0,
                src_grad: back.view_mut(),
            }
            .run(&CPU);
        });
        let mut arg = ArgMax::default();
        bench.bytes(&format!("aggregate_max F={cols}"), 240_000 * cols + 200_000, || {
            AggregateMax { block: &block, src: src.view(), dst: dst.view_mut(), arg: &mut arg }.run(&CPU);
        });
    }

    let (x100, x256, grad47) = (random(ROWS, 100), random(ROWS, 256), random(ROWS, 47));
    let (w100, w256, w47) = (random(100, 256), random(256, 256), random(256, 47));
    let mut out = Matrix::zeros(ROWS, 256);
    use Side::{Plain, Transposed};
    bench.gemm("100k x 100 x 256", (x100.view(), Plain), (w100.view(), Plain), &mut out);
    bench.gemm("100k x 256 x 256", (x256.view(), Plain), (w256.view(), Plain), &mut out);
    bench.gemm("dX 100k x 256 x 256", (x256.view(), Plain), (w256.view(), Transposed), &mut out);
    let mut logits = Matrix::zeros(ROWS, 47);
    bench.gemm("100k x 256 x 47", (x256.view(), Plain), (w47.view(), Plain), &mut logits);
    let mut dw = Matrix::zeros(256, 47);
    bench.gemm("dW 256 x 100k x 47", (x256.view(), Transposed), (grad47.view(), Plain), &mut dw);
    let mut dw = Matrix::zeros(100, 256);
    bench.gemm("dW 100 x 100k x 256", (x100.view(), Transposed), (out.view(), Plain), &mut dw);
    let mut dw = Matrix::zeros(256, 256);
    bench.gemm("dW 256 x 100k x 256", (x256.view(), Transposed), (x256.view(), Plain), &mut dw);
    // the first layer of a minibatch of 1024 seeds
    let (x, grad, mut out) = (random(8000, 100), random(8000, 256), Matrix::zeros(8000, 256));
    bench.gemm("8k x 100 x 256", (x.view(), Plain), (w100.view(), Plain), &mut out);
    let mut dw = Matrix::zeros(100, 256);
    bench.gemm("dW 100 x 8k x 256", (x.view(), Transposed), (grad.view(), Plain), &mut dw);
    let (x, w, mut out) = (random(20_000, 602), random(602, 256), Matrix::zeros(20_000, 256));
    bench.gemm("20k x 602 x 256", (x.view(), Plain), (w.view(), Plain), &mut out);
    let (grad, mut dw) = (random(20_000, 256), Matrix::zeros(602, 256));
    bench.gemm("dW 602 x 20k x 256", (x.view(), Transposed), (grad.view(), Plain), &mut dw);

    let (table, mut rows) = (random(2_000_000, 100), Matrix::zeros(200_000, 100));
    let mut stream = Stream::new(3);
    let ids: Vec<u32> = (0..200_000).map(|_| stream.below(2_000_000) as u32).collect();
    bench.bytes("gather 200k of 2M rows of 100", 2 * 200_000 * 100, || {
        Gather { src: table.view(), ids: &ids, dst: rows.view_mut() }.run(&CPU);
    });
    drop(table);

    sparse_rows(&bench);

    let (bias, mut bias_grad) = (random(1, 256), Matrix::zeros(1, 256));
    let mut x = x256.clone();
    for (name, dropout) in [("", Dropout::NONE), (" + dropout", Dropout { p: 0.5, key: 1 })] {
        bench.bytes(&format!("bias + ReLU{name} 100k x 256"), 2 * ROWS * 256, || {
            EpilogueForward {
                bias: Some(bias.view()),
                activation: Activation::Relu,
                dropout,
                x: x.view_mut(),
            }
            .run(&CPU);
        });
        bench.bytes(&format!("bias + ReLU{name} gradient 100k x 256"), 3 * ROWS * 256, || {
            let bias_grad = Some(bias_grad.view_mut());
            EpilogueBackward {
                activation: Activation::Relu,
                dropout,
                y: x256.view(),
                grad: x.view_mut(),
                bias_grad,
            }
            .run(&CPU);
        });
    }
    let (gamma, mut stats) = (random(1, 256), Matrix::zeros(2, 256));
    bench.bytes("batch norm 100k x 256", 3 * ROWS * 256, || {
        BatchNormForward {
            x: x256.view(),
            gamma: gamma.view(),
            beta: gamma.view(),
            eps: 1e-5,
            stats: stats.view_mut(),
            out: x.view_mut(),
        }
        .run(&CPU);
    });

    let mut stream = Stream::new(4);
    let label: Vec<i32> = (0..ROWS).map(|_| stream.below(47) as i32).collect();
    let mut grad = Matrix::zeros(ROWS, 47);
    bench.bytes("softmax cross-entropy 100k x 47", 2 * ROWS * 47, || {
        black_box(
            SoftmaxCrossEntropy {
                logits: grad47.view(),
                label: &label,
                weight: &[],
                scale: 1e-5,
                grad: grad.view_mut(),
            }
            .run(&CPU),
        );
    });

    // GAT: 4 heads of 32
    let block = block(false);
    let (z, mut out) = (random(200_000, 128), Matrix::zeros(20_000, 128));
    let (source, mut alpha) = (random(200_000, 4), random(220_000, 4));
    bench.bytes("attend 4 heads of 32", 240_000 * 128 + 220_000 * 5, || {
        Attend { block: &block, alpha: alpha.view(), z: z.view(), out: out.view_mut() }.run(&CPU);
    });
    bench.bytes("edge softmax 4 heads", 440_000 * 4 + 200_000, || {
        EdgeSoftmax {
            block: &block,
            source: source.view(),
            target: source.view(),
            slope: 0.2,
            alpha: alpha.view_mut(),
        }
        .run(&CPU);
    });

    let (g, mut m, mut v) = (random(1000, 1000), random(1000, 1000), Matrix::zeros(1000, 1000));
    let mut value = random(1000, 1000);
    let step = AdamStep {
        lr: 1e-3,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        decoupled: false,
        correction1: 0.1,
        correction2: 0.001,
    };
    bench.bytes("Adam 1M values", 7_000_000, || {
        AdamUpdate { step, grad: g.view(), m: m.view_mut(), v: v.view_mut(), value: value.view_mut() }
            .run(&CPU);
    });

    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        let (src, mut dst) = (random(200_000, 100), Matrix::zeros(20_000, 100));
        bench.bytes(&format!("aggregate mean random F=100, {level:?}"), 220_000 * 100 + 200_000, || {
            with_level(level, || {
                Aggregate {
                    block: &block,
                    weights: AggregationWeights::MEAN,
                    src: src.view(),
                    beta: 0.0,
                    dst: dst.view_mut(),
                }
                .run(&CPU)
            });
        });
        bench.bytes(&format!("softmax cross-entropy 100k x 47, {level:?}"), 2 * ROWS * 47, || {
            with_level(level, || {
                black_box(
                    SoftmaxCrossEntropy {
                        logits: grad47.view(),
                        label: &label,
                        weight: &[],
                        scale: 1e-5,
                        grad: grad.view_mut(),
                    }
                    .run(&CPU),
                )
            });
        });
    }
}
