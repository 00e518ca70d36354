//! Ranks that are processes of an MPI job.
//!
//! All calls are made by the thread that made the transport ([`Threading::Funneled`]). Sending does not block: a message is kept
//! until MPI says that it has been taken, so two ranks that send each other large messages cannot wait for one another.
//!
//! Long messages go in frames that are short enough to be sent without being waited for. (What is longer is first offered and then
//! fetched, and is received by a call that does nothing else meanwhile: two ranks that send each other a megabyte at 50 Mbit/s took
//! turns then, and twice as long.)

use std::collections::{HashMap, VecDeque};

use graphmill_graph::{Error, Result};
use mpi::{
    Threading,
    datatype::Equivalence,
    environment::Universe,
    ffi,
    point_to_point::{MatchedReceiveVec, Source},
    raw::AsRaw,
    topology::{Communicator, SimpleCommunicator},
};

use super::Transport;

/// A message in one piece; the number of words of one whose frames follow; such a frame. Messages of one rank arrive in the order in
/// which they were sent, whatever their tags.
const WHOLE: i32 = 0;
const LENGTH: i32 = 1;
const FRAME: i32 = 2;
/// Words of a frame: Open MPI sends up to 64 KiB over TCP without being asked for it.
const FRAME_WORDS: usize = 15_000;

/// This process among those of its job.
pub struct Mpi {
    world: SimpleCommunicator,
    sends: VecDeque<Flying>,
    /// Of each rank, what has arrived of a message in frames, and how long it will be.
    arriving: HashMap<usize, (usize, Vec<u32>)>,
    /// Ends MPI when it goes, after everything above.
    _universe: Universe,
}

/// A message that MPI may still read.
struct Flying {
    requests: VecDeque<ffi::MPI_Request>,
    _words: Vec<u32>,
}

impl Mpi {
    /// Joins the job that this process was started in. Once a process, and by the thread that drives it.
    ///
    /// # Errors
    /// MPI was begun before, or has no threads.
    pub fn join() -> Result<Self> {
        let begun = mpi::initialize_with_threading(Threading::Funneled);
        let Some((universe, threading)) = begun else {
            return Err(Error::invalid("MPI can be begun once a process, and was"));
        };
        if threading < Threading::Funneled {
            return Err(Error::invalid(
                "this MPI library was built without threads: a build with them is needed",
            ));
        }
        Ok(Self {
            world: universe.world(),
            sends: VecDeque::new(),
            arriving: HashMap::new(),
            _universe: universe,
        })
    }

    /// Forgets the messages that have been taken.
    fn collect(&mut self) {
        while let Some(first) = self.sends.front_mut() {
            let Some(request) = first.requests.front_mut() else {
                self.sends.pop_front();
                continue;
            };
            let mut done = 0;
            // SAFETY: the request is the live one that `MPI_Isend` returned, tested by the thread that made it; MPI sets it to the null
            // request once it is done, and it is dropped then. MPI_STATUS_IGNORE asks for no status.
            unsafe { ffi::MPI_Test(&raw mut *request, &raw mut done, ffi::RSMPI_STATUS_IGNORE) };
            if done == 0 {
                return;
            }
            first.requests.pop_front();
        }
    }

    /// Begins to send words that stay where they are until the request is done.
    fn begin(&self, to: usize, words: &[u32], tag: i32) -> ffi::MPI_Request {
        // SAFETY: reads a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: the caller keeps `words`, which are on the heap, unchanged until MPI reports the request done, or for ever where `self`
        // goes before that; the communicator lives as long as `self`, and where `to` is none of its ranks MPI ends the job. A frame's
        // length fits 31 bits.
        unsafe {
            ffi::MPI_Isend(
                words.as_ptr().cast(),
                words.len() as i32,
                u32::equivalent_datatype().as_raw(),
                to as i32,
                tag,
                self.world.as_raw(),
                &raw mut request,
            )
        };
        request
    }
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn size(&self) -> usize {
        self.world.size() as usize
    }

    fn send(&mut self, to: usize, words: Vec<u32>) -> Result<()> {
        if words.len() <= FRAME_WORDS {
            let requests = [self.begin(to, &words, WHOLE)].into();
            self.sends.push_back(Flying { requests, _words: words });
        } else {
            let Ok(length) = u32::try_from(words.len()) else {
                let bytes = 4 * words.len();
                return Err(Error::Peer {
                    rank: to,
                    message: format!("a message of {bytes} bytes is too long"),
                });
            };
            let length = vec![length];
            let requests = [self.begin(to, &length, LENGTH)].into();
            self.sends.push_back(Flying { requests, _words: length });
            let requests = words.chunks(FRAME_WORDS).map(|frame| self.begin(to, frame, FRAME)).collect();
            self.sends.push_back(Flying { requests, _words: words });
        }
        self.collect();
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(usize, Vec<u32>)>> {
        self.collect();
        let Some(come) = self.world.any_process().immediate_matched_probe() else { return Ok(None) };
        let (words, status): (Vec<u32>, _) = come.matched_receive_vec();
        let from = status.source_rank() as usize;
        match (status.tag(), self.arriving.remove(&from)) {
            (WHOLE, None) => return Ok(Some((from, words))),
            (LENGTH, None) if words.len() == 1 => {
                let length = words[0] as usize;
                self.arriving.insert(from, (length, Vec::new()));
            }
            (FRAME, Some((length, mut message))) if message.len() + words.len() <= length => {
                message.extend_from_slice(&words);
                if message.len() == length {
                    return Ok(Some((from, message)));
                }
                self.arriving.insert(from, (length, message));
            }
            _ => {
                let message =
                    "its messages are none of ours: the ranks do not all run the same program".into();
                return Err(Error::Peer { rank: from, message });
            }
        }
        Ok(Some((from, Vec::new())))
    }

    fn in_flight(&mut self) -> usize {
        self.collect();
        self.sends.len()
    }

    fn abort(&mut self) {
        self.world.abort(1)
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        self.collect();
        // what MPI may still read must outlive it
        std::mem::forget(std::mem::take(&mut self.sends));
    }
}
