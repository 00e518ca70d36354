//! Export for PyTorch Geometric: `model.py` builds the module from `model.json` and
//! `weights.safetensors`.

use std::path::{Path, PathBuf};

use graphmill_data::atomic::{self, Real};

use super::{SavedRun, check_layers, write_weights};
use crate::{Error, Result};

/// Module that builds the model.
const MODULE: &str = include_str!("model.py");

/// Models that `model.py` builds.
const MODELS: &[&str] = &["sage", "gcn", "gat", "gatv2", "gin", "mixhop", "pinsage"];

/// Refuses models that `model.py` does not build.
pub(super) fn check(run: &SavedRun) -> Result<()> {
    check_layers(run, "pyg", MODELS)
}

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_layer_has_a_module() {
        let layers: BTreeSet<&str> = graphmill_nn::layer::TABLE.iter().map(|entry| entry.name).collect();
        assert_eq!(super::MODELS.iter().copied().collect::<BTreeSet<_>>(), layers);
    }
}
