//! Layout and number type of the resident feature table, derived from the options and the stored
//! features. [`build`](crate::build) allocates the table and [`memory`](crate::memory) predicts its
//! size by the same rules.

use graphmill_core::{features::FeatureData, matrix::TableType};
use graphmill_data::Dataset;
use graphmill_loader::feature::cached::RowFormat;
use graphmill_nn::backend::{Cpu, Precision};

use crate::{
    TrainConfig,
    config::{Arithmetic, FeaturePrecision, Switch},
};

/// Maximum fraction of nonzero values at which `--sparse auto` multiplies sparse rows.
///
/// Dense products cost time per value, sparse ones per stored value, about 25 times as much for
/// each. Measured speedup of an epoch of GCN with sparse rows over dense rows, in processor time,
/// full batch and sampled: 3.8 and 2.8 on Cora (1.3 % of 1,433 columns), 12 and 4.1 on CiteSeer
/// (0.9 % of 3,703), 6.7 and 3.8 on Coauthor CS (0.9 % of 6,805), 0.3 and 0.4 on PubMed (10 % of
/// 500), and 0.3 and 0.1 on Amazon Computers (35 % of 767). On the last two, dense rows take the
/// fast path.
const MAX_SPARSE_DENSITY: f64 = 0.04;

/// Returns true if the first layer multiplies sparse feature rows: if the stored rows are sparse,
/// and `--sparse` is on, or is auto and few values are nonzero.
pub(crate) fn keeps_sparse(config: &TrainConfig, data: &Dataset) -> bool {
    let FeatureData::Csr(rows) = &data.features.data else { return false };
    let is_small = rows.stored() <= u32::MAX as usize;
    keeps_sparse_rows(config, rows.num_rows(), rows.num_cols(), rows.stored())
        && (config.sparse == Switch::On || is_small)
}

/// [`keeps_sparse`] of `rows` sparse rows with `stored` values of `cols` columns, without the limit
/// of a table that is multiplied as a whole.
pub(crate) fn keeps_sparse_rows(config: &TrainConfig, rows: usize, cols: usize, stored: usize) -> bool {
    match config.sparse {
        Switch::On => true,
        Switch::Off => false,
        Switch::Auto => {
            // label columns are appended to dense rows
            let wide = matches!(config.feature_precision, FeaturePrecision::Auto | FeaturePrecision::F32)
                && config.fused != Switch::On
                && config.label_inputs == 0.0;
            wide && stored as f64 <= MAX_SPARSE_DENSITY * (rows as f64 * cols as f64)
        }
    }
}

/// Number type of dense feature rows that `--feature-precision` or `--precision` sets; `None` for
/// the stored one.
pub(crate) fn chosen_type(config: &TrainConfig) -> Option<TableType> {
    match config.feature_precision {
        FeaturePrecision::F32 => Some(TableType::F32),
        FeaturePrecision::F16 => Some(TableType::F16),
        FeaturePrecision::Bf16 => Some(TableType::Bf16),
        FeaturePrecision::Auto => (precision(config) == Precision::Bf16).then_some(TableType::Bf16),
    }
}

/// Number type of the resident feature table, by `--feature-precision` and `--precision`.
pub(crate) fn table_type(config: &TrainConfig, data: &Dataset) -> TableType {
    let stored = || data.features.data.kind().unwrap_or(TableType::F32);
    chosen_type(config).unwrap_or_else(stored)
}

/// Form in which the table and all caches in front of it hold rows.
pub(crate) fn row_format(config: &TrainConfig, data: &Dataset) -> RowFormat {
    if keeps_sparse(config, data) { RowFormat::Sparse } else { RowFormat::Dense(table_type(config, data)) }
}

/// Bytes of all rows in that form.
pub(crate) fn table_bytes(config: &TrainConfig, data: &Dataset) -> u64 {
    let bytes = match row_format(config, data) {
        RowFormat::Sparse => data.features.bytes(),
        RowFormat::Dense(kind) => kind.width() * data.features.len(),
    };
    bytes as u64
}

/// Precision of dense products.
pub fn precision(config: &TrainConfig) -> Precision {
    match config.precision {
        Arithmetic::F32 => Precision::F32,
        Arithmetic::Tf32 => Precision::Tf32,
        Arithmetic::Bf16 => Precision::Bf16,
    }
}

/// The processor, with dense products of that precision.
pub(crate) fn processor(config: &TrainConfig) -> &'static Cpu {
    match precision(config) {
        Precision::F32 => &Cpu { precision: Precision::F32 },
        Precision::Tf32 => &Cpu { precision: Precision::Tf32 },
        Precision::Bf16 => &Cpu { precision: Precision::Bf16 },
    }
}
