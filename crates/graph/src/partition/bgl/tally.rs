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

/// Sums of weights of few keys, by looking through them.
#[derive(Default)]
pub(super) struct Few(Vec<(u32, u64)>);

impl Few {
    /// Adds to a sum. O(keys).
    #[inline]
    pub(super) fn add(&mut self, key: u32, weight: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, sum)) => *sum += weight,
            None => self.0.push((key, weight)),
        }
    }

    /// A sum.
    #[inline]
    pub(super) fn of(&self, key: u32) -> u64 {
        self.0.iter().find(|(known, _)| *known == key).map_or(0, |(_, sum)| *sum)
    }

    /// The keys and their sums, in the order in which they came.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        self.0.iter().copied()
    }

    /// Makes all sums 0.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
