//! Records of a run: a line per epoch, and a summary, in a run directory ([`RunDir`]).

#![forbid(unsafe_code)]

mod comparison;
mod dataset;
mod epoch;
mod machine;
mod memory;
mod origin;
mod presampling;
mod rank;
mod repeated;
mod reuse;
mod run_dir;
mod summary;
pub mod timeline;
mod totals;
mod validate;
mod verification;
mod workers;

pub use comparison::{RunRow, compare_runs};
pub(crate) use dataset::sizes;
pub use dataset::{DatasetRecord, TypeCount, TypeTraffic};
pub use epoch::{DeviceRecord, EpochRecord, Stages};
pub use graphmill_loader::feature::{TierTraffic, Traffic};
pub use machine::MachineRecord;
pub use memory::{MemorySample, Samples};
pub(crate) use origin::partition_of_older;
pub use origin::{
    DATASET_HINT, FeatureRecord, LinkRelation, OTHER_DATASET_HINT, Origin, Source, TypeFeatures, TypedOrigin,
};
pub(crate) use presampling::PresamplingCost;
pub use presampling::PresamplingRecord;
pub use rank::{RankRecord, RankStages};
pub use repeated::{Repeated, SeedScore, Spread};
pub use reuse::ReuseRecord;
pub use run_dir::RunDir;
pub use summary::{Baseline, Best, GraphRecord, NvidiaRecord, ScoredRows, Staleness, Summary, TestScore};
pub use totals::{BatchOutcome, EpochTotals, ValidationScore};
pub use verification::VerificationRecord;
pub use workers::{WorkerRecord, WorkerStages, bottleneck, utilisation, workers};

#[cfg(test)]
mod tests;
