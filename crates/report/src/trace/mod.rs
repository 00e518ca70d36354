//! `trace.json`: what every worker did with every batch, for <https://ui.perfetto.dev> and `chrome://tracing`.
//!
//! A track per worker with a slice per batch and stage, a track of the run itself (ordering, scoring, checkpoints), and
//! counters of the queues' depths and of the process' memory. It is written beside while the run goes on, at every
//! epoch's end and when much has come together, so that memory holds an epoch's slices at most; and it gets its
//! name when the run ends, however that is: by success, an error, Ctrl-C or a panic. A process that is killed leaves
//! `trace.json.tmp`, which lacks its last brackets. A run that is resumed begins a trace of its own, in place of
//! the last one.

mod event;

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use graphmill_data::atomic::{Real, create_fresh, suffixed, sync_dir};
use graphmill_engine::{
    Error, Result,
    timeline::{Log, Timeline},
};

use event::Event;

/// Slices that may be waiting to be written: some megabytes.
const MAX_KEPT: usize = 1 << 16;

/// The track of the run itself; the workers' follow.
const RUN: usize = 1;

/// What is sampled once and laid out as if it had followed on one worker overlaps by what clocks round to; more than
/// this, in nanoseconds, is no rounding.
const ROUNDING: u64 = 1000;

/// The trace of a run, open until it is finished or dropped.
#[derive(Debug)]
pub(crate) struct Trace {
    path: PathBuf,
    timeline: Arc<Timeline>,
    /// None once the file has its name, or cannot be written.
    out: Option<BufWriter<File>>,
    /// When the last slice of each track ended, in nanoseconds: its length is the number of tracks that are named.
    ends: Vec<u64>,
}

impl Trace {
    /// Begins the file, beside `path`, and lets the timeline keep single slices.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn create(path: &Path, timeline: Arc<Timeline>) -> Result<Self> {
        let beside = suffixed(path, ".tmp");
        let file = create_fresh(&beside).map_err(|e| Error::io(&beside, "create", e))?;
        let mut out = BufWriter::new(file);
        let begun = out
            .write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")
            .and_then(|()| json(&mut out, &Event::process("graphmill")))
            .and_then(|()| next(&mut out, &Event::track(RUN, "run")))
            .and_then(|()| next(&mut out, &Event::place(RUN)));
        begun.map_err(|e| Error::io(&beside, "write", e))?;
        timeline.keep_slices();
        Ok(Self { path: path.to_path_buf(), timeline, out: Some(out), ends: Vec::new() })
    }

    /// Writes what has happened, where it is much.
    ///
    /// # Errors
    /// The disk is full or not to be written.
    pub(crate) fn relieve(&mut self) -> Result<()> {
        if self.timeline.num_kept() < MAX_KEPT { Ok(()) } else { self.flush() }
    }

    /// Writes what has happened since the last time.
    ///
    /// # Errors
    /// The disk is full or not to be written.
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
                // a full disk should get its space back
                let _ = fs::remove_file(&beside);
                Err(Error::io(&beside, "write", e))
            }
        }
    }

    fn write(&mut self, out: &mut impl Write, log: &Log) -> io::Result<()> {
        for (i, worker) in self.timeline.busy().iter().enumerate().skip(self.ends.len()) {
            next(out, &Event::track(RUN + 1 + i, &worker.worker))?;
            next(out, &Event::place(RUN + 1 + i))?;
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

    /// Writes the rest, and gives the file its name.
    ///
    /// # Errors
    /// The disk is full or not to be written.
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
            .and_then(|()| out.get_ref().sync_all())
            .and_then(|()| fs::rename(&beside, &self.path))
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

/// An event that is not the first: a line of its own.
fn next(out: &mut impl Write, event: &Event) -> io::Result<()> {
    out.write_all(b",\n")?;
    json(out, event)
}

#[cfg(test)]
pub(crate) mod tests;
