//! Axes with round ticks, which map values to positions in a drawing.

/// Linear or logarithmic axis.
#[derive(Clone, Debug)]
pub struct Scale {
    from: (f64, f64),
    to: (f64, f64),
    /// Ticks as values.
    ticks: Vec<f64>,
    /// Decimal places that distinguish the ticks; `None` for as many as each tick needs.
    decimals: Option<usize>,
    log: bool,
}

/// Rounds up to 1, 2, 5, 10, 20, ... (and 0.5, 0.2, ...).
fn round_up(x: f64) -> f64 {
    let power = 10f64.powf(x.log10().floor());
    // The tolerance makes 0.1 + 0.2 equal to 0.3.
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|&step| step >= x * (1.0 - 1e-9)).unwrap_or(x)
}

impl Scale {
    /// Creates an axis that covers `low..=high` and ends at ticks, about `count` of them.
    pub fn rounded(low: f64, high: f64, count: usize, to: (f64, f64)) -> Self {
        // A single value lies in the middle.
        let margin = if high > low { 0.0 } else { low.abs().max(1e-3) * 0.1 };
        let (from, to_value) = (low - margin, high + margin);
        let step = round_up((to_value - from) / count as f64);
        let (mut first, last) = ((from / step).floor(), (to_value / step).ceil());
        // The axis of nonnegative values does not extend below 0.
        if low >= 0.0 {
            first = first.max(0.0);
        }
        // Floor and ceil exceed the range by at most one step, so this terminates.
        let ticks: Vec<f64> = (0..=(last - first) as usize).map(|i| (first + i as f64) * step).collect();
        let decimals = (-step.log10()).ceil().clamp(0.0, 9.0) as usize;
        Self { from: (ticks[0], ticks[ticks.len() - 1]), to, ticks, decimals: Some(decimals), log: false }
    }

    /// Creates an axis from `low` to `high` exactly, with up to about `count` round ticks in
    /// between.
    pub fn exact(low: f64, high: f64, count: usize, to: (f64, f64)) -> Self {
        let rounded = Self::rounded(low, high, count, to);
        let mut ticks = rounded.ticks;
        ticks.retain(|tick| (low..=high).contains(tick));
        Self { from: (low, high), ticks, ..rounded }
    }

    /// Creates an axis over epochs `first..=last` with a margin of half an epoch; ticks are whole.
    pub fn epochs(first: usize, last: usize, count: usize, to: (f64, f64)) -> Self {
        let step = (round_up(((last - first) as f64 + 1.0) / count as f64).ceil()).max(1.0) as usize;
        // In steps, because a damaged file may contain an enormous epoch number.
        let mut ticks: Vec<f64> = (first.div_ceil(step)..=last / step).map(|i| (i * step) as f64).collect();
        if ticks.is_empty() {
            ticks.push(last as f64);
        }
        Self { from: (first as f64 - 0.5, last as f64 + 0.5), to, ticks, decimals: Some(0), log: false }
    }

    /// Creates a logarithmic axis from `low` to `high`, both above 0; the ticks are 1, 2 and 5
    /// times powers of ten.
    pub fn log(low: f64, high: f64, to: (f64, f64)) -> Self {
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let ticks = (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(power)));
        // The tolerance keeps a tick at the end.
        let ticks = ticks.filter(|tick| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(tick)).collect();
        Self { from: (low, high), to, ticks, decimals: None, log: true }
    }

    /// Ticks as values.
    pub fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// Width of the tick labels at the left of an axis.
    pub fn label_width(&self) -> f64 {
        let longest = self.ticks.iter().map(|&tick| self.label(tick).len()).max().unwrap_or(0);
        (14.0 + 7.2 * longest as f64).max(34.0)
    }

    /// Position of a value.
    pub fn at(&self, value: f64) -> f64 {
        let along = |value: f64| if self.log { value.log2() } else { value };
        let (from, to) = (along(self.from.0), along(self.from.1));
        let t = (along(value) - from) / (to - from);
        self.to.0 + t * (self.to.1 - self.to.0)
    }

    /// Label of a tick.
    pub fn label(&self, tick: f64) -> String {
        match self.decimals {
            // Avoids "-0".
            Some(decimals) => format!("{:.*}", decimals, tick + 0.0),
            // Ticks of 1, 2 and 5 have one significant digit.
            None => format!("{tick:.9}").trim_end_matches('0').trim_end_matches('.').to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(low: f64, high: f64) -> Vec<String> {
        let scale = Scale::rounded(low, high, 5, (0.0, 1.0));
        scale.ticks.iter().map(|&tick| scale.label(tick)).collect()
    }

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        assert_eq!(labels(0.0, 1.0), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(0.613, 0.788), ["0.60", "0.65", "0.70", "0.75", "0.80"]);
        assert_eq!(labels(13.0, 2345.0), ["0", "500", "1000", "1500", "2000", "2500"]);
        assert_eq!(labels(0.1, 0.3), ["0.10", "0.15", "0.20", "0.25", "0.30"]);
        assert_eq!(labels(-1.0, 1.0), ["-1.0", "-0.5", "0.0", "0.5", "1.0"]);
    }

    #[test]
    fn a_single_value_is_centred_on_its_axis() {
        for value in [0.0, 1e-7, 0.9123, 5.0, 12345.0, -3.0] {
            let scale = Scale::rounded(value, value, 5, (0.0, 100.0));
            assert!(scale.ticks.len() >= 2 && scale.ticks.len() < 12, "{value}: {scale:?}");
            assert!((0.0..=100.0).contains(&scale.at(value)), "{value}: {scale:?}");
        }
    }

    #[test]
    fn an_exact_axis_ends_at_its_values() {
        let scale = Scale::exact(0.0, 23.4, 5, (0.0, 234.0));
        assert_eq!((scale.at(23.4), scale.ticks), (234.0, vec![0.0, 5.0, 10.0, 15.0, 20.0]));
    }

    #[test]
    fn a_logarithmic_axis_has_round_ticks_and_equal_ratios() {
        let scale = Scale::log(0.5, 50.0, (0.0, 200.0));
        let labels: Vec<_> = scale.ticks.iter().map(|&tick| scale.label(tick)).collect();
        assert_eq!(labels, ["0.5", "1", "2", "5", "10", "20", "50"]);
        assert!((scale.at(5.0) - 100.0).abs() < 1e-9 && scale.at(0.5) == 0.0);
    }

    #[test]
    fn epoch_ticks_are_whole() {
        assert_eq!(Scale::epochs(1, 3, 10, (0.0, 1.0)).ticks, [1.0, 2.0, 3.0]);
        assert_eq!(Scale::epochs(1, 1, 10, (0.0, 1.0)).ticks, [1.0]);
        assert_eq!(Scale::epochs(1, 200, 10, (0.0, 1.0)).ticks.len(), 10);
        assert_eq!(Scale::epochs(1, 4, 4, (0.0, 80.0)).at(1.0), 10.0);
        assert_eq!(Scale::epochs(7, 9, 1, (0.0, 1.0)).ticks, [9.0]);
    }

    #[test]
    fn an_axis_over_any_epochs_has_few_ticks() {
        let ends = [0, 1, 2, 999, 1 << 32, usize::MAX - 1, usize::MAX];
        for (i, first) in ends.into_iter().enumerate() {
            for last in ends.into_iter().skip(i) {
                let ticks = Scale::epochs(first, last, 10, (0.0, 1.0)).ticks;
                assert!((1..=11).contains(&ticks.len()), "{first} to {last}: {ticks:?}");
            }
        }
    }
}
