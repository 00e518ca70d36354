//! The inverse of an export: parameters in the layout of exports become the model of a run.

use std::path::Path;

use super::{SavedRun, pyg};
use crate::{
    Error, Result, RunDir,
    checkpoint::{self, tensors::Tensor},
};

impl SavedRun {
    /// Writes the run directory `out`: options and dataset record of this run, and as its best
    /// model `weights`, by name and row by row in the layout of exports. It has no scores and no
    /// checkpoint.
    ///
    /// # Errors
    /// The model has no export to PyTorch Geometric; a parameter is missing, unknown, of another
    /// size or not finite; `out` holds a run or cannot be written.
    pub fn import_model(&self, weights: &[(String, Vec<f32>)], out: &Path) -> Result<()> {
        pyg::check(self)?;
        let refuse = |why: String| Err(Error::run(&self.dir, format!("import of a model: {why}")));
        let mut tensors = self.tensors()?;
        if let Some((name, _)) = weights.iter().find(|(name, _)| tensors.iter().all(|old| old.name != *name))
        {
            return refuse(format!("the run has no parameter '{name}'; pass a module of the same options"));
        }
        for tensor in &mut tensors {
            let mut given = weights.iter().filter(|(name, _)| *name == tensor.name);
            let (Some((name, data)), None) = (given.next(), given.next()) else {
                return refuse(format!("'{}' is not given once; pass every parameter once", tensor.name));
            };
            if data.len() != tensor.data.len() {
                let (found, expected) = (data.len(), tensor.data.len());
                return refuse(format!(
                    "'{name}' has {found} values, not {expected}; pass a module of the same options"
                ));
            }
            tensor.data = stored(tensor, data).into();
        }
        checkpoint::check_finite(&RunDir::best_model_path(out), &Tensor::borrow_all(&tensors))?;
        let run = RunDir::create(out)?;
        if let Some(origin) = &self.origin {
            origin.write(&run)?;
        }
        checkpoint::save_params(&run.best_model(), &Tensor::borrow_all(&tensors))?;
        // last: a directory without it is not a run
        run.write_config(&self.config)
    }
}

/// Values of a parameter in the layout of exports as those of the stored `tensor`.
fn stored(tensor: &Tensor, exported: &[f32]) -> Vec<f32> {
    let [rows, cols] = tensor.shape;
    if tensor.name == "weight" || tensor.name.ends_with(".weight") {
        let transposed = (0..rows).flat_map(|r| (0..cols).map(move |c| c * rows + r));
        return transposed.map(|i| exported[i]).collect();
    }
    exported.to_vec()
}

#[cfg(test)]
mod tests {
    use super::{super::oriented, *};
    use crate::{RunContext, TrainConfig, observer::Quiet, train};

    #[test]
    fn an_exported_model_comes_back_with_its_bits() {
        let dir = tempfile::tempdir().unwrap();
        let data = graphmill_data::generate::demo().unwrap();
        let config = TrainConfig { epochs: 1, hidden: 8, max_batches: 2, ..TrainConfig::default() };
        let run = RunDir::create(&dir.path().join("run")).unwrap();
        let mut observer = Quiet;
        let context = RunContext { run: Some(&run), resume: false, observer: &mut observer, stop: &|| false };
        train(&config, &data, context).unwrap();
        drop(run);
        let saved = SavedRun::open(&dir.path().join("run"), false).unwrap();
        let tensors = saved.tensors().unwrap();
        let mut weights: Vec<(String, Vec<f32>)> = tensors
            .iter()
            .map(|tensor| {
                let (name, _, data) = oriented(tensor.clone());
                (name, data)
            })
            .collect();
        // the order of the parameters is free
        weights.reverse();
        saved.import_model(&weights, &dir.path().join("copy")).unwrap();
        let copy = SavedRun::open(&dir.path().join("copy"), false).unwrap();
        assert_eq!(copy.tensors().unwrap(), tensors);
        assert_eq!(copy.config(), saved.config());

        let fails = |weights: &[(String, Vec<f32>)], why: &str| {
            let error = saved.import_model(weights, &dir.path().join("other")).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(!dir.path().join("other").exists());
        };
        fails(&weights[1..], "is not given once");
        fails(&[&weights[..], &weights[..1]].concat(), "is not given once");
        fails(&[&weights[..], &[("conv.9.bias".into(), vec![])]].concat(), "no parameter 'conv.9.bias'");
        let mut wrong = weights.clone();
        wrong[0].1.pop();
        fails(&wrong, "values, not");
        let mut wrong = weights.clone();
        wrong[0].1[0] = f32::NAN;
        fails(&wrong, "NaN");
        let error = saved.import_model(&weights, &dir.path().join("copy")).unwrap_err().to_string();
        assert!(error.contains("there is a run here already"), "{error}");
    }
}
