//! Predictions as a Parquet table.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use ::parquet::{
    basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel},
    data_type::{ByteArray, ByteArrayType, FloatType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::types::Type,
};

use super::{Column, Predictions};

/// Rows per row group, which bounds the memory of the writer.
const GROUP_LEN: usize = 1 << 16;

/// Bytes that the library has written but `out` has not received. The library needs a writer that
/// is `Send`, which `out` is not.
#[derive(Clone, Default)]
struct Pending(Arc<Mutex<Vec<u8>>>);

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().map_err(|_| io::Error::other("poisoned"))?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Pending {
    fn drain_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut bytes = self.0.lock().map_err(|_| io::Error::other("poisoned"))?;
        out.write_all(&bytes)?;
        bytes.clear();
        Ok(())
    }
}

/// Field of a column.
fn field(name: &str, column: &Column) -> Result<Arc<Type>, ParquetError> {
    let physical = match column {
        Column::Ids(_) | Column::Numbers(..) | Column::Classes(..) => Physical::INT64,
        Column::Members(..) => Physical::INT32,
        Column::Floats(..) => Physical::FLOAT,
        Column::Texts(..) | Column::Names(..) => Physical::BYTE_ARRAY,
    };
    let logical = (physical == Physical::BYTE_ARRAY).then_some(LogicalType::String);
    let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED);
    Ok(Arc::new(builder.with_logical_type(logical).build()?))
}

/// Writes the table.
pub(super) fn write(of: &Predictions, out: &mut dyn Write) -> io::Result<()> {
    let columns = of.table();
    let fields: Result<Vec<_>, _> = columns.iter().map(|(name, column)| field(name, column)).collect();
    let schema = Arc::new(Type::group_type_builder("predictions").with_fields(fields?).build()?);
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let pending = Pending::default();
    let mut file = SerializedFileWriter::new(pending.clone(), schema, properties)?;
    for start in (0..of.nodes.len()).step_by(GROUP_LEN) {
        let rows = start..of.nodes.len().min(start + GROUP_LEN);
        let mut group = file.next_row_group()?;
        for (_, values) in &columns {
            let Some(mut column) = group.next_column()? else { break };
            match values {
                Column::Ids(nodes) => {
                    let ids: Vec<i64> = nodes[rows.clone()].iter().map(|&v| v.into()).collect();
                    column.typed::<Int64Type>().write_batch(&ids, None, None)?;
                }
                Column::Numbers(keys, nodes) => {
                    let keys: Vec<i64> = nodes[rows.clone()].iter().map(|&v| keys[v as usize]).collect();
                    column.typed::<Int64Type>().write_batch(&keys, None, None)?;
                }
                Column::Classes(classes, first, cols) => {
                    let classes: Vec<i64> = rows.clone().map(|row| classes[row * cols + first]).collect();
                    column.typed::<Int64Type>().write_batch(&classes, None, None)?;
                }
                Column::Texts(..) | Column::Names(..) => {
                    let texts: Vec<ByteArray> =
                        rows.clone().map(|row| values.text(row).into_bytes().into()).collect();
                    column.typed::<ByteArrayType>().write_batch(&texts, None, None)?;
                }
                Column::Members(members, first, cols) => {
                    let members: Vec<i32> =
                        rows.clone().map(|row| members[row * cols + first].into()).collect();
                    column.typed::<Int32Type>().write_batch(&members, None, None)?;
                }
                Column::Floats(floats, first, cols) => {
                    let floats: Vec<f32> = rows.clone().map(|row| floats[row * cols + first]).collect();
                    column.typed::<FloatType>().write_batch(&floats, None, None)?;
                }
            }
            column.close()?;
        }
        group.close()?;
        pending.drain_to(out)?;
    }
    file.close()?;
    pending.drain_to(out)
}
