//! The result of a case.

use serde::Serialize;

/// One case: `median`, `min` and `max` over the runs, in `unit`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The bench; `machine` for what others are held against.
    pub bench: &'static str,
    /// What was done.
    pub case: String,
    /// `GB/s`, `GFLOP/s`, `edges/s`, `seeds/s`, `reads/s`, `subgraphs/s`: more is better; `s`,
    /// `ms`: less is.
    pub unit: &'static str,
    /// Over the runs.
    pub median: f64,
    /// Over the runs.
    pub min: f64,
    /// Over the runs.
    pub max: f64,
    /// What the machine can do, in `unit`: the best run of a measurement in the same process, or
    /// what the cost model makes of several.
    pub limit: Option<f64>,
    /// How near the median comes to the limit: 1 is there.
    pub of_limit: Option<f64>,
    /// Where the limit is from.
    pub limit_of: Option<&'static str>,
    /// Reading random rows of this width, in `unit`: the honest limit where rows are not read in
    /// order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_limit: Option<f64>,
    /// Median seconds of one call.
    pub seconds: f64,
    /// Runs.
    pub runs: usize,
}
