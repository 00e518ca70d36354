//! Feature rows as compressed sparse rows, whatever they are stored as.

use std::io;

use crate::{Features, dataset::FeatureData};

/// Visits every value that is not zero (by its bits: a negative zero counts) with its column, row by row, and calls
/// `end` after every row.
pub(super) fn visit(
    features: &Features,
    rows: usize,
    mut value: impl FnMut(u32, f32) -> io::Result<()>,
    mut end: impl FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let dim = features.dim;
    for i in 0..rows {
        let range = i * dim..(i + 1) * dim;
        match &features.data {
            FeatureData::Csr(rows) => {
                let (columns, values) = rows.row(i);
                columns.iter().zip(values).try_for_each(|(&j, &x)| value(j, x))?;
            }
            FeatureData::F32(data) => {
                for (j, &x) in data[range].iter().enumerate().filter(|(_, x)| x.to_bits() != 0) {
                    value(j as u32, x)?;
                }
            }
            FeatureData::F16(data) => {
                for (j, &x) in data[range].iter().enumerate().filter(|(_, x)| x.to_bits() != 0) {
                    value(j as u32, x.to_f32())?;
                }
            }
        }
        end()?;
    }
    Ok(())
}
