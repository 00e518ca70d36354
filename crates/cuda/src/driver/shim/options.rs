//! Options of a simulated device.

use std::env;

/// Order of work that a device may run in any order: a block's threads between two barriers, and a
/// grid's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ascending numbers.
    Forward,
    /// Descending numbers.
    Reverse,
    /// Permutation of warps, of the lanes of a warp, and of blocks, from a seed.
    Shuffled(u64),
}

impl Order {
    /// Parses `forward`, `reverse` or `shuffled:SEED`.
    fn parse(text: &str) -> Option<Self> {
        match text {
            "forward" => Some(Self::Forward),
            "reverse" => Some(Self::Reverse),
            _ => text.strip_prefix("shuffled:")?.parse().ok().map(Self::Shuffled),
        }
    }

    /// Number of the order in the shim, and the seed.
    pub(super) fn number(self) -> (u32, u64) {
        match self {
            Self::Forward => (0, 0),
            Self::Reverse => (1, 0),
            Self::Shuffled(seed) => (2, seed),
        }
    }
}

/// Options of a simulated device.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of memory.
    pub memory: u64,
    /// If true, memory ends at an inaccessible page. Addresses are then multiples of 16 bytes
    /// instead of 256.
    pub guard: bool,
    /// Order of blocks and their threads.
    pub order: Order,
    /// If true, work can be captured.
    pub captures: bool,
    /// Number of the device that fails, and number of kernels before the failure.
    pub fails: Option<(usize, u64)>,
    /// Number of sums over devices before a failure.
    pub sums: u64,
}

impl Default for Options {
    /// 1 GiB of guarded memory, and the order of the environment variable `GRAPHMILL_SHIM_ORDER`
    /// (`forward`, `reverse`, `shuffled:SEED`; forward by default). Failures are also set in the
    /// environment: `GRAPHMILL_SHIM_FAILS` names a device and the number of kernels before it fails
    /// (`1:500`), and `GRAPHMILL_SHIM_SUMS` the number of sums over devices that succeed.
    fn default() -> Self {
        let order = env::var("GRAPHMILL_SHIM_ORDER").ok().and_then(|text| Order::parse(&text));
        let fails = env::var("GRAPHMILL_SHIM_FAILS").ok().and_then(|text| {
            let (device, kernels) = text.split_once(':')?;
            Some((device.parse().ok()?, kernels.parse().ok()?))
        });
        let sums = env::var("GRAPHMILL_SHIM_SUMS").ok().and_then(|text| text.parse().ok());
        Self {
            memory: 1 << 30,
            guard: true,
            order: order.unwrap_or(Order::Forward),
            captures: true,
            fails,
            sums: sums.unwrap_or(u64::MAX),
        }
    }
}
