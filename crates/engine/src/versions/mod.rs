//! Versions of the parameters of a model that devices train together: which version each batch
//! reads, the newest one, and the earlier ones that stale gradients read.
//!
//! # Algorithm
//!
//! A fixed number of consecutive batches of an epoch are a round, and a round makes one update. A
//! version is the number of updates of the epoch that made it. A batch of round `r` reads version
//! `max(0, r - N)`, for a staleness of `N` updates ([`VersionRule`]): exactly this one, also if
//! newer ones exist. With `N = 3` and rounds of one batch:
//!
//! ```text
//!   batch     b0   b1   b2   b3   b4   b5   ..
//!   reads     v0   v0   v0   v0   v1   v2   ..    a batch waits until its version is published
//!   makes     v1   v2   v3   v4   v5   v6   ..    in the order of the batches
//! ```
//!
//! The bits of a run therefore depend on `N` and neither on timing nor on the number of devices. A
//! batch waits for nothing else: it may start as soon as a gradient within the bound could be
//! computed. The thread of the run publishes each version after its update
//! ([`PublishedParameters`]), and the `N` versions before it stay ([`PastVersions`]). Checkpoints
//! within an epoch hold those, so that a resumed run reads the same versions.
//!
//! # Source
//!
//! Langford, Smola and Zinkevich, *Slow Learners are Fast*, NeurIPS 2009, algorithm 1: gradients of
//! a fixed staleness. Yang et al., *GNNLab: A Factored System for Sample-based GNN Training over
//! GPUs*, EuroSys 2022, section 5.2, updates "asynchronously with bounded staleness".
//!
//! # Cost
//!
//! An update copies the dense parameters, and the learned rows that it replaces. An earlier version
//! of the rows of `n` nodes takes O(n a log r), for `a` updates since and `r` rows that each
//! replaced.
//!
//! # Memory
//!
//! The dense parameters `N + 2` times: those of the model, the newest version, and `N` before it;
//! on NVIDIA devices on each that trains. The learned rows that the last `N` updates replaced; over
//! ranks, each has those of its own nodes.
//!
//! # Deviations
//!
//! GNNLab's trainers read the newest parameters, so its results depend on timing.

#![forbid(unsafe_code)]

mod past;
mod published;

use graphmill_nn::{Param, model::Model, typed::TypedModel};

use crate::{Error, Result};
pub(crate) use past::{PREFIX, PastVersions, ReplacedRows};
pub(crate) use published::PublishedParameters;

/// A model whose dense parameters have copies.
pub(crate) trait Parameters {
    /// Visits every parameter, always in the same order.
    fn each(&self, see: &mut dyn FnMut(&Param));

    /// Visits every parameter mutably, in the order of [`Parameters::each`].
    fn each_mut(&mut self, see: &mut dyn FnMut(&mut Param));
}

impl Parameters for Model {
    fn each(&self, see: &mut dyn FnMut(&Param)) {
        self.visit(&mut |_, param| see(param));
    }

    fn each_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.visit_mut(&mut |_, param| see(param));
    }
}

impl Parameters for TypedModel {
    fn each(&self, see: &mut dyn FnMut(&Param)) {
        self.visit(&mut |_, param| see(param));
    }

    fn each_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.visit_mut(&mut |_, param| see(param));
    }
}

/// Batches of each update, and the version of the parameters that each batch reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionRule {
    /// Batches per update, at least one.
    pub(crate) size: u64,
    /// Staleness of a gradient, in updates.
    pub(crate) staleness: u64,
    /// First batch of this part of an epoch, with which a round begins.
    pub(crate) from: u64,
}

impl VersionRule {
    /// Number of the round of a batch: the updates of the epoch before its own.
    pub(crate) fn round(self, number: u64) -> u64 {
        self.from.div_ceil(self.size) + (number - self.from) / self.size
    }

    /// Version of the parameters that a batch reads.
    pub(crate) fn version(self, number: u64) -> u64 {
        self.round(number).saturating_sub(self.staleness)
    }

    /// Checks that a run has the earlier versions that the batches before `end` read. Removes those
    /// of another epoch.
    ///
    /// # Errors
    /// It has not: they are missing in its checkpoint.
    pub(crate) fn check(self, past: &PastVersions, end: u64) -> Result<()> {
        if self.from == 0 || self.from >= end {
            past.clear();
            return Ok(());
        }
        let (found, expected) = (past.len(), self.staleness.min(self.round(self.from)));
        if found == expected {
            return Ok(());
        }
        let Self { staleness, from, .. } = self;
        Err(Error::usage(format!(
            "--staleness {staleness}: the checkpoint after {from} batches has {found} earlier versions of \
             the parameters, not {expected}, because an earlier version of Graphmill wrote it; train again"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model of one parameter with one value.
    pub(super) struct One(pub(super) Param);

    impl Parameters for One {
        fn each(&self, see: &mut dyn FnMut(&Param)) {
            see(&self.0);
        }

        fn each_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
            see(&mut self.0);
        }
    }

    #[test]
    fn a_batch_reads_the_version_that_is_as_old_as_the_bound() {
        let versions = |size, staleness, from| {
            let rule = VersionRule { size, staleness, from };
            (from..from + 6).map(|number| rule.version(number)).collect::<Vec<_>>()
        };
        assert_eq!(versions(1, 0, 0), [0, 1, 2, 3, 4, 5]);
        assert_eq!(versions(1, 3, 0), [0, 0, 0, 0, 1, 2]);
        assert_eq!(versions(1, 3, 2), [0, 0, 1, 2, 3, 4], "a resumed epoch goes on");
        assert_eq!(versions(2, 0, 0), [0, 0, 1, 1, 2, 2]);
        assert_eq!(versions(2, 1, 4), [1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn checkpoints_without_the_earlier_versions_are_refused() {
        let rule = |staleness, from| VersionRule { size: 1, staleness, from };
        let past = PastVersions::default();
        rule(0, 7).check(&past, 9).unwrap();
        rule(2, 0).check(&past, 9).unwrap();
        let message = rule(2, 7).check(&past, 9).unwrap_err().to_string();
        assert!(message.starts_with("--staleness 2: the checkpoint after 7 batches has 0 "), "{message}");
        assert!(message.contains(", not 2, ") && message.ends_with("; train again"), "{message}");
        past.push(Vec::new(), Vec::new());
        rule(2, 1).check(&past, 9).unwrap();
        assert_eq!(past.len(), 1);
        for (from, end) in [(0, 9), (9, 9)] {
            past.push(Vec::new(), Vec::new());
            rule(2, from).check(&past, end).unwrap();
            assert_eq!(past.len(), 0, "an epoch begins without earlier versions");
        }
    }
}
