//! Parquet files, checked against their size before they are decoded.

use std::{
    fs::File,
    io::{BufReader, Read, Seek, SeekFrom},
};

use bytes::Bytes;
use graphmill_core::{Error, Result, location::Location, memory};
use parquet::{
    arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReaderBuilder},
    errors,
    file::reader::{ChunkReader, Length},
};

use super::{BATCH_ROWS, Dialect, Reader, TableFile, arrow};
use crate::{
    dataset::import::parquet::{check, check_by, guarded},
    object_storage::Blocks,
};

/// Parts of a file, for the decoder.
enum Parts {
    Local(File),
    Object(Blocks),
}

impl Parts {
    /// Opens a file, of which about `columns` columns are read.
    fn open(file: &TableFile, columns: usize) -> Result<Self> {
        match file {
            TableFile::Local(path) => {
                Ok(Self::Local(File::open(path).map_err(|e| Error::io(path, "open", e))?))
            }
            TableFile::Object(object) => Ok(Self::Object(object.blocks(columns))),
        }
    }
}

impl Length for Parts {
    fn len(&self) -> u64 {
        match self {
            Self::Local(file) => Length::len(file),
            Self::Object(blocks) => blocks.size(),
        }
    }
}

impl ChunkReader for Parts {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> errors::Result<Box<dyn Read>> {
        Ok(match self {
            Self::Local(file) => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(start))?;
                Box::new(BufReader::new(file))
            }
            Self::Object(blocks) => {
                let mut blocks = blocks.clone();
                blocks.seek(SeekFrom::Start(start))?;
                Box::new(blocks)
            }
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> errors::Result<Bytes> {
        match self {
            Self::Local(file) => file.get_bytes(start, length),
            Self::Object(blocks) => {
                let refused = |e: Error| errors::ParquetError::External(e.into());
                let mut bytes: Vec<u8> = memory::zeroed(length).map_err(refused)?;
                blocks.read_exact_at(&mut bytes, start)?;
                Ok(bytes.into())
            }
        }
    }
}

/// Opens a file.
pub(super) fn open(file: &TableFile, _: &Dialect) -> Result<Box<dyn Reader>> {
    match Parts::open(file, 1)? {
        Parts::Local(_) => check(file.path())?,
        Parts::Object(blocks) => {
            check_by(file.path(), blocks.size(), |buffer, at| blocks.read_exact_at(buffer, at))?;
        }
    }
    let path = file.path().to_path_buf();
    let builder = {
        let (file, path) = (file.clone(), path.clone());
        move |columns: usize| {
            let parts = Parts::open(&file, columns)?;
            let wrong = |why: String| Location::new(&path, "metadata").error(why);
            guarded(|| ParquetRecordBatchReaderBuilder::try_new(parts)).map_err(|e| wrong(e.to_string()))
        }
    };
    let schema = builder(1)?.schema().clone();
    let start = move |wanted: &[bool]| {
        let builder = builder(wanted.iter().filter(|wanted| **wanted).count())?;
        let roots = wanted.iter().enumerate().filter(|(_, wanted)| **wanted).map(|(c, _)| c);
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let reader = builder.with_batch_size(BATCH_ROWS).with_projection(mask).build();
        let reader = reader.map_err(|e| Error::invalid(e.to_string()))?;
        let rows = reader.map(|batch| batch.map_err(|e| e.to_string()));
        Ok(Box::new(rows) as arrow::Batches)
    };
    Ok(Box::new(arrow::Arrow::new(path, &schema, Box::new(start))))
}
