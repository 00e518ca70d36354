//! What every worker did, and when: the slices of a run's timeline, and how busy each stage was.
//!
//! Workers tell a [`Timeline`] about every stage of every batch that they finish, and queues about
//! their depth. Seconds per worker and stage are always added up, since an epoch's record and the
//! live progress need them; single slices, the depths and what the run itself did between batches
//! are kept only where someone wants to see them.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use graphmill_core::memory;
use serde::{Deserialize, Serialize};

/// Least time between two looks at the process' memory.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// What a worker does to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Drawing its blocks.
    Sample,
    /// Gathering its feature rows.
    Extract,
    /// Forward, loss, backward.
    Train,
    /// The update of the model, where it is not part of training.
    Update,
    /// Drawing a super-batch ahead, and making the bottom-layer rows that its batches reuse.
    Embed,
}

impl Stage {
    /// How many there are.
    pub const COUNT: usize = 5;
    /// Every stage, in a batch's order; that of several batches behind them.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Sample, Self::Extract, Self::Train, Self::Update, Self::Embed];

    /// Its name in records.
    pub fn name(self) -> &'static str {
        ["sample", "extract", "train", "update", "embed"][self as usize]
    }
}

/// A worker, as a timeline knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track(usize);

/// A stage of a batch, done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// Index among the tracks.
    pub track: usize,
    /// What was done.
    pub stage: Stage,
    /// To which epoch's, from 0.
    pub epoch: u64,
    /// To which batch, from 0.
    pub batch: u64,
    /// When it began, in seconds from the timeline's beginning.
    pub start: f64,
    /// How many seconds it took.
    pub seconds: f64,
}

/// How many batches were in a queue from some moment on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Depth {
    /// Index among the queues.
    pub queue: usize,
    /// When, in seconds from the timeline's beginning.
    pub at: f64,
    /// How many.
    pub batches: usize,
}

/// Something that the run itself did, beside the batches: ordering the seeds, scoring, a
/// checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// What was done.
    pub name: &'static str,
    /// In which epoch, from 0.
    pub epoch: u64,
    /// When it began, in seconds from the timeline's beginning.
    pub start: f64,
    /// How many seconds it took.
    pub seconds: f64,
}

/// The memory of the process at some moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// When, in seconds from the timeline's beginning.
    pub at: f64,
    /// Bytes resident.
    pub bytes: u64,
}

/// What a worker did in an epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Busy {
    /// The worker's name.
    pub worker: String,
    /// Seconds by stage, in the order of [`Stage::ALL`].
    pub seconds: [f64; Stage::COUNT],
}

/// What has happened since it was taken last; nothing unless slices are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Slices in the order in which they were told; of one worker, in the order of time.
    pub slices: Vec<Slice>,
    /// Depths in the order of time.
    pub depths: Vec<Depth>,
    /// What the run itself did, in the order of time.
    pub spans: Vec<Span>,
    /// Memory in the order of time.
    pub memory: Vec<Memory>,
}

/// The timeline of a run. Shared by all its workers.
#[derive(Debug)]
pub struct Timeline {
    began: Instant,
    keep: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    epoch: u64,
    tracks: Vec<Busy>,
    queues: Vec<&'static str>,
    log: Log,
    /// When the process' memory was looked at last.
    looked: Option<Instant>,
}

impl Timeline {
    /// A timeline that begins now. It adds up seconds, and keeps no single slices yet.
    pub fn begin() -> Self {
        Self { began: Instant::now(), keep: AtomicBool::new(false), state: Mutex::default() }
    }

    /// Keeps single slices from now on, until they are [taken](Self::take).
    pub fn keep_slices(&self) {
        self.keep.store(true, Relaxed);
    }

    /// Whether single slices are kept.
    pub fn keeps_slices(&self) -> bool {
        self.keep.load(Relaxed)
    }

    /// Begins an epoch: seconds are added up from here.
    pub fn begin_epoch(&self, epoch: u64) {
        let mut state = self.lock();
        state.epoch = epoch;
        state.tracks.iter_mut().for_each(|track| track.seconds = [0.0; Stage::COUNT]);
    }

    /// The track of the worker of that name: a new one, or the one that it has had in an earlier
    /// epoch.
    pub fn track(&self, worker: &str) -> Track {
        let mut state = self.lock();
        let known = state.tracks.iter().position(|track| track.worker == worker);
        Track(known.unwrap_or_else(|| {
            state.tracks.push(Busy { worker: worker.to_string(), seconds: [0.0; Stage::COUNT] });
            state.tracks.len() - 1
        }))
    }

    /// A worker has done this stage of this batch between `from` and now. Returns the seconds.
    pub fn done(&self, track: Track, stage: Stage, batch: u64, from: Instant) -> f64 {
        let seconds = from.elapsed().as_secs_f64();
        self.add(track, stage, batch, from, seconds);
        seconds
    }

    /// [`Timeline::done`] for so many seconds from `from` on.
    pub fn add(&self, track: Track, stage: Stage, batch: u64, from: Instant, seconds: f64) {
        let start = from.saturating_duration_since(self.began).as_secs_f64();
        let mut state = self.lock();
        state.tracks[track.0].seconds[stage as usize] += seconds;
        if self.keeps_slices() {
            let epoch = state.epoch;
            state.log.slices.push(Slice { track: track.0, stage, epoch, batch, start, seconds });
        }
    }

    /// There are now so many batches in the queue of that name.
    pub fn depth(&self, queue: &'static str, batches: usize) {
        if !self.keeps_slices() {
            return;
        }
        let mut state = self.lock();
        // under the lock: depths are in the order of time
        let at = self.began.elapsed().as_secs_f64();
        let index = state.queues.iter().position(|&name| name == queue).unwrap_or_else(|| {
            state.queues.push(queue);
            state.queues.len() - 1
        });
        state.log.depths.push(Depth { queue: index, at, batches });
    }

    /// The run itself has done this between `from` and now.
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

    /// Bytes that the process holds, where the system tells it and the last look is not less than a
    /// tenth of a second ago.
    pub fn look_at_memory(&self) -> Option<u64> {
        let mut state = self.lock();
        if state.looked.is_some_and(|looked| looked.elapsed() < BETWEEN_LOOKS) {
            return None;
        }
        state.looked = Some(Instant::now());
        drop(state);
        // without the lock: workers need not wait for the system
        let bytes = memory::resident()?;
        if self.keeps_slices() {
            let at = self.began.elapsed().as_secs_f64();
            self.lock().log.memory.push(Memory { at, bytes });
        }
        Some(bytes)
    }

    /// What each worker has done in this epoch.
    pub fn busy(&self) -> Vec<Busy> {
        self.lock().tracks.clone()
    }

    /// How many slices are kept now.
    pub fn num_kept(&self) -> usize {
        self.lock().log.slices.len()
    }

    /// The names of the queues, by index.
    pub fn queues(&self) -> Vec<&'static str> {
        self.lock().queues.clone()
    }

    /// Takes what was kept since the last call.
    pub fn take(&self) -> Log {
        std::mem::take(&mut self.lock().log)
    }

    /// A worker that panicked while it told something leaves sums behind, nothing half made.
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
    fn seconds_are_of_the_epoch_and_slices_only_where_wanted() {
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
    fn memory_is_looked_at_ten_times_a_second_at_most() {
        for keep in [false, true] {
            let timeline = timeline(keep);
            let first = timeline.look_at_memory();
            assert_eq!(first, timeline.take().memory.first().map(|m| m.bytes).or(first));
            let began = Instant::now();
            let looks = (0..1000).filter(|_| timeline.look_at_memory().is_some()).count();
            assert!(looks as f64 <= 1.0 + began.elapsed().as_secs_f64() / 0.1, "{looks}");
            assert_eq!(timeline.take().memory.len(), if keep { looks } else { 0 });
        }
    }
}
