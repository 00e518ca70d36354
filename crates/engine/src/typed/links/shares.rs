//! Shares of ranks in the batches of a run on links.
//!
//! Every rank makes the seeds of one process, and keeps the positives whose sources it owns, each
//! with its negatives. The excluded edges stay those of the whole batch.

use std::sync::Arc;

use graphmill_core::NodeId;
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
    fn fill(&self, key: BatchKey, part: &[NodeId], memory: TypedSeeds) -> Result<TypedSeeds> {
        let mut seeds = self.whole.fill(key, part, memory)?;
        let Some(links) = seeds.links.as_deref_mut() else { return Ok(seeds) };
        // pairs number the seeds of one type after those of another
        let nodes = || {
            let types = seeds.nodes.iter().enumerate();
            types.flat_map(|(t, nodes)| nodes.iter().map(move |&v| (t, v)))
        };
        let own: Vec<bool> = nodes().map(|(t, v)| self.owners[t].is_own(v)).collect();
        let mut kept: Vec<NodeId> = (0..own.len() as NodeId).collect();
        links.retain(&mut kept, |_, source| own[source as usize]);
        // those that are left keep their order
        let mut places = vec![NodeId::MAX; own.len()];
        kept.iter().for_each(|&seed| places[seed as usize] = 0);
        (0..).zip(places.iter_mut().filter(|place| **place == 0)).for_each(|(to, place)| *place = to);
        let to: Vec<NodeId> = kept.iter().map(|&seed| places[seed as usize]).collect();
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
