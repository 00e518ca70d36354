//! Parquet tables in the encodings and codecs there are.

use std::sync::Arc;

use parquet::{
    basic::{Compression, Encoding, GzipLevel, ZstdLevel},
    data_type::{
        BoolType, ByteArray, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType,
        Int32Type, Int64Type,
    },
    file::{
        properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion},
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};

use super::Result;
use crate::input::join;

/// A column: its line of the schema, its values, and the levels of definition and repetition.
pub(crate) struct Column(
    pub(crate) &'static str,
    pub(crate) Values,
    pub(crate) Option<Vec<i16>>,
    pub(crate) Option<Vec<i16>>,
);

/// Values of a column by their physical type.
pub(crate) enum Values {
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    F16(Vec<[u8; 2]>),
    Text(Vec<&'static str>),
}
use Values::*;

pub(super) fn add(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) -> Result<()> {
    let first = || WriterProperties::builder().set_dictionary_enabled(false);
    let second = || first().set_writer_version(WriterVersion::PARQUET_2_0);
    let dictionary = || WriterProperties::builder();
    let ends = || {
        vec![
            Column("required int64 src;", I64(vec![0, 2, 1, 1]), None, None),
            Column("required int32 dst (UINT_32);", I32(vec![1, 1, 2, 0]), None, None),
        ]
    };
    for (name, writer, compression) in [
        ("plain", first(), Compression::UNCOMPRESSED),
        ("snappy", dictionary(), Compression::SNAPPY),
        (
            "delta",
            second().set_encoding(Encoding::DELTA_BINARY_PACKED),
            Compression::ZSTD(ZstdLevel::default()),
        ),
        (
            "streams",
            second().set_encoding(Encoding::BYTE_STREAM_SPLIT),
            Compression::GZIP(GzipLevel::default()),
        ),
        ("lz4", dictionary().set_writer_version(WriterVersion::PARQUET_2_0), Compression::LZ4_RAW),
    ] {
        let edges = table(&ends(), writer.set_compression(compression))?;
        add("import_parquet", name, join("undirected", &[("edges.parquet", &edges)]));
    }
    let compact = [
        Column("required int64 a;", I64(vec![-5, 1 << 40]), None, None),
        Column("optional int64 b;", I64(vec![7, -5]), Some(vec![1, 1]), None),
    ];
    let compact = table(&compact, first())?;
    add("import_parquet", "compact", join("compact-ids", &[("edges.parquet", &compact)]));

    let edges = table(&ends(), first())?;
    let lists = [
        Column("optional int64 label;", I64(vec![1, 0]), Some(vec![1, 0, 1]), None),
        Column(
            "optional group x (LIST) { repeated group list { optional float element; } }",
            F32(vec![1., 2., 3., 4., 5., 6.]),
            Some(vec![3; 6]),
            Some(vec![0, 1, 0, 1, 0, 1]),
        ),
        Column("required binary split (STRING);", Text(vec!["train", "none", "test"]), None, None),
    ];
    let masks = [
        Column("required int64 id;", I64(vec![2, 0, 1]), None, None),
        Column("required boolean train_mask;", Bool(vec![true, false, true]), None, None),
        Column("required boolean val_mask;", Bool(vec![false, true, false]), None, None),
        Column("required int32 y;", I32(vec![1, 0, 1]), None, None),
        Column("required double a;", F64(vec![0.5, 1.5, -2.5]), None, None),
        Column(
            "required fixed_len_byte_array(2) b (FLOAT16);",
            F16(vec![[0, 60], [0, 64], [0, 0]]),
            None,
            None,
        ),
        Column("required int32 c;", I32(vec![3, 4, 5]), None, None),
    ];
    let classes = [Column(
        "required group y (LIST) { repeated group list { required int32 element; } }",
        I32(vec![0, 1, 1, 0, 0, 0]),
        Some(vec![1; 6]),
        Some(vec![0, 1, 0, 1, 0, 1]),
    )];
    let second = || dictionary().set_writer_version(WriterVersion::PARQUET_2_0);
    for (name, columns, writer) in [
        ("lists", &lists[..], dictionary()),
        ("lists-second", &lists, second().set_compression(Compression::SNAPPY)),
        ("masks", &masks, first()),
        ("masks-second", &masks, second().set_compression(Compression::ZSTD(ZstdLevel::default()))),
        ("classes", &classes, dictionary()),
    ] {
        let nodes = table(columns, writer)?;
        let files = [("edges.parquet", &edges[..]), ("nodes.parquet", &nodes)];
        add("import_parquet", name, join("normalize=rows", &files));
    }
    Ok(())
}

/// A table of nodes with the keys `u`, `v` and `w`, with labels, texts and lists.
pub(super) fn nodes() -> Result<Vec<u8>> {
    let columns = [
        Column("required binary id (STRING);", Text(vec!["u", "v", "w"]), None, None),
        Column("optional binary label (STRING);", Text(vec!["k", "l"]), Some(vec![1, 1, 0]), None),
        Column("optional double x;", F64(vec![1.5, -2.0]), Some(vec![1, 0, 1]), None),
    ];
    table(&columns, WriterProperties::builder())
}

/// A Parquet file of these columns.
///
/// # Errors
/// The columns and their schema do not fit.
pub(crate) fn table(columns: &[Column], writer: WriterPropertiesBuilder) -> Result<Vec<u8>> {
    let fields: String = columns.iter().map(|column| column.0).collect();
    let schema = Arc::new(parse_message_type(&format!("message t {{ {fields} }}"))?);
    let properties =
        writer.set_statistics_enabled(EnabledStatistics::None).set_created_by("t".into()).build();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for Column(_, values, defined, repeated) in columns {
        let mut column = group.next_column()?.ok_or("fewer columns than the schema has")?;
        let (d, r) = (defined.as_deref(), repeated.as_deref());
        match values {
            Bool(x) => column.typed::<BoolType>().write_batch(x, d, r)?,
            I32(x) => column.typed::<Int32Type>().write_batch(x, d, r)?,
            I64(x) => column.typed::<Int64Type>().write_batch(x, d, r)?,
            F32(x) => column.typed::<FloatType>().write_batch(x, d, r)?,
            F64(x) => column.typed::<DoubleType>().write_batch(x, d, r)?,
            F16(x) => {
                let x: Vec<FixedLenByteArray> = x.iter().map(|x| x.to_vec().into()).collect();
                column.typed::<FixedLenByteArrayType>().write_batch(&x, d, r)?
            }
            Text(x) => {
                let x: Vec<ByteArray> = x.iter().map(|&x| x.into()).collect();
                column.typed::<ByteArrayType>().write_batch(&x, d, r)?
            }
        };
        column.close()?;
    }
    group.close()?;
    file.close()?;

    Ok(bytes)
}
