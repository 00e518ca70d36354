//! Texts that stand for a missing value in a column, such as `unknown`.
#![forbid(unsafe_code)]

use super::{
    column::{Cell, Column, Texts},
    schema::Names,
    value,
};

/// Texts that stand for a missing value in a column.
#[derive(Clone, Debug)]
pub(super) struct Nulls {
    /// The texts as they were declared.
    pub(super) names: Names,
    /// Texts, with the number that each is, if it is one.
    texts: Vec<(String, Option<f64>)>,
}

impl Nulls {
    pub(super) fn new(names: Names) -> Self {
        let text = |text: String| (text.trim().to_string(), number(value::parse(&text, &mut Vec::new())));
        Self { texts: names.list().into_iter().map(text).collect(), names }
    }

    /// Returns true if the value is one of the texts; numbers are compared by value.
    fn has(&self, cell: Cell) -> bool {
        let text = cell.text();
        if self.texts.iter().any(|(null, _)| null == text.trim()) {
            return cell != Cell::Missing;
        }
        if self.texts.iter().all(|(_, null)| null.is_none()) {
            return false;
        }
        let x = match cell {
            Cell::Text(text) => number(value::parse(text, &mut Vec::new())),
            other => number(other),
        };
        x.is_some() && self.texts.iter().any(|(_, null)| *null == x)
    }

    /// The column, in which the values that are one of the texts are missing.
    pub(super) fn clear(&self, column: &Column) -> Column {
        let keeps = |row: usize| !self.has(column.get(row));
        fn keep<T: Copy>(values: &[Option<T>], keeps: impl Fn(usize) -> bool) -> Vec<Option<T>> {
            values.iter().enumerate().map(|(row, value)| value.filter(|_| keeps(row))).collect()
        }
        match column {
            Column::Bool(values) => Column::Bool(keep(values, keeps)),
            Column::Int(values) => Column::Int(keep(values, keeps)),
            Column::Float(values) => Column::Float(keep(values, keeps)),
            Column::Time(values) => Column::Time(keep(values, keeps)),
            Column::Text(texts) => {
                let mut kept = Texts::default();
                (0..texts.len()).for_each(|row| kept.push(if keeps(row) { texts.get(row) } else { "" }));
                Column::Text(kept)
            }
            Column::Empty(_) | Column::List(_) | Column::Other(..) => column.clone(),
        }
    }
}

/// Number of a value; `None` if it is not one.
fn number(cell: Cell) -> Option<f64> {
    match cell {
        Cell::Int(x) => Some(x as f64),
        Cell::Float(x) => Some(x),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_stand_for_a_missing_one_are_missing_in_every_type() {
        let nulls = Nulls::new(Names::Many(vec!["unknown".into(), " -999".into(), "2024-01-01".into()]));
        let mut texts = Texts::default();
        for text in ["unknown ", "Unknown", "-999", "-999.0", "7", "", "2024-01-01"] {
            texts.push(text);
        }
        let cleared = nulls.clear(&Column::Text(texts));
        let kept: Vec<String> = (0..7).map(|row| cleared.get(row).text().into_owned()).collect();
        assert_eq!(kept, ["", "Unknown", "", "", "7", "", ""]);
        let numbers = nulls.clear(&Column::Float(vec![Some(-999.0), Some(0.5), None]));
        assert_eq!([0, 1, 2].map(|row| numbers.get(row)), [Cell::Missing, Cell::Float(0.5), Cell::Missing]);
        let numbers = nulls.clear(&Column::Int(vec![Some(-999), Some(7)]));
        assert_eq!([0, 1].map(|row| numbers.get(row)), [Cell::Missing, Cell::Int(7)]);
        let dates = nulls.clear(&Column::Time(vec![Some(1_704_067_200_000_000), Some(0)]));
        assert_eq!([0, 1].map(|row| dates.get(row)), [Cell::Missing, Cell::Time(0)]);
        let bools =
            Nulls::new(Names::One("false".into())).clear(&Column::Bool(vec![Some(false), Some(true)]));
        assert_eq!([0, 1].map(|row| bools.get(row)), [Cell::Missing, Cell::Bool(true)]);
    }
}
