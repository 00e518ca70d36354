//! Utilisation of the workers of an epoch, and the bottleneck stage.

use serde::{Deserialize, Serialize};

use super::timeline::{Busy, SampleParts, Stage};

/// Seconds of a worker by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerStages {
    /// Drawing blocks.
    pub sample: f64,
    /// Gathering feature rows.
    pub extract: f64,
    /// Forward, loss, backward, and the update unless it is a separate stage.
    pub train: f64,
    /// Update of the model, if it is a separate stage.
    pub update: f64,
    /// Computing bottom-layer rows that several batches reuse.
    #[serde(skip_serializing_if = "is_zero")]
    pub embed: f64,
}

/// Returns true if the record omits the field.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

impl WorkerStages {
    /// Seconds in the order of [`Stage::ALL`].
    pub fn seconds(&self) -> [f64; Stage::COUNT] {
        [self.sample, self.extract, self.train, self.update, self.embed]
    }

    /// Seconds of all stages.
    pub fn total(&self) -> f64 {
        self.seconds().iter().sum()
    }
}

/// Work of a worker in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerRecord {
    /// Name of the worker: `main`, `sampler 0`, ...
    pub worker: String,
    /// Seconds by stage.
    pub stages: WorkerStages,
    /// Seconds of the sample stage that marked the rows that the caches of trainers hold.
    #[serde(skip_serializing_if = "is_zero")]
    pub mark_seconds: f64,
    /// Seconds of the sample stage that copied batches to the queue of the trainers.
    #[serde(skip_serializing_if = "is_zero")]
    pub copy_seconds: f64,
    /// Busy seconds as a fraction of the epoch's, from the order to the last update: 0 to 1.
    pub utilisation: f64,
}

/// Records of the workers in an epoch of `seconds` seconds. Omits idle workers.
pub fn workers(busy: &[Busy], seconds: f64) -> Vec<WorkerRecord> {
    let record = |busy: &Busy| {
        let [sample, extract, train, update, embed] = busy.seconds;
        let stages = WorkerStages { sample, extract, train, update, embed };
        let utilisation = (stages.total() / seconds).min(1.0);
        let SampleParts { mark: mark_seconds, copy: copy_seconds } = busy.parts;
        WorkerRecord { worker: busy.worker.clone(), stages, mark_seconds, copy_seconds, utilisation }
    };
    let did = |busy: &&Busy| busy.seconds.iter().sum::<f64>() > 0.0;
    busy.iter().filter(did).map(record).collect()
}

/// Fraction of its workers' time that each stage takes, in the order of [`Stage::ALL`]: the seconds
/// of the stage as a fraction of the epoch's, averaged over the workers that ran the stage. `None`
/// for a stage that no worker ran.
pub fn utilisation(workers: &[WorkerRecord]) -> [Option<f64>; Stage::COUNT] {
    Stage::ALL.map(|stage| {
        let mut shares = StageShare::of(workers, stage).peekable();
        shares.peek()?;
        let (sum, count) = shares.fold((0.0, 0), |(sum, count), share| (sum + share.stage, count + 1));
        Some(sum / f64::from(count))
    })
}

/// The bottleneck: the stage with the busiest workers. `None` if no worker ran a stage.
///
/// The load of a stage is the mean utilisation of its workers, weighted by the seconds that each
/// spent on the stage. A worker's whole utilisation counts, because a trainer that extracts for
/// half of its time and trains for the other half has no idle time. Among stages whose loads are
/// equal to a hundredth, such as all stages of a single worker, the one with the largest
/// [`utilisation`] is the bottleneck.
pub fn bottleneck(workers: &[WorkerRecord]) -> Option<Stage> {
    let load = |stage: Stage| {
        let (sum, seconds) = StageShare::of(workers, stage)
            .fold((0.0, 0.0), |(sum, all), share| (sum + share.whole * share.seconds, all + share.seconds));
        (seconds > 0.0).then(|| sum / seconds)
    };
    let loads = Stage::ALL.map(load);
    let busiest = loads.into_iter().flatten().max_by(f64::total_cmp)?;
    let own = utilisation(workers);
    let equal =
        Stage::ALL.into_iter().filter(|&s| loads[s as usize].is_some_and(|load| load > busiest - 0.01));
    equal.max_by(|&a, &b| own[a as usize].unwrap_or(0.0).total_cmp(&own[b as usize].unwrap_or(0.0)))
}

/// Time of a worker on a stage.
struct StageShare {
    /// Seconds on the stage.
    seconds: f64,
    /// `seconds` as a fraction of the epoch's.
    stage: f64,
    /// Utilisation of the worker over all stages.
    whole: f64,
}

impl StageShare {
    /// Shares of all workers that ran the stage.
    fn of(workers: &[WorkerRecord], stage: Stage) -> impl Iterator<Item = Self> {
        workers.iter().filter_map(move |worker| {
            let seconds = worker.stages.seconds()[stage as usize];
            let whole = worker.utilisation;
            (seconds > 0.0).then(|| Self { seconds, stage: whole * seconds / worker.stages.total(), whole })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(workers: &[(&str, [f64; Stage::COUNT])], seconds: f64) -> Vec<WorkerRecord> {
        let busy = |&(worker, seconds): &(&str, [f64; Stage::COUNT])| Busy {
            worker: worker.into(),
            seconds,
            ..Busy::default()
        };
        super::workers(&workers.iter().map(busy).collect::<Vec<_>>(), seconds)
    }

    #[test]
    fn longest_stage_is_the_bottleneck_of_a_single_worker() {
        let workers = of(&[("main", [2.0, 1.0, 4.0, 0.0, 0.0]), ("gone", [0.0; Stage::COUNT])], 8.0);
        assert_eq!(workers.len(), 1);
        assert_eq!(workers[0].utilisation, 0.875);
        assert_eq!(utilisation(&workers), [Some(0.25), Some(0.125), Some(0.5), None, None]);
        assert_eq!(bottleneck(&workers), Some(Stage::Train));
        assert_eq!((bottleneck(&[]), utilisation(&[])), (None, [None; Stage::COUNT]));
        assert_eq!(of(&[("main", [1.0; Stage::COUNT])], 0.0)[0].utilisation, 1.0, "an epoch of zero seconds");
    }

    #[test]
    fn load_of_a_stage_is_the_weighted_mean_over_its_workers() {
        let two = [("sampler 0", [9.0, 0.0, 0.0, 0.0, 0.0]), ("sampler 1", [3.0, 0.0, 0.0, 0.0, 0.0])];
        let workers = of(&[two[0], two[1], ("trainer 0", [0.0, 0.0, 7.7, 0.0, 0.0])], 10.0);
        // the samplers did more in total, but each of them less: weighted by seconds, 0.75
        assert_eq!(utilisation(&workers)[0], Some(0.6));
        assert_eq!(bottleneck(&workers), Some(Stage::Train));
        // a trainer that also extracts has no idle time, although sampling takes a larger part of
        // its worker's time than training does
        let workers =
            of(&[("sampler 0", [8.0, 0.0, 0.0, 0.0, 0.0]), ("trainer 0", [0.0, 4.5, 5.0, 0.0, 0.0])], 10.0);
        assert_eq!(bottleneck(&workers), Some(Stage::Train));
        // a sampler that trained briefly hardly contributes to the load of training
        let workers =
            of(&[("sampler 0", [9.9, 0.0, 0.1, 0.0, 0.0]), ("trainer 0", [0.0, 0.0, 5.0, 0.0, 0.0])], 10.0);
        assert_eq!(bottleneck(&workers), Some(Stage::Sample));
    }
}
