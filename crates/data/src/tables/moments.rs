//! Mean and deviation of numbers that are read once.
//!
//! # Algorithm
//! A number `x` moves the mean by `(x - mean) / count`, and adds the product of its differences
//! from the means before and after to the sum of squares. Two sets of `a` and `b` numbers whose
//! means differ by `d` have the sum of both sums of squares and `d² a b / (a + b)`.
//!
//! # Source
//! Welford: "Note on a Method for Calculating Corrected Sums of Squares and Products",
//! Technometrics 4(3), 1962. For two sets Chan, Golub, LeVeque: "Algorithms for Computing the
//! Sample Variance: Analysis and Recommendations", The American Statistician 37(3), 1983.
//!
//! # Cost
//! A division for each number, and two for a merge.
#![forbid(unsafe_code)]

/// Count, mean and sum of squared differences from the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    pub(super) count: u64,
    /// Mean; 0 without numbers.
    pub(super) mean: f64,
    pub(super) squares: f64,
}

impl Moments {
    /// Adds a number.
    pub(super) fn add(&mut self, x: f64) {
        self.count += 1;
        let difference = x - self.mean;
        self.mean += difference / self.count as f64;
        self.squares += difference * (x - self.mean);
    }

    /// Adds the numbers of `other`, which has some.
    pub(super) fn merge(&mut self, other: &Self) {
        let (a, b) = (self.count as f64, other.count as f64);
        let difference = other.mean - self.mean;
        self.count += other.count;
        self.mean += difference * b / (a + b);
        self.squares += other.squares + difference * difference * a * b / (a + b);
    }

    /// Deviation of the numbers as a whole population; 1 if all are equal, or if it exceeds `f64`.
    pub(super) fn deviation(&self) -> f64 {
        let deviation = (self.squares / self.count.max(1) as f64).sqrt();
        if deviation > 0.0 && deviation.is_finite() { deviation } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: &[f64]) -> Moments {
        let mut moments = Moments::default();
        values.iter().for_each(|&x| moments.add(x));
        moments
    }

    #[test]
    fn moments_are_those_of_the_numbers() {
        let found = moments(&[2.0, 4.0, 6.0, 8.0]);
        assert_eq!(found, Moments { count: 4, mean: 5.0, squares: 20.0 });
        assert_eq!(found.deviation(), 5f64.sqrt());
        // a large mean costs no digits of the deviation
        let shifted = moments(&[2.0, 4.0, 6.0, 8.0].map(|x| x + 1e9));
        assert_eq!((shifted.mean, shifted.squares), (1e9 + 5.0, 20.0));
        for values in [&[][..], &[3.0], &[3.0, 3.0], &[1e300, -1e300]] {
            assert_eq!(moments(values).deviation(), 1.0, "{values:?}");
        }
    }

    #[test]
    fn merged_moments_are_those_of_all_numbers() {
        let values: Vec<f64> = (0..100).map(|i| f64::from(i * i % 37) + 1e6).collect();
        let whole = moments(&values);
        for at in [0, 1, 30, 99] {
            let (first, second) = values.split_at(at);
            let mut merged = moments(first);
            merged.merge(&moments(second));
            assert_eq!(merged.count, whole.count);
            assert!((merged.mean - whole.mean).abs() <= 1e-9, "{at}");
            assert!((merged.squares - whole.squares).abs() <= 1e-9 * whole.squares, "{at}");
        }
    }
}
