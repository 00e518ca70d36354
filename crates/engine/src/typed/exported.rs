//! Properties of a run that exports of its model record.

use graphmill_core::typed::{NodeType, Relation, Schema};

use super::{SavedTypedRun, build, edges::reads};
use crate::{Error, Result, checkpoint::load_params, record::TypedOrigin, saved::SavedRun};

impl<'r> SavedTypedRun<'r> {
    /// The run, if it learned links of several types, or with edge features, by a model that reads
    /// messages.
    pub(crate) fn of_links(run: &'r SavedRun) -> Option<Self> {
        run.learns_typed_links().then_some(Self { run })
    }

    /// Number of features of each edge type, if the model reads them.
    pub(crate) fn edge_widths(&self) -> Option<&'r [usize]> {
        let types = self.types().filter(|_| reads(&self.config().model))?;
        Some(&types.edge_widths)
    }

    /// Types of the run's dataset; `None` if an older version wrote the run.
    pub(crate) fn types(&self) -> Option<&'r TypedOrigin> {
        self.run.origin.as_ref()?.typed.as_ref()
    }

    /// Node type that the run predicts; `None` if it is neither recorded nor in the run's dataset.
    pub(crate) fn predicted_type(&self) -> Option<String> {
        let types = self.types()?;
        if !types.on.is_empty() {
            return Some(types.on.clone());
        }
        let data = self.dataset(None).ok()?;
        data.task(&types.task).ok().map(|task| task.on.to_string())
    }

    /// Returns true if predictions read drawn neighbours.
    pub(crate) fn draws_in_inference(&self) -> bool {
        build::draws_in_inference(self.config())
    }

    /// Number of learned rows of each node type; 0 for types with features.
    ///
    /// # Errors
    /// The weights cannot be read.
    pub(crate) fn learned_rows(&self) -> Result<Vec<usize>> {
        let params = load_params(&self.run.model_file()?)?;
        let types = self.types().map_or(&[][..], |types| &types.node_types);
        let rows = types.iter().map(|of| {
            let name = format!("input.{}.rows", of.name);
            params.iter().find(|tensor| tensor.name == name).map_or(0, |tensor| tensor.shape[0])
        });
        Ok(rows.collect())
    }

    /// Edge types that each layer reads, from the bottom up.
    ///
    /// # Errors
    /// The record of the types is inconsistent, or the fanout does not fit them.
    pub(crate) fn followed(&self) -> Result<Vec<Vec<bool>>> {
        let Some(types) = self.types() else { return Ok(Vec::new()) };
        let broken = |why: String| Error::run(&self.run.dir, format!("dataset.json: {why}; train again"));
        let nodes = types.node_types.iter().map(|of| NodeType::new(&of.name, 0)).collect();
        let find = |name: &str| types.node_types.iter().position(|of| of.name == name);
        let relations = types.edge_types.iter().map(|name| {
            let mut parts = name.splitn(3, ':');
            let (source, kind, destination) = (parts.next()?, parts.next()?, parts.next()?);
            Some(Relation::new(find(source)?, kind, find(destination)?))
        });
        let relations: Option<Vec<Relation>> = relations.collect();
        let relations = relations.ok_or_else(|| broken("an edge type joins unknown types".into()))?;
        let schema = Schema::new(nodes, relations).map_err(|error| broken(error.to_string()))?;
        self.run.blame_config(build::followed(self.config(), &schema))
    }
}
