//! Sums of weights by small keys, in a table that is cleared through the list of touched keys.

/// Sums for the keys `0..n`.
pub(super) struct Tally {
    sums: Vec<u64>,
    touched: Vec<u32>,
}

impl Tally {
    /// Creates a table of zeros.
    pub(super) fn new(n: usize) -> Self {
        Self { sums: vec![0; n], touched: Vec::new() }
    }

    /// Adds to a sum; `weight` is not 0.
    #[inline]
    pub(super) fn add(&mut self, key: u32, weight: u64) {
        let sum = &mut self.sums[key as usize];
        if *sum == 0 {
            self.touched.push(key);
        }
        *sum += weight;
    }

    /// Sum of a key.
    #[inline]
    pub(super) fn of(&self, key: u32) -> u64 {
        self.sums[key as usize]
    }

    /// Keys of nonzero sums, in order of first use.
    pub(super) fn keys(&self) -> &[u32] {
        &self.touched
    }

    /// Resets all sums to 0.
    #[inline]
    pub(super) fn clear(&mut self) {
        for key in self.touched.drain(..) {
            self.sums[key as usize] = 0;
        }
    }
}
