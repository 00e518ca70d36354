//! The loop around a queue: keeps its slots busy, repeats short reads, and passes complete reads
//! on.

use std::{io, ops::Range};

use super::{
    open_file::OpenFile,
    plan::{Layout, PlannedRead},
    queue::Queue,
};

/// Maximum number of consecutive attempts of a read without new bytes.
const MAX_TRIES: u32 = 1000;

/// A queue and the state of its slots. After an error it must not be used again, because reads may
/// be in flight.
pub(super) struct Reader {
    queue: Box<dyn Queue>,
    flights: Vec<Flight>,
    free: Vec<usize>,
}

/// A read in progress.
#[derive(Clone, Default)]
struct Flight {
    read: PlannedRead,
    filled: usize,
    /// Number of consecutive attempts without new bytes.
    tries: u32,
}

/// A read that failed.
#[derive(Debug)]
pub(super) struct Fault {
    /// Byte range of the read.
    pub(super) bytes: Range<u64>,
    pub(super) cause: Cause,
}

/// Reason why a read failed.
#[derive(Debug)]
pub(super) enum Cause {
    /// Error of the system.
    System(io::Error),
    /// The file ends after this number of bytes.
    Ends(u64),
}

impl Reader {
    pub(super) fn new(queue: Box<dyn Queue>) -> Self {
        let slots = queue.slots();
        Self { queue, flights: vec![Flight::default(); slots], free: Vec::with_capacity(slots) }
    }

    /// Reads the rows of `keys[range]`, passes each read with its bytes to `take`, and returns the
    /// number of bytes read.
    ///
    /// # Errors
    /// A read failed ([`Fault`]); the reader must not be used again.
    pub(super) fn read(
        &mut self,
        file: &OpenFile,
        layout: &Layout,
        keys: &[u64],
        range: Range<usize>,
        mut take: impl FnMut(&PlannedRead, &[u8]),
    ) -> Result<u64, Fault> {
        let Self { queue, flights, free } = self;
        free.clear();
        free.extend((0..flights.len()).rev());
        let (mut next, mut bytes) = (range.start, 0);
        loop {
            while let Some(&slot) = free.last()
                && let Some(read) = layout.next_read(keys, next, range.end)
            {
                free.pop();
                next = read.keys.end;
                queue.start(slot, 0, read.len, read.offset);
                flights[slot] = Flight { read, filled: 0, tries: 0 };
            }
            if free.len() == flights.len() {
                return Ok(bytes);
            }
            let (slot, outcome) = queue.finish().map_err(|e| Fault {
                bytes: layout.start(keys[range.start])..layout.start(keys[range.end - 1]) + layout.row,
                cause: Cause::System(e),
            })?;
            let flight = &mut flights[slot];
            let fault = |flight: &Flight, cause| {
                let end = flight.read.offset + flight.read.needed as u64;
                Fault { bytes: flight.read.offset..end, cause }
            };
            // a repeated read starts at the last whole block
            let at = flight.filled / layout.align as usize * layout.align as usize;
            let before = flight.filled;
            match outcome {
                Ok(count) => {
                    bytes += count as u64;
                    flight.filled = before.max(at + count);
                }
                Err(e) if flight.tries < MAX_TRIES && is_transient(&e) => {}
                Err(e) => return Err(fault(flight, Cause::System(e))),
            }
            if flight.filled >= flight.read.needed {
                take(&flight.read, &queue.bytes(slot)[..flight.read.needed]);
                free.push(slot);
                continue;
            }
            flight.tries = if flight.filled > before { 0 } else { flight.tries + 1 };
            if flight.tries > 0 && is_beyond(&file.len(), &flight.read) {
                let cause = file.len().map_or_else(Cause::System, Cause::Ends);
                return Err(fault(flight, cause));
            }
            if flight.tries > MAX_TRIES {
                let cause = io::Error::other(format!("{MAX_TRIES} attempts returned no bytes"));
                return Err(fault(flight, Cause::System(cause)));
            }
            let at = flight.filled / layout.align as usize * layout.align as usize;
            queue.start(slot, at, flight.read.len - at, flight.read.offset + at as u64);
        }
    }
}

/// Returns true if the file no longer has the bytes of a read, or its length is unknown.
fn is_beyond(len: &io::Result<u64>, read: &PlannedRead) -> bool {
    !matches!(len, Ok(len) if *len >= read.offset + read.needed as u64)
}

/// Returns true if an error only means that the read should be repeated.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}
