//! Every operation of a backend on random inputs: `(name, tolerance, run)`. A backend's tests
//! compare the results of `run` with the reference backend's, or with its own under other
//! conditions.

use graphmill_core::{Block, keyed::Stream};
use graphmill_nn::backend::{
    Activation, AdamStep, AggregationWeights, ArgMax, Backend, Dropout, EdgeWeight, OwnWeight, SgdStep, Side,
    ops::{
        AdamUpdate, Add, AddDot, AddTimes, Aggregate, AggregateMax, AggregateMaxTransposed,
        AggregateTransposed, Attend, AttendBackward, AttendInput, AttendInputBackward, AttendInputTransposed,
        BatchNormApply, BatchNormBackward, BatchNormForward, Dense, DotSoftmax, DotSoftmaxBackward,
        EdgeAttention, EdgeAttentionBackward, EdgeSoftmax, EdgeSoftmaxBackward, EpilogueBackward,
        EpilogueForward, Gated, GatedSum, GatedSumBackward, Gather, GeluBackward, GeluForward, Gemm, HeadDot,
        HeadDotBackward, HeadGemm, HeadMean, HeadMeanBackward, Hop, HopTransposed, L2NormBackward,
        L2NormForward, LayerNormBackward, LayerNormForward, PairSoftmax, PairSoftmaxBackward,
        RelationAttention, RelationAttentionBackward, ReluSum, ReluSumBackward, ScaleHeads,
        ScaleHeadsBackward, SgdUpdate, SigmoidCrossEntropy, Skip, SkipBackward, SoftmaxCrossEntropy,
        WeightGradients,
    },
};
use graphmill_nn::{Matrix, View, matrix::TableData};
use half::{bf16, f16};

/// Sizes of the inputs; `seed` determines the values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Inner dimension of products.
    pub(crate) inner: usize,
    pub(crate) heads: usize,
    pub(crate) dst: usize,
    /// Number of sources besides the destinations.
    pub(crate) extra_src: usize,
    /// Maximum number of edges of a destination (except for one, which has ten times as many).
    pub(crate) degree: usize,
    pub(crate) seed: u64,
}

/// All outputs of an operation, concatenated.
pub(crate) type Outputs = Vec<f64>;

/// An operation: its name, the maximum error relative to the largest output (or to 1, if larger),
/// and a function that runs it.
pub(crate) type Operation = (&'static str, f64, fn(&dyn Backend, Shape) -> Outputs);

struct Inputs {
    stream: Stream,
    shape: Shape,
}

impl Inputs {
    fn new(shape: Shape) -> Self {
        Self { stream: Stream::new(shape.seed), shape }
    }

    /// Uniform value of variance 1.
    fn value(&mut self) -> f32 {
        3.46 * (self.stream.uniform() as f32 - 0.5)
    }

    fn matrix(&mut self, rows: usize, cols: usize) -> Matrix {
        let data: Vec<f32> = (0..rows * cols).map(|_| self.value()).collect();
        Matrix::from_slice(rows, cols, &data)
    }

    /// Matrix with few distinct values, so that there are ties.
    fn ties(&mut self, rows: usize, cols: usize) -> Matrix {
        let data: Vec<f32> = (0..rows * cols).map(|_| self.stream.below(5) as f32 - 2.0).collect();
        Matrix::from_slice(rows, cols, &data)
    }

    /// Matrix with a row per row of `shape`.
    fn rows(&mut self) -> Matrix {
        self.matrix(self.shape.rows, self.shape.cols)
    }

    fn row(&mut self) -> Matrix {
        self.matrix(1, self.shape.cols)
    }

    fn sources(&mut self) -> Matrix {
        self.matrix(self.shape.dst + self.shape.extra_src, self.shape.cols)
    }

    fn destinations(&mut self) -> Matrix {
        self.matrix(self.shape.dst, self.shape.cols)
    }

    /// Destinations with up to `degree` edges, including duplicates and loops.
    fn block(&mut self, global: bool) -> Block {
        let Shape { dst, extra_src, degree, .. } = self.shape;
        let src = dst + extra_src;
        let mut block = Block { num_dst: dst, num_src: src, indptr: vec![0], ..Block::default() };
        for v in 0..dst {
            let most = if v == dst / 2 { 10 * degree } else { degree };
            for _ in 0..self.stream.below(most as u64 + 1) {
                block.indices.push(self.stream.below(src as u64) as u32);
                block.edge_weight.push(self.value());
            }
            block.indptr.push(block.indices.len() as u32);
            block.self_weight.push(self.value());
        }
        if global {
            block.dst_ids = Some((0..dst).map(|_| self.stream.below(src as u64) as u32).collect());
        } else {
            block.transpose();
        }
        block
    }

    fn loss_weights(&mut self) -> Vec<f32> {
        (0..self.shape.rows).map(|_| self.stream.uniform() as f32).collect()
    }
}

fn all(outputs: &[View]) -> Outputs {
    outputs.iter().flat_map(|x| x.host()).map(|&x| f64::from(x)).collect()
}

/// Table formats that a layer may read in place.
const TABLES: [fn(Matrix) -> Matrix; 3] = [|x| x, f16_table, bf16_table];

/// Table of the values as f16; some are subnormal.
fn f16_table(x: Matrix) -> Matrix {
    let small = |(i, x): (usize, &f32)| f16::from_f32(if i % 7 == 0 { x * 1e-5 } else { *x });
    let half: Vec<f16> = x.view().host().iter().enumerate().map(small).collect();
    Matrix::shared(TableData::F16(half.into()), x.num_cols())
}

fn bf16_table(x: Matrix) -> Matrix {
    let half: Vec<bf16> = x.view().host().iter().map(|&x| bf16::from_f32(x)).collect();
    Matrix::shared(TableData::Bf16(half.into()), x.num_cols())
}

const WEIGHTINGS: [AggregationWeights; 7] = [
    AggregationWeights { edge: EdgeWeight::Normalized, own: OwnWeight::None },
    AggregationWeights::MEAN,
    AggregationWeights::STORED,
    AggregationWeights { edge: EdgeWeight::One, own: OwnWeight::None },
    AggregationWeights { edge: EdgeWeight::One, own: OwnWeight::Constant(1.5) },
    AggregationWeights { edge: EdgeWeight::Mean, own: OwnWeight::Stored },
    AggregationWeights { edge: EdgeWeight::Stored, own: OwnWeight::Constant(-0.5) },
];

/// All weightings, and one whose own weight is 1 + a matrix's value.
fn weightings(plus: &Matrix) -> impl Iterator<Item = AggregationWeights<'_>> {
    let learned = AggregationWeights { edge: EdgeWeight::One, own: OwnWeight::OnePlus(plus.view()) };
    WEIGHTINGS.into_iter().chain([learned])
}

const ACTIVATIONS: [Activation; 4] =
    [Activation::Identity, Activation::Relu, Activation::Elu, Activation::LeakyRelu];

const DROPOUTS: [Dropout; 2] = [Dropout::NONE, Dropout { p: 0.3, key: 99 }];

/// Positive attention weights, as a softmax gives.
fn attention(inputs: &mut Inputs, block: &Block) -> Matrix {
    let mut alpha = inputs.matrix(block.num_edges() + block.num_dst, inputs.shape.heads);
    alpha.view_mut().host().iter_mut().for_each(|x| *x = x.abs() / 4.0);
    alpha
}

fn wide(inputs: &mut Inputs, rows: usize) -> Matrix {
    inputs.matrix(rows, inputs.shape.heads * inputs.shape.cols)
}

fn gemm(b: &dyn Backend, shape: Shape, side_a: Side, side_b: Side) -> Outputs {
    let mut inputs = Inputs::new(shape);
    let Shape { rows, cols, inner, .. } = shape;
    // a transposed left factor reduces over the many rows
    let (m, n, k) = if side_a == Side::Transposed { (inner, cols, rows) } else { (rows, cols, inner) };
    let a = if side_a == Side::Plain { inputs.matrix(m, k) } else { inputs.matrix(k, m) };
    let x = if side_b == Side::Plain { inputs.matrix(k, n) } else { inputs.matrix(n, k) };
    let mut out = Vec::new();
    for beta in [0.0, 1.0, -0.5] {
        let mut c = inputs.matrix(m, n);
        if beta == 0.0 {
            c.view_mut().host().fill(f32::NAN);
        }
        Gemm { a: (a.view(), side_a), b: (x.view(), side_b), beta, c: c.view_mut() }.run(b);
        out.extend(all(&[c.view()]));
    }
    out
}

fn head_gemm(b: &dyn Backend, shape: Shape, side_a: Side, side_b: Side) -> Outputs {
    let mut inputs = Inputs::new(shape);
    let Shape { rows, cols, inner, heads, .. } = shape;
    let (m, n, k) = if side_a == Side::Transposed { (inner, cols, rows) } else { (rows, cols, inner) };
    let mut factor = |side, rows, cols| {
        let (rows, cols) = if side == Side::Plain { (rows, cols) } else { (cols, rows) };
        inputs.matrix(rows, heads * cols)
    };
    let (a, x, mut c) = (factor(side_a, m, k), factor(side_b, k, n), factor(Side::Plain, m, n));
    let mut out = Vec::new();
    for beta in [1.0, 0.0] {
        HeadGemm { heads, a: (a.view(), side_a), b: (x.view(), side_b), beta, c: c.view_mut() }.run(b);
        out.extend(all(&[c.view()]));
        c.view_mut().host().fill(f32::NAN);
    }
    out
}

fn softmax_ce(b: &dyn Backend, shape: Shape, stretch: f32) -> Outputs {
    let mut inputs = Inputs::new(shape);
    let mut logits = inputs.rows();
    logits.view_mut().host().iter_mut().for_each(|x| *x *= stretch);
    let label: Vec<i32> =
        (0..shape.rows).map(|_| inputs.stream.below(shape.cols as u64 + 1) as i32 - 1).collect();
    let weight = inputs.loss_weights();
    let mut grad = Matrix::zeros(shape.rows, shape.cols);
    let mut out = Vec::new();
    for weight in [&[][..], &weight[..]] {
        out.push(
            b.resolve_loss(
                SoftmaxCrossEntropy {
                    logits: logits.view(),
                    label: &label,
                    weight,
                    scale: 0.3,
                    grad: grad.view_mut(),
                }
                .run(b),
            ),
        );
        out.extend(all(&[grad.view()]));
    }
    out
}

/// The table of operations.
pub(crate) const OPERATIONS: &[Operation] = &[
    ("gemm NN", 1e-5, |b, s| gemm(b, s, Side::Plain, Side::Plain)),
    ("gemm NT", 1e-5, |b, s| gemm(b, s, Side::Plain, Side::Transposed)),
    ("gemm TN", 1e-5, |b, s| gemm(b, s, Side::Transposed, Side::Plain)),
    ("gemm NN by heads", 1e-5, |b, s| head_gemm(b, s, Side::Plain, Side::Plain)),
    ("gemm NT by heads", 1e-5, |b, s| head_gemm(b, s, Side::Plain, Side::Transposed)),
    ("gemm TN by heads", 1e-5, |b, s| head_gemm(b, s, Side::Transposed, Side::Plain)),
    ("joint weight gradients", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let (x, y, grad) =
            (inputs.matrix(s.rows, s.inner), inputs.matrix(s.rows, s.cols), inputs.matrix(s.rows, s.cols));
        let (mut of_x, mut of_y) = (inputs.matrix(s.inner, s.cols), inputs.matrix(s.cols, s.cols));
        WeightGradients {
            a: [x.view(), y.view()],
            b: grad.view(),
            beta: 1.0,
            c: [of_x.view_mut(), of_y.view_mut()],
        }
        .run(b);
        all(&[of_x.view(), of_y.view()])
    }),
    ("gemm with epilogue", 1e-5, |b, s| {
        let mut out = Vec::new();
        for (i, (activation, dropout)) in
            ACTIVATIONS.into_iter().flat_map(|a| DROPOUTS.into_iter().map(move |d| (a, d))).enumerate()
        {
            let mut inputs = Inputs::new(s);
            let (x, w) = (inputs.matrix(s.rows, s.inner), inputs.matrix(s.inner, s.cols));
            let (other, v) = (inputs.matrix(s.rows, s.cols), inputs.matrix(s.cols, s.cols));
            let (bias, mut y) = (inputs.row(), inputs.rows());
            let bias = (i % 3 > 0).then(|| bias.view());
            Dense {
                x: x.view(),
                w: w.view(),
                plus: (i % 4 > 1).then(|| (other.view(), v.view())),
                beta: [0.0, 1.0][i % 2],
                bias,
                activation,
                dropout,
                out: y.view_mut(),
            }
            .run(b);
            out.extend(all(&[y.view()]));
        }
        out
    }),
    ("aggregate", 1e-5, |b, s| {
        let mut out = Vec::new();
        let plus = Matrix::from_slice(1, 1, &[-0.3]);
        for global in [false, true] {
            let mut inputs = Inputs::new(s);
            let (block, src) = (inputs.block(global), inputs.sources());
            for (i, weighting) in weightings(&plus).enumerate() {
                let mut dst = inputs.destinations();
                Aggregate {
                    block: &block,
                    weights: weighting,
                    src: src.view(),
                    beta: [0.0, 1.0, 0.7][i % 3],
                    dst: dst.view_mut(),
                }
                .run(b);
                out.extend(all(&[dst.view()]));
            }
        }
        out
    }),
    ("aggregate and gather of 16-bit floats", 1e-5, |b, s| {
        let mut out = Vec::new();
        for half in [f16_table, bf16_table] {
            let mut inputs = Inputs::new(s);
            let (block, src) = (inputs.block(true), half(inputs.sources()));
            for (i, weighting) in WEIGHTINGS.into_iter().enumerate() {
                let mut dst = inputs.destinations();
                Aggregate {
                    block: &block,
                    weights: weighting,
                    src: src.view(),
                    beta: [0.0, 1.0, 0.7][i % 3],
                    dst: dst.view_mut(),
                }
                .run(b);
                out.extend(all(&[dst.view()]));
            }
            let mut rows = inputs.destinations();
            Gather { src: src.view(), ids: block.dst_ids.as_deref().unwrap(), dst: rows.view_mut() }.run(b);
            out.extend(all(&[rows.view()]));
        }
        out
    }),
    ("aggregate_transposed", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let (block, grad) = (inputs.block(false), inputs.destinations());
        let plus = Matrix::from_slice(1, 1, &[-0.3]);
        let mut out = Vec::new();
        for (i, weighting) in weightings(&plus).enumerate() {
            let mut src = inputs.sources();
            AggregateTransposed {
                block: &block,
                weights: weighting,
                dst_grad: grad.view(),
                beta: [0.0, 1.0, 0.7][i % 3],
                src_grad: src.view_mut(),
            }
            .run(b);
            out.extend(all(&[src.view()]));
        }
        out
    }),
    ("hop", 1e-5, |b, s| {
        let mut out = Vec::new();
        let stored = AggregationWeights::STORED;
        let firsts = [0, s.cols / 3, s.cols].map(|first| (first, stored));
        for (first, weights) in firsts.into_iter().chain([(s.cols / 2, AggregationWeights::MEAN)]) {
            for global in [false, true] {
                let mut inputs = Inputs::new(s);
                let (block, src, mut dst) = (inputs.block(global), inputs.sources(), inputs.destinations());
                let (grad, mut back) = (inputs.destinations(), inputs.sources());
                Hop { first, block: &block, weights, src: src.view(), dst: dst.view_mut() }.run(b);
                out.extend(all(&[dst.view()]));
                if !global {
                    HopTransposed {
                        first,
                        block: &block,
                        weights,
                        dst_grad: grad.view(),
                        src_grad: back.view_mut(),
                    }
                    .run(b);
                    out.extend(all(&[back.view()]));
                }
            }
        }
        out
    }),
    ("aggregate_max", 1e-5, |b, s| {
        let mut out = Vec::new();
        for global in [false, true] {
            let mut inputs = Inputs::new(s);
            let block = inputs.block(global);
            let src = inputs.ties(block.num_src, s.cols);
            let (mut dst, mut arg) = (inputs.destinations(), ArgMax::default());
            arg.resize(1, 3);
            arg.host_mut().fill(7);
            AggregateMax { block: &block, src: src.view(), dst: dst.view_mut(), arg: &mut arg }.run(b);
            out.extend(all(&[dst.view()]));
            // the edges exactly, because the tolerance is relative to the largest output
            out.extend(arg.host().iter().map(|&e| if e == u32::MAX { -1.0 } else { f64::from(e % 16) }));
            if !global {
                let (grad, mut back) = (inputs.destinations(), inputs.sources());
                AggregateMaxTransposed {
                    block: &block,
                    arg: &arg,
                    dst_grad: grad.view(),
                    src_grad: back.view_mut(),
                }
                .run(b);
                out.extend(all(&[back.view()]));
            }
        }
        out
    }),
    ("head_dot", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let (z, a) = (wide(&mut inputs, s.rows), wide(&mut inputs, 1));
        let mut out = Matrix::zeros(s.rows, s.heads);
        HeadDot { z: z.view(), a: a.view(), heads: s.heads, out: out.view_mut() }.run(b);
        let (mut z_grad, mut a_grad) = (wide(&mut inputs, s.rows), wide(&mut inputs, 1));
        let grad = inputs.matrix(s.rows, s.heads);
        HeadDotBackward {
            z: z.view(),
            a: a.view(),
            heads: s.heads,
            grad: grad.view(),
            z_grad: z_grad.view_mut(),
            a_grad: a_grad.view_mut(),
        }
        .run(b);
        all(&[out.view(), z_grad.view(), a_grad.view()])
    }),
    ("edge_softmax", 1e-5, |b, s| {
        let mut out = Vec::new();
        for global in [false, true] {
            let mut inputs = Inputs::new(s);
            let block = inputs.block(global);
            let (source, target) =
                (inputs.matrix(block.num_src, s.heads), inputs.matrix(block.num_src, s.heads));
            let mut alpha = inputs.matrix(block.num_edges() + block.num_dst, s.heads);
            EdgeSoftmax {
                block: &block,
                source: source.view(),
                target: target.view(),
                slope: 0.2,
                alpha: alpha.view_mut(),
            }
            .run(b);
            out.extend(all(&[alpha.view()]));
        }
        out
    }),
    ("edge_softmax_backward", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let block = inputs.block(false);
        let mut logits = || inputs.matrix(block.num_src, s.heads);
        let (source, target, mut source_grad, mut target_grad) = (logits(), logits(), logits(), logits());
        let alpha = attention(&mut inputs, &block);
        let alpha_grad = inputs.matrix(block.num_edges() + block.num_dst, s.heads);
        let mut scratch = alpha.clone();
        EdgeSoftmaxBackward {
            block: &block,
            source: source.view(),
            target: target.view(),
            slope: 0.2,
            alpha: alpha.view(),
            alpha_grad: alpha_grad.view(),
            scratch: scratch.view_mut(),
            source_grad: source_grad.view_mut(),
            target_grad: target_grad.view_mut(),
        }
        .run(b);
        all(&[source_grad.view(), target_grad.view()])
    }),
    ("attend", 1e-5, |b, s| {
        let mut out = Vec::new();
        for global in [false, true] {
            let mut inputs = Inputs::new(s);
            let block = inputs.block(global);
            let (alpha, z) = (attention(&mut inputs, &block), wide(&mut inputs, block.num_src));
            let mut dst = wide(&mut inputs, block.num_dst);
            Attend { block: &block, alpha: alpha.view(), z: z.view(), out: dst.view_mut() }.run(b);
            out.extend(all(&[dst.view()]));
            if !global {
                let grad = wide(&mut inputs, block.num_dst);
                let (mut alpha_grad, mut z_grad) = (alpha.clone(), z.clone());
                AttendBackward {
                    block: &block,
                    alpha: alpha.view(),
                    z: z.view(),
                    grad: grad.view(),
                    alpha_grad: alpha_grad.view_mut(),
                    z_grad: z_grad.view_mut(),
                }
                .run(b);
                out.extend(all(&[alpha_grad.view(), z_grad.view()]));
            }
        }
        out
    }),
    ("attend_input", 1e-5, |b, s| {
        let mut out = Vec::new();
        for (global, table) in [false, true].into_iter().flat_map(|g| TABLES.map(|t| (g, t))) {
            for dropout in DROPOUTS {
                let mut inputs = Inputs::new(s);
                let (block, x) = (inputs.block(global), table(inputs.sources()));
                let (source, target) = (inputs.matrix(s.cols, s.heads), inputs.matrix(s.cols, s.heads));
                let (mut score, mut dst) = (attention(&mut inputs, &block), wide(&mut inputs, s.dst));
                let (mut alpha, mut used) = (score.clone(), Matrix::zeros(score.num_rows(), s.heads));
                AttendInput {
                    block: &block,
                    x: x.view(),
                    source: source.view(),
                    target: target.view(),
                    slope: 0.2,
                    dropout,
                    score: score.view_mut(),
                    alpha: alpha.view_mut(),
                    used: used.view_mut(),
                    out: dst.view_mut(),
                }
                .run(b);
                out.extend(all(&[score.view(), alpha.view(), used.view(), dst.view()]));
            }
        }
        out
    }),
    ("attend_input_backward", 1e-5, |b, s| {
        let mut out = Vec::new();
        for (global, table) in [false, true].into_iter().flat_map(|g| TABLES.map(|t| (g, t))) {
            let mut inputs = Inputs::new(s);
            let (block, x) = (inputs.block(global), table(inputs.sources()));
            let (alpha, used) = (attention(&mut inputs, &block), attention(&mut inputs, &block));
            let score = inputs.matrix(alpha.num_rows(), s.heads);
            let (grad, mut score_grad) = (wide(&mut inputs, s.dst), score.clone());
            let (mut source, mut target) = (inputs.matrix(s.cols, s.heads), inputs.matrix(s.cols, s.heads));
            AttendInputBackward {
                block: &block,
                x: x.view(),
                slope: 0.2,
                score: score.view(),
                alpha: alpha.view(),
                used: used.view(),
                grad: grad.view(),
                score_grad: score_grad.view_mut(),
                source_grad: source.view_mut(),
                target_grad: target.view_mut(),
            }
            .run(b);
            out.extend(all(&[score_grad.view(), source.view(), target.view()]));
        }
        out
    }),
    ("attend_input_transposed", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let (block, mut x_grad) = (inputs.block(false), inputs.sources());
        let (source, target) = (inputs.matrix(s.cols, s.heads), inputs.matrix(s.cols, s.heads));
        let (used, grad) = (attention(&mut inputs, &block), wide(&mut inputs, s.dst));
        let score_grad = inputs.matrix(used.num_rows(), s.heads);
        AttendInputTransposed {
            block: &block,
            source: source.view(),
            target: target.view(),
            used: used.view(),
            grad: grad.view(),
            score_grad: score_grad.view(),
            x_grad: x_grad.view_mut(),
        }
        .run(b);
        all(&[x_grad.view()])
    }),
    ("head_mean", 1e-6, |b, s| {
        let mut inputs = Inputs::new(s);
        let x = wide(&mut inputs, s.rows);
        let (mut out, mut back) = (inputs.rows(), wide(&mut inputs, s.rows));
        HeadMean { x: x.view(), heads: s.heads, out: out.view_mut() }.run(b);
        HeadMeanBackward { grad: out.view(), heads: s.heads, x_grad: back.view_mut() }.run(b);
        all(&[out.view(), back.view()])
    }),
    ("gather", 0.0, |b, s| {
        let mut inputs = Inputs::new(s);
        let src = inputs.matrix(s.dst + s.extra_src + 1, s.cols);
        let ids: Vec<u32> = (0..s.rows).map(|_| inputs.stream.below(src.num_rows() as u64) as u32).collect();
        let mut out = inputs.rows();
        Gather { src: src.view(), ids: &ids, dst: out.view_mut() }.run(b);
        all(&[out.view()])
    }),
    ("add, scale, copy, fill", 1e-6, |b, s| {
        let mut inputs = Inputs::new(s);
        let (x, mut y, mut z, mut filled) = (inputs.rows(), inputs.rows(), inputs.rows(), inputs.rows());
        filled.view_mut().host().fill(f32::NAN);
        b.fill(0.5, filled.view_mut());
        Add { alpha: -0.3, x: x.view(), y: y.view_mut() }.run(b);
        b.copy(y.view(), z.view_mut());
        b.scale(1.7, z.view_mut());
        all(&[y.view(), z.view(), filled.view()])
    }),
    ("add_column_sums, dot", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let (x, y, mut out) = (inputs.rows(), inputs.rows(), inputs.row());
        b.add_column_sums(x.view(), out.view_mut());
        let mut out = all(&[out.view()]);
        out.push(b.dot(x.view(), y.view()));
        out
    }),
    ("add_dot, squares", 1e-6, |b, s| {
        let mut inputs = Inputs::new(s);
        let (x, y, mut sums) = (inputs.rows(), inputs.rows(), Matrix::from_slice(1, 2, &[1.5, -0.5]));
        for (y, at) in [(&x, 0), (&y, 0), (&y, 1)] {
            AddDot { x: x.view(), y: y.view(), out: sums.view_mut(), at }.run(b);
        }
        let mut out = all(&[sums.view()]);
        out.push(b.squares(&mut |see| [&x, &y].into_iter().for_each(|x| see(x.view()))));
        out.push(b.squares(&mut |_| ()));
        out
    }),
    ("epilogue", 1e-6, |b, s| {
        let mut out = Vec::new();
        for activation in ACTIVATIONS {
            for dropout in DROPOUTS {
                let mut inputs = Inputs::new(s);
                let (bias, mut x, mut plain) = (inputs.row(), inputs.rows(), inputs.rows());
                EpilogueForward { bias: Some(bias.view()), activation, dropout, x: x.view_mut() }.run(b);
                EpilogueForward { bias: None, activation, dropout, x: plain.view_mut() }.run(b);
                out.extend(all(&[x.view(), plain.view()]));
            }
        }
        out
    }),
    ("epilogue_backward", 1e-5, |b, s| {
        let mut out = Vec::new();
        for activation in ACTIVATIONS {
            for dropout in DROPOUTS {
                let mut inputs = Inputs::new(s);
                // above -0.7, within the range of all activations
                let (mut y, mut bias_grad) = (inputs.rows(), inputs.row());
                y.view_mut().host().iter_mut().for_each(|y| *y = y.max(-0.7));
                let (mut grad, mut plain) = (inputs.rows(), inputs.rows());
                let bias = Some(bias_grad.view_mut());
                EpilogueBackward { activation, dropout, y: y.view(), grad: grad.view_mut(), bias_grad: bias }
                    .run(b);
                EpilogueBackward {
                    activation,
                    dropout,
                    y: y.view(),
                    grad: plain.view_mut(),
                    bias_grad: None,
                }
                .run(b);
                out.extend(all(&[grad.view(), bias_grad.view(), plain.view()]));
            }
        }
        out
    }),
    ("batch_norm", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let (mut x, gamma, beta, mut out) = (inputs.rows(), inputs.row(), inputs.row(), inputs.rows());
        // far from zero, so that a variance computed by cancellation would fail
        x.view_mut().host().iter_mut().for_each(|x| *x += 100.0);
        let mut stats = Matrix::zeros(2, s.cols);
        BatchNormForward {
            x: x.view(),
            gamma: gamma.view(),
            beta: beta.view(),
            eps: 0.1,
            stats: stats.view_mut(),
            out: out.view_mut(),
        }
        .run(b);
        all(&[stats.view(), out.view()])
    }),
    ("batch_norm_apply", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let (x, gamma, beta, mut out) = (inputs.rows(), inputs.row(), inputs.row(), inputs.rows());
        let mut stats = inputs.matrix(2, s.cols);
        stats.view_mut().host().iter_mut().for_each(|x| *x = x.abs());
        BatchNormApply {
            x: x.view(),
            gamma: gamma.view(),
            beta: beta.view(),
            eps: 0.01,
            stats: stats.view(),
            out: out.view_mut(),
        }
        .run(b);
        all(&[out.view()])
    }),
    ("batch_norm_backward", 2e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let (x, gamma, mut grad) = (inputs.rows(), inputs.row(), inputs.rows());
        let (mut gamma_grad, mut beta_grad, mut out) = (inputs.row(), inputs.row(), inputs.rows());
        let mut stats = Matrix::zeros(2, s.cols);
        BatchNormForward {
            x: x.view(),
            gamma: gamma.view(),
            beta: gamma.view(),
            eps: 0.01,
            stats: stats.view_mut(),
            out: out.view_mut(),
        }
        .run(b);
        BatchNormBackward {
            x: x.view(),
            gamma: gamma.view(),
            eps: 0.01,
            stats: stats.view(),
            grad: grad.view_mut(),
            gamma_grad: gamma_grad.view_mut(),
            beta_grad: beta_grad.view_mut(),
        }
        .run(b);
        all(&[grad.view(), gamma_grad.view(), beta_grad.view()])
    }),
    ("layer_norm", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let (x, gamma, beta, mut out) = (inputs.rows(), inputs.row(), inputs.row(), inputs.rows());
        let mut stats = Matrix::zeros(s.rows, 2);
        LayerNormForward {
            x: x.view(),
            gamma: gamma.view(),
            beta: beta.view(),
            eps: 0.01,
            stats: stats.view_mut(),
            out: out.view_mut(),
        }
        .run(b);
        all(&[stats.view(), out.view()])
    }),
    ("layer_norm_backward", 2e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let (x, gamma, mut grad) = (inputs.rows(), inputs.row(), inputs.rows());
        let (mut gamma_grad, mut beta_grad, mut out) = (inputs.row(), inputs.row(), inputs.rows());
        let mut stats = Matrix::zeros(s.rows, 2);
        LayerNormForward {
            x: x.view(),
            gamma: gamma.view(),
            beta: gamma.view(),
            eps: 0.01,
            stats: stats.view_mut(),
            out: out.view_mut(),
        }
        .run(b);
        LayerNormBackward {
            x: x.view(),
            gamma: gamma.view(),
            eps: 0.01,
            stats: stats.view(),
            grad: grad.view_mut(),
            gamma_grad: gamma_grad.view_mut(),
            beta_grad: beta_grad.view_mut(),
        }
        .run(b);
        all(&[grad.view(), gamma_grad.view(), beta_grad.view()])
    }),
    ("l2_norm", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let (mut x, mut out, mut grad) = (inputs.rows(), inputs.rows(), inputs.rows());
        if s.rows > 0 {
            x.rows_mut(0..1).host().fill(0.0);
        }
        // long enough that the gradient, divided by the length, exceeds rounding errors
        x.view_mut().host().iter_mut().for_each(|x| *x += 0.5_f32.copysign(*x) * f32::from(*x != 0.0));
        let mut norms = Matrix::zeros(s.rows, 1);
        L2NormForward { x: x.view(), norms: norms.view_mut(), out: out.view_mut() }.run(b);
        L2NormBackward { y: out.view(), norms: norms.view(), grad: grad.view_mut() }.run(b);
        all(&[norms.view(), out.view(), grad.view()])
    }),
    ("softmax_cross_entropy", 1e-5, |b, s| softmax_ce(b, s, 1.0)),
    ("softmax_cross_entropy of large logits", 1e-5, |b, s| softmax_ce(b, s, 300.0)),
    ("sigmoid_cross_entropy", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let mut logits = inputs.rows();
        logits.view_mut().host().iter_mut().for_each(|x| *x *= 8.0);
        let target: Vec<u8> = (0..s.rows * s.cols).map(|_| inputs.stream.below(2) as u8).collect();
        let weight = inputs.loss_weights();
        let mut grad = inputs.rows();
        let mut out = Vec::new();
        for weight in [&[][..], &weight[..]] {
            out.push(
                b.resolve_loss(
                    SigmoidCrossEntropy {
                        logits: logits.view(),
                        target: &target,
                        weight,
                        scale: 0.3,
                        grad: grad.view_mut(),
                    }
                    .run(b),
                ),
            );
            out.extend(all(&[grad.view()]));
        }
        out
    }),
    ("softmax, sigmoid", 1e-6, |b, s| {
        let mut inputs = Inputs::new(s);
        let (mut x, mut y) = (inputs.rows(), inputs.rows());
        y.view_mut().host().iter_mut().for_each(|x| *x *= 40.0);
        b.softmax(x.view_mut());
        b.sigmoid(y.view_mut());
        all(&[x.view(), y.view()])
    }),
    ("adam", 1e-5, |b, s| {
        let mut out = Vec::new();
        for decoupled in [false, true] {
            let mut inputs = Inputs::new(s);
            let (grad, mut m, mut v, mut value) =
                (inputs.rows(), inputs.rows(), inputs.rows(), inputs.rows());
            v.view_mut().host().iter_mut().for_each(|x| *x = x.abs());
            let step = AdamStep {
                lr: 0.01,
                beta1: 0.9,
                beta2: 0.999,
                eps: 1e-8,
                weight_decay: 0.1,
                decoupled,
                correction1: 0.19,
                correction2: 0.002,
            };
            AdamUpdate { step, grad: grad.view(), m: m.view_mut(), v: v.view_mut(), value: value.view_mut() }
                .run(b);
            out.extend(all(&[m.view(), v.view(), value.view()]));
        }
        out
    }),
    ("sgd", 1e-6, |b, s| {
        let mut out = Vec::new();
        for nesterov in [false, true] {
            let mut inputs = Inputs::new(s);
            let (grad, mut velocity, mut value) = (inputs.rows(), inputs.rows(), inputs.rows());
            let step = SgdStep { lr: 0.1, momentum: 0.9, nesterov, weight_decay: 0.01 };
            SgdUpdate { step, grad: grad.view(), velocity: velocity.view_mut(), value: value.view_mut() }
                .run(b);
            out.extend(all(&[velocity.view(), value.view()]));
        }
        out
    }),
    ("dot attention", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let block = inputs.block(false);
        let (query, key) = (wide(&mut inputs, block.num_dst), wide(&mut inputs, block.num_src));
        let mut alpha = attention(&mut inputs, &block);
        let scale = 0.3;
        DotSoftmax { block: &block, query: query.view(), key: key.view(), scale, alpha: alpha.view_mut() }
            .run(b);
        let alpha_grad = attention(&mut inputs, &block);
        let mut scratch = alpha.clone();
        let (mut query_grad, mut key_grad) = (query.clone(), key.clone());
        DotSoftmaxBackward {
            block: &block,
            query: query.view(),
            key: key.view(),
            scale,
            alpha: alpha.view(),
            alpha_grad: alpha_grad.view(),
            scratch: scratch.view_mut(),
            query_grad: query_grad.view_mut(),
            key_grad: key_grad.view_mut(),
        }
        .run(b);
        all(&[alpha.view(), query_grad.view(), key_grad.view()])
    }),
    ("edge attention", 1e-5, |b, s| {
        let mut out = Vec::new();
        let drops = Dropout { p: 0.4, key: 9 };
        for (dropout, global) in [(Dropout::NONE, false), (drops, false), (drops, true)] {
            let mut inputs = Inputs::new(s);
            let mut block = inputs.block(global);
            block.transpose();
            let mut alpha = attention(&mut inputs, &block);
            let (heads, mut used, scale) = (alpha.num_cols(), alpha.clone(), 0.3);
            let of_edges = s.cols.div_ceil(2);
            let (x, rows) = (inputs.sources(), inputs.matrix(block.num_edges(), of_edges));
            let width = heads * (s.cols + of_edges);
            let (query, grad) = (inputs.matrix(block.num_src, width), inputs.matrix(block.num_dst, width));
            let (block, mut sums) = (&block, grad.clone());
            EdgeAttention {
                block,
                x: x.view(),
                rows: rows.view(),
                query: query.view(),
                scale,
                dropout,
                alpha: alpha.view_mut(),
                used: used.view_mut(),
                out: sums.view_mut(),
            }
            .run(b);
            let used = if dropout == Dropout::NONE { &alpha } else { &used };
            let (mut score_grad, mut query_grad, mut x_grad) = (alpha.clone(), grad.clone(), x.clone());
            let mut rows_grad = rows.clone();
            for of_rows in [true, false] {
                if !of_rows {
                    rows_grad.resize(block.num_edges(), 0);
                }
                EdgeAttentionBackward {
                    block,
                    x: x.view(),
                    rows: rows.view(),
                    query: query.view(),
                    scale,
                    dropout,
                    alpha: alpha.view(),
                    used: used.view(),
                    grad: grad.view(),
                    score_grad: score_grad.view_mut(),
                    query_grad: query_grad.view_mut(),
                    x_grad: x_grad.view_mut(),
                    rows_grad: rows_grad.view_mut(),
                }
                .run(b);
                let results = [&alpha, used, &sums, &score_grad, &query_grad, &x_grad, &rows_grad];
                out.extend(all(&results.map(Matrix::view)));
            }
        }
        out
    }),
    ("relation attention", 1e-5, |b, s| {
        let mut out = Vec::new();
        for dropout in [Dropout::NONE, Dropout { p: 0.4, key: 9 }] {
            let mut inputs = Inputs::new(s);
            let block = inputs.block(false);
            let (mut alpha, x) = (attention(&mut inputs, &block), inputs.sources());
            let heads = alpha.num_cols();
            let (mut used, mut score) = (alpha.clone(), alpha.clone());
            let source = inputs.matrix(s.cols, heads);
            let of_heads = [0; 2].map(|_| inputs.matrix(block.num_dst, heads));
            let [target, total_grad] = &of_heads;
            let (mut total, grad) = (target.clone(), wide(&mut inputs, block.num_dst));
            let mut sums = grad.clone();
            RelationAttention {
                block: &block,
                x: x.view(),
                source: source.view(),
                target: target.view(),
                slope: 0.2,
                dropout,
                score: score.view_mut(),
                alpha: alpha.view_mut(),
                used: used.view_mut(),
                total: total.view_mut(),
                out: sums.view_mut(),
            }
            .run(b);
            let used = if dropout == Dropout::NONE { &alpha } else { &used };
            let (mut score_grad, mut source_grad) = (alpha.clone(), source.clone());
            let mut target_grad = target.clone();
            RelationAttentionBackward {
                block: &block,
                x: x.view(),
                slope: 0.2,
                dropout,
                score: score.view(),
                alpha: alpha.view(),
                used: used.view(),
                total_grad: total_grad.view(),
                grad: grad.view(),
                score_grad: score_grad.view_mut(),
                source_grad: source_grad.view_mut(),
                target_grad: target_grad.view_mut(),
            }
            .run(b);
            let results = [&alpha, used, &total, &sums, &score_grad, &source_grad, &target_grad];
            out.extend(all(&results.map(Matrix::view)));
        }
        out
    }),
    ("pair attention", 1e-5, |b, s| {
        let mut out = Vec::new();
        for (global, with_edges) in [(false, false), (false, true), (true, true)] {
            let mut inputs = Inputs::new(s);
            let block = inputs.block(global);
            let (left, right) = (wide(&mut inputs, block.num_src), wide(&mut inputs, block.num_src));
            let mut vector = wide(&mut inputs, 1);
            vector.view_mut().host().iter_mut().for_each(|x| *x *= 0.1);
            let edge = wide(&mut inputs, block.num_edges() + block.num_dst);
            let of_edges = with_edges.then(|| edge.view());
            let mut alpha = attention(&mut inputs, &block);
            let (block, slope) = (&block, 0.2);
            let (x, y, a) = (left.view(), right.view(), vector.view());
            PairSoftmax {
                block,
                left: x,
                right: y,
                edge: of_edges,
                vector: a,
                slope,
                alpha: alpha.view_mut(),
            }
            .run(b);
            out.extend(all(&[alpha.view()]));
            if global {
                continue;
            }
            let alpha_grad = attention(&mut inputs, block);
            let mut scratch = alpha.clone();
            let (mut left_grad, mut vector_grad) = (left.clone(), vector.clone());
            let (mut right_grad, mut edge_grad) = (wide(&mut inputs, block.num_dst), edge.clone());
            PairSoftmaxBackward {
                block,
                left: x,
                right: y,
                edge: of_edges,
                vector: a,
                slope,
                alpha: alpha.view(),
                alpha_grad: alpha_grad.view(),
                scratch: scratch.view_mut(),
                left_grad: left_grad.view_mut(),
                right_grad: right_grad.view_mut(),
                edge_grad: with_edges.then(|| edge_grad.view_mut()),
                vector_grad: vector_grad.view_mut(),
            }
            .run(b);
            out.extend(all(&[left_grad.view(), right_grad.view(), vector_grad.view(), edge_grad.view()]));
        }
        out
    }),
    ("sum of rectified edges", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let block = inputs.block(false);
        let (x, edge) = (inputs.sources(), inputs.matrix(block.num_edges(), s.cols));
        let (grad, mut out) = (inputs.destinations(), inputs.destinations());
        let (mut x_grad, mut edge_grad) = (x.clone(), edge.clone());
        let (block, x, edge) = (&block, x.view(), edge.view());
        ReluSum { block, x, edge, out: out.view_mut() }.run(b);
        let (of_x, of_edge) = (Some(x_grad.view_mut()), edge_grad.view_mut());
        ReluSumBackward { block, x, edge, grad: grad.view(), x_grad: of_x, edge_grad: of_edge }.run(b);
        all(&[out.view(), x_grad.view(), edge_grad.view()])
    }),
    ("gated sum", 1e-5, |b, s| {
        let mut results = Vec::new();
        for with_edges in [false, true] {
            let mut inputs = Inputs::new(s);
            let block = inputs.block(false);
            let (target, source, value) = (inputs.destinations(), inputs.sources(), inputs.sources());
            let edge = [0; 2].map(|_| inputs.matrix(block.num_edges(), s.cols));
            let (grad, mut out) = (inputs.destinations(), inputs.destinations());
            let of = Gated {
                block: &block,
                target: target.view(),
                source: source.view(),
                value: value.view(),
                edge: with_edges.then(|| edge.each_ref().map(Matrix::view)),
            };
            GatedSum { of, out: out.view_mut() }.run(b);
            let mut grads = [target.clone(), source.clone(), value.clone()];
            let mut edge_grads = edge.clone();
            let [of_target, of_source, of_value] = grads.each_mut().map(Matrix::view_mut);
            GatedSumBackward {
                of,
                grad: grad.view(),
                target_grad: of_target,
                source_grad: of_source,
                value_grad: of_value,
                edge_grad: with_edges.then(|| edge_grads.each_mut().map(Matrix::view_mut)),
            }
            .run(b);
            results.extend(all(&[out.view()]));
            results.extend(all(&grads.each_ref().map(Matrix::view)));
            results.extend(all(&edge_grads.each_ref().map(Matrix::view)));
        }
        results
    }),
    ("learned factors", 1e-5, |b, s| {
        let mut inputs = Inputs::new(s);
        let (x, mut y, factors) = (inputs.rows(), inputs.rows(), inputs.matrix(1, s.heads));
        for (at, plus) in [(0, 0.0), (s.heads - 1, 1.0)] {
            AddTimes { factors: factors.view(), at, plus, x: x.view(), y: y.view_mut() }.run(b);
        }
        let mut out = all(&[y.view()]);
        let skip = inputs.matrix(1, 1);
        let [before, mut grad, mut x_grad] = [y.clone(), inputs.rows(), inputs.rows()];
        let mut skip_grad = inputs.matrix(1, 1);
        Skip { skip: skip.view(), x: x.view(), y: y.view_mut() }.run(b);
        SkipBackward {
            skip: skip.view(),
            x: x.view(),
            y: before.view(),
            grad: grad.view_mut(),
            x_grad: x_grad.view_mut(),
            skip_grad: skip_grad.view_mut(),
        }
        .run(b);
        out.extend(all(&[y.view(), grad.view(), x_grad.view(), skip_grad.view()]));
        let (x, grad) = (wide(&mut inputs, s.rows), wide(&mut inputs, s.rows));
        let (mut scaled, mut x_grad, mut factors_grad) = (x.clone(), grad.clone(), factors.clone());
        ScaleHeads { factors: factors.view(), x: x.view(), out: scaled.view_mut() }.run(b);
        ScaleHeadsBackward {
            factors: factors.view(),
            x: x.view(),
            grad: grad.view(),
            factors_grad: factors_grad.view_mut(),
            x_grad: x_grad.view_mut(),
        }
        .run(b);
        out.extend(all(&[scaled.view(), x_grad.view(), factors_grad.view()]));
        out
    }),
    ("gelu", 1e-6, |b, s| {
        let mut inputs = Inputs::new(s);
        let (x, mut out, mut grad) = (inputs.rows(), inputs.rows(), inputs.rows());
        GeluForward { x: x.view(), out: out.view_mut() }.run(b);
        GeluBackward { x: x.view(), grad: grad.view_mut() }.run(b);
        all(&[out.view(), grad.view()])
    }),
    ("aggregation between two types", 1e-5, |b, s| {
        // destinations are no sources, and may be more
        let mut inputs = Inputs::new(s);
        let mut block = inputs.block(false);
        block.num_src = s.extra_src;
        if s.extra_src == 0 {
            block.indptr.fill(0);
            block.indices.clear();
            block.edge_weight.clear();
        }
        block.indices.iter_mut().for_each(|u| *u %= s.extra_src.max(1) as u32);
        block.transpose();
        let (src, dst_grad) = (inputs.matrix(s.extra_src, s.cols), inputs.destinations());
        let mut out = Vec::new();
        for edge in [EdgeWeight::Mean, EdgeWeight::One, EdgeWeight::Stored] {
            let weights = AggregationWeights { edge, own: OwnWeight::None };
            let (mut dst, mut src_grad) = (inputs.destinations(), inputs.matrix(s.extra_src, s.cols));
            Aggregate { block: &block, weights, src: src.view(), beta: 1.0, dst: dst.view_mut() }.run(b);
            AggregateTransposed {
                block: &block,
                weights,
                dst_grad: dst_grad.view(),
                beta: 1.0,
                src_grad: src_grad.view_mut(),
            }
            .run(b);
            out.extend(all(&[dst.view(), src_grad.view()]));
        }
        out
    }),
];
