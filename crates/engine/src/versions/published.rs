//! The newest parameters of a model that devices train together, with the versions before.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use graphmill_core::{NodeId, ViewMut};
use graphmill_nn::{Backend, Matrix};

use super::{Parameters, PastVersions, ReplacedRows, VersionRule};
use crate::accelerator::Gpu;

/// Parameters that Trainers copy: the newest version, and as many earlier ones as gradients are
/// stale. Parameters that are updated on a device stay on devices: each device has a copy before
/// its Trainer reads it.
#[derive(Default)]
pub(crate) struct PublishedParameters {
    /// Updates of the epoch that made the newest version, and its values.
    newest: RwLock<(u64, Vec<Matrix>)>,
    past: PastVersions,
    /// Number of earlier versions that stay.
    most: u64,
    /// Version of the first parameters, and the updates of the run that made them.
    first: [u64; 2],
}

impl PublishedParameters {
    /// The parameters of the model before the batches of `rule`, after `step` updates of the run.
    /// `past` has the versions before them.
    pub(crate) fn new(model: &dyn Parameters, step: u64, past: &PastVersions, rule: VersionRule) -> Self {
        let mut values = Vec::new();
        model.each(&mut |param| values.push(param.value.clone()));
        let version = rule.round(rule.from);
        Self {
            newest: RwLock::new((version, values)),
            past: past.clone(),
            most: rule.staleness,
            first: [version, step],
        }
    }

    /// Publishes the model's parameters, which `backend` has updated. `gpus` are the training
    /// devices, and `replaced` the learned rows that the update replaced, of each type that has
    /// some.
    pub(crate) fn publish(
        &self,
        model: &dyn Parameters,
        backend: &dyn Backend,
        gpus: &[Gpu],
        replaced: Vec<ReplacedRows>,
    ) {
        let mut newest = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        let (version, values) = &mut *newest;
        if self.most > 0 {
            // in the memory of the version that no batch reads any more
            let memory = self.past.keep(self.most - 1).unwrap_or_else(|| {
                values.iter().map(|value| Matrix::zeros(value.num_rows(), value.num_cols())).collect()
            });
            self.past.push(std::mem::replace(values, memory), replaced);
        }
        let mut index = 0;
        model.each(&mut |param| {
            copy(&param.value, backend, values[index].view_mut());
            index += 1;
        });
        // after the update, and before a Trainer queues more work on the first device
        for value in values.iter().filter(|value| value.is_on_device()) {
            for gpu in gpus {
                gpu.copy_here(value.view());
            }
        }
        *version += 1;
    }

    /// Copies a version of the parameters to `model`, for passes by `backend`. Returns the number
    /// of updates of the run that made it.
    ///
    /// # Panics
    /// This version is not yet made, or was removed: a bug in the scheduler's rules.
    pub(crate) fn copy_to(&self, version: u64, model: &mut dyn Parameters, backend: &dyn Backend) -> u64 {
        let newest = self.read();
        let mut set = |values: &[Matrix]| {
            let mut index = 0;
            model.each_mut(&mut |param| {
                copy(&values[index], backend, param.value.view_mut());
                index += 1;
            });
        };
        match self.age(newest.0, version) {
            0 => set(&newest.1),
            age => self.past.see_dense(age, set),
        }
        let [first, step] = self.first;
        (step + version).saturating_sub(first)
    }

    /// Replaces `rows`, the newest learned rows of `nodes` of the type at place `i` among those
    /// that have some, by those of a version.
    ///
    /// # Panics
    /// As [`PublishedParameters::copy_to`].
    pub(crate) fn restore_rows(&self, version: u64, i: usize, nodes: &[NodeId], rows: &mut Matrix) {
        let newest = self.read();
        self.past.restore_rows(self.age(newest.0, version), i, nodes, rows);
    }

    /// The newest version.
    pub(crate) fn newest(&self) -> u64 {
        self.read().0
    }

    /// Returns true if this version is made and was not removed.
    pub(crate) fn has(&self, version: u64) -> bool {
        self.find(self.newest(), version).is_some()
    }

    fn read(&self) -> RwLockReadGuard<'_, (u64, Vec<Matrix>)> {
        self.newest.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates between a version and the newest one, if it is made and was not removed.
    fn find(&self, newest: u64, version: u64) -> Option<u64> {
        newest.checked_sub(version).filter(|&age| age <= self.past.len())
    }

    /// Updates between a version and the newest one.
    fn age(&self, newest: u64, version: u64) -> u64 {
        self.find(newest, version).unwrap_or_else(|| {
            panic!("version {version} of the parameters is read, but the newest is {newest}");
        })
    }
}

/// Copies values: by the backend if they are on its device, otherwise in host memory.
fn copy(from: &Matrix, backend: &dyn Backend, to: ViewMut) {
    if from.is_on_device() {
        backend.copy(from.view(), to);
    } else {
        to.host().copy_from_slice(from.view().host());
    }
}

#[cfg(test)]
mod tests {
    use graphmill_nn::{Param, backend::Cpu};

    use super::{super::tests::One, *};

    #[test]
    fn every_version_within_the_bound_has_its_values() {
        let one = |x: f32| One(Param::constant("weight", 1, 1, x));
        let backend = Cpu::default();
        for staleness in 0..4 {
            let rule = VersionRule { size: 1, staleness, from: 0 };
            let past = PastVersions::default();
            // 100 updates were made before the epoch
            let published = PublishedParameters::new(&one(0.0), 100, &past, rule);
            for number in 0..9 {
                let mut copy = one(-1.0);
                for version in rule.version(number)..=number {
                    let updates = published.copy_to(version, &mut copy, &backend);
                    assert_eq!((updates, copy.0.value.view().host()), (100 + version, &[version as f32][..]));
                }
                published.publish(&one(number as f32 + 1.0), &backend, &[], Vec::new());
                assert_eq!(past.len(), staleness.min(number + 1));
            }
        }
    }

    #[test]
    #[should_panic = "version 0 of the parameters is read, but the newest is 2"]
    fn versions_beyond_the_bound_are_never_read() {
        let mut model = One(Param::constant("weight", 1, 1, 0.0));
        let (backend, rule) = (Cpu::default(), VersionRule { size: 1, staleness: 1, from: 0 });
        let published = PublishedParameters::new(&model, 0, &PastVersions::default(), rule);
        published.publish(&model, &backend, &[], Vec::new());
        published.publish(&model, &backend, &[], Vec::new());
        published.copy_to(0, &mut model, &backend);
    }
}
