//! Backends of inference on several types: a device for the chunks that fit in its memory, the
//! processor for the others.
//!
//! ```text
//!   rows between layers   the device, if those of two layers fit; else host memory
//!   layers of a chunk     the device, if its neighbourhood fits; else the processor
//! ```

use graphmill_core::typed::TypedBlock;
use graphmill_nn::{
    Backend, Pass,
    backend::{Cpu, Precision},
};

use crate::{Result, accelerator::Gpu};

/// The processor, for operations without products: those have the precision of the run
/// ([`crate::build::processor`]).
pub(super) static PROCESSOR: Cpu = Cpu { precision: Precision::F32 };

/// Share of the free memory for the rows between layers, and of the rest for a chunk.
const SHARE: f64 = 0.5;
/// Matrices of a layer that have a row for each of its rows, at most.
const MATRICES: f64 = 4.0;

/// Device with memory of its own.
pub(super) trait InferenceDevice: Sync {
    /// Its operations.
    fn backend(&self) -> &dyn Backend;

    /// Bytes of its memory that are free.
    ///
    /// # Errors
    /// The device failed.
    fn free(&self) -> Result<u64>;
}

impl InferenceDevice for Gpu {
    fn backend(&self) -> &dyn Backend {
        Self::backend(self)
    }

    fn free(&self) -> Result<u64> {
        Self::free(self)
    }
}

/// Backends of inference.
pub(super) struct Computing<'a> {
    /// The processor, in the precision of the run.
    processor: &'static Cpu,
    device: Option<&'a dyn InferenceDevice>,
    /// True if the device holds the rows between layers.
    holds_rows: bool,
    /// Bytes of the device's memory for a chunk.
    chunk: f64,
    /// Number of chunks, and of those that the processor computed instead of the device.
    chunks: [u64; 2],
    is_reported: bool,
}

impl<'a> Computing<'a> {
    /// Computes on the processor.
    pub(super) fn new(processor: &'static Cpu) -> Self {
        Self { processor, device: None, holds_rows: false, chunk: 0.0, chunks: [0; 2], is_reported: false }
    }

    /// The same backends with a device, if there is one.
    pub(super) fn on(self, device: Option<&'a dyn InferenceDevice>) -> Self {
        Self { device, ..self }
    }

    /// Returns true if a device computes.
    pub(super) fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// Measures the free memory before the first chunk. The rows between layers take `between`
    /// bytes; `None` if there are none.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn begin(&mut self, between: Option<f64>) -> Result<()> {
        let Some(device) = self.device else { return Ok(()) };
        let free = device.free()? as f64;
        self.holds_rows = between.is_some_and(|bytes| bytes <= SHARE * free);
        self.chunk = SHARE * (free - between.filter(|_| self.holds_rows).unwrap_or(0.0));
        Ok(())
    }

    /// Returns true if the device holds the rows between layers.
    pub(super) fn holds_rows(&self) -> bool {
        self.device.is_some() && self.holds_rows
    }

    /// Backend of the rows between layers.
    pub(super) fn rows(&self) -> &'a dyn Backend {
        match self.device {
            Some(device) if self.holds_rows => device.backend(),
            _ => self.processor,
        }
    }

    /// Pass of the next chunk, which takes `bytes` bytes.
    pub(super) fn pass(&mut self, bytes: f64) -> Pass<'a> {
        let mut backend: &dyn Backend = self.processor;
        if let Some(device) = self.device {
            let [all, on_processor] = &mut self.chunks;
            *all += 1;
            if bytes <= self.chunk {
                backend = device.backend();
            } else {
                *on_processor += 1;
            }
        }
        Pass { backend, training: false, key: 0 }
    }

    /// First failure of the device.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn check(&self) -> Result<()> {
        Ok(self.device.map_or(Ok(()), |device| device.backend().check())?)
    }

    /// Note that the processor computed chunks, once.
    pub(super) fn note(&mut self) -> Option<String> {
        let [all, on_processor] = self.chunks;
        if on_processor == 0 || std::mem::replace(&mut self.is_reported, true) {
            return None;
        }
        Some(format!(
            "the processor scored {on_processor} of {all} chunks of nodes, because with their neighbours \
             they exceed half of the device's free memory; lower --eval-chunk or --cache-ratio"
        ))
    }
}

/// Bytes of a layer on `block`, at most: rows of `width` values for the sources, for both ends of
/// each relation, and for the edges.
pub(super) fn layer_bytes(block: &TypedBlock, width: usize) -> f64 {
    let of_relations: usize = block.relations.iter().map(|slice| slice.num_dst + slice.num_src).sum();
    let rows = block.num_src.iter().sum::<usize>() + of_relations + block.num_edges();
    MATRICES * rows_bytes(rows, width)
}

/// Bytes of `count` rows of `width` values.
pub(super) fn rows_bytes(count: usize, width: usize) -> f64 {
    4.0 * count as f64 * width as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_device_the_processor_computes_and_no_note_arises() {
        let mut computing = Computing::new(&PROCESSOR);
        computing.begin(Some(1e18)).unwrap();
        assert_eq!(computing.pass(1e18).backend.name(), computing.rows().name());
        computing.check().unwrap();
        assert!(!computing.has_device() && computing.note().is_none());
    }
}
