//! Ranks that are processes of an MPI job.
//!
//! All calls are made by the thread that made the transport ([`Threading::Funneled`]). Sending does not block: a message is kept
//! until MPI says that it has been taken, so two ranks that send each other large messages cannot wait for one another.

use std::collections::VecDeque;

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

/// Messages carry one tag: what they are is written in them.
const TAG: i32 = 0;

/// This process among those of its job.
pub struct Mpi {
    world: SimpleCommunicator,
    sends: VecDeque<Flying>,
    /// Ends MPI when it goes, after everything above.
    _universe: Universe,
}

/// A message that MPI may still read.
struct Flying {
    request: ffi::MPI_Request,
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
        Ok(Self { world: universe.world(), sends: VecDeque::new(), _universe: universe })
    }

    /// Forgets the messages that have been taken.
    fn collect(&mut self) {
        while let Some(first) = self.sends.front_mut() {
            let mut done = 0;
            // SAFETY: the request is the live one that `MPI_Isend` returned, tested by the thread that made it; MPI sets it to the null
            // request once it is done, and it is dropped then. MPI_STATUS_IGNORE asks for no status.
            unsafe { ffi::MPI_Test(&raw mut first.request, &raw mut done, ffi::RSMPI_STATUS_IGNORE) };
            if done == 0 {
                return;
            }
            self.sends.pop_front();
        }
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
        let Ok(count) = i32::try_from(words.len()) else {
            let bytes = 4 * words.len();
            return Err(Error::Peer {
                rank: to,
                message: format!("a message of {bytes} bytes is too long for MPI"),
            });
        };
        // SAFETY: reads a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: `words` is on the heap and kept unchanged in `sends` until MPI reports the request done, or for ever where `self` goes
        // before that; the communicator lives as long as `self`, and where `to` is none of its ranks MPI ends the job.
        unsafe {
            ffi::MPI_Isend(
                words.as_ptr().cast(),
                count,
                u32::equivalent_datatype().as_raw(),
                to as i32,
                TAG,
                self.world.as_raw(),
                &raw mut request,
            )
        };
        self.sends.push_back(Flying { request, _words: words });
        self.collect();
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(usize, Vec<u32>)>> {
        self.collect();
        let come = self.world.any_process().immediate_matched_probe_with_tag(TAG);
        Ok(come.map(|come| {
            let (words, status) = come.matched_receive_vec();
            (status.source_rank() as usize, words)
        }))
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
