//! The extension module `graphmill._graphmill`. Its names are internal: users see those of the
//! package's Python files.
//!
//! Long calls release the interpreter's lock. Errors are Python exceptions: `ValueError` for an
//! invalid value, `TypeError` for an array of a wrong type, `OSError` for files,
//! `KeyboardInterrupt` after Ctrl-C.

mod array;
#[cfg(unix)]
mod bad_page;
mod blocks;
mod catalogue;
mod columns;
mod dataset;
mod error;
mod events;
mod export;
mod generate;
mod given;
mod import;
mod link_predictor;
mod links;
mod loader;
mod machine;
mod options;
mod predictor;
mod records;
mod repeat;
mod run;
mod saved;
mod sweep;
mod tables;
mod tiers;
mod topology;
mod typed;
mod typed_blocks;
mod typed_loader;
mod wait;

use pyo3::prelude::*;

#[pymodule]
fn _graphmill(m: &Bound<'_, PyModule>) -> PyResult<()> {
    #[cfg(unix)]
    bad_page::install();
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<dataset::Dataset>()?;
    m.add_class::<typed::TypedDataset>()?;
    m.add_class::<tables::Table>()?;
    m.add_class::<predictor::Predictor>()?;
    m.add_class::<link_predictor::LinkPredictor>()?;
    m.add_class::<tiers::Tiers>()?;
    m.add_class::<topology::Topology>()?;
    m.add_class::<loader::Source>()?;
    m.add_class::<loader::Batches>()?;
    m.add_class::<typed_loader::TypedSource>()?;
    m.add_class::<typed_loader::TypedBatches>()?;
    m.add_class::<typed_blocks::TypedBlockSource>()?;
    m.add_class::<typed_blocks::TypedBlockBatches>()?;
    m.add_class::<events::Events>()?;
    m.add_class::<events::LastNeighbors>()?;
    m.add_class::<blocks::BlockSource>()?;
    m.add_class::<blocks::BlockBatches>()?;
    m.add_function(wrap_pyfunction!(loader::order, m)?)?;
    m.add_function(wrap_pyfunction!(loader::num_batches, m)?)?;
    m.add_function(wrap_pyfunction!(links::negatives, m)?)?;
    m.add_function(wrap_pyfunction!(links::rank_metric, m)?)?;
    m.add_function(wrap_pyfunction!(given::is_typed, m)?)?;
    m.add_function(wrap_pyfunction!(run::needs_directory, m)?)?;
    m.add_function(wrap_pyfunction!(run::train, m)?)?;
    m.add_function(wrap_pyfunction!(repeat::repeat_plan, m)?)?;
    m.add_function(wrap_pyfunction!(repeat::repeated, m)?)?;
    m.add_function(wrap_pyfunction!(saved::evaluate, m)?)?;
    m.add_function(wrap_pyfunction!(saved::predict, m)?)?;
    m.add_function(wrap_pyfunction!(saved::predict_new, m)?)?;
    m.add_function(wrap_pyfunction!(saved::embed, m)?)?;
    m.add_function(wrap_pyfunction!(saved::candidates, m)?)?;
    m.add_function(wrap_pyfunction!(saved::candidates_of_new, m)?)?;
    m.add_function(wrap_pyfunction!(saved::export_model, m)?)?;
    m.add_function(wrap_pyfunction!(saved::import_model, m)?)?;
    m.add_function(wrap_pyfunction!(run::hotness, m)?)?;
    m.add_function(wrap_pyfunction!(run::hotness_report, m)?)?;
    m.add_function(wrap_pyfunction!(options::options, m)?)?;
    m.add_function(wrap_pyfunction!(run::partition, m)?)?;
    m.add_function(wrap_pyfunction!(run::partition_types, m)?)?;
    m.add_function(wrap_pyfunction!(run::partition_report, m)?)?;
    m.add_function(wrap_pyfunction!(records::summary, m)?)?;
    m.add_function(wrap_pyfunction!(records::write_report, m)?)?;
    m.add_function(wrap_pyfunction!(records::runs, m)?)?;
    m.add_function(wrap_pyfunction!(sweep::sweep, m)?)?;
    m.add_function(wrap_pyfunction!(catalogue::datasets, m)?)?;
    m.add_function(wrap_pyfunction!(catalogue::download, m)?)?;
    m.add_function(wrap_pyfunction!(machine::doctor, m)?)?;
    m.add_function(wrap_pyfunction!(machine::bench, m)?)?;
    m.add_function(wrap_pyfunction!(machine::plan, m)?)?;
    m.add_function(wrap_pyfunction!(machine::plan_machines, m)?)?;
    m.add_function(wrap_pyfunction!(export::info, m)?)?;
    m.add_function(wrap_pyfunction!(export::export_dataset, m)?)?;
    m.add_function(wrap_pyfunction!(export::reorder, m)?)?;
    m.add_function(wrap_pyfunction!(generate::generate, m)?)?;
    m.add_function(wrap_pyfunction!(tables::import_tables, m)?)?;
    m.add_function(wrap_pyfunction!(tables::append_tables, m)?)?;
    m.add_function(wrap_pyfunction!(tables::plan_tables, m)?)?;
    m.add_function(wrap_pyfunction!(import::import_dataset, m)?)
}
