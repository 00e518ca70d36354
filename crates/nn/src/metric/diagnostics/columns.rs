//! Scores of each of several columns of classes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Calibration, ThresholdCurve, positive};
use crate::metric::{Input, TABLE, classes::ClassReport};

/// Scores of one column of classes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ColumnScores {
    /// Name of the column.
    pub name: String,
    /// Number of rows with a class in the column.
    pub count: u64,
    /// Metrics of labels by name; `None` if a metric is undefined.
    pub scores: BTreeMap<String, Option<f64>>,
    /// Scores by class, with the numbers of the classes as names.
    pub by_class: ClassReport,
    /// Calibration of the probabilities of its classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// Scores by threshold, of a column of two classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<ThresholdCurve>,
}

impl ColumnScores {
    /// Scores of each column of `input` that has labelled rows and no NaN.
    pub(super) fn of_columns(input: &Input) -> Vec<Self> {
        let of = |k: usize| {
            let column = input.column(k);
            let by_class = ClassReport::new(&column, &[])?;
            let count = by_class.classes.iter().map(|class| class.support).sum();
            let scores = TABLE.iter().map(|row| (row.name.to_string(), (row.make)(&column))).collect();
            let rows = column.rows()?;
            let calibration = Calibration::new(&rows);
            let thresholds = ThresholdCurve::new(&rows, column.num_classes(), positive(&column));
            let name = input.columns()[k].name.clone();
            Some(Self { name, count, scores, by_class, calibration, thresholds })
        };
        (0..input.columns().len()).filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::ClassColumn;

    use crate::metric::{Input, Truth, diagnostics::Diagnostics};

    #[test]
    fn a_column_has_the_diagnostics_of_a_run_on_it_alone() {
        let columns = [("sector", 2), ("region", 3)];
        let columns = columns.map(|(name, classes)| ClassColumn { name: name.into(), classes });
        // rows of two and of three logits
        let sector = [2.0, 1.0, 0.0, 1.0, 3.0, 0.5, 0.0, 2.0];
        let region = [0.0, 0.0, 1.0, 1.0, 0.0, 5.0, 9.0, 0.0, 0.0, 1.0, 2.0, 0.5];
        let both: Vec<f32> =
            sector.chunks(2).zip(region.chunks(3)).flat_map(|(a, b)| [a, b].concat()).collect();
        // one row has no region; the rarer sector is the first
        let class = [0, 2, 1, -1, 1, 1, 1, 0];
        let input = Input::new(&both, 5, Truth::Columns(&class, &columns));
        let found = Diagnostics::new("test", &input).unwrap();
        assert!(found.calibration.is_none() && found.columns.len() == 2);
        let alone = |logits: &[f32], classes: usize, class: &[i32]| {
            Diagnostics::new("test", &Input::new(logits, classes, Truth::Single(class))).unwrap()
        };
        let of_sector = alone(&sector, 2, &[0, 1, 1, 1]);
        let of_region = alone(&region, 3, &[2, -1, 1, 0]);
        for (column, alone) in found.columns.iter().zip([of_sector, of_region]) {
            assert_eq!((&column.calibration, &column.thresholds), (&alone.calibration, &alone.thresholds));
            assert!(column.calibration.is_some());
        }
        assert_eq!(found.columns[0].thresholds.as_ref().unwrap().class, Some(0));
        assert!(found.columns[1].thresholds.is_none(), "three classes have no threshold");
    }
}
