//! A hop of MixHop's layer.

use clap::Args;
use graphmill_core::{
    Block,
    block::Aggregation,
    keyed,
    options::{Fault, OptionSet, OwnOptions, range},
};
use serde::{Deserialize, Serialize};

use super::{Epilogue, Layer, LayerConfig, LayerGrads, LayerInput, LayerSpec, Linear, Param, Pass, Saved};
use crate::{
    Error, Matrix, Result, View, ViewMut,
    backend::{
        AggregationWeights, EdgeWeight, OwnWeight,
        ops::{HeadMean, HeadMeanBackward, Hop, HopTransposed},
    },
    cost::{self, BlockShape, ProductOrder, Purpose},
};

/// Maximum number of hops of a layer.
const MAX_HOPS: usize = 16;

/// Options of [`MixHop`].
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MixHopOptions {
    /// Hops of a layer: its highest power of the adjacency matrix.
    #[arg(long, value_name = "N")]
    pub hops: usize,
}

impl Default for MixHopOptions {
    fn default() -> Self {
        Self { hops: 2 }
    }
}

impl OptionSet for MixHopOptions {
    fn check(&self) -> Result<(), Fault> {
        range("hops", self.hops, 1..=MAX_HOPS)
    }
}

/// Number of hops of a layer, clamped to the valid range even if the option is not.
pub(super) fn hops(own: &OwnOptions) -> usize {
    own.get::<MixHopOptions>().hops.clamp(1, MAX_HOPS)
}

/// A hop of the MixHop layer (Abu-El-Haija et al., *MixHop: Higher-Order Graph Convolutional
/// Architectures via Sparsified Neighborhood Mixing*, ICML 2019, equation 2), which Zeng et al.
/// (JPDC 2021, equation 5) train on sampled subgraphs:
///
/// ```text
/// out = A^0 x W_0 || A^1 x W_1 || ... || A^K x W_K  + b
/// ```
///
/// Here `A` is GCN's normalized adjacency matrix (in both papers; its coefficients are the block's
/// weights, as in [`super::Gcn`]). The powers are concatenated, with widths that differ by at most
/// one, the first ones wider. Powers are never formed: `A^k x = A (A^(k-1) x)`.
///
/// A hop reads one block, so a layer of order `K` is a sequence of `K` hops:
///
/// ```text
/// hop 1      t = x [W_0 | ... | W_K]                         S x (K+1) parts
/// hop i      the parts k > K - i become A t_k, the others are the destinations' own rows
/// hop K      + b, then the model's norm, activation and dropout
/// ```
///
/// so part `k` is multiplied by `A` in the last `k` hops. Over a sampled subgraph, all hops read
/// the same square block. Over sampled neighbours, each hop reads a separate block, and the sampler
/// draws `K` hops per layer.
///
/// [`Combine::Concat`](super::Combine::Concat) of GraphSAGE is a layer of one hop with the mean
/// over the in-neighbours as `A`.
///
/// A layer that computes the scores makes each part `C` wide and takes their mean. The paper's
/// output layer mixes such parts by learned weights that sum to 1; here those weights are equal,
/// and every `W_k` scales its part.
///
/// The layer transforms first, with `S F O + E O K / 2` multiplications. (Aggregating first would
/// move rows of width `F` for every power.)
///
/// # Shapes
/// - `weight`: `F x O` (`F x (K+1) C`), in the first hop; `bias`: `1 x O`, in the last
/// - hop 1: in `S x F`; hop `K`: out `D x O`; between them, rows of all parts
#[derive(Clone, Debug)]
pub struct MixHop {
    spec: LayerSpec,
    /// `W_0 .. W_K`, in the first hop.
    linear: Option<Linear>,
    /// Bias, in the last hop.
    bias: Option<Param>,
    /// Number of columns that this hop copies.
    stay: usize,
    /// Number of columns of all parts.
    width: usize,
    /// Number of averaged parts, `K + 1`, in the last hop of a layer that computes the scores.
    averaged: Option<usize>,
    /// Coefficients of `A` in a block.
    weights: Weights,
}

/// Function from a block to the coefficients of `A`.
type Weights = fn(&Block) -> AggregationWeights<'static>;

impl MixHop {
    /// Creates hop `config.hop` (from 1) of `config.hops` (`K`) of a layer of widths `F` and `O`.
    ///
    /// # Errors
    /// The width is below the number of powers.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        Self::with(config, Aggregation::Symmetric, |_| AggregationWeights::STORED)
    }

    /// Creates the GraphSAGE operator with concatenation, `out = x W_self || mean(x) W_neigh + b`:
    /// this layer with the powers 0 and 1 of the mean over the in-neighbours (Zeng et al.,
    /// *GraphSAINT*, ICLR 2020, equation 1, and Hamilton et al., NeurIPS 2017, algorithm 1). If the
    /// block stores edge weights, they replace the mean's `1 / degree`.
    ///
    /// # Errors
    /// The width is below 2.
    pub(super) fn concatenated_mean(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let weights: Weights = |block| AggregationWeights {
            edge: super::stored_or(block, EdgeWeight::Mean),
            own: OwnWeight::None,
        };
        Self::with(config, Aggregation::Mean, weights)
    }

    fn with(config: &LayerConfig, aggregation: Aggregation, weights: Weights) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, hop, hops, classifies, bias, key, .. } = config;
        let powers = hops + 1;
        let width = if classifies { powers * out_dim } else { out_dim };
        if width < powers {
            let message = format!("must be at least {powers}, a column for each power from 0 to {hops}");
            return Err(Error::config("hidden", out_dim, message));
        }
        // this hop copies the parts 0..=hops - hop
        let stays = hops - hop + 1;
        let (is_first, is_last) = (hop == 1, hop == hops);
        let to = if is_last { out_dim } else { width };
        // a hop without weights has no transformation
        let spec = if is_first {
            LayerSpec::transform_first(in_dim, to, vec![width])
        } else {
            LayerSpec::aggregate_first(width, to)
        };
        Ok(Box::new(Self {
            spec: LayerSpec { aggregation, combines_own_rows: false, ..spec },
            linear: is_first.then(|| Linear::parts("weight", in_dim, width, powers, keyed::key(&[key, 0]))),
            bias: (is_last && bias).then(|| Param::zeros("bias", 1, out_dim)),
            stay: stays * (width / powers) + stays.min(width % powers),
            width,
            averaged: (is_last && classifies).then_some(powers),
            weights,
        }))
    }
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    /// Parts before their mean, `D x width`.
    parts: Matrix,
    /// Gradient of the parts.
    parts_grad: Matrix,
    /// Gradient of the transformed rows, `S x width`.
    through: Matrix,
}

impl Layer for MixHop {
    fn spec(&self) -> &LayerSpec {
        &self.spec
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        if let Some(linear) = &self.linear {
            linear.visit(see);
        }
        self.bias.iter().for_each(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        if let Some(linear) = &mut self.linear {
            linear.visit_mut(see);
        }
        self.bias.iter_mut().for_each(see);
    }

    fn cost(&self, order: ProductOrder, shape: BlockShape, purpose: Purpose) -> f64 {
        cost::cost(order, shape, self.spec.in_dim, self.width, purpose)
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, tables: &mut [Matrix]) {
        if let Some(linear) = &self.linear {
            linear.forward_product(pass, x, 0.0, tables[0].rows_mut(at..at + x.num_rows()));
        }
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        let weights = (self.weights)(input.block);
        let rows = input.transformed.first().map_or(input.x, Matrix::view);
        match self.averaged {
            None => Hop { first: self.stay, block: input.block, weights, src: rows, dst: out.reborrow() }
                .run(pass.backend),
            Some(powers) => {
                let State { parts, .. } = saved.state();
                parts.resize(input.block.num_dst, self.width);
                Hop { first: self.stay, block: input.block, weights, src: rows, dst: parts.view_mut() }
                    .run(pass.backend);
                HeadMean { x: parts.view(), heads: powers, out: out.reborrow() }.run(pass.backend);
            }
        }
        epilogue.apply(pass.backend, self.bias.as_ref(), out);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        LayerGrads { y, grad, x_grad }: LayerGrads,
    ) {
        let (backend, block) = (pass.backend, input.block);
        let State { parts_grad, through, .. } = saved.state();
        epilogue.backward(backend, self.bias.as_mut(), y, grad.view_mut());
        let grad = match self.averaged {
            None => grad.view(),
            Some(powers) => {
                parts_grad.resize(block.num_dst, self.width);
                HeadMeanBackward { grad: grad.view(), heads: powers, x_grad: parts_grad.view_mut() }
                    .run(backend);
                parts_grad.view()
            }
        };
        let weights = (self.weights)(block);
        let back = |to: &mut Matrix| {
            to.resize(block.num_grad_src(), self.width);
            HopTransposed { first: self.stay, block, weights, dst_grad: grad, src_grad: to.view_mut() }
                .run(backend);
        };
        match (&mut self.linear, x_grad) {
            (Some(linear), x_grad) => {
                input.assert_unrestricted();
                back(through);
                linear.backward_product(pass, input.x, through.view());
                if let Some(x_grad) = x_grad {
                    x_grad.resize(block.num_src, self.spec.in_dim);
                    linear.input_grad(pass, through.view(), 0.0, x_grad.view_mut());
                }
            }
            (None, Some(x_grad)) => back(x_grad),
            (None, None) => {}
        }
    }
}
