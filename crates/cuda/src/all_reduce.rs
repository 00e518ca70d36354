//! Sums of matrices over several devices, in place: what gradients of Trainers become.

use std::sync::Arc;

use graphmill_core::ViewMut;

use crate::{
    Error, Queue, Result,
    driver::{Address, Collective, Stream},
    queue::Memory,
};

/// Devices that sum, each with the stream that its values are made in.
pub struct AllReduce {
    // goes before the streams and devices that it works on
    library: Box<dyn Collective>,
    queues: Vec<Arc<Queue>>,
}

impl AllReduce {
    /// Sums over the devices of these streams, which are of several devices; ranks are places in
    /// this list.
    ///
    /// # Errors
    /// There is no library for it, or it fails.
    pub fn new(queues: Vec<Arc<Queue>>) -> Result<Self> {
        let first = queues.first().ok_or_else(|| Error::Unavailable("no device sums".into()))?.device();
        let devices: Vec<usize> = queues.iter().map(|queue| queue.device().index()).collect();
        Ok(Self { library: first.driver().collective(&devices)?, queues })
    }

    /// The library's name and version.
    pub fn name(&self) -> &str {
        self.library.name()
    }

    /// How many devices.
    pub fn num_ranks(&self) -> usize {
        self.queues.len()
    }

    /// Replaces matrix `i` of every rank by the sum of those of all, of one shape. Behind what the
    /// streams were given so far; nobody waits.
    ///
    /// # Errors
    /// A matrix has no place on its device, or the library fails: no matrix is of use then.
    ///
    /// # Panics
    /// Ranks have other numbers of matrices, or of other shapes: a bug in the caller.
    pub fn sum(&self, ranks: Vec<Vec<ViewMut>>) -> Result<()> {
        assert_eq!(ranks.len(), self.queues.len(), "matrices of every rank");
        let count = |view: &ViewMut| view.num_rows() * view.num_cols();
        let counts: Vec<usize> = ranks[0].iter().map(count).collect();
        let mut places: Vec<(Vec<Address>, Stream)> = Vec::with_capacity(ranks.len());
        for (of_rank, queue) in ranks.into_iter().zip(&self.queues) {
            assert!(of_rank.iter().map(count).eq(counts.iter().copied()), "matrices of one shape each");
            let memory = Memory(queue.clone());
            let place = |view: ViewMut| view.on_device(&memory, true).map(Address);
            let all: Option<Vec<Address>> = of_rank.into_iter().map(place).collect();
            let Some(all) = all else {
                queue.device().check()?;
                return Err(Error::Unavailable(format!("{}: a sum has no place", queue.device().name())));
            };
            queue.device().replay().settle(queue.stream())?;
            places.push((all, queue.stream()));
        }
        // SAFETY: every address is of as many values of its rank's device, which its stream has
        // made before and no other changes
        unsafe { self.library.sum(&places, &counts) }
    }
}

impl std::fmt::Debug for AllReduce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AllReduce({}, {:?})", self.name(), self.queues)
    }
}
