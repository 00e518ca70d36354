//! Predictions of the classes or values of events.
//!
//! An event is predicted at its own time, as scores are: from the memory and the neighbours before
//! its batch. No event sees itself or a later one. Training events are predicted by the same pass,
//! in the batches of training, so theirs are those of a model that has learned them.
//!
//! # Cost
//!
//! One pass over all events.

use std::path::Path;

use graphmill_core::progress::Progress;
use graphmill_data::typed::TypedDataset;
use graphmill_nn::Matrix;

use super::{as_of::selected, evaluation::Evaluation, saved::SavedEvents};
use crate::{
    Error, Result,
    predictions::{EventColumns, Predictions, Target},
    saved::{Kind, Selection, Written, keys::Names},
};

impl SavedEvents<'_> {
    /// Writes the classes or values of the events of selected sources to `out`, in the format of
    /// its ending: a row for each event, in the order of their times. Tables have the source, the
    /// destination and the time of each.
    ///
    /// # Errors
    /// The run learned links, which have candidates, or values if probabilities are asked for;
    /// embeddings are asked for; no event is selected, a node or key is unknown, the model cannot
    /// be read, `out` cannot be written, or `watch` stops the work.
    pub fn predict_targets(
        &self,
        data: &TypedDataset,
        selection: Selection,
        kind: Kind,
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        let target = Target::new(out)?;
        if kind == Kind::Embeddings {
            let message = "--embeddings: rows of a run on events are those of nodes; use graphmill embed";
            return Err(Error::usage(message));
        }
        let (stream, model) = self.load(data)?;
        let Some(targets) = stream.targets.clone() else {
            let message = "the run learned links: pass --top-k K for the K best candidates of each node, or \
                           use graphmill embed for embeddings";
            return Err(Error::usage(message));
        };
        targets.check_kind(kind)?;
        let (mut names, sources) = selected(data, stream.types[0], selection)?;
        names.classes.clone_from(&data.task(&stream.task)?.names);
        names.columns = targets.labels().columns().to_vec();
        let mut is_selected = vec![false; stream.num_nodes];
        sources.iter().for_each(|&v| is_selected[v as usize] = true);
        let source_of = stream.events.source();
        let events: Vec<u32> =
            (0..source_of.len() as u32).filter(|&e| is_selected[source_of[e as usize] as usize]).collect();
        if events.is_empty() {
            return Err(Error::dataset(
                &data.name,
                "no selected node is the source of an event; select others",
            ));
        }
        let mut evaluation = self.run.blame_config(Evaluation::new(self.config(), &stream, &model))?;
        let outputs = rayon::scope(|_| evaluation.outputs(&model, &events, watch))?;
        let outputs = Matrix::from_slice(events.len(), targets.outputs(), &outputs);
        let of = |nodes: &[u32], first: usize| -> Vec<u32> {
            events.iter().map(|&e| nodes[e as usize] - first as u32).collect()
        };
        let (nodes, times) = (of(source_of, stream.first[0]), stream.events.time());
        let mut identity = names.identity(&nodes);
        identity.of_candidates =
            Some(Box::new(Names::of_type(data, stream.types[1], Vec::new()).identity(&[])));
        identity.events = Some(EventColumns {
            destinations: of(stream.events.destination(), stream.first[1]),
            times: events.iter().map(|&e| times[e as usize]).collect(),
        });
        let found = targets.predictions(kind, outputs);
        let (cols, values) = found.map_err(|error| error.with_row_name(|row| identity.row_name(row)))?;
        let what = if targets.is_values() { "values" } else { kind.name() };
        let count = nodes.len();
        target.write(&Predictions { nodes, cols, values, identity: Some(identity) })?;
        Ok(Written::of_own(out, [count, cols], what))
    }
}
