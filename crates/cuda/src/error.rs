//! What can go wrong on a device.

/// What went wrong, where, and what to do.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// No device can be used.
    #[error("{0}")]
    Unavailable(String),
    /// Its memory, or the part of it that may be used, is full.
    #[error(
        "{device} is out of memory: {bytes} bytes more, {free} of {budget} are free; use a smaller --batch-size, --hidden or --cache-ratio"
    )]
    OutOfMemory {
        /// Which device.
        device: String,
        /// What was asked for.
        bytes: u64,
        /// What was left.
        free: u64,
        /// What may be used.
        budget: u64,
    },
    /// A call of the driver failed.
    #[error("{device}: {call} failed: {message}")]
    Driver {
        /// Which device.
        device: String,
        /// The call.
        call: &'static str,
        /// The driver's answer.
        message: String,
    },
    /// The bundle of PTX that the library embeds is damaged.
    #[error(
        "{module}.ptx cannot be unpacked: {why}; install Graphmill again, or, in a checkout, run cargo xtask cuda compile and build again"
    )]
    DamagedPtx {
        /// Module that was to be unpacked.
        module: String,
        /// Kind of damage.
        why: String,
    },
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<Error> for graphmill_core::Error {
    fn from(error: Error) -> Self {
        Self::Device(error.to_string())
    }
}
