//! Column of a Parquet table, read in batches of rows, regardless of its type.

use parquet::{
    basic::{ConvertedType, LogicalType, Type as Physical},
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{
        BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType,
        FloatType, Int32Type, Int64Type,
    },
    errors::ParquetError,
    schema::types::ColumnDescriptor,
};

use crate::npy::Number;

/// Content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One number per row.
    Number,
    /// A list of numbers per row.
    List,
    /// One text per row.
    Text,
    /// Unsupported: dates, structs, lists of lists.
    Other,
}

/// Content of a column by its descriptor; `alone` is true if its name covers no other column.
pub(super) fn kind(column: &ColumnDescriptor, alone: bool) -> Kind {
    let logical = column.logical_type_ref();
    let plain = match logical {
        None => {
            matches!(
                column.converted_type(),
                ConvertedType::NONE
                    | ConvertedType::INT_8
                    | ConvertedType::INT_16
                    | ConvertedType::INT_32
                    | ConvertedType::INT_64
            ) || is_unsigned(column)
        }
        Some(LogicalType::Integer(_) | LogicalType::Float16) => true,
        _ => false,
    };
    let number = match column.physical_type() {
        Physical::BOOLEAN | Physical::INT32 | Physical::INT64 | Physical::FLOAT | Physical::DOUBLE => plain,
        Physical::FIXED_LEN_BYTE_ARRAY => logical == Some(&LogicalType::Float16) && column.type_length() == 2,
        Physical::BYTE_ARRAY | Physical::INT96 => false,
    };
    let text = column.physical_type() == Physical::BYTE_ARRAY && column.max_rep_level() == 0;
    match (alone, number, column.max_rep_level()) {
        (true, true, 0) if column.path().parts().len() == 1 => Kind::Number,
        (true, true, 1) => Kind::List,
        (true, false, _) if text && column.path().parts().len() == 1 => Kind::Text,
        _ => Kind::Other,
    }
}

fn is_unsigned(column: &ColumnDescriptor) -> bool {
    matches!(
        column.converted_type(),
        ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64
    )
}

/// Values of a batch of rows.
#[derive(Debug, Default)]
pub(super) struct Cells {
    /// Numbers, those of lists concatenated; `None` if missing.
    pub(super) numbers: Vec<Option<Number>>,
    /// Texts instead of numbers; equal ones of a dictionary share their bytes.
    pub(super) texts: Vec<Option<ByteArray>>,
    /// Length of every row's list; empty if rows are not lists.
    pub(super) lengths: Vec<usize>,
}

/// Column of a row group.
pub(super) struct Column {
    reader: ColumnReader,
    unsigned: bool,
    most_defined: i16,
    is_list: bool,
    defined: Vec<i16>,
    repeated: Vec<i16>,
}

impl Column {
    pub(super) fn new(reader: ColumnReader, column: &ColumnDescriptor) -> Self {
        Self {
            reader,
            unsigned: is_unsigned(column),
            most_defined: column.max_def_level(),
            is_list: column.max_rep_level() > 0,
            defined: Vec::new(),
            repeated: Vec::new(),
        }
    }

    /// Reads up to `rows` rows into `cells`, replacing its contents, and returns their number.
    pub(super) fn read(&mut self, rows: usize, cells: &mut Cells) -> Result<usize, ParquetError> {
        let Self { reader, unsigned, most_defined, is_list, defined, repeated } = self;
        cells.numbers.clear();
        cells.texts.clear();
        cells.lengths.clear();
        let unsigned = *unsigned;
        let mut levels = Levels { most_defined: *most_defined, is_list: *is_list, defined, repeated };
        let Cells { numbers, texts, lengths } = cells;
        match reader {
            ColumnReader::BoolColumnReader(c) => {
                levels.read::<BoolType, _>(c, rows, numbers, lengths, |x: bool| Number::Uint(x.into()))
            }
            ColumnReader::Int32ColumnReader(c) => {
                levels.read::<Int32Type, _>(c, rows, numbers, lengths, |x: i32| match unsigned {
                    true => Number::Uint(u64::from(x as u32)),
                    false => Number::Int(x.into()),
                })
            }
            ColumnReader::Int64ColumnReader(c) => {
                levels.read::<Int64Type, _>(c, rows, numbers, lengths, |x: i64| match unsigned {
                    true => Number::Uint(x as u64),
                    false => Number::Int(x),
                })
            }
            ColumnReader::FloatColumnReader(c) => {
                levels.read::<FloatType, _>(c, rows, numbers, lengths, |x: f32| Number::Float(x.into()))
            }
            ColumnReader::DoubleColumnReader(c) => {
                levels.read::<DoubleType, _>(c, rows, numbers, lengths, Number::Float)
            }
            ColumnReader::FixedLenByteArrayColumnReader(c) => {
                levels.read::<FixedLenByteArrayType, _>(c, rows, numbers, lengths, |x: FixedLenByteArray| {
                    let bytes = <[u8; 2]>::try_from(x.data()).unwrap_or([0, 0x7e]); // not a number
                    Number::Float(half::f16::from_le_bytes(bytes).to_f64())
                })
            }
            ColumnReader::ByteArrayColumnReader(c) => {
                levels.read::<ByteArrayType, _>(c, rows, texts, lengths, |x: ByteArray| x)
            }
            ColumnReader::Int96ColumnReader(_) => Err(ParquetError::NYI("96-bit integers".into())),
        }
    }
}

/// Positions of missing values and of row starts.
struct Levels<'a> {
    most_defined: i16,
    is_list: bool,
    defined: &'a mut Vec<i16>,
    repeated: &'a mut Vec<i16>,
}

impl Levels<'_> {
    fn read<T: DataType, R>(
        &mut self,
        reader: &mut ColumnReaderImpl<T>,
        rows: usize,
        out: &mut Vec<Option<R>>,
        lengths: &mut Vec<usize>,
        convert: impl Fn(T::T) -> R,
    ) -> Result<usize, ParquetError> {
        self.defined.clear();
        self.repeated.clear();
        let mut values = Vec::new();
        let (found, _, _) =
            reader.read_records(rows, Some(&mut *self.defined), Some(&mut *self.repeated), &mut values)?;
        if self.most_defined == 0 {
            out.extend(values.into_iter().map(|x| Some(convert(x))));
        } else {
            let mut values = values.into_iter();
            let next = |&level: &i16| {
                if level == self.most_defined { values.next().map(&convert) } else { None }
            };
            out.extend(self.defined.iter().map(next));
        }
        if self.is_list {
            for &level in &*self.repeated {
                match lengths.last_mut() {
                    Some(last) if level > 0 => *last += 1,
                    _ => lengths.push(1), // an empty list has one missing entry
                }
            }
        }
        Ok(found)
    }
}
