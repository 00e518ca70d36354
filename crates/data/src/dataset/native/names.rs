//! File names of a dataset.

pub(super) const INDPTR: &str = "indptr.npy";
pub(super) const INDICES: &str = "indices.npy";
pub(super) const EDGE_WEIGHT: &str = "edge_weight.npy";
pub(in super::super) const FEATURES: &str = "features.npy";
pub(in super::super) const FEATURES_INDPTR: &str = "features_indptr.npy";
pub(in super::super) const FEATURES_INDICES: &str = "features_indices.npy";
pub(in super::super) const FEATURES_VALUES: &str = "features_values.npy";
pub(super) const FEATURE_MEAN: &str = "feature_mean.npy";
pub(super) const FEATURE_DEVIATION: &str = "feature_deviation.npy";
pub(super) const LABELS: &str = "labels.npy";
pub(super) const ORIGINAL_IDS: &str = "original_ids.npy";
pub(super) const SPLIT: [&str; 3] = ["train.npy", "valid.npy", "test.npy"];

/// Returns true if this version of the format has an array of that name.
pub(super) fn is_known(name: &str) -> bool {
    const FEATURE_FILES: [&str; 4] = [FEATURES, FEATURES_INDPTR, FEATURES_INDICES, FEATURES_VALUES];
    [INDPTR, INDICES, EDGE_WEIGHT, LABELS, ORIGINAL_IDS].contains(&name)
        || FEATURE_FILES.contains(&name)
        || [FEATURE_MEAN, FEATURE_DEVIATION].contains(&name)
        || SPLIT.contains(&name)
}
