//! The machine that a run is on: its cores, simulated and real devices, and a value that threads
//! wait on.

pub mod cores;
pub mod device;
pub mod monitor;
