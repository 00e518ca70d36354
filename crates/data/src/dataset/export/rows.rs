//! Traversal of feature rows as compressed sparse rows, independent of their storage.

use std::ops::Range;

use graphmill_core::{Features, features::FeatureData};

/// Visits every nonzero value of a range of rows (compared by bits: a negative zero counts) with
/// its column, row by row, and calls `end` after every row.
pub(super) fn visit(
    features: &Features,
    rows: Range<usize>,
    mut value: impl FnMut(u32, f32),
    mut end: impl FnMut(),
) {
    let dim = features.dim;
    for i in rows {
        let range = i * dim..(i + 1) * dim;
        match &features.data {
            FeatureData::Csr(rows) => {
                let (columns, values) = rows.row(i);
                columns.iter().zip(values).for_each(|(&j, &x)| value(j, x));
            }
            FeatureData::F32(data) => {
                let stored = data[range].iter().enumerate().filter(|(_, x)| x.to_bits() != 0);
                stored.for_each(|(j, &x)| value(j as u32, x));
            }
            FeatureData::F16(data) => {
                let stored = data[range].iter().enumerate().filter(|(_, x)| x.to_bits() != 0);
                stored.for_each(|(j, &x)| value(j as u32, x.to_f32()));
            }
        }
        end();
    }
}
