//! Errors of devices.

#![forbid(unsafe_code)]

/// Error of a device: what failed, where, and how to fix it.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// No device can be used.
    #[error("{0}")]
    Unavailable(String),
    /// The device's memory budget is exhausted.
    #[error(
        "{device} is out of memory: {bytes} bytes requested, {free} of {budget} are free; use a smaller \
         --batch-size, --hidden or --cache-ratio"
    )]
    OutOfMemory {
        /// Name of the device.
        device: String,
        /// Requested bytes.
        bytes: u64,
        /// Remaining bytes.
        free: u64,
        /// Memory budget in bytes.
        budget: u64,
    },
    /// A call of the driver failed.
    #[error("{device}: {call} failed: {message}")]
    Driver {
        /// Name of the device.
        device: String,
        /// Name of the call.
        call: &'static str,
        /// Message of the driver.
        message: String,
    },
    /// The embedded bundle of PTX is damaged.
    #[error(
        "{module}.ptx cannot be unpacked: {why}; install Graphmill again, or, in a checkout, run \
         cargo xtask cuda compile and build again"
    )]
    DamagedPtx {
        /// Module that failed to unpack.
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
