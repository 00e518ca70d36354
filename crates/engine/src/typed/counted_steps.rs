//! Steps of walks over lists in memory, whose requests between parts are counted.
//!
//! Over machines, a step of all walks of a batch is one exchange: the owner of a node draws its
//! neighbour (`crates/distributed/src/walks.rs`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use graphmill_core::{NodeId, Result, typed::TypedGraph};
use graphmill_data::partition::PartitionBook;
use graphmill_loader::{
    sampler::{PathSource, drawn_neighbor},
    typed::TypedSampler,
};

use crate::partition::Hop;

/// Lists of all nodes, with the counts of the steps that walks take.
pub(super) struct CountedSteps {
    graph: TypedGraph,
    book: Arc<PartitionBook>,
    counts: Mutex<Counts>,
}

/// Counts of the steps of one part's walks.
#[derive(Default)]
struct Counts {
    part: u16,
    /// Number of the next step of the batch.
    next: usize,
    steps: Vec<Hop>,
}

impl CountedSteps {
    /// Creates the lists of `graph`, whose nodes belong to the parts of `book`.
    pub(super) fn new(graph: &TypedGraph, book: Arc<PartitionBook>) -> Arc<Self> {
        Arc::new(Self { graph: graph.clone(), book, counts: Mutex::default() })
    }

    /// The same draws as those of `sampler`, by counted steps; `None` if it takes no steps.
    pub(super) fn sampler(self: &Arc<Self>, sampler: &dyn TypedSampler) -> Option<Box<dyn TypedSampler>> {
        sampler.by_steps(&(self.clone() as Arc<dyn PathSource>))
    }

    /// Starts a batch of a part.
    pub(super) fn begin(&self, part: u16) {
        let mut counts = self.counts();
        (counts.part, counts.next) = (part, 0);
    }

    /// Counts of each step so far, summed over batches.
    pub(super) fn steps(&self) -> Vec<Hop> {
        self.counts().steps.clone()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PathSource for CountedSteps {
    fn step(&self, relation: usize, at: &[(NodeId, u64)], to: &mut Vec<Option<NodeId>>) -> Result<()> {
        let (schema, mut counts) = (self.graph.schema(), self.counts());
        let (part, number) = (counts.part, counts.next);
        counts.next += 1;
        if counts.steps.len() <= number {
            counts.steps.resize(number + 1, Hop { is_step: true, ..Hop::default() });
        }
        let step = &mut counts.steps[number];
        step.nodes += at.len() as u64;
        to.clear();
        for &(v, word) in at {
            let neighbor = drawn_neighbor(self.graph.relation(relation), v, word);
            if self.book.part_of(schema.global(schema.relations()[relation].dst, v)) != part {
                step.requests += 1;
                step.edges += u64::from(neighbor.is_some());
            }
            to.push(neighbor);
        }
        Ok(())
    }
}
