//! Statistics of few values, and their text.

use crate::definition::Statistic;

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Median: the middle value, or the mean of the two middle ones.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let n = values.len();
    (values[(n - 1) / 2] + values[n / 2]) / 2.0
}

/// Smallest and largest value.
pub(crate) fn range(values: &[f64]) -> (f64, f64) {
    let extremes = |(low, high): (f64, f64), value: &f64| (low.min(*value), high.max(*value));
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), extremes)
}

impl Statistic {
    /// The value that stands for all.
    pub(crate) fn of(self, values: &[f64]) -> f64 {
        match self {
            Self::Median => median(values),
            Self::Mean => mean(values),
            Self::Min => range(values).0,
        }
    }

    /// The value with its spread: `median (min .. max)`, or `mean ± deviation`.
    pub(crate) fn format(self, values: &[f64]) -> String {
        let middle = self.of(values);
        if self == Self::Mean {
            let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
            let deviation = (squares / (values.len().max(2) - 1) as f64).sqrt();
            return format!("{middle:.2} ± {deviation:.2}");
        }
        let (factor, suffix) = match middle.abs() {
            x if x >= 1e6 => (1e6, " M"),
            x if x >= 1e4 => (1e3, " k"),
            _ => (1.0, ""),
        };
        let digits = |value: f64| {
            let value = value / factor;
            let decimals = match value.abs() {
                x if x >= 100.0 => 0,
                x if x >= 1.0 || x == 0.0 => 2,
                x if x >= 1e-3 => 4,
                _ => return format!("{value:.1e}"),
            };
            format!("{value:.decimals$}")
        };
        let (low, high) = range(values);
        match values {
            [_] => format!("{}{suffix}", digits(middle)),
            _ => format!("{} ({} .. {}){suffix}", digits(middle), digits(low), digits(high)),
        }
    }
}

/// Least-squares line through points with at least two different `x`: slope, intercept, and the
/// share of the variance that it explains.
pub(crate) fn fit(x: &[f64], y: &[f64]) -> (f64, f64, f64) {
    let (mx, my) = (mean(x), mean(y));
    let product = |a: &[f64], ma: f64, b: &[f64], mb: f64| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - ma) * (b - mb)).sum()
    };
    let (xx, xy, yy) = (product(x, mx, x, mx), product(x, mx, y, my), product(y, my, y, my));
    let slope = xy / xx;
    (slope, my - slope * mx, xy * xy / (xx * yy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_short() {
        assert_eq!(Statistic::Median.format(&[3.0, 1.0, 2.0]), "2.00 (1.00 .. 3.00)");
        assert_eq!(Statistic::Median.format(&[1_234_567.0]), "1.23 M");
        assert_eq!(Statistic::Mean.format(&[1.0, 3.0]), "2.00 ± 1.41");
        assert_eq!(Statistic::Median.format(&[-0.000_012]), "-1.2e-5");
        assert_eq!(Statistic::Mean.format(&[2.5]), "2.50 ± 0.00");
        assert_eq!(Statistic::Min.format(&[0.5, 0.25]), "0.2500 (0.2500 .. 0.5000)");
        assert_eq!(median(&[4.0, 1.0]), 2.5);
    }

    #[test]
    fn lines_are_fitted_and_judged() {
        let (slope, start, r2) = fit(&[1.0, 2.0, 4.0], &[5.0, 7.0, 11.0]);
        assert!((slope - 2.0).abs() < 1e-12 && (start - 3.0).abs() < 1e-12 && (r2 - 1.0).abs() < 1e-12);
        assert!(fit(&[0.0, 1.0, 2.0], &[1.0, 0.0, 1.0]).2 < 1e-12);
    }
}
