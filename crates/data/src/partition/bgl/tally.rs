//! Sums of weights by a small number, in a table that is cleared by what was touched.

/// A sum for each of `0..n`.
pub(super) struct Tally {
    sums: Vec<u64>,
    touched: Vec<u32>,
}

impl Tally {
    /// All sums zero.
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

    /// A sum.
    #[inline]
    pub(super) fn of(&self, key: u32) -> u64 {
        self.sums[key as usize]
    }

    /// The keys of sums that are not 0, in the order in which they came.
    pub(super) fn keys(&self) -> &[u32] {
        &self.touched
    }

    /// Makes all sums 0.
    #[inline]
    pub(super) fn clear(&mut self) {
        for key in self.touched.drain(..) {
            self.sums[key as usize] = 0;
        }
    }
}
