//! Predictions as of a time: on the nodes and edges of a dataset that existed then.

use graphmill_core::{Buffer, NodeId};
use graphmill_data::{
    Dataset, as_of,
    typed::{self, TypedDataset, Verify, is_typed},
};
use graphmill_loader::time::TimeOptions;

use super::SavedRun;
use crate::{
    Error, Result,
    config::{events::is_of_events, link_task::seeds_are},
};

/// A dataset of one type as of a time.
pub(super) struct Past {
    /// Its nodes, and the edges that existed.
    pub(super) data: Dataset,
    /// Time from which each node exists, if nodes have times.
    time: Option<Buffer<i64>>,
}

impl SavedRun {
    /// The run with predictions as of the time `at`: by the edges and nodes that existed then. An
    /// edge of that time itself is not read, unless the run was trained with `--time-bound
    /// inclusive`. Scores are those of the whole dataset.
    ///
    /// # Errors
    /// The run did not learn targets of nodes.
    pub fn as_of(self, at: i64) -> Result<Self> {
        let learned = if is_of_events(&self.config) { "events" } else { seeds_are(&self.config) };
        match learned {
            "nodes" => Ok(Self { at: Some(at), ..self }),
            "events" => Err(Error::usage(format!(
                "--at {at}: the run learned events; rank candidates with --top-k, or use graphmill embed"
            ))),
            links => Err(Error::usage(format!(
                "--at {at}: the run learned {links}, which are not read as of a time; leave it out"
            ))),
        }
    }

    /// Time as of which the run predicts.
    pub(crate) fn at(&self) -> Option<i64> {
        self.at
    }

    /// The dataset as of the time of the run; `None` if the run has none.
    ///
    /// # Errors
    /// The dataset has no times, or damaged edges.
    pub(crate) fn types_as_of(&self, data: &TypedDataset) -> Result<Option<TypedDataset>> {
        let Some(at) = self.at else { return Ok(None) };
        let latest = self.config.own.get::<TimeOptions>().time_bound.latest(at);
        let past = as_of::as_of(data, at, latest);
        past.map(Some).map_err(|error| Error::usage(format!("--at {at}: {error}; leave it out")))
    }

    /// The dataset as of the time of the run; `None` if the run has none. Times are read from the
    /// directory of `data`.
    ///
    /// # Errors
    /// As [`SavedRun::types_as_of`]; the dataset is not in a directory.
    pub(super) fn past_of(&self, data: &Dataset) -> Result<Option<Past>> {
        let Some(at) = self.at else { return Ok(None) };
        let Some(dir) = data.directory.as_deref().filter(|dir| is_typed(dir)) else {
            return Err(Error::usage(format!(
                "--at {at}: dataset {}: no node and no edge has a time; leave it out",
                data.name
            )));
        };
        let Some(past) = self.types_as_of(&typed::open(dir, Verify::Once)?)? else { return Ok(None) };
        let time = past.nodes.first().and_then(|nodes| nodes.time.clone());
        Ok(Some(Past { data: past.to_dataset()?, time }))
    }

    /// Removes those of `nodes` that do not exist at the time of the run, if all nodes were asked
    /// for, and their ids in `requested`. `time` has the time of each node of the type.
    ///
    /// # Errors
    /// A node that was asked for does not exist, or no node does.
    pub(crate) fn keep_existing(
        &self,
        time: Option<&Buffer<i64>>,
        is_all: bool,
        (requested, nodes): (&mut Vec<NodeId>, &mut Vec<NodeId>),
    ) -> Result<()> {
        let (Some(at), Some(time)) = (self.at, time) else { return Ok(()) };
        let exists = |v: NodeId| time[v as usize] <= at;
        if !is_all && let Some(i) = nodes.iter().position(|&v| !exists(v)) {
            return Err(Error::usage(format!(
                "--at {at}: node {} exists from time {} on; use a later time, or leave the node out",
                requested[i], time[nodes[i] as usize]
            )));
        }
        let mut existing = nodes.iter().map(|&v| exists(v)).collect::<Vec<bool>>().into_iter();
        requested.retain(|_| existing.next().unwrap_or(false));
        nodes.retain(|&v| exists(v));
        if is_all
            && nodes.is_empty()
            && let Some(first) = time.iter().min()
        {
            let message = format!("the first node exists from time {first} on; use a later time");
            return Err(Error::usage(format!("--at {at}: {message}")));
        }
        Ok(())
    }
}

impl Past {
    /// Time from which each node exists, if nodes have times.
    pub(super) fn time(&self) -> Option<&Buffer<i64>> {
        self.time.as_ref()
    }
}
