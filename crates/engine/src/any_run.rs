//! Scores, embeddings and best candidates of a saved run of any kind: on nodes of one type or
//! several, on links, with a table of embeddings, or on a stream of events.
//!
//! Each method opens the run's dataset, or the one at `other`, as the kind of the run needs it.

#![forbid(unsafe_code)]

#[cfg(feature = "tables")]
use std::sync::Arc;
use std::{borrow::Cow, path::Path};

use graphmill_core::{End, progress::Progress};
use graphmill_data::Dataset;

#[cfg(feature = "tables")]
use crate::saved::on::{BestOfNew, NewTables};
use crate::{
    Error, Result,
    embedding::SavedEmbedding,
    events::SavedEvents,
    saved::{
        EmbedOptions, Kind, SavedRun, Scores, Selection, Written,
        links::{BestLinks, Reading},
    },
    typed::{SavedTypedRun, links::SavedTypedLinks},
};

/// Choice of candidates.
#[derive(Clone, Copy, Debug, Default)]
pub struct CandidateOptions<'a> {
    /// Number of candidates of each node.
    pub k: usize,
    /// True to read all edges, as in [`EmbedOptions::all_edges`].
    pub all_edges: bool,
    /// Relation, for a table of embeddings or links of several types; may be left out if there is
    /// one.
    pub relation: Option<&'a str>,
    /// True to rank sources of given destinations, for a run on links.
    pub sources: bool,
    /// Time, as in [`EmbedOptions::at`].
    pub at: Option<i64>,
}

impl CandidateOptions<'_> {
    /// Relation and ranked end of a table of embeddings.
    ///
    /// # Errors
    /// Wrong usage: an option is not for a table.
    pub(crate) fn of_table(&self) -> Result<(&str, End)> {
        check_at(self.at)?;
        if self.all_edges {
            let message = "--all-edges: a table of embeddings reads no edges; leave it out";
            return Err(Error::usage(message));
        }
        Ok((self.relation.unwrap_or_default(), self.end()))
    }

    /// The end that is ranked.
    fn end(&self) -> End {
        if self.sources { End::Source } else { End::Destination }
    }

    /// The edges that embeddings read.
    fn reading(&self) -> Reading {
        if self.all_edges { Reading::All } else { Reading::Training }
    }

    /// Relation and ranked end of links of several types, and the edges that are read.
    fn of_typed_links(&self) -> Result<((&str, End), Reading)> {
        check_at(self.at)?;
        Ok(((self.relation.unwrap_or_default(), self.end()), self.reading()))
    }

    /// Number of candidates and time of a run on events.
    fn of_events(&self) -> Result<(usize, Option<i64>)> {
        self.check_relation()?;
        if self.sources {
            let message = "--sources: a run on events ranks destinations; leave it out";
            return Err(Error::usage(message));
        }
        if self.all_edges {
            let message = "--all-edges: a run on events reads those before --at; leave it out";
            return Err(Error::usage(message));
        }
        Ok((self.k, self.at))
    }

    /// Number of candidates and ranked end of a run on links of one type, and the edges that it
    /// reads.
    fn of_links(&self, run: &SavedRun) -> Result<((usize, End), Reading)> {
        check_at(self.at)?;
        self.check_relation()?;
        if !run.learns_links() {
            return Err(Error::usage(
                "--top-k, --sources and --all-edges: the run learned no links; leave them out, or train with \
                 --task link",
            ));
        }
        Ok(((self.k, self.end()), self.reading()))
    }

    /// Refuses a relation for a run that has none.
    fn check_relation(&self) -> Result<()> {
        match self.relation.is_some() {
            true => Err(Error::usage(
                "--relation: it is for runs of --model embedding or lightgcn, or on links of several types; \
                 leave it out",
            )),
            false => Ok(()),
        }
    }
}

impl SavedRun {
    /// Returns true if the run learned links of any kind or events, so that it ranks candidates,
    /// and a [`LinkPredictor`](crate::predictor::LinkPredictor) answers for it.
    pub fn ranks_links(&self) -> bool {
        self.learns_links()
            || SavedTypedLinks::of(self).is_some()
            || SavedEmbedding::of(self).is_some()
            || SavedEvents::of(self).is_some()
    }

    /// Computes all metrics on each part of the split.
    ///
    /// # Errors
    /// The dataset or the model cannot be read or do not fit each other, or `watch` stops the work.
    pub fn scores_on(&self, other: Option<&Path>, watch: &dyn Progress) -> Result<Scores> {
        if let Some(table) = SavedEmbedding::of(self) {
            table.scores(&table.dataset(other)?, watch)
        } else if let Some(events) = SavedEvents::of(self) {
            events.scores(&events.dataset(other)?, watch)
        } else if let Some(links) = SavedTypedLinks::of(self) {
            links.scores(&links.dataset(other)?, watch)
        } else if let Some(typed) = SavedTypedRun::of(self) {
            typed.scores(&typed.dataset(other)?, watch)
        } else {
            self.scores(&self.dataset(other)?, watch)
        }
    }

    /// Writes embeddings to `out`; returns the name of the dataset, too.
    ///
    /// # Errors
    /// As for [`SavedRun::scores_on`]; an option is not for this kind of run, a node or key is
    /// unknown, or `out` cannot be written.
    pub fn embed_on(
        &self,
        other: Option<&Path>,
        selection: Selection,
        options: EmbedOptions,
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<(String, Written)> {
        if let Some(events) = SavedEvents::of(self) {
            check_all_edges(self, options.all_edges)?;
            let data = events.dataset(other)?;
            let of = (options.node_type.unwrap_or_default(), selection);
            let written = events.embed(&data, of, options.at, out, watch)?;
            return Ok((data.name, written));
        }
        if let Some(table) = SavedEmbedding::of(self) {
            check_all_edges(self, options.all_edges)?;
            check_at(options.at)?;
            let data = table.dataset(other)?;
            let written = table.embed(&data, options.node_type.unwrap_or_default(), selection, out)?;
            return Ok((data.name, written));
        }
        if let Some(links) = SavedTypedLinks::of(self) {
            check_at(options.at)?;
            let data = links.dataset(other)?;
            let reading = if options.all_edges { Reading::All } else { Reading::Training };
            let of = (options.node_type.unwrap_or_default(), selection);
            let written = links.embed(&data, of, reading, out, watch)?;
            return Ok((data.name, written));
        }
        if let Some(typed) = SavedTypedRun::of(self) {
            check_all_edges(self, options.all_edges)?;
            check_node_type(options)?;
            let data = typed.dataset(other)?;
            let written = typed.embed(&data, selection, options, out, watch)?;
            return Ok((data.name, written));
        }
        let data = self.dataset(other)?;
        let written = self.embed(&data, selection, options, out, watch)?;
        Ok((data.name, written))
    }

    /// Writes predictions of nodes to `out`, or of the events of selected sources by a run on
    /// classes or values of events; returns the name of the dataset, too.
    ///
    /// # Errors
    /// As for [`SavedRun::scores_on`]; the run learned links, `original` ids are asked for where
    /// there are none, a node or key is unknown, or `out` cannot be written.
    pub fn predict_on(
        &self,
        other: Option<&Path>,
        (selection, original): (Selection, bool),
        (kind, out): (Kind, &Path),
        watch: &dyn Progress,
    ) -> Result<(String, Written)> {
        if let Some(events) = SavedEvents::of(self) {
            if original {
                let message = "--original-ids: events have no ids of a reordered dataset; leave it out";
                return Err(Error::usage(message));
            }
            let data = events.dataset(other)?;
            let written = events.predict_targets(&data, selection, kind, out, watch)?;
            return Ok((data.name, written));
        }
        if let Some(typed) = SavedTypedRun::of(self) {
            let data = typed.dataset(other)?;
            let written = typed.predict(&data, selection, original, kind, out, watch)?;
            return Ok((data.name, written));
        }
        let data = self.dataset(other)?;
        let written = self.predict_selection(&data, selection, original, kind, out, watch)?;
        Ok((data.name, written))
    }

    /// Writes embeddings of nodes of `data`, by a run on nodes of one type or on links.
    ///
    /// # Errors
    /// As for [`SavedRun::embed_on`].
    pub fn embed(
        &self,
        data: &Dataset,
        selection: Selection,
        options: EmbedOptions,
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        check_all_edges(self, options.all_edges)?;
        check_node_type(options)?;
        if self.learns_links() {
            check_at(options.at)?;
            let reading = if options.all_edges { Reading::All } else { Reading::Training };
            return self.embed_links(data, selection, reading, out, watch);
        }
        let run = self.seen_from(options.at)?;
        run.predict_selection(data, selection, false, Kind::Embeddings, out, watch)
    }

    /// The run as of a time, if one is given.
    ///
    /// # Errors
    /// As [`SavedRun::as_of`].
    pub(crate) fn seen_from(&self, at: Option<i64>) -> Result<Cow<'_, Self>> {
        match at {
            Some(at) => Ok(Cow::Owned(self.clone().as_of(at)?)),
            None => Ok(Cow::Borrowed(self)),
        }
    }

    /// Best candidates of nodes.
    ///
    /// # Errors
    /// As for [`SavedRun::scores_on`]; the run learned no links, an option is not for this kind of
    /// run, or a node, key or relation is unknown.
    pub fn candidates_on(
        &self,
        other: Option<&Path>,
        selection: Selection,
        options: CandidateOptions,
        watch: &dyn Progress,
    ) -> Result<BestLinks> {
        if let Some(table) = SavedEmbedding::of(self) {
            table.best(&table.dataset(other)?, options.of_table()?, selection, options.k)
        } else if let Some(events) = SavedEvents::of(self) {
            events.best(&events.dataset(other)?, selection, options.of_events()?, watch)
        } else if let Some(links) = SavedTypedLinks::of(self) {
            let (of, reading) = options.of_typed_links()?;
            links.best(&links.dataset(other)?, of, (selection, options.k, reading), watch)
        } else {
            options.of_links(self)?;
            self.candidates(&self.dataset(other)?, selection, options, watch)
        }
    }

    /// Best candidates of nodes of `data`, by a run on links of one type.
    ///
    /// # Errors
    /// As for [`SavedRun::candidates_on`].
    pub fn candidates(
        &self,
        data: &Dataset,
        selection: Selection,
        options: CandidateOptions,
        watch: &dyn Progress,
    ) -> Result<BestLinks> {
        let (of, reading) = options.of_links(self)?;
        self.best_links(data, selection, of, reading, watch)
    }

    /// Writes the best candidates of nodes to `out`; returns the name of the dataset, too.
    ///
    /// # Errors
    /// As for [`SavedRun::candidates_on`]; `out` cannot be written or has a format of one type.
    pub fn write_candidates_on(
        &self,
        other: Option<&Path>,
        selection: Selection,
        options: CandidateOptions,
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<(String, Written)> {
        if let Some(table) = SavedEmbedding::of(self) {
            let of = options.of_table()?;
            let data = table.dataset(other)?;
            let written = table.predict(&data, of, selection, options.k, out)?;
            return Ok((data.name, written));
        }
        if let Some(events) = SavedEvents::of(self) {
            let of = options.of_events()?;
            let data = events.dataset(other)?;
            let written = events.predict(&data, selection, of, out, watch)?;
            return Ok((data.name, written));
        }
        if let Some(links) = SavedTypedLinks::of(self) {
            let (of, reading) = options.of_typed_links()?;
            let data = links.dataset(other)?;
            let written = links.predict(&data, of, (selection, options.k, reading), out, watch)?;
            return Ok((data.name, written));
        }
        let (of, reading) = options.of_links(self)?;
        let data = self.dataset(other)?;
        let written = self.predict_links(&data, selection, of, reading, out, watch)?;
        Ok((data.name, written))
    }

    /// Best candidates of new nodes, which the run's dataset does not hold; returns the name of the
    /// dataset, too.
    ///
    /// # Errors
    /// The run is not one on links, or its model has a row for each node of training; `options` are
    /// not for its kind; or those of [`SavedRun::predict_new`] but for the output.
    #[cfg(feature = "tables")]
    pub fn new_candidates_on(
        &self,
        other: Option<&Path>,
        new: &NewTables,
        options: CandidateOptions,
        watch: &Arc<dyn Progress>,
    ) -> Result<(String, BestOfNew)> {
        self.check_new_nodes()?;
        if let Some(links) = SavedTypedLinks::of(self) {
            let (of, reading) = options.of_typed_links()?;
            let data = links.dataset(other)?;
            let found = links.best_of_new(&data, of, new, (options.k, reading), watch)?;
            return Ok((data.name, found));
        }
        let of = options.of_links(self)?;
        let data = self.dataset(other)?;
        let found = self.best_of_new(&data, new, of, watch)?;
        Ok((data.name, found))
    }
}

/// Refuses to read all edges in a run that leaves out none.
fn check_all_edges(run: &SavedRun, all_edges: bool) -> Result<()> {
    match all_edges && !run.learns_links() {
        true => Err(Error::usage("--all-edges: only runs on links leave out edges; leave it out")),
        false => Ok(()),
    }
}

/// Refuses a node type for a run without a table of embeddings and without events.
fn check_node_type(options: EmbedOptions) -> Result<()> {
    match options.node_type {
        Some(_) => Err(Error::usage(
            "--node-type: it is for runs of --model embedding or lightgcn, on links of several types, or on \
             events; leave it out",
        )),
        None => Ok(()),
    }
}

/// Refuses a time for a run that learned links.
fn check_at(at: Option<i64>) -> Result<()> {
    match at {
        Some(at) => Err(Error::usage(format!(
            "--at {at}: only runs on streams of events and on nodes look from a time; leave it out"
        ))),
        None => Ok(()),
    }
}
