//! Options of a run by the function that takes them, for help and for the types of keywords.

use graphmill_core::options::Kind;
use graphmill_engine::{
    TrainConfig, bench, hotness,
    options::{keys, names},
};
use pyo3::prelude::*;

use super::{
    error, export,
    run::{options_of_hotness_report, options_of_partition_report},
};

/// An option: name, placeholder of its value, default as JSON, help, kind of value, choices.
type Described = (&'static str, &'static str, String, String, &'static str, Option<Vec<&'static str>>);

/// Options of a run that the function `of` takes.
///
/// # Errors
/// The function takes no options of a run.
#[pyfunction]
pub(super) fn options(of: &str) -> PyResult<Vec<Described>> {
    let taken = match of {
        "train" => names(),
        "hotness" => hotness::options_of_scores(),
        "hotness_report" => options_of_hotness_report(),
        "partition_report" => options_of_partition_report(),
        "bench" => bench::options(),
        "plan" => graphmill_plan::all_options(),
        "reorder" => export::options(),
        other => return Err(error::value(format!("of '{other}': the function takes no options of a run"))),
    };
    let config = TrainConfig::default();
    let described = keys().into_iter().filter(|key| taken.contains(&key.name)).map(|key| {
        let default = key.write(&config).to_string();
        (key.name, key.value, default, key.long_help(), kind_name(key.kind()), key.choices())
    });
    Ok(described.collect())
}

/// Name of a kind of value.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Switch => "switch",
        Kind::Integer => "integer",
        Kind::Number => "number",
        Kind::Text => "text",
        Kind::Choice(_) => "choice",
        Kind::Word => "word",
    }
}
