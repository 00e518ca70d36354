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
use graphmill_data::{
    tables::Preprocessing,
    typed::{self, KEY_SEPARATOR, TypedDataset, Verify},
};

use super::{Answers, Neighborhood, Predictor, draws, sampler};
use crate::{
    Error, Result,
    inference::Output,
    saved::on::{Known, NewFeatures, NewTables, encodings, joined::Joined},
};

/// Nodes that the dataset does not hold, and their edges.
#[derive(Clone, Debug)]
pub enum NewNodes {
    /// Rows with the columns of the imported tables, which the dataset's statistics encode.
    Tables(NewTables),
    /// Feature rows, for a dataset of any origin.
    Features(NewFeatures),
}

/// Answers for new nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAnswers {
    /// Answers in the order of the rows.
    pub answers: Answers,
    /// Keys of the rows of tables; empty for feature rows.
    pub keys: Vec<String>,
    /// Number of edges of new nodes.
    pub new_edges: usize,
    /// Number of edges between known nodes, which are left out.
    pub known_edges: u64,
    /// Columns with values that the encodings do not know, with the number of such values. They are
    /// encoded as zeros.
    pub unknown_values: Vec<(String, u64)>,
}

/// Tables of a dataset with the encodings of their columns.
pub(super) struct Tables {
    stored: TypedDataset,
    preprocessing: Preprocessing,
}

impl Predictor {
    /// Answers for new nodes, in the order of their rows: the bits of `graphmill predict --on` if
    /// all neighbours are read.
    ///
    /// # Errors
    /// Tables have faults or the dataset was not imported from tables; feature rows have another
    /// width; an edge names an unknown node; the sampler cannot draw for single nodes; features
    /// cannot be read.
    pub fn predict_new(&self, new: &NewNodes, of: Neighborhood) -> Result<NewAnswers> {
        self.check(of)?;
        let joined = self.join(new)?;
        let loaded = self.loaded.on(&self.run, &joined.data)?;
        let neighbors = match of {
            Neighborhood::All => loaded.exact.clone(),
            Neighborhood::Drawn { seed } => draws(&sampler(&self.run, &joined.data), seed)?,
        };
        let graph = (&joined.data.graph, &joined.rows);
        let rows = loaded.rows(graph, &neighbors, &joined.ids(), Output::Logits, &Quiet);
        let answers = self.answers(self.run.blame_config(rows)?);
        let key = |keys: &typed::Keys, i| keys.get(i).to_string().replace(KEY_SEPARATOR, "|");
        let keys = joined.keys.as_ref();
        let keys = keys.map(|keys| (0..joined.count).map(|i| key(keys, i)).collect()).unwrap_or_default();
        let Joined { new_edges, known_edges, unknown_values, .. } = joined;
        Ok(NewAnswers { answers, keys, new_edges, known_edges, unknown_values })
    }

    fn join(&self, new: &NewNodes) -> Result<Joined> {
        match new {
            NewNodes::Features(new) => self.run.join_features(&self.data, new),
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
