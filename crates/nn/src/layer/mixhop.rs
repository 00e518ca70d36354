//! One hop of MixHop's layer.

use clap::Args;
use graphmill_core::{
    block::Aggregation,
    keyed,
    options::{Fault, OptionSet, OwnOptions, range},
};
use serde::{Deserialize, Serialize};

use super::{Epilogue, Layer, LayerConfig, LayerGrads, LayerInput, LayerSpec, Linear, Param, Pass, Saved};
use crate::{
    Error, Matrix, Result, View, ViewMut,
    backend::ops::{HeadMean, HeadMeanBackward, Hop, HopTransposed},
    cost::{self, BlockShape, ProductOrder, Purpose},
};

/// Hops of a layer at most.
const MOST_HOPS: usize = 16;

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
        range("hops", self.hops, 1..=MOST_HOPS)
    }
}

/// Hops of a layer, within bounds also if the options are not.
pub(super) fn hops(own: &OwnOptions) -> usize {
    own.get::<MixHopOptions>().hops.clamp(1, MOST_HOPS)
}

/// A hop of the layer of *MixHop: Higher-Order Graph Convolutional Architectures via Sparsified
/// Neighborhood Mixing* (Abu-El-Haija et al., ICML 2019, equation 2), which Zeng et al. (JPDC 2021,
/// equation 5) train on sampled subgraphs:
///
/// ```text
/// out = A^0 x W_0 || A^1 x W_1 || ... || A^K x W_K  + b
/// ```
///
/// with GCN's normalised adjacency matrix `A` (both papers; the coefficients are the block's
/// weights, as in [`super::Gcn`]) and all powers side by side, of widths as equal as can be, the
/// first ones wider. Powers are never formed: `A^k x = A (A^(k-1) x)`.
///
/// A hop reads one block, so a layer of order `K` is `K` of these, one after the other:
///
/// ```text
/// hop 1      t = x [W_0 | ... | W_K]                         S x (K+1) parts
/// hop i      the parts k > K - i become A t_k, the others stay the destinations' own rows
/// hop K      + b, and what a model does after a layer
/// ```
///
/// so part `k` is multiplied by `A` in the last `k` hops. Over a sampled subgraph all hops read the
/// same square block; over sampled neighbours each has a block of its own, and the sampler `K` hops
/// a layer.
///
/// A layer that gives the classes makes each part `C` wide and takes their mean: the paper's output
/// layer, which mixes such parts by learned weights that add up to 1, at equal weights; every `W_k`
/// scales its part itself.
///
/// Transforms first: `S F O + E O K / 2` multiplications for the layer. (Aggregating first would
/// move rows of width `F` for every power.)
///
/// # Shapes
/// - `weight`: `F x O` (`F x (K+1) C`), of the first hop; `bias`: `1 x O`, of the last
/// - hop 1: in `S x F`; hop `K`: out `D x O`; between them rows of all parts
#[derive(Clone, Debug)]
pub struct MixHop {
    spec: LayerSpec,
    /// `W_0 .. W_K`, in the first hop.
    linear: Option<Linear>,
    /// In the last hop.
    bias: Option<Param>,
    /// Columns of parts that stay.
    stay: usize,
    /// Columns of all parts.
    width: usize,
    /// `K + 1` in the last hop of a layer that gives the classes: as many parts are averaged.
    averaged: Option<usize>,
}

impl MixHop {
    /// Hop `config.hop` (from 1) of `config.hops` (`K`) of a layer `F` to `O`.
    ///
    /// # Errors
    /// The width is less than the number of powers.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, hop, hops, classifies, bias, key, .. } = config;
        let powers = hops + 1;
        let width = if classifies { powers * out_dim } else { out_dim };
        if width < powers {
            let message =
                format!("a column at least for each of the {powers} powers from 0 to {hops}; widen");
            return Err(Error::config("hidden", out_dim, message));
        }
        // the parts 0..=hops - hop stay
        let stays = hops - hop + 1;
        let (is_first, is_last) = (hop == 1, hop == hops);
        let to = if is_last { out_dim } else { width };
        // a hop that multiplies by no weights does nothing before it aggregates
        let spec = if is_first {
            LayerSpec::transform_first(in_dim, to, vec![width])
        } else {
            LayerSpec::aggregate_first(width, to)
        };
        Ok(Box::new(Self {
            spec: LayerSpec { aggregation: Aggregation::Symmetric, combines_own_rows: false, ..spec },
            linear: is_first.then(|| Linear::parts("weight", in_dim, width, powers, keyed::key(&[key, 0]))),
            bias: (is_last && bias).then(|| Param::zeros("bias", 1, out_dim)),
            stay: stays * (width / powers) + stays.min(width % powers),
            width,
            averaged: (is_last && classifies).then_some(powers),
        }))
    }
}

/// The matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    /// The parts before their mean, `D x width`.
    parts: Matrix,
    /// Their gradient.
    parts_grad: Matrix,
    /// The gradient of the transformed rows, `S x width`.
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
        let rows = input.transformed.first().map_or(input.x, Matrix::view);
        match self.averaged {
            None => {
                Hop { first: self.stay, block: input.block, src: rows, dst: out.reborrow() }.run(pass.backend)
            }
            Some(powers) => {
                let State { parts, .. } = saved.state();
                parts.resize(input.block.num_dst, self.width);
                Hop { first: self.stay, block: input.block, src: rows, dst: parts.view_mut() }
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
        let back = |to: &mut Matrix| {
            to.resize(block.num_grad_src(), self.width);
            HopTransposed { first: self.stay, block, dst_grad: grad, src_grad: to.view_mut() }.run(backend);
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
