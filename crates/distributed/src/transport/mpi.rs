//! Ranks that are processes of an MPI job.
//!
//! All calls are made by the thread that made the transport ([`Threading::Funneled`]). Sending does not block: a frame is kept until MPI
//! says that it has been taken, so two ranks that send each other large messages cannot wait for one another.
//!
//! Frames are short enough to be sent without being asked for. (What is longer is first offered and then fetched, and is received by a
//! call that does nothing else meanwhile: two ranks that send each other a megabyte at 50 Mbit/s took turns then, and twice as long.)
//! Those of lanes that wait are sent synchronously, which sends them as soon, but is done only when the other rank has received them: so
//! what stands in the buffers of both systems counts as on its way.

use std::collections::VecDeque;

use graphmill_core::{Error, Result};
use mpi::{
    Threading,
    datatype::Equivalence,
    environment::Universe,
    ffi,
    point_to_point::{MatchedReceiveVec, Source},
    raw::AsRaw,
    topology::{Communicator, SimpleCommunicator},
};

use super::{Frame, Lane, Transport};

/// This process among those of its job.
pub struct Mpi {
    world: SimpleCommunicator,
    /// By rank.
    sends: Vec<VecDeque<Flying>>,
    /// Ends MPI when it goes, after everything above.
    _universe: Universe,
}

/// A frame that MPI may still read.
struct Flying {
    request: ffi::MPI_Request,
    _frame: Frame,
}

/// Tags: the lane's number, and whether the message ends.
fn tag(frame: &Frame) -> i32 {
    2 * frame.lane as i32 + i32::from(frame.is_last)
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
        let world = universe.world();
        let sends = (0..world.size()).map(|_| VecDeque::new()).collect();
        Ok(Self { world, sends, _universe: universe })
    }

    /// Forgets the frames for that rank that have been taken.
    fn collect(&mut self, to: usize) {
        while let Some(first) = self.sends[to].front_mut() {
            let mut done = 0;
            // SAFETY: the request is the live one that MPI returned when the frame was sent, tested by the thread that sent it; MPI sets
            // it to the null request once it is done, and it is dropped then. MPI_STATUS_IGNORE asks for no status.
            unsafe { ffi::MPI_Test(&raw mut first.request, &raw mut done, ffi::RSMPI_STATUS_IGNORE) };
            if done == 0 {
                return;
            }
            self.sends[to].pop_front();
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

    fn send(&mut self, to: usize, frame: Frame) -> Result<()> {
        let begin = if frame.lane.waits() { ffi::MPI_Issend } else { ffi::MPI_Isend };
        let words = frame.words();
        // SAFETY: reads a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: the words are on the heap, and `sends` keeps the frame, and so them, unchanged until MPI reports the request done, or for
        // ever where `self` goes before that; the communicator lives as long as `self`, and where `to` is none of its ranks MPI ends the
        // job. A frame's length fits 31 bits.
        unsafe {
            begin(
                words.as_ptr().cast(),
                words.len() as i32,
                u32::equivalent_datatype().as_raw(),
                to as i32,
                tag(&frame),
                self.world.as_raw(),
                &raw mut request,
            )
        };
        self.sends[to].push_back(Flying { request, _frame: frame });
        self.collect(to);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(usize, Frame)>> {
        let Some(come) = self.world.any_process().immediate_matched_probe() else {
            // nothing to do: a time to let go of what has been taken
            (0..self.sends.len()).for_each(|to| self.collect(to));
            return Ok(None);
        };
        let (words, status): (Vec<u32>, _) = come.matched_receive_vec();
        let (from, tag) = (status.source_rank() as usize, status.tag());
        let lane = usize::try_from(tag / 2).ok().and_then(|number| Lane::ALL.get(number));
        let Some(&lane) = lane else {
            let message = "its messages are none of ours: the ranks do not all run the same program".into();
            return Err(Error::Peer { rank: from, message });
        };
        Ok(Some((from, Frame::new(lane, tag % 2 == 1, words))))
    }

    fn in_flight(&mut self, to: usize) -> usize {
        self.collect(to);
        self.sends[to].len()
    }

    fn abort(&mut self) {
        self.world.abort(1)
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        (0..self.sends.len()).for_each(|to| self.collect(to));
        // what MPI may still read must outlive it
        std::mem::forget(std::mem::take(&mut self.sends));
    }
}
