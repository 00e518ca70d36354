//! Pre-sampling (FGNN's PreSC#K): draw the minibatches of some epochs without training on them, and
//! count.

use super::{Footprint, Setting, degree, no_argument};

/// The first epoch that is drawn only to count: far behind all that a run trains on, so that its
/// draws are its own.
const ASIDE: u64 = 1 << 32;

/// Epochs where no number is given.
const EPOCHS: u64 = 1;

/// Counts over `K` epochs of their own. Among nodes that came up equally often those are hotter
/// that more nodes hear from: where few epochs were drawn most nodes never came up.
pub(super) fn presampled(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    ranked(setting, &seen(setting, epochs("presc", argument)?)?)
}

/// Counts over the epochs of the run itself.
pub(super) fn optimal(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    no_argument("optimal", argument)?;
    ranked(setting, &footprint(setting, 0..setting.epochs)?)
}

/// The number of epochs behind the colon.
pub(super) fn epochs(name: &str, argument: Option<&str>) -> Result<u64, String> {
    argument.map_or(Ok(EPOCHS), |word| {
        let number = word.parse().ok().filter(|k| (1..=1000).contains(k));
        number.ok_or_else(|| format!("{name}:{word}: a number of epochs from 1 to 1000"))
    })
}

/// What that many epochs ask for, none of them the run's.
pub(super) fn seen(setting: &Setting, epochs: u64) -> Result<Footprint, String> {
    footprint(setting, ASIDE..ASIDE + epochs)
}

fn footprint(setting: &Setting, epochs: std::ops::Range<u64>) -> Result<Footprint, String> {
    Footprint::of(setting.graph.num_nodes(), setting.visits, epochs).map_err(|e| e.to_string())
}

/// By count, then by degree.
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
