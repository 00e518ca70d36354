//! Choices among few alternatives.

use clap::ValueEnum;
use graphmill_core::{by_name, matrix::TableType};
use serde::{Deserialize, Serialize};

/// A fast path that is taken by itself, always or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// Where it helps.
    Auto,
    /// Always; an error where it cannot be.
    On,
    /// Never.
    Off,
}

/// The measure of the best epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelectBy {
    /// The validation score; ties go by the loss.
    Score,
    /// The validation loss.
    Loss,
}

/// Replay of steps as CUDA graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CudaGraphs {
    /// Where a batch comes again.
    Auto,
    /// Never.
    Off,
}

/// The number type in which dense products multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arithmetic {
    /// Single precision.
    F32,
    /// NVIDIA's 19 bits.
    Tf32,
    /// Half as many bits, summed in single precision.
    Bf16,
}

/// The number type of the feature table in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeaturePrecision {
    /// As stored; bf16 where products multiply in it.
    Auto,
    /// Single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// Brain floats.
    Bf16,
}

by_name!(Switch, SelectBy, CudaGraphs, Arithmetic, FeaturePrecision);

impl FeaturePrecision {
    /// The one that names `kind`.
    pub(crate) fn of(kind: TableType) -> Self {
        match kind {
            TableType::F32 => Self::F32,
            TableType::F16 => Self::F16,
            TableType::Bf16 => Self::Bf16,
        }
    }
}
