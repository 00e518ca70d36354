//! Parquet files, checked against their size before they are decoded.

use std::{fs::File, path::Path};

use graphmill_core::{Error, Result, location::Location};
use parquet::arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReaderBuilder};

use super::{BATCH_ROWS, Dialect, Reader, arrow};
use crate::dataset::import::parquet::{check, guarded};

/// Opens a file.
pub(super) fn open(path: &Path, _: &Dialect) -> Result<Box<dyn Reader>> {
    check(path)?;
    let path = path.to_path_buf();
    let builder = {
        let path = path.clone();
        move || {
            let file = File::open(&path).map_err(|e| Error::io(&path, "open", e))?;
            let wrong = |why: String| Location::new(&path, "metadata").error(why);
            guarded(|| ParquetRecordBatchReaderBuilder::try_new(file)).map_err(|e| wrong(e.to_string()))
        }
    };
    let schema = builder()?.schema().clone();
    let start = move |wanted: &[bool]| {
        let builder = builder()?;
        let roots = wanted.iter().enumerate().filter(|(_, wanted)| **wanted).map(|(c, _)| c);
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let reader = builder.with_batch_size(BATCH_ROWS).with_projection(mask).build();
        let reader = reader.map_err(|e| Error::invalid(e.to_string()))?;
        let rows = reader.map(|batch| batch.map_err(|e| e.to_string()));
        Ok(Box::new(rows) as arrow::Batches)
    };
    Ok(Box::new(arrow::Arrow::new(path, &schema, Box::new(start))))
}
