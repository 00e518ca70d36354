//! Rungs of successive halving: the epochs after which trials are compared, and which go on.

/// Epochs of each rung, ascending; the last is `epochs`. Each rung has about `eta` times the epochs
/// of the one before it. The first has `min_epochs`; 0 derives it, so that one of `trials` trials
/// is left for the last rung. Rungs are multiples of `every`, after which epochs are scored.
pub(super) fn rungs(trials: usize, epochs: usize, min_epochs: usize, eta: usize, every: usize) -> Vec<usize> {
    let mut rungs = Vec::new();
    if min_epochs == 0 {
        // the largest power of eta that neither the trials nor the epochs exceed
        let mut share = 1usize;
        while share.saturating_mul(eta) <= trials.min(epochs) {
            share *= eta;
        }
        while share > 1 {
            rungs.push(epochs / share);
            share /= eta;
        }
    } else {
        let mut at = min_epochs;
        while at < epochs {
            rungs.push(at);
            at = at.saturating_mul(eta);
        }
    }
    rungs.iter_mut().for_each(|rung| *rung = rung.div_ceil(every).saturating_mul(every));
    rungs.retain(|&rung| rung < epochs);
    rungs.push(epochs);
    rungs.dedup();
    rungs
}

/// Number of trials that go on after a rung of `count`.
pub(super) fn survivors(count: usize, eta: usize) -> usize {
    (count / eta).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_grow_by_eta_up_to_all_epochs() {
        assert_eq!(rungs(9, 9, 0, 3, 1), [1, 3, 9]);
        assert_eq!(rungs(27, 100, 0, 3, 1), [3, 11, 33, 100]);
        assert_eq!(rungs(4, 40, 0, 2, 1), [10, 20, 40]);
        assert_eq!(rungs(1, 40, 0, 3, 1), [40]);
        assert_eq!(rungs(100, 2, 0, 3, 1), [2]);
        assert_eq!(rungs(9, 20, 20, 3, 1), [20], "every trial is trained to the end");
        assert_eq!(rungs(9, 20, 4, 3, 5), [5, 15, 20], "epochs that are scored");
        assert_eq!(rungs(9, 20, 50, 3, 1), [20]);
    }

    #[test]
    fn at_least_one_trial_goes_on() {
        assert_eq!([9, 8, 3, 2, 1].map(|n| survivors(n, 3)), [3, 2, 1, 1, 1]);
    }
}
