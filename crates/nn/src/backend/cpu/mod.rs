//! The CPU backend.

/// The CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu;
