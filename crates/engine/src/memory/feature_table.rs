//! Layout and number type of the resident feature table, from the options and the stored features.
//! [`build`](crate::build) makes the table and [`memory`](crate::memory) predicts its size by the
//! same rules.

use graphmill_core::{features::FeatureData, matrix::TableType};
use graphmill_data::Dataset;
use graphmill_nn::backend::Precision;

use crate::{
    TrainConfig,
    config::{Arithmetic, FeaturePrecision, Switch},
};

/// The largest share of values that are not zero at which sparse rows are multiplied as they are.
///
/// Both costs grow with the rows; that of sparse ones with the stored values too, some 25 times as
/// much for each. Measured: processor time of an epoch of GCN with dense rows, in that with sparse
/// ones, full batch and sampled, is 3.8 and 2.8 on Cora (1.3 % of 1,433), 12 and 4.1 on CiteSeer
/// (0.9 % of 3,703), 6.7 and 3.8 on Coauthor CS (0.9 % of 6,805), and 0.3 and 0.4 on PubMed (10 %
/// of 500), 0.3 and 0.1 on Amazon ComputeDevices (35 % of 767), where dense rows take the fast
/// path.
const SPARSE_SHARE: f64 = 0.04;

/// Whether the first layer multiplies feature rows as they are stored, sparse: where they are, and
/// `--sparse` says so or leaves it to their density.
pub(crate) fn keeps_sparse(config: &TrainConfig, data: &Dataset) -> bool {
    let FeatureData::Csr(rows) = &data.features.data else { return false };
    match config.sparse {
        Switch::On => true,
        Switch::Off => false,
        Switch::Auto => {
            let values = rows.num_rows() as f64 * rows.num_cols() as f64;
            let wide = matches!(config.feature_precision, FeaturePrecision::Auto | FeaturePrecision::F32)
                && config.fused != Switch::On;
            wide && rows.stored() as f64 <= SPARSE_SHARE * values && rows.stored() <= u32::MAX as usize
        }
    }
}

/// The type of the resident feature table's values: as `--feature-precision` says.
pub(crate) fn table_type(config: &TrainConfig, data: &Dataset) -> TableType {
    match (config.feature_precision, &data.features.data) {
        (FeaturePrecision::F32, _) => TableType::F32,
        (FeaturePrecision::F16, _) => TableType::F16,
        (FeaturePrecision::Bf16, _) => TableType::Bf16,
        _ if precision(config) == Precision::Bf16 => TableType::Bf16,
        (FeaturePrecision::Auto, FeatureData::F32(_) | FeatureData::Csr(_)) => TableType::F32,
        (FeaturePrecision::Auto, FeatureData::F16(_)) => TableType::F16,
    }
}

/// What dense products multiply in.
pub fn precision(config: &TrainConfig) -> Precision {
    if config.precision == Arithmetic::Bf16 { Precision::Bf16 } else { Precision::F32 }
}
