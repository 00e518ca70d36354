//! Answers for nodes that the dataset does not hold: those of `graphmill predict --on`.
//!
//! The new nodes and their edges are joined to the graph for one call; the dataset does not change,
//! and a call sees no new nodes of another one.
//!
//! # Cost
//!
//! O(V + E), because the graph is copied, beyond the memory budget to a temporary directory.

use std::sync::Arc;

use graphmill_core::progress::{Progress, Quiet};
use graphmill_data::typed::{self, Verify};

use super::{
    Predictor,
    answers::Neighborhood,
    in_pool,
    new_rows::{NewAnswers, NewLogits, NewNodes, Tables},
    one_type::{OneType, draws, sampler},
};
use crate::{
    Error, Result,
    inference::Output,
    saved::on::{Known, encodings, joined::Joined},
};

impl Predictor {
    /// Answers for new nodes, in the order of their rows: the bits of `graphmill predict --on` if
    /// all neighbours are read. With several types, nodes and edges of other types may be new too,
    /// and the answers are those for the type that the run predicts.
    ///
    /// # Errors
    /// Tables have faults or the dataset was not imported from tables; feature rows have another
    /// width, or name no types of a dataset of several; new nodes have a type without features; an
    /// edge names an unknown node; the sampler cannot draw for single nodes; features cannot be
    /// read.
    pub fn predict_new(&self, new: &NewNodes, of: Neighborhood) -> Result<NewAnswers> {
        self.check(of)?;
        let NewLogits { rows, keys, new_edges, known_edges, unknown_values } =
            in_pool(|| self.opened.logits_of_new(new, of))?;
        Ok(NewAnswers { answers: self.answers(rows), keys, new_edges, known_edges, unknown_values })
    }
}

impl OneType {
    /// Logits of new nodes on the joined graph.
    pub(super) fn logits_of_joined(&self, new: &NewNodes, of: Neighborhood) -> Result<NewLogits> {
        let joined = self.join(new)?;
        let loaded = self.loaded.on(&self.run, &joined.data)?;
        let neighbors = match of {
            Neighborhood::All => loaded.exact.clone(),
            Neighborhood::Drawn { seed } => draws(&sampler(&self.run, &joined.data), seed)?,
        };
        let graph = (&joined.data.graph, &joined.rows);
        let rows = loaded.rows(graph, &neighbors, &joined.ids(), Output::Logits, &Quiet);
        let rows = self.run.blame_config(rows)?;
        let keys = joined.keys.as_ref();
        let keys = keys.map(|keys| NewLogits::joined_keys(keys, joined.count)).unwrap_or_default();
        let Joined { new_edges, known_edges, unknown_values, .. } = joined;
        Ok(NewLogits { rows, keys, new_edges, known_edges, unknown_values })
    }

    fn join(&self, new: &NewNodes) -> Result<Joined> {
        match new {
            NewNodes::Features(new) => self.run.join_features(&self.data, new),
            NewNodes::TypedFeatures(_) => Err(Error::usage(
                "new nodes: the dataset has one type, and the feature rows name types; pass rows without a \
                 type",
            )),
            NewNodes::Tables(new) => {
                let Tables { stored, preprocessing } = self.tables()?;
                let watch: Arc<dyn Progress> = Arc::new(Quiet);
                self.run.join_tables(&self.data, &Known::new(stored, preprocessing.clone()), new, &watch)
            }
        }
    }

    /// The dataset's tables, read by the first call.
    fn tables(&self) -> Result<&Tables> {
        let read = || {
            let (dir, preprocessing) = encodings(&self.data.name, self.data.directory.as_deref())?;
            Ok::<_, Error>(Tables { stored: typed::open(dir, Verify::Once)?, preprocessing })
        };
        let tables = self.tables.get_or_init(|| read().map_err(|error| error.to_string()));
        tables.as_ref().map_err(|why| Error::usage(why.clone()))
    }
}
