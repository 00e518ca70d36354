//! Writers of prediction tables, chosen by the file's ending. Each format is a row of [`TABLE`].
//!
//! `.npy` holds only the values, in the order of the nodes. The other formats have a column `node`
//! with ids, then `class`, or `class_0` to `class_C-1`, `probability_0` ... or `embedding_0` ...

use std::{
    io::{self, Write},
    path::Path,
};

use graphmill_core::{
    NodeId,
    table::{self, Entry},
};
use graphmill_data::{atomic, npy};

use crate::{Error, Result};

/// Predicted values of `N` nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Class of each node (`N`).
    Classes(Vec<i64>),
    /// Membership of each label, 0 or 1 (`N x C`).
    Members(Vec<u8>),
    /// Probabilities (`N x C`).
    Probabilities(Vec<f32>),
    /// Hidden rows (`N x H`).
    Embeddings(Vec<f32>),
}

/// Table of predictions for `N` nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Predictions {
    /// Node ids (`N`).
    pub nodes: Vec<NodeId>,
    /// Number of values per node.
    pub cols: usize,
    /// Values in row-major order.
    pub values: Values,
}

impl Predictions {
    /// Names of the columns after `node`.
    fn columns(&self) -> Vec<String> {
        let name = match self.values {
            Values::Classes(_) => return vec!["class".into()],
            Values::Members(_) => "class",
            Values::Probabilities(_) => "probability",
            Values::Embeddings(_) => "embedding",
        };
        (0..self.cols).map(|i| format!("{name}_{i}")).collect()
    }
}

/// Writer of a format.
type Format = fn(&Predictions, &mut dyn Write) -> io::Result<()>;

/// All formats, by file ending.
pub const TABLE: &[Entry<Format>] = &[
    Entry {
        name: "npy",
        summary: "NumPy's array of the values",
        source: "NumPy enhancement proposal 1",
        options: &[],
        make: write_npy,
    },
    Entry {
        name: "csv",
        summary: "a table with a column of node ids",
        source: "RFC 4180",
        options: &[],
        make: write_csv,
    },
    #[cfg(feature = "parquet")]
    Entry {
        name: "parquet",
        summary: "the same table, compressed",
        source: "Apache Parquet",
        options: &[],
        make: write_parquet,
    },
];

/// Destination and format of predictions, checked before inference runs.
#[derive(Clone, Copy)]
pub struct Target<'p> {
    path: Option<&'p Path>,
    write: Format,
}

impl<'p> Target<'p> {
    /// The file at `path` in the format of its ending, or standard output as CSV for `-`.
    ///
    /// # Errors
    /// Wrong usage: an ending without a format.
    pub fn new(path: &'p Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self { path: None, write: write_csv });
        }
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        let entry = TABLE.iter().find(|entry| ending.as_deref() == Some(entry.name));
        let entry = entry.ok_or_else(|| {
            let known = TABLE.iter().map(|entry| format!(".{} ({})", entry.name, entry.summary));
            Error::usage(format!(
                "--out {}: unknown file ending; use {}, or - for CSV on standard output",
                path.display(),
                known.collect::<Vec<_>>().join(", ")
            ))
        })?;
        Ok(Self { path: Some(path), write: entry.make })
    }

    /// Returns true if the destination is standard output.
    pub fn is_standard_output(&self) -> bool {
        self.path.is_none()
    }

    /// Writes the table. A file is replaced in one step.
    ///
    /// # Errors
    /// The destination cannot be written.
    pub fn write(&self, predictions: &Predictions) -> Result<()> {
        match self.path {
            Some(path) => Ok(atomic::write(path, |out| (self.write)(predictions, out))?),
            None => {
                let mut out = io::BufWriter::new(io::stdout().lock());
                let written = (self.write)(predictions, &mut out).and_then(|()| out.flush());
                match written {
                    // the reader closed the pipe, as `head` does
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                    other => other.map_err(|error| Error::io(Path::new("standard output"), "write", error)),
                }
            }
        }
    }
}

/// Known file endings, for a help text.
pub fn known() -> String {
    table::names(TABLE)
}

fn write_npy(of: &Predictions, out: &mut dyn Write) -> io::Result<()> {
    let rows = of.nodes.len();
    match &of.values {
        Values::Classes(classes) => npy::write_to(out, classes, &[rows]),
        Values::Members(members) => npy::write_to(out, members, &[rows, of.cols]),
        Values::Probabilities(values) | Values::Embeddings(values) => {
            npy::write_to(out, values, &[rows, of.cols])
        }
    }
}

fn write_csv(of: &Predictions, out: &mut dyn Write) -> io::Result<()> {
    fn rows<T: ToString>(
        of: &Predictions,
        values: &[T],
        out: &mut csv::Writer<&mut dyn Write>,
    ) -> csv::Result<()> {
        let mut row = Vec::with_capacity(1 + of.cols);
        for (i, node) in of.nodes.iter().enumerate() {
            row.clear();
            row.push(node.to_string());
            row.extend(values[i * of.cols..(i + 1) * of.cols].iter().map(T::to_string));
            out.write_record(&row)?;
        }
        Ok(())
    }
    let mut out = csv::Writer::from_writer(out);
    out.write_record([vec!["node".to_string()], of.columns()].concat())?;
    match &of.values {
        Values::Classes(values) => rows(of, values, &mut out)?,
        Values::Members(values) => rows(of, values, &mut out)?,
        Values::Probabilities(values) | Values::Embeddings(values) => rows(of, values, &mut out)?,
    }
    out.flush()
}

/// Rows per row group, which bounds the memory of the writer.
#[cfg(feature = "parquet")]
const GROUP_LEN: usize = 1 << 16;

#[cfg(feature = "parquet")]
fn write_parquet(of: &Predictions, out: &mut dyn Write) -> io::Result<()> {
    use std::sync::{Arc, Mutex};

    use parquet::{
        basic::{Compression, ZstdLevel},
        data_type::{FloatType, Int32Type, Int64Type},
        file::{properties::WriterProperties, writer::SerializedFileWriter},
        schema::parser::parse_message_type,
    };

    /// Bytes that the library has written but `out` has not received. The library needs a writer
    /// that is `Send`, which `out` is not.
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

    let kind = match of.values {
        Values::Classes(_) => "int64",
        Values::Members(_) => "int32",
        Values::Probabilities(_) | Values::Embeddings(_) => "float",
    };
    let fields: String = of.columns().iter().map(|name| format!("required {kind} {name};")).collect();
    let schema = format!("message predictions {{ required int64 node; {fields} }}");
    let schema = Arc::new(parse_message_type(&schema)?);
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let pending = Pending::default();
    let mut file = SerializedFileWriter::new(pending.clone(), schema, properties)?;
    for start in (0..of.nodes.len()).step_by(GROUP_LEN) {
        let rows = start..of.nodes.len().min(start + GROUP_LEN);
        let mut group = file.next_row_group()?;
        let mut at = 0;
        while let Some(mut column) = group.next_column()? {
            let cells = rows.clone().map(|row| row * of.cols + at.max(1) - 1);
            match &of.values {
                _ if at == 0 => {
                    let ids: Vec<i64> = of.nodes[rows.clone()].iter().map(|&v| v.into()).collect();
                    column.typed::<Int64Type>().write_batch(&ids, None, None)?;
                }
                Values::Classes(values) => {
                    let values: Vec<i64> = cells.map(|cell| values[cell]).collect();
                    column.typed::<Int64Type>().write_batch(&values, None, None)?;
                }
                Values::Members(values) => {
                    let values: Vec<i32> = cells.map(|cell| values[cell].into()).collect();
                    column.typed::<Int32Type>().write_batch(&values, None, None)?;
                }
                Values::Probabilities(values) | Values::Embeddings(values) => {
                    let values: Vec<f32> = cells.map(|cell| values[cell]).collect();
                    column.typed::<FloatType>().write_batch(&values, None, None)?;
                }
            }
            column.close()?;
            at += 1;
        }
        group.close()?;
        pending.drain_to(out)?;
    }
    file.close()?;
    pending.drain_to(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cols: usize, values: Values) -> Predictions {
        Predictions { nodes: vec![7, 2, 9], cols, values }
    }

    fn all() -> [Predictions; 4] {
        [
            of(1, Values::Classes(vec![3, -1, 0])),
            of(2, Values::Members(vec![1, 0, 0, 1, 1, 1])),
            of(2, Values::Probabilities(vec![0.25, 0.75, 0.1, 0.9, 1.0, 0.0])),
            of(2, Values::Embeddings(vec![1e-30, -0.5, 3.25, 0.0, 7.0, -2.0])),
        ]
    }

    #[test]
    fn csv_tables_have_node_ids_and_named_columns() {
        let text = |of: &Predictions| {
            let mut bytes = Vec::new();
            write_csv(of, &mut bytes).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let [classes, members, probabilities, embeddings] = all();
        assert_eq!(text(&classes), "node,class\n7,3\n2,-1\n9,0\n");
        assert_eq!(text(&members), "node,class_0,class_1\n7,1,0\n2,0,1\n9,1,1\n");
        assert!(text(&probabilities).starts_with("node,probability_0,probability_1\n7,0.25,0.75\n"));
        let embeddings = text(&embeddings);
        let first: Vec<&str> = embeddings.lines().nth(1).unwrap().split(',').collect();
        assert_eq!(first[1].parse(), Ok(1e-30f32), "floats read back unchanged");
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_tables_hold_the_same_columns_and_values() {
        use parquet::{
            file::{reader::FileReader, serialized_reader::SerializedFileReader},
            record::RowAccessor,
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        for of in all() {
            Target::new(&path).unwrap().write(&of).unwrap();
            let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
            let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
            assert_eq!(rows.len(), 3);
            let names: Vec<&String> = rows[0].get_column_iter().map(|(name, _)| name).collect();
            assert_eq!(names[0], "node");
            assert_eq!(names[1..].iter().map(|s| s.to_string()).collect::<Vec<_>>(), of.columns());
            for (i, row) in rows.iter().enumerate() {
                assert_eq!(row.get_long(0).unwrap(), i64::from(of.nodes[i]));
                for c in 0..of.cols {
                    let at = i * of.cols + c;
                    match &of.values {
                        Values::Classes(values) => assert_eq!(row.get_long(1).unwrap(), values[at]),
                        Values::Members(values) => {
                            assert_eq!(row.get_int(1 + c).unwrap(), i32::from(values[at]))
                        }
                        Values::Probabilities(values) | Values::Embeddings(values) => {
                            assert_eq!(row.get_float(1 + c).unwrap(), values[at]);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn file_ending_selects_the_format() {
        for known in ["a.npy", "b.csv", "B.CSV", "-"] {
            assert!(Target::new(Path::new(known)).is_ok(), "{known}");
        }
        for unknown in ["a", "a.txt", "a.npy.gz", "npy", "dir.csv/a"] {
            let error = Target::new(Path::new(unknown)).err().unwrap().to_string();
            assert!(error.contains(&format!("--out {unknown}: ")) && error.contains(".npy"), "{error}");
        }
    }
}
