//! Initial weights of dense layers.

use clap::ValueEnum;
use graphmill_core::by_name;
use serde::{Deserialize, Serialize};

/// Bound `b` of initial weights, which are uniform in `[-b, b]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Init {
    /// `sqrt(6 / (in + out))`, which preserves the variance of activations and gradients (Glorot
    /// and Bengio, AISTATS 2010, equation 16).
    #[default]
    Glorot,
    /// `1 / sqrt(in)`, the default of PyTorch's Linear and so of PyTorch Geometric's GraphSAGE
    /// (LeCun, Bottou, Orr and Muller, 1998, section 4.6, with a third of its variance).
    FanIn,
}

by_name!(Init);

impl Init {
    /// The bound, from the widths of the input and output rows.
    pub fn bound(self, fan_in: f64, fan_out: f64) -> f64 {
        match self {
            Self::Glorot => (6.0 / (fan_in + fan_out)).sqrt(),
            Self::FanIn => fan_in.sqrt().recip(),
        }
    }
}
