//! Steps that come again: their commands are captured as a graph once and given to the device in
//! one call afterwards.
//!
//! ```text
//!   begin ─► launches, fills, copies, products are recorded ─► somebody waits for the stream ─► .. ─► end
//!                                                             │
//!                        the commands since the last wait: a segment
//!          never seen: given to the stream    seen before: captured, then run    captured before: one copy, one call
//! ```
//!
//! A step's host code runs every time, and takes the same memory if nothing changed; what it would
//! have given to the stream is compared with what it gave before: kernels, shapes, addresses and
//! all values but those that come late ([`crate::device::Late`]: learning rates, corrections, keys
//! of dropout, labels). A graph therefore runs only where every address in it was taken anew by the
//! step that runs it, and needs to hold no memory. Another shape or batch is another segment: it is
//! given to the stream as ever, and captured when it comes again.
//!
//! What comes late is read from memory of the device, which one copy brings up to date before the
//! graph runs. Values are the same as in a launch, and so is the order of commands, so results are
//! the same bits.
//!
//! Capturing is one loop over recorded commands, under two locks. Whoever gives memory back holds
//! the state's; whoever waits for a stream, records an event there or has it wait holds a share of
//! the other one, without which a call of another thread could come between the beginning of a
//! capture and its end, and would be captured itself. Where the driver refuses to capture, the
//! segment and all others are given to the stream as ever.

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

/// Commands that make a graph worth its launch.
const LEAST: usize = 4;
/// Segments that are remembered.
const MOST: usize = 32;
/// No stream.
const NONE: u64 = u64::MAX;

/// What was done with the segments of a device's steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Graphs that were made.
    pub captured: u64,
    /// Times that one was run.
    pub replayed: u64,
    /// Segments that were given to the stream command by command.
    pub launched: u64,
    /// Why none is made any more.
    pub refused: Option<String>,
}

/// A driver, and the steps of one stream of it.
pub(crate) struct Replay {
    inner: Arc<dyn Driver>,
    /// The stream whose commands are being recorded, [`NONE`] between steps. Commands of others
    /// take no lock.
    stream: AtomicU64,
    state: Mutex<State>,
    /// Held alone while work is captured. Taken after `state`, and by itself.
    captures: RwLock<()>,
}

#[derive(Default)]
struct State {
    /// What was recorded since somebody waited.
    now: Segment,
    /// Why earlier ones could not be done, where nobody was told.
    failed: Option<Error>,
    known: Vec<Known>,
    /// Memory for what comes late, and how much.
    table: (Option<Address>, usize),
    /// Segments so far.
    time: u64,
    counts: Counts,
}

/// A segment that was seen.
struct Known {
    segment: Segment,
    graph: Option<Graph>,
    /// When it was seen last.
    seen: u64,
}

impl Replay {
    pub(crate) fn new(inner: Arc<dyn Driver>) -> Self {
        Self { inner, stream: AtomicU64::new(NONE), state: Mutex::default(), captures: RwLock::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> Counts {
        self.state().counts.clone()
    }

    /// Bytes of a table for what comes late that would be enough for all segments seen; 0 where
    /// what there is suffices.
    pub(crate) fn wanted(&self) -> usize {
        let state = self.state();
        let most = state.known.iter().map(|known| known.segment.late().len()).max().unwrap_or(0);
        if most > state.table.1 && state.counts.refused.is_none() { most } else { 0 }
    }

    /// Records what is given to the stream from now on. `table` is memory of the device that nobody
    /// else uses before the next begin.
    ///
    /// # Errors
    /// Commands of a step before, which nobody ended, are refused.
    pub(crate) fn begin(&self, stream: Stream, table: Option<(Address, usize)>) -> Result<()> {
        let mut state = self.state();
        let left = self.flush(&mut state);
        let table = table.map_or((None, 0), |(at, bytes)| (Some(at), bytes));
        if state.table != table {
            // graphs read the one that was
            state.known.iter_mut().for_each(|known| self.forget(known, stream));
            state.table = table;
        }
        self.stream.store(stream.0, Ordering::Release);
        left
    }

    /// Gives what is left to the stream, and records no more.
    ///
    /// # Errors
    /// It is refused.
    pub(crate) fn end(&self) -> Result<()> {
        let mut state = self.state();
        let left = self.flush(&mut state);
        self.stream.store(NONE, Ordering::Release);
        left
    }

    /// Gives what was recorded of this stream to it: somebody else gives it work.
    ///
    /// # Errors
    /// It is refused.
    pub(crate) fn settle(&self, stream: Stream) -> Result<()> {
        self.settled_on(stream, |_| Ok(()))
    }

    /// Whether this stream's commands are being recorded.
    fn records(&self, stream: Stream) -> bool {
        self.stream.load(Ordering::Acquire) == stream.0
    }

    /// Records a command of a stream whose commands are; false where they are not, any more.
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

    /// Gives memory back, which the recorded commands may use, and which no capture may meet.
    /// Whoever waits next is told of commands that are refused.
    fn settled(&self, give_back: impl FnOnce(&dyn Driver)) {
        let mut state = self.state();
        state.failed = self.flush(&mut state).err();
        give_back(&*self.inner);
    }

    /// Does what is behind the recorded commands, where this stream's are.
    fn settled_on<T>(&self, stream: Stream, call: impl FnOnce(&dyn Driver) -> Result<T>) -> Result<T> {
        if self.records(stream) {
            let mut state = self.state();
            self.flush(&mut state)?;
        }
        let _shared = self.captures.read().unwrap_or_else(PoisonError::into_inner);
        call(&*self.inner)
    }

    /// Starts a kernel with the values of its parameters, of 64 bits each; those whose bits are set
    /// in `late` come late, and the last parameter is where they are: null, for what is given to
    /// the stream at once.
    ///
    /// # Errors
    /// As [`Driver::launch`]; of what is recorded, whoever waits for the stream is told.
    ///
    /// # Safety
    /// As [`Driver::launch`], until the stream has been waited for.
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
        // SAFETY: the caller's promise
        unsafe { segment::launch(&*self.inner, kernel, shape, values, stream) }
    }

    /// Has the recorded commands done.
    fn flush(&self, state: &mut State) -> Result<()> {
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        let segment = std::mem::take(&mut state.now);
        let stream = Stream(self.stream.load(Ordering::Acquire));
        if segment.len() == 0 {
            return Ok(());
        }
        let State { known, table: (table, room), time, counts, .. } = state;
        *time += 1;
        let found = known.iter_mut().find(|known| known.segment.is_like(&segment));
        let worth = segment.len() >= LEAST && counts.refused.is_none();
        let graph = match found {
            Some(known) => {
                known.seen = *time;
                if known.graph.is_none() && worth && segment.late().len() <= *room {
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
                    if known.len() == MOST
                        && let Some(oldest) = (0..MOST).min_by_key(|&i| known[i].seen)
                    {
                        self.forget(&mut known.swap_remove(oldest), stream);
                    }
                    known.push(Known { segment: segment.clone(), graph: None, seen: *time });
                }
                None
            }
        };
        let Some(graph) = graph else {
            counts.launched += 1;
            // SAFETY: memory is as whoever recorded the commands promised: nobody has waited for
            // the stream since
            return unsafe { segment.issue(&*self.inner, stream, None) };
        };
        counts.replayed += 1;
        let late = segment.late();
        // SAFETY: the graph's commands are those that were recorded, of memory as above; its table
        // has room for what comes late, which the stream reads before anything is copied there
        // again
        unsafe {
            if let Some(table) = table.filter(|_| !late.is_empty()) {
                self.inner.upload(late.as_ptr(), table, late.len(), stream)?;
            }
            self.inner.launch_graph(graph, stream)
        }
    }

    /// The segment as a graph. Nothing of it is done.
    fn capture(&self, segment: &Segment, stream: Stream, table: Option<Address>) -> Result<Graph> {
        let _alone = self.captures.write().unwrap_or_else(PoisonError::into_inner);
        self.inner.begin_capture(stream)?;
        // without late values the table is not read
        let table = table.or(Some(Address(0)));
        // SAFETY: as in `flush`; nothing runs yet
        let issued = unsafe { segment.issue(&*self.inner, stream, table) };
        // however that went, the stream is to take work again
        let graph = self.inner.end_capture(stream);
        issued.and_then(|()| graph.clone()).inspect_err(|_| {
            if let Ok(graph) = graph {
                // SAFETY: it was just made, and nobody else has it
                unsafe { self.inner.destroy_graph(graph) };
            }
        })
    }

    /// Gives a graph back that ran on the stream.
    fn forget(&self, known: &mut Known, stream: Stream) {
        if let Some(graph) = known.graph.take() {
            // what failed there is told to who waits next
            let _ = self.inner.synchronize(stream);
            // SAFETY: it is done, and nobody names it again
            unsafe { self.inner.destroy_graph(graph) };
        }
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for graph in state.known.iter_mut().filter_map(|known| known.graph.take()) {
            // SAFETY: nobody names it again
            unsafe { self.inner.destroy_graph(graph) };
        }
    }
}
