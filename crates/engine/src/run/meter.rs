//! Time and memory of the current epoch.

use std::{sync::Arc, time::Instant};

use graphmill_core::memory::resident;

use crate::{
    record::{EpochRecord, MemorySample, Samples, WorkerRecord, bottleneck, workers},
    timeline::Timeline,
};

/// Measures epochs one after another.
pub(crate) struct Meter {
    /// Stages of every worker.
    timeline: Arc<Timeline>,
    memory: Samples,
    workers: Vec<WorkerRecord>,
    /// Start of the epoch, or of its part after a resume.
    began: Instant,
    /// Seconds of the epoch before `began`.
    earlier: f64,
}

impl Meter {
    /// Meter of a run of `epochs` epochs.
    pub(crate) fn new(epochs: usize) -> Self {
        let (timeline, memory) = (Arc::new(Timeline::begin()), Samples::of_run(epochs));
        Self { timeline, memory, workers: Vec::new(), began: Instant::now(), earlier: 0.0 }
    }

    /// Timeline of the workers.
    pub(crate) fn timeline(&self) -> Arc<Timeline> {
        self.timeline.clone()
    }

    /// Begins an epoch, which has already taken `earlier` seconds before an interrupt.
    pub(crate) fn begin_epoch(&mut self, number: u64, earlier: f64) {
        (self.began, self.earlier) = (Instant::now(), earlier);
        self.timeline.begin_epoch(number);
    }

    /// Adds a span from `from` until now to the timeline.
    pub(crate) fn span(&self, name: &'static str, from: Instant) {
        self.timeline.span(name, from);
    }

    /// Seconds since the epoch began here; the part before a resume does not count.
    pub(crate) fn seconds_here(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Seconds of the epoch.
    pub(crate) fn seconds(&self) -> f64 {
        self.earlier + self.seconds_here()
    }

    /// Samples the memory of the process if it is time; the epoch has taken `seconds`.
    pub(crate) fn sample_memory(&mut self, seconds: f64) {
        if let Some(bytes) = self.timeline.sample_memory() {
            self.memory.offer(MemorySample { seconds, bytes });
        }
    }

    /// Ends the batches of the epoch; returns the seconds that the epoch has taken.
    pub(crate) fn end_batches(&mut self) -> f64 {
        let seconds = self.seconds_here();
        self.workers = workers(&self.timeline.busy(), seconds);
        self.earlier + seconds
    }

    /// Adds workers and memory to the record of the epoch.
    pub(crate) fn complete(&mut self, record: EpochRecord) -> EpochRecord {
        let workers = std::mem::take(&mut self.workers);
        EpochRecord {
            bottleneck: bottleneck(&workers),
            workers,
            memory_bytes: resident(),
            memory: self.memory.take(),
            ..record
        }
    }
}
