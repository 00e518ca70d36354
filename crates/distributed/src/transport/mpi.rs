//! Ranks that are processes of an MPI job.
//!
//! The thread that created the transport makes all calls ([`Threading::Funneled`]). Sending does
//! not block: a frame is stored until MPI reports its completion, so two ranks that send each other
//! large messages cannot deadlock.
//!
//! Frames are short enough for eager sends. (A longer message is offered first and then fetched by
//! a blocking call, so two ranks that sent each other a megabyte at 50 Mbit/s alternated and took
//! twice as long.) Frames of waiting lanes are sent synchronously: they leave as early, but
//! complete only when the other rank has received them, so the contents of both systems' buffers
//! count as in flight.

#![allow(unsafe_code, reason = "foreign libraries")]

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

/// This process as a rank of its job.
pub struct Mpi {
    world: SimpleCommunicator,
    /// Pending sends by rank.
    sends: Vec<VecDeque<PendingSend>>,
    ranks_on_host: usize,
    /// Finalizes MPI when dropped, after all other fields.
    _universe: Universe,
}

/// Frame that MPI may still read.
struct PendingSend {
    request: ffi::MPI_Request,
    _frame: Frame,
}

/// Tag: the lane's number, and whether the message ends.
fn tag(frame: &Frame) -> i32 {
    2 * frame.lane as i32 + i32::from(frame.is_last)
}

impl Mpi {
    /// Joins the job of this process; allowed once per process, on the thread that drives the
    /// transport.
    ///
    /// # Errors
    /// MPI was initialized before, or does not support threads.
    pub fn join() -> Result<Self> {
        let begun = mpi::initialize_with_threading(Threading::Funneled);
        let Some((universe, threading)) = begun else {
            return Err(Error::invalid("MPI can be initialized only once per process"));
        };
        if threading < Threading::Funneled {
            return Err(Error::invalid(
                "this MPI library was built without thread support; install a build with it",
            ));
        }
        let world = universe.world();
        let sends = (0..world.size()).map(|_| VecDeque::new()).collect();
        let ranks_on_host = world.split_shared(0).size() as usize;
        Ok(Self { world, sends, ranks_on_host, _universe: universe })
    }

    /// Drops the frames for that rank that are complete.
    fn collect(&mut self, to: usize) {
        while let Some(first) = self.sends[to].front_mut() {
            let mut done = 0;
            // SAFETY: the request is the live one that MPI returned when the frame was sent, tested
            // by the sending thread; MPI sets it to the null request once it is complete, and it is
            // dropped then. MPI_STATUS_IGNORE requests no status.
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

    fn ranks_on_host(&self) -> usize {
        self.ranks_on_host
    }

    fn send(&mut self, to: usize, frame: Frame) -> Result<()> {
        let begin = if frame.lane.waits() { ffi::MPI_Issend } else { ffi::MPI_Isend };
        let words = frame.words();
        // SAFETY: reads a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: the words are on the heap, and `sends` keeps the frame, and so the words,
        // unchanged until MPI reports the request complete, or forever if `self` is dropped before
        // that; the communicator lives as long as `self`, and if `to` is not one of its ranks MPI
        // aborts the job. A frame's length fits 31 bits.
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
        self.sends[to].push_back(PendingSend { request, _frame: frame });
        self.collect(to);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(usize, Frame)>> {
        let Some(come) = self.world.any_process().immediate_matched_probe() else {
            // Idle time is used to drop completed frames.
            (0..self.sends.len()).for_each(|to| self.collect(to));
            return Ok(None);
        };
        let (words, status): (Vec<u32>, _) = come.matched_receive_vec();
        let (from, tag) = (status.source_rank() as usize, status.tag());
        let lane = usize::try_from(tag / 2).ok().and_then(|number| Lane::ALL.get(number));
        let Some(&lane) = lane else {
            let message = "it sent invalid messages: the ranks run different programs".into();
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

    /// Leaves MPI as it is: its regular end waits for all ranks.
    fn abandon(self) {
        std::mem::forget(self);
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        (0..self.sends.len()).for_each(|to| self.collect(to));
        // Memory that MPI may still read must outlive the transport.
        std::mem::forget(std::mem::take(&mut self.sends));
    }
}
