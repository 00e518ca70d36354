//! Predictions of a run on several types for nodes that its dataset does not hold: `predict --on`.
//!
//! New nodes may be of all types with features. The model computes those of the task's type from
//! all their neighbours, in the graph of the dataset with the new nodes and edges of all types. A
//! type without features has a learned row for each node of training, and no row for a new one.

use std::{path::Path, sync::Arc};

use graphmill_core::{
    Features, NodeId,
    matrix::TableType,
    options::one_of,
    progress::Progress,
    typed::{NodeType, Schema, TypedGraph},
};
use graphmill_data::{
    external::Scratch,
    tables::find_edge_type,
    typed::{TableData, TypedDataset, Values},
};
use graphmill_loader::{Feature, feature::Host};
use graphmill_nn::Matrix;

use super::{
    build,
    inference::TypedInference,
    saved::{Loaded, SavedTypedRun},
    tables::Tables,
    task::TypedTask,
    tiers,
};
use crate::{
    Error, Result,
    inference::Output,
    predictions::{Identity, Predictions, Target},
    saved::{
        Kind, Written,
        keys::Names,
        on::{
            Known, NewEdges, NewRows, NewTables, NewTypedFeatures, NodeIds, ReadNew, WrittenNew, check_ids,
            count_rows, encodings,
            part::{Edges, Part},
        },
    },
    tiers::{Joined, Selected},
};

/// A task, the rows of its types, and the number of hops of the part of its graph to join new nodes
/// to: that on which they depend by as many layers. Without it they are joined to a copy of the
/// whole graph.
pub(super) type JoinTo<'t> = (&'t TypedTask, &'t Tables, Option<usize>);

/// A task with new nodes.
pub(super) struct JoinedTask {
    /// The task on the joined graph. Its features and labels are those of the known nodes.
    pub(super) task: TypedTask,
    /// Rows of all nodes of each type.
    pub(super) tables: Tables,
    /// Ids in the whole graph of the nodes of each type, if the graph of the task is a part of it.
    pub(super) ids: Option<Vec<Vec<NodeId>>>,
    /// New edges of each stored relation.
    pub(super) edges: Vec<NewEdges>,
    /// Number of new nodes of the task's type.
    count: usize,
    /// The rows of tables, in a directory that is removed with this value.
    pub(super) imported: Option<NewRows>,
}

impl JoinedTask {
    /// Ids of the new nodes of the task's type.
    pub(super) fn wanted(&self) -> Vec<NodeId> {
        let end = self.task.num_nodes() as NodeId;
        (end - self.count as NodeId..end).collect()
    }

    /// Rows and edges of the tables.
    pub(super) fn read(&self) -> ReadNew {
        ReadNew {
            new_edges: self.edges.iter().map(NewEdges::len).sum(),
            known_edges: self.edges.iter().map(|edges| edges.between_known).sum(),
            unknown_values: self.imported.as_ref().map(|new| new.unknown_values.clone()).unwrap_or_default(),
        }
    }
}

impl SavedTypedRun<'_> {
    /// Writes predictions for the new nodes of the task's type to `out`, in the order of their
    /// table. `data` is the run's dataset, or another one that was imported by the same
    /// statistics.
    ///
    /// # Errors
    /// The dataset was not imported from tables; no table has nodes of the task's type; the rows of
    /// the task have times; new nodes have a type without features; a table has faults; a new key
    /// is in the dataset; an edge names a key that is neither there nor new; `out` cannot be
    /// written; or `watch` stops the work.
    pub fn predict_new(
        &self,
        data: &TypedDataset,
        new: &NewTables,
        kind: Kind,
        out: &Path,
        watch: &Arc<dyn Progress>,
    ) -> Result<WrittenNew> {
        let target = Target::new(out)?;
        self.run.check_kind(kind)?;
        self.run.check_new_nodes()?;
        let Loaded { task, model } = self.load(data)?;
        let (_, preprocessing) = encodings(&data.name, data.directory.as_deref())?;
        let known = Known::new(data, &preprocessing).with_edge_features(!task.edges.is_empty());
        let tables = tiers::whole(self.config(), data, &task)?;
        let joined = self.join_tables((data, &known), (&task, &tables, None), new, watch)?;
        let (wanted, count, read) = (joined.wanted(), joined.count, joined.read());
        let JoinedTask { task: whole, tables, imported, .. } = joined;
        let t = whole.node_type;
        let mut names = Names::of_type(data, t, self.classes(&whole));
        names.columns = self.run.columns().to_vec();
        let sampler = self.run.blame_config(build::inference_sampler(self.config(), &whole))?;
        let inference = TypedInference::new(self.config(), &whole, &*sampler, tables)?;
        let output = if kind == Kind::Embeddings { Output::Embeddings } else { Output::Logits };
        let mut rows = Matrix::default();
        inference.watched(&**watch).run(&model, &wanted, output, &mut rows)?;
        let nodes: Vec<NodeId> = (0..count as NodeId).collect();
        let keys = imported.as_ref().map(|new| new.keys(t));
        let identity = Identity { keys, ..names.identity(&nodes) };
        let found = self.run.values(kind, whole.labels.is_multi(), rows);
        let (cols, values) = found.map_err(|error| error.with_row_name(|row| identity.row_name(row)))?;
        target.write(&Predictions { nodes, cols, values, identity: Some(identity) })?;
        let written = Written {
            out: out.to_path_buf(),
            rows: count,
            cols,
            kind: self.run.name_of(kind),
            same_dataset: self.is_own(data),
            rescaled: None,
        };
        Ok(WrittenNew { written, read })
    }

    /// Joins the nodes and edges of tables, which the statistics of `known` encode, to a task on
    /// `data`.
    ///
    /// # Errors
    /// Those of [`SavedTypedRun::predict_new`], but for the output.
    pub(super) fn join_tables(
        &self,
        (data, known): (&TypedDataset, &Known),
        of: JoinTo<'_>,
        new: &NewTables,
        watch: &Arc<dyn Progress>,
    ) -> Result<JoinedTask> {
        let t = of.0.node_type;
        let files = known.assign(new, t)?;
        check(data, of.0, |t| !files.nodes[t].is_empty())?;
        let imported = known.import(new, &files, watch)?;
        let parts = NewParts::of_tables(data, of.0.graph.schema(), &imported);
        let scratch = |r: usize| imported.scratch(&format!("relation-{r}"), data.edges.len());
        let joined = self.join(data, of, parts, &scratch)?;
        watch.check()?;
        Ok(JoinedTask { imported: Some(imported), ..joined })
    }

    /// Joins feature rows and edges to a task on `data`.
    ///
    /// # Errors
    /// No row has the task's type; a type is unknown or has no features; rows have another width,
    /// or numbers that are not finite; an edge names a node that is neither known nor new, occurs
    /// twice, or has a weight that is negative or not finite; the rows of the task have times.
    pub(super) fn join_features(
        &self,
        data: &TypedDataset,
        of: JoinTo<'_>,
        new: &NewTypedFeatures,
    ) -> Result<JoinedTask> {
        if !of.0.edges.is_empty() {
            return Err(Error::usage(
                "new nodes: the model reads features of edges, and listed edges have none; pass rows of \
                 tables, whose edges have the columns of the import",
            ));
        }
        let parts = NewParts::listed(data, of.0, new)?;
        check(data, of.0, |t| parts.counts[t] > 0)?;
        self.join(data, of, parts, &|_| Ok(Scratch::in_memory()))
    }

    /// Joins new nodes and their edges. `scratch` is that of a relation.
    fn join(
        &self,
        data: &TypedDataset,
        (task, tables, hops): JoinTo<'_>,
        new: NewParts,
        scratch: &dyn Fn(usize) -> Result<Scratch>,
    ) -> Result<JoinedTask> {
        let t = task.node_type;
        let (graph, rows, ids) = match hops {
            None => extend(task, &new, scratch).map(|(graph, rows)| (graph, rows, None))?,
            Some(hops) => part(task, &new, t, hops).map(|(graph, rows, ids)| (graph, rows, Some(ids)))?,
        };
        let tables = joined(&data.name, tables.clone(), task, &new)?;
        let edges = joined_edges(data, task, &new, rows)?;
        let task = TypedTask { graph, edges, ..task.clone() }.with_added(self.config(), &[t])?;
        Ok(JoinedTask { task, tables, ids, count: new.counts[t], edges: new.edges, imported: None })
    }
}

/// New nodes of each type, and new edges of each stored relation.
struct NewParts {
    /// Number of new nodes.
    counts: Vec<usize>,
    features: Vec<Features>,
    edges: Vec<NewEdges>,
    /// Features of the edges of each relation, by their numbers.
    edge_features: Vec<Features>,
}

impl NewParts {
    /// Takes the rows of tables.
    fn of_tables(data: &TypedDataset, schema: &Schema, new: &NewRows) -> Self {
        let edges = data.edges.iter().zip(schema.relations());
        let edges = edges.map(|(of, ends)| new.edges(Some(&of.edge_type), (ends.src, ends.dst)));
        let types = 0..data.nodes.len();
        Self {
            counts: types.clone().map(|t| new.count(t)).collect(),
            features: types.map(|t| new.features(t)).collect(),
            edges: edges.collect(),
            edge_features: data.edges.iter().map(|of| new.edge_features(&of.edge_type)).collect(),
        }
    }

    /// Takes listed rows and edges.
    fn listed(data: &TypedDataset, task: &TypedTask, new: &NewTypedFeatures) -> Result<Self> {
        let (schema, dims) = (task.graph.schema(), task.feature_dims());
        let mut counts = vec![0; dims.len()];
        let mut features = vec![Features::default(); dims.len()];
        for (name, (width, rows)) in &new.rows {
            let Some(t) = data.nodes.iter().position(|nodes| nodes.name == *name) else {
                let known: Vec<&str> = data.nodes.iter().map(|nodes| &nodes.name[..]).collect();
                return Err(Error::usage(format!(
                    "new nodes of '{name}': {} has no such type; use {}",
                    data.name,
                    one_of(&known)
                )));
            };
            if dims[t] == 0 {
                return Err(no_features(&data.nodes[t].name));
            }
            if *width != dims[t] {
                return Err(Error::usage(format!(
                    "new nodes of '{name}': rows of {width} features, but the type has {}; pass rows of {}",
                    dims[t], dims[t]
                )));
            }
            counts[t] = count_rows(&format!("new nodes of '{name}'"), rows, dims[t])?;
            features[t] = Features::f32(dims[t], rows.clone());
        }
        let ids = |t: usize| NodeIds { known: data.nodes[t].count, new: counts[t], places: &[] };
        let none = || NewEdges::listed("", std::iter::empty(), [ids(0); 2]);
        let mut edges = data.edges.iter().map(|_| none()).collect::<Result<Vec<_>>>()?;
        for (name, listed) in &new.edges {
            let what = format!("new edges '{name}'");
            let found = find_edge_type(data, name).map_err(|e| Error::usage(e.to_string()))?;
            let Some(r) = found else {
                let known: Vec<String> = data.edges.iter().map(|edges| edges.edge_type.to_string()).collect();
                let known = one_of(&known.iter().map(String::as_str).collect::<Vec<_>>());
                return Err(Error::usage(format!("{what}: {} has no such type; use {known}", data.name)));
            };
            let (of, ends) = (&data.edges[r], &schema.relations()[r]);
            let found = NewEdges::listed(&what, listed.iter().copied(), [ends.src, ends.dst].map(ids))?;
            let back = of.reverse.as_ref().filter(|_| new.undirected).map(|name| of.edge_type.reversed(name));
            let back = back.and_then(|name| data.edges.iter().position(|edges| edges.edge_type == name));
            let mut add = |r: usize, new: NewEdges| -> Result<()> {
                let known = std::mem::replace(&mut edges[r], none()?);
                edges[r] = known.and(new, &what)?;
                Ok(())
            };
            match back {
                Some(back) if back == r => add(r, found.undirected(&what)?)?,
                Some(back) => {
                    add(back, found.reversed())?;
                    add(r, found)?;
                }
                None => add(r, found)?,
            }
        }
        let edge_features = vec![Features::default(); edges.len()];
        Ok(Self { counts, features, edges, edge_features })
    }
}

/// Error of new nodes of a type with learned rows.
fn no_features(name: &str) -> Error {
    Error::usage(format!(
        "new nodes of '{name}': the type has no features, so the model has a learned row for each node that \
         it was trained on, and none for a new one; leave these nodes and their edges out, or train on \
         tables in which the type has feature columns"
    ))
}

/// Checks that the model can compute new nodes of the types for which `is_given` is true.
fn check(data: &TypedDataset, task: &TypedTask, is_given: impl Fn(usize) -> bool) -> Result<()> {
    let target = &data.nodes[task.node_type].name;
    if task.times.is_some() {
        return Err(Error::usage(format!(
            "new nodes: the rows of task '{}' have times, and a table of new nodes of '{target}' gives no \
             time for a row; import the tables again with the new rows and their times, and pass --dataset",
            task.name
        )));
    }
    let learned = (0..data.nodes.len()).find(|&t| is_given(t) && task.features[t].is_none());
    if let Some(t) = learned {
        return Err(no_features(&data.nodes[t].name));
    }
    if !is_given(task.node_type) {
        return Err(Error::usage(format!(
            "new nodes: the run predicts nodes of '{target}', and no table has new ones; add such a table, \
             as {target}=TABLE"
        )));
    }
    Ok(())
}

/// Row of each edge among those of the known edges, followed by those of the new ones, for each
/// relation whose rows the model reads.
type EdgeRowsOf = Vec<Option<Vec<NodeId>>>;

/// The graph of `task` with new nodes and edges of all types.
fn extend(
    task: &TypedTask,
    new: &NewParts,
    scratch: &dyn Fn(usize) -> Result<Scratch>,
) -> Result<(TypedGraph, EdgeRowsOf)> {
    let graph = &task.graph;
    let schema = graph.schema();
    let types = schema.types().iter().zip(&new.counts);
    let types = types.map(|(node, new)| NodeType::new(&node.name, node.count + new)).collect();
    // without the relations that a sampler adds, which have no edges
    let stored = &schema.relations()[..new.edges.len()];
    let (mut relations, mut rows) = (Vec::with_capacity(stored.len()), Vec::with_capacity(stored.len()));
    for (r, (relation, edges)) in stored.iter().zip(&new.edges).enumerate() {
        let (known, count) = (graph.relation(r), new.counts[relation.dst]);
        let mut of_relation = has_rows(task, r).then(Vec::new);
        relations.push(edges.added_with_rows(known, count, &scratch(r)?, of_relation.as_mut())?);
        rows.push(of_relation);
    }
    let schema = Schema::new(types, stored.to_vec())?;
    Ok((TypedGraph::new(schema, relations)?, rows))
}

/// Returns true if the model reads the rows of the edges of relation `r`.
fn has_rows(task: &TypedTask, r: usize) -> bool {
    task.edges.get(r).is_some_and(Option::is_some)
}

/// The part of the graph of `task` with new nodes and edges of all types that new nodes of the type
/// `t` depend on by `hops` layers, the rows of its edges, and the ids of its nodes.
fn part(
    task: &TypedTask,
    new: &NewParts,
    t: usize,
    hops: usize,
) -> Result<(TypedGraph, EdgeRowsOf, Vec<Vec<NodeId>>)> {
    let graph = &task.graph;
    let schema = graph.schema();
    let known: Vec<usize> = schema.types().iter().map(|node| node.count).collect();
    known.iter().zip(&new.counts).try_for_each(|(&known, &new)| check_ids(known, new))?;
    let counts: Vec<usize> = known.iter().zip(&new.counts).map(|(known, new)| known + new).collect();
    let mut wanted = vec![Vec::new(); counts.len()];
    wanted[t] = (known[t] as NodeId..counts[t] as NodeId).collect();
    // without the relations that a sampler adds, which have no edges
    let stored = &schema.relations()[..new.edges.len()];
    let edges = stored.iter().zip(&new.edges).enumerate();
    let edges = edges.map(|(r, (of, new))| {
        let with_rows = has_rows(task, r);
        Edges { known: graph.relation(r), new, src: of.src, dst: of.dst, with_rows }
    });
    let Part { ids, relations, rows } = Part::around(&edges.collect::<Vec<_>>(), &counts, &wanted, hops);
    let types = schema.types().iter().zip(&ids).map(|(node, ids)| NodeType::new(&node.name, ids.len()));
    let schema = Schema::new(types.collect(), stored.to_vec())?;
    Ok((TypedGraph::new(schema, relations)?, rows, ids))
}

/// The rows of each type of the dataset `name`, followed by those of the new nodes at the same
/// precision.
fn joined(name: &str, tables: Tables, task: &TypedTask, new: &NewParts) -> Result<Tables> {
    let join = |(t, table): (usize, Option<Arc<dyn Feature>>)| {
        let Some(known) = table else { return Ok(None) };
        if new.counts[t] == 0 {
            return Ok(Some(known));
        }
        let kind = task.kind(t).unwrap_or(TableType::F32);
        let features = &new.features[t];
        if features.dim != known.dim() {
            let message = format!(
                "type '{}' has {} features, but the columns of its table give {}; import the tables again",
                task.graph.schema().types()[t].name,
                known.dim(),
                features.dim
            );
            return Err(Error::dataset(name, message));
        }
        let rows = Host::resident(features, kind)?;
        Ok(Some(Arc::new(Joined::new(known, rows)) as Arc<dyn Feature>))
    };
    tables.into_iter().enumerate().map(join).collect()
}

/// The rows of the edges of `task` with new ones at the same precision, in the order of the joined
/// graph.
fn joined_edges(data: &TypedDataset, task: &TypedTask, new: &NewParts, rows: EdgeRowsOf) -> Result<Tables> {
    let mut tables = Tables::with_capacity(task.edges.len());
    for (r, (table, rows)) in task.edges.iter().zip(rows).enumerate() {
        let (Some(known), Some(rows)) = (table, rows) else {
            tables.push(None);
            continue;
        };
        let (features, of) = (&new.edge_features[r], &data.edges[r]);
        let mut all = known.clone();
        if new.edges[r].len() > 0 {
            let added = features.len().checked_div(features.dim).unwrap_or_default();
            if features.dim != known.dim() || known.num_rows() + added > NodeId::MAX as usize {
                let message = format!(
                    "edge type {} has {} features, but the columns of its table give {}, or it has more \
                     edges than ids; import the tables again",
                    of.edge_type,
                    known.dim(),
                    features.dim
                );
                return Err(Error::dataset(&data.name, message));
            }
            let kind = match of.features.as_ref().map(|table| &table.data) {
                Some(TableData::Dense(Values::F16(_))) => TableType::F16,
                _ => TableType::F32,
            };
            all = Arc::new(Joined::new(all, Host::resident(features, kind)?));
        }
        tables.push(Some(Arc::new(Selected::new(all, rows))));
    }
    Ok(tables)
}
