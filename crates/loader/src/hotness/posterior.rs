//! What pre-sampling has seen, on the ground of what the fan-outs lead to expect.
//!
//! [`analytic`] has no noise but treats neighbours as independent, [`presc`](super::presc) has no
//! bias but has seen few batches: most nodes came up never or once, and which of them is chance. In
//! how many batches a node comes up is all but Poisson distributed; with a Gamma prior around the
//! expected count that is worth `PRIOR` epochs, the mean of what is known after `K` epochs is
//! `(count + PRIOR * expected) / (K + PRIOR)`.

use super::{Setting, analytic, presc};

/// Epochs that the expectation is worth.
const PRIOR: f64 = 2.0;

/// See the module's text; as much work as `presc:K` and `analytic` together.
pub(super) fn score(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    let epochs = presc::epochs("posterior", argument)?;
    let (seen, chance) = (presc::seen(setting, epochs)?, analytic::score(setting, None)?);
    let batches = setting.train.len().div_ceil(setting.batch_size.max(1)) as f64;
    let whole = epochs as f64 + PRIOR;
    Ok(seen.counts.iter().zip(chance).map(|(&n, p)| (f64::from(n) + PRIOR * p * batches) / whole).collect())
}
