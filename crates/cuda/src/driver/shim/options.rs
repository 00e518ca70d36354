//! Properties of a device for tests.

use std::env;

/// Order of work that a device may run in any order: a block's threads between two barriers, a
/// grid's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they are numbered.
    Forward,
    /// Backwards.
    Reverse,
    /// By a seed: warps, the lanes of a warp, and blocks.
    Shuffled(u64),
}

impl Order {
    /// Reads `forward`, `reverse` or `shuffled:SEED`.
    fn parse(text: &str) -> Option<Self> {
        match text {
            "forward" => Some(Self::Forward),
            "reverse" => Some(Self::Reverse),
            _ => text.strip_prefix("shuffled:")?.parse().ok().map(Self::Shuffled),
        }
    }

    /// The shim's number for it, and the seed.
    pub(super) fn number(self) -> (u32, u64) {
        match self {
            Self::Forward => (0, 0),
            Self::Reverse => (1, 0),
            Self::Shuffled(seed) => (2, seed),
        }
    }
}

/// Properties of a device for tests.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of its memory.
    pub memory: u64,
    /// Whether memory ends at a page that may not be touched. Addresses are then multiples of 16
    /// bytes, not of 256.
    pub guard: bool,
    /// Order in which blocks and their threads run.
    pub order: Order,
    /// Whether work can be captured.
    pub captures: bool,
    /// Number of a device that fails, and of the kernels before.
    pub fails: Option<(usize, u64)>,
    /// Sums over devices before they fail.
    pub sums: u64,
}

impl Default for Options {
    /// 1 GiB, guarded, in the order of the environment variable `GRAPHMILL_SHIM_ORDER` (`forward`,
    /// `reverse`, `shuffled:SEED`; forward by default). Failures come from the environment too:
    /// `GRAPHMILL_SHIM_FAILS` names a device and the number of kernels before it fails (`1:500`),
    /// `GRAPHMILL_SHIM_SUMS` the number of sums over devices that succeed.
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
