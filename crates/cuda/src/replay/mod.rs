//! Replay of repeated steps: their commands are captured once as a graph, which the device then
//! runs in one call.
//!
//! ```text
//!   begin ─► launches, fills, copies, products are recorded ─► a thread waits for the stream ─► .. ─► end
//!                                                             │
//!                        the commands since the last wait: a segment
//!          never seen: queued in the stream   seen before: captured, then run    captured before: one copy, one call
//! ```
//!
//! A step's host code runs every time and allocates the same memory if nothing changed. The
//! commands that it would queue are compared with earlier ones: kernels, shapes, addresses and all
//! values except late-bound ones (`Late` in `kernels/mod.rs`: learning rates, corrections, dropout
//! keys, labels). A graph therefore runs only if the current step allocated every address in it,
//! and it need not own memory. Another shape or batch is another segment: it is queued normally at
//! first, and captured when it repeats.
//!
//! Graphs read late-bound values from a table in device memory, which one copy updates before a
//! graph runs. The values and the order of commands are those of launches, so the results are
//! bit-identical.
//!
//! Capture is one loop over the recorded commands, under two locks. A thread that frees memory
//! holds the state's lock. A thread that waits for a stream, or records or awaits an event there,
//! holds a share of the other lock; otherwise its call could fall between the beginning and the end
//! of a capture and be captured itself. If the driver refuses a capture, this segment and all
//! others are queued normally.

#![allow(unsafe_code, reason = "device memory and kernels")]

mod forward;
mod segment;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    Error, Result,
    driver::{Address, Driver, Graph, Kernel, Shape, Stream},
};
pub(crate) use segment::PARAMETERS;
use segment::Segment;

/// Minimum number of commands for which a graph pays.
const MIN_COMMANDS: usize = 4;
/// Maximum number of remembered segments.
const MAX_SEGMENTS: usize = 32;
/// Marks that no stream is recorded.
const NO_STREAM: u64 = u64::MAX;

/// Statistics of a device's replayable steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of captured graphs.
    pub captured: u64,
    /// Number of graph launches.
    pub replayed: u64,
    /// Number of segments queued command by command.
    pub launched: u64,
    /// Reason why graphs are no longer captured.
    pub refused: Option<String>,
}

/// A driver, with the recording of one stream's steps.
pub(crate) struct Replay {
    inner: Arc<dyn Driver>,
    /// Stream whose commands are being recorded, or [`NO_STREAM`] between steps. Commands of other
    /// streams do not lock.
    stream: AtomicU64,
    state: Mutex<State>,
    /// Locked exclusively during a capture. Locked after `state`, or alone.
    captures: RwLock<()>,
}

#[derive(Default)]
struct State {
    /// Commands recorded since the last wait.
    now: Segment,
    /// Error of earlier commands that has not been returned yet.
    failed: Option<Error>,
    known: Vec<KnownSegment>,
    /// Table of late-bound values, and its size in bytes.
    table: (Option<Address>, usize),
    /// Number of segments so far.
    time: u64,
    counts: Counts,
}

/// A segment seen before.
struct KnownSegment {
    segment: Segment,
    graph: Option<Graph>,
    /// Time at which it was last seen.
    seen: u64,
}

impl Replay {
    pub(crate) fn new(inner: Arc<dyn Driver>) -> Self {
        Self {
            inner,
            stream: AtomicU64::new(NO_STREAM),
            state: Mutex::default(),
            captures: RwLock::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Statistics so far.
    pub(crate) fn counts(&self) -> Counts {
        self.state().counts.clone()
    }

    /// Table size in bytes for the late-bound values of all segments seen, or 0 if the current
    /// table suffices.
    pub(crate) fn required_table_bytes(&self) -> usize {
        let state = self.state();
        let most = state.known.iter().map(|known| known.segment.late().len()).max().unwrap_or(0);
        if most > state.table.1 && state.counts.refused.is_none() { most } else { 0 }
    }

    /// Starts to record the stream's commands. `table` is device memory that is not used otherwise
    /// before the next begin.
    ///
    /// # Errors
    /// Commands of an unfinished earlier step fail.
    pub(crate) fn begin(&self, stream: Stream, table: Option<(Address, usize)>) -> Result<()> {
        let mut state = self.state();
        let left = self.flush(&mut state);
        let table = table.map_or((None, 0), |(at, bytes)| (Some(at), bytes));
        if state.table != table {
            // graphs read the previous table
            state.known.iter_mut().for_each(|known| self.forget(known, stream));
            state.table = table;
        }
        self.stream.store(stream.0, Ordering::Release);
        left
    }

    /// Flushes the recorded commands and stops recording.
    ///
    /// # Errors
    /// A command fails.
    pub(crate) fn end(&self) -> Result<()> {
        let mut state = self.state();
        let left = self.flush(&mut state);
        self.stream.store(NO_STREAM, Ordering::Release);
        left
    }

    /// Flushes the recorded commands of this stream, because other work is queued in it.
    ///
    /// # Errors
    /// A command fails.
    pub(crate) fn flush_stream(&self, stream: Stream) -> Result<()> {
        self.after_flush_on(stream, |_| Ok(()))
    }

    /// Returns true if this stream's commands are being recorded.
    fn records(&self, stream: Stream) -> bool {
        self.stream.load(Ordering::Acquire) == stream.0
    }

    /// Records a command if its stream is being recorded; returns false if not.
    fn recorded(&self, stream: Stream, command: impl FnOnce(&mut Segment)) -> bool {
        if !self.records(stream) {
            return false;
        }
        let mut state = self.state();
        let records = self.records(stream);
        if records {
            command(&mut state.now);
        }
        records
    }

    /// Frees memory that recorded commands may use, outside captures. The next thread that waits
    /// receives errors of the flushed commands.
    fn after_flush(&self, give_back: impl FnOnce(&dyn Driver)) {
        let mut state = self.state();
        state.failed = self.flush(&mut state).err();
        give_back(&*self.inner);
    }

    /// Runs a call after the recorded commands of this stream, if it is being recorded.
    fn after_flush_on<T>(&self, stream: Stream, call: impl FnOnce(&dyn Driver) -> Result<T>) -> Result<T> {
        if self.records(stream) {
            let mut state = self.state();
            self.flush(&mut state)?;
        }
        let _shared = self.captures.read().unwrap_or_else(PoisonError::into_inner);
        call(&*self.inner)
    }

    /// Launches a kernel with 64-bit values for its parameters. Values whose bits are set in `late`
    /// are late-bound, and the last parameter is the address of their table: null if the kernel is
    /// launched at once.
    ///
    /// # Errors
    /// As for [`Driver::launch`]; errors of recorded launches are returned to the thread that waits
    /// for the stream.
    ///
    /// # Safety
    /// As for [`Driver::launch`], until the stream has been waited for.
    pub(crate) unsafe fn launch(
        &self,
        kernel: Kernel,
        shape: Shape,
        values: &mut [u64],
        late: u32,
        stream: Stream,
    ) -> Result<()> {
        if self.recorded(stream, |now| now.launch(kernel, shape, values, late)) {
            return Ok(());
        }
        // SAFETY: by the caller's guarantee
        unsafe { segment::launch(&*self.inner, kernel, shape, values, stream) }
    }

    /// Runs the recorded commands.
    fn flush(&self, state: &mut State) -> Result<()> {
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        let segment = std::mem::take(&mut state.now);
        let stream = Stream(self.stream.load(Ordering::Acquire));
        if segment.len() == 0 {
            return Ok(());
        }
        let State { known, table: (table, table_bytes), time, counts, .. } = state;
        *time += 1;
        let found = known.iter_mut().find(|known| known.segment.is_like(&segment));
        let worth = segment.len() >= MIN_COMMANDS && counts.refused.is_none();
        let graph = match found {
            Some(known) => {
                known.seen = *time;
                if known.graph.is_none() && worth && segment.late().len() <= *table_bytes {
                    match self.capture(&segment, stream, *table) {
                        Ok(graph) => {
                            known.graph = Some(graph);
                            counts.captured += 1;
                        }
                        Err(error) => counts.refused = Some(error.to_string()),
                    }
                }
                known.graph
            }
            None => {
                if worth {
                    if known.len() == MAX_SEGMENTS
                        && let Some(oldest) = (0..MAX_SEGMENTS).min_by_key(|&i| known[i].seen)
                    {
                        self.forget(&mut known.swap_remove(oldest), stream);
                    }
                    known.push(KnownSegment { segment: segment.clone(), graph: None, seen: *time });
                }
                None
            }
        };
        let Some(graph) = graph else {
            counts.launched += 1;
            // SAFETY: memory is valid as guaranteed when the commands were recorded, because no
            // thread has waited for the stream since
            return unsafe { segment.issue(&*self.inner, stream, None) };
        };
        counts.replayed += 1;
        let late = segment.late();
        // SAFETY: the graph's commands equal the recorded ones, in memory as above; its table is
        // large enough for the late-bound values, which the stream reads before the next copy to it
        unsafe {
            if let Some(table) = table.filter(|_| !late.is_empty()) {
                self.inner.upload(late.as_ptr(), table, late.len(), stream)?;
            }
            self.inner.launch_graph(graph, stream)
        }
    }

    /// Captures the segment as a graph, without running it.
    fn capture(&self, segment: &Segment, stream: Stream, table: Option<Address>) -> Result<Graph> {
        let _alone = self.captures.write().unwrap_or_else(PoisonError::into_inner);
        self.inner.begin_capture(stream)?;
        // without late-bound values the table is not read
        let table = table.or(Some(Address(0)));
        // SAFETY: as in `flush`; nothing runs yet
        let issued = unsafe { segment.issue(&*self.inner, stream, table) };
        // the stream must accept work again in any case
        let graph = self.inner.end_capture(stream);
        issued.and_then(|()| graph.clone()).inspect_err(|_| {
            if let Ok(graph) = graph {
                // SAFETY: it was just created and is not used again
                unsafe { self.inner.destroy_graph(graph) };
            }
        })
    }

    /// Destroys a graph that ran on the stream.
    fn forget(&self, known: &mut KnownSegment, stream: Stream) {
        if let Some(graph) = known.graph.take() {
            // the next thread that waits receives this error
            let _ = self.inner.synchronize(stream);
            // SAFETY: it is done and is not used again
            unsafe { self.inner.destroy_graph(graph) };
        }
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for graph in state.known.iter_mut().filter_map(|known| known.graph.take()) {
            // SAFETY: it is not used again
            unsafe { self.inner.destroy_graph(graph) };
        }
    }
}
