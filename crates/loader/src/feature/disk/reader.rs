//! The loop around a queue: keeps its slots full, repeats what came short, and hands out what is
//! there.

use std::{io, ops::Range};

use super::{
    opened::Opened,
    plan::{Layout, Piece},
    queue::Queue,
};

/// How often in a row a read may bring nothing new.
const PATIENCE: u32 = 1000;

/// A queue and what its slots are at. After an error it must not be used again: reads may be in
/// flight.
pub(super) struct Reader {
    queue: Box<dyn Queue>,
    flights: Vec<Flight>,
    free: Vec<usize>,
}

/// A read under way.
#[derive(Clone, Default)]
struct Flight {
    piece: Piece,
    filled: usize,
    /// Tries in a row that brought nothing.
    tries: u32,
}

/// A read that failed.
#[derive(Debug)]
pub(super) struct Fault {
    /// The bytes that were to be read.
    pub(super) bytes: Range<u64>,
    pub(super) cause: Cause,
}

/// Why a read failed.
#[derive(Debug)]
pub(super) enum Cause {
    /// The system's answer.
    System(io::Error),
    /// The file ends after so many bytes.
    Ends(u64),
}

impl Reader {
    pub(super) fn new(queue: Box<dyn Queue>) -> Self {
        let slots = queue.slots();
        Self { queue, flights: vec![Flight::default(); slots], free: Vec::with_capacity(slots) }
    }

    /// Reads the rows of `keys[range]`, gives each read's bytes with its piece to `take`, and says
    /// how many bytes came.
    ///
    /// # Errors
    /// See [`Fault`]; the reader is used up.
    pub(super) fn read(
        &mut self,
        file: &Opened,
        layout: &Layout,
        keys: &[u64],
        range: Range<usize>,
        mut take: impl FnMut(&Piece, &[u8]),
    ) -> Result<u64, Fault> {
        let Self { queue, flights, free } = self;
        free.clear();
        free.extend((0..flights.len()).rev());
        let (mut next, mut bytes) = (range.start, 0);
        loop {
            while let Some(&slot) = free.last()
                && let Some(piece) = layout.piece(keys, next, range.end)
            {
                free.pop();
                next = piece.keys.end;
                queue.start(slot, 0, piece.len, piece.offset);
                flights[slot] = Flight { piece, filled: 0, tries: 0 };
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
                let end = flight.piece.offset + flight.piece.needed as u64;
                Fault { bytes: flight.piece.offset..end, cause }
            };
            // a read goes on from the last whole block
            let at = flight.filled / layout.align as usize * layout.align as usize;
            let before = flight.filled;
            match outcome {
                Ok(count) => {
                    bytes += count as u64;
                    flight.filled = before.max(at + count);
                }
                Err(e) if flight.tries < PATIENCE && is_passing(&e) => {}
                Err(e) => return Err(fault(flight, Cause::System(e))),
            }
            if flight.filled >= flight.piece.needed {
                take(&flight.piece, &queue.bytes(slot)[..flight.piece.needed]);
                free.push(slot);
                continue;
            }
            flight.tries = if flight.filled > before { 0 } else { flight.tries + 1 };
            if flight.tries > 0 && is_beyond(&file.len(), &flight.piece) {
                let cause = file.len().map_or_else(Cause::System, Cause::Ends);
                return Err(fault(flight, cause));
            }
            if flight.tries > PATIENCE {
                let cause = io::Error::other(format!("no bytes came in {PATIENCE} tries"));
                return Err(fault(flight, Cause::System(cause)));
            }
            let at = flight.filled / layout.align as usize * layout.align as usize;
            queue.start(slot, at, flight.piece.len - at, flight.piece.offset + at as u64);
        }
    }
}

/// Whether the file no longer has what a read needs, or its length cannot be told.
fn is_beyond(len: &io::Result<u64>, piece: &Piece) -> bool {
    !matches!(len, Ok(len) if *len >= piece.offset + piece.needed as u64)
}

/// Whether an error says no more than "again".
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}
