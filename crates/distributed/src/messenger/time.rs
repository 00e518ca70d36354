//! Time, and waiting: the machine's, or a simulation's.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::Mailboxes;

/// Time of a messenger, and the waiting of threads that take messages.
pub(super) trait Time: Send + Sync {
    /// Time since the messenger was started.
    fn now(&self) -> Duration;

    /// Waits until `arrived` is notified, for `most` at most; may return earlier. `boxes` is the
    /// guard of `mailboxes`.
    fn wait<'m>(
        &self,
        mailboxes: &'m Mutex<Mailboxes>,
        boxes: MutexGuard<'m, Mailboxes>,
        arrived: &Condvar,
        most: Duration,
    ) -> MutexGuard<'m, Mailboxes>;
}

/// The machine's monotonic clock.
pub(super) struct Machine(Instant);

impl Machine {
    /// Starts now.
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }
}

impl Time for Machine {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wait<'m>(
        &self,
        _: &'m Mutex<Mailboxes>,
        boxes: MutexGuard<'m, Mailboxes>,
        arrived: &Condvar,
        most: Duration,
    ) -> MutexGuard<'m, Mailboxes> {
        arrived.wait_timeout(boxes, most).unwrap_or_else(PoisonError::into_inner).0
    }
}
