//! Shares of ranks in the batches of a run on links.
//!
//! Every rank makes the seeds of one process, and keeps the positives whose sources it owns, each
//! with its negatives. The excluded edges stay those of the whole batch.

use std::sync::Arc;

use graphmill_core::{NodeId, memory};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{BatchKey, typed::TypedSeeds};

use super::{super::stages::SeedSource, batch::LinkSeeds};
use crate::Result;

/// Makes the share of a rank in the seeds of batches.
pub(super) struct RankSeeds<'a> {
    pub(super) whole: &'a LinkSeeds<'a>,
    /// Owners of the nodes of each type.
    pub(super) owners: &'a [Arc<NodeOwnership>],
}

impl SeedSource for RankSeeds<'_> {
    fn fill(&self, key: BatchKey, part: &[NodeId], recycled: TypedSeeds) -> Result<TypedSeeds> {
        let mut seeds = self.whole.fill(key, part, recycled)?;
        let Some(links) = seeds.links.as_deref_mut() else { return Ok(seeds) };
        // pairs number the seeds of one type after those of another
        let nodes = || {
            let types = seeds.nodes.iter().enumerate();
            types.flat_map(|(t, nodes)| nodes.iter().map(move |&v| (t, v)))
        };
        let own: Vec<bool> = memory::demand_collect(nodes().map(|(t, v)| self.owners[t].is_own(v)));
        let mut kept: Vec<NodeId> = memory::demand_collect(0..own.len() as NodeId);
        links.retain(&mut kept, |_, source| own[source as usize]);
        // those that are left keep their order
        let mut places = Vec::new();
        memory::demand_len(&mut places, own.len(), NodeId::MAX);
        kept.iter().for_each(|&seed| places[seed as usize] = 0);
        (0..).zip(places.iter_mut().filter(|place| **place == 0)).for_each(|(to, place)| *place = to);
        let to: Vec<NodeId> = memory::demand_collect(kept.iter().map(|&seed| places[seed as usize]));
        links.renumber(&to);
        let mut next = places.iter().map(|&place| place != NodeId::MAX);
        seeds.nodes.iter_mut().for_each(|nodes| nodes.retain(|_| next.next().unwrap_or_default()));
        Ok(seeds)
    }

    fn types(&self) -> Vec<usize> {
        self.whole.types()
    }

    fn train(&self) -> Vec<NodeId> {
        self.whole.train()
    }
}
