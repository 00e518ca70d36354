//! Machine of a run: processor cores, simulated and NVIDIA devices, and a monitor for threads.

#![forbid(unsafe_code)]

pub mod cores;
pub mod device;
pub mod monitor;
