//! Pool of queues, one per concurrent worker.

#![forbid(unsafe_code)]

use std::sync::Arc;

use graphmill_core::ObjectPool;

use crate::{Device, Queue, Result};

/// Reusable queues of a device.
#[derive(Debug)]
pub(crate) struct QueuePool {
    device: Arc<Device>,
    queues: ObjectPool<Arc<Queue>>,
}

impl QueuePool {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self { device: device.clone(), queues: ObjectPool::default() }
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Runs `work` with a queue that no other thread uses meanwhile.
    pub(crate) fn with<R, E: From<crate::Error>>(
        &self,
        work: impl FnOnce(&Arc<Queue>) -> Result<R, E>,
    ) -> Result<R, E> {
        let queue = match self.queues.take() {
            Some(queue) => queue,
            None => Queue::new(&self.device)?,
        };
        let done = work(&queue);
        self.queues.put(queue);
        done
    }
}
