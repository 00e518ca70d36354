//! Options with a few named values.

use clap::ValueEnum;
use graphmill_core::by_name;
use graphmill_data::verification::Verify;
use graphmill_nn::layer::NormKind;
use serde::{Deserialize, Serialize};

/// Normalisation between layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormChoice {
    /// Batch for layers that sum without a mean and normalise inside (`gin`), otherwise none.
    Auto,
    /// [`NormKind::None`].
    None,
    /// [`NormKind::Batch`].
    Batch,
    /// [`NormKind::Layer`].
    Layer,
    /// [`NormKind::L2`].
    L2,
}

impl NormChoice {
    /// Normalisation of a model whose layers have an inner one or not.
    pub fn kind(self, has_inner_norm: bool) -> NormKind {
        match self {
            Self::Auto if has_inner_norm => NormKind::Batch,
            Self::Auto | Self::None => NormKind::None,
            Self::Batch => NormKind::Batch,
            Self::Layer => NormKind::Layer,
            Self::L2 => NormKind::L2,
        }
    }
}

/// Use of a fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// If it helps.
    Auto,
    /// Always; an error if it is impossible.
    On,
    /// Never.
    Off,
}

/// Neighbours of the bottom hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottom {
    /// All of them if the run can store their aggregates and the fanout asks for all.
    Auto,
    /// All of them, by a stored aggregate.
    Exact,
    /// Those that the sampler draws.
    Sampled,
}

impl Bottom {
    /// Number of rows of a node in the feature table: its features and, if it is stored, the
    /// aggregate of its neighbours.
    pub(crate) fn rows_per_node(self) -> usize {
        match self {
            Self::Exact => 2,
            Self::Auto | Self::Sampled => 1,
        }
    }
}

/// The measure of the best epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelectBy {
    /// The validation score; the validation loss breaks ties.
    Score,
    /// The validation loss.
    Loss,
}

/// Replay of steps as CUDA graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CudaGraphs {
    /// If batches repeat.
    Auto,
    /// Never.
    Off,
}

/// Number type of the factors of dense products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arithmetic {
    /// Single precision.
    F32,
    /// At least the 11 significant bits of NVIDIA's TF32, summed in single precision: TF32 on
    /// NVIDIA devices, sums of two bf16 (16 bits) on processors with AMX, else single precision.
    Tf32,
    /// Brain floats (16 bits), summed in single precision.
    Bf16,
}

/// Number type of the feature table in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeaturePrecision {
    /// The stored type, or bf16 if dense products multiply in bf16.
    Auto,
    /// Single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// Brain floats.
    Bf16,
}

/// Time at which dense feature rows are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerifyFeatures {
    /// Opening, or the first read if they are larger than a quarter of the memory.
    Auto,
    /// Opening of the dataset.
    Open,
    /// First read of a row, for each part of the file.
    FirstRead,
    /// Never.
    None,
}

impl VerifyFeatures {
    /// Extent of the verification when the dataset is opened.
    pub fn at_opening(self) -> Verify {
        match self {
            Self::Auto => Verify::Once,
            Self::Open => Verify::All,
            Self::FirstRead => Verify::FirstRead,
            Self::None => Verify::NoFeatures,
        }
    }
}

by_name!(NormChoice, Bottom, Switch, SelectBy, VerifyFeatures, CudaGraphs, Arithmetic, FeaturePrecision);
