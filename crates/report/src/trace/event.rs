//! Events in the "Trace Event Format" (Google, 2016), the JSON of `chrome://tracing` and Perfetto.

use serde::Serialize;

/// Process id of the whole run.
const PROCESS: u32 = 1;

/// Event of a trace.
#[derive(Debug, Serialize)]
pub(super) struct Event<'e> {
    name: &'e str,
    /// `X` for a slice with a duration, `C` for a counter value from here on, `M` for names.
    ph: char,
    pid: u32,
    tid: usize,
    /// Microseconds from the beginning, to the nanosecond.
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: Args<'e>,
}

/// Additional fields of an event; absent ones are omitted.
#[derive(Debug, Default, Serialize)]
struct Args<'e> {
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batches: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sort_index: Option<usize>,
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

impl<'e> Event<'e> {
    fn new(ph: char, name: &'e str, tid: usize, at: u64, args: Args<'e>) -> Self {
        Self { name, ph, pid: PROCESS, tid, ts: micros(at), dur: None, args }
    }

    /// Names the process.
    pub(super) fn process(name: &'e str) -> Self {
        Self::new('M', "process_name", 0, 0, Args { name: Some(name), ..Args::default() })
    }

    /// Names a track.
    pub(super) fn track(tid: usize, name: &'e str) -> Self {
        Self::new('M', "thread_name", tid, 0, Args { name: Some(name), ..Args::default() })
    }

    /// Sets the position of a track among the others.
    pub(super) fn position(tid: usize) -> Self {
        Self::new('M', "thread_sort_index", tid, 0, Args { sort_index: Some(tid), ..Args::default() })
    }

    /// Creates a slice on a track, in nanoseconds; epoch and batch count from 1, as in all output.
    pub(super) fn slice(
        tid: usize,
        name: &'e str,
        (start, end): (u64, u64),
        epoch: u64,
        batch: Option<u64>,
    ) -> Self {
        let args = Args { epoch: Some(epoch), batch, ..Args::default() };
        Self { dur: Some(micros(end - start)), ..Self::new('X', name, tid, start, args) }
    }

    /// Records the number of batches in a queue.
    pub(super) fn depth(queue: &'e str, at: u64, batches: usize) -> Self {
        Self::new('C', queue, 0, at, Args { batches: Some(batches), ..Args::default() })
    }

    /// Records the memory of the process.
    pub(super) fn memory(at: u64, bytes: u64) -> Self {
        Self::new('C', "resident memory", 0, at, Args { bytes: Some(bytes), ..Args::default() })
    }
}
