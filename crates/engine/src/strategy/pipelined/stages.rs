//! Stages of the engine by index, as allocations name them.

use crate::{
    allocate::{Allocation, Group},
    timeline::Stage,
};

/// The stages, in the order of their indices.
pub(super) const STAGES: [Stage; 3] = [Stage::Sample, Stage::Extract, Stage::Train];
/// Index of sampling.
pub(super) const SAMPLE: usize = 0;
/// Index of extraction.
pub(super) const EXTRACT: usize = 1;
/// Index of training.
pub(super) const TRAIN: usize = 2;

/// Allocation with one group per stage.
pub(super) fn separate_groups(cores: [usize; 3], isolated: bool) -> Allocation {
    let group = |stage| Group { stages: vec![stage], cores: cores[stage] };
    Allocation { groups: [SAMPLE, EXTRACT, TRAIN].map(group).into(), isolated, seconds: f64::NAN }
}
