//! Normalization of a dataset's features, recorded so that other data can be scaled alike.

use graphmill_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Normalization applied to a dataset's features on import.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Normalization {
    /// Each row was divided by the sum of its values; rows that sum to zero are unchanged.
    Rows,
    /// Column `j` became `(x - mean[j]) / deviation[j]`, with statistics of the training nodes.
    Standard {
        /// Mean of each column (`F`); `None` if the features were scaled without centring.
        mean: Option<Vec<f64>>,
        /// Standard deviation of each column (`F`); 1 for a constant column.
        deviation: Vec<f64>,
    },
}

impl Normalization {
    /// Name of the normalization, as in `import --normalize`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Standard { .. } => "standard",
        }
    }

    /// Creates the normalization `name` with these statistics, which `rows` ignores; `None` for an
    /// unknown name.
    pub(super) fn of_parts(name: &str, mean: Option<Vec<f64>>, deviation: Vec<f64>) -> Option<Self> {
        match name {
            "rows" => Some(Self::Rows),
            "standard" => Some(Self::Standard { mean, deviation }),
            _ => None,
        }
    }

    /// Mean and deviation of each column, if recorded.
    pub(super) fn statistics(&self) -> [Option<&Vec<f64>>; 2] {
        match self {
            Self::Rows => [None, None],
            Self::Standard { mean, deviation } => [mean.as_ref(), Some(deviation)],
        }
    }

    /// Checks that the statistics fit features of `dim` columns.
    ///
    /// # Errors
    /// The number of columns differs, a mean is not finite, or a deviation is not a positive finite
    /// number.
    pub fn validate(&self, dim: usize) -> Result<()> {
        let Self::Standard { mean, deviation } = self else { return Ok(()) };
        let lengths = [mean.as_ref().map_or(dim, Vec::len), deviation.len()];
        if lengths != [dim; 2] {
            return Err(Error::invalid(format!(
                "normalization statistics of {} means and {} deviations for {dim} feature columns",
                lengths[0], lengths[1]
            )));
        }
        if let Some(j) = mean.iter().flatten().position(|x| !x.is_finite()) {
            return Err(Error::invalid(format!("the mean of feature column {j} is not a finite number")));
        }
        if let Some(j) = deviation.iter().position(|x| !x.is_finite() || *x <= 0.0) {
            return Err(Error::invalid(format!(
                "the deviation of feature column {j} is {}: it must be a positive finite number",
                deviation[j]
            )));
        }
        Ok(())
    }

    /// Normalizes a row of raw values (`F`) in place. Values are computed in f64 and rounded once.
    pub fn apply(&self, row: &mut [f32]) {
        match self {
            Self::Rows => {
                let sum: f64 = row.iter().map(|&x| f64::from(x)).sum();
                if sum != 0.0 {
                    row.iter_mut().for_each(|x| *x = (f64::from(*x) / sum) as f32);
                }
            }
            Self::Standard { .. } => {
                for (j, x) in row.iter_mut().enumerate() {
                    *x = self.scaled(j, f64::from(*x)) as f32;
                }
            }
        }
    }

    /// Normalizes `x` in column `j`; returns `x` for row normalization.
    fn scaled(&self, j: usize, x: f64) -> f64 {
        match self {
            Self::Rows => x,
            Self::Standard { mean, deviation } => {
                (x - mean.as_ref().map_or(0.0, |mean| mean[j])) / deviation[j]
            }
        }
    }

    /// Inverts [`Normalization::scaled`].
    fn raw(&self, j: usize, x: f64) -> f64 {
        match self {
            Self::Rows => x,
            Self::Standard { mean, deviation } => {
                x * deviation[j] + mean.as_ref().map_or(0.0, |mean| mean[j])
            }
        }
    }
}

/// Conversion of feature rows from the scale of one dataset to that of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Rescaling {
    from: Option<Normalization>,
    to: Option<Normalization>,
}

impl Rescaling {
    /// Creates the conversion from features normalized as `from` to features normalized as `to`;
    /// `None` if both are equal.
    ///
    /// # Errors
    /// The rows were divided by their sums, which are not recorded, and `to` is anything else.
    pub fn between(from: Option<&Normalization>, to: Option<&Normalization>) -> Result<Option<Self>> {
        match (from, to) {
            (from, to) if from == to => Ok(None),
            (Some(Normalization::Rows), to) => Err(Error::invalid(format!(
                "its feature rows were divided by their sums (--normalize rows), which cannot be undone, and \
                 the \
                 run was trained on features {}; import the data again without --normalize",
                to.map_or("as the source has them".into(), |to| format!("of --normalize {}", to.name()))
            ))),
            (from, to) => Ok(Some(Self { from: from.cloned(), to: to.cloned() })),
        }
    }

    /// Converts a row (`F`) in place. Raw rows get the bits that an import with these statistics
    /// stores.
    pub fn apply(&self, row: &mut [f32]) {
        match (&self.from, &self.to) {
            (None, Some(to)) => to.apply(row),
            (Some(from), Some(to @ Normalization::Standard { .. })) => {
                for (j, x) in row.iter_mut().enumerate() {
                    *x = to.scaled(j, from.raw(j, f64::from(*x))) as f32;
                }
            }
            (Some(from), to) => {
                for (j, x) in row.iter_mut().enumerate() {
                    *x = from.raw(j, f64::from(*x)) as f32;
                }
                to.iter().for_each(|to| to.apply(row));
            }
            (None, None) => {}
        }
    }

    /// Describes the conversion, as part of a sentence.
    pub fn description(&self) -> String {
        let undone = self.from.as_ref().map(|from| format!("its own --normalize {} undone", from.name()));
        let done = self.to.as_ref().map(|to| match to {
            Normalization::Rows => "rows divided by their sums".to_string(),
            Normalization::Standard { mean: Some(_), .. } => {
                "scaled by the means and deviations of the run's training data".to_string()
            }
            Normalization::Standard { mean: None, .. } => {
                "scaled by the deviations of the run's training data".to_string()
            }
        });
        [undone, done].into_iter().flatten().collect::<Vec<_>>().join(", then ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard(mean: Option<[f64; 2]>, deviation: [f64; 2]) -> Normalization {
        Normalization::Standard { mean: mean.map(Vec::from), deviation: deviation.into() }
    }

    fn converted(from: Option<&Normalization>, to: Option<&Normalization>, row: [f32; 2]) -> [f32; 2] {
        let mut row = row;
        if let Some(rescaling) = Rescaling::between(from, to).unwrap() {
            rescaling.apply(&mut row);
        }
        row
    }

    #[test]
    fn invertible_normalizations_convert_to_the_scale_of_the_run() {
        let raw = [3.0, 10.0];
        let scales = [
            None,
            Some(standard(Some([1.0, 2.0]), [2.0, 4.0])),
            Some(standard(None, [2.0, 0.5])),
            Some(standard(Some([-1.0, 0.0]), [1.0, 8.0])),
        ];
        let expected = [raw, [1.0, 2.0], [1.5, 20.0], [4.0, 1.25]];
        for (from, stored) in scales.iter().zip(expected) {
            for (to, result) in scales.iter().zip(expected) {
                assert_eq!(converted(from.as_ref(), to.as_ref(), stored), result, "{from:?} to {to:?}");
            }
            let rows = converted(from.as_ref(), Some(&Normalization::Rows), stored);
            assert_eq!(rows, [3.0 / 13.0, 10.0 / 13.0], "{from:?}");
        }
    }

    #[test]
    fn row_normalized_features_convert_to_nothing_else() {
        let rows = Some(&Normalization::Rows);
        assert_eq!(Rescaling::between(rows, rows).unwrap(), None);
        for to in [None, Some(&standard(None, [1.0, 1.0]))] {
            let error = Rescaling::between(rows, to).unwrap_err().to_string();
            assert!(error.contains("import the data again without --normalize"), "{error}");
        }
    }

    #[test]
    fn inconsistent_statistics_are_rejected() {
        assert!(Normalization::Rows.validate(7).is_ok());
        assert!(standard(None, [1.0, 2.0]).validate(2).is_ok());
        for (wrong, dim, word) in [
            (standard(None, [1.0, 2.0]), 3, "3 feature columns"),
            (standard(Some([0.0, f64::NAN]), [1.0, 1.0]), 2, "mean of feature column 1"),
            (standard(None, [0.0, 1.0]), 2, "deviation of feature column 0"),
            (standard(None, [1.0, f64::INFINITY]), 2, "deviation of feature column 1"),
        ] {
            let error = wrong.validate(dim).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
