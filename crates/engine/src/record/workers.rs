//! How busy the workers of an epoch were, and which stage holds it up.

use serde::{Deserialize, Serialize};

use super::timeline::{Busy, Stage};

/// Seconds of a worker by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerStages {
    /// Drawing blocks.
    pub sample: f64,
    /// Gathering feature rows.
    pub extract: f64,
    /// Forward, loss, backward; and the update, where it is not apart.
    pub train: f64,
    /// The update of the model, where it is apart.
    pub update: f64,
    /// Making bottom-layer rows that several batches reuse.
    #[serde(skip_serializing_if = "is_zero")]
    pub embed: f64,
}

/// Whether there is nothing to write down.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

impl WorkerStages {
    /// In the order of [`Stage::ALL`].
    pub fn seconds(&self) -> [f64; Stage::COUNT] {
        [self.sample, self.extract, self.train, self.update, self.embed]
    }

    /// Of all stages.
    pub fn total(&self) -> f64 {
        self.seconds().iter().sum()
    }
}

/// What a worker did in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerRecord {
    /// Its name: `main`, `sampler 0`, ...
    pub worker: String,
    /// Seconds by stage.
    pub stages: WorkerStages,
    /// Busy seconds out of the epoch's, from the order to the last update: 0 to 1.
    pub utilisation: f64,
}

/// The records of workers in an epoch of so many seconds. Who did nothing in it is left out.
pub fn workers(busy: &[Busy], seconds: f64) -> Vec<WorkerRecord> {
    let record = |busy: &Busy| {
        let [sample, extract, train, update, embed] = busy.seconds;
        let stages = WorkerStages { sample, extract, train, update, embed };
        let utilisation = (stages.total() / seconds).min(1.0);
        WorkerRecord { worker: busy.worker.clone(), stages, utilisation }
    };
    let did = |busy: &&Busy| busy.seconds.iter().sum::<f64>() > 0.0;
    busy.iter().filter(did).map(record).collect()
}

/// How much of its workers' time each stage takes, in the order of [`Stage::ALL`]: the mean over
/// the workers that did it of its seconds out of the epoch's. `None` for a stage that no worker
/// did.
pub fn utilisation(workers: &[WorkerRecord]) -> [Option<f64>; Stage::COUNT] {
    Stage::ALL.map(|stage| {
        let mut shares = Shares::of(workers, stage).peekable();
        shares.peek()?;
        let (sum, count) = shares.fold((0.0, 0), |(sum, count), share| (sum + share.stage, count + 1));
        Some(sum / f64::from(count))
    })
}

/// The stage that holds the others up: the one whose workers are busiest, where a stage's workers
/// are those that did it, and how busy they are is the mean of their utilisation by the seconds
/// that each gave the stage. (A worker's whole utilisation counts, not the stage's part of it: a
/// trainer that extracts by itself for half its time and trains for the other half has no time
/// left.) Among stages that are equal in that to a hundredth, as all are that one worker does in
/// turn, it is the one with the largest [`utilisation`]. `None` where nothing was done.
pub fn bottleneck(workers: &[WorkerRecord]) -> Option<Stage> {
    let load = |stage: Stage| {
        let (sum, seconds) = Shares::of(workers, stage)
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

/// What a worker gave a stage.
struct Shares {
    /// Seconds.
    seconds: f64,
    /// The same out of the epoch's.
    stage: f64,
    /// The worker's seconds for all stages out of the epoch's.
    whole: f64,
}

impl Shares {
    /// Of every worker that did the stage.
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
        let busy = |&(worker, seconds): &(&str, [f64; Stage::COUNT])| Busy { worker: worker.into(), seconds };
        super::workers(&workers.iter().map(busy).collect::<Vec<_>>(), seconds)
    }

    #[test]
    fn one_worker_is_held_up_by_what_takes_longest() {
        let workers = of(&[("main", [2.0, 1.0, 4.0, 0.0, 0.0]), ("gone", [0.0; Stage::COUNT])], 8.0);
        assert_eq!(workers.len(), 1);
        assert_eq!(workers[0].utilisation, 0.875);
        assert_eq!(utilisation(&workers), [Some(0.25), Some(0.125), Some(0.5), None, None]);
        assert_eq!(bottleneck(&workers), Some(Stage::Train));
        assert_eq!((bottleneck(&[]), utilisation(&[])), (None, [None; Stage::COUNT]));
        assert_eq!(of(&[("main", [1.0; Stage::COUNT])], 0.0)[0].utilisation, 1.0, "of no time at all");
    }

    #[test]
    fn workers_of_a_stage_count_by_their_mean() {
        let two = [("sampler 0", [9.0, 0.0, 0.0, 0.0, 0.0]), ("sampler 1", [3.0, 0.0, 0.0, 0.0, 0.0])];
        let workers = of(&[two[0], two[1], ("trainer 0", [0.0, 0.0, 7.7, 0.0, 0.0])], 10.0);
        // the samplers together did more, but each of them less: by the seconds they gave, 0.75
        assert_eq!(utilisation(&workers)[0], Some(0.6));
        assert_eq!(bottleneck(&workers), Some(Stage::Train));
        // a trainer that extracts too has no time left, though sampling takes more of its worker's
        // than training does
        let workers =
            of(&[("sampler 0", [8.0, 0.0, 0.0, 0.0, 0.0]), ("trainer 0", [0.0, 4.5, 5.0, 0.0, 0.0])], 10.0);
        assert_eq!(bottleneck(&workers), Some(Stage::Train));
        // a sampler that trained for a moment does not make its load that of training
        let workers =
            of(&[("sampler 0", [9.9, 0.0, 0.1, 0.0, 0.0]), ("trainer 0", [0.0, 0.0, 5.0, 0.0, 0.0])], 10.0);
        assert_eq!(bottleneck(&workers), Some(Stage::Sample));
    }
}
