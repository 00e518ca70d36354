//! Kinds of models: what the outputs of a run are, and of how many types.

use super::SavedRun;
use crate::{config::link_task::is_link, embedding::SavedEmbedding, typed::SavedTypedRun};

/// Kind of a model.
#[derive(Clone, Copy)]
pub(super) enum Kind<'r> {
    /// Scores or values of nodes of one type.
    Nodes,
    /// Scores of pairs of nodes of one type.
    Links,
    /// Scores or values of nodes by a model of types.
    TypedNodes(SavedTypedRun<'r>),
    /// Scores of pairs of nodes by a model of types.
    TypedLinks(SavedTypedRun<'r>),
    /// A table of embeddings: scores of pairs of nodes.
    Table,
}

impl<'r> Kind<'r> {
    /// Kind of the model of a run.
    pub(super) fn of(run: &'r SavedRun) -> Self {
        if SavedEmbedding::of(run).is_some() {
            return Self::Table;
        }
        if let Some(of) = SavedTypedRun::of_links(run) {
            return Self::TypedLinks(of);
        }
        match SavedTypedRun::of(run) {
            Some(of) => Self::TypedNodes(of),
            None if is_link(run.config()) => Self::Links,
            None => Self::Nodes,
        }
    }

    /// Returns true if a decoder scores pairs of rows.
    pub(super) fn has_decoder(self) -> bool {
        matches!(self, Self::Links | Self::TypedLinks(_) | Self::Table)
    }
}
