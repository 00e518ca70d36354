//! Best candidates of new nodes, by a run on links: `predict --on TABLE --top-k K`.
//!
//! The encoder computes the new nodes in the graph of the dataset with their edges, which may be
//! those that the run learned, such as a new user's first purchases. Candidates are the nodes of
//! the dataset, with their own embeddings, but for those to which the new node has an edge of the
//! relation.

use std::{path::Path, sync::Arc};

use graphmill_core::{End, NodeId, progress::Progress};
use graphmill_data::{
    Dataset,
    dataset::Rescaling,
    typed::{self, Keys, Verify},
};
use graphmill_nn::{
    Matrix, Pass, View,
    backend::Cpu,
    link::{
        decoder::Decoder,
        rank::full::{FullRanking, Lists},
    },
};

use super::{Additions, Known, NewTables, ReadNew, WrittenNew, encodings};
use crate::{
    Error, Result, build,
    inference::{Inference, Output},
    predictions::{Identity, Predictions, Target, Values},
    saved::{
        SavedRun, Written, keys,
        links::{BestLinks, Reading},
    },
};

/// Nodes whose candidates are ranked at once.
const QUERIES: usize = 1 << 12;

/// Embeddings of new nodes, and the candidates that each leaves out.
pub(crate) struct NewQueries {
    /// Embeddings, `Q x F`.
    pub(crate) rows: Matrix,
    /// Ascending lists of candidates, `Q`.
    pub(crate) excluded: Vec<Vec<NodeId>>,
}

impl NewQueries {
    /// The `k` best `candidates` (`C x F`) of each new node as the `end` of an edge of `relation`,
    /// with their scores by `backend`, the best first.
    pub(crate) fn best(
        &self,
        backend: &Cpu,
        decoder: &dyn Decoder,
        (relation, end): (usize, End),
        candidates: View,
        k: usize,
    ) -> BestLinks {
        let mut found = BestLinks::default();
        for (chunk, excluded) in self.excluded.chunks(QUERIES).enumerate() {
            let first = chunk * QUERIES;
            let (mut starts, mut ids) = (vec![0], Vec::new());
            for own in excluded {
                ids.extend_from_slice(own);
                starts.push(ids.len());
            }
            let ranking = FullRanking {
                decoder,
                pass: Pass { backend, training: false, key: 0 },
                end,
                queries: self.rows.rows(first..first + excluded.len()),
                relation: &vec![relation as u32; excluded.len()],
                candidates,
                excluded: Lists::new(&starts, &ids),
                // decoders that read them are refused
                nodes: [&[], &[]],
            };
            let best = rayon::scope(|_| ranking.top(k));
            best.into_iter().enumerate().for_each(|(i, best)| found.extend((first + i) as NodeId, best));
        }
        found
    }
}

/// Best candidates of new nodes.
pub struct BestOfNew {
    /// The pairs; nodes are numbered by the rows of their table.
    pub best: BestLinks,
    /// Rows and edges of the tables.
    pub read: ReadNew,
    /// Keys of the new nodes.
    pub(crate) keys: Option<Keys>,
    /// Names of the known nodes of their type, and of the candidates.
    pub(crate) names: [keys::Names; 2],
    /// As in [`Written`].
    pub(crate) same_dataset: Option<bool>,
    /// As in [`Written`].
    pub(crate) rescaled: Option<String>,
}

impl BestOfNew {
    /// Writes the pairs to the file `out`.
    ///
    /// # Errors
    /// No pair is left, or the file cannot be written or has a format without columns.
    pub fn write(self, out: &Path) -> Result<WrittenNew> {
        let target = Target::new(out)?;
        target.check_columns()?;
        let BestLinks { nodes, candidates, scores } = self.best;
        if nodes.is_empty() {
            let why = "the new nodes have edges to all candidates, so none is left";
            return Err(Error::usage(format!("--top-k: {why}")));
        }
        let count = nodes.len();
        let [names, of_candidates] = self.names;
        let of_candidates = Some(Box::new(of_candidates.identity(&[])));
        let identity = Identity { keys: self.keys, of_candidates, ..names.identity(&nodes) };
        let values = Values::Links { candidates, scores };
        target.write(&Predictions { nodes, cols: 1, values, identity: Some(identity) })?;
        let (same_dataset, rescaled) = (self.same_dataset, self.rescaled);
        let written = Written { same_dataset, rescaled, ..Written::of_own(out, [count, 1], "links") };
        Ok(WrittenNew { written, read: self.read })
    }
}

impl SavedRun {
    /// The `k` best candidates of each node of `new` as the `end` of an edge, in the order of their
    /// table. `data` is the run's dataset, or another one that was imported by the same statistics.
    ///
    /// # Errors
    /// Those of [`SavedRun::predict_new`] but for the output, or the run did not learn links of one
    /// type.
    pub fn best_of_new(
        &self,
        data: &Dataset,
        new: &NewTables,
        ((k, end), reading): ((usize, End), Reading),
        watch: &Arc<dyn Progress>,
    ) -> Result<BestOfNew> {
        let (task, model) = self.of_links(data, reading)?;
        let (dir, preprocessing) = encodings(&data.name, data.directory.as_deref())?;
        let stored = typed::open(dir, Verify::Once)?;
        let new = Additions::of_tables(&Known::new(&stored, &preprocessing), new, watch)?;
        let links = self.node_links((&task, &model), data, reading, &**watch)?;
        let graph = if reading == Reading::All { &data.graph } else { &task.data.graph };
        let joined = self.join(&Dataset { graph: graph.clone(), ..data.clone() }, new)?;
        watch.check()?;
        let backend = Cpu { precision: build::precision(&self.config) };
        let symmetric = build::symmetric(&model, &joined.data);
        let chunk = self.config.eval_chunk;
        let neighbors = self.blame_config(build::inference_neighbors(&self.config, &joined.data))?;
        let mut rows = Matrix::default();
        let mut inference =
            Inference::new(&joined.data.graph, &joined.rows, symmetric.as_deref(), &backend, chunk)
                .with_neighbors(neighbors)
                .watched(&**watch);
        self.blame_config(inference.run(&model, &joined.ids(), Output::Logits, &mut rows))?;
        let known = data.num_nodes() as NodeId;
        let (decoder, all) = links.parts();
        let excluded = joined.new.edges.known_ends(end, (known, joined.new.count), known);
        let best = NewQueries { rows, excluded }.best(&backend, decoder, (0, end), all.view(), k);
        Ok(BestOfNew {
            best,
            names: [keys::Names::of(data, None)?, keys::Names::of(data, None)?],
            same_dataset: self.is_own(data)?,
            rescaled: self.rescaling(data)?.as_ref().map(Rescaling::description),
            keys: joined.new.keys.clone(),
            read: joined.new.read(),
        })
    }
}
