//! Record of a column that determines the label.
#![forbid(unsafe_code)]

use std::fmt;

use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};

/// Column that determines the label.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Leak {
    /// Name of the column.
    pub column: String,
    /// Column of the label.
    pub label: String,
    /// Reason for which the column determines it.
    pub by: LeakKind,
    /// Share of the labelled rows whose label the column implies; of [`LeakKind::Line`] the share
    /// of the variance of the label, and of [`LeakKind::Later`] that of the labelled rows with a
    /// date.
    pub share: f64,
    /// Labelled rows.
    pub rows: u64,
    /// Rows of the rarest value of [`LeakKind::Values`], or of the rarest class; of
    /// [`LeakKind::Later`] the rows with a later date.
    pub support: u64,
    /// Option that leaves the column out.
    pub remedy: String,
}

/// Reason for which a column determines the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeakKind {
    /// Each value implies the label.
    Values,
    /// A missing or present value implies the label.
    Presence,
    /// The numbers of the classes do not overlap.
    Ranges,
    /// The label is a linear function of the number.
    Line,
    /// Dates are after the time of their row.
    Later,
}

impl Serialize for Leak {
    /// Writes the fields, and as `message` the text of the leak.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { column, label, by, share, rows, support, remedy } = self;
        let mut leak = serializer.serialize_struct("Leak", 8)?;
        leak.serialize_field("column", column)?;
        leak.serialize_field("label", label)?;
        leak.serialize_field("by", by)?;
        leak.serialize_field("share", share)?;
        leak.serialize_field("rows", rows)?;
        leak.serialize_field("support", support)?;
        leak.serialize_field("remedy", remedy)?;
        leak.serialize_field("message", &self.to_string())?;
        leak.end()
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, label, share, rows, support, .. } = self;
        // rounded down, so that not all is not 100 %
        let share = (share * 1000.0 + 1e-6).floor() / 10.0;
        match self.by {
            LeakKind::Values => write!(
                f,
                "column '{column}' determines the label '{label}': its values imply it in {share} % of \
                 {rows} labelled rows, each value by at least {support} rows"
            )?,
            LeakKind::Presence => write!(
                f,
                "column '{column}' determines the label '{label}': whether it has a value implies it in \
                 {share} % of {rows} labelled rows, {support} of them of the rarest class"
            )?,
            LeakKind::Ranges => write!(
                f,
                "column '{column}' determines the label '{label}': the ranges of its numbers do not overlap \
                 between the classes, in {share} % of {rows} labelled rows, {support} of them of the \
                 rarest class"
            )?,
            LeakKind::Line => write!(
                f,
                "column '{column}' determines the label '{label}': a linear function of it gives {share} % \
                 of the variance, of {rows} labelled rows"
            )?,
            LeakKind::Later => write!(
                f,
                "column '{column}' may be known only after the label '{label}': {share} % of its dates are \
                 after the time of their row, {support} of {rows} labelled rows"
            )?,
        }
        write!(f, "; if a prediction does not know it, {}", self.remedy)
    }
}
