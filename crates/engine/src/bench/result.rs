//! Result of a case.

use serde::Serialize;

/// Measurements of a case, as median, minimum and maximum over the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Name of the bench; `machine` for limits.
    pub bench: &'static str,
    /// Description of the case.
    pub case: String,
    /// Unit: `GB/s`, `GFLOP/s`, `edges/s`, `seeds/s`, `reads/s` or `subgraphs/s` (higher is
    /// better), `s` or `ms` (lower is better).
    pub unit: &'static str,
    /// Median in `unit`.
    pub median: f64,
    /// Minimum in `unit`.
    pub min: f64,
    /// Maximum in `unit`.
    pub max: f64,
    /// Limit of the machine in `unit`: the best run of a measurement in the same process, or the
    /// cost model's prediction from several.
    pub limit: Option<f64>,
    /// Ratio of the median to the limit; 1 reaches the limit.
    pub of_limit: Option<f64>,
    /// Source of the limit.
    pub limit_of: Option<&'static str>,
    /// Rate of reading random rows of this width, in `unit`: the realistic limit if rows are not
    /// read in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_limit: Option<f64>,
    /// Median seconds of one call.
    pub seconds: f64,
    /// Number of runs.
    pub runs: usize,
}
