//! Pre-sampling (FGNN's PreSC#K): draws the minibatches of some epochs without training on them,
//! and counts the nodes.

use super::{Footprint, Setting, degree, no_argument};

/// First pre-sampled epoch: far beyond all epochs of a run, so that its draws are independent of
/// training.
const FIRST_EPOCH: u64 = 1 << 32;

/// Number of epochs by default.
const DEFAULT_EPOCHS: u64 = 1;

/// Counts over `K` pre-sampled epochs. Ties are ranked by out-degree, because after few epochs most
/// nodes have a count of 0.
pub(super) fn presampled(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    ranked(setting, &seen(setting, epochs("presc", argument)?)?)
}

/// Counts over the epochs of the run itself.
pub(super) fn optimal(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    no_argument("optimal", argument)?;
    ranked(setting, &footprint(setting, 0..setting.epochs)?)
}

/// Number of epochs after the colon.
pub(super) fn epochs(name: &str, argument: Option<&str>) -> Result<u64, String> {
    argument.map_or(Ok(DEFAULT_EPOCHS), |word| {
        let number = word.parse().ok().filter(|k| (1..=1000).contains(k));
        number.ok_or_else(|| format!("{name}:{word}: '{word}' is not a number of epochs from 1 to 1000"))
    })
}

/// Counts over `epochs` epochs that the run does not train on.
pub(super) fn seen(setting: &Setting, epochs: u64) -> Result<Footprint, String> {
    footprint(setting, FIRST_EPOCH..FIRST_EPOCH + epochs)
}

fn footprint(setting: &Setting, epochs: std::ops::Range<u64>) -> Result<Footprint, String> {
    Footprint::of(setting.graph.num_nodes(), setting.visits, epochs).map_err(|e| e.to_string())
}

/// Scores that rank nodes by count and then by out-degree.
fn ranked(setting: &Setting, footprint: &Footprint) -> Result<Vec<f64>, String> {
    let degrees = degree::score(setting, None)?;
    let most = degrees.iter().copied().fold(0.0, f64::max) + 1.0;
    Ok(footprint
        .counts
        .iter()
        .zip(degrees)
        .map(|(&count, degree)| f64::from(count) + degree / most)
        .collect())
}
