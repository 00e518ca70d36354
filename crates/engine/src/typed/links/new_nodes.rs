//! Best candidates of new nodes, by a run on links of several types: `predict --on --top-k`.

use std::sync::Arc;

use graphmill_core::{End, NodeId, progress::Progress};
use graphmill_data::typed::TypedDataset;
use graphmill_nn::Matrix;

use super::{
    super::{
        build, inference::TypedInference, new_nodes::JoinedTask, saved::SavedTypedRun, task::TypedTask, tiers,
    },
    saved::SavedTypedLinks,
};
use crate::{
    Error, Result,
    relational::find_relation,
    saved::{
        keys::Names,
        links::Reading,
        on::{BestOfNew, Known, NewQueries, NewTables, encodings},
    },
};

impl SavedTypedLinks<'_> {
    /// The `k` best candidates of each new node as the `end` of an edge of the task `relation` (or
    /// of the only one, if it is empty), in the order of their table. New nodes are of the type of
    /// the other end; candidates are nodes of the dataset, but for those to which the new node has
    /// an edge of the relation.
    ///
    /// # Errors
    /// The relation is unknown, the rows of the task have times, or those of
    /// [`SavedTypedRun::predict_new`] but for the output.
    pub fn best_of_new(
        &self,
        data: &TypedDataset,
        (relation, end): (&str, End),
        new: &NewTables,
        (k, reading): (usize, Reading),
        watch: &Arc<dyn Progress>,
    ) -> Result<BestOfNew> {
        self.run.check_new_nodes()?;
        let (of, model) = self.open(data, reading)?;
        if of.inputs.times.is_some() {
            return Err(Error::usage(format!(
                "new nodes: the rows of task '{}' have times, and a table of new nodes gives none; import \
                 the tables again with the new rows, and pass --dataset",
                of.edges.task
            )));
        }
        let number = find_relation(&data.name, of.edges.relations.iter().map(|of| &of.name[..]), relation)?;
        let asked = &of.edges.relations[number];
        let [own, other] = [end.other(), end].map(|end| asked.types[end as usize]);
        let candidates = asked.candidates[end as usize].clone();
        let held = of.held[number].forward;
        let (_, preprocessing) = encodings(&data.name, data.directory.as_deref())?;
        let known = Known::new(data, &preprocessing).with_edge_features(!of.inputs.edges.is_empty());
        let (inputs, tables) = (of.inputs.clone(), tiers::whole(self.config(), data, &of.inputs)?);
        let task = TypedTask { node_type: own, ..inputs };
        let run = SavedTypedRun { run: self.run };
        let joined = run.join_tables((data, &known), (&task, &tables, None), new, watch)?;
        let queries = self.queries(&joined, (&model.encoder, own), &**watch)?;
        let embedded = self.embedded(data, of, model, &**watch)?;
        let counts = [own, other].map(|t| data.nodes[t].count as NodeId);
        let new_ids = (counts[0], queries.num_rows());
        let excluded = joined.edges[held].known_ends(end, new_ids, counts[1]);
        let rows = embedded.rows.rows(candidates.start as usize..candidates.end as usize);
        let (queries, decoder) = (NewQueries { rows: queries, excluded }, &*embedded.decoder);
        let best = queries.best(embedded.processor, decoder, (number, end), rows, k);
        Ok(BestOfNew {
            best,
            names: [own, other].map(|t| Names::of_type(data, t, Vec::new())),
            same_dataset: run.is_own(data),
            rescaled: None,
            read: joined.read(),
            keys: joined.imported.as_ref().map(|new| new.keys(own)),
        })
    }

    /// Embeddings of the new nodes of the type `t`.
    fn queries(
        &self,
        joined: &JoinedTask,
        (encoder, t): (&graphmill_nn::typed::TypedModel, usize),
        watch: &dyn Progress,
    ) -> Result<Matrix> {
        let sampler = self.run.blame_config(build::sampler(self.config(), &joined.task))?;
        let inference = TypedInference::new(self.config(), &joined.task, &*sampler, joined.tables.clone())?;
        let mut wanted = vec![Vec::new(); joined.task.graph.schema().num_types()];
        wanted[t] = joined.wanted();
        let mut rows = Matrix::default();
        inference.watched(watch).embed_nodes(encoder, &wanted, &mut rows)?;
        Ok(rows)
    }
}
