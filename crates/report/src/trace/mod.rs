//! `trace.json`: the stages of every batch on every worker, for <https://ui.perfetto.dev> and
//! `chrome://tracing`.
//!
//! The trace has a track per worker with one slice per batch and stage, a track of the run itself
//! (ordering, scoring, checkpoints), and counters of queue lengths and process memory. A temporary
//! file grows at every epoch's end and whenever many slices have accumulated, so that memory holds
//! at most an epoch's slices; it is renamed when the run ends by success, an error, Ctrl-C or a
//! panic. A killed process leaves `trace.json.tmp`, which lacks its last brackets. A resumed run
//! writes a new trace, which replaces the last one.

mod event;

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use graphmill_data::atomic::{Disk, Real, create_fresh, suffixed, sync, sync_dir};
use graphmill_engine::{
    Error, Result,
    timeline::{Log, Timeline},
};

use event::Event;

/// Maximum number of buffered slices: some megabytes.
const MAX_BUFFERED: usize = 1 << 16;

/// Track of the run itself; the workers' tracks follow.
const RUN: usize = 1;

/// Maximum overlap by clock rounding, in nanoseconds, of slices that are measured once and laid out
/// sequentially on one worker.
const ROUNDING: u64 = 1000;

/// Trace of a run, open until it is finished or dropped.
#[derive(Debug)]
pub(crate) struct Trace {
    path: PathBuf,
    timeline: Arc<Timeline>,
    /// `None` once the file is complete, or cannot be written.
    out: Option<BufWriter<File>>,
    /// End of the last slice of each track, in nanoseconds; its length is the number of named
    /// tracks.
    ends: Vec<u64>,
}

impl Trace {
    /// Creates the temporary file of `path`, and makes the timeline record single slices.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn create(path: &Path, timeline: Arc<Timeline>) -> Result<Self> {
        let beside = suffixed(path, ".tmp");
        let file = create_fresh(&beside).map_err(|e| Error::io(&beside, "create", e))?;
        let mut out = BufWriter::new(file);
        let begun = out
            .write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")
            .and_then(|()| json(&mut out, &Event::process("graphmill")))
            .and_then(|()| next(&mut out, &Event::track(RUN, "run")))
            .and_then(|()| next(&mut out, &Event::position(RUN)));
        begun.map_err(|e| Error::io(&beside, "write", e))?;
        timeline.keep_slices();
        Ok(Self { path: path.to_path_buf(), timeline, out: Some(out), ends: Vec::new() })
    }

    /// Writes the recorded slices if there are many.
    ///
    /// # Errors
    /// Writing fails.
    pub(crate) fn flush_if_full(&mut self) -> Result<()> {
        if self.timeline.num_slices() < MAX_BUFFERED { Ok(()) } else { self.flush() }
    }

    /// Writes the slices recorded since the last call.
    ///
    /// # Errors
    /// Writing fails.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let log = self.timeline.take();
        let Some(mut out) = self.out.take() else { return Ok(()) };
        let beside = suffixed(&self.path, ".tmp");
        match self.write(&mut out, &log).and_then(|()| out.flush()) {
            Ok(()) => {
                self.out = Some(out);
                Ok(())
            }
            Err(e) => {
                // A full disk should get its space back.
                let _ = fs::remove_file(&beside);
                Err(Error::io(&beside, "write", e))
            }
        }
    }

    fn write(&mut self, out: &mut impl Write, log: &Log) -> io::Result<()> {
        for (i, worker) in self.timeline.busy().iter().enumerate().skip(self.ends.len()) {
            next(out, &Event::track(RUN + 1 + i, &worker.worker))?;
            next(out, &Event::position(RUN + 1 + i))?;
            self.ends.push(0);
        }
        for span in &log.spans {
            let time = (nanos(span.start), nanos(span.start + span.seconds));
            next(out, &Event::slice(RUN, span.name, time, span.epoch + 1, None))?;
        }
        for slice in &log.slices {
            let (mut start, end) = (nanos(slice.start), nanos(slice.start + slice.seconds));
            let before = &mut self.ends[slice.track];
            if *before > start && *before - start <= ROUNDING {
                start = *before;
            }
            *before = end.max(start);
            let (name, batch) = (slice.stage.name(), Some(slice.batch + 1));
            let time = (start, end.max(start));
            next(out, &Event::slice(RUN + 1 + slice.track, name, time, slice.epoch + 1, batch))?;
        }
        let queues = self.timeline.queues();
        for depth in &log.depths {
            next(out, &Event::depth(queues[depth.queue], nanos(depth.at), depth.batches))?;
        }
        for memory in &log.memory {
            next(out, &Event::memory(nanos(memory.at), memory.bytes))?;
        }
        Ok(())
    }

    /// Writes the rest, and renames the file.
    ///
    /// # Errors
    /// Writing fails.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.out.is_none() {
            return Ok(());
        }
        self.flush()?;
        let Some(mut out) = self.out.take() else { return Ok(()) };
        let beside = suffixed(&self.path, ".tmp");
        out.write_all(b"\n]}\n")
            .and_then(|()| out.flush())
            .and_then(|()| sync(out.get_ref(), &beside))
            .and_then(|()| Real.rename(&beside, &self.path))
            .map_err(|e| Error::io(&self.path, "write", e))?;
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        Ok(sync_dir(&mut Real, dir.unwrap_or(Path::new(".")))?)
    }
}

impl Drop for Trace {
    /// Closes the file if the run panicked.
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn json(out: &mut impl Write, event: &Event) -> io::Result<()> {
    serde_json::to_writer(out, event).map_err(io::Error::from)
}

/// Writes an event after the first, on a separate line.
fn next(out: &mut impl Write, event: &Event) -> io::Result<()> {
    out.write_all(b",\n")?;
    json(out, event)
}

#[cfg(test)]
pub(crate) mod tests;
