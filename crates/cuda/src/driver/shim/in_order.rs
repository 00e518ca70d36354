//! Sums over simulated devices for tests.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::{describe, region_of};
use crate::{
    Error, Result,
    driver::{Address, Collective, Stream},
};

/// Sums over devices in the order of their ranks.
pub(super) struct InOrder {
    pub(super) ranks: usize,
    /// Number of sums that succeed from now on.
    pub(super) left: AtomicU64,
}

impl Collective for InOrder {
    fn name(&self) -> &str {
        "the shim, by rank"
    }

    unsafe fn sum(&self, ranks: &[(Vec<Address>, Stream)], counts: &[usize]) -> Result<()> {
        assert_eq!(ranks.len(), self.ranks, "one list of addresses per rank");
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            let message = "simulated failure of a sum".to_owned();
            return Err(Error::Driver { device: self.name().to_owned(), call: "sum", message });
        }
        for (i, &count) in counts.iter().enumerate() {
            for at in ranks.iter().map(|(values, _)| values[i].0).filter(|_| count > 0) {
                let fits = region_of(at).is_some_and(|(first, of)| {
                    of.device.is_some() && at - first + 4 * count as u64 <= of.bytes as u64
                });
                assert!(fits, "{count} values at {at:#x}: {}", describe(at));
            }
            for element in 0..count {
                let at = |(values, _): &(Vec<Address>, Stream)| values[i].0 as *mut f32;
                // SAFETY: all values are in memory that was just checked, and are aligned for f32.
                unsafe {
                    let sum = ranks.iter().map(|rank| *at(rank).add(element)).reduce(|sum, x| sum + x);
                    ranks.iter().for_each(|rank| *at(rank).add(element) = sum.unwrap_or(0.0));
                }
            }
        }
        Ok(())
    }
}
