//! Timeline of a run: slices of work per worker and stage, queue depths and memory.
//!
//! Workers report every finished stage of a batch to a [`Timeline`], and queues report their depth.
//! The timeline always sums seconds per worker and stage, for the epoch's record and the live
//! progress. It stores single slices, depths and spans of the run itself only on request
//! (`--trace`).

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use graphmill_core::memory;
use serde::{Deserialize, Serialize};

/// Minimum time between two samples of the process memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Stage of a worker's work on a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Drawing the blocks.
    Sample,
    /// Gathering the feature rows.
    Extract,
    /// Forward, loss, backward.
    Train,
    /// Update of the model, if it is not part of training.
    Update,
    /// Drawing a super-batch in advance, and computing the bottom-layer rows that its batches
    /// reuse.
    Embed,
}

impl Stage {
    /// Number of stages.
    pub const COUNT: usize = 5;
    /// All stages in the order of a batch, then that of super-batches.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Sample, Self::Extract, Self::Train, Self::Update, Self::Embed];

    /// Name in records.
    pub fn name(self) -> &'static str {
        ["sample", "extract", "train", "update", "embed"][self as usize]
    }
}

/// Handle of a worker's track in a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track(usize);

/// A finished stage of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// Index of the worker's track.
    pub track: usize,
    /// Finished stage.
    pub stage: Stage,
    /// Epoch, from 0.
    pub epoch: u64,
    /// Batch in the epoch, from 0.
    pub batch: u64,
    /// Start in seconds since the timeline began.
    pub start: f64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Depth of a queue from a moment on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Depth {
    /// Index of the queue.
    pub queue: usize,
    /// Seconds since the timeline began.
    pub at: f64,
    /// Number of batches in the queue.
    pub batches: usize,
}

/// Work of the run itself between batches: ordering the seeds, scoring, a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Name of the work.
    pub name: &'static str,
    /// Epoch, from 0.
    pub epoch: u64,
    /// Start in seconds since the timeline began.
    pub start: f64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Process memory at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Seconds since the timeline began.
    pub at: f64,
    /// Resident bytes.
    pub bytes: u64,
}

/// Parts of the sample stage after the draws, in seconds (FGNN, Yang et al., EuroSys 2022, Table
/// 5).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampleParts {
    /// Marking the rows that the caches of trainers hold.
    pub mark: f64,
    /// Copying batches to the queue of the trainers.
    pub copy: f64,
}

/// Seconds of a worker's work in an epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Busy {
    /// Name of the worker.
    pub worker: String,
    /// Seconds by stage, in the order of [`Stage::ALL`].
    pub seconds: [f64; Stage::COUNT],
    /// Parts of the seconds of the sample stage.
    pub parts: SampleParts,
}

/// Stored events since the last [`Timeline::take`]; empty unless slices are stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Slices in the order of their reports, and for each worker in chronological order.
    pub slices: Vec<Slice>,
    /// Queue depths in chronological order.
    pub depths: Vec<Depth>,
    /// Work of the run itself in chronological order.
    pub spans: Vec<Span>,
    /// Memory samples in chronological order.
    pub memory: Vec<Memory>,
}

/// Timeline of a run, shared by all its workers.
#[derive(Debug)]
pub struct Timeline {
    began: Instant,
    /// True if single slices are stored.
    keep: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    epoch: u64,
    tracks: Vec<Busy>,
    queues: Vec<&'static str>,
    log: Log,
    /// Moment of the last memory sample.
    sampled: Option<Instant>,
}

impl Timeline {
    /// A timeline that begins now. It sums seconds, and does not store single slices yet.
    pub fn begin() -> Self {
        Self { began: Instant::now(), keep: AtomicBool::new(false), state: Mutex::default() }
    }

    /// Stores single slices from now on, until they are [taken](Self::take).
    pub fn keep_slices(&self) {
        self.keep.store(true, Relaxed);
    }

    /// Returns true if single slices are stored.
    pub fn keeps_slices(&self) -> bool {
        self.keep.load(Relaxed)
    }

    /// Begins an epoch, and resets the summed seconds.
    pub fn begin_epoch(&self, epoch: u64) {
        let mut state = self.lock();
        state.epoch = epoch;
        for track in &mut state.tracks {
            *track = Busy { worker: std::mem::take(&mut track.worker), ..Busy::default() };
        }
    }

    /// Track of the worker called `worker`: an existing one, or a new one.
    pub fn track(&self, worker: &str) -> Track {
        let mut state = self.lock();
        let known = state.tracks.iter().position(|track| track.worker == worker);
        Track(known.unwrap_or_else(|| {
            state.tracks.push(Busy { worker: worker.to_string(), ..Busy::default() });
            state.tracks.len() - 1
        }))
    }

    /// Records that a worker ran a stage of a batch between `from` and now. Returns the seconds.
    pub fn done(&self, track: Track, stage: Stage, batch: u64, from: Instant) -> f64 {
        let seconds = from.elapsed().as_secs_f64();
        self.add(track, stage, batch, from, seconds);
        seconds
    }

    /// Adds parts of the sample stage of a worker, whose whole seconds [`Timeline::add`] records.
    pub fn add_parts(&self, track: Track, parts: SampleParts) {
        let of_track = &mut self.lock().tracks[track.0].parts;
        of_track.mark += parts.mark;
        of_track.copy += parts.copy;
    }

    /// [`Timeline::done`] with an explicit duration.
    pub fn add(&self, track: Track, stage: Stage, batch: u64, from: Instant, seconds: f64) {
        let start = from.saturating_duration_since(self.began).as_secs_f64();
        let mut state = self.lock();
        state.tracks[track.0].seconds[stage as usize] += seconds;
        if self.keeps_slices() {
            let epoch = state.epoch;
            state.log.slices.push(Slice { track: track.0, stage, epoch, batch, start, seconds });
        }
    }

    /// Records the number of batches that are now in a queue.
    pub fn depth(&self, queue: &'static str, batches: usize) {
        if !self.keeps_slices() {
            return;
        }
        let mut state = self.lock();
        // under the lock, so that depths are in chronological order
        let at = self.began.elapsed().as_secs_f64();
        let index = state.queues.iter().position(|&name| name == queue).unwrap_or_else(|| {
            state.queues.push(queue);
            state.queues.len() - 1
        });
        state.log.depths.push(Depth { queue: index, at, batches });
    }

    /// Records work of the run itself between `from` and now.
    pub fn span(&self, name: &'static str, from: Instant) {
        if !self.keeps_slices() {
            return;
        }
        let seconds = from.elapsed().as_secs_f64();
        let start = from.saturating_duration_since(self.began).as_secs_f64();
        let mut state = self.lock();
        let epoch = state.epoch;
        state.log.spans.push(Span { name, epoch, start, seconds });
    }

    /// Samples the resident bytes of the process. `None` if the system does not report them, or if
    /// the last sample is less than a tenth of a second old.
    pub fn sample_memory(&self) -> Option<u64> {
        let mut state = self.lock();
        if state.sampled.is_some_and(|sampled| sampled.elapsed() < SAMPLE_INTERVAL) {
            return None;
        }
        state.sampled = Some(Instant::now());
        drop(state);
        // without the lock, so that workers do not wait for the system
        let bytes = memory::resident()?;
        if self.keeps_slices() {
            let at = self.began.elapsed().as_secs_f64();
            self.lock().log.memory.push(Memory { at, bytes });
        }
        Some(bytes)
    }

    /// Seconds of each worker in this epoch.
    pub fn busy(&self) -> Vec<Busy> {
        self.lock().tracks.clone()
    }

    /// Number of slices that are stored now.
    pub fn num_slices(&self) -> usize {
        self.lock().log.slices.len()
    }

    /// Names of the queues, by index.
    pub fn queues(&self) -> Vec<&'static str> {
        self.lock().queues.clone()
    }

    /// Returns and removes the events stored since the last call.
    pub fn take(&self) -> Log {
        std::mem::take(&mut self.lock().log)
    }

    /// Locks the state, also after a panic: every change leaves it consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(keep: bool) -> Timeline {
        let timeline = Timeline::begin();
        if keep {
            timeline.keep_slices();
        }
        timeline
    }

    #[test]
    fn seconds_reset_per_epoch_and_slices_are_stored_on_request() {
        for keep in [false, true] {
            let timeline = timeline(keep);
            let (one, two) = (timeline.track("one"), timeline.track("two"));
            let now = Instant::now();
            timeline.begin_epoch(0);
            timeline.add(one, Stage::Sample, 0, now, 1.0);
            timeline.begin_epoch(1);
            timeline.add(one, Stage::Sample, 3, now, 0.25);
            timeline.add(one, Stage::Sample, 4, now, 0.25);
            timeline.add(two, Stage::Update, 3, now, 2.0);
            timeline.depth("sampled", 2);
            assert_eq!(timeline.track("two"), two);
            let busy: Vec<_> = timeline.busy().into_iter().map(|busy| (busy.worker, busy.seconds)).collect();
            assert_eq!(
                busy,
                [("one".into(), [0.5, 0.0, 0.0, 0.0, 0.0]), ("two".into(), [0.0, 0.0, 0.0, 2.0, 0.0])]
            );
            let log = timeline.take();
            let slices: Vec<_> = log.slices.iter().map(|s| (s.track, s.epoch, s.batch)).collect();
            assert_eq!(slices, if keep { vec![(0, 0, 0), (0, 1, 3), (0, 1, 4), (1, 1, 3)] } else { vec![] });
            assert_eq!((log.depths.len(), timeline.queues().len()), (keep.into(), keep.into()));
            assert_eq!(timeline.take(), Log::default());
        }
    }

    #[test]
    fn memory_is_sampled_at_most_ten_times_per_second() {
        for keep in [false, true] {
            let timeline = timeline(keep);
            let first = timeline.sample_memory();
            assert_eq!(first, timeline.take().memory.first().map(|m| m.bytes).or(first));
            let began = Instant::now();
            let samples = (0..1000).filter(|_| timeline.sample_memory().is_some()).count();
            assert!(samples as f64 <= 1.0 + began.elapsed().as_secs_f64() / 0.1, "{samples}");
            assert_eq!(timeline.take().memory.len(), if keep { samples } else { 0 });
        }
    }
}
