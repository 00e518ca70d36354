//! The option `--fanout` of datasets of several types: `15,10;cites=5,0` has numbers for all
//! relations, which every run has, and exceptions by name.

use graphmill_core::options::Fault;
use graphmill_loader::{Fanout, typed::TypedFanout};
use serde_json::Value as Json;

/// Name of the option.
pub(super) const FANOUT: &str = "fanout";
/// Name of the field with the exceptions.
pub(super) const FANOUT_BY_NAME: &str = "fanout_by_name";

/// Splits a value of the option into the numbers for all relations and the exceptions.
///
/// # Errors
/// An exception cannot be read.
pub(super) fn split(value: &Json) -> Result<(Json, String), Fault> {
    let Some((all, by_name)) = value.as_str().and_then(|word| word.split_once(';')) else {
        return Ok((value.clone(), String::new()));
    };
    let fault = |message| Fault { option: Some(FANOUT.into()), message };
    value.as_str().unwrap_or_default().parse::<TypedFanout>().map_err(fault)?;
    Ok((all.into(), by_name.trim().into()))
}

/// The value of the option with exceptions.
pub(super) fn join(all: &Fanout, by_name: &str) -> String {
    format!("{all};{by_name}")
}
