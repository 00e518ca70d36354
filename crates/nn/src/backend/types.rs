//! Plain values that describe operations.

use clap::ValueEnum;
use graphmill_core::by_name;
use serde::{Deserialize, Serialize};

use crate::View;

/// Side of a factor in a product: as stored, or transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// As stored.
    Plain,
    /// Transposed.
    Transposed,
}

/// Coefficient of an edge in an aggregation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EdgeWeight {
    /// 1: a sum.
    One,
    /// 1 / (edges of the destination): a mean; a destination without edges gets 0.
    Mean,
    /// [`graphmill_core::Block::edge_weight`].
    Stored,
    /// [`graphmill_core::Block::edge_weight`] / max(their sum over the destination's edges, 1): a
    /// weighted mean.
    Normalized,
}

/// Coefficient of a destination's own row in an aggregation.
#[derive(Clone, Copy, Debug)]
pub enum OwnWeight<'a> {
    /// The own row is excluded.
    None,
    /// The same value for all destinations.
    Constant(f32),
    /// 1 + the value of a `1 x 1` matrix, the same for all destinations: a learned value, which
    /// stays on its device.
    OnePlus(View<'a>),
    /// [`graphmill_core::Block::self_weight`].
    Stored,
}

/// The linear map `out[v] = own(v) x[own_row(v)] + sum over edges e = (u, v) of edge(e) x[u]`.
#[derive(Clone, Copy, Debug)]
pub struct AggregationWeights<'a> {
    /// Coefficients of edges.
    pub edge: EdgeWeight,
    /// Coefficients of own rows.
    pub own: OwnWeight<'a>,
}

impl AggregationWeights<'_> {
    /// Mean over the in-neighbours.
    pub const MEAN: Self = Self { edge: EdgeWeight::Mean, own: OwnWeight::None };
    /// The weights stored in the block, own rows included.
    pub const STORED: Self = Self { edge: EdgeWeight::Stored, own: OwnWeight::Stored };
}

/// Pointwise non-linearity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// max(x, 0)
    #[default]
    Relu,
    /// x for x > 0, else exp(x) - 1 (Clevert, Unterthiner and Hochreiter, ICLR 2016,
    /// arXiv:1511.07289)
    Elu,
    /// x for x > 0, else 0.01 x (Maas, Hannun and Ng, ICML workshop 2013)
    LeakyRelu,
    /// x: a linear model
    Identity,
}

by_name!(Activation);

/// Inverted dropout: each value is zeroed with probability `p` and otherwise scaled by 1/(1-p).
///
/// The mask is a pure function of `key` and the element's row and column ([`dropped`]), so the
/// backward pass recomputes it and no mask is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability of a zero, in `[0, 1)`.
    pub p: f32,
    /// Identifies seed, step, layer and site.
    pub key: u64,
}

impl Dropout {
    /// Drops nothing.
    pub const NONE: Self = Self { p: 0.0, key: 0 };

    /// Factor of the values that are not dropped.
    pub fn scale(&self) -> f32 {
        1.0 / (1.0 - self.p)
    }

    /// Threshold below which a hash drops the element.
    pub fn threshold(&self) -> u32 {
        (f64::from(self.p) * 4_294_967_296.0) as u32
    }

    /// Factor of the element at (`row`, `col`): 0 if it is dropped, else [`Dropout::scale`].
    pub fn factor(&self, row: usize, col: usize) -> f64 {
        let drops = self.threshold() != 0 && dropped(*self, row, col);
        if drops { 0.0 } else { f64::from(self.scale()) }
    }

    /// Part of the mask's key that all columns of a row share.
    #[inline(always)]
    pub fn row_key(&self, row: usize) -> u32 {
        (graphmill_core::keyed::mix(self.key ^ (row as u64).wrapping_mul(graphmill_core::keyed::GOLDEN))
            >> 32) as u32
    }
}

/// Hash of column `col` for the mask of a row with that key: 32 bits of the `lowbias32` mixer (C.
/// Wellons, *Prospecting for hash functions*, 2018), which takes two multiplications and
/// vectorizes.
#[inline(always)]
pub fn mask_hash(row_key: u32, col: u32) -> u32 {
    let mut x = row_key ^ col.wrapping_mul(0x9e37_79b9);
    x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// Returns true if dropout zeroes the element at (`row`, `col`).
#[inline]
pub fn dropped(dropout: Dropout, row: usize, col: usize) -> bool {
    mask_hash(dropout.row_key(row), col as u32) < dropout.threshold()
}

/// One step of Adam or AdamW (Kingma and Ba, 2015; Loshchilov and Hutter, 2019).
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// Learning rate.
    pub lr: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Term added to the root of the second moment.
    pub eps: f32,
    /// L2 penalty added to the gradient (Adam), or decay of the weight itself (AdamW).
    pub weight_decay: f32,
    /// If true, the decay is AdamW's.
    pub decoupled: bool,
    /// 1 - beta1^t.
    pub correction1: f32,
    /// 1 - beta2^t.
    pub correction2: f32,
}

/// One step of SGD with momentum, in PyTorch's form: `velocity = momentum * velocity + g`, or
/// Nesterov's.
#[derive(Clone, Copy, Debug)]
pub struct SgdStep {
    /// Learning rate.
    pub lr: f32,
    /// Weight of the velocity.
    pub momentum: f32,
    /// If true, uses Nesterov's look-ahead.
    pub nesterov: bool,
    /// L2 penalty added to the gradient.
    pub weight_decay: f32,
}
