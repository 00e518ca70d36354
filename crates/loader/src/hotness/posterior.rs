//! Counts of pre-sampling with the analytic expectation as a prior.
//!
//! [`analytic`] has no noise but treats neighbours as independent. [`presc`](super::presc) has no
//! bias but sees few batches: most nodes were read never or once, which is partly chance. The
//! number of batches that read a node is approximately Poisson-distributed. With a Gamma prior
//! around the expected count, worth `PRIOR` epochs, the posterior mean after `K` epochs is `(count
//! + PRIOR * expected) / (K + PRIOR)`.
//!
//! The expectation is that of hops with the fanouts of the run, from frontiers of its batch size.
//! Samplers that draw subgraphs read neither, so their prior has no weight, and the scores are
//! those of `presc:K`.

use super::{Setting, analytic, presc};

/// Number of epochs that the expectation is worth.
const PRIOR: f64 = 2.0;

/// Posterior mean of each node. As expensive as `presc:K` and `analytic` together.
pub(super) fn score(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    let epochs = presc::epochs("posterior", argument)?;
    if setting.draws_subgraphs {
        return presc::presampled(setting, argument);
    }
    let (seen, chance) = (presc::seen(setting, epochs)?, analytic::score(setting, None)?);
    let batches = setting.train.len().div_ceil(setting.batch_size.max(1)) as f64;
    let whole = epochs as f64 + PRIOR;
    Ok(seen.counts.iter().zip(chance).map(|(&n, p)| (f64::from(n) + PRIOR * p * batches) / whole).collect())
}
