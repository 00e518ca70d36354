//! Pre-sampling (FGNN's PreSC#K): counts the nodes of the minibatches of some epochs. These are
//! epochs that are drawn without training on them, or online the first ones of training.

use graphmill_core::{Graph, rank::out_degrees};

use super::{Footprint, Setting, no_argument};

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

/// Counts over the first `K` epochs of training, here drawn again.
pub(super) fn online(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    ranked(setting, &footprint(setting, 0..online_epochs(argument)?)?)
}

/// Number of epochs of training that [`online`] counts.
pub(super) fn online_epochs(argument: Option<&str>) -> Result<u64, String> {
    epochs("presc-online", argument)
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
    Ok(by_counts(setting.graph, &footprint.counts))
}

/// Scores that rank the nodes of a graph by these counts and then by out-degree.
pub fn by_counts(graph: &Graph, counts: &[u32]) -> Vec<f64> {
    let degrees: Vec<f64> = out_degrees(graph).into_iter().map(f64::from).collect();
    let most = degrees.iter().copied().fold(0.0, f64::max) + 1.0;
    counts.iter().zip(degrees).map(|(&count, degree)| f64::from(count) + degree / most).collect()
}
