//! A run on a dataset of one type that stays open.

use std::sync::Arc;
#[cfg(feature = "tables")]
use std::sync::OnceLock;

use graphmill_core::{
    NodeId,
    progress::{Progress, Quiet},
};
use graphmill_data::Dataset;
use graphmill_loader::sampler::{HopSampler, inference::InferenceNeighbors};
use graphmill_nn::Matrix;

#[cfg(feature = "tables")]
use super::new_rows::{KnownNodes, NewLogits, NewNodes, Tables};
use super::{
    answers::{Neighborhood, Task},
    opened::{OpenRun, refuse_draws},
};
use crate::{
    Result, build,
    inference::Output,
    saved::{SavedRun, infer::LoadedModel},
    tiers::AllRows,
};

/// A sampler that draws for single nodes, or the reason why there is none.
type Draws = std::result::Result<Arc<dyn HopSampler>, String>;

/// A run with a dataset of one type.
pub(super) struct OneType {
    pub(super) run: SavedRun,
    pub(super) data: Dataset,
    pub(super) features: Arc<AllRows>,
    pub(super) loaded: LoadedModel,
    /// The sampler of drawn neighbours, or the reason why there is none.
    sampler: Draws,
    /// Input rows of the last layer for all nodes, if they are cached.
    below_last: Option<Matrix>,
    /// The dataset's tables with their encodings, or the reason why there are none, once read.
    #[cfg(feature = "tables")]
    pub(super) tables: OnceLock<std::result::Result<Tables, String>>,
    /// Of the known nodes what answers for new ones read, or the reason why it cannot be read, once
    /// read.
    #[cfg(feature = "tables")]
    pub(super) known: OnceLock<std::result::Result<KnownNodes, String>>,
}

impl OneType {
    /// Opens `run` on `data`.
    ///
    /// # Errors
    /// The model or its features cannot be read, or do not fit.
    pub(super) fn new(run: SavedRun, data: Dataset) -> Result<Self> {
        run.check_fit(&data, false)?;
        let rescaling = run.rescaling(&data)?;
        let features = Arc::new(run.rows(&data, rescaling.as_ref())?);
        let loaded = run.load(&data)?;
        let sampler = sampler(&run, &data);
        Ok(Self {
            run,
            data,
            features,
            loaded,
            sampler,
            below_last: None,
            #[cfg(feature = "tables")]
            tables: OnceLock::new(),
            #[cfg(feature = "tables")]
            known: OnceLock::new(),
        })
    }

    fn neighbors(&self, of: Neighborhood) -> Result<Arc<InferenceNeighbors>> {
        match of {
            Neighborhood::All => Ok(self.loaded.exact.clone()),
            Neighborhood::Drawn { seed } => draws(&self.sampler, seed),
        }
    }
}

impl OpenRun for OneType {
    fn run(&self) -> &SavedRun {
        &self.run
    }

    fn dataset(&self) -> &str {
        &self.data.name
    }

    fn num_nodes(&self) -> usize {
        self.data.num_nodes()
    }

    fn feature_dim(&self) -> usize {
        self.data.features.dim
    }

    fn task(&self) -> (Task, usize) {
        let task = match (self.loaded.predicts_values(), self.loaded.multi) {
            (true, _) => Task::Values,
            (false, true) => Task::Labels,
            (false, false) if !self.loaded.columns.is_empty() => Task::Columns,
            (false, false) => Task::Classes,
        };
        (task, self.loaded.num_outputs())
    }

    fn check(&self, of: Neighborhood) -> Result<()> {
        self.neighbors(of).map(drop)
    }

    fn rows(&self, nodes: &[NodeId], of: Neighborhood, output: Output) -> Result<Matrix> {
        let neighbors = self.neighbors(of)?;
        if let (Some(below), Neighborhood::All, Output::Logits) = (&self.below_last, of, output) {
            let rows = self.loaded.last((&self.data.graph, &*self.features), below, nodes);
            return self.run.blame_config(rows);
        }
        let rows = self.loaded.rows((&self.data.graph, &*self.features), &neighbors, nodes, output, &Quiet);
        self.run.blame_config(rows)
    }

    fn below_last(&self) -> Result<Option<[usize; 2]>> {
        Ok(self.loaded.width_below_last().map(|width| [self.num_nodes(), width]))
    }

    fn cache_below_last(&mut self, watch: &dyn Progress) -> Result<()> {
        let rows = self.loaded.below_last((&self.data.graph, &*self.features), watch);
        self.below_last = self.run.blame_config(rows)?;
        Ok(())
    }

    #[cfg(feature = "tables")]
    fn logits_of_new(&self, new: &NewNodes, of: Neighborhood) -> Result<NewLogits> {
        self.logits_of_joined(new, of, self.reads_part(of))
    }

    #[cfg(feature = "tables")]
    fn reads_part(&self, of: Neighborhood) -> bool {
        of == Neighborhood::All && !self.loaded.exact.reaches_further()
    }
}

/// The sampler of the run on the graph of `data`, or the reason why it draws for no single node.
pub(super) fn sampler(run: &SavedRun, data: &Dataset) -> Draws {
    match build::hop_sampler(&run.config, data) {
        Ok(sampler) => match InferenceNeighbors::draws(sampler.clone(), 0) {
            Ok(_) => Ok(sampler),
            Err(why) => Err(format!("--sampler {}: {why}", run.config.sampler)),
        },
        Err(error) => Err(error.to_string()),
    }
}

/// Neighbours that `sampler` draws under `seed`.
pub(super) fn draws(sampler: &Draws, seed: u64) -> Result<Arc<InferenceNeighbors>> {
    let drawn = match sampler {
        Ok(sampler) => InferenceNeighbors::draws(sampler.clone(), seed),
        Err(why) => Err(why.clone()),
    };
    Ok(Arc::new(drawn.map_err(|why| refuse_draws(seed, &why))?))
}
