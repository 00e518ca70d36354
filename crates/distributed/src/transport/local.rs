//! Ranks that are threads of one process.

use std::sync::mpsc::{Receiver, Sender, channel};

use graphmill_core::Result;

use super::{Frame, Transport};

/// Transport of one rank.
pub struct Local {
    rank: usize,
    to: Vec<Sender<(usize, Frame)>>,
    inbox: Receiver<(usize, Frame)>,
}

/// Creates the transports of `size` ranks, in rank order.
pub fn local(size: usize) -> Vec<Local> {
    let (to, inboxes): (Vec<_>, Vec<_>) = (0..size).map(|_| channel()).unzip();
    let ends = inboxes.into_iter().enumerate();
    ends.map(|(rank, inbox)| Local { rank, to: to.clone(), inbox }).collect()
}

impl Transport for Local {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn send(&mut self, to: usize, frame: Frame) -> Result<()> {
        // A rank that has ended receives nothing, as over a wire; ranks that wait for it detect
        // that.
        let _ = self.to[to].send((self.rank, frame));
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(usize, Frame)>> {
        Ok(self.inbox.try_recv().ok())
    }
}
