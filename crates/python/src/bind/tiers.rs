//! Feature rows of a dataset in tiers: caches in memory over the disk.

use std::sync::Arc;

use graphmill_core::features::FeatureData;
use graphmill_engine::{TrainConfig, options, run::tiers};
use numpy::{Element, PyArrayDescr};
use pyo3::{prelude::*, types::PyDict};

use super::{array, dataset::Dataset, error, given::locate, run::configure, wait};
use crate::{table::Table, tiered::Tiered};

/// Feature rows that a loader gathers through tiers.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(super) struct Tiers {
    rows: Arc<Tiered>,
    dim: usize,
    is_half: bool,
    description: String,
    has_devices: bool,
}

#[pymethods]
impl Tiers {
    /// Opens the tiers that `options` of `train` configure; `given` lists the options that the user
    /// set. Caches are filled by the hotness of batches around `inputs`, or around the training
    /// nodes if that is `None`.
    #[new]
    fn new(
        py: Python<'_>,
        dataset: &Dataset,
        inputs: Option<&Bound<'_, PyAny>>,
        options: &str,
        given: Vec<String>,
    ) -> PyResult<Self> {
        let mut config = TrainConfig::default();
        configure(&mut config, options, &options::names())?;
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        config.refuse_unused(&given).map_err(error::engine)?;
        locate(&mut config, dataset.path.as_deref());
        let mut data = (*dataset.data).clone();
        if let Some(inputs) = inputs {
            let mut train = array::nodes("input_nodes", inputs, data.num_nodes())?;
            train.sort_unstable();
            train.dedup();
            if !train.is_empty() {
                data.split.train = train.into();
            }
        }
        let (dim, is_half) = (data.features.dim, matches!(data.features.data, FeatureData::F16(_)));
        if dim == 0 {
            return Err(error::value(format!(
                "dataset {}: it has no features, so tiers have nothing to hold; leave out the tier options",
                data.name
            )));
        }
        let opened = wait::quietly(py, move |progress| tiers::open(&config, &data, progress))?;
        let tiers::Tiers { feature, description, has_devices } = opened.map_err(error::engine)?;
        let rows = Arc::new(Tiered::new(feature, is_half));
        Ok(Self { rows, dim, is_half, description, has_devices })
    }

    /// Description of the tiers.
    #[getter]
    fn description(&self) -> &str {
        &self.description
    }

    /// Rows, bytes and seconds of each tier, and the hit rate of the nearest.
    fn traffic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let traffic = self.rows.traffic();
        let all = PyDict::new(py);
        for (name, tier) in traffic.tiers().into_iter().filter(|(name, _)| *name != "remote") {
            let of_tier = PyDict::new(py);
            of_tier.set_item("rows", tier.rows)?;
            of_tier.set_item("bytes", tier.bytes)?;
            of_tier.set_item("seconds", tier.seconds())?;
            all.set_item(name, of_tier)?;
        }
        all.set_item("hit_rate", traffic.hit_rate(self.has_devices))?;
        Ok(all)
    }
}

impl Tiers {
    /// The rows, the shape of a row, and the type of its values.
    pub(super) fn table(&self, py: Python<'_>) -> (Table, Vec<usize>, Py<PyArrayDescr>) {
        let descr = if self.is_half { half::f16::get_dtype(py) } else { f32::get_dtype(py) };
        (Table::Tiered(self.rows.clone()), vec![self.dim], descr.unbind())
    }
}
