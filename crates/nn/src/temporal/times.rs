//! Times of the nodes of a memory, in memory or in a file.
//!
//! Times are stored as differences from the start of the stream, so that a new file, which holds
//! zeros, is that of nodes without events.

use std::{
    ops::{Deref, DerefMut},
    path::Path,
};

use bytemuck::{Pod, Zeroable};
use graphmill_core::{FileArray, Result, maps, memory};

/// Nodes that are saved or restored before their pages leave memory.
const RUN: usize = 1 << 16;

/// Times of a node, since the start.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct NodeTime {
    /// Time of the last update.
    last: i64,
    /// Time of the event of the last message.
    message: i64,
    /// 1 if the message waits, else 0.
    waits: u64,
}

/// Place of the times.
#[derive(Debug)]
enum Place {
    Memory(Vec<NodeTime>),
    File(FileArray<NodeTime>),
}

impl Deref for Place {
    type Target = [NodeTime];

    fn deref(&self) -> &[NodeTime] {
        match self {
            Self::Memory(all) => all,
            Self::File(all) => all,
        }
    }
}

impl DerefMut for Place {
    fn deref_mut(&mut self) -> &mut [NodeTime] {
        match self {
            Self::Memory(all) => all,
            Self::File(all) => all,
        }
    }
}

/// Times of the last updates and of the messages of all nodes, and which messages wait.
#[derive(Debug)]
pub(super) struct NodeTimes {
    start: i64,
    all: Place,
}

impl Clone for NodeTimes {
    /// A copy in memory. If the system refuses it, the thread unwinds ([`memory::demand`]).
    fn clone(&self) -> Self {
        let mut all = Vec::new();
        memory::demand_copy(&mut all, &self.all);
        Self { start: self.start, all: Place::Memory(all) }
    }
}

impl NodeTimes {
    /// Bytes of a node in a place.
    pub(super) const BYTES: usize = size_of::<NodeTime>();
    /// Bytes of a saved node.
    pub(super) const SAVED_BYTES: usize = 17;

    /// Creates the times of `nodes` nodes without events since `start`, in memory.
    pub(super) fn new(nodes: usize, start: i64) -> Self {
        Self { start, all: Place::Memory(vec![NodeTime::default(); nodes]) }
    }

    /// Creates the times of [`NodeTimes::new`] in a file without a name in the directory `dir`.
    ///
    /// # Errors
    /// The directory cannot be written, or the disk has too little space.
    pub(super) fn in_file(nodes: usize, start: i64, dir: &Path) -> Result<Self> {
        Ok(Self { start, all: Place::File(FileArray::zeros(nodes, dir)?) })
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Time of the last update of node `v`.
    pub(super) fn last(&self, v: usize) -> i64 {
        self.start.wrapping_add(self.all[v].last)
    }

    /// Time of the event of the waiting message of node `v`; `None` if no message waits.
    pub(super) fn waiting(&self, v: usize) -> Option<i64> {
        let NodeTime { message, waits, .. } = self.all[v];
        (waits != 0).then(|| self.start.wrapping_add(message))
    }

    /// Sets the time of the last update of node `v`, whose message no longer waits.
    pub(super) fn update(&mut self, v: usize, time: i64) {
        let of_node = &mut self.all[v];
        of_node.last = time.wrapping_sub(self.start);
        of_node.waits = 0;
    }

    /// Sets the time of the event of a message of node `v`, which waits from now on.
    pub(super) fn wait(&mut self, v: usize, time: i64) {
        let of_node = &mut self.all[v];
        of_node.message = time.wrapping_sub(self.start);
        of_node.waits = 1;
    }

    /// Forgets all events. A new file replaces that of before.
    ///
    /// # Errors
    /// The disk has too little space for the new file.
    pub(super) fn clear(&mut self, start: i64) -> Result<()> {
        self.start = start;
        match &mut self.all {
            Place::Memory(all) => all.fill(NodeTime::default()),
            Place::File(all) => {
                let (len, dir) = (all.len(), all.directory().to_path_buf());
                // the disk has the space of the former file again before the new one needs it
                self.all = Place::Memory(Vec::new());
                self.all = Place::File(FileArray::zeros(len, &dir)?);
            }
        }
        Ok(())
    }

    /// Takes the times in a file out of the memory of the process, until they are used again.
    pub(super) fn release(&self) {
        maps::release(&self.all[..]);
    }

    /// Writes the times to `to`, [`NodeTimes::SAVED_BYTES`] for each node: the times of all last
    /// updates, of all messages, and which messages wait.
    pub(super) fn save(&self, to: &mut [u8]) {
        let (times, waits) = to.split_at_mut(16 * self.len());
        let (last, messages) = times.split_at_mut(8 * self.len());
        for (i, run) in self.all.chunks(RUN).enumerate() {
            let nodes = i * RUN..i * RUN + run.len();
            let bytes = 8 * nodes.start..8 * nodes.end;
            let [last, messages] = [&mut last[bytes.clone()], &mut messages[bytes]];
            let places = last.chunks_exact_mut(8).zip(messages.chunks_exact_mut(8));
            for ((last, message), of) in places.zip(run) {
                last.copy_from_slice(&self.start.wrapping_add(of.last).to_le_bytes());
                message.copy_from_slice(&self.start.wrapping_add(of.message).to_le_bytes());
            }
            maps::release(last);
            maps::release(messages);
            let to = &mut waits[nodes];
            to.iter_mut().zip(run).for_each(|(to, of)| *to = of.waits as u8);
            maps::release(to);
            maps::release(run);
        }
    }

    /// Restores the bytes of [`NodeTimes::save`] of as many nodes.
    pub(super) fn restore(&mut self, from: &[u8]) {
        let (nodes, start) = (self.len(), self.start);
        let (times, waits) = from.split_at(16 * nodes);
        let (last, messages) = times.split_at(8 * nodes);
        let read = |bytes: &[u8], v: usize| {
            let b = &bytes[8 * v..8 * v + 8];
            let time = i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
            time.wrapping_sub(start)
        };
        for (i, run) in self.all.chunks_mut(RUN).enumerate() {
            for (v, to) in (i * RUN..).zip(run.iter_mut()) {
                *to =
                    NodeTime { last: read(last, v), message: read(messages, v), waits: u64::from(waits[v]) };
            }
            // either may be larger than memory
            maps::release(run);
            let done = i * RUN..i * RUN + run.len();
            for times in [last, messages] {
                maps::release(&times[8 * done.start..8 * done.end]);
            }
            maps::release(&waits[done]);
        }
    }
}
