//! Initial weights of dense layers.

use clap::ValueEnum;
use graphmill_core::by_name;
use serde::{Deserialize, Serialize};

/// The bound `b` of initial weights, which are uniform in `[-b, b]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Init {
    /// `sqrt(6 / (in + out))`: activations and gradients keep their variance (Glorot and Bengio,
    /// AISTATS 2010, equation 16).
    #[default]
    Glorot,
    /// `1 / sqrt(in)`, as PyTorch's Linear begins, and with it PyTorch Geometric's GraphSAGE
    /// (LeCun, Bottou, Orr and Muller, 1998, section 4.6, by a third of its variance).
    FanIn,
}

by_name!(Init);

impl Init {
    /// The bound, from the widths of the rows that go in and come out.
    pub fn bound(self, fan_in: f64, fan_out: f64) -> f64 {
        match self {
            Self::Glorot => (6.0 / (fan_in + fan_out)).sqrt(),
            Self::FanIn => fan_in.sqrt().recip(),
        }
    }
}
