//! Scores of each of several columns of classes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
}

impl ColumnScores {
    /// Scores of each column of `input` that has labelled rows and no NaN.
    pub(super) fn of_columns(input: &Input) -> Vec<Self> {
        let of = |k: usize| {
            let column = input.column(k);
            let by_class = ClassReport::new(&column, &[])?;
            let count = by_class.classes.iter().map(|class| class.support).sum();
            let scores = TABLE.iter().map(|row| (row.name.to_string(), (row.make)(&column))).collect();
            Some(Self { name: input.columns()[k].name.clone(), count, scores, by_class })
        };
        (0..input.columns().len()).filter_map(of).collect()
    }
}
