//! Feature rows of a dataset in tiers: caches in memory over the disk.

use std::sync::Arc;

use graphmill_core::features::FeatureData;
use graphmill_data::typed::{TableData, Values};
use graphmill_engine::{TrainConfig, options, run::tiers, typed as engine};
use graphmill_loader::{Feature, feature::Traffic};
use numpy::{Element, PyArrayDescr};
use pyo3::{prelude::*, types::PyDict};

use super::{
    array,
    dataset::Dataset,
    error,
    given::locate,
    run::{configure, read_options},
    typed::TypedDataset,
    wait,
};
use crate::{table::Table, tiered::Tiered, typed::blocks};

/// Feature rows that a loader gathers through tiers.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(super) struct Tiers {
    /// Rows of each type; `None` for a type whose rows no tier holds. The only ones of a dataset of
    /// one type.
    tables: Vec<Option<TypeRows>>,
    description: String,
    has_devices: bool,
}

/// Rows of a type in tiers.
struct TypeRows {
    rows: Arc<Tiered>,
    dim: usize,
    is_half: bool,
}

impl TypeRows {
    fn new(rows: Arc<dyn Feature>, is_half: bool) -> Self {
        Self { dim: rows.dim(), rows: Arc::new(Tiered::new(rows, is_half)), is_half }
    }
}

/// Name, numbers for each edge type or node type, and options of a typed sampler.
type Sampler = (String, Vec<Vec<i64>>, String);

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
        let mut config = config_of(options, &given)?;
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
        let is_half = matches!(data.features.data, FeatureData::F16(_));
        if data.features.dim == 0 {
            return Err(error::value(format!(
                "dataset {}: it has no features, so tiers have nothing to hold; leave out the tier options",
                data.name
            )));
        }
        let opened = wait::quietly(py, move |progress| tiers::open(&config, &data, progress))?;
        let tiers::Tiers { feature, description, has_devices } = opened.map_err(error::engine)?;
        Ok(Self { tables: vec![Some(TypeRows::new(feature, is_half))], description, has_devices })
    }

    /// Opens the tiers of several types, as [`Tiers::new`] does for one. Caches are filled by the
    /// hotness of batches of seeds, which are the nodes of `columns` (types and ids), or if
    /// `together` those at the same place of each column, by this sampler.
    #[staticmethod]
    fn of_types(
        py: Python<'_>,
        dataset: &TypedDataset,
        columns: Vec<(usize, Bound<'_, PyAny>)>,
        together: bool,
        sampler: Sampler,
        options: &str,
        given: Vec<String>,
    ) -> PyResult<Self> {
        let mut config = config_of(options, &given)?;
        locate(&mut config, dataset.path.as_deref());
        let (name, numbers, own) = sampler;
        let mut of_sampler = TrainConfig::default();
        read_options(&mut of_sampler, &own, &blocks::options())?;
        let data = dataset.data.clone();
        let read = |(t, ids): &(usize, Bound<'_, PyAny>)| {
            let count = data.nodes.get(*t).map_or(0, |nodes| nodes.count);
            array::nodes("seeds", ids, count).map(|ids| (*t, ids))
        };
        let columns = columns.iter().map(read).collect::<PyResult<Vec<_>>>()?;
        let opened = wait::quietly(py, move |progress| {
            let graph = data.graph().map_err(graphmill_engine::Error::from)?;
            let how = (&name[..], &numbers[..], of_sampler.own);
            let sampler = blocks::make_sampler(&graph, how, config.seed);
            let sampler = sampler.map_err(graphmill_engine::Error::Usage)?;
            let seeds = seeds_of(&columns, together);
            engine::open_tiers(&config, (&data, graph), (&seeds, &*sampler), progress)
        })?;
        let engine::OpenTypedTiers { tables, description, has_devices } = opened.map_err(error::engine)?;
        let is_half = dataset.data.nodes.iter().map(|nodes| {
            let data = nodes.features.as_ref().map(|table| &table.data);
            matches!(data, Some(TableData::Dense(Values::F16(_))))
        });
        let tables = tables.into_iter().zip(is_half);
        let tables = tables.map(|(rows, is_half)| Some(TypeRows::new(rows?, is_half))).collect();
        Ok(Self { tables, description, has_devices })
    }

    /// Numbers of the types whose rows are in tiers.
    #[getter]
    fn types(&self) -> Vec<usize> {
        (0..self.tables.len()).filter(|&t| self.tables[t].is_some()).collect()
    }

    /// Description of the tiers.
    #[getter]
    fn description(&self) -> &str {
        &self.description
    }

    /// Rows, bytes and seconds of each tier, and the hit rate of the nearest, of all types.
    fn traffic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut traffic = Traffic::default();
        self.tables.iter().flatten().for_each(|of| traffic += of.rows.traffic());
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
    /// The rows of a type, the shape of a row, and the type of its values.
    pub(super) fn table(&self, py: Python<'_>, t: usize) -> PyResult<(Table, Vec<usize>, Py<PyArrayDescr>)> {
        let Some(Some(TypeRows { rows, dim, is_half })) = self.tables.get(t) else {
            return Err(error::value(format!("no tier holds rows of type {t}")));
        };
        let descr = if *is_half { half::f16::get_dtype(py) } else { f32::get_dtype(py) };
        Ok((Table::Tiered(rows.clone()), vec![*dim], descr.unbind()))
    }
}

/// Configuration of the tiers that `options` describe, of which the user set those in `given`.
fn config_of(options: &str, given: &[String]) -> PyResult<TrainConfig> {
    let mut config = TrainConfig::default();
    configure(&mut config, options, &options::names())?;
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    config.refuse_unused(&given).map_err(error::engine)?;
    Ok(config)
}

/// Seeds of one node each, or of those at the same place of each column.
fn seeds_of(columns: &[(usize, Vec<u32>)], together: bool) -> engine::ProgramSeeds {
    if !together {
        let nodes = columns.iter().flat_map(|(t, ids)| ids.iter().map(|&v| (*t, v))).collect();
        return engine::ProgramSeeds { nodes, each: 1 };
    }
    let rows = columns.iter().map(|(_, ids)| ids.len()).min().unwrap_or(0);
    let row = |i: usize| columns.iter().map(move |(t, ids)| (*t, ids[i]));
    engine::ProgramSeeds { nodes: (0..rows).flat_map(row).collect(), each: columns.len() }
}
