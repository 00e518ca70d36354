//! Writers of prediction tables, chosen by the file's ending. Each format is a row of [`TABLE`].
//!
//! `.npy` holds only the values, in the order of the nodes. The other formats have the columns of
//! the key, or a column `node` with ids, then `class`, or `class_0` to `class_C-1`, `probability_0`
//! ... or `embedding_0` ..., or `value`, of several values `value_0` ... Of several columns of
//! classes there is one `class_COLUMN` for each, and `probability_COLUMN_0` ...

mod json;
#[cfg(feature = "parquet")]
mod parquet;

use std::{
    io::{self, Write},
    path::Path,
};

use graphmill_core::{
    ClassColumn, NodeId,
    table::{self, Entry},
};
use graphmill_data::{
    atomic, npy,
    typed::{KEY_SEPARATOR, Keys},
};

use super::check_outputs;
use crate::{Error, Result};

/// Predicted values of `N` nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Class of each node (`N`), or in each of `K` columns (`N x K`).
    Classes(Vec<i64>),
    /// Membership of each label, 0 or 1 (`N x C`).
    Members(Vec<u8>),
    /// Probabilities (`N x C`).
    Probabilities(Vec<f32>),
    /// Real values (`N x C`).
    Values(Vec<f32>),
    /// Hidden rows (`N x H`).
    Embeddings(Vec<f32>),
    /// A candidate of each source (`N` rows, several for a source) and the score of the pair.
    Links {
        /// Candidates (`N`).
        candidates: Vec<NodeId>,
        /// Scores (`N`).
        scores: Vec<f32>,
    },
}

/// Table of predictions for `N` nodes.
#[derive(Clone, Debug)]
pub struct Predictions {
    /// Node ids (`N`).
    pub nodes: Vec<NodeId>,
    /// Number of values per node.
    pub cols: usize,
    /// Values in row-major order.
    pub values: Values,
    /// Keys of the nodes and names of the classes, which replace ids and numbers.
    pub identity: Option<Identity>,
}

/// Keys of predicted nodes and names of the classes.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Names of the columns of the key; empty if the dataset has no keys.
    pub key_columns: Vec<String>,
    /// Keys of all nodes of the dataset.
    pub keys: Option<Keys>,
    /// Ids of the predicted nodes in the dataset (`N`).
    pub nodes: Vec<NodeId>,
    /// Names of the classes, of all columns together; empty if they have none.
    pub classes: Vec<String>,
    /// Columns of classes; empty unless there are several.
    pub columns: Vec<ClassColumn>,
    /// Ids as the caller counts them (`N`), for a dataset without keys.
    pub ids: Vec<NodeId>,
    /// Keys of candidates, or destinations, that are nodes of another type; `None` if they are of
    /// the same.
    pub of_candidates: Option<Box<Identity>>,
    /// Events that are predicted, whose sources are the nodes.
    pub events: Option<EventColumns>,
}

/// Ends and times of predicted events.
#[derive(Clone, Debug)]
pub struct EventColumns {
    /// Ids of the destinations in their type (`N`).
    pub destinations: Vec<NodeId>,
    /// Times (`N`).
    pub times: Vec<i64>,
}

impl Identity {
    /// Name of a row: the columns that identify it, with their values.
    pub(crate) fn row_name(&self, row: usize) -> String {
        name_of(&self.columns(), row)
    }

    /// Columns that identify the predicted nodes or events.
    fn columns(&self) -> Vec<(String, Column<'_>)> {
        let Some(events) = &self.events else { return self.columns_of(&self.nodes, &self.ids) };
        let mut columns = self.columns_of_pairs("destination", &events.destinations);
        columns.push(("time".into(), Column::Classes(&events.times, 0, 1)));
        columns
    }

    /// Columns that identify `nodes`, whose ids are `ids` if the dataset has no keys.
    fn columns_of<'a>(&'a self, nodes: &'a [NodeId], ids: &'a [NodeId]) -> Vec<(String, Column<'a>)> {
        match &self.keys {
            None => vec![("node".into(), Column::Ids(ids))],
            Some(Keys::Integers(keys)) => {
                let name = self.key_columns.first().map_or("key", String::as_str);
                vec![(name.into(), Column::Numbers(keys, nodes))]
            }
            Some(keys) => {
                let part = |i: usize| (self.key_columns.len() > 1).then_some(i);
                let names = self.key_columns.iter().enumerate();
                names.map(|(i, name)| (name.clone(), Column::Texts(keys, nodes, part(i)))).collect()
            }
        }
    }

    /// Columns of pairs: those of the sources with the prefix `source`, of the `others` with the
    /// prefix `what`.
    fn columns_of_pairs<'a>(&'a self, what: &str, others: &'a [NodeId]) -> Vec<(String, Column<'a>)> {
        let named = |what: &str, columns: Vec<(String, Column<'a>)>| {
            let is_one = columns.len() == 1;
            let name = move |name: String| if is_one { what.to_string() } else { format!("{what}_{name}") };
            columns.into_iter().map(move |(of, column)| (name(of), column)).collect::<Vec<_>>()
        };
        let mut columns = named("source", self.columns_of(&self.nodes, &self.ids));
        let of_others = self.of_candidates.as_deref().unwrap_or(self);
        columns.extend(named(what, of_others.columns_of(others, others)));
        columns
    }
}

/// Column of a table of predictions.
enum Column<'a> {
    /// Ids of the nodes.
    Ids(&'a [NodeId]),
    /// Integer keys of these nodes.
    Numbers(&'a [i64], &'a [NodeId]),
    /// Part of the text keys of these nodes: all of the key if it has a single column.
    Texts(&'a Keys, &'a [NodeId], Option<usize>),
    /// Column of a table of classes: values, first, and the number of columns.
    Classes(&'a [i64], usize, usize),
    /// The same with the names of the classes.
    Names(&'a [i64], usize, usize, &'a [String]),
    /// Column of a table of zeros and ones: values, first, and the number of columns.
    Members(&'a [u8], usize, usize),
    /// Column of a table of numbers: values, first, and the number of columns.
    Floats(&'a [f32], usize, usize),
}

impl Column<'_> {
    /// Value of row `i` as text.
    fn text(&self, i: usize) -> String {
        match self {
            Self::Ids(nodes) => nodes[i].to_string(),
            Self::Numbers(keys, nodes) => keys[nodes[i] as usize].to_string(),
            Self::Texts(keys, nodes, part) => {
                let key = keys.get(nodes[i] as usize).to_string();
                match part {
                    Some(part) => key.split(KEY_SEPARATOR).nth(*part).unwrap_or_default().to_string(),
                    None => key,
                }
            }
            Self::Classes(values, first, cols) => values[i * cols + first].to_string(),
            Self::Names(values, first, cols, names) => {
                let class = values[i * cols + first];
                let name = usize::try_from(class).ok().and_then(|class| names.get(class));
                name.cloned().unwrap_or_else(|| class.to_string())
            }
            Self::Members(values, first, cols) => values[i * cols + first].to_string(),
            Self::Floats(values, first, cols) => values[i * cols + first].to_string(),
        }
    }
}

/// Name of a row by the columns that identify it.
fn name_of(columns: &[(String, Column)], row: usize) -> String {
    let named = columns.iter().map(|(name, column)| format!("{name} {}", column.text(row)));
    named.collect::<Vec<_>>().join(", ")
}

impl Predictions {
    /// Checks that all numbers are finite.
    ///
    /// # Errors
    /// One is NaN or infinite; the message names its row.
    fn check_finite(&self) -> Result<()> {
        let (values, cols) = match &self.values {
            Values::Classes(_) | Values::Members(_) => return Ok(()),
            Values::Probabilities(values) | Values::Values(values) | Values::Embeddings(values) => {
                (values, self.cols)
            }
            Values::Links { scores, .. } => (scores, 1),
        };
        check_outputs(values, cols, |row| {
            let mut columns = self.table();
            columns.retain(|(_, column)| !matches!(column, Column::Floats(..)));
            name_of(&columns, row)
        })
    }

    /// Columns of a table, with their names.
    fn table(&self) -> Vec<(String, Column<'_>)> {
        let mut columns = match &self.identity {
            None => vec![("node".to_string(), Column::Ids(&self.nodes))],
            Some(identity) => identity.columns(),
        };
        let classes: &[String] = self.identity.as_ref().map_or(&[], |identity| &identity.classes);
        let of_columns: &[ClassColumn] = self.identity.as_ref().map_or(&[], |identity| &identity.columns);
        if !of_columns.is_empty() && self.add_columns(of_columns, classes, &mut columns) {
            return columns;
        }
        let named = classes.len() == self.cols;
        let many = |what: &str| -> Vec<(String, usize)> {
            let name = |i: usize| match classes.get(i).filter(|_| named && what != "embedding") {
                Some(name) => format!("{what}_{name}"),
                None => format!("{what}_{i}"),
            };
            (0..self.cols).map(|i| (name(i), i)).collect()
        };
        match &self.values {
            Values::Classes(values) if classes.is_empty() => {
                columns.push(("class".into(), Column::Classes(values, 0, 1)));
            }
            Values::Classes(values) => columns.push(("class".into(), Column::Names(values, 0, 1, classes))),
            Values::Members(values) => columns
                .extend(many("class").into_iter().map(|(n, i)| (n, Column::Members(values, i, self.cols)))),
            Values::Probabilities(values) => columns.extend(
                many("probability").into_iter().map(|(n, i)| (n, Column::Floats(values, i, self.cols))),
            ),
            Values::Values(values) if self.cols == 1 => {
                columns.push(("value".into(), Column::Floats(values, 0, 1)));
            }
            Values::Values(values) => columns
                .extend(many("value").into_iter().map(|(n, i)| (n, Column::Floats(values, i, self.cols)))),
            Values::Links { candidates, scores } => {
                columns = match &self.identity {
                    Some(identity) => identity.columns_of_pairs("candidate", candidates),
                    None => vec![
                        ("source".into(), Column::Ids(&self.nodes)),
                        ("candidate".into(), Column::Ids(candidates)),
                    ],
                };
                columns.push(("score".into(), Column::Floats(scores, 0, 1)));
            }
            Values::Embeddings(values) => columns.extend(
                many("embedding").into_iter().map(|(n, i)| (n, Column::Floats(values, i, self.cols))),
            ),
        }
        columns
    }

    /// Adds the classes or probabilities of several columns of classes to `columns`; returns false
    /// if the values are others.
    fn add_columns<'a>(
        &'a self,
        of: &[ClassColumn],
        names: &'a [String],
        columns: &mut Vec<(String, Column<'a>)>,
    ) -> bool {
        for (k, range) in ClassColumn::ranges(of).enumerate() {
            // other names than those of all classes are of another dataset
            let (column, names) = (&of[k].name, names.get(range.clone()).unwrap_or_default());
            match &self.values {
                Values::Classes(values) if names.is_empty() => {
                    columns.push((format!("class_{column}"), Column::Classes(values, k, self.cols)));
                }
                Values::Classes(values) => {
                    columns.push((format!("class_{column}"), Column::Names(values, k, self.cols, names)));
                }
                Values::Probabilities(values) => columns.extend(range.enumerate().map(|(c, i)| {
                    let class = names.get(c).cloned().unwrap_or_else(|| c.to_string());
                    (format!("probability_{column}_{class}"), Column::Floats(values, i, self.cols))
                })),
                _ => return false,
            }
        }
        true
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
    Entry {
        name: "json",
        summary: "the same table as an array of objects",
        source: "RFC 8259",
        options: &[],
        make: json::write_array,
    },
    Entry {
        name: "jsonl",
        summary: "the same objects, one a line",
        source: "https://jsonlines.org",
        options: &[],
        make: json::write_lines,
    },
    #[cfg(feature = "parquet")]
    Entry {
        name: "parquet",
        summary: "the same table, compressed",
        source: "Apache Parquet",
        options: &[],
        make: parquet::write,
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

    /// Refuses a format that holds values of one type only.
    ///
    /// # Errors
    /// Wrong usage: the format is `.npy`.
    pub fn check_columns(&self) -> Result<()> {
        match self.path {
            Some(path) if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npy")) => {
                Err(Error::usage(format!(
                    "--out {}: pairs with scores are columns of several types; write .csv, .json, .jsonl or \
                     .parquet",
                    path.display()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Returns true if the destination is standard output.
    pub fn is_standard_output(&self) -> bool {
        self.path.is_none()
    }

    /// Writes the table. A file is replaced in one step.
    ///
    /// # Errors
    /// A number is not finite, and nothing is written; or the destination cannot be written.
    pub fn write(&self, predictions: &Predictions) -> Result<()> {
        predictions.check_finite()?;
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
        Values::Classes(classes) if of.cols == 1 => npy::write_to(out, classes, &[rows]),
        Values::Classes(classes) => npy::write_to(out, classes, &[rows, of.cols]),
        Values::Members(members) => npy::write_to(out, members, &[rows, of.cols]),
        Values::Values(values) if of.cols == 1 => npy::write_to(out, values, &[rows]),
        Values::Values(values) | Values::Probabilities(values) | Values::Embeddings(values) => {
            npy::write_to(out, values, &[rows, of.cols])
        }
        Values::Links { .. } => {
            let message =
                "pairs with scores are columns of several types; write .csv, .json, .jsonl or .parquet";
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
    }
}

fn write_csv(of: &Predictions, out: &mut dyn Write) -> io::Result<()> {
    let columns = of.table();
    let mut out = csv::Writer::from_writer(out);
    out.write_record(columns.iter().map(|(name, _)| name))?;
    let mut row = Vec::with_capacity(columns.len());
    for i in 0..of.nodes.len() {
        row.clear();
        row.extend(columns.iter().map(|(_, column)| column.text(i)));
        out.write_record(&row)?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cols: usize, values: Values) -> Predictions {
        Predictions { nodes: vec![7, 2, 9], cols, values, identity: None }
    }

    fn all() -> [Predictions; 5] {
        [
            of(1, Values::Classes(vec![3, -1, 0])),
            of(2, Values::Members(vec![1, 0, 0, 1, 1, 1])),
            of(2, Values::Probabilities(vec![0.25, 0.75, 0.1, 0.9, 1.0, 0.0])),
            of(2, Values::Embeddings(vec![1e-30, -0.5, 3.25, 0.0, 7.0, -2.0])),
            of(1, Values::Values(vec![1.5, -2.0, 0.25])),
        ]
    }

    #[test]
    fn csv_tables_have_node_ids_and_named_columns() {
        let text = |of: &Predictions| {
            let mut bytes = Vec::new();
            write_csv(of, &mut bytes).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let [classes, members, probabilities, embeddings, values] = all();
        assert_eq!(text(&values), "node,value\n7,1.5\n2,-2\n9,0.25\n");
        assert_eq!(text(&classes), "node,class\n7,3\n2,-1\n9,0\n");
        assert_eq!(text(&members), "node,class_0,class_1\n7,1,0\n2,0,1\n9,1,1\n");
        assert!(text(&probabilities).starts_with("node,probability_0,probability_1\n7,0.25,0.75\n"));
        let embeddings = text(&embeddings);
        let first: Vec<&str> = embeddings.lines().nth(1).unwrap().split(',').collect();
        assert_eq!(first[1].parse(), Ok(1e-30f32), "floats read back unchanged");
    }

    /// Predictions of nodes with keys and named classes.
    fn keyed(keys: Keys, key_columns: &[&str]) -> Predictions {
        let identity = Identity {
            key_columns: key_columns.iter().map(|name| name.to_string()).collect(),
            keys: Some(keys),
            nodes: vec![1, 0, 1],
            classes: vec!["mule".into(), "a, b".into()],
            columns: Vec::new(),
            ids: vec![1, 0, 1],
            of_candidates: None,
            events: None,
        };
        Predictions { identity: Some(identity), ..of(1, Values::Classes(vec![0, 1, 0])) }
    }

    #[test]
    fn keys_and_names_of_classes_replace_numbers() {
        let text = |of: &Predictions| {
            let mut bytes = Vec::new();
            write_csv(of, &mut bytes).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let texts = keyed(Keys::texts(["x", "y"]), &["account id"]);
        assert_eq!(text(&texts), "account id,class\ny,mule\nx,\"a, b\"\ny,mule\n");
        let parts = keyed(Keys::texts(["p\u{1f}1", "q\u{1f}2"]), &["bank", "number"]);
        assert_eq!(text(&parts), "bank,number,class\nq,2,mule\np,1,\"a, b\"\nq,2,mule\n");
        let mut shares = keyed(Keys::Integers(vec![70, 80].into()), &["id"]);
        (shares.cols, shares.values) = (2, Values::Probabilities(vec![0.5; 6]));
        assert!(text(&shares).starts_with("id,probability_mule,\"probability_a, b\"\n80,0.5,0.5\n"));
    }

    #[test]
    fn pairs_have_the_keys_of_both_ends() {
        let text = |of: &Predictions| {
            let mut bytes = Vec::new();
            write_csv(of, &mut bytes).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let links = || Values::Links { candidates: vec![0, 1, 0], scores: vec![2.5, -1.0, 0.25] };
        assert_eq!(text(&of(1, links())), "source,candidate,score\n7,0,2.5\n2,1,-1\n9,0,0.25\n");
        let one = Predictions { values: links(), ..keyed(Keys::texts(["x", "y"]), &["account"]) };
        assert_eq!(text(&one), "source,candidate,score\ny,x,2.5\nx,y,-1\ny,x,0.25\n");
        let two = keyed(Keys::texts(["p\u{1f}1", "q\u{1f}2"]), &["bank", "number"]);
        let two = text(&Predictions { values: links(), ..two });
        let header = "source_bank,source_number,candidate_bank,candidate_number,score\n";
        assert!(two.starts_with(&format!("{header}q,2,p,1,2.5\n")), "{two}");
    }

    /// Text that a format writes.
    fn written(of: &Predictions, write: Format) -> String {
        let mut bytes = Vec::new();
        write(of, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn json_tables_have_the_columns_and_values_of_csv() {
        let keys = keyed(Keys::texts(["p\u{1f}1", "q\u{1f}2"]), &["bank \"id\"", "number"]);
        let links = Values::Links { candidates: vec![0, 1, 0], scores: vec![2.5, -1.0, 0.25] };
        for of in all().into_iter().chain([keys, of(1, links)]) {
            let csv = written(&of, write_csv);
            let mut csv = csv::Reader::from_reader(csv.as_bytes());
            let names: Vec<String> = csv.headers().unwrap().iter().map(String::from).collect();
            let rows: Vec<serde_json::Map<String, serde_json::Value>> =
                serde_json::from_str(&written(&of, json::write_array)).unwrap();
            assert_eq!(rows.len(), 3);
            for (row, expected) in rows.iter().zip(csv.records().map(Result::unwrap)) {
                assert_eq!(row.len(), names.len(), "{row:?}");
                for (name, text) in names.iter().zip(&expected) {
                    let value = &row[name];
                    // numbers read back unchanged, and texts are no numbers
                    match value.as_f64() {
                        Some(number) => assert_eq!(text.parse::<f32>().unwrap(), number as f32, "{name}"),
                        None => assert_eq!(value.as_str(), Some(text), "{name}"),
                    }
                }
            }
        }
    }

    #[test]
    fn json_lines_are_the_rows_of_the_array_in_order() {
        let [classes, .., embeddings, _] = all();
        assert_eq!(
            written(&classes, json::write_array),
            "[\n{\"node\":7,\"class\":3},\n{\"node\":2,\"class\":-1},\n{\"node\":9,\"class\":0}\n]\n"
        );
        assert_eq!(
            written(&classes, json::write_lines),
            "{\"node\":7,\"class\":3}\n{\"node\":2,\"class\":-1}\n{\"node\":9,\"class\":0}\n"
        );
        assert!(written(&embeddings, json::write_lines).starts_with("{\"node\":7,\"embedding_0\":1e-30,"));
        let none = Predictions { nodes: Vec::new(), ..of(1, Values::Classes(Vec::new())) };
        let formats: [Format; 2] = [json::write_array, json::write_lines];
        assert_eq!(formats.map(|write| written(&none, write)), ["[\n]\n", ""]);
        let infinite = Predictions { nodes: vec![1], ..of(1, Values::Values(vec![f32::INFINITY])) };
        assert_eq!(written(&infinite, json::write_lines), "{\"node\":1,\"value\":null}\n");
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_tables_hold_keys_and_names() {
        use ::parquet::{
            file::{reader::FileReader, serialized_reader::SerializedFileReader},
            record::RowAccessor,
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        let of = keyed(Keys::texts(["p\u{1f}1", "q\u{1f}2"]), &["bank id", "number"]);
        Target::new(&path).unwrap().write(&of).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let row = reader.get_row_iter(None).unwrap().next().unwrap().unwrap();
        let names: Vec<&String> = row.get_column_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["bank id", "number", "class"]);
        assert_eq!([0, 1, 2].map(|c| row.get_string(c).unwrap().as_str()), ["q", "2", "mule"]);
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_tables_hold_the_same_columns_and_values() {
        use ::parquet::{
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
            let expected: Vec<String> = of.table().into_iter().map(|(name, _)| name).collect();
            assert_eq!(names.iter().map(|s| s.to_string()).collect::<Vec<_>>(), expected);
            for (i, row) in rows.iter().enumerate() {
                assert_eq!(row.get_long(0).unwrap(), i64::from(of.nodes[i]));
                for c in 0..of.cols {
                    let at = i * of.cols + c;
                    match &of.values {
                        Values::Classes(values) => assert_eq!(row.get_long(1).unwrap(), values[at]),
                        Values::Members(values) => {
                            assert_eq!(row.get_int(1 + c).unwrap(), i32::from(values[at]))
                        }
                        Values::Values(values)
                        | Values::Probabilities(values)
                        | Values::Embeddings(values) => {
                            assert_eq!(row.get_float(1 + c).unwrap(), values[at]);
                        }
                        Values::Links { .. } => {}
                    }
                }
            }
        }
    }

    #[test]
    fn rows_that_are_not_finite_are_named_and_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let keys = || keyed(Keys::texts(["p\u{1f}1", "q\u{1f}2"]), &["bank", "number"]);
        let links = Values::Links { candidates: vec![0, 1, 0], scores: vec![2.5, -1.0, f32::NEG_INFINITY] };
        let bad = vec![0.5, 0.5, f32::NAN, 0.5, f32::INFINITY, 0.5];
        for (of, name) in [
            (of(2, Values::Probabilities(bad.clone())), "node 2"),
            (of(1, Values::Values(vec![0.0, 0.0, f32::NAN])), "node 9"),
            (Predictions { cols: 2, values: Values::Embeddings(bad.clone()), ..keys() }, "bank p, number 1"),
            (of(1, links.clone()), "source 9, candidate 0"),
            (
                Predictions { values: links.clone(), ..keys() },
                "source_bank q, source_number 2, candidate_bank p, candidate_number 1",
            ),
        ] {
            for ending in TABLE.iter().map(|entry| entry.name) {
                let path = dir.path().join(format!("p.{ending}"));
                let error = Target::new(&path).unwrap().write(&of).unwrap_err().to_string();
                let start = format!("the model's outputs for {name} are not finite (");
                assert!(error.starts_with(&start) && error.contains("); train again with"), "{error}");
                assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{ending}");
            }
        }
    }

    #[test]
    fn file_ending_selects_the_format() {
        for known in ["a.npy", "b.csv", "B.CSV", "a.json", "a.jsonl", "-"] {
            assert!(Target::new(Path::new(known)).is_ok(), "{known}");
        }
        for unknown in ["a", "a.txt", "json", "a.ndjson", "a.npy.gz", "npy", "dir.csv/a"] {
            let error = Target::new(Path::new(unknown)).err().unwrap().to_string();
            assert!(error.contains(&format!("--out {unknown}: ")) && error.contains(".npy"), "{error}");
        }
    }

    #[test]
    fn a_loss_of_power_leaves_the_old_or_the_new_predictions() {
        let root = tempfile::tempdir().unwrap();
        let [old, .., new] = all();
        for name in TABLE.iter().map(|entry| format!("p.{}", entry.name)) {
            let path = root.path().join(&name);
            let target = Target::new(&path).unwrap();
            target.write(&old).unwrap();
            let write = || target.write(&new).unwrap();
            let disk = atomic::ForgettingDisk::record(root.path(), write).unwrap();
            assert_eq!(disk.mixture(&name).unwrap(), None, "{name}");
            assert!(disk.ignoring_syncs().mixture(&name).unwrap().is_some(), "{name}");
        }
    }
}
