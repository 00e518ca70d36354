//! Options of graph attention.

use clap::Args;
use graphmill_core::options::{Fault, OptionSet, probability, range};
use serde::{Deserialize, Serialize};

/// Maximum number of heads of a layer.
const MAX_HEADS: usize = 1 << 10;

/// Options of [`super::Gat`].
#[derive(Args, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatOptions {
    /// Attention heads of the hidden layers; they divide --hidden.
    #[arg(long, value_name = "N")]
    pub heads: usize,
    /// Attention heads of the last layer, averaged.
    #[arg(long, value_name = "N")]
    pub out_heads: usize,
    /// Dropout of attention weights.
    #[arg(long, value_name = "P")]
    pub attention_dropout: f64,
}

impl Default for GatOptions {
    fn default() -> Self {
        Self { heads: 4, out_heads: 1, attention_dropout: 0.0 }
    }
}

impl OptionSet for GatOptions {
    fn check(&self) -> Result<(), Fault> {
        range("heads", self.heads, 1..=MAX_HEADS)?;
        range("out_heads", self.out_heads, 1..=MAX_HEADS)?;
        probability("attention_dropout", self.attention_dropout)
    }
}
