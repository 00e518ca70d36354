//! Documents of answers as a stream of Arrow record batches.

use std::{collections::HashMap, sync::Arc};

use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, StringArray, UInt32Array,
};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use axum::http::{HeaderMap, StatusCode, header};
use graphmill_engine::predictor::Task;
use serde_json::{Map, Value, json};

use crate::{
    document::{Part, Reply},
    failure::Failure,
};

/// Media type of the stream.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.apache.arrow.stream";

/// Returns true if a request accepts the stream by name.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let mut kinds = values.flat_map(|value| value.split(','));
    kinds.any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(MEDIA_TYPE)))
}

/// The stream: one batch with a row for each answer. Its columns are `id` (`row` of new nodes),
/// `key` if the nodes have keys, `class` if the run learned classes, and `probabilities` or
/// `values`, a list of fixed size; the schema's metadata name the task, and the classes as a JSON
/// array. Of several columns of classes there are `class_COLUMN` and `probabilities_COLUMN` for
/// each, and the metadata have an object of arrays.
///
/// # Errors
/// The answers do not fit an Arrow array.
pub(crate) fn stream(reply: &Reply) -> Result<Vec<u8>, Failure> {
    write(reply).map_err(failed)
}

/// Failure of an answer that does not fit an Arrow array.
pub(crate) fn failed(error: ArrowError) -> Failure {
    let fix = "ask for fewer nodes, or for JSON";
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "predict", error.to_string(), fix)
}

/// A column of the stream.
pub(crate) type Column = (Field, ArrayRef);

/// A column without missing values.
pub(crate) fn column(name: &str, array: ArrayRef) -> Column {
    (Field::new(name, array.data_type().clone(), false), array)
}

/// A column of rows of `cols` numbers.
///
/// # Errors
/// The rows do not fit an Arrow array.
pub(crate) fn rows(name: &str, cols: usize, values: Vec<f32>) -> Result<Column, ArrowError> {
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let cols = i32::try_from(cols).map_err(|e| ArrowError::InvalidArgumentError(e.to_string()))?;
    let values = Arc::new(Float32Array::from(values));
    Ok(column(name, Arc::new(FixedSizeListArray::try_new(item, cols, values, None)?)))
}

/// The stream of one batch of `columns`.
///
/// # Errors
/// The columns have different lengths.
pub(crate) fn encode(columns: Vec<Column>, metadata: HashMap<String, String>) -> Result<Vec<u8>, ArrowError> {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    writer.write(&RecordBatch::try_new(schema, arrays)?)?;
    writer.into_inner()
}

fn write(reply: &Reply) -> Result<Vec<u8>, ArrowError> {
    let (answers, count) = (reply.answers, reply.answers.len());
    let mut columns: Vec<Column> = Vec::new();
    let mut add = |name: &str, array: ArrayRef| columns.push(column(name, array));
    match reply.new {
        Some(_) => add("row", Arc::new(UInt32Array::from_iter_values(0..count as u32))),
        None => add("id", Arc::new(UInt32Array::from(reply.nodes.to_vec()))),
    }
    if count > 0 && reply.key(0).is_some() {
        let keys = (0..count).map(|i| reply.key(i).unwrap_or_default());
        add("key", Arc::new(StringArray::from_iter_values(keys)));
    }
    let parts = reply.parts();
    for part in parts.iter().filter(|_| !answers.classes.is_empty()) {
        let (name, names) = (named("class", part), part.names);
        let classes = answers.classes.iter().skip(part.number).step_by(parts.len());
        match classes.clone().all(|&class| (class as usize) < names.len()) {
            true => {
                let classes = classes.map(|&class| &names[class as usize]);
                add(&name, Arc::new(StringArray::from_iter_values(classes)));
            }
            false => add(&name, Arc::new(Int64Array::from_iter_values(classes.copied()))),
        }
    }
    let task = reply.predictor.task();
    let what = if task == Task::Values { "values" } else { "probabilities" };
    for part in &parts {
        let of_node = answers.scores.chunks_exact(answers.cols.max(1));
        let scores = of_node.flat_map(|row| &row[part.range.clone()]).copied().collect();
        columns.push(rows(&named(what, part), part.range.len(), scores)?);
    }
    let mut metadata = HashMap::from([("task".to_owned(), task.name().to_owned())]);
    if parts.iter().any(|part| !part.names.is_empty()) {
        let of_column = |part: &Part| Some((part.column?.to_owned(), json!(part.names)));
        let by_column: Map<String, Value> = parts.iter().filter_map(of_column).collect();
        let classes = if by_column.is_empty() { json!(parts[0].names) } else { by_column.into() };
        metadata.insert("classes".into(), classes.to_string());
    }
    encode(columns, metadata)
}

/// Name of a column of the stream for a part of the scores.
fn named(what: &str, part: &Part) -> String {
    part.column.map_or_else(|| what.to_owned(), |column| format!("{what}_{column}"))
}
