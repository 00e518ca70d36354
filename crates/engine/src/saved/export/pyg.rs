//! Export for PyTorch Geometric: `model.py` builds the module from `model.json` and
//! `weights.safetensors`. It joins `model.py` of this directory with the layers of one type or of
//! several.

use std::path::{Path, PathBuf};

use graphmill_data::atomic::{self, Real};

use super::{SavedRun, check_columns, check_layers, typed, write_weights};
use crate::{Error, Result, typed::SavedTypedRun};

/// Module that builds a model of one node type.
const MODULE: &str = concat!(include_str!("model.py"), "\n\n", include_str!("model_one_type.py"));
/// Module that builds a model of several types.
const TYPED_MODULE: &str = concat!(include_str!("model.py"), "\n\n", include_str!("model_typed.py"));

/// Models that [`MODULE`] builds.
const MODELS: &[&str] = &["sage", "gcn", "gat", "gatv2", "gin", "mixhop", "pinsage"];

/// Refuses models that no module builds.
pub(super) fn check(run: &SavedRun) -> Result<()> {
    match SavedTypedRun::of(run) {
        Some(of) => check_columns(run, "pyg").and_then(|()| typed::check(of, "pyg")),
        None => check_layers(run, "pyg", MODELS),
    }
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
    let text = if SavedTypedRun::of(run).is_some() { TYPED_MODULE } else { MODULE };
    atomic::replace(&mut Real, &module, text.as_bytes())?;
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
