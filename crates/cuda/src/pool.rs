//! Queues for who works side by side: each lends one that nobody else uses.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{Device, Queue, Result};

/// Queues of a device.
#[derive(Debug)]
pub(crate) struct Pool {
    device: Arc<Device>,
    /// Those that nobody uses.
    free: Mutex<Vec<Arc<Queue>>>,
}

impl Pool {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self { device: device.clone(), free: Mutex::default() }
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Works in a queue that nobody else works in meanwhile.
    pub(crate) fn with<R, E: From<crate::Error>>(
        &self,
        work: impl FnOnce(&Arc<Queue>) -> Result<R, E>,
    ) -> Result<R, E> {
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = free().pop();
        let queue = match kept {
            Some(queue) => queue,
            None => Queue::new(&self.device)?,
        };
        let done = work(&queue);
        free().push(queue);
        done
    }
}
