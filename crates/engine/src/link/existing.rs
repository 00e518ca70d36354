//! Times that bound negatives which exist at the time of their edge.
//!
//! The time of an edge is the latest of its own, if edges have times, and of those from which its
//! ends exist. A negative of it exists at that time.

use std::sync::Arc;

use graphmill_core::{Buffer, options::one_of};
use graphmill_data::{
    Dataset,
    typed::{self, EdgeData, Verify, is_typed},
};
use graphmill_loader::link::negatives_that;

use super::split::{Edge, TimedEdges};
use crate::{Error, Result, config::link::LinkOptions};

/// Times of the nodes and of the training edges.
#[derive(Clone, Debug)]
pub struct Existence {
    /// Time from which each node exists (`V`).
    pub nodes: Buffer<i64>,
    /// Time of each training edge.
    pub of_edges: Arc<[i64]>,
}

impl Existence {
    /// Reads the times of the nodes of `data`, and those of the edges `train`, if the negatives
    /// need them. O(E log E).
    ///
    /// # Errors
    /// The dataset stores no times of nodes, or cannot be read.
    pub(super) fn read(
        options: &LinkOptions,
        data: &Dataset,
        (train, undirected): (&[Edge], bool),
    ) -> Result<Option<Self>> {
        if !options.needs_times() {
            return Ok(None);
        }
        let dir = data.directory.as_deref().filter(|dir| is_typed(dir));
        let typed = dir.map(|dir| typed::open(dir, Verify::Once)).transpose()?;
        let nodes = typed.as_ref().and_then(|typed| typed.nodes.first()?.time.clone());
        let (Some(typed), Some(nodes)) = (typed, nodes) else {
            let usable = one_of(&negatives_that(|kind| !kind.needs_times));
            return Err(Error::usage(format!(
                "--negatives {}: {} stores no times of nodes; use --negatives {usable}, or import the nodes \
                 with their times (graphmill import tables)",
                options.negatives, data.name
            )));
        };
        let EdgeData { indptr, indices, time, .. } = &typed.edges[0];
        let of_edges = match time {
            Some(time) => TimedEdges { indptr, indices, time }.latest(train, undirected),
            None => vec![i64::MIN; train.len()],
        };
        let latest = |(&(u, v), of): (&Edge, i64)| of.max(nodes[u as usize]).max(nodes[v as usize]);
        let of_edges = train.iter().zip(of_edges).map(latest).collect();
        Ok(Some(Self { nodes, of_edges }))
    }
}
