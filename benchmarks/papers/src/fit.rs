//! Fit of a stage's seconds by its number of cores, `f(c) = a / c + d`: parallel and serial work.
//!
//! BGL fits it to the cache stage, whose cores wait for each other ("BGL: GPU-Efficient GNN
//! Training by Optimizing Graph Data I/O and Preprocessing", Liu et al., NSDI 2023, Profiling-based
//! Resource Allocation); a stage that scales linearly is the case `d = 0`.

use graphmill_engine::{Error, Result};
use serde::{Deserialize, Serialize};

/// Seconds of a stage by its cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// Seconds of the parallel work on one core; at least 0.
    pub a: f64,
    /// Seconds of the serial work; at least 0.
    pub d: f64,
}

impl Fit {
    /// Seconds on `cores`.
    pub fn seconds(&self, cores: u32) -> f64 {
        self.a / f64::from(cores) + self.d
    }

    /// Least-squares fit of `measured`, pairs of cores and seconds, with `a >= 0` and `d >= 0`.
    ///
    /// The sum of squares is convex, so its minimum over the quarter plane is that of the plane if
    /// it lies there, and otherwise lies on one of the two half-lines. Pairs with a single number
    /// of cores do not determine both `a` and `d`: then `d = 0`, as for a stage that scales
    /// linearly. Linear in the pairs.
    ///
    /// # Errors
    /// There is no pair, or a pair has no cores, or seconds that are negative or not finite; the
    /// error names it.
    pub fn of(measured: &[(u32, f64)]) -> Result<Self> {
        if let Some((cores, seconds)) =
            measured.iter().find(|(cores, seconds)| *cores == 0 || !seconds.is_finite() || *seconds < 0.0)
        {
            return Err(Error::usage(format!(
                "a stage measured at {seconds} seconds on {cores} cores: both are to be positive"
            )));
        }
        if measured.is_empty() {
            return Err(Error::usage("a stage was measured on no number of cores: measure it at least once"));
        }
        let n = measured.len() as f64;
        let mean = |of: &dyn Fn(f64, f64) -> f64| {
            measured.iter().map(|&(cores, y)| of(1.0 / f64::from(cores), y)).sum::<f64>() / n
        };
        let (x, y) = (mean(&|x, _| x), mean(&|_, y| y));
        let variance = mean(&|other, _| (other - x) * (other - x));
        let through_zero = Self { a: mean(&|x, y| x * y) / mean(&|x, _| x * x), d: 0.0 };
        if variance == 0.0 {
            return Ok(through_zero);
        }
        let a = mean(&|other_x, other_y| (other_x - x) * (other_y - y)) / variance;
        let free = Self { a, d: y - a * x };
        if free.a >= 0.0 && free.d >= 0.0 {
            return Ok(free);
        }
        let constant = Self { a: 0.0, d: y };
        let squares = |fit: &Self| mean(&|x, y| (fit.a * x + fit.d - y).powi(2));
        Ok(if squares(&through_zero) <= squares(&constant) { through_zero } else { constant })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exact_data_is_recovered() {
        let law = Fit { a: 6.0, d: 0.25 };
        let measured: Vec<(u32, f64)> = [1, 2, 3, 8].map(|c| (c, law.seconds(c))).into();
        let found = Fit::of(&measured).unwrap();
        assert!((found.a - 6.0).abs() < 1e-12 && (found.d - 0.25).abs() < 1e-12, "{found:?}");
        assert_eq!(Fit::of(&[(4, 0.5)]).unwrap(), Fit { a: 2.0, d: 0.0 });
    }

    #[test]
    fn invalid_measurements_are_rejected() {
        for measured in [&[][..], &[(0, 1.0)], &[(1, f64::NAN)], &[(2, -1.0)]] {
            assert!(Fit::of(measured).unwrap_err().is_usage(), "{measured:?}");
        }
    }

    proptest! {
        #[test]
        fn no_other_fit_is_closer(
            measured in prop::collection::vec((1u32..16, 0.0..10.0), 1..8),
            a in 0.0..20.0,
            d in 0.0..10.0,
        ) {
            let squares = |fit: &Fit| -> f64 {
                measured.iter().map(|&(c, y): &(u32, f64)| (fit.seconds(c) - y).powi(2)).sum()
            };
            let (found, other) = (Fit::of(&measured).unwrap(), Fit { a, d });
            prop_assert!(found.a >= 0.0 && found.d >= 0.0);
            prop_assert!(squares(&found) <= squares(&other) + 1e-9);
        }
    }
}
