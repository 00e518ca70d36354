//! Plan of a run on a stream of events, which trains on the processor of this machine.
//!
//! The parts of an epoch are measured by real steps on batches all over the stream, for each number
//! of threads ([`graphmill_engine::events::cost`]). Results do not depend on the number of threads,
//! so the fastest is recommended.
//!
//! # Deviations
//!
//! The prediction omits the opening of the stream before the first epoch, checkpoints, and the
//! scores of the test events after the last epoch.

use std::{fmt, fs, path::Path};

use graphmill_core::memory::{available, resident};
use graphmill_data::typed::TypedDataset;
use graphmill_engine::{
    Error, Result, TrainConfig,
    config::events::{TABLE, is_of_events},
    events::cost::{EventCosts, EventSeconds, EventSizes, MemoryPart},
};
use serde::Serialize;

use crate::{memory::gb, prediction::digits, recommend::quote, request::Request};

/// Options of a run on events that plans of other runs do not read, beside those of its models.
pub(crate) const OPTIONS: [&str; 5] = ["clip", "eval_every", "eval_nodes", "metric", "split_edges"];

/// Options of a plan that describe other machines than this one.
pub const OF_MACHINES: [&str; 6] =
    ["hardware", "partition", "machines", "network", "device-counts", "devices"];

/// Machine of runs on events, in words.
const PLACE: &str = "streams of events train on the processor of one machine";

/// Plan of a run on a stream of events.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventPlan {
    /// Name of the dataset.
    pub dataset: String,
    /// Model of the run.
    pub model: String,
    /// Numbers of the stream and its batches.
    pub sizes: EventSizes,
    /// Epochs from one score of validation to the next.
    pub eval_every: usize,
    /// Prediction for each number of threads, ascending.
    pub threads: Vec<EventEpoch>,
    /// Parts of the memory of the run, the largest first.
    pub memory: Vec<MemoryPart>,
    /// Bytes of all these parts.
    pub memory_bytes: u64,
    /// Bytes of the process before it opens the dataset, if the system reports them.
    pub program_bytes: Option<u64>,
    /// Bytes of memory that this machine has available, if the system reports them.
    pub available_bytes: Option<u64>,
    /// Bytes of the files of the dataset, which is mapped while it opens.
    pub dataset_bytes: u64,
    /// Bytes of the files of rows that exceed `--host-budget`, in the directory of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_file_bytes: Option<u64>,
    /// Bytes of a checkpoint at the end of an epoch, and within one. A run keeps the last two, and
    /// a copy of the best model.
    pub checkpoint_bytes: [u64; 2],
    /// Executors that are not predicted, with the reason.
    pub not_planned: String,
    /// Command line of the recommended run.
    pub recommendation: EventRecommendation,
}

/// Epoch of a run on a stream of events.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventEpoch {
    /// Number of threads.
    pub threads: usize,
    /// Seconds of an epoch, with its share of the scores of validation.
    pub epoch_seconds: f64,
    /// Seconds of the parts of an epoch, and of the scores of validation after it.
    pub seconds: EventSeconds,
    /// Part of an epoch, with its share of the scores, that takes the longest.
    pub bottleneck: &'static str,
}

/// Best run of a plan on events.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventRecommendation {
    /// Number of threads.
    pub threads: usize,
    /// Command line that trains with it.
    pub command: String,
    /// Reason in words.
    pub reason: String,
}

/// Names of the options of models of events.
pub(crate) fn options() -> Vec<&'static str> {
    let groups = TABLE.groups().into_iter().flat_map(|(_, groups)| groups);
    let of_models = groups.flat_map(|group| group.keys()).map(|key| key.name.as_str());
    OPTIONS.into_iter().chain(of_models).collect()
}

/// Refuses the `given` options that only plans of streams of events read, if the run is another.
///
/// # Errors
/// Wrong usage, with the first of these options.
pub fn refuse_of_events(config: &TrainConfig, given: &[&str]) -> Result<()> {
    let others = crate::options_of_others();
    let is_unread = |name: &&&str| options().contains(name) && !others.contains(name);
    match given.iter().find(is_unread).filter(|_| !is_of_events(config)) {
        None => Ok(()),
        Some(name) => Err(Error::usage(format!(
            "--{}: only the plan of a stream of events reads it; name such a dataset and a model of events, \
             such as --model tgn, or leave it out",
            name.replace('_', "-")
        ))),
    }
}

/// Refuses options of a plan that describe other machines, if the run learns a stream of events.
///
/// # Errors
/// Wrong usage, with the first of these options.
pub fn refuse_other_machines(config: &TrainConfig, given: &[&str]) -> Result<()> {
    match given.iter().find(|name| OF_MACHINES.contains(name)) {
        None => Ok(()),
        Some(name) => Err(Error::usage(format!(
            "--{name}: {PLACE}, so --model {} is planned for this one; leave it out",
            config.model
        ))),
    }
}

/// Predicts the epoch of a run on the stream of `data` on this machine, with the `request`'s
/// options, and its memory and disk space. Rows that exceed `--host-budget` are in files without
/// names in the directory `dir`.
///
/// # Errors
/// As for training; an option that the run does not read.
pub fn plan_events(request: &Request, data: &TypedDataset, dir: &Path) -> Result<EventPlan> {
    let config = &request.config;
    let given: Vec<&str> = request.given.iter().map(|(name, _)| *name).collect();
    config.refuse_unused(&given)?;
    let program_bytes = resident();
    let costs = EventCosts::new(config, data, dir)?;
    let eval_every = config.eval_every.fixed().unwrap_or(1);
    let mut threads = Vec::new();
    for count in thread_counts(config.threads, rayon::current_num_threads()) {
        threads.push(EventEpoch::new(count, costs.seconds(count)?, eval_every));
    }
    let memory = costs.memory();
    let recommendation = request.recommend_threads(&threads);
    Ok(EventPlan {
        dataset: data.name.clone(),
        model: config.model.clone(),
        sizes: costs.sizes(),
        eval_every,
        threads,
        memory_bytes: memory.iter().map(|part| part.bytes).sum(),
        memory,
        program_bytes,
        available_bytes: available(),
        dataset_bytes: data.directory.as_deref().map_or(0, bytes_of_files),
        row_file_bytes: costs.file_bytes(),
        checkpoint_bytes: costs.checkpoint_bytes(),
        not_planned: format!("NVIDIA devices and several machines: not predicted, because {PLACE}"),
        recommendation,
    })
}

/// Numbers of threads that are compared: the `given` one, or powers of two up to the cores, and
/// these.
fn thread_counts(given: usize, cores: usize) -> Vec<usize> {
    if given > 0 {
        return vec![given];
    }
    let powers = std::iter::successors(Some(1), |count| Some(2 * count));
    powers.take_while(|&count| count < cores).chain([cores]).collect()
}

/// Bytes of the files in a directory and those below it; files that cannot be read have none.
fn bytes_of_files(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_of_files(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}

impl EventEpoch {
    fn new(threads: usize, seconds: EventSeconds, eval_every: usize) -> Self {
        let epoch_seconds = seconds.train() + seconds.validate() / eval_every as f64;
        let of_epoch = EventSeconds {
            replay: seconds.replay / eval_every as f64,
            score: seconds.score / eval_every as f64,
            ..seconds
        };
        let parts = parts(&of_epoch);
        let longest = parts.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let bottleneck = longest.map_or("compute", |(name, _)| name);
        Self { threads, epoch_seconds, seconds, bottleneck }
    }
}

/// Parts of an epoch, by name.
fn parts(seconds: &EventSeconds) -> [(&'static str, f64); 6] {
    let &EventSeconds { draw, read, compute, update, replay, score } = seconds;
    [
        ("draw", draw),
        ("read", read),
        ("compute", compute),
        ("update", update),
        ("replay", replay),
        ("score", score),
    ]
}

impl Request {
    /// Command line of the fastest of these runs, with the given options; on a tie that of the
    /// fewest threads.
    fn recommend_threads(&self, rows: &[EventEpoch]) -> EventRecommendation {
        let mut by_time: Vec<&EventEpoch> = rows.iter().collect();
        by_time.sort_by(|a, b| a.epoch_seconds.total_cmp(&b.epoch_seconds));
        let best = by_time[0];
        let mut command = format!("graphmill train {}", quote(&self.dataset));
        for (name, value) in self.given.iter().filter(|(name, _)| *name != "threads") {
            command += &format!(" --{}={}", name.replace('_', "-"), quote(value));
        }
        command += &format!(" --threads={}", best.threads);
        let mut reason = format!("{} s an epoch", digits(best.epoch_seconds));
        if let Some(next) = by_time.get(1) {
            reason += &format!(", with --threads {} {} s", next.threads, digits(next.epoch_seconds));
        }
        reason += &format!("; the longest part is {}", best.bottleneck);
        EventRecommendation { threads: best.threads, command, reason }
    }
}

impl fmt::Display for EventPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EventSizes { task, nodes, events: [train, valid, test], learned, scored, batch_size, batches } =
            &self.sizes;
        writeln!(
            f,
            "{}, {}: task {task} of {nodes} nodes; {train} events train ({learned} are learned), {valid} \
             validate ({scored} are scored), {test} test; {batches} batches of {batch_size} an epoch",
            self.dataset, self.model
        )?;
        let memory: Vec<String> =
            self.memory.iter().map(|part| format!("{} {}", part.name, gb(part.bytes as f64))).collect();
        write!(f, "memory {}", gb(self.memory_bytes as f64))?;
        if let Some(available) = self.available_bytes {
            write!(f, " of {} that are available", gb(available as f64))?;
        }
        write!(f, ": {}", memory.join(", "))?;
        match self.program_bytes {
            Some(bytes) => writeln!(f, "; beside them {} of the program", gb(bytes as f64))?,
            None => writeln!(f)?,
        }
        let [between, within] = self.checkpoint_bytes.map(|bytes| gb(bytes as f64));
        write!(f, "disk: the dataset {}, ", gb(self.dataset_bytes as f64))?;
        if let Some(bytes) = self.row_file_bytes {
            write!(f, "rows beyond --host-budget {}, ", gb(bytes as f64))?;
        }
        writeln!(f, "a checkpoint {between} at the end of an epoch and {within} within one")?;
        write!(f, "\n{:>7} {:>9}", "threads", "epoch, s")?;
        parts(&EventSeconds::default()).iter().try_for_each(|(name, _)| write!(f, " {name:>8}"))?;
        writeln!(f)?;
        for row in &self.threads {
            write!(f, "{:>7} {:>9}", row.threads, digits(row.epoch_seconds))?;
            parts(&row.seconds).iter().try_for_each(|(_, seconds)| write!(f, " {:>8}", digits(*seconds)))?;
            writeln!(f)?;
        }
        let turn = match self.eval_every {
            1 => "each epoch".to_string(),
            every => format!("every {every} epochs"),
        };
        writeln!(f, "replay and score: validation after {turn}, from the memory after the training events")?;
        writeln!(f, "{}", self.not_planned)?;
        let EventRecommendation { command, reason, .. } = &self.recommendation;
        writeln!(f, "\nrecommended: {reason}\n  {command}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_part_has_the_share_of_its_epoch() {
        let seconds = EventSeconds { compute: 1.0, score: 5.0, ..EventSeconds::default() };
        for (eval_every, longest) in [(1, "score"), (10, "compute")] {
            assert_eq!(EventEpoch::new(1, seconds, eval_every).bottleneck, longest, "{eval_every}");
        }
    }
}
