//! Subgraphs of a rank: those of its assigned parts, or those that graph stores draw for it.

use std::sync::Arc;

use graphmill_core::{Error as CoreError, Result as CoreResult};
use graphmill_data::Dataset;
use graphmill_distributed::subgraphs::{SUBGRAPH, StoreSubgraphs, SubgraphService};
use graphmill_loader::{
    Feature, MinibatchSampler, Sampled, Seeds, Upper, Workspace,
    sampler::{BatchRequest, SamplerProperties, SplitSampler, Surrounded},
};

use super::{AssignedParts, Ranks, assigned_parts::Surroundings};
use crate::{Result, TrainConfig, strategy};

/// Source of a rank's subgraphs.
pub(crate) struct RankSubgraphs {
    /// Parts from which this rank draws; `None` if graph stores draw for it.
    pub(crate) parts: Option<Arc<AssignedParts>>,
    /// Subgraphs of an epoch of each rank that trains.
    epoch: u64,
    /// Neighbours outside of subgraphs, if batches read them.
    surroundings: Option<Arc<Surroundings>>,
}

impl RankSubgraphs {
    /// Makes the first assignment of the parts of `data`, whose features are `rows`. A graph store
    /// serves subgraphs of its parts. All ranks call this at the same time.
    ///
    /// # Errors
    /// A rank did not take part, or its parts have no training nodes.
    pub(super) fn open(
        config: &TrainConfig,
        data: &Dataset,
        ranks: &Arc<Ranks>,
        rows: Arc<dyn Feature>,
    ) -> Result<Self> {
        let surrounds = strategy::draws_in_parts(config);
        let surroundings = surrounds.then(|| Surroundings::serve(config, data, ranks)).transpose()?;
        let surroundings = surroundings.map(Arc::new);
        let book = ranks.book();
        let parts = if book.rank() < book.first_holder() {
            ranks.meet()?;
            None
        } else {
            Some(Arc::new(AssignedParts::new(config, data, ranks.clone(), rows, surroundings.clone())?))
        };
        if let Some(parts) = parts.as_ref().filter(|_| book.num_stores() > 0) {
            // the service must not keep the messenger alive that it belongs to
            let parts = Arc::downgrade(parts);
            let draw = move |key, aggregation, workspace: &mut Workspace, seeds| match parts.upgrade() {
                Some(parts) => parts.draw(key, aggregation, workspace, seeds),
                None => Err(CoreError::invalid("the run of this graph store has ended")),
            };
            let service = SubgraphService::new(data.num_nodes(), ranks.building().clone(), Box::new(draw));
            ranks.post().serve(SUBGRAPH, Arc::new(service));
        }
        // no rank requests subgraphs before all stores serve them
        let own = parts.as_ref().map_or(0, |parts| parts.subgraphs());
        let gathered = ranks.gather(&[own as u32])?;
        let each = gathered.iter().filter_map(|words| words.first()).max().map_or(1, |&max| u64::from(max));
        let epoch = (each * book.num_holders() as u64).div_ceil(book.num_trainers() as u64);
        Ok(Self { parts, epoch, surroundings })
    }

    /// Sampler of this rank's subgraphs.
    pub(super) fn sampler(&self, ranks: &Ranks) -> Box<dyn MinibatchSampler> {
        if let Some(parts) = &self.parts {
            let layers = parts.assignment().sampler().properties().num_layers;
            return Box::new(Subgraphs { parts: parts.clone(), epoch: self.epoch, layers });
        }
        let of_stores = StoreSubgraphs::new(ranks.post().clone(), ranks.book().clone(), self.epoch);
        match &self.surroundings {
            None => Box::new(of_stores),
            Some(around) => Box::new(Surrounded::with_hops(Arc::new(of_stores), None, around.hops.clone())),
        }
    }
}

/// Sampler of [`AssignedParts`].
struct Subgraphs {
    parts: Arc<AssignedParts>,
    /// Subgraphs of an epoch of each rank that trains.
    epoch: u64,
    layers: usize,
}

impl MinibatchSampler for Subgraphs {
    fn properties(&self) -> SamplerProperties {
        SamplerProperties {
            num_layers: self.layers,
            is_random: true,
            reads_edge_weights: false,
            subgraphs: Some(self.epoch),
        }
    }

    fn sample(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> CoreResult<Sampled> {
        let assignment = self.parts.assignment();
        assignment.sampler().sample(&self.parts.own_request(&assignment, request), workspace, seeds)
    }

    fn split(&self) -> Option<&dyn SplitSampler> {
        self.parts.reads_surroundings().then_some(self as &dyn SplitSampler)
    }
}

/// Error of a sampler that draws in parts only with surroundings.
fn without_surroundings() -> CoreError {
    CoreError::invalid("subgraphs without their surroundings")
}

impl SplitSampler for Subgraphs {
    fn sample_upper(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        seeds: Seeds,
    ) -> CoreResult<Upper> {
        let assignment = self.parts.assignment();
        let request = self.parts.own_request(&assignment, request);
        let around = assignment.surrounded.as_ref().ok_or_else(without_surroundings)?;
        around.sample_upper(&request, workspace, seeds)
    }

    fn sample_bottom(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        upper: Upper,
    ) -> CoreResult<Sampled> {
        let assignment = self.parts.assignment();
        let request = self.parts.own_request(&assignment, request);
        let around = assignment.surrounded.as_ref().ok_or_else(without_surroundings)?;
        around.sample_bottom(&request, workspace, upper)
    }
}
