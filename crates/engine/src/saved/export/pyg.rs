//! Export for PyTorch Geometric: `model.py` builds the module from `model.json` and
//! `weights.safetensors`.

use std::path::{Path, PathBuf};

use graphmill_core::options::one_of;
use graphmill_data::atomic::{self, Real};

use super::{SavedRun, write_weights};
use crate::{Error, Result, config::link_task::is_link};

/// Module that builds the model.
const MODULE: &str = include_str!("model.py");

/// Models that the module builds.
const MODELS: &[&str] = &["sage", "gcn", "gat", "gin"];

/// Samplers whose inference weights the neighbours, which the module does not.
const WEIGHTED: &[&str] = &["weighted", "labor", "random-walk"];

/// Writes the directory `out`.
pub(super) fn write(run: &SavedRun, out: &Path) -> Result<Vec<PathBuf>> {
    check(run)?;
    std::fs::create_dir_all(out).map_err(|error| Error::io(out, "create", error))?;
    let [module, options, weights] =
        ["model.py", "model.json", "weights.safetensors"].map(|name| out.join(name));
    write_weights(run, &weights)?;
    let text = format!("{:#}\n", run.model_options()?);
    atomic::replace(&mut Real, &options, text.as_bytes())?;
    atomic::replace(&mut Real, &module, MODULE.as_bytes())?;
    Ok(vec![module, options, weights])
}

/// Refuses models that the module cannot build.
fn check(run: &SavedRun) -> Result<()> {
    let config = run.config();
    let refuse = |why: String| {
        let remedy = "export the weights with --to safetensors";
        Err(Error::usage(format!("--to pyg: {why}; {remedy}")))
    };
    if run.is_special() || !MODELS.contains(&config.model.as_str()) {
        return refuse(format!("--model {} is not one of {}", config.model, one_of(MODELS)));
    }
    if is_link(config) {
        return refuse("the run learned links".into());
    }
    let options = config.to_json();
    for (name, only) in [("aggregator", "mean"), ("sage_combine", "add")] {
        if config.model == "sage" && options[name] != only {
            return refuse(format!("--{} {} is not {only}", name.replace('_', "-"), options[name]));
        }
    }
    if WEIGHTED.contains(&config.sampler.as_str()) {
        return refuse(format!("--sampler {} weights the neighbours", config.sampler));
    }
    Ok(())
}
