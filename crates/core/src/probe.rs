//! Work that is limited by the machine alone: copies and random reads by its memory, fused
//! multiply-adds by its arithmetic units. Benchmarks time it beside their own work on the threads
//! of the current rayon pool.
//!
//! It stands in this crate because this crate is built for speed, as the measured code is: built
//! for size, like the benches, the probe of the arithmetic units ran at a fifth of their rate.

mod copy;
mod fma;
mod rows;

pub use copy::{Arrays, Copy, KINDS, VALUES};
pub use fma::{OPERATIONS, run as multiply_add};
pub use rows::{IN_FLIGHT, Reads};
