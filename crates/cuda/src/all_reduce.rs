//! In-place sums of matrices over several devices, for the gradients of Trainers.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use graphmill_core::ViewMut;

use crate::{
    Error, Queue, Result,
    driver::{Address, Collective, Stream},
    queue::Memory,
};

/// Devices that sum, each with the stream that computes its values.
pub struct AllReduce {
    // dropped before the streams and devices that it uses
    library: Box<dyn Collective>,
    queues: Vec<Arc<Queue>>,
}

impl AllReduce {
    /// Creates sums over the devices of these streams, which belong to several devices. A rank is
    /// an index into this list.
    ///
    /// # Errors
    /// No library is available, or it fails.
    pub fn new(queues: Vec<Arc<Queue>>) -> Result<Self> {
        let first =
            queues.first().ok_or_else(|| Error::Unavailable("no devices to sum over".into()))?.device();
        let devices: Vec<usize> = queues.iter().map(|queue| queue.device().index()).collect();
        Ok(Self { library: first.driver().collective(&devices)?, queues })
    }

    /// Name and version of the library.
    pub fn name(&self) -> &str {
        self.library.name()
    }

    /// Number of devices.
    pub fn num_ranks(&self) -> usize {
        self.queues.len()
    }

    /// Replaces matrix `i` of every rank by the sum over all ranks; all have one shape. Runs after
    /// the work already queued in the streams, without blocking.
    ///
    /// # Errors
    /// A matrix does not fit on its device, or the library fails; all matrices are then invalid.
    ///
    /// # Panics
    /// Ranks have different numbers of matrices, or different shapes: a bug in the caller.
    pub fn sum(&self, ranks: Vec<Vec<ViewMut>>) -> Result<()> {
        assert_eq!(ranks.len(), self.queues.len(), "one list of matrices per rank");
        let count = |view: &ViewMut| view.num_rows() * view.num_cols();
        let counts: Vec<usize> = ranks[0].iter().map(count).collect();
        let mut places: Vec<(Vec<Address>, Stream)> = Vec::with_capacity(ranks.len());
        for (of_rank, queue) in ranks.into_iter().zip(&self.queues) {
            assert!(of_rank.iter().map(count).eq(counts.iter().copied()), "matrices of equal shapes");
            let memory = Memory(queue.clone());
            let place = |view: ViewMut| view.on_device(&memory, true).map(Address);
            let all: Option<Vec<Address>> = of_rank.into_iter().map(place).collect();
            let Some(all) = all else {
                queue.device().check()?;
                return Err(Error::Unavailable(format!(
                    "{}: not enough memory for a sum; use a smaller --batch-size or --hidden",
                    queue.device().name()
                )));
            };
            queue.device().replay().flush_stream(queue.stream())?;
            places.push((all, queue.stream()));
        }
        // SAFETY: every address is valid for that many values of its rank's device, which its
        // stream has written before and no other stream changes
        unsafe { self.library.sum(&places, &counts) }
    }
}

impl std::fmt::Debug for AllReduce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AllReduce({}, {:?})", self.name(), self.queues)
    }
}
